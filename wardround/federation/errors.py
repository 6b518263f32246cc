"""Every error wardround raises, sorted by whose fault it is.

`message` is public and is composed from public things only: the study, the query, the budget. What a
driver or a file said stays in `private`, which goes to the local log of the process that raised it and
nowhere else. Once rows have been read only the fixed sentence of the class may leave (principle 8).
A message is one line, whatever it quotes: a name, a file, the words of a peer.
"""

from __future__ import annotations

from typing import ClassVar

from wardround.federation.plain_text import escaped
from wardround.federation.refusal import RefusalReason

EARLIER_VERSION = (
    "The coordinator runs an earlier version of wardround that does not know this call; nothing was charged. "
    "Ask the consortium to update it."
)


class FederationError(Exception):
    """The root: a stable `code`, one public sentence, and a private text that stays here."""

    sentence: ClassVar[str] = "Something went wrong."
    exit_code: ClassVar[int] = 4

    def __init__(self, message: str = "", *, private: str = "") -> None:
        self.message = escaped(message or self.sentence)
        super().__init__(self.message)
        self.private = private

    @property
    def code(self) -> str:
        """The stable name that travels in JSON and over the wire."""
        return type(self).__name__


class Mistaken(FederationError):
    """The call itself is wrong; correct it and call again. Nothing was charged."""

    sentence = "The call is wrong."
    exit_code = 2


class QueryMistaken(Mistaken):
    """The question cannot be read, or asks for something the study does not describe."""

    sentence = "The question cannot be read."


class ConfigurationMistaken(Mistaken):
    """A configuration file, profile, invitation or study cannot be used as it is."""

    sentence = "The configuration cannot be used."


class Refused(FederationError):
    """A rule said no; do not retry."""

    sentence = "The request was refused."
    exit_code = 1


class NotAuthorized(Refused):
    """The caller is not on the roster, or may not do this.

    `final` says that no later call will fare better: the name was revoked, or its certificate has expired.
    """

    sentence = "The caller is not authorized for this."

    def __init__(self, message: str = "", *, private: str = "", final: bool = False) -> None:
        super().__init__(message, private=private)
        self.final = final


class PlanRefused(Refused):
    """A site or the coordinator will not run this plan. Nothing was charged for it there.

    Of a site's refusal the `reason` is public and the sentence is for the site's own log.
    """

    sentence = "The plan was refused by policy."
    reason: RefusalReason = RefusalReason.PLAN

    def __init__(self, message: str = "", *, private: str = "", reason: RefusalReason | None = None) -> None:
        super().__init__(message, private=private)
        if reason is not None:
            self.reason = reason


class SchemaRefused(PlanRefused):
    """The site's tables do not have what the study says, seen without reading a row."""

    sentence = "The site's table does not have the columns or types that the study describes."
    reason = RefusalReason.SCHEMA


class SiteFrozen(Refused):
    """The site's ledger lacks an entry it once signed; it stays silent until that is fixed."""

    sentence = "The site's ledger is frozen because it does not contain an entry it once signed."


class TooFewSites(Refused):
    """Fewer sites than the study's `min_sites` can answer, or did."""

    sentence = "Too few sites answered."


class BudgetExceeded(Refused):
    """The charge does not fit into what remains; nothing was charged."""

    sentence = "The privacy budget does not allow this question."

    def __init__(self, message: str = "", *, asked: float, remaining: float, private: str = "") -> None:
        self.asked = asked
        self.remaining = remaining
        self.difference = max(asked - remaining, 0.0)
        text = message or (
            f"The question asks for ε = {asked:.4g} but ε = {remaining:.4g} remains, "
            f"{self.difference:.4g} too little; nothing was charged."
        )
        super().__init__(text, private=private)


class Unavailable(FederationError):
    """Nothing was decided; ask again with the same key."""

    sentence = "The service is not available now; ask again."
    exit_code = 3


class PeerUnreachable(Unavailable):
    """The other side could not be reached."""

    sentence = "The other side could not be reached."


class LedgerBusy(Unavailable):
    """The ledger is locked by another process."""

    sentence = "The ledger is busy; ask again."


class LedgerFull(LedgerBusy):
    """The disk has no room, or the process no descriptor left; nothing was written, and it passes."""

    sentence = "There is no room on the disk, or no more files can be opened; nothing was written. Ask again."


class DeadlinePassed(Unavailable):
    """The answer did not come in time."""

    sentence = "The answer did not come in time; ask again."


class AwaitingApproval(Unavailable):
    """A data steward has yet to decide; nothing was charged at that site."""

    sentence = "The question is waiting for approval at a site; ask again later."


class SitesAway(Unavailable):
    """Fewer hospitals are there, or have answered, than a question needs; asking again costs nothing more."""

    sentence = "Too few hospitals are there now; ask again later."


class SourceFailed(Unavailable):
    """The data source failed when rows may have been read, so they may have decided it. The charge stays."""

    sentence = "The site could not compute its answer; the charge stands."


class SourceAway(Unavailable):
    """A source cannot be reached, or is being changed: its rows did not decide that, and it is tried again.

    `unread` says that it was away before a row was read. What is lost while rows are read is counted: a row that
    ends connections would otherwise decide who answers.
    """

    sentence = "The site's source cannot be reached or is being changed; the site will try again."

    def __init__(self, message: str = "", *, private: str = "", unread: bool = False) -> None:
        super().__init__(message, private=private)
        self.unread = unread


class ProtocolViolation(FederationError):
    """The peer broke the contract."""

    sentence = "The other side broke the protocol."
    exit_code = 1


class MalformedMessage(ProtocolViolation):
    """A message does not decode to a valid word."""

    sentence = "A message was malformed."


class UnknownTask(ProtocolViolation):
    """An answer to a task that was never opened for this site."""

    sentence = "No such task was opened for this site."


class UnprovedHead(ProtocolViolation):
    """The coordinator names an entry of this site's ledger that is not in it; unless it is proved, nothing follows."""

    sentence = "The coordinator names an entry that this site's ledger does not contain; its task is not answered."


class ReleaseConflict(ProtocolViolation):
    """Another byte string under a key that already has one."""

    sentence = "Another answer is already stored under this plan."


class InvariantBroken(FederationError):
    """We broke our own rule; stop the process and decide from disk."""

    sentence = "An internal rule was broken; the process must stop."
    exit_code = 4


class LedgerCorrupt(InvariantBroken):
    """The ledger on disk does not verify."""

    sentence = "The ledger does not verify."


class UnpaidRelease(InvariantBroken):
    """A release without a durable charge before it."""

    sentence = "A release was about to leave without a charge."


class LedgerBehind(InvariantBroken):
    """The ledger is an older copy of itself: somebody holds what it signed and does not contain."""

    sentence = "The ledger is an older copy: it lacks an entry that it signed."
