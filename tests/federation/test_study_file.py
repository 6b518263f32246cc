"""study.toml: what is accepted, and the one sentence for everything that is not."""

import dataclasses
import datetime
from fractions import Fraction

import pytest

from wardround.federation import canonical
from wardround.federation.errors import ConfigurationMistaken
from wardround.federation.study.study import Unit, delta_fault
from wardround.federation.study.study_file import parse_study

STUDY = """
name = "cardio"
unit = "patient"
overlap = 1
[budget]
epsilon = 3.0
delta = 1e-6
[tables.encounters]
unit_key = "patient_id"
max_rows_per_unit = 4
[tables.encounters.columns]
age       = { type = "integer", lower = 0, upper = 110 }
sbp       = { type = "number", lower = 80, upper = 200, step = 0.1 }
diagnosis = { type = "category", values = ["E11", "I10", "C50", "I25"] }
"""


def test_the_design_s_study_is_read_exactly() -> None:
    study = parse_study(STUDY)
    table = study.table("encounters")
    assert (study.name, study.unit, study.overlap, study.cap.epsilon) == ("cardio", Unit.PATIENT, 1, 3.0)
    assert table.column("sbp").step == Fraction(1, 10)
    assert table.max_groups_per_unit == table.max_rows_per_unit == 4
    assert (study.min_sites, study.deadline_seconds) == (1, 60.0)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('name = "cardio"', 'nmae = "cardio"', "name must be a non-empty text"),
        ("overlap = 1", "overlpa = 1", "unknown key 'overlpa'; did you mean 'overlap'?"),
        ("overlap = 1", "overlap = 0", "overlap must be a whole number from 1"),
        ("overlap = 1", "overlap = true", "overlap must be a whole number"),
        ('unit = "patient"', 'unit = "visit"', "unit must be one of patient, event"),
        ("epsilon = 3.0", "epsilon = -1.0", "budget.epsilon must be a number from 0"),
        ("epsilon = 3.0", "epsilon = 0", "epsilon must be above 0"),
        ("epsilon = 3.0", "epsilon = nan", "budget.epsilon must be a number"),
        ("epsilon = 3.0", "epsilon = inf", "budget.epsilon must be a number"),
        ("delta = 1e-6", "delta = 1.0", "delta must be"),
        ("delta = 1e-6", "dleta = 1e-6", "budget.delta must be a number"),
        ("max_rows_per_unit = 4", "max_rows_per_unit = 0", "max_rows_per_unit must be a whole number from 1"),
        ("max_rows_per_unit = 4", "", "max_rows_per_unit must be a whole number"),
        ('unit_key = "patient_id"', 'unit_key = "p; DROP TABLE"', "is not a name"),
        ('unit_key = "patient_id"', 'unit_key = "age"', "must not also be a column"),
        ("lower = 0, upper = 110", "lower = 0", "lower must be given together with upper"),
        ("lower = 0, upper = 110", "lower = 110, upper = 0", "lower must be below upper"),
        ("lower = 0, upper = 110", "lower = 0.5, upper = 110", "the bounds whole"),
        ("lower = 0, upper = 110", "lower = 0, upper = 1e300", "at most"),
        ("step = 0.1", "step = -0.1", "step must be above zero"),
        ("step = 0.1", "step = 500", "step must be at most the width"),
        ("step = 0.1", "steps = 0.1", "did you mean 'step'?"),
        ('"E11", "I10", "C50", "I25"', '"E11", "E11"', "different texts"),
        ('"E11", "I10", "C50", "I25"', "", "different texts"),
        ('"E11", "I10", "C50", "I25"', "1, 2", "must be a list of texts"),
        ('type = "integer"', 'type = "int"', "type must be one of integer, number"),
        ("age       =", "Sbp       =", "differ only in capitals"),
        ("[tables.encounters.columns]", "[tables.encounters.columns", "is not valid TOML"),
    ],
)
def test_every_mistake_gets_one_sentence(old: str, new: str, said: str) -> None:
    assert old in STUDY
    with pytest.raises(ConfigurationMistaken) as caught:
        parse_study(STUDY.replace(old, new, 1))
    assert said in caught.value.message
    assert "\n" not in caught.value.message
    assert caught.value.exit_code == 2


def test_any_change_that_matters_changes_the_hash_and_a_comment_does_not() -> None:
    base = parse_study(STUDY).study_hash
    assert parse_study(STUDY + "# a comment\n").study_hash == base
    for old, new in [
        ("epsilon = 3.0", "epsilon = 3.1"),
        ("upper = 200", "upper = 201"),
        ("max_rows_per_unit = 4", "max_rows_per_unit = 5"),
        ("overlap = 1", "overlap = 2"),
        ("overlap = 1", ""),
        ("step = 0.1", "step = 0.2"),
        ('"I25"', '"I26"'),
        ("delta = 1e-6", "delta = 1e-6\npure_epsilon = 0.5"),
    ]:
        assert parse_study(STUDY.replace(old, new, 1)).study_hash != base


def test_a_silent_study_assumes_every_patient_is_everywhere() -> None:
    study = parse_study(STUDY.replace("overlap = 1\n", ""))
    assert study.overlap_among("abcdefg") == 7
    assert parse_study(STUDY).overlap_among("abcdefg") == 1


GROUPS = """
[[groups]]
sites = ["st-mary", "lakeside", "harbour"]
overlap = 2
[[groups]]
sites = ["north"]
"""


def test_hospitals_that_share_patients_are_declared_as_groups() -> None:
    study = parse_study(STUDY + GROUPS)
    assert study.overlap_among(["st-mary", "harbour", "lakeside", "north", "far"]) == 2
    assert study.overlap_among(["st-mary", "north", "far", "near"]) == 1
    assert study.study_hash != parse_study(STUDY).study_hash


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('["north"]', '["st-mary"]', "groups.sites must be names of sites, each in one group and once"),
        ('["north"]', '["north", "north"]', "each in one group and once"),
        ('["north"]', "[]", "each in one group and once"),
        ('["north"]', '["a b"]', "each in one group and once"),
        ("overlap = 2", "overlap = 0", "groups.overlap must be a whole number"),
        ("overlap = 2", "overlpa = 2", "did you mean 'overlap'?"),
        ("[[groups]]", "[groups]", "TOML"),
    ],
)
def test_a_group_that_cannot_be_read_is_one_sentence(old: str, new: str, said: str) -> None:
    with pytest.raises(ConfigurationMistaken) as caught:
        parse_study(STUDY + GROUPS.replace(old, new, 1))
    assert said in caught.value.message


def test_delta_must_be_below_one_over_the_declared_patients() -> None:
    assert delta_fault(1e-6, {"a": 500_000, "b": 499_999}) is None
    assert "is not below 1/1000000" in (delta_fault(1e-6, {"a": 500_000, "b": 500_000}) or "")


# --- What was signed stays signed ---------------------------------------------------------------------------


def test_a_study_that_uses_no_later_key_has_the_hash_that_was_signed() -> None:
    # Computed by the version before dates had bounds, categories were open and windows were declared.
    assert parse_study(STUDY).study_hash == "8fa46b7ae073d3c056577d2210fc5c0bba9baeb53d86ae49131198d36dbdcb25"
    assert parse_study(STUDY + GROUPS).study_hash == "8af338335ada6aec3f7493809431b7fde02cd520478eaa25ab8e8cb1a42a0db2"


def test_a_later_key_that_is_used_makes_another_study() -> None:
    windows = STUDY.replace("max_rows_per_unit = 4", "max_rows_per_unit = 4\nmax_windows_per_unit = 4")
    hashes = {
        parse_study(text).study_hash
        for text in [STUDY, windows, windows.replace("windows_per_unit = 4", "windows_per_unit = 3")]
    }
    assert len(hashes) == 3


def test_a_unit_is_a_later_key_of_a_number() -> None:
    text = STUDY.replace("upper = 200", 'upper = 200, unit = "mmHg"')
    assert text != STUDY
    measured = parse_study(text)
    assert measured.table("encounters").column("sbp").unit == "mmHg"
    assert parse_study(STUDY).table("encounters").column("sbp").unit == ""
    assert measured.study_hash != parse_study(STUDY).study_hash
    assert b'"unit":"mmHg"' in canonical.encode(measured)
    assert b'"unit":""' not in canonical.encode(parse_study(STUDY))


@dataclasses.dataclass(frozen=True, slots=True)
class Word:
    first: int
    added: int | bool | None = dataclasses.field(default=None, metadata=canonical.LATER)
    count: int | bool = dataclasses.field(default=0, metadata=canonical.LATER)


def test_a_later_field_is_silent_only_at_its_own_default() -> None:
    words = [Word(1), Word(1, 0), Word(1, False), Word(1, None, False), Word(1, None, 1), Word(1, 1, 0)]
    assert len({canonical.encode(word) for word in words}) == len(words)
    assert canonical.encode(Word(1)) == b'{"fields":{"first":1},"word":"Word"}'


# --- Dates, open categories, windows ------------------------------------------------------------------------

DATED = (
    STUDY
    + """
admitted  = { type = "date", lower = 2020-01-01, upper = 2024-12-31 }
reason    = { type = "category" }
"""
)


def test_a_date_may_have_a_first_and_a_last_day_and_a_category_may_be_open() -> None:
    table = parse_study(DATED).table("encounters")
    admitted, reason = table.column("admitted"), table.column("reason")
    assert admitted.lower == datetime.date(2020, 1, 1).toordinal()
    assert admitted.upper == datetime.date(2024, 12, 31).toordinal()
    assert (admitted.open, admitted.domain, admitted.numeric_bounds) == (False, (), None)
    assert (reason.open, reason.domain) == (True, ())
    assert not table.column("diagnosis").open


def test_a_day_may_be_written_as_toml_s_date_or_as_a_text() -> None:
    quoted = DATED.replace("2020-01-01", '"2020-01-01"').replace("2024-12-31", '"2024-12-31"')
    assert parse_study(quoted).study_hash == parse_study(DATED).study_hash


def test_windows_are_declared_apart_from_groups_or_not_at_all() -> None:
    text = STUDY.replace("max_rows_per_unit = 4", "max_rows_per_unit = 4\nmax_windows_per_unit = 12")
    assert parse_study(text).table("encounters").max_windows_per_unit == 12
    assert parse_study(STUDY).table("encounters").max_windows_per_unit is None


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (", upper = 2024-12-31", "", "lower must be given together with upper"),
        ("2020-01-01", "2025-01-01", "lower must be before upper"),
        ("2020-01-01", '"yesterday"', "lower must be a date such as 2026-01-31"),
        ("2020-01-01", "2020-01-01T00:00:00", "lower must be a date such as 2026-01-31"),
        ("2020-01-01", "737425", "lower must be a date such as 2026-01-31"),
        ("upper = 2024-12-31", 'upper = 2024-12-31, default = "2019-12-31"', "inside the declared bounds"),
        ("upper = 2024-12-31", "upper = 2024-12-31, step = 1", "columns.admitted.step'"),
        ('type = "category" }', 'type = "category", values = [] }', "1 to 100000 different texts, or absent"),
        ('type = "category" }', 'type = "category", default = "" }', "default must be"),
        ("max_rows_per_unit = 4", "max_rows_per_unit = 4\nmax_windows_per_unit = 0", "whole number from 1"),
        ("max_rows_per_unit = 4", "max_rows_per_unit = 4\nmax_window_per_unit = 2", "did you mean 'max_windows"),
        (
            'type = "category" }',
            'type = "category", unit = "mmHg" }',
            "unit must be a text of at most 32 characters, in",
        ),
        ("upper = 200", 'upper = 200, unit = ""', "unit must be a non-empty text"),
        ("upper = 200", f'upper = 200, unit = "{33 * "m"}"', "unit must be a text of at most 32 characters"),
    ],
)
def test_a_mistake_in_a_later_key_gets_one_sentence_too(old: str, new: str, said: str) -> None:
    assert old in DATED
    with pytest.raises(ConfigurationMistaken) as caught:
        parse_study(DATED.replace(old, new, 1))
    assert said in caught.value.message
    assert "\n" not in caught.value.message
