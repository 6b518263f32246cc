"""Who belongs to the study: sites with their keys and declared numbers, and analysts.

Every read goes to the database, so a revocation made by another process holds from the next call on. A
name is used once: what a name has spent and signed stays with it.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from enum import StrEnum

from coordinator.ledger import Ledger
from wardround.federation.errors import ConfigurationMistaken, NotAuthorized, SiteFrozen
from wardround.federation.identity import PublicIdentity
from wardround.federation.ledger import accounts, chain
from wardround.federation.ledger.body import Body
from wardround.federation.ledger.entry import GENESIS
from wardround.federation.study_file import NAME

MOST_PATIENTS = 10**12


class Standing(StrEnum):
    """Whether a name may still take part."""

    ACTIVE = "active"
    FROZEN = "frozen"
    REVOKED = "revoked"


@dataclass(frozen=True, slots=True)
class SiteRecord:
    """A hospital as it enrolled; the number of patients is its own public declaration."""

    name: str
    identity: PublicIdentity
    patients: int
    dataset: str
    study_signature: bytes
    state: Standing


@dataclass(frozen=True, slots=True)
class AnalystRecord:
    """Someone who may ask."""

    name: str
    state: Standing


class Roster:
    """The sites and analysts of one study."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def enrol_site(
        self, *, name: str, identity: PublicIdentity, patients: int, dataset: str, study_signature: bytes
    ) -> SiteRecord:
        """Put a site on the roster with an account of its own; the same enrolment again changes nothing."""
        check_name(name)
        if not 0 <= patients <= MOST_PATIENTS:
            msg = f"{name} declares {patients} patients; declare a whole number from 0 to {MOST_PATIENTS}."
            raise ConfigurationMistaken(msg)
        record = SiteRecord(name, identity, patients, dataset, study_signature, Standing.ACTIVE)
        with self._ledger.database.transaction() as connection:
            if _find_site(connection, name) == record:
                return record
            self._refuse_taken(connection, name, identity.key)
            connection.execute(
                "INSERT INTO sites (name, key, patients, dataset, study_signature, state, head_digest)"
                " VALUES (?, ?, ?, ?, ?, 'active', ?)",
                (name, identity.key, patients, dataset, study_signature, GENESIS),
            )
            accounts.open_account(connection, name, self._ledger.study.cap.allowance())
            body: Body = {"site": name, "key": identity.key, "patients": patients, "dataset": dataset}
            chain.append(connection, self._ledger.identity, kind="enrolled", body=body)
        return record

    def add_analyst(self, name: str) -> AnalystRecord:
        """Put an analyst on the roster; once there, adding again changes nothing."""
        check_name(name)
        record = AnalystRecord(name, Standing.ACTIVE)
        with self._ledger.database.transaction() as connection:
            if _find_analyst(connection, name) != record:
                self._refuse_taken(connection, name, "")
                connection.execute("INSERT INTO analysts (name, state) VALUES (?, 'active')", (name,))
        return record

    def sites(self) -> tuple[SiteRecord, ...]:
        """Every site that ever enrolled, by name."""
        with self._ledger.database.reading() as connection:
            return all_sites(connection)

    def analysts(self) -> tuple[AnalystRecord, ...]:
        """Every analyst that was ever added, by name."""
        with self._ledger.database.reading() as connection:
            rows = connection.execute("SELECT name, state FROM analysts ORDER BY name").fetchall()
        return tuple(AnalystRecord(name, Standing(state)) for name, state in rows)

    def site(self, name: str) -> SiteRecord:
        """The site as it stands; `NotAuthorized` when it never enrolled."""
        with self._ledger.database.reading() as connection:
            return site_of(connection, name)

    def analyst(self, name: str) -> AnalystRecord:
        """The analyst as it stands; `NotAuthorized` when it was never added."""
        with self._ledger.database.reading() as connection:
            found = _find_analyst(connection, name)
        if found is None:
            raise NotAuthorized
        return found

    def admit_site(self, name: str) -> SiteRecord:
        """The site, if it may take part now; otherwise `NotAuthorized` or `SiteFrozen`."""
        with self._ledger.database.reading() as connection:
            return active_site(connection, name)

    def admit_analyst(self, name: str) -> AnalystRecord:
        """The analyst, if it may ask now; otherwise `NotAuthorized`."""
        found = self.analyst(name)
        if found.state is not Standing.ACTIVE:
            raise NotAuthorized
        return found

    def revoke(self, name: str) -> None:
        """End a site's or an analyst's part in the study; revoking again changes nothing."""
        with self._ledger.database.transaction() as connection:
            site, analyst = _find_site(connection, name), _find_analyst(connection, name)
            if site is None and analyst is None:
                known = [row[0] for row in connection.execute("SELECT name FROM sites UNION SELECT name FROM analysts")]
                msg = f"nobody is called {name!r}; there is {', '.join(sorted(known)) or 'nobody'}."
                raise ConfigurationMistaken(msg)
            if Standing.REVOKED in {record.state for record in (site, analyst) if record is not None}:
                return
            connection.execute("UPDATE sites SET state = 'revoked' WHERE name = ?", (name,))
            connection.execute("UPDATE analysts SET state = 'revoked' WHERE name = ?", (name,))
            chain.append(connection, self._ledger.identity, kind="revoked", body={"name": name})

    def freeze(self, name: str, reason: str) -> None:
        """Silence a site whose ledger contradicts itself; freezing again changes nothing."""
        with self._ledger.database.transaction() as connection:
            freeze(connection, self._ledger, name, reason)

    @staticmethod
    def _refuse_taken(connection: sqlite3.Connection, name: str, key: str) -> None:
        if _find_site(connection, name) is not None or _find_analyst(connection, name) is not None:
            msg = f"the name {name!r} is already taken in this study; a name is used once."
            raise ConfigurationMistaken(msg)
        if connection.execute("SELECT 1 FROM sites WHERE key = ?", (key,)).fetchone() is not None:
            msg = f"{name} offers a signing key that another site has enrolled with."
            raise ConfigurationMistaken(msg)


def all_sites(connection: sqlite3.Connection) -> tuple[SiteRecord, ...]:
    """Every site, by name, as this transaction sees it."""
    return tuple(_record(row) for row in connection.execute(f"{_SELECT} ORDER BY name"))


def site_of(connection: sqlite3.Connection, name: str) -> SiteRecord:
    """One site as this transaction sees it; `NotAuthorized` when it never enrolled."""
    found = _find_site(connection, name)
    if found is None:
        raise NotAuthorized
    return found


def active_site(connection: sqlite3.Connection, name: str) -> SiteRecord:
    """One site that may take part; otherwise `NotAuthorized` or `SiteFrozen`."""
    found = site_of(connection, name)
    _refuse_unless_active(found.state)
    return found


def refuse_unless_active(connection: sqlite3.Connection, name: str) -> None:
    """`NotAuthorized` or `SiteFrozen` unless the site may take part; nothing else about it is read."""
    row = connection.execute("SELECT state FROM sites WHERE name = ?", (name,)).fetchone()
    if row is None:
        raise NotAuthorized
    _refuse_unless_active(row[0])


def _refuse_unless_active(state: str) -> None:
    if state == Standing.FROZEN:
        raise SiteFrozen
    if state != Standing.ACTIVE:
        raise NotAuthorized


def freeze(connection: sqlite3.Connection, ledger: Ledger, name: str, reason: str) -> None:
    """Silence a site inside a running transaction; a revoked site stays revoked."""
    if site_of(connection, name).state is not Standing.ACTIVE:
        return
    connection.execute("UPDATE sites SET state = 'frozen' WHERE name = ?", (name,))
    chain.append(connection, ledger.identity, kind="frozen", body={"site": name, "reason": reason})


_SELECT = "SELECT name, key, patients, dataset, study_signature, state FROM sites"


def _record(row: tuple[str, str, int, str, bytes, str]) -> SiteRecord:
    name, key, patients, dataset, signature, state = row
    return SiteRecord(name, PublicIdentity(key), patients, dataset, signature, Standing(state))


def _find_site(connection: sqlite3.Connection, name: str) -> SiteRecord | None:
    row = connection.execute(f"{_SELECT} WHERE name = ?", (name,)).fetchone()
    return None if row is None else _record(row)


def _find_analyst(connection: sqlite3.Connection, name: str) -> AnalystRecord | None:
    row = connection.execute("SELECT name, state FROM analysts WHERE name = ?", (name,)).fetchone()
    return None if row is None else AnalystRecord(row[0], Standing(row[1]))


def check_name(name: str) -> None:
    """Refuse what could not stand in a certificate, a folder or a message."""
    if not NAME.fullmatch(name):
        msg = f"{name!r} is not a name; use letters, digits, '-' and '_', beginning with a letter."
        raise ConfigurationMistaken(msg)
