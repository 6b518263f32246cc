"""Whether a ledger is true, offline: from its own bytes, its key and the study.

Every byte may be hostile or damaged. The verdict is a list of problems, never an exception: only a place that holds
no ledger at all, or one that stays locked, raises.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from wardround.federation.errors import LedgerCorrupt
from wardround.federation.ledger.entry_body import decode_body, text_in
from wardround.federation.ledger.verify.coordinator_rules import CoordinatorRules
from wardround.federation.ledger.verify.evidence import Evidence, Store, read_evidence
from wardround.federation.ledger.verify.problems import Code, Problem, Rules
from wardround.federation.ledger.verify.site_rules import SiteRules
from wardround.federation.trust.entry import EMPTY, Entry, Head
from wardround.federation.trust.identity import PublicIdentity
from wardround.privacy.accounting.cost import Cost
from wardround.privacy.budget.filter import Cap
from wardround.privacy.budget.parallel import Group

MOST_PROBLEMS = 1000


@dataclass(frozen=True, slots=True)
class Verification:
    """The verdict, and what the ledger says.

    `unattested` are tables with rows that an earlier version wrote and no entry speaks of; they are taken over when
    the folder is next served.
    """

    role: str
    entries: int
    head: Head
    spent: Cost
    cap: Cap | None
    problems: tuple[Problem, ...]
    unattested: tuple[str, ...] = ()

    @property
    def valid(self) -> bool:
        return not self.problems


def verify(place: Path, *, key: str | None = None, containing: Head | None = None) -> Verification:
    """Check a folder or an export.

    The signatures must hold under `key`; without one, under the folder's identity, or under the key that an export
    names. A cut tail is invisible from inside: `containing` is a place that the chain is known to have reached.
    """
    try:
        evidence = read_evidence(place)
    except LedgerCorrupt:
        return Verification("", 0, EMPTY, Cost.zero(), None, (Problem(0, Code.UNREADABLE),))
    return judge(evidence, key=key, containing=containing)


def judge(evidence: Evidence, *, key: str | None = None, containing: Head | None = None) -> Verification:
    """The verdict on what was read."""
    signer = evidence.key if key is None else key
    problems = [*_chain(evidence, PublicIdentity(signer))]
    if containing is not None and containing not in (EMPTY, *(entry.head for entry in evidence.entries)):
        problems.append(Problem(0, Code.MISSING_HEAD))
    role, rules = "", None
    try:
        role, rules = _opened(evidence)
        problems += [*_opening(evidence, signer)]
    except LedgerCorrupt:
        problems.append(Problem(1, Code.NOT_OPENED))
    if rules is not None:
        problems += [*_walk(rules, evidence)]
    return Verification(
        role=role,
        entries=len(evidence.entries),
        head=evidence.entries[-1].head if evidence.entries else EMPTY,
        spent=Cost.zero() if rules is None else rules.spent,
        cap=None if rules is None else rules.cap,
        problems=tuple(sorted(problems, key=lambda problem: problem.entry)[:MOST_PROBLEMS]),
        unattested=() if rules is None else rules.unattested,
    )


def _chain(evidence: Evidence, signer: PublicIdentity) -> Iterator[Problem]:
    before = EMPTY
    for entry in evidence.entries:
        if (entry.sequence, entry.previous) != (before.sequence + 1, before.digest):
            yield Problem(entry.sequence, Code.BROKEN_CHAIN)
        if not entry.signed_by(signer):
            yield Problem(entry.sequence, Code.BAD_SIGNATURE)
        before = entry.head
    for entry, digest in zip(evidence.entries, evidence.digests, strict=False):
        if entry.digest != digest:
            yield Problem(entry.sequence, Code.BAD_DIGEST)


def _opened(evidence: Evidence) -> tuple[str, Rules]:
    if not evidence.entries or evidence.entries[0].kind != "opened":
        raise LedgerCorrupt(private="the first entry does not open the ledger")
    body = decode_body(evidence.entries[0].body)
    match text_in(body, "role"):
        case "site":
            return "site", SiteRules(body, tables=_tables(evidence.study))
        case "coordinator":
            overlap, groups = _sharing(evidence.study)
            return "coordinator", CoordinatorRules(body, overlap=overlap, groups=groups)
        case _:
            raise LedgerCorrupt(private="the ledger's role is unknown")


def _opening(evidence: Evidence, signer: str) -> Iterator[Problem]:
    """What the outside of the ledger must have in common with the entry that opened it."""
    body = decode_body(evidence.entries[0].body)
    if text_in(body, "key") != signer:
        yield Problem(1, Code.WRONG_KEY)
    # A site's account does not depend on the study; a coordinator's bound does.
    needed = text_in(body, "role") == "coordinator"
    if (evidence.study or needed) and hashlib.sha256(evidence.study.encode()).hexdigest() != text_in(
        body, "study_hash"
    ):
        yield Problem(0, Code.WRONG_STUDY)
    if evidence.header is not None:
        names = ("role", "name", "key", "study_hash")
        if any(evidence.header.get(name) != body.get(name) for name in names):
            yield Problem(0, Code.WRONG_HEADER)


def _sharing(study: str) -> tuple[int | None, tuple[Group, ...]]:
    """The overlap and the groups of sites in the canonical text of a study; every site when it cannot be read.

    The text is believed only because its hash is the one that was signed.
    """
    try:
        fields = json.loads(study)["fields"]
        overlap = None if fields["overlap"] is None else int(fields["overlap"])
        words = [word["fields"] for word in fields["groups"]]
        groups = tuple(Group(tuple(map(str, word["sites"])), int(word["overlap"])) for word in words)
    except (ValueError, KeyError, TypeError, RecursionError):
        return None, ()
    sound = (overlap is None or overlap > 0) and all(group.overlap > 0 for group in groups)
    return (overlap, groups) if sound else (None, ())


def _tables(study: str) -> frozenset[str]:
    """The names of a study's tables; none where it cannot be read."""
    try:
        return frozenset(str(word["fields"]["name"]) for word in json.loads(study)["fields"]["tables"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return frozenset()


def _walk(rules: Rules, evidence: Evidence) -> Iterator[Problem]:
    for entry in evidence.entries[1:]:
        yield from _read(rules, entry)
    yield from rules.finish()
    if evidence.store is not None:
        yield from _compare(rules, evidence.store, evidence.entries)


def _compare(rules: Rules, store: Store, entries: tuple[Entry, ...]) -> Iterator[Problem]:
    # A file that only earlier versions opened does not have the table.
    end = store.others.get("chain_end")
    if end != {(1,): (len(entries),)} and not (end is None and not rules.complete):
        yield Problem(0, Code.MISSING_HEAD)
    try:
        yield from rules.compare(store)
    except LedgerCorrupt:
        yield Problem(0, Code.WRONG_INDEX)


def _read(rules: Rules, entry: Entry) -> Iterator[Problem]:
    try:
        for code in rules.read(entry, decode_body(entry.body)):
            yield Problem(entry.sequence, code)
    except LedgerCorrupt:
        yield Problem(entry.sequence, Code.MALFORMED_ENTRY)
