"""What a hospital reads before it signs."""

from __future__ import annotations

from wardround.federation.study_file import parse_study
from wardround.federation.wording import study_text

STUDY = """
name = "cardio"
overlap = 2
min_sites = 3
[budget]
epsilon = 3.0
delta = 1e-6
pure_epsilon = 0.5
[tables.encounters]
unit_key = "patient_id"
max_rows_per_unit = 4
max_groups_per_unit = 2
[tables.encounters.columns]
sbp = { type = "number", lower = 80, upper = 200, step = 0.1, default = 120.0 }
ward = { type = "category", values = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"] }
"""


def test_a_hospital_reads_every_bound_it_signs() -> None:
    text = study_text(parse_study(STUDY))
    assert "one patient, known at no more than 2 sites" in text
    assert "ε = 3 at δ = 1e-06, of it ε = 0.5 for Laplace noise; answers need 3 sites" in text
    assert "at most 4 rows and 2 groups for each" in text
    assert "sbp: number from 80 to 200 in steps of 0.1; absent counts as 120.0" in text
    assert "ward: category, one of a, b, c, d, e, f, g, h and 2 more" in text


def test_a_study_that_is_silent_about_overlap_says_everywhere() -> None:
    assert "known at every site" in study_text(parse_study(STUDY.replace("overlap = 2\n", "")))
