"""Who belongs to the study, as the ledger has it: sites and analysts, their TLS keys, and invitations.

Every read goes to the database, so a revocation made by another process holds from the next call on.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import StrEnum

from wardround.federation import canonical
from wardround.federation.canonical import decode
from wardround.federation.errors import MalformedMessage
from wardround.federation.ledger import accounts, chain
from wardround.federation.ledger.entry_body import Body, cost_body
from wardround.federation.ledger.sqlite_file import Database
from wardround.federation.trust.enrolment import Standing
from wardround.federation.trust.entry import GENESIS, Entry, Head
from wardround.federation.trust.identity import Identity, PublicIdentity
from wardround.federation.trust.public_limits import PublicLimits
from wardround.privacy.accounting.cost import Cost

_SITES = "SELECT name, key, patients, dataset, study_signature, state FROM sites"


class MemberState(StrEnum):
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
    state: MemberState


@dataclass(frozen=True, slots=True)
class AnalystRecord:
    """Someone who may ask."""

    name: str
    state: MemberState


@dataclass(frozen=True, slots=True)
class InvitationRecord:
    """Until when an invitation works, and the signing key that used it, if one did."""

    expires: float
    used_by: str


@dataclass(frozen=True, slots=True)
class ChangingMember:
    """What stands under a name inside a transaction, and what may become of it; each change is decided before."""

    name: str
    site: SiteRecord | None
    analyst: AnalystRecord | None
    _connection: sqlite3.Connection
    _identity: Identity

    def enrol(self, record: SiteRecord, allowance: Cost) -> None:
        """Put a site on the roster, with an account of its own."""
        self._connection.execute(
            "INSERT INTO sites (name, key, patients, dataset, study_signature, state, head_digest)"
            " VALUES (?, ?, ?, ?, ?, 'active', ?)",
            (record.name, record.identity.key, record.patients, record.dataset, record.study_signature, GENESIS),
        )
        accounts.open_account(self._connection, record.name, allowance)
        body: Body = {
            "site": record.name,
            "key": record.identity.key,
            "patients": record.patients,
            "dataset": record.dataset,
            **cost_body(allowance),
        }
        chain.append(self._connection, self._identity, kind="enrolled", body=body)

    def add_analyst(self) -> None:
        """Put an analyst on the roster."""
        self._connection.execute("INSERT INTO analysts (name, state) VALUES (?, 'active')", (self.name,))
        chain.append(self._connection, self._identity, kind="admitted", body={"analyst": self.name})

    def revoke(self) -> None:
        """End the part of whoever has this name."""
        self._connection.execute("UPDATE sites SET state = 'revoked' WHERE name = ?", (self.name,))
        self._connection.execute("UPDATE analysts SET state = 'revoked' WHERE name = ?", (self.name,))
        chain.append(self._connection, self._identity, kind="revoked", body={"name": self.name})

    def freeze(self, reason: str) -> None:
        """Silence an active site."""
        freeze(self._connection, self._identity, self.name, reason)


@dataclass(frozen=True, slots=True)
class UsingInvitation:
    """An invitation inside the transaction that may use it."""

    found: InvitationRecord | None
    _connection: sqlite3.Connection
    _identity: Identity
    _key: tuple[str, str]

    def use(self, signing_key: str) -> None:
        """From now on the invitation belongs to this key; a repeated call writes nothing."""
        if self.found is None or self.found.used_by == signing_key:
            return
        self._connection.execute(
            "UPDATE invitations SET used_by = ? WHERE secret_hash = ? AND site = ?", (signing_key, *self._key)
        )
        body = {"secret_hash": self._key[0], "key": signing_key}
        chain.append(self._connection, self._identity, kind="redeemed", body=body)


class MemberStore:
    """Sites, analysts, TLS keys and invitations."""

    def __init__(self, database: Database, identity: Identity) -> None:
        self._database = database
        self._identity = identity

    def sites(self) -> tuple[SiteRecord, ...]:
        """Every site that ever enrolled, by name."""
        with self._database.reading() as connection:
            return tuple(_site(row) for row in connection.execute(f"{_SITES} ORDER BY name"))

    def site(self, name: str) -> SiteRecord | None:
        """The site of this name, if one ever enrolled."""
        with self._database.reading() as connection:
            row = connection.execute(f"{_SITES} WHERE name = ?", (name,)).fetchone()
        return None if row is None else _site(row)

    def standing(self, site: str) -> MemberState | None:
        """Whether the site may take part; nothing else about it is read."""
        with self._database.reading() as connection:
            row = connection.execute("SELECT state FROM sites WHERE name = ?", (site,)).fetchone()
        return None if row is None else MemberState(row[0])

    def active(self) -> frozenset[str]:
        """The names of the sites that may take part."""
        with self._database.reading() as connection:
            rows = connection.execute("SELECT name FROM sites WHERE state = ?", (MemberState.ACTIVE.value,))
            return frozenset(name for (name,) in rows)

    def head(self, site: str) -> Head:
        """The last place of an enrolled site's own chain that it has a receipt for."""
        with self._database.reading() as connection:
            row = connection.execute("SELECT head_sequence, head_digest FROM sites WHERE name = ?", (site,)).fetchone()
        return Head(*row)

    def standing_of(self, site: str) -> Standing:
        """How far an enrolled site's own chain is known, and its own entry there, if it showed it."""
        return self.standing_at(site, self.head(site))

    def standing_at(self, site: str, head: Head) -> Standing:
        """This place of a site's own chain, and its own entry there, if it showed it."""
        with self._database.reading() as connection:
            row = connection.execute(
                "SELECT sequence, previous, kind, body, signature FROM site_entries WHERE site = ? AND sequence = ?",
                (site, head.sequence),
            ).fetchone()
        return Standing(head, None if row is None else Entry(*row))

    def knows(self, place: Head) -> bool:
        """Whether our own chain went through a place."""
        with self._database.reading() as connection:
            return chain.contains(connection, place)

    def lacking(self) -> tuple[str, int] | None:
        """A site that holds a receipt of ours which our chain lacks, and the receipt's number."""
        with self._database.reading() as connection:
            row = connection.execute("SELECT site, sequence FROM lacking LIMIT 1").fetchone()
        return None if row is None else (str(row[0]), int(row[1]))

    def note_lacking(self, site: str, receipt: Entry) -> None:
        """Write down that a site holds a receipt of ours which our chain lacks."""
        row = (site, receipt.sequence, receipt.previous, receipt.kind, receipt.body, receipt.signature)
        with self._database.transaction() as connection:
            connection.execute("INSERT INTO lacking VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING", row)

    def limits(self) -> dict[str, PublicLimits]:
        """What each site last said in public about the questions it answers; those that said nothing are not there."""
        with self._database.reading() as connection:
            rows = connection.execute("SELECT site, limits FROM public_limits ORDER BY site").fetchall()
        found = {}
        for site, limits in rows:
            # What only a later version can read is not known; nothing depends on it.
            with suppress(MalformedMessage):
                found[site] = decode(PublicLimits, limits)
        return found

    def note_limits(self, site: str, limits: PublicLimits | None) -> None:
        """From now on an enrolled site is known by these limits, or nothing is known of them."""
        content = None if limits is None else canonical.encode(limits)
        with self._database.reading() as connection:
            row = connection.execute("SELECT limits FROM public_limits WHERE site = ?", (site,)).fetchone()
        # Sites greet again and again: only what is new waits for the disk.
        if (None if row is None else row[0]) == content:
            return
        with self._database.transaction() as connection:
            connection.execute("DELETE FROM public_limits WHERE site = ?", (site,))
            if content is not None:
                connection.execute("INSERT INTO public_limits (site, limits) VALUES (?, ?)", (site, content))

    def has_key(self, signing_key: str) -> bool:
        """Whether a site has enrolled with this signing key."""
        with self._database.reading() as connection:
            return connection.execute("SELECT 1 FROM sites WHERE key = ?", (signing_key,)).fetchone() is not None

    def analysts(self) -> tuple[AnalystRecord, ...]:
        """Every analyst that was ever added, by name."""
        with self._database.reading() as connection:
            rows = connection.execute("SELECT name, state FROM analysts ORDER BY name").fetchall()
        return tuple(AnalystRecord(name, MemberState(state)) for name, state in rows)

    def analyst(self, name: str) -> AnalystRecord | None:
        """The analyst of this name, if one was ever added."""
        with self._database.reading() as connection:
            row = connection.execute("SELECT state FROM analysts WHERE name = ?", (name,)).fetchone()
        return None if row is None else AnalystRecord(name, MemberState(row[0]))

    @contextmanager
    def changing(self, name: str) -> Iterator[ChangingMember]:
        """Looking a name up and changing what stands under it, in one transaction."""
        with self._database.transaction() as connection:
            yield ChangingMember(name, self.site(name), self.analyst(name), connection, self._identity)

    def tls_key(self, name: str) -> str | None:
        """The hash of the one TLS key that speaks for `name`, if it has one."""
        with self._database.reading() as connection:
            row = connection.execute("SELECT key_hash FROM tls_keys WHERE name = ?", (name,)).fetchone()
        return None if row is None else str(row[0])

    def note_tls_key(self, name: str, key_hash: str) -> None:
        """From now on only this TLS key speaks for `name`."""
        with self._database.transaction() as connection:
            if self.tls_key(name) == key_hash:
                return
            chain.append(connection, self._identity, kind="certified", body={"name": name, "key_hash": key_hash})
            connection.execute(
                "INSERT INTO tls_keys (name, key_hash) VALUES (?, ?)"
                " ON CONFLICT (name) DO UPDATE SET key_hash = excluded.key_hash",
                (name, key_hash),
            )

    def invite(self, site: str, *, secret_hash: str, expires: float) -> None:
        """Keep a fresh invitation; earlier unused ones for the name end."""
        with self._database.transaction() as connection:
            connection.execute("DELETE FROM invitations WHERE site = ? AND used_by = ''", (site,))
            connection.execute(
                "INSERT INTO invitations (secret_hash, site, expires) VALUES (?, ?, ?)", (secret_hash, site, expires)
            )
            body: Body = {"secret_hash": secret_hash, "site": site, "expires": float(expires)}
            chain.append(connection, self._identity, kind="invited", body=body)

    def invitation(self, site: str, *, secret_hash: str) -> InvitationRecord | None:
        """The invitation with this secret, if it is one for the site."""
        with self._database.reading() as connection:
            row = connection.execute(
                "SELECT expires, used_by FROM invitations WHERE secret_hash = ? AND site = ?", (secret_hash, site)
            ).fetchone()
        return None if row is None else InvitationRecord(*row)

    @contextmanager
    def using_invitation(self, site: str, *, secret_hash: str) -> Iterator[UsingInvitation]:
        """Looking at an invitation and using it, in one transaction: of two keys only one can be first."""
        with self._database.transaction() as connection:
            found = self.invitation(site, secret_hash=secret_hash)
            yield UsingInvitation(found, connection, self._identity, (secret_hash, site))


def freeze(connection: sqlite3.Connection, identity: Identity, site: str, reason: str) -> None:
    """Silence an active site inside a running transaction."""
    connection.execute("UPDATE sites SET state = 'frozen' WHERE name = ?", (site,))
    chain.append(connection, identity, kind="frozen", body={"site": site, "reason": reason})


def _site(row: tuple[str, str, int, str, bytes, str]) -> SiteRecord:
    name, key, patients, dataset, signature, state = row
    return SiteRecord(name, PublicIdentity(key), patients, dataset, signature, MemberState(state))
