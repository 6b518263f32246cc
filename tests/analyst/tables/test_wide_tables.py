"""Answers as tables with a row a group and a column an aggregate: on a screen of any width, and in a notebook."""

from __future__ import annotations

import dataclasses
import html.parser
import os
import re

import pytest

from tests.analyst.showing.fixed_answers import QUESTIONS, by_code, placed, result_of, terms, unknown
from tests.analyst.stored import ANSWER, PRIVACY, estimate, stored
from wardround.analyst.showing.privacy_line import delta_text
from wardround.analyst.showing.result import Result
from wardround.analyst.sql.read import read
from wardround.analyst.tables import wide_text
from wardround.federation.question.answer import Estimate, Loss, NoEstimate
from wardround.federation.question.query import Statistic

SHOWN = {
    "groups": """
dx    COUNT(*)       AVG(sbp)
─────────────────────────────
E11  6701 ± 45  131.23 ± 0.42
I10   513 ± 45    128.0 ± 1.7
""",
    "no groups": """
     SUM(x)  VARIANCE(x)     STDDEV(x)  QUANTILE(x, 0.9)  SHARE_BELOW(x, 140.0)
───────────────────────────────────────────────────────────────────────────────
90001 ± 120  291.9 ± 6.5  17.08 ± 0.19     150.25 ± 0.17        0.7241 ± 0.0010
""",
    "histogram": """
HISTOGRAM(age, 2)
age           estimate
──────────────────────
[18, 58)  2995.9 ± 7.3
[58, 98]    -3.1 ± 7.3
""",
    "survival": """
KAPLAN_MEIER(months, died, 3)
sex  months       estimate      at risk
───────────────────────────────────────
F    12      0.800 ± 0.010  720.0 ± 9.0
F    24      0.400 ± 0.010  360.0 ± 9.0
F    36        no estimate  240.0 ± 9.0
M    12      0.700 ± 0.010  630.0 ± 9.0
M    24      0.350 ± 0.010  315.0 ± 9.0
M    36        no estimate  210.0 ± 9.0

sex      median
───────────────
M    24.0 ± 3.0
""",
    "table": """
CHI_SQUARE(dx, smoker)
noise_aware_statistic  degrees_of_freedom          p_value
──────────────────────────────────────────────────────────
                551.6                   1  0.0123 ± 0.0011

COUNT(DISTINCT id): dx by smoker
dx          false          true
───────────────────────────────
E11  3582.4 ± 7.3  1064.3 ± 7.3
I10  3205.5 ± 7.3   994.3 ± 7.3
""",
    "mode": """
MODE(dx)
dx       estimate       gap  regret
───────────────────────────────────
E11  4660.7 ± 7.3  461 ± 10       0
""",
    "keys": """
note  KEYS(note)
────────────────
a     40.0 ± 5.0
b      9.0 ± 5.0
""",
    "mixed": """
         n  CORR(sbp, age)
──────────────────────────
12015 ± 34   0.536 ± 0.029

fit
coefficient       estimate
──────────────────────────
age          0.360 ± 0.016
intercept    107.19 ± 0.99

    r_squared   residual_sd
───────────────────────────
0.269 ± 0.027  14.78 ± 0.67

CORR(a, b, c)
column  with        estimate
────────────────────────────
a       b      0.500 ± 0.030
a       c     -0.200 ± 0.020
b       c      0.100 ± 0.040
""",
    "intervals and months": """
band    month      COUNT(*)
───────────────────────────
rest    2026-01  10.0 ± 4.0
middle  2026-01  20.0 ± 4.0
rest    2026-01  30.0 ± 4.0
""",
}


@pytest.mark.parametrize("name", QUESTIONS)
def test_an_answer_has_a_row_a_group_and_a_column_an_aggregate(name: str) -> None:
    assert str(result_of(name)).startswith(SHOWN[name].strip("\n") + "\n\n")


def test_every_statistic_is_shown_here() -> None:
    assert {each.statistic for _, estimates in QUESTIONS.values() for each in estimates} == set(Statistic)


def test_intervals_stand_beside_their_numbers_when_asked_for() -> None:
    assert result_of("groups").text(intervals=True).splitlines()[:4] == [
        "dx    COUNT(*)  95 % interval       AVG(sbp)     95 % interval",
        "──────────────────────────────────────────────────────────────",
        "E11  6701 ± 45   [6611, 6791]  131.23 ± 0.42  [130.39, 132.07]",
        "I10   513 ± 45     [423, 603]    128.0 ± 1.7    [124.6, 131.4]",
    ]


def test_a_cell_without_an_estimate_says_so_and_the_reason_stands_below() -> None:
    counts, means = by_code()[:2], by_code()[2:]
    lost = unknown(means[1], NoEstimate.TOO_FEW, (80.0, 200.0))
    result = Result(stored(*counts, means[0], lost), read(QUESTIONS["groups"][0]))
    lines = result.text(intervals=True).splitlines()
    assert lines[3] == "I10   513 ± 45     [423, 603]    no estimate         [80, 200]"
    assert lines[5] == f"No estimate of AVG(sbp): {NoEstimate.TOO_FEW.sentence}"


def test_groups_stay_in_the_order_that_was_asked_for() -> None:
    sql = "SELECT dx AS code, COUNT(*) AS n, AVG(sbp) FROM t GROUP BY dx ORDER BY n LIMIT 1"
    lines = str(Result(stored(*by_code()), read(sql))).splitlines()
    assert lines[0].split() == ["code", "n", "AVG(sbp)"]
    assert lines[2].split()[:2] == ["I10", "513"]
    assert lines[4].startswith("1 group more was answered and is not shown.")


# --- Nothing is lost -----------------------------------------------------------------------------------------


def cells(result: Result) -> list[Estimate]:
    return [cell for table in result.tables for column in table.numbers for cell in column.cells if cell is not None]


@pytest.mark.parametrize("name", QUESTIONS)
@pytest.mark.parametrize("with_question", [True, False])
def test_every_number_is_in_exactly_one_cell(name: str, with_question: bool) -> None:
    result = result_of(name)
    if not with_question:
        result = Result(result.answer)
    assert sorted(map(id, cells(result))) == sorted(map(id, result.estimates))


def test_two_numbers_for_one_cell_get_a_column_each() -> None:
    twice = [estimate("mean", "x", 5.0, 1.0), estimate("mean", "x", 1.5, 1.0)]
    assert str(Result(stored(*twice))).splitlines()[2].split() == ["5.0", "±", "1.0", "1.5", "±", "1.0"]
    frame = Result(stored(*twice)).to_pandas()
    assert (frame["AVG(x)"][0], frame["AVG(x)_2"][0]) == (5.0, 1.5)


def test_a_predictor_may_be_called_like_a_summary() -> None:
    named = terms(0, "regression", "y", {"r_squared": (3.0, 0.1), "intercept": (1.0, 0.1)})
    rest = terms(0, "regression", "y", {"r_squared": (0.5, 0.1), "residual_sd": (2.0, 0.1)})
    rows, summary = Result(stored(*named, *rest), read("SELECT REGRESS(y, r_squared) FROM t")).tables
    assert rows.keys[0].cells == ("r_squared", "intercept")
    assert [column.cells[0].value for column in summary.numbers if column.cells[0] is not None] == [0.5, 2.0]


def test_who_is_at_risk_stands_beside_the_share_and_in_answers_of_before_nobody_does() -> None:
    rows, _ = result_of("survival").tables
    assert [column.heading for column in rows.numbers] == ["estimate", "at risk"]
    assert "it covers the noise and sampling error (at risk: the noise alone)." in str(result_of("survival"))
    curve = [each for each in result_of("survival").estimates if "at risk" not in each.term]
    (table, _) = Result(stored(*curve)).tables
    assert [column.heading for column in table.numbers] == ["estimate"]
    assert "it covers the noise and sampling error." in str(Result(stored(*curve)))


def test_cells_of_a_table_that_fall_together_are_all_shown() -> None:
    cell = estimate("count", "id", 5.0, 1.0, group=(("a", "x"), ("b", "y")))
    other = dataclasses.replace(cell, value=6.0)
    text = str(Result(stored(*terms(0, "chi_square", "a", {"p_value": (0.5, 0.1)}), cell, other)))
    assert "5.0 ± 1.0" in text
    assert "6.0 ± 1.0" in text


# --- Narrow screens ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", QUESTIONS)
@pytest.mark.parametrize("intervals", [True, False])
@pytest.mark.parametrize("width", [48, 60, 79])
def test_no_row_is_wider_than_the_screen(name: str, width: int, intervals: bool) -> None:
    result = result_of(name)
    tables = result.text(intervals=intervals, width=width).split("\n\nAnswered")[0].split("\n\nNo estimate")[0]
    assert max(map(len, tables.splitlines())) <= width
    wide = result.text(intervals=intervals).split()
    assert set(re.findall(r"-?[\d.]+ ± [\d.]+", " ".join(wide))) == set(re.findall(r"-?[\d.]+ ± [\d.]+", tables))


def test_columns_that_do_not_fit_stand_below_under_the_same_keys() -> None:
    assert result_of("groups").text(width=20).splitlines()[:9] == [
        "dx    COUNT(*)",
        "──────────────",
        "E11  6701 ± 45",
        "I10   513 ± 45",
        "",
        "dx        AVG(sbp)",
        "──────────────────",
        "E11  131.23 ± 0.42",
        "I10    128.0 ± 1.7",
    ]


def test_a_long_key_is_cut_so_that_its_number_stays_in_sight() -> None:
    long = estimate("count", None, 7.0, 2.0, group=(("diagnosis", "word " * 30),))
    wide = estimate("count", None, 8.0, 2.0, group=(("diagnosis", "字" * 60),))
    lines = Result(stored(long, wide)).text(width=40).splitlines()[:4]
    assert [line.endswith(end) for line, end in zip(lines[2:], ("7.0 ± 2.0", "8.0 ± 2.0"), strict=True)] == [True, True]
    assert max(map(wide_text.width_of, lines)) <= 40


def test_printing_looks_at_the_terminal_and_a_pipe_has_any_width(monkeypatch: pytest.MonkeyPatch) -> None:
    assert str(result_of("groups")) == result_of("groups").text()
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setattr("os.get_terminal_size", lambda _: os.terminal_size((21, 24)))
    monkeypatch.setattr("sys.stdout.fileno", lambda: 1, raising=False)
    assert str(result_of("groups")) == result_of("groups").text(width=20)


# --- The line about privacy ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("delta", "text"),
    [(1e-6, "10⁻⁶"), (2.5e-7, "2.5·10⁻⁷"), (1e-10, "10⁻¹⁰"), (0.0, "0"), (0.05, "0.05"), (9.999e-7, "10⁻⁶")],
)
def test_a_delta_is_a_power_of_ten(delta: float, text: str) -> None:
    assert delta_text(delta) == text


def told(**changes: object) -> str:
    return str(Result(dataclasses.replace(ANSWER, privacy=dataclasses.replace(PRIVACY, **changes)), cap=3.0))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        (
            {"charged": Loss(0.3, 1e-6), "spent": Loss(1.84, 1e-6)},
            (
                "this question: ε = 0.3; in all 1.84 of 3 (δ = 10⁻⁶, per patient, not a plain sum); "
                "noise: Gaussian, at each hospital"
            ),
        ),
        ({"overlap": 2, "composition": "overlap 2"}, "(δ = 10⁻⁶, per patient at up to 2 hospitals, not a plain sum)"),
        ({"mechanism": "discrete_laplace", "charged": Loss(0.3, 0.0)}, "this question: ε = 0.3 (δ = 0); in all"),
        ({"mechanism": "discrete_laplace"}, "noise: Laplace, at each hospital"),
        ({"composition": "trusted_total"}, "noise: Gaussian, once on the total (a simulation)"),
        ({"mechanism": "permute_and_flip"}, "noise: in the vote of each hospital (permute-and-flip)"),
    ],
)
def test_privacy_is_one_line(changes: dict[str, object], line: str) -> None:
    assert line in told(**changes).splitlines()[-1]
    assert len(told(**changes).splitlines()) == 7


def test_rounds_are_counted() -> None:
    assert "this question: ε = 0.5 (δ = 10⁻⁷) over 2 rounds; in all 0.9 (" in str(Result(ANSWER, plan_ids=("a", "b")))


@pytest.mark.parametrize(
    ("changes", "first"),
    [
        ({}, "   COUNT(*)       AVG(sbp)"),
        (
            {"missing": ("lakeside",)},
            "Without lakeside (no answer): 1 of 2 hospitals answered, and the numbers are about their patients alone.",
        ),
        (
            {"missing": ("lakeside",), "refused": (("st-mary", "PlanRefused"),), "left_out": ("west",)},
            (
                "Without lakeside (no answer), st-mary (refused) and west (left out): 1 of 4 hospitals answered, "
                "and the numbers are about their patients alone."
            ),
        ),
        (
            {"missing": tuple(f"s{number}" for number in range(9))},
            (
                "Without s0 (no answer), s1 (no answer), s2 (no answer), s3 (no answer), s4 (no answer), "
                "s5 (no answer), s6 (no answer), s7 (no answer) and 1 more: 1 of 10 hospitals answered, "
                "and the numbers are about their patients alone."
            ),
        ),
    ],
)
def test_the_first_line_says_which_hospital_is_lacking(changes: dict[str, object], first: str) -> None:
    result = Result(dataclasses.replace(ANSWER, **changes))  # type: ignore[arg-type]
    assert str(result).splitlines()[0] == first
    if changes:
        assert result.text(long=True).splitlines()[0] == first
        assert result._repr_html_().startswith(f"<p><strong><bdi>{first}</bdi></strong></p>")


# --- Notebooks -----------------------------------------------------------------------------------------------

EVIL = "<script>alert('x')</script>&\"><img src=x onerror=1>\x1b[31m\u202e"


class _Page(html.parser.HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes.update(name for name, _ in attrs)


def test_a_notebook_shows_hostile_names_as_letters() -> None:
    named = [
        placed(0, estimate("count", None, 1.0, 0.5, group=((EVIL, EVIL),))),
        *terms(1, "regression", EVIL, {EVIL: (1.0, 0.1), "r_squared": (0.5, 0.1)}),
        *terms(2, "chi_square", EVIL, {"p_value": (0.5, 0.1)}),
        placed(None, estimate("count", EVIL, 1.0, 0.5, group=((EVIL, EVIL), ("b", EVIL)))),
    ]
    result = Result(dataclasses.replace(stored(*named), missing=(EVIL,), refused=((EVIL, EVIL),)), note=EVIL)
    page = _Page()
    page.feed(result._repr_html_())
    assert page.tags == {"p", "strong", "bdi", "table", "caption", "thead", "tr", "th", "tbody", "td"}
    assert page.attributes == {"style"}
    assert "\x1b" not in result._repr_html_()
    assert "\u202e" not in result._repr_html_()


@pytest.mark.parametrize("name", QUESTIONS)
def test_a_notebook_has_the_same_cells_and_no_colour_of_its_own(name: str) -> None:
    result = result_of(name)
    page = result._repr_html_()
    found = re.findall(r"<td[^>]*><bdi>(.*?)</bdi></td>", page)
    assert [cell for cell in found if "±" in cell] == re.findall(r"-?[\d.]+ ± [\d.]+", str(result))
    assert not re.search(r"#[0-9a-f]{3}|rgb|white;|black", page)
