"""What an entry says, as text: JSON with sorted keys, no spaces and no floats.

A float is written as the text of its shortest exact form, a large integer as its digits, so that every reader in
every language sees the same numbers. Costs and facts are always written as digits.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import TypeAlias

from wardround.federation import canonical
from wardround.federation.errors import LedgerCorrupt
from wardround.federation.models.training import MAX_ROUNDS, MAX_STAGES, RATE_UNIT
from wardround.federation.trust.asked_by import AskedBy
from wardround.federation.trust.entry import Entry, Head
from wardround.privacy.accounting.cost import PURE_UNIT, Cost, Fact
from wardround.privacy.budget.facts import AnyFact, BlockFact, StageFact, StepFact
from wardround.privacy.budget.filter import Cap
from wardround.privacy.mechanisms.partition_selection import SelectionFact
from wardround.privacy.mechanisms.private_selection import ChoiceFact, Choosing
from wardround.privacy.noise.distribution import SCALE_UNIT, Mechanism, NoiseDistribution

Plain: TypeAlias = "Mapping[str, Plain] | list[Plain] | tuple[Plain, ...] | str | int | float | bool | None"
Body: TypeAlias = Mapping[str, Plain]

# Readers that know doubles only keep integers exact up to here.
_LARGEST_INTEGER = 2**53

RECEIVED = "received"
DECLINED = "declined"


def _refused(text: str) -> float:
    raise ValueError(f"a body holds no {text}")


def _small(text: str) -> int:
    number = int(text)
    if abs(number) >= _LARGEST_INTEGER:
        raise ValueError("a body writes large integers as digits")
    return number


_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=True)
_DECODER = json.JSONDecoder(parse_float=_refused, parse_int=_small, parse_constant=_refused)
_DIGEST = re.compile(r"[0-9a-f]{64}")


def encode_body(body: Body) -> str:
    """The one text of this body."""
    return _ENCODER.encode(_plain(body))


def decode_body(text: str) -> dict[str, object]:
    """The body in a text; `LedgerCorrupt` unless the text is exactly its encoding."""
    try:
        body = _DECODER.decode(text)
        if isinstance(body, dict) and _ENCODER.encode(body) == text:
            return body
    except (ValueError, TypeError, RecursionError):
        pass
    raise LedgerCorrupt(private="an entry's body does not have its canonical form")


def cost_body(cost: Cost) -> dict[str, Plain]:
    """Amounts as digits: `mu_squared`, `pure`, `slack`."""
    return {"mu_squared": str(cost.mu_squared), "pure": str(cost.pure), "slack": str(cost.slack)}


def cost_in(body: Mapping[str, object]) -> Cost:
    """The amounts in a body."""
    with_amounts = (_integer(body, "mu_squared"), _integer(body, "pure"), _integer(body, "slack"))
    try:
        return Cost(*with_amounts)
    except ValueError as error:
        raise LedgerCorrupt(private=str(error)) from None


def cap_body(account: str, cap: Cap) -> dict[str, Plain]:
    """The body of a `capped` entry: the cap, and the allowance derived from it."""
    floats = {"epsilon": cap.epsilon, "delta": cap.delta, "pure_epsilon": cap.pure_epsilon}
    return {"account": account, **floats, **cost_body(cap.allowance())}


def cap_in(body: Mapping[str, object]) -> Cap:
    """The cap in a `capped` entry."""
    try:
        return Cap(
            epsilon=float(text_in(body, "epsilon")),
            delta=float(text_in(body, "delta")),
            pure_epsilon=float(text_in(body, "pure_epsilon")),
        )
    except ValueError as error:
        raise LedgerCorrupt(private=str(error)) from None


def facts_body(facts: Iterable[AnyFact]) -> list[Plain]:
    """The facts of a charge, from which its cost can be derived again."""
    return [_fact_body(fact) for fact in facts]


def facts_in(body: Mapping[str, object]) -> tuple[AnyFact, ...]:
    """The facts in a `charged` or `reserved` entry."""
    listed = body.get("facts")
    if not isinstance(listed, list):
        raise LedgerCorrupt(private="an entry has no list of facts")
    return tuple(_fact(item) for item in listed)


def asked_body(asked_by: AskedBy | None, *, proven: bool = True) -> dict[str, Plain]:
    """Who asked: the digest of the word that says so, empty where nobody signed, and name and key where `proven`."""
    if asked_by is None:
        return {"asked": ""}
    asker = {"analyst": asked_by.analyst, "analyst_key": asked_by.key.key} if proven else {}
    return {"asked": canonical.digest(asked_by), **asker}


def text_in(body: Mapping[str, object], key: str) -> str:
    """A text in a body; `LedgerCorrupt` when it is not there."""
    value = body.get(key)
    if not isinstance(value, str):
        raise LedgerCorrupt(private=f"an entry has no text {key!r}")
    return value


def texts_in(body: Mapping[str, object], key: str) -> list[str]:
    """A list of texts in a body; `LedgerCorrupt` when it is not there."""
    listed = body.get(key)
    if not isinstance(listed, list) or not all(isinstance(item, str) for item in listed):
        raise LedgerCorrupt(private=f"an entry has no list {key!r}")
    return listed


def number_in(body: Mapping[str, object], key: str) -> int:
    """A small whole number in a body, 0 where it says nothing."""
    value = body.get(key, 0)
    if type(value) is not int or value < 0:
        raise LedgerCorrupt(private=f"{key!r} is not a whole number")
    return value


def _fact_body(fact: AnyFact) -> Plain:
    match fact:
        case Fact():
            return {
                **_law_body(fact.law),
                "l1": str(fact.l1_sensitivity),
                "l2_squared": str(fact.l2_sensitivity_squared),
                "dimension": str(fact.dimension),
            }
        case SelectionFact():
            return {
                **_law_body(fact.law),
                "threshold": str(fact.threshold),
                "max_keys": str(fact.max_keys),
                "steps": str(fact.steps),
            }
        case ChoiceFact():
            return {
                "mechanism": fact.choosing.value,
                "pure": str(int(fact.epsilon * PURE_UNIT)),
                "dimension": str(fact.dimension),
            }
        case BlockFact():
            return {
                **_step_body(fact),
                "rounds": str(fact.rounds),
                "trained": [_stage_body(stage) for stage in fact.trained],
                "held_out": [_stage_body(stage) for stage in fact.held_out],
                "slack": str(fact.slack),
            }
        case StepFact():
            return _step_body(fact)


def _step_body(fact: BlockFact | StepFact) -> dict[str, Plain]:
    return {"block": fact.block, "place": str(fact.place), "dimension": str(fact.dimension)}


def _stage_body(stage: StageFact) -> Plain:
    return {
        **_law_body(stage.law),
        "l2_squared": str(stage.l2_sensitivity_squared),
        "dimension": str(stage.dimension),
        "count": str(stage.count),
        "rate": f"{stage.rate.numerator}/{stage.rate.denominator}",
    }


def _law_body(law: NoiseDistribution) -> dict[str, Plain]:
    return {"mechanism": law.mechanism.value, "scale_1024ths": str(int(law.scale * SCALE_UNIT))}


def _fact(item: object) -> AnyFact:
    if not isinstance(item, dict):
        raise LedgerCorrupt(private="a fact is not a map")
    try:
        if "block" in item:
            return _block(item)
        mechanism = text_in(item, "mechanism")
        if mechanism in set(Choosing):
            epsilon = Fraction(_integer(item, "pure"), PURE_UNIT)
            return ChoiceFact(Choosing(mechanism), epsilon, _integer(item, "dimension"))
        law = _law(item)
        if "threshold" in item:
            return SelectionFact(
                law, _integer(item, "threshold"), max_keys=_integer(item, "max_keys"), steps=_integer(item, "steps")
            )
        return Fact(law, _integer(item, "l1"), _integer(item, "l2_squared"), _integer(item, "dimension"))
    except ValueError as error:
        raise LedgerCorrupt(private=str(error)) from None


def _law(item: Mapping[str, object]) -> NoiseDistribution:
    return NoiseDistribution(
        Mechanism(text_in(item, "mechanism")), Fraction(_integer(item, "scale_1024ths"), SCALE_UNIT)
    )


def _block(item: Mapping[str, object]) -> BlockFact | StepFact:
    """A whole training, or a further round of one, of a size that a plan could have had."""
    block, place, dimension = text_in(item, "block"), _integer(item, "place"), _integer(item, "dimension")
    if not _DIGEST.fullmatch(block):
        raise ValueError("a block is known by a digest")
    if "rounds" not in item:
        return StepFact(block, place, dimension)
    folds = _stages(item, "trained"), _stages(item, "held_out")
    rounds = _integer(item, "rounds")
    # What is priced below must end: sizes are bounded before anybody composes them.
    if rounds > MAX_ROUNDS or len(folds[0]) + len(folds[1]) > MAX_STAGES:
        raise ValueError("a block has more rounds or stages than any training")
    return BlockFact(block, place, rounds, dimension, *folds, slack=_integer(item, "slack"))


def _stages(item: Mapping[str, object], key: str) -> tuple[StageFact, ...]:
    listed = item.get(key)
    if not isinstance(listed, list):
        raise LedgerCorrupt(private=f"a block has no list {key!r}")
    return tuple(_stage(stage) for stage in listed)


def _stage(item: object) -> StageFact:
    if not isinstance(item, dict):
        raise LedgerCorrupt(private="a stage is not a map")
    count, rate = _integer(item, "count"), _fraction(item, "rate")
    if count > MAX_ROUNDS or (rate * RATE_UNIT).denominator != 1:
        raise ValueError("a stage has more sums than any training, or another kind of rate")
    return StageFact(_law(item), _integer(item, "l2_squared"), _integer(item, "dimension"), count, rate)


def _fraction(body: Mapping[str, object], key: str) -> Fraction:
    """A fraction written as n/d in lowest terms, and in no other way."""
    text = text_in(body, key)
    numerator, _, denominator = text.partition("/")
    parts = {"n": numerator, "d": denominator}
    above, below = _integer(parts, "n"), _integer(parts, "d")
    if below == 0 or text != f"{(found := Fraction(above, below)).numerator}/{found.denominator}":
        raise LedgerCorrupt(private=f"{key!r} is not a fraction in lowest terms")
    return found


def _integer(body: Mapping[str, object], key: str) -> int:
    text = text_in(body, key)
    # int() would also read "+1", "1_0" and other alphabets' digits.
    if not (text.isascii() and text.isdigit() and len(text) <= 4000):  # noqa: PLR2004
        raise LedgerCorrupt(private=f"{key!r} is not a number")
    return int(text)


def _plain(value: Plain) -> object:
    match value:
        case None | bool() | str():
            return value
        case int():
            return value if abs(value) < _LARGEST_INTEGER else str(value)
        case float():
            return repr(value)
        case dict() | Mapping():
            return {key: _plain(item) for key, item in value.items()}
        case list() | tuple():
            return [_plain(item) for item in value]
    raise TypeError(f"an entry cannot hold a {type(value).__name__}")


def acknowledges(receipt: Entry, place: Head, *, plan_id: str, site: str, released: str | None) -> bool:
    """Whether `receipt` names the site's entry at `place` for this plan.

    `released` is the hash of the release, or None for a refusal. Who signed it is for the caller to check.
    """
    try:
        body = decode_body(receipt.body)
    except LedgerCorrupt:
        return False
    about = {"plan_id": plan_id, "site": site, "sequence": place.sequence, "digest": place.digest}
    if any(body.get(key) != value for key, value in about.items()):
        return False
    if released is None:
        return receipt.kind == DECLINED
    return receipt.kind == RECEIVED and body.get("release_hash") == released


def newer(one: Entry | None, other: Entry) -> Entry:
    """Of two receipts the one that the coordinator signed later.

    A coordinator that was recovered counts anew, and says how often that happened.
    """
    return other if one is None or _age(other) > _age(one) else one


def _age(receipt: Entry) -> tuple[int, int]:
    return incarnation_in(receipt), receipt.sequence


def incarnation_in(receipt: Entry) -> int:
    """How often the coordinator had been recovered when it signed this; whatever another one wrote there is 0."""
    incarnation = decode_body(receipt.body).get("incarnation")
    return incarnation if type(incarnation) is int else 0
