"""Why a call failed, as the bytes of a fault message and back."""

from __future__ import annotations

import math
from dataclasses import dataclass

from protos import checks
from protos._generated import fault_pb2 as pb
from wardround.federation.plain_text import escaped

# Trailing metadata has little room: gRPC refuses a call whose metadata is above some kilobytes.
MAX_MESSAGE_CHARACTERS = 1000


@dataclass(frozen=True, slots=True)
class Fault:
    """The code and the one public sentence of an error; for a budget, what was asked and what remains."""

    code: str
    message: str
    asked: float = 0.0
    remaining: float = 0.0


def encode_fault(fault: Fault) -> bytes:
    """The bytes that travel beside a status."""
    shortfall = pb.Shortfall(asked=fault.asked, remaining=fault.remaining)
    message = pb.Fault(code=fault.code, message=_one_line(fault.message), shortfall=shortfall)
    return message.SerializeToString()


def decode_fault(content: bytes) -> Fault:
    """The fault in these bytes."""
    message = checks.parse(pb.Fault, content)
    return Fault(
        code=checks.word(message.code, "an error's code"),
        message=_one_line(message.message),
        asked=_amount(message.shortfall.asked),
        remaining=_amount(message.shortfall.remaining),
    )


def _amount(value: float) -> float:
    # Infinity is an honest amount: no ε bounds Gaussian noise at δ = 0.
    checks.require(not math.isnan(value) and value >= 0.0, "an amount is not a number or below 0.")
    return value


def _one_line(text: str) -> str:
    """A sentence that cannot rewrite the terminal it is printed on, nor fill it."""
    return escaped(text[:MAX_MESSAGE_CHARACTERS])[:MAX_MESSAGE_CHARACTERS]
