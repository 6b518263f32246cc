"""What a study leaves out is said before it is signed, each in one sentence."""

from __future__ import annotations

import pytest

from wardround.federation.plan.study_review import Kind, StudyFinding, findings
from wardround.federation.study.study_file import parse_study

COMPLETE = """
name = "cardio"
overlap = 1
[budget]
epsilon = 3.0
delta = 1e-6
[tables.stays]
unit_key = "patient_id"
max_rows_per_unit = 4
max_windows_per_unit = 4
[tables.stays.columns]
age       = { type = "integer", lower = 0, upper = 110 }
sbp       = { type = "number", lower = 80, upper = 200, step = 0.1 }
ill       = { type = "boolean" }
admitted  = { type = "date", lower = 2023-01-01, upper = 2024-12-31 }
diagnosis = { type = "category", values = ["E11", "I10"] }
"""


def found(old: str, new: str) -> tuple[StudyFinding, ...]:
    assert old in COMPLETE
    return findings(parse_study(COMPLETE.replace(old, new, 1)))


def test_a_complete_study_leaves_nothing_to_say() -> None:
    assert findings(parse_study(COMPLETE)) == ()


@pytest.mark.parametrize(
    ("old", "new", "place", "kind", "said"),
    [
        (", lower = 0, upper = 110", "", "stays.age", Kind.NO_BOUNDS, "not for a sum, mean, histogram or quantile"),
        (", step = 0.1", "", "stays.sbp", Kind.NO_STEP, "quantiles are given in steps of 0.117"),
        ("step = 0.1", "step = 0.7", "stays.sbp", Kind.UNEVEN_STEP, "not a whole number of steps of 0.7 apart"),
        ("step = 0.1", "step = 0.001", "stays.sbp", Kind.FINE_STEP, "given in steps of 0.03; sums and means keep"),
        (', values = ["E11", "I10"]', "", "stays.diagnosis", Kind.OPEN_CATEGORY, "a charge of its own"),
        (", lower = 2023-01-01, upper = 2024-12-31", "", "stays.admitted", Kind.NO_DAYS, "not for a series by month"),
        ("2023-01-01", "1800-01-01", "stays.admitted", Kind.MANY_MONTHS, "span 2700 months"),
        ("max_windows_per_unit = 4\n", "", "stays.admitted", Kind.NO_WINDOWS, "at most 4 of its 24 months"),
        ("rows_per_unit = 4", "rows_per_unit = 40", "stays.max_rows_per_unit", Kind.MANY_ROWS, "40 times the noise"),
        (
            "rows_per_unit = 4",
            "rows_per_unit = 4\nmax_groups_per_unit = 2",
            "stays.max_groups_per_unit",
            Kind.FEW_GROUPS,
            "in at most 2 groups",
        ),
        ("overlap = 1\n", "", "overlap", Kind.UNKNOWN_OVERLAP, "at every site"),
        ("delta = 1e-6", "delta = 0", "budget.delta", Kind.NO_DELTA, "only Laplace noise"),
        ("overlap = 1\n", 'overlap = 1\nunit = "event"\n', "unit", Kind.EVENT_UNIT, "protects one row"),
    ],
)
def test_what_is_missing_is_one_sentence_at_its_place(old: str, new: str, place: str, kind: Kind, said: str) -> None:
    (one,) = found(old, new)
    assert (one.place, one.kind) == (place, kind)
    assert said in one.sentence
    assert one.sentence.endswith(".")
    assert "\n" not in one.sentence
