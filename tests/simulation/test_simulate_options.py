"""What else `simulate` can do and what it says when it cannot."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from tests.cli.calling import Call, call
from tests.simulation.hospitals_on_disk import TYPES, random_rows, simulate, study_text, write_site

# The noise is the true one, and falls the same way in every run.
pytestmark = pytest.mark.usefixtures("same_noise")
COUNT = "SELECT COUNT(*) FROM encounters"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with a study and four sites."""
    for seed, name in enumerate(("north", "south", "east", "west")):
        write_site(tmp_path / "sites" / name, random_rows(seed, patients=20))
    return tmp_path


def called(folder: Path, *words: object, study: str | None = None) -> Call:
    (folder / "study.toml").write_text(study or study_text(), encoding="utf-8")
    return call("simulate", "--study", folder / "study.toml", "--tables", folder / "sites", *words)


def test_repeated_runs_are_independent_federations_with_a_full_budget(place: Path) -> None:
    runs = simulate(place, COUNT, "--epsilon", 5, "--repeat", 5)["runs"]
    assert len({run["estimates"][0]["value"] for run in runs}) > 1
    assert len({run["plan_id"] for run in runs}) == 1
    assert {run["replayed"] for run in runs} == {False}
    assert len({run["privacy"]["spent"]["epsilon"] for run in runs}) == 1


def test_repeat_one_is_still_a_list_of_runs(place: Path) -> None:
    assert list(simulate(place, COUNT, "--repeat", 1)) == ["runs"]
    assert "runs" not in simulate(place, COUNT)


def test_a_hospital_whose_file_has_another_name_is_named(place: Path) -> None:
    assert called(place, COUNT).err == ""
    for name in ("spare", ".hidden"):
        (place / "sites" / name).mkdir()
        (place / "sites" / name / "encounter.csv").write_text("patient_id\n", encoding="utf-8")
    done = called(place, COUNT)
    assert "Answered: east, north, south, west." in done.out
    assert done.err == "spare took no part: it holds no file of the study's tables, such as encounters.csv.\n"


@pytest.mark.parametrize("repeat", [0, -1, 100_001])
def test_a_senseless_number_of_runs_is_refused(place: Path, repeat: int) -> None:
    done = called(place, COUNT, "--repeat", repeat, "--json")
    assert done.code == 2
    assert done.sentence() == f"--repeat is {repeat}; it must be from 1 to 100000."
    assert done.document()["error"]["message"] == done.sentence()


def test_one_noise_on_the_total_is_smaller_by_the_root_of_the_sites(place: Path) -> None:
    for epsilon in (0.5, 5.0):  # Laplace, then Gaussian
        each = simulate(place, COUNT, "--epsilon", epsilon)
        total = simulate(place, COUNT, "--epsilon", epsilon, "--privacy", "sum")
        assert each["privacy"]["composition"] == "parallel"
        assert total["privacy"]["composition"] == "trusted_total"
        errors = [run["estimates"][0]["standard_error"] for run in (each, total)]
        assert errors[0] == pytest.approx(math.sqrt(4) * errors[1], rel=1e-9)
        assert total["sites"]["answered"] == ["east", "north", "south", "west"]
        assert total["privacy"]["charged"] == each["privacy"]["charged"]


def test_one_noise_on_the_total_is_one_noise(place: Path) -> None:
    """Below a third or above two and a half of its expectation, χ² of 60 degrees is seen once in ten million."""
    runs = simulate(place, COUNT, "--epsilon", 5, "--privacy", "sum", "--repeat", 60)["runs"]
    true = simulate(place, COUNT, "--noiseless")["estimates"][0]["value"]
    errors = [run["estimates"][0]["value"] - true for run in runs]
    one = runs[0]["estimates"][0]["standard_error"] ** 2
    # Four noises would make it four.
    assert 1 / 3 < sum(error * error for error in errors) / len(errors) / one < 2.5


def test_an_overlapping_study_has_no_trusted_total(place: Path) -> None:
    done = called(place, COUNT, "--privacy", "sum", "--json", study=study_text(overlap=2))
    assert done.code == 2
    assert done.sentence() == "--privacy sum in a simulation needs a study with overlap = 1."


def test_overlap_widens_the_noise_of_every_site(place: Path) -> None:
    one = simulate(place, COUNT, "--epsilon", 5, overlap=1)["estimates"][0]["standard_error"]
    two = simulate(place, COUNT, "--epsilon", 5, overlap=2)["estimates"][0]["standard_error"]
    assert two == pytest.approx(math.sqrt(2) * one, rel=1e-3)


@pytest.mark.parametrize("privacy", ["none", "", "SUM"])
def test_an_unknown_kind_of_privacy_is_refused(place: Path, privacy: str) -> None:
    done = called(place, COUNT, "--privacy", privacy)
    assert (done.code, done.sentence()) == (2, f"--privacy is {privacy!r}; it must be 'site' or 'sum'.")


@pytest.mark.parametrize("content", [None, "file", "empty", "strangers"])
def test_a_folder_without_tables_is_one_sentence(tmp_path: Path, content: str | None) -> None:
    sites = tmp_path / "sites"
    if content == "file":
        sites.write_text("", encoding="utf-8")
    elif content is not None:
        sites.mkdir()
    if content == "strangers":
        (sites / "north").mkdir()
        (sites / "north" / "visits.csv").write_text("a,b\n", encoding="utf-8")
        (sites / "encounters.csv").write_text("patient_id\n", encoding="utf-8")
    done = called(tmp_path, COUNT, "--json")
    assert done.code == 2
    assert done.sentence() == done.document()["error"]["message"]
    assert f"{sites}" in done.sentence()
    assert "encounters" in done.sentence() or "<table>" in done.sentence()


@pytest.mark.parametrize(
    "content", ["", ",".join(TYPES) + "\n", ",".join(TYPES)], ids=["empty", "header", "no newline"]
)
def test_a_site_without_rows_gives_an_ordinary_answer_or_says_what_its_table_lacks(place: Path, content: str) -> None:
    (place / "sites" / "north" / "encounters.csv").write_text(content, encoding="utf-8")
    sql = "SELECT diagnosis, COUNT(*), AVG(sbp) FROM encounters GROUP BY diagnosis"
    answer = simulate(place, sql)
    if content:
        assert answer["sites"]["answered"] == ["east", "north", "south", "west"]
    else:
        assert answer["sites"]["refused"] == {"north": "SchemaRefused"}
    assert len(answer["estimates"]) == 8


def test_a_federation_without_any_row_answers(tmp_path: Path) -> None:
    write_site(tmp_path / "sites" / "north", [])
    write_site(tmp_path / "sites" / "south", [], form="parquet")
    sql = "SELECT COUNT(*), SUM(age), AVG(sbp), COUNT(DISTINCT patient_id) FROM encounters"
    assert [e["value"] for e in simulate(tmp_path, sql, "--noiseless")["estimates"]] == [0, 0, None, 0]
    noised = simulate(tmp_path, sql, "--epsilon", 1)["estimates"]
    assert all(80 <= e["interval"][0] <= e["interval"][1] <= 200 for e in noised if e["statistic"] == "mean")
    assert all(e["standard_error"] > 0 for e in noised if e["reason"] is None)
    assert [e["statistic"] for e in noised if e["reason"] is not None] in ([], ["mean"])


def test_a_site_without_the_table_refuses_and_the_others_answer(place: Path) -> None:
    two = study_text() + '\n[tables.visits]\nunit_key = "patient_id"\nmax_rows_per_unit = 1\n[tables.visits.columns]\n'
    (place / "sites" / "hill").mkdir()
    (place / "sites" / "hill" / "visits.csv").write_text("patient_id\np1\n", encoding="utf-8")
    done = called(place, COUNT, "--noiseless", "--json", study=two)
    assert done.document()["sites"]["refused"] == {"hill": "SchemaRefused"}
    assert done.document()["sites"]["answered"] == ["east", "north", "south", "west"]
    done = called(place, "SELECT COUNT(*) FROM visits", "--noiseless", "--json", study=two)
    assert done.document()["estimates"][0]["value"] == 1


def test_a_site_without_the_column_refuses_and_the_others_answer(place: Path) -> None:
    (place / "sites" / "north" / "encounters.csv").write_text("patient_id,age\np1,40\n", encoding="utf-8")
    assert simulate(place, "SELECT AVG(sbp) FROM encounters")["sites"]["refused"] == {"north": "SchemaRefused"}
    assert simulate(place, "SELECT SUM(age) FROM encounters")["sites"]["refused"] == {}


def test_too_few_sites_are_no_answer(place: Path) -> None:
    done = called(place, COUNT, "--json", study=study_text(min_sites=5))
    assert done.code == 1
    assert done.document()["error"]["code"] == "TooFewSites"


def test_the_text_of_an_answer_shows_every_number_with_its_error(place: Path) -> None:
    done = called(place, "SELECT diagnosis, COUNT(*) FROM encounters GROUP BY diagnosis")
    assert done.code == 0
    assert done.err == ""
    assert all(name in done.out for name in ("E11", "I10", "C50", "I25", "±"))
