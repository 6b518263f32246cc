"""`wardround study check`: what a study leaves out and what its questions would cost, without a table in sight."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from coordinator.planning.plans import plans_for
from tests.cli.calling import call
from tests.docs.pages import ROOT, all_blocks
from wardround.federation.plan.plan import price
from wardround.federation.plan.task import AskRequest
from wardround.federation.study.study_file import parse_study
from wardround.privacy.accounting.cost import Cost
from wardround.privacy.budget.filter import admits
from wardround.simulation import study_costs as costs

STUDY = """
name = "cardio"
overlap = 1
min_sites = 2
[budget]
epsilon = 3.0
delta = 1e-6
[tables.stays]
unit_key = "patient_id"
max_rows_per_unit = 4
[tables.stays.columns]
sbp       = { type = "number", lower = 80, upper = 200, step = 0.1 }
weight    = { type = "number" }
ill       = { type = "boolean" }
seen      = { type = "date", lower = 2024-01-01, upper = 2024-12-31 }
diagnosis = { type = "category", values = ["E11", "I10", "C50", "I25"] }
reason    = { type = "category" }
"""
TITLES = [
    "COUNT(*)",
    "COUNT(DISTINCT patient_id)",
    "AVG(sbp)",
    "MEDIAN(sbp)",
    "HISTOGRAM(sbp, 10)",
    "AVG(ill)",
    "COUNT(DISTINCT patient_id) by month of seen",
    "COUNT(DISTINCT patient_id) by diagnosis",
    "KEYS(reason)",
]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "study.toml"
    path.write_text(STUDY, encoding="utf-8")
    return path


def test_a_person_reads_the_study_what_it_lacks_and_what_it_costs(file: Path) -> None:
    done = call("study", "check", file, "--patients", 40_000, "--sites", 4)
    assert (done.code, done.err) == (0, "")
    assert "stays.weight: no lower and upper" in done.out
    assert "stays.reason: no values: they are not public" in done.out
    assert "for 40000 declared patients at 4 sites:" in done.out
    assert "together declare fewer than 1,000,000 patients" in done.out
    assert [line for line in TITLES if f"stays: {line} " not in done.out] == []


def test_an_open_category_says_how_many_patients_show_a_value(file: Path) -> None:
    found = call("study", "check", file, "--json").document()["costs"]["questions"]
    (keys,) = [line for line in found if line["shown_from"]]
    default, ten, hundred = keys["shown_from"]
    assert 20 < ten < default < hundred < 1000
    assert "shown when so many patients of a site have it" in call("study", "check", file).out


def test_a_study_without_gaps_says_so(file: Path) -> None:
    file.write_text(
        STUDY.replace('weight    = { type = "number" }\n', "")
        .replace('reason    = { type = "category" }\n', "")
        .replace("max_rows_per_unit = 4", "max_rows_per_unit = 4\nmax_windows_per_unit = 4"),
        encoding="utf-8",
    )
    assert "Nothing is missing" in call("study", "check", file).out


def test_a_program_reads_one_document(file: Path) -> None:
    found = call("study", "check", file, "--json").document()
    assert {each["kind"] for each in found["findings"]} == {"no_bounds", "open_category", "no_windows"}
    table = found["costs"]
    assert (table["sites"], table["patients"], table["assumed"]) == (2, 10_000, True)
    assert [asking["title"] for asking in table["askings"]] == ["default", "one of 10", "one of 100"]
    assert len(table["questions"]) == len(TITLES)
    for line in table["questions"]:
        default, ten, hundred = line["standard_errors"]
        assert 0 < ten < min(default, hundred)


def test_delta_is_held_against_the_declared_patients(file: Path) -> None:
    done = call("study", "check", file, "--patients", 1_000_000)
    assert done.code == 2
    assert "δ = 1e-06 is not below 1/1000000" in done.sentence()
    assert call("study", "check", file, "--patients", 999_999).code == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--sites", 1), "an answer of this study needs 2 sites"),
        (("--patients", 0), "--patients"),
        (("--patients", "many"), "--patients"),
    ],
)
def test_a_mistaken_call_is_one_sentence(file: Path, words: tuple[object, ...], said: str) -> None:
    done = call("study", "check", file, *words)
    assert done.code == 2
    assert said in done.sentence()


def test_no_table_is_opened(file: Path) -> None:
    opened: set[str] = set()

    def watch(event: str, details: tuple[object, ...]) -> None:
        if watching and event == "open" and isinstance(details[0], str | Path):
            opened.add(str(details[0]))

    (file.parent / "stays.csv").write_text("patient_id,sbp\n1,120\n", encoding="utf-8")
    watching = True
    sys.addaudithook(watch)
    done = call("study", "check", file)
    watching = False
    assert done.code == 0
    assert {path for path in opened if str(file.parent) in path} == {str(file)}
    assert not any(path.endswith((".csv", ".parquet", ".sqlite", ".db")) for path in opened)


def test_the_page_shows_the_numbers_that_are_printed(tmp_path: Path) -> None:
    (study,) = [block.text for block in all_blocks("toml") if block.title == "study.toml"]
    (tmp_path / "study.toml").write_text(study, encoding="utf-8")
    printed = [
        line.split() for line in call("study", "check", tmp_path / "study.toml", "--patients", 8000).out.split("\n")
    ]
    page = (ROOT / "docs" / "coordinator.md").read_text("utf-8")
    shown = [line.split() for line in page.splitlines() if line.startswith("  encounters: ")]
    assert len(shown) == 3
    assert [line for line in shown if line not in printed] == []
    assert "0.856 each here" in " ".join(page.split())
    assert "0.856" in [word for line in printed for word in line]


# --- The table is true --------------------------------------------------------------------------------------


@pytest.mark.parametrize("budget", ["delta = 1e-6", "delta = 0", "delta = 1e-6\npure_epsilon = 1.0"])
@pytest.mark.parametrize("overlap", ["overlap = 1", "overlap = 2", ""])
def test_as_many_questions_fit_as_the_table_says(budget: str, overlap: str) -> None:
    study = parse_study(STUDY.replace("delta = 1e-6", budget).replace("overlap = 1", overlap))
    found = costs.study_costs(study, patients=10_000, sites=3)
    participants = {f"site-{place}": 3_000 for place in range(3)}
    sites = study.overlap_among(participants)
    query = next(query for query in costs.typical_questions(study.tables[0]) if query.group_by)
    for asking in found.askings[1:]:
        assert asking.questions is not None
        plans = plans_for(AskRequest(query, epsilon=asking.epsilon), study, participants)
        fitting = 0
        for plan in plans:
            cost = price(plan, study).cost
            whole = Cost(
                mu_squared=cost.mu_squared * sites * asking.questions,
                pure=cost.pure * sites * asking.questions,
                slack=cost.slack * sites * asking.questions,
            )
            fitting += admits(study.cap.allowance(), Cost.zero(), whole)
        assert fitting >= 1


def test_a_study_of_named_groups_is_planned_for_the_sites_it_names() -> None:
    text = STUDY + '[[groups]]\nsites = ["north", "south", "west"]\noverlap = 2\n'
    assert costs.study_costs(parse_study(text)).sites == 3
    alone, shared = (costs.study_costs(parse_study(each), sites=3).questions[1].errors[1] for each in (STUDY, text))
    assert alone is not None
    assert shared is not None
    assert shared > 1.3 * alone


def test_a_delta_too_large_for_the_usual_number_of_patients_assumes_fewer() -> None:
    found = costs.study_costs(parse_study(STUDY.replace("delta = 1e-6", "delta = 1e-3")))
    assert (found.patients, found.assumed) == (999, True)
