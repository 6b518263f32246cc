"""What must be true of a coordinator's members: who enrolled under which keys, who was invited, and what sites showed.

A site's own entries are signed by the site; that all are there that it showed is in the entries of the coordinator.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from wardround.federation.errors import LedgerCorrupt
from wardround.federation.ledger.entry_body import decode_body, text_in
from wardround.federation.ledger.verify.attested_rows import AttestedRows
from wardround.federation.ledger.verify.evidence import Store
from wardround.federation.ledger.verify.problems import Code, Problem
from wardround.federation.trust.entry import EMPTY, Entry, Head
from wardround.federation.trust.identity import PublicIdentity, Purpose

_ACTIVE, _REVOKED = "active", "revoked"


@dataclass(frozen=True, slots=True)
class _Site:
    """A site's row as entries say it, and the number of the last of these."""

    number: int
    key: str
    patients: object
    dataset: str
    state: str = _ACTIVE
    head: Head = EMPTY

    @property
    def row(self) -> tuple[object, ...]:
        return (self.key, self.patients, self.dataset, self.state, self.head.sequence, self.head.digest)


class MemberRules:
    """Sites, analysts, TLS keys, invitations, and the sites' own chains as far as they were shown."""

    def __init__(self, opened: Mapping[str, object], rows: AttestedRows) -> None:
        self._own = PublicIdentity(text_in(opened, "key"))
        try:
            self._study = bytes.fromhex(text_in(opened, "study_hash"))
        except ValueError:
            raise LedgerCorrupt(private="the study's hash is none") from None
        self._rows = rows
        self._sites: dict[str, _Site] = {}
        self._analysts: dict[str, tuple[int, str]] = {}
        self._tls_keys: dict[str, tuple[int, str]] = {}
        self._invitations: dict[str, tuple[int, tuple[str, float, str]]] = {}
        # By site and place: the digest where a receipt or a taken row says it.
        self._places: dict[tuple[str, int], tuple[int, str]] = {}
        self._ranges: list[tuple[int, str, int, int]] = []

    def head(self, site: str) -> Head:
        """The last place of a site's own chain that there is a receipt for."""
        known = self._sites.get(site)
        return EMPTY if known is None else known.head

    def has(self, site: str) -> bool:
        """Whether a site of this name ever enrolled."""
        return site in self._sites

    def active(self) -> list[str]:
        """The sites that may take part."""
        return [name for name, site in self._sites.items() if site.state == _ACTIVE]

    def read(self, entry: Entry, body: Mapping[str, object]) -> Iterator[Code]:
        """What is wrong with an entry about members."""
        number = entry.sequence
        match entry.kind:
            case "enrolled":
                site = _Site(number, text_in(body, "key"), body.get("patients"), text_in(body, "dataset"))
                self._sites.setdefault(text_in(body, "site"), site)
            case "frozen":
                self._turn(text_in(body, "site"), number, "frozen")
            case "revoked":
                self._turn(text_in(body, "name"), number, _REVOKED)
                if (name := text_in(body, "name")) in self._analysts:
                    self._analysts[name] = number, _REVOKED
            case "admitted":
                if (name := text_in(body, "analyst")) in self._analysts:
                    yield Code.UNKNOWN_SITE
                self._analysts[name] = number, _ACTIVE
            case "certified":
                self._tls_keys[text_in(body, "name")] = number, text_in(body, "key_hash")
            case "invited":
                self._invited(number, body)
            case "recovered":
                # Whoever held one may have used it in what was forgotten.
                self._invitations.clear()
            case "redeemed":
                yield from self._redeemed(number, body)
            case "shown":
                first, last = _whole(body, "shown_from"), _whole(body, "sequence")
                self._ranges.append((number, text_in(body, "site"), first, last))
            case _:
                yield Code.MALFORMED_ENTRY

    def take_over(self, table: str) -> None:
        """Rows of before, as another `attested` entry has them."""
        taken = self._rows.taken(table)
        match table:
            case "analysts":
                self._analysts.update({str(key[0]): (number, str(row[0])) for key, (number, row) in taken.items()})
            case "tls_keys":
                self._tls_keys.update({str(key[0]): (number, str(row[0])) for key, (number, row) in taken.items()})
            case "invitations":
                for key, (number, row) in taken.items():
                    self._invitations[str(key[0])] = number, (str(row[0]), _float(row[1]), str(row[2]))

    def answered(self, entry: Entry, body: Mapping[str, object]) -> None:
        """A receipt: how far the site's own chain is known, and what it showed of it."""
        site, sequence, digest = text_in(body, "site"), _whole(body, "sequence"), text_in(body, "digest")
        self._places[site, sequence] = entry.sequence, digest
        first = _whole(body, "shown_from") if "shown_from" in body else sequence
        self._ranges.append((entry.sequence, site, first, sequence))
        known = self._sites.get(site)
        if known is not None and known.head.sequence < sequence:
            self._sites[site] = replace(known, number=entry.sequence, head=Head(sequence, digest))

    def compare(self, store: Store, entries: Mapping[int, str]) -> Iterator[Problem]:
        """Where the tables differ from the chain, whose digests are `entries` by their numbers."""
        sites = {name: (site.number, site.row) for name, site in self._sites.items()}
        stored = store.named("sites")
        for name, row in stored.items():
            if not PublicIdentity(str(row[0])).verifies(Purpose.STUDY, self._study, _bytes(row[-1])):
                yield Problem(self._sites[name].number if name in self._sites else 0, Code.WRONG_INDEX)
        yield from self._rows.compare("sites", sites, {name: row[:-1] for name, row in stored.items()})
        for table, expected in (("analysts", self._analysts), ("tls_keys", self._tls_keys)):
            known = {name: (number, (said,)) for name, (number, said) in expected.items()}
            yield from self._rows.compare(table, known, store.named(table))
        yield from self._rows.compare("invitations", self._invitations, store.named("invitations"))
        yield from self._compare_chains(store)
        yield from self._compare_lacking(store, entries)

    def _turn(self, site: str, number: int, state: str) -> None:
        if site in self._sites:
            self._sites[site] = replace(self._sites[site], number=number, state=state)

    def _invited(self, number: int, body: Mapping[str, object]) -> None:
        site, expires = text_in(body, "site"), _float(text_in(body, "expires"))
        unused = [key for key, (_, (name, _, by)) in self._invitations.items() if (name, by) == (site, "")]
        for key in unused:
            del self._invitations[key]
        self._invitations[text_in(body, "secret_hash")] = number, (site, expires, "")

    def _redeemed(self, number: int, body: Mapping[str, object]) -> Iterator[Code]:
        secret_hash, key = text_in(body, "secret_hash"), text_in(body, "key")
        _, (site, expires, by) = self._invitations.get(secret_hash, (0, ("", 0.0, "nobody")))
        if by and self._rows.complete:
            yield Code.UNKNOWN_SITE
        if site:
            self._invitations[secret_hash] = number, (site, expires, key)

    def _compare_chains(self, store: Store) -> Iterator[Problem]:
        """Entries are the site's own, one after the other; what earlier versions kept are their places alone."""
        expected = {key: (number, digest) for key, (number, digest) in self._places.items()}
        entries: dict[tuple[str, int], Entry] = {}
        for key, row in store.rows("site_entries").items():
            site, sequence, entry = str(key[0]), _number(key[1]), _entry(key[1], *row[:-1])
            known = self._sites.get(site)
            if known is None or not entry.signed_by(PublicIdentity(known.key)) or row[-1] != entry.digest:
                yield Problem(0, Code.WRONG_INDEX)
            if expected.get((site, sequence), (0, entry.digest))[1] != entry.digest:
                yield Problem(expected[site, sequence][0], Code.WRONG_INDEX)
            entries[site, sequence] = entry
        for (site, sequence), entry in entries.items():
            before = entries.get((site, sequence - 1))
            if before is not None and before.digest != entry.previous:
                yield Problem(0, Code.WRONG_INDEX)
        yield from self._compare_places(store, entries)

    def _compare_places(self, store: Store, entries: Mapping[tuple[str, int], Entry]) -> Iterator[Problem]:
        before = {
            table: {
                (str(site), _place(number)): (by, str(digest))
                for (site, number), (by, (digest,)) in self._rows.taken(table).items()
            }
            for table in ("site_entries", "places")
        }
        places = {(str(key[0]), _number(key[1])): str(row[0]) for key, row in store.rows("places").items()}
        yield from self._rows.compare("places", before["places"], places)
        for place, digest in places.items():
            number, said = self._places.get(place, (0, digest))
            if said != digest:
                yield Problem(number, Code.WRONG_INDEX)
        shown = set(before["site_entries"])
        for number, site, first, last in self._ranges:
            if last - first > len(entries):
                yield Problem(number, Code.WRONG_INDEX)
                continue
            shown.update((site, place) for place in range(first, last + 1))
            if any((site, place) not in entries and (site, place) not in places for place in range(first, last + 1)):
                yield Problem(number, Code.WRONG_INDEX)
        for place, (number, digest) in before["site_entries"].items():
            if place not in entries or entries[place].digest != digest:
                yield Problem(number, Code.WRONG_INDEX)
        yield from self._rows.unknown("site_entries", [place for place in entries if place not in shown])

    def _compare_lacking(self, store: Store, entries: Mapping[int, str]) -> Iterator[Problem]:
        """A receipt of our own that the chain lacks: it is an older copy of itself."""
        for key, row in store.rows("lacking").items():
            receipt = _entry(key[1], *row)
            about = decode_body(receipt.body).get("site") if receipt.signed_by(self._own) else None
            if about != key[0]:
                yield Problem(0, Code.BAD_RECEIPT)
            elif entries.get(receipt.sequence) != receipt.digest:
                yield Problem(0, Code.MISSING_HEAD)


def _entry(sequence: object, previous: object, kind: object, body: object, signature: object) -> Entry:
    return Entry(_number(sequence), str(previous), str(kind), str(body), _bytes(signature))


def _whole(body: Mapping[str, object], key: str) -> int:
    found = body.get(key)
    if not isinstance(found, int) or isinstance(found, bool):
        raise LedgerCorrupt(private=f"an entry has no number {key!r}")
    return found


def _place(value: object) -> int:
    text = str(value)
    if not (text.isascii() and text.isdigit()):
        raise LedgerCorrupt(private="a row that was taken over has no place")
    return int(text)


def _float(value: object) -> float:
    try:
        return float(str(value))
    except ValueError:
        raise LedgerCorrupt(private="an entry has no number where one is due") from None


def _number(value: object) -> int:
    if not isinstance(value, int):
        raise LedgerCorrupt(private="a column is no number")
    return value


def _bytes(value: object) -> bytes:
    if not isinstance(value, bytes):
        raise LedgerCorrupt(private="a column is no bytes")
    return value
