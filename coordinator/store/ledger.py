"""The coordinator's ledger: one file, one study, one signing key.

The study's allowance is fixed when the ledger is opened for the first time and never looks at an answer.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from coordinator.store.answers import AnswerStore
from coordinator.store.members import MemberStore
from coordinator.store.rounds import RoundStore
from coordinator.store.schema import LATER, SCHEMA
from coordinator.store.submissions import SubmissionStore
from coordinator.store.tasks import TaskStore
from coordinator.store.trainings import TrainingStore
from wardround.federation.errors import ConfigurationMistaken
from wardround.federation.ledger import chain
from wardround.federation.ledger.entry_body import cap_body, decode_body, text_in
from wardround.federation.ledger.sqlite_file import LEDGER_FILE, Database, Durability, lost
from wardround.federation.study.study import Study
from wardround.federation.trust.identity import Identity

STUDY_ACCOUNT = "study"


@dataclass(frozen=True, slots=True)
class Ledger:
    """The study, the identity that signs the entries, and what is stored, by what it is about.

    Whoever decides calls the stores, and never the database: they hand out words, and a `with` block of theirs is one
    transaction. An exception in such a block undoes it; what it returned from is durable.
    """

    database: Database
    study: Study
    identity: Identity
    members: MemberStore
    rounds: RoundStore
    trainings: TrainingStore
    tasks: TaskStore
    submissions: SubmissionStore
    answers: AnswerStore

    @contextmanager
    def one_moment(self) -> Iterator[None]:
        """Everything that is read inside is of one moment. Keep it short: nobody can commit while somebody reads."""
        with self.database.reading():
            yield

    def close(self) -> None:
        self.database.close()


def begin_ledger(folder: Path, *, study: Study, identity: Identity, keeping: Durability = Durability.DURABLE) -> Ledger:
    """The ledger of a new coordinator; only `init` and simulations begin one."""
    database = Database(folder / LEDGER_FILE, schema=SCHEMA, later=LATER, keeping=keeping)
    with database.transaction() as connection:
        if chain.entry_at(connection, 1) is None:
            opened = {"role": "coordinator", "name": study.name, "study_hash": study.study_hash}
            chain.append(connection, identity, kind="opened", body={**opened, "key": identity.public.key})
            chain.append(connection, identity, kind="capped", body=cap_body(STUDY_ACCOUNT, study.cap))
    return _own(database, study, identity)


def open_ledger(folder: Path, *, study: Study, identity: Identity, keeping: Durability = Durability.DURABLE) -> Ledger:
    """The ledger in `folder`; commands beside a serving coordinator open it too.

    One that was begun for another study or under another key is `ConfigurationMistaken`: a budget cannot be
    changed by editing a file, and not by losing one.
    """
    database = Database(folder / LEDGER_FILE, schema=SCHEMA, later=LATER, keeping=keeping, existing=True)
    return _own(database, study, identity)


def _own(database: Database, study: Study, identity: Identity) -> Ledger:
    with database.reading() as connection:
        begun = chain.entry_at(connection, 1)
    if begun is None:
        raise lost(database.path, "has no entries")
    body = decode_body(begun.body)
    if text_in(body, "study_hash") != study.study_hash:
        raise ConfigurationMistaken(f"{database.path} was begun for another study; restore study.toml.")
    if text_in(body, "key") != identity.public.key:
        raise ConfigurationMistaken(f"{database.path} is signed by another identity; restore identity.pem.")
    members, trainings = MemberStore(database, identity), TrainingStore(database)
    rounds = RoundStore(database, identity, trainings)
    return Ledger(
        database,
        study,
        identity,
        members=members,
        rounds=rounds,
        trainings=trainings,
        tasks=TaskStore(database, identity, rounds, trainings),
        submissions=SubmissionStore(database, identity, members, rounds),
        answers=AnswerStore(database, identity),
    )
