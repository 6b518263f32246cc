"""What there is to verify, read once: a folder's ledger with the tables beside its chain, or an export of it.

Nothing here is believed. Reading ends before checking begins, so a serving process is not kept from committing.
An export is a text file that anybody can keep, read and verify: a header, then one line for each entry. It holds what
was charged and the hashes of what left; no release and no key is in it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import sqlite3
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from wardround.federation import canonical
from wardround.federation.errors import ConfigurationMistaken, FederationError, LedgerBusy, LedgerCorrupt
from wardround.federation.forms.release import Extent, decode_release, extent, release_hash
from wardround.federation.ledger import accounts, chain
from wardround.federation.ledger.accounts import Balance
from wardround.federation.ledger.entry_body import decode_body, text_in
from wardround.federation.ledger.sqlite_file import BUSY_SECONDS, LEDGER_FILE, lost
from wardround.federation.ledger.verify.askings import StoredAsking, stored_asking
from wardround.federation.ledger.verify.stored_rows import Row, Rows, read_rows
from wardround.federation.private_files import write_private
from wardround.federation.strict_toml import read_text
from wardround.federation.study.study_file import parse_study
from wardround.federation.trust.entry import Entry, Head
from wardround.federation.trust.identity import Identity

FORMAT = "wardround-ledger-1"
HEADER_KEYS = ("format", "role", "name", "key", "study_hash", "study", "sequence", "digest")


_Askings = Mapping[str, StoredAsking]
_Terms = Mapping[str, tuple[str, float, float]]
_Pins = Mapping[str, tuple[str, int]]
_Requests = Mapping[str, tuple[str, str]]


@dataclass(frozen=True, slots=True)
class StoredBytes:
    """A stored release, as far as it has to be known: whose it is, its hash and how much it says, if it can be read."""

    sequence: int
    site: str
    release_hash: str
    extent: Extent | None


@dataclass(frozen=True, slots=True)
class Store:
    """What the tables beside the chain say.

    `releases` are by plan and, at a coordinator, site; `answers` are hashes by plan; `steps` are the block and the
    place of a round by plan, none in a ledger that was made before there were trainings and never opened since;
    `closed` are the entries that closed a table, by its name, and none likewise. Who asked is by plan in `askings`, and
    at a coordinator what for (analyst, ε, δ) in `terms`; `pins` are the analysts' keys that a site knows, with their
    entries, `requests` the plans that waited for a steward, with state and date, and `decisions` the entries by which
    one decided. `refused_on` are the dates of refusals, `others` the rows that are compared as they are.
    """

    accounts: Mapping[str, Balance]
    charges: Mapping[str, int]
    refusals: Mapping[str, int]
    releases: Mapping[tuple[str, str], StoredBytes]
    receipts: Mapping[str, Entry]
    answers: Mapping[str, str]
    steps: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    closed: Mapping[str, int] = field(default_factory=dict)
    askings: _Askings = field(default_factory=dict)
    terms: _Terms = field(default_factory=dict)
    pins: _Pins = field(default_factory=dict)
    requests: _Requests = field(default_factory=dict)
    decisions: Mapping[str, int] = field(default_factory=dict)
    refused_on: Mapping[str, str] = field(default_factory=dict)
    others: Rows = field(default_factory=dict)

    def rows(self, table: str) -> Mapping[Row, Row]:
        """The rows of a table by their keys; none where there is no such table."""
        return self.others.get(table, {})

    def named(self, table: str) -> dict[str, Row]:
        """The same, of a table whose key is one text."""
        return {str(key[0]): row for key, row in self.rows(table).items()}


@dataclass(frozen=True, slots=True)
class Evidence:
    """A ledger to be judged; `study` is the canonical text of the study, empty when there is none."""

    key: str
    study: str
    entries: tuple[Entry, ...]
    digests: tuple[str, ...]
    store: Store | None
    header: Mapping[str, object] | None = None


def read_evidence(place: Path) -> Evidence:
    """A folder or an export; `LedgerCorrupt` when it cannot be read, `ConfigurationMistaken` when it is not there."""
    folder = place.parent if place.name == LEDGER_FILE else place
    if folder.is_dir():
        return _read_folder(folder)
    if not place.is_file():
        raise ConfigurationMistaken(f"{place} is neither a folder with a ledger nor an export of one.")
    return _read_export(place)


@contextlib.contextmanager
def _damage_reported() -> Iterator[None]:
    """Whatever damaged bytes make the readers say, as one error of ours."""
    try:
        yield
    except sqlite3.Error as error:
        if getattr(error, "sqlite_errorcode", -1) & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            raise LedgerBusy(private=str(error)) from None
        raise LedgerCorrupt(private=str(error)) from None
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError, MemoryError, OSError) as error:
        raise LedgerCorrupt(private=str(error)) from None


def _read_folder(folder: Path) -> Evidence:
    path = folder / LEDGER_FILE
    if not path.is_file():
        if (folder / "identity.pem").exists():
            raise lost(path, "is missing")
        raise ConfigurationMistaken(f"{folder} has no ledger; name a role's folder, or an export of its ledger.")
    with _damage_reported():
        # Writable, because a journal left by a crash must be rolled back before anything can be read.
        connection = sqlite3.connect(
            f"{path.absolute().as_uri()}?mode=rw", uri=True, isolation_level=None, timeout=BUSY_SECONDS
        )
        with contextlib.closing(connection):
            connection.execute("PRAGMA trusted_schema = 0")
            connection.execute("BEGIN")
            _require_sound(connection)
            entries = tuple(_sound(entry) for entry in chain.entries(connection))
            digests = tuple(str(row[0]) for row in connection.execute("SELECT digest FROM entries ORDER BY sequence"))
            store = _store(connection)
    return Evidence(key=_own_key(folder), study=_study_text(folder), entries=entries, digests=digests, store=store)


def _require_sound(connection: sqlite3.Connection) -> None:
    if connection.execute("PRAGMA integrity_check(1)").fetchall() != [("ok",)]:
        raise LedgerCorrupt(private="SQLite's own check failed")
    if connection.execute("PRAGMA foreign_key_check").fetchone() is not None:
        raise LedgerCorrupt(private="a row refers to an entry that is not there")


def _sound(entry: Entry) -> Entry:
    columns = (entry.sequence, entry.previous, entry.kind, entry.body, entry.signature)
    if [type(column) for column in columns] != [int, str, str, str, bytes]:
        raise LedgerCorrupt(private="an entry has a column of the wrong type")
    return entry


def _store(connection: sqlite3.Connection) -> Store:
    tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    charges: dict[str, int] = {}
    refusals: dict[str, int] = {}
    releases: dict[tuple[str, str], StoredBytes] = {}
    receipts: dict[str, Entry] = {}
    answers: Mapping[str, str] = {}
    steps: dict[str, tuple[str, int]] = {}
    if "steps" in tables:
        rows = connection.execute("SELECT plan_id, block, place FROM steps")
        steps = {plan_id: (block, place) for plan_id, block, place in rows}
    closed: dict[str, int] = {}
    if "closed_tables" in tables:
        closed = dict(connection.execute("SELECT name, sequence FROM closed_tables"))
    if "charges" in tables:
        charges = dict(connection.execute("SELECT plan_id, sequence FROM charges"))
        refusals = dict(connection.execute("SELECT plan_id, sequence FROM refusals"))
        for plan_id, sequence, payload in connection.execute("SELECT plan_id, sequence, payload FROM releases"):
            releases[plan_id, ""] = _stored(plan_id, sequence, bytes(payload))
        for row in connection.execute("SELECT plan_id, sequence, previous, kind, body, signature FROM receipts"):
            receipts[row[0]] = _sound(Entry(*row[1:]))
    elif "submissions" in tables:
        for plan_id, site, sequence, payload in connection.execute(
            "SELECT plan_id, site, receipt, payload FROM submissions WHERE code = ''"
        ):
            releases[plan_id, site] = _stored(plan_id, sequence, bytes(payload))
        answers = _answers(connection, tables)
    first = Store(accounts.balances(connection), charges, refusals, releases, receipts, answers, steps, closed)
    return _with_askings(connection, tables, replace(first, others=read_rows(connection, tables)))


def _answers(connection: sqlite3.Connection, tables: set[str]) -> dict[str, str]:
    """The hash of every answer, by its plan; empty where its pages are not those that its text names."""
    pages: dict[str, list[tuple[int, str]]] = {}
    if "answer_pages" in tables:
        for plan_id, number, page in connection.execute("SELECT plan_id, number, page FROM answer_pages"):
            pages.setdefault(plan_id, []).append((number, hashlib.sha256(page).hexdigest()))
    answers: dict[str, str] = {}
    for plan_id, answer in connection.execute("SELECT plan_id, answer FROM answers"):
        # Most answers are one text, and need not be read.
        named = json.loads(answer).get("pages", []) if plan_id in pages or '"pages":' in answer else []
        sound = sorted(pages.get(plan_id, [])) == list(enumerate(named))
        answers[plan_id] = hashlib.sha256(answer.encode()).hexdigest() if sound else ""
    return answers


def _with_askings(connection: sqlite3.Connection, tables: set[str], store: Store) -> Store:
    """The same with who asked, by which key, and what a steward said; an earlier version wrote none of it down."""
    if "askers" in tables:
        rows = connection.execute("SELECT plan_id, plan, asked_by FROM rounds JOIN askers USING (plan_id)")
        named = connection.execute("SELECT plan_id, analyst, epsilon, delta FROM rounds")
        return replace(
            store,
            askings={plan_id: stored_asking(plan, asked_by) for plan_id, plan, asked_by in rows},
            terms={plan_id: (analyst, epsilon, delta) for plan_id, analyst, epsilon, delta in named},
        )
    if "plans" not in tables:
        return store
    rows = connection.execute("SELECT plan_id, plan, asked_by FROM plans")
    pins = connection.execute("SELECT analyst, key, sequence FROM pins")
    requests = connection.execute("SELECT plan_id, state, asked_on FROM requests")
    return replace(
        store,
        askings={plan_id: stored_asking(plan, asked_by) for plan_id, plan, asked_by in rows},
        pins={analyst: (key, sequence) for analyst, key, sequence in pins},
        requests={plan_id: (state, asked_on) for plan_id, state, asked_on in requests},
        decisions=dict(connection.execute("SELECT plan_id, sequence FROM decisions")),
        refused_on=dict(connection.execute("SELECT plan_id, date FROM refusals")),
    )


def _stored(plan_id: str, sequence: int, payload: bytes) -> StoredBytes:
    hashed = release_hash(payload)
    try:
        release = decode_release(payload)
    except FederationError:
        return StoredBytes(sequence, "", hashed, None)
    return StoredBytes(sequence, release.site, hashed, extent(release) if release.plan_id == plan_id else None)


def _own_key(folder: Path) -> str:
    try:
        return Identity.load(folder / "identity.pem").public.key
    except ConfigurationMistaken:
        return ""


def _study_text(folder: Path) -> str:
    path = folder / "study.toml"
    try:
        return canonical.encode(parse_study(read_text(path))).decode("ascii") if path.exists() else ""
    except ConfigurationMistaken:
        return "a study that cannot be read"


def encode_line(document: Mapping[str, object]) -> str:
    """One line of an export."""
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=True)


def entry_line(entry: Entry) -> str:
    """One entry as a line of an export."""
    return encode_line(
        {
            "sequence": entry.sequence,
            "previous": entry.previous,
            "kind": entry.kind,
            "body": entry.body,
            "signature": entry.signature.hex(),
        }
    )


def _read_export(path: Path) -> Evidence:
    with _damage_reported():
        first, *rest = path.read_bytes().decode("ascii").removesuffix("\n").split("\n")
        header = json.loads(first)
        if not isinstance(header, dict) or sorted(header) != sorted(HEADER_KEYS) or encode_line(header) != first:
            raise LedgerCorrupt(private="the first line is not the header of an export")
        entries = tuple(_entry_in(line) for line in rest)
        last = entries[-1].head if entries else None
        if header["format"] != FORMAT or last != Head(header["sequence"], header["digest"]):
            raise LedgerCorrupt(private="the export is cut short or of another format")
        return Evidence(
            key=str(header["key"]), study=str(header["study"]), entries=entries, digests=(), store=None, header=header
        )


def _entry_in(line: str) -> Entry:
    document = json.loads(line)
    entry = Entry(
        sequence=document["sequence"],
        previous=document["previous"],
        kind=document["kind"],
        body=document["body"],
        signature=bytes.fromhex(document["signature"]),
    )
    if entry_line(_sound(entry)) != line:
        raise LedgerCorrupt(private="a line of the export does not have its canonical form")
    return entry


def export(place: Path, out: Path) -> int:
    """Write the ledger in a folder to `out` as one step; the number of entries."""
    evidence = read_evidence(place)
    if not evidence.entries:
        raise LedgerCorrupt(private="a ledger without entries cannot be exported")
    opened, last = decode_body(evidence.entries[0].body), evidence.entries[-1].head
    header = {name: text_in(opened, name) for name in ("role", "name", "key", "study_hash")}
    first = encode_line(
        {**header, "format": FORMAT, "study": evidence.study, "sequence": last.sequence, "digest": last.digest}
    )
    text = "".join(f"{line}\n" for line in (first, *(entry_line(entry) for entry in evidence.entries)))
    write_private(out, text.encode("ascii"))
    return len(evidence.entries)
