"""The coordinator's ledger: one file, one study, one signing key.

The study's allowance is fixed when the ledger is opened for the first time and never looks at an answer.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from coordinator.schema import LATER, SCHEMA
from coordinator.stored_plan import ReservedPlans
from wardround.federation.errors import ConfigurationMistaken
from wardround.federation.identity import Identity
from wardround.federation.ledger import chain
from wardround.federation.ledger.body import cap_body, decode_body, text_in
from wardround.federation.ledger.database import LEDGER_FILE, Database, Keeping
from wardround.federation.study import Study

STUDY_ACCOUNT = "study"


@dataclass(frozen=True, slots=True)
class Ledger:
    """The database with the study it accounts for and the identity that signs its entries."""

    database: Database
    study: Study
    identity: Identity
    plans: ReservedPlans = field(default_factory=ReservedPlans, compare=False)

    def close(self) -> None:
        """Close every connection."""
        self.database.close()


def open_ledger(folder: Path, *, study: Study, identity: Identity, keeping: Keeping = Keeping.DURABLE) -> Ledger:
    """The ledger in `folder`, begun if there is none; commands beside a serving coordinator open it too.

    A ledger that was begun for another study or under another key is `ConfigurationMistaken`: a budget
    cannot be changed by editing a file.
    """
    database = Database(folder / LEDGER_FILE, schema=SCHEMA, later=LATER, keeping=keeping)
    with database.reading() as connection:
        begun = chain.entry_at(connection, 1)
    if begun is None:
        with database.transaction() as connection:
            begun = chain.entry_at(connection, 1)
            if begun is None:
                opened = {"role": "coordinator", "name": study.name, "study_hash": study.study_hash}
                begun = chain.append(connection, identity, kind="opened", body={**opened, "key": identity.public.key})
                chain.append(connection, identity, kind="capped", body=cap_body(STUDY_ACCOUNT, study.cap))
    body = decode_body(begun.body)
    if text_in(body, "study_hash") != study.study_hash:
        msg = f"{folder / LEDGER_FILE} was begun for another study; restore study.toml or begin a new folder."
        raise ConfigurationMistaken(msg)
    if text_in(body, "key") != identity.public.key:
        msg = f"{folder / LEDGER_FILE} is signed by another identity; restore identity.pem."
        raise ConfigurationMistaken(msg)
    return Ledger(database, study, identity)
