"""How the parts of one question share its charge: by need, so that the sum of their squared errors is least.

A part's need is how far one unit can move it, counted in the largest single contribution of a unit: four
counts for at most four rows, the root of the levels for a tree (PROOFS.md#planning).
"""

from __future__ import annotations

import math
from fractions import Fraction

from wardround.federation.forms.parts import AnswerLayout, Part
from wardround.privacy.budget.facts import AnyMechanism
from wardround.privacy.noise.distribution import Mechanism

_UNIT = 4096
"""Needs are whole numbers of 1/4096, so that both sides reckon the same shares."""


def shares(form: AnswerLayout, mechanism: AnyMechanism) -> tuple[Fraction, ...]:
    """Each part's share of the charge: of μ² in proportion to Δ₂, of pure ε in proportion to Δ₁^(2/3)."""
    needs = [_need(part, mechanism) for part in form.parts]
    return tuple(Fraction(need, sum(needs)) for need in needs)


def _need(part: Part, mechanism: AnyMechanism) -> int:
    one = part.largest
    if mechanism is Mechanism.DISCRETE_GAUSSIAN:
        return max(math.isqrt(_UNIT**2 * part.l2_sensitivity_squared) // one, 1)
    # The cube root of a square, in whole numbers: a float could round one way here and another there.
    return max(_cube_root((_UNIT * part.l1_sensitivity // one) ** 2 * _UNIT), 1)


def _cube_root(number: int) -> int:
    """The largest whole number whose cube is at most `number`."""
    low, high = 0, 1 << (number.bit_length() // 3 + 1)
    while low < high:
        middle = (low + high + 1) // 2
        if middle**3 <= number:
            low = middle
        else:
            high = middle - 1
    return low
