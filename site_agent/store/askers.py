"""Who asked what: the plans that a site was shown, and the keys by which it knows analysts.

A coordinator issues certificates, so a name alone proves nothing. The first key that signs under a name is remembered,
in the transaction that charges or holds its question; a question under another key, or under none, is for a steward to
decide. Only a steward gives a name another key. Whoever asked a plan first is who asked it.

Functions work inside the caller's transaction.
"""

from __future__ import annotations

import datetime
import logging
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, StrEnum

from site_agent.store.charges import begun, entry_about, refuse_if_frozen
from wardround.federation import canonical
from wardround.federation.canonical import decode
from wardround.federation.errors import LedgerCorrupt, MalformedMessage, Mistaken
from wardround.federation.ledger import chain
from wardround.federation.ledger.entry_body import Plain, asked_body, decode_body, text_in
from wardround.federation.ledger.sqlite_file import Database
from wardround.federation.plan.plan import Plan
from wardround.federation.trust.asked_by import AskedBy
from wardround.federation.trust.identity import Identity, PublicIdentity

log = logging.getLogger("wardround.site")


@dataclass(frozen=True, slots=True)
class Asking:
    """A plan and who asked it, in the analyst's own signature; None where nobody signed."""

    plan: Plan
    asked_by: AskedBy | None = None


class AskerStanding(Enum):
    """What a site knows of who asks."""

    UNKNOWN = "nobody signed, or the name is known under another key"
    KNOWN = "the name is known under this key, or is new"
    GOES_ON = "a round of a training that was decided for the same asker"


class Pinned(StrEnum):
    """How a key became known."""

    FIRST_SIGHT = "first sight"
    STEWARD = "steward"


@dataclass(frozen=True, slots=True)
class Pin:
    """The key by which an analyst is known, since when, and how it became known."""

    analyst: str
    key: PublicIdentity
    how: Pinned
    date: str


@dataclass(frozen=True, slots=True)
class KnownAnalysts:
    """The analysts' keys in one site's ledger."""

    database: Database
    identity: Identity
    today: Callable[[], datetime.date]

    def listed(self) -> list[Pin]:
        """Every analyst that is known, by name."""
        with self.database.reading() as connection:
            rows = connection.execute("SELECT analyst, sequence FROM pins ORDER BY analyst").fetchall()
            return [_pin(connection, analyst, sequence) for analyst, sequence in rows]

    def shown(self, analyst: str) -> list[PublicIdentity]:
        """The keys under which questions in this name were ever shown, the newest last."""
        with self.database.reading() as connection:
            rows = connection.execute(
                "SELECT asked_by FROM plans WHERE instr(asked_by, ?) ORDER BY rowid", (canonical.encode(analyst),)
            )
            found = [decoded(row[0]) for row in rows]
        return list(dict.fromkeys(asked.key for asked in found if asked is not None and asked.analyst == analyst))

    def trust(self, analyst: str, key: PublicIdentity, *, by: str) -> None:
        """Know an analyst by this key from now on, because a steward compared it; `Mistaken` where that is so."""
        with self.database.transaction() as connection:
            refuse_if_frozen(connection)
            row = connection.execute("SELECT sequence FROM pins WHERE analyst = ?", (analyst,)).fetchone()
            before = None if row is None else _pin(connection, analyst, row[0])
            if before is not None and (before.key, before.how) == (key, Pinned.STEWARD):
                raise Mistaken(f"{analyst} is known by this key already, by a steward's word; nothing was done.")
            known = {"how": Pinned.STEWARD.value, "by": by}
            _write_pin(connection, self.identity, analyst, key.key, {**known, "date": self.today().isoformat()})


def first_asked(connection: sqlite3.Connection, plan_id: str, otherwise: AskedBy | None) -> AskedBy | None:
    """Who asked the plan first; whoever is said to ask it now, where it was never shown before."""
    row = connection.execute("SELECT asked_by FROM plans WHERE plan_id = ?", (plan_id,)).fetchone()
    return otherwise if row is None else decoded(row[0])


def stored_asking(connection: sqlite3.Connection, plan_id: str) -> Asking | None:
    """A plan that was charged, held or refused, with who asked it; None of before this was written down."""
    row = connection.execute("SELECT plan, asked_by FROM plans WHERE plan_id = ?", (plan_id,)).fetchone()
    try:
        return None if row is None else Asking(decode(Plan, row[0]), decoded(row[1]))
    except MalformedMessage:
        raise LedgerCorrupt(private="a plan cannot be read") from None


def is_shown(connection: sqlite3.Connection, plan_id: str) -> bool:
    """Whether a plan was charged, held or refused since this is written down."""
    return connection.execute("SELECT 1 FROM plans WHERE plan_id = ?", (plan_id,)).fetchone() is not None


def standing(connection: sqlite3.Connection, asked_by: AskedBy | None, *, block: str) -> AskerStanding:
    """What is known of who asks, and whether it was decided already about the training that this is a round of.

    A training goes on for whoever began it. Under a key that is not the known one it does so only if a steward approved
    it, or if it began under a version that did not ask.
    """
    known = asked_by is not None and _pinned_key(connection, asked_by.analyst) in (None, asked_by.key.key)
    if block and begun(connection, block):
        body = _beginning(connection, block)
        asker = (text_in(body, "analyst"), text_in(body, "analyst_key")) if body.get("asked") else None
        same = asker == (None if asked_by is None else asked_by.asker)
        if (known and (same or asker is None)) or (same and ("asked" not in body or "approved_by" in body)):
            return AskerStanding.GOES_ON
    return AskerStanding.KNOWN if known else AskerStanding.UNKNOWN


def note(connection: sqlite3.Connection, asking: Asking) -> None:
    """Write down what was asked and by whom; of a plan that was shown before, only the hour is new."""
    asked_by = b"" if asking.asked_by is None else canonical.encode(asking.asked_by)
    connection.execute(
        "INSERT INTO plans (plan_id, plan, asked_by, hour) VALUES (?, ?, ?, ?)"
        " ON CONFLICT (plan_id) DO UPDATE SET hour = excluded.hour",
        (asking.plan.plan_id, asking.plan.encoding, asked_by, local_hour()),
    )


def meet(connection: sqlite3.Connection, identity: Identity, asked_by: AskedBy | None, *, date: str) -> None:
    """Remember the key of an analyst whose name is new."""
    if asked_by is None or _pinned_key(connection, asked_by.analyst) is not None:
        return
    known = {"how": Pinned.FIRST_SIGHT.value, "date": date}
    _write_pin(connection, identity, asked_by.analyst, asked_by.key.key, known)
    log.info(
        "analyst %s asks for the first time and is known from now on by the key %s; compare it with the analyst",
        asked_by.analyst,
        asked_by.key.fingerprint,
    )


def note_hour(connection: sqlite3.Connection, plan_id: str) -> None:
    """Something happened to a plan now."""
    connection.execute("UPDATE plans SET hour = ? WHERE plan_id = ?", (local_hour(), plan_id))


def asked_digest(connection: sqlite3.Connection, plan_id: str) -> dict[str, Plain]:
    """What a refusal says of who asked: which word was shown, and not that it was true; nothing where none was kept."""
    return asked_body(first_asked(connection, plan_id, None), proven=False) if is_shown(connection, plan_id) else {}


def local_hour() -> str:
    """The day and the hour on this machine's wall."""
    return datetime.datetime.now().astimezone().strftime("%Y-%m-%d %H")


def _pinned_key(connection: sqlite3.Connection, analyst: str) -> str | None:
    row = connection.execute("SELECT key FROM pins WHERE analyst = ?", (analyst,)).fetchone()
    return None if row is None else str(row[0])


def _write_pin(
    connection: sqlite3.Connection, identity: Identity, analyst: str, key: str, known: dict[str, str]
) -> None:
    entry = chain.append(connection, identity, kind="pinned", body={"analyst": analyst, "key": key, **known})
    connection.execute(
        "INSERT INTO pins (analyst, key, sequence) VALUES (?, ?, ?)"
        " ON CONFLICT (analyst) DO UPDATE SET key = excluded.key, sequence = excluded.sequence",
        (analyst, key, entry.sequence),
    )


def _pin(connection: sqlite3.Connection, analyst: str, sequence: int) -> Pin:
    entry = chain.entry_at(connection, sequence)
    if entry is None or entry.kind != "pinned":
        raise LedgerCorrupt(private="an analyst's key is not in the entry that its row names")
    body = decode_body(entry.body)
    return Pin(analyst, PublicIdentity(text_in(body, "key")), Pinned(text_in(body, "how")), text_in(body, "date"))


def _beginning(connection: sqlite3.Connection, block: str) -> dict[str, object]:
    """What the charge says that paid for a training."""
    plan_id, sequence = connection.execute(
        "SELECT plan_id, sequence FROM steps JOIN charges USING (plan_id) WHERE block = ? ORDER BY sequence LIMIT 1",
        (block,),
    ).fetchone()
    return dict(entry_about(connection, plan_id, sequence, kind="charged")[1])


def decoded(stored: bytes) -> AskedBy | None:
    """Who asked, as a ledger keeps it; None where nobody signed."""
    try:
        return decode(AskedBy, stored) if stored else None
    except MalformedMessage:
        raise LedgerCorrupt(private="who asked a plan cannot be read") from None
