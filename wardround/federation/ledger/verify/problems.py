"""What can be wrong with a ledger: stable codes that scripts may depend on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from wardround.federation.ledger.verify.evidence import Store
from wardround.federation.trust.entry import Entry
from wardround.privacy.accounting.cost import Cost
from wardround.privacy.budget.filter import Cap


class Code(StrEnum):
    """One word for each way to be invalid."""

    UNREADABLE = "Unreadable"
    BROKEN_CHAIN = "BrokenChain"
    BAD_DIGEST = "BadDigest"
    BAD_SIGNATURE = "BadSignature"
    WRONG_KEY = "WrongKey"
    WRONG_STUDY = "WrongStudy"
    WRONG_HEADER = "WrongHeader"
    MISSING_HEAD = "MissingHead"
    NOT_OPENED = "NotOpened"
    MALFORMED_ENTRY = "MalformedEntry"
    WRONG_ALLOWANCE = "WrongAllowance"
    WRONG_CHARGE = "WrongCharge"
    REPEATED_CHARGE = "RepeatedCharge"
    UNPAID_STEP = "UnpaidStep"
    REPEATED_STEP = "RepeatedStep"
    OVERSPENT = "Overspent"
    UNPAID_RELEASE = "UnpaidRelease"
    SECOND_RELEASE = "SecondRelease"
    SECOND_ANSWER = "SecondAnswer"
    MISSING_BYTES = "MissingBytes"
    ALTERED_BYTES = "AlteredBytes"
    UNLISTED_BYTES = "UnlistedBytes"
    WRONG_REFUSAL = "WrongRefusal"
    WRONG_ASKER = "WrongAsker"
    WRONG_DECISION = "WrongDecision"
    WRONG_CLOSING = "WrongClosing"
    WHILE_CLOSED = "WhileClosed"
    UNKNOWN_SITE = "UnknownSite"
    AFTER_FROZEN = "AfterFrozen"
    WRONG_INDEX = "WrongIndex"
    WRONG_ACCOUNT = "WrongAccount"
    BAD_RECEIPT = "BadReceipt"
    WRONG_RECOVERY = "WrongRecovery"

    @property
    def sentence(self) -> str:
        """What is wrong, for a person."""
        return _SENTENCES[self]


_SENTENCES: Mapping[Code, str] = {
    Code.UNREADABLE: "The bytes are not a ledger, or SQLite's own check fails.",
    Code.BROKEN_CHAIN: "A number is missing or repeated, or an entry does not point at the one before it.",
    Code.BAD_DIGEST: "The digest stored beside an entry is not the digest of that entry.",
    Code.BAD_SIGNATURE: "The entry is not signed by the ledger's key.",
    Code.WRONG_KEY: "The ledger was opened under another key than the folder's or the expected one.",
    Code.WRONG_STUDY: "The study beside the ledger is missing or is not the one it was opened for.",
    Code.WRONG_HEADER: "An export's first line does not match the entry that opened the ledger.",
    Code.MISSING_HEAD: "The chain does not contain an entry that it is known to have had.",
    Code.NOT_OPENED: "The first entry does not open the ledger, or a later one opens it again.",
    Code.MALFORMED_ENTRY: "The kind is unknown to this role, or the body lacks something.",
    Code.WRONG_ALLOWANCE: "The recorded allowance is larger than its cap allows.",
    Code.WRONG_CHARGE: "The amounts of a charge are not what its facts cost.",
    Code.REPEATED_CHARGE: "A plan was charged twice.",
    Code.UNPAID_STEP: "A round of a training that was not paid for, or that the training does not have.",
    Code.REPEATED_STEP: "A round of a training was charged twice.",
    Code.OVERSPENT: "A charge exceeded the cap that was in force.",
    Code.UNPAID_RELEASE: "A release has no earlier charge.",
    Code.SECOND_RELEASE: "The same plan and site have a second release.",
    Code.SECOND_ANSWER: "The same plan has a second answer, or an answer before its round was settled.",
    Code.MISSING_BYTES: "The bytes of a release are missing.",
    Code.ALTERED_BYTES: "The bytes of a release or an answer are not those that were signed or paid for.",
    Code.UNLISTED_BYTES: "A stored release or answer is not named by any entry.",
    Code.WRONG_REFUSAL: "A plan was refused after a charge or refusal, or a charge was refunded without one.",
    Code.WRONG_ASKER: "It is not proved who asked, and nobody approved it; or who asked is not who asked before.",
    Code.WRONG_DECISION: "A steward's decision came after the answer, or the answer is not as it was decided.",
    Code.WRONG_CLOSING: "A table was closed twice, opened while open or opened itself without cause or twice a day.",
    Code.WHILE_CLOSED: "A charge or a release was made while every table of the study was closed.",
    Code.UNKNOWN_SITE: "An entry names a site that did not enrol, or that enrolled twice.",
    Code.AFTER_FROZEN: "A frozen ledger has further entries.",
    Code.WRONG_INDEX: "A table beside the chain does not match the chain.",
    Code.WRONG_ACCOUNT: "An account is not the sum of its charges.",
    Code.BAD_RECEIPT: "A receipt is not signed by the coordinator, or is not about what the site sent.",
    Code.WRONG_RECOVERY: "Something came back, was lost or was answered otherwise than a recovery allows.",
}


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong, and at which entry; 0 is the ledger as a whole."""

    entry: int
    code: Code


class Rules(Protocol):
    """One role's rules: fed the entries in order, then shown the tables beside them."""

    @property
    def spent(self) -> Cost:
        """What the entries so far add up to."""

    @property
    def cap(self) -> Cap | None:
        """The cap in force."""

    @property
    def complete(self) -> bool:
        """Whether entries account for every row."""

    @property
    def unattested(self) -> tuple[str, ...]:
        """The tables with rows that an earlier version wrote and no entry speaks of."""

    def read(self, entry: Entry, body: Mapping[str, object]) -> Iterator[Code]:
        """What is wrong with the next entry; `LedgerCorrupt` when its body lacks something."""

    def finish(self) -> Iterator[Problem]:
        """What only the whole chain shows."""

    def compare(self, store: Store) -> Iterator[Problem]:
        """Where the tables differ from the chain."""
