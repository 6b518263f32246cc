"""Who asked a question, and why, in the analyst's own signature, which the coordinator hands on and cannot make.

The signature covers the study, the question, what it may cost, its nonce, the analyst's name and the purpose. Study,
question and nonce are those of the plan that it is shown with, and are not sent twice. Neither signature nor purpose is
part of a plan: the same question is one plan whoever asks it, and why.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from wardround.federation import canonical
from wardround.federation.errors import QueryMistaken
from wardround.federation.limits import SIGNATURE_BYTES, Delta, Epsilon, Errors, Size, Text, name_of
from wardround.federation.trust.identity import PublicIdentity, Purpose

MAX_PURPOSE = 500

_PURPOSE = Text("a purpose", longest=MAX_PURPOSE, shortest=0, plain=True)


@dataclass(frozen=True, slots=True)
class AskedBy:
    """An analyst's name and key, the purpose in the analyst's words, and the terms that were signed.

    `epsilon`, `delta` and `errors` are as they were asked for, with None where the study's own are meant.
    """

    analyst: Annotated[str, name_of("an analyst's name")]
    key: PublicIdentity
    purpose: Annotated[str, _PURPOSE]
    epsilon: Epsilon | None
    delta: Delta | None
    errors: Errors
    signature: Annotated[bytes, Size("an analyst's signature", SIGNATURE_BYTES)]

    @property
    def asker(self) -> tuple[str, str]:
        """Who it is: a name is nobody without its key."""
        return self.analyst, self.key.key

    def covers(self, *, study_hash: str, query: bytes, nonce: str) -> bool:
        """Whether the analyst signed this question, given as the canonical bytes of its query or step."""
        return self.key.verifies(Purpose.QUESTION, self.message(study_hash, query, nonce), self.signature)

    def message(self, study_hash: str, query: bytes, nonce: str) -> bytes:
        """What is signed: the canonical bytes of study, query, ε, δ, errors, nonce, analyst and purpose, in order."""
        rest = canonical.encode((self.epsilon, self.delta, self.errors, nonce, self.analyst, self.purpose))
        return b"[%b,%b,%b" % (canonical.encode(study_hash), query, rest.removeprefix(b"["))


def check_purpose(purpose: str) -> str:
    """The same text, if it can be signed and shown; `QueryMistaken` in one sentence."""
    if len(purpose) > MAX_PURPOSE:
        raise QueryMistaken(f"the purpose has {len(purpose)} characters; it may have {MAX_PURPOSE}; say it shorter.")
    if (fault := _PURPOSE.fault(purpose)) is not None:
        raise QueryMistaken(fault)
    return purpose
