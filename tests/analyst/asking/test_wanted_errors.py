"""What a person says of the error that an answer may have, in order or by name, in Python and at the command line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from tests.coordinator.hospitals import study
from wardround.analyst.asking.binding import settled
from wardround.analyst.asking.multi_round import course_of
from wardround.analyst.asking.wanted_errors import WantedError, errors_of, read_errors
from wardround.analyst.sql.read import read
from wardround.federation.errors import Mistaken, QueryMistaken

TWO = "SELECT COUNT(*) AS visits, AVG(sbp) FROM encounters"
EITHER = 'it must be a number, such as 50, or a name and a number, such as "AVG(sbp)=0.5".'
ONCE = "--error is given once for each aggregate, either all in order or all by different names."
OPEN = "SELECT ward, COUNT(*) FROM encounters GROUP BY ward"


def errors(wanted: WantedError | None, sql: str = TWO, *, search: bool = False) -> tuple[float, ...]:
    agreed = study(smoker='{ type = "boolean" }\nward = { type = "category" }')
    return errors_of(wanted, course_of(settled(read(sql), agreed), agreed, by_search=search))


@pytest.mark.parametrize(
    "wanted",
    [
        (50, 0.5),
        [50.0, 0.5],
        {"COUNT(*)": 50, "AVG(sbp)": 0.5},
        {"avg( SBP )": 0.5, "count(*)": 50},
        {"visits": 50, "AVG(sbp)": 0.5},
    ],
)
def test_each_aggregate_gets_its_own(wanted: Sequence[float] | Mapping[str, float]) -> None:
    assert errors(wanted) == (50.0, 0.5)


def test_one_number_is_enough_for_one_aggregate_and_none_is_none() -> None:
    assert errors(50, "SELECT COUNT(*) FROM encounters") == (50.0,)
    assert errors(None) == ()


def test_several_errors_for_one_aggregate_are_one_sentence() -> None:
    with pytest.raises(QueryMistaken, match=r"^there are 2 errors for COUNT\(\*\); give one\.$"):
        errors((1, 2), "SELECT COUNT(*) FROM encounters")


@pytest.mark.parametrize(
    ("wanted", "sentence"),
    [
        (50, "there is 1 error for 2 aggregates; give one for each of COUNT(*), AVG(sbp), in this order or by name."),
        (
            (1, 2, 3),
            "there are 3 errors for 2 aggregates; give one for each of COUNT(*), AVG(sbp), in this order or by name.",
        ),
        ((50, 0), "an error must be a finite number above 0, not 0."),
        ((50, -1.5), "an error must be a finite number above 0, not -1.5."),
        ((50, float("inf")), "an error must be a finite number above 0, not inf."),
        ((50, True), "an error must be a number above 0, not True."),
        ("50", "an error must be a number above 0, not '5'."),
        ({"visits": 50}, "there is no error for AVG(sbp); give one for each of COUNT(*), AVG(sbp)."),
        (
            {"visits": 50, "AVG(sbp)": 1, "AVG(age)": 1},
            "there is an error for 'AVG(age)', which the question does not ask; it asks COUNT(*), AVG(sbp).",
        ),
    ],
)
def test_what_does_not_fit_the_question_is_one_sentence(wanted: WantedError, sentence: str) -> None:
    with pytest.raises(QueryMistaken) as mistake:
        errors(wanted)
    assert mistake.value.message == sentence


@pytest.mark.parametrize(
    ("sql", "search", "rounds"),
    [
        (OPEN, False, "2 rounds (KEYS(ward) first)"),
        ("SELECT MEDIAN(sbp) FROM encounters", True, "10 rounds (SHARE_BELOW(sbp, …) first)"),
    ],
)
def test_a_question_of_several_rounds_is_not_asked_by_error(sql: str, search: bool, rounds: str) -> None:
    with pytest.raises(QueryMistaken) as mistake:
        errors(5.0, sql, search=search)
    assert mistake.value.message == (
        f"this question takes {rounds}, so its error is not known beforehand; ask it with ε instead."
    )


def test_the_command_line_says_the_same() -> None:
    assert read_errors([]) is None
    assert read_errors(["50"]) == [50.0]
    assert read_errors(["50", "0.5"]) == [50.0, 0.5]
    assert read_errors(["AVG(sbp)=0.5", "COUNT(*) = 50"]) == {"AVG(sbp)": 0.5, "COUNT(*)": 50.0}


@pytest.mark.parametrize(
    ("texts", "sentence"),
    [
        (["fifty"], f"--error is 'fifty'; {EITHER}"),
        (["AVG(sbp)="], f"--error is 'AVG(sbp)='; {EITHER}"),
        (["50", "AVG(sbp)=0.5"], ONCE),
        (["a=1", "a=2"], ONCE),
    ],
)
def test_a_wrong_option_is_one_sentence(texts: list[str], sentence: str) -> None:
    with pytest.raises(Mistaken) as mistake:
        read_errors(texts)
    assert mistake.value.message == sentence
