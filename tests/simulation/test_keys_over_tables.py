"""Keys and votes over real tables, through every role, against a count made by hand."""

from __future__ import annotations

import csv
import random
from pathlib import Path

import pytest

from wardround.federation.question.answer import Answer
from wardround.federation.study.study import Study
from wardround.federation.study.study_file import parse_study
from wardround.simulation.trial import Trial, run_trials

# The noise is the true one, and falls the same way in every run.
pytestmark = pytest.mark.usefixtures("same_noise")
STUDY = """\
name = "trial"
overlap = 1
[budget]
epsilon = 3.0
delta = 1e-6
pure_epsilon = {pure}
[tables.visits]
unit_key = "patient_id"
max_rows_per_unit = 3
[tables.visits.columns]
age  = {{ type = "integer", lower = 0, upper = 110 }}
word = {{ type = "category" }}
code = {{ type = "category", values = ["a", "b", "c"] }}
"""
WORDS = ("E11", "I10", "\u00e4-\u00f6l", "it's; --", "seldom")
KEYS, MODE = "SELECT KEYS(word) FROM visits WHERE age >= 40", "SELECT MODE(code) FROM visits"
THRESHOLD = 60
"""Above that of the question below, whatever its noise."""


def study(pure: float) -> Study:
    return parse_study(STUDY.format(pure=pure))


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[tuple[str, str, int, str, str]]]:
    """Two sites' tables, and the same rows for counting by hand."""
    folder, chance, rows = tmp_path_factory.mktemp("tables"), random.Random(3), []
    for site in ("north", "south"):
        for patient in range(900):
            for _ in range(chance.randint(1, 3)):
                word = chance.choices((*WORDS, f"only {site}{patient}"), (400, 200, 150, 100, 4, 10))[0]
                row = (site, f"{site}{patient}", chance.randint(20, 90), word, chance.choices("abc", (2, 5, 1))[0])
                rows.append(row)
        place = folder / site
        place.mkdir()
        with (place / "visits.csv").open("w", newline="", encoding="utf-8") as stream:
            writer = csv.writer(stream)
            writer.writerow(["patient_id", "age", "word", "code"])
            writer.writerows(row[1:] for row in rows if row[0] == site)
    return folder, rows


def asked(tables: Path, sql: str, *, pure: float = 0.0, noiseless: bool = False) -> Answer:
    (result,) = run_trials(study(pure), tables, Trial(sql, epsilon=1.0, noiseless=noiseless))
    return result.answer


def test_frequent_texts_are_shown_with_their_patients_and_nobody_s_own_is(
    tables: tuple[Path, list[tuple[str, str, int, str, str]]],
) -> None:
    folder, rows = tables
    held = {(site, word): set() for site, _, _, word, _ in rows}
    for site, patient, age, word, _ in rows:
        if age >= 40:
            held[site, word].add(patient)
    frequent = {pair: len(patients) for pair, patients in held.items() if len(patients) > THRESHOLD}
    truth = {word: sum(count for (_, each), count in frequent.items() if each == word) for _, word in frequent}
    assert sorted(truth) == sorted(WORDS[:-1])
    exact = asked(folder, KEYS, noiseless=True)
    assert {e.group[0][1]: e.value for e in exact.estimates} == truth
    noised = asked(folder, KEYS)
    assert [e.group for e in noised.estimates] == [e.group for e in exact.estimates]
    for estimate in noised.estimates:
        assert abs(estimate.value - truth[str(estimate.group[0][1])]) < 8 * estimate.standard_error


def test_the_most_frequent_value_is_found_by_votes_and_by_tables(
    tables: tuple[Path, list[tuple[str, str, int, str, str]]],
) -> None:
    folder, _ = tables
    votes, table = asked(folder, MODE, pure=1.0), asked(folder, MODE)
    assert (votes.privacy.mechanism, table.privacy.mechanism) == ("permute_and_flip", "discrete_gaussian")
    assert [(e.term, e.value) for e in votes.estimates[:2]] == [("b", 2.0), ("gap", 2.0)]
    assert table.estimates[0].term == "b"
    assert table.estimates[0].value > 100
