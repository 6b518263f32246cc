"""What the hospitals of a test federation agree on, and their rows."""

from __future__ import annotations

from dataclasses import dataclass

COUNTS = {"one": 1, "two": 10, "three": 100}
# Larger ones, for questions whose answers need patients.
LARGER = {"four": 1000, "five": 2000}

STUDY = """\
name = "oracle"
overlap = 1
min_sites = {min_sites}
deadline_seconds = {deadline_seconds}
approval_seconds = 3600

[budget]
epsilon = {epsilon}
delta = 1e-6

[tables.encounters]
unit_key = "patient_id"
max_rows_per_unit = 2

[tables.encounters.columns]
age = {{ type = "integer", lower = 0, upper = 110 }}
sbp = {{ type = "number", lower = 80, upper = 200, step = 0.1 }}
diagnosis = {{ type = "category", values = ["E11", "I10"] }}
"""

SITE = """\
[site]
name = "{name}"
patients = 1000
dataset = "{name}-2026"

[tables.encounters]
source = "encounters.csv"

[policy]
epsilon = {epsilon}
delta = 1e-6
approval = "{approval}"
"""


@dataclass(frozen=True, slots=True)
class Terms:
    """What a test may agree on; everything else is the same in every federation."""

    epsilon: float = 9000.0
    min_sites: int = 1
    # No deadline passes while processes start; where one has to, the coordinator is a timeless one.
    deadline_seconds: float = 600.0
    approval: str = "automatic"
    sites: tuple[str, ...] = tuple(COUNTS)
    certificate_hours: float = 100.0

    def study(self) -> str:
        return STUDY.format(epsilon=self.epsilon, min_sites=self.min_sites, deadline_seconds=self.deadline_seconds)

    def site(self, name: str) -> str:
        return SITE.format(name=name, epsilon=self.epsilon, approval=self.approval)

    def coordinator(self) -> str:
        return f"certificate_hours = {self.certificate_hours}\n"


def rows_of(name: str) -> str:
    """The table of one hospital: two encounters for each of its patients."""
    lines = ["patient_id,age,sbp,diagnosis"]
    for patient in range((COUNTS | LARGER)[name]):
        lines += [f"{name}-{patient},{30 + patient % 50},{120 + patient % 30},{d}" for d in ("E11", "I10")]
    return "\n".join(lines) + "\n"
