"""What an audit finds: for every claim a proved lower bound, and for every broken control whether it was seen."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Measure(StrEnum):
    """What is claimed."""

    EPSILON = "epsilon"
    MU = "mu"
    DELTA = "delta"
    SCALE = "scale"
    """The standard deviation of the noise, as a multiple of the claimed one."""


class Method(StrEnum):
    """How the bound was found."""

    EXACT = "exact"
    TWO_WORLDS = "two worlds"
    FEDERATION = "federation"
    VARIANCE = "variance"
    TRAININGS = "trainings"
    """Two worlds, whole trainings; far fewer of them than draws, because each is many steps."""


class Verdict(StrEnum):
    """A claim holds, is violated, or was not tested hard enough; a control is flagged or missed."""

    HOLDS = "holds"
    INCONCLUSIVE = "inconclusive"
    VIOLATED = "violated"
    FLAGGED = "flagged"
    MISSED = "missed"


# An audit that proves less than this share of what is claimed was asleep.
LEAST_SHARE = {Measure.EPSILON: 0.85, Measure.DELTA: 0.85, Measure.MU: 0.8}


@dataclass(frozen=True, slots=True)
class AuditFinding:
    """One line of the audit."""

    name: str
    method: Method
    measure: Measure
    claimed: float
    certified: float
    verdict: Verdict

    @property
    def passed(self) -> bool:
        """Whether this is what should be found."""
        return self.verdict in (Verdict.HOLDS, Verdict.FLAGGED)

    def document(self) -> dict[str, object]:
        return {
            "name": self.name,
            "method": self.method.value,
            "measure": self.measure.value,
            "claimed": self.claimed,
            "certified": self.certified,
            "verdict": self.verdict.value,
        }


def judged(
    name: str, method: Method, measure: Measure, *, claimed: float, certified: float, least_share: float | None = None
) -> AuditFinding:
    """A claim against a proved lower bound of the same measure; `least_share` where the usual one is out of reach."""
    if certified > claimed:
        verdict = Verdict.VIOLATED
    elif certified < (LEAST_SHARE[measure] if least_share is None else least_share) * claimed:
        verdict = Verdict.INCONCLUSIVE
    else:
        verdict = Verdict.HOLDS
    return AuditFinding(name, method, measure, claimed, certified, verdict)


def judged_noise(name: str, *, ratio: float, score: float, limit: float) -> AuditFinding:
    """Noise whose spread is `ratio` of the claimed one, `score` of its own standard deviations off."""
    verdict = Verdict.HOLDS if abs(score) <= limit else Verdict.VIOLATED
    return AuditFinding(name, Method.VARIANCE, Measure.SCALE, 1.0, ratio, verdict)


def as_control(found: AuditFinding) -> AuditFinding:
    """The same finding about something that was broken on purpose."""
    verdict = Verdict.FLAGGED if found.verdict is Verdict.VIOLATED else Verdict.MISSED
    return AuditFinding(found.name, found.method, found.measure, found.claimed, found.certified, verdict)


@dataclass(frozen=True, slots=True)
class AuditReport:
    """Everything one audit found."""

    confidence: float
    draws: int
    claims: tuple[AuditFinding, ...]
    controls: tuple[AuditFinding, ...]

    @property
    def passed(self) -> bool:
        """Whether every claim holds and every broken control was seen to be broken."""
        return all(found.passed for found in (*self.claims, *self.controls))

    def document(self) -> dict[str, object]:
        return {
            "passed": self.passed,
            "confidence": self.confidence,
            "draws": self.draws,
            "claims": [found.document() for found in self.claims],
            "controls": [found.document() for found in self.controls],
        }

    def text(self) -> str:
        rows = [("mechanism", "method", "claimed", "proved", "verdict")]
        rows += [_row(found) for found in self.claims]
        rows += [("", "", "", "", ""), ("broken on purpose", "", "claimed", "proved", "")]
        rows += [_row(found) for found in self.controls]
        widths = [max(len(row[i]) for row in rows) for i in range(5)]
        lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
        held = sum(found.passed for found in self.claims)
        flagged = sum(found.passed for found in self.controls)
        return "\n".join(
            (
                *lines,
                "",
                f"{held} of {len(self.claims)} claims hold; {flagged} of {len(self.controls)} broken ones are flagged.",
                f"Up to {self.draws} draws of each world; all bounds hold with {self.confidence:.1%} confidence.",
            )
        )


_LETTERS = {Measure.EPSILON: "ε", Measure.MU: "μ", Measure.DELTA: "δ", Measure.SCALE: "σ"}


def _row(found: AuditFinding) -> tuple[str, str, str, str, str]:
    letter = _LETTERS[found.measure]
    if found.measure is Measure.SCALE:
        claimed, proved = letter, f"{found.certified:.3f} {letter}"
    else:
        relation = "=" if found.method is Method.EXACT else "≥"
        claimed, proved = f"{letter} = {found.claimed:.4g}", f"{letter} {relation} {found.certified:.4g}"
    return found.name, found.method.value, claimed, proved, found.verdict.value
