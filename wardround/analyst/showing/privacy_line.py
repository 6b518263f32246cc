"""What a question cost, in one line: its ε, what is spent in all, whom that protects, and which noise."""

from __future__ import annotations

import math

from wardround.analyst.showing.interpretation import plural
from wardround.analyst.tables.text_tables import NOISE_NAMES
from wardround.federation.question.answer import Answer, Preview, PrivacyStatement
from wardround.federation.study.study import Unit
from wardround.privacy.mechanisms.private_selection import Choosing

NO_NOISE = "NO NOISE was added and nothing is private: a simulation, for checking against known answers."

_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def answer_line(answer: Answer, *, cap: float | None, rounds: int = 1) -> str:
    """What an answer cost; a stored one costs nothing now."""
    privacy = answer.privacy
    paid = ", paid before (this is the stored answer and costs nothing now)" if answer.replayed else ""
    over = f" over {rounds} {plural(rounds, 'round')}" if rounds > 1 else ""
    return f"this question: {_charge(privacy)}{over}{paid}; {_rest(answer.unit, privacy, cap)}"


def model_line(privacy: PrivacyStatement, *, unit: str, cap: float, replayed: bool) -> str:
    """What a model cost with all of its rounds and its evaluation."""
    paid = ", paid before (these are the stored rounds and cost nothing now)" if replayed else ""
    return f"this model: {_charge(privacy)}{paid}; {_rest(unit, privacy, cap)}"


def preview_line(preview: Preview, *, cap: float | None) -> str:
    """What a question would cost, before it is asked."""
    privacy = preview.privacy
    paid = ", paid before: asking it again would cost nothing" if preview.replayed else ""
    return f"this question would cost {_charge(privacy)}{paid}; {_rest(preview.unit, privacy, cap, when='so far')}"


def delta_text(delta: float) -> str:
    """`10⁻⁶` or `2.5·10⁻⁷`; numbers that are easier to read as they are stay so."""
    if not 0.0 < delta < 1e-2:  # noqa: PLR2004 - below it a reader counts noughts
        return f"{delta:.3g}"
    digits, exponent = f"{delta:.2e}".split("e")
    power = f"10{str(int(exponent)).translate(_RAISED)}"
    factor = f"{float(digits):.3g}"
    return power if factor == "1" else f"{factor}·{power}"


def _charge(privacy: PrivacyStatement) -> str:
    charged, spent = privacy.charged, privacy.spent
    own = "" if math.isclose(charged.delta, spent.delta) else f" (δ = {delta_text(charged.delta)})"
    return f"ε = {charged.epsilon:.4g}{own}"


def _rest(unit: str, privacy: PrivacyStatement, cap: float | None, *, when: str = "in all") -> str:
    spent = privacy.spent
    whole = "" if cap is None else f" of {cap:.4g}"
    whom = "per patient" if unit == Unit.PATIENT else "per event, not per patient"
    where = "" if privacy.overlap == 1 else f" at up to {privacy.overlap} hospitals"
    terms = f"δ = {delta_text(spent.delta)}, {whom}{where}, not a plain sum"
    return f"{when} {spent.epsilon:.4g}{whole} ({terms}); noise: {_noise(privacy)}"


def _noise(privacy: PrivacyStatement) -> str:
    if privacy.mechanism == Choosing.PERMUTE_AND_FLIP:
        return "in the vote of each hospital (permute-and-flip)"
    kind = NOISE_NAMES.get(privacy.mechanism, privacy.mechanism)
    where = "once on the total (a simulation)" if privacy.composition == "trusted_total" else "at each hospital"
    return f"{kind}, {where}"
