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
    """The bytes are not a ledger, or SQLite's own check fails."""
    BROKEN_CHAIN = "BrokenChain"
    """A number is missing or repeated, or an entry does not point at the one before it."""
    BAD_DIGEST = "BadDigest"
    """The digest stored beside an entry is not the entry's."""
    BAD_SIGNATURE = "BadSignature"
    """The entry is not signed by the ledger's key."""
    WRONG_KEY = "WrongKey"
    """The ledger was opened under another key than the folder's or the pinned one."""
    WRONG_STUDY = "WrongStudy"
    """The study beside the ledger is missing or is not the one it was opened for."""
    WRONG_HEADER = "WrongHeader"
    """An export's first line says something else than the entry that opened the ledger."""
    MISSING_HEAD = "MissingHead"
    """The chain does not go through a place it is known to have reached."""
    NOT_OPENED = "NotOpened"
    """The first entry does not open the ledger, or a later one does so again."""
    MALFORMED_ENTRY = "MalformedEntry"
    """The kind is unknown to this role, or the body lacks something."""
    WRONG_ALLOWANCE = "WrongAllowance"
    """The amounts of a cap are more than the cap allows."""
    WRONG_CHARGE = "WrongCharge"
    """The amounts of a charge are not the cost of its facts."""
    REPEATED_CHARGE = "RepeatedCharge"
    """A plan was charged twice."""
    UNPAID_STEP = "UnpaidStep"
    """A further round of a training that is not paid for there, or one that the training does not have."""
    REPEATED_STEP = "RepeatedStep"
    """A round of a training was taken twice."""
    OVERSPENT = "Overspent"
    """A charge went above the cap of its time."""
    UNPAID_RELEASE = "UnpaidRelease"
    """A release without an earlier charge."""
    SECOND_RELEASE = "SecondRelease"
    """Another release for the same plan and site."""
    SECOND_ANSWER = "SecondAnswer"
    """Another answer for the same plan, or one without a settled round."""
    MISSING_BYTES = "MissingBytes"
    """The bytes of a release are gone."""
    ALTERED_BYTES = "AlteredBytes"
    """The bytes of a release or an answer are not those that were signed, or not those that were paid for."""
    UNLISTED_BYTES = "UnlistedBytes"
    """Bytes are stored as a release or an answer that no entry names."""
    WRONG_REFUSAL = "WrongRefusal"
    """A refusal of what was charged or already refused, or a void without a refusal."""
    WRONG_CLOSING = "WrongClosing"
    """A table closed twice or opened while it was open, or opened by itself without a change to see or twice a day."""
    WHILE_CLOSED = "WhileClosed"
    """A charge or a release while every table of the study was closed."""
    UNKNOWN_SITE = "UnknownSite"
    """An entry names a site that did not enrol, or one that enrolled twice."""
    AFTER_FROZEN = "AfterFrozen"
    """A frozen ledger went on."""
    WRONG_INDEX = "WrongIndex"
    """A table beside the chain says something else than the chain."""
    WRONG_ACCOUNT = "WrongAccount"
    """An account is not the sum of its charges."""
    BAD_RECEIPT = "BadReceipt"
    """A receipt is not the coordinator's, or not about what the site sent."""


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

    def read(self, entry: Entry, body: Mapping[str, object]) -> Iterator[Code]:
        """What is wrong with the next entry; `LedgerCorrupt` when its body lacks something."""

    def finish(self) -> Iterator[Problem]:
        """What only the whole chain shows."""

    def compare(self, store: Store) -> Iterator[Problem]:
        """Where the tables differ from the chain."""
