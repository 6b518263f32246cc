"""A question too large for the memory that a hospital stated is refused by public numbers, before the charge."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from site_agent.answering.memory_check import Room, question_bytes
from site_agent.reading.examples import row_bytes
from site_agent.reading.memory_limits import Limits
from site_agent.serving.configuration import parse_site
from tests.site_agent.answering.test_hostile_training import TRAINED, plan, step
from tests.site_agent.lone_site import STUDY, LoneSite
from wardround.federation.errors import ConfigurationMistaken, PlanRefused
from wardround.federation.forms.parts import AnswerLayout
from wardround.federation.models.step_layout import step_form
from wardround.federation.plan.layout import shape
from wardround.federation.plan.task import Declined, Released
from wardround.federation.question.query import (
    MAX_BINS,
    MAX_CELLS,
    MAX_DIMENSION,
    Aggregate,
    Grouping,
    Query,
    Statistic,
)
from wardround.federation.study.study import Study
from wardround.federation.study.study_file import parse_study
from wardround.privacy.accounting.cost import Cost
from wardround.privacy.noise.distribution import Mechanism

LEAST = Limits(memory_mebibytes=1024)
LITTLE = Limits(memory_mebibytes=256)
WIDE = STUDY + "".join(f'{name} = {{ type = "integer", lower = 1, upper = 300 }}\n' for name in "ab")
GROUPED = "SELECT a, b, COUNT(*), AVG(sbp) FROM visits GROUP BY a, b"


def test_a_question_too_large_for_the_memory_is_refused_before_the_charge(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    site = LoneSite(tmp_path, study=WIDE, room=Room(LITTLE))
    with caplog.at_level("INFO", "wardround.site"):
        declined = site.pipeline.run(site.task(site.plan(GROUPED)))
    assert isinstance(declined, Declined)
    assert declined.code == "TooMuchMemory"
    assert site.rows.events == [], "not even the schema was looked at"
    assert site.spent == Cost.zero()
    told = "the question may need 35 MiB for its groups, 3 more than the 32 MiB that this site allows"
    assert told in caplog.text
    assert "nothing was charged" in caplog.text
    assert isinstance(site.pipeline.run(site.task(site.plan("SELECT a, COUNT(*) FROM visits GROUP BY a"))), Released)
    site.ledger.close()


def test_with_the_memory_that_nobody_has_to_state_the_same_question_runs(tmp_path: Path) -> None:
    site = LoneSite(tmp_path, study=WIDE)
    assert isinstance(site.pipeline.run(site.task(site.plan(GROUPED))), Released)
    site.ledger.close()


def listed(words: int) -> str:
    return ", ".join(f'"W{place:06d}"' for place in range(words))


def largest() -> dict[str, AnswerLayout]:
    """Questions as large as a study and a plan allow them."""
    study = parse_study(
        'name = "large"\n[budget]\nepsilon = 3.0\ndelta = 1e-6\n[tables.t]\nunit_key = "p"\nmax_rows_per_unit = 4\n'
        "[tables.t.columns]\n"
        + "".join(
            f'{n} = {{ type = "integer", lower = 1, upper = {k} }}\n' for n, k in (("a", 1000), ("b", 1000), ("c", 10))
        )
        + "".join(f'x{n} = {{ type = "number", lower = 0, upper = 1 }}\n' for n in range(12))
        + f'm = {{ type = "integer", lower = 1, upper = {MAX_DIMENSION // MAX_BINS} }}\n'
        + f'w = {{ type = "category", values = [{listed(100_000)}] }}\n'
    )
    by, words, few = (Grouping("a"), Grouping("b")), (Grouping("w"), Grouping("c")), (Grouping("a"),)
    sums = tuple(Aggregate(Statistic.SUM, f"x{place}") for place in range(3))
    regression = Aggregate(Statistic.REGRESSION, "x0", others=tuple(f"x{place}" for place in range(1, 12)))
    return {
        name: shape(Query("t", aggregates, None, group_by), study, Mechanism.DISCRETE_GAUSSIAN)
        for name, aggregates, group_by in (
            ("four numbers a cell", (Aggregate(Statistic.COUNT), *sums), by),
            ("moments", (Aggregate(Statistic.VARIANCE, "x1"), Aggregate(Statistic.COUNT)), by),
            ("every word", (Aggregate(Statistic.COUNT), *sums), words),
            ("bins", (Aggregate(Statistic.HISTOGRAM, "x1", bins=MAX_BINS),), (Grouping("m"),)),
            ("products", (regression,), few),
            ("a choice", (Aggregate(Statistic.CHOICE, "w"),), ()),
        )
    }


@pytest.mark.slow
def test_nothing_that_a_study_allows_is_too_large_for_4096_mebibytes() -> None:
    for name, form in largest().items():
        Room().require(form)
        assert question_bytes(form) <= Limits().question_bytes, name
    cells, words = largest()["four numbers a cell"], largest()["every word"]
    assert (len(cells.group_keys), cells.dimension) == (MAX_CELLS, MAX_DIMENSION)
    assert len(words.group_keys) == MAX_CELLS
    for form in (cells, words):
        with pytest.raises(PlanRefused):
            Room(LEAST).require(form)


@pytest.mark.parametrize("own", [False, True], ids=["the question's groups", "a part's own cells"])
def test_every_word_that_a_statement_holds_takes_room(*, own: bool) -> None:
    """Twice as many words as fit: the groups alone, which are as many, would fit ten times."""
    words = 2 * LEAST.question_bytes // 5000
    study = parse_study(STUDY + f'word = {{ type = "category", values = [{listed(words)}] }}\n')
    query = Query("visits", (Aggregate(Statistic.COUNT),), None, (Grouping("word"),))
    if own:
        query = Query("visits", (Aggregate(Statistic.CHOICE, "word"),))
    with pytest.raises(PlanRefused, match="MiB for its groups"):
        Room(LEAST).require(shape(query, study, Mechanism.DISCRETE_GAUSSIAN))


@pytest.mark.parametrize(
    ("room", "refused"),
    [
        (Room(LEAST), False),
        (Room(LEAST, patients=100_000), False),
        (Room(LEAST, patients=400_000), True),
        (Room(LEAST, patients=400_000, rows={"visits": 50_000}), False),
        (Room(LEAST, rows={"visits": 10**9}), True),
        (Room(patients=1_000_000), False),
    ],
)
def test_keys_are_as_many_as_the_hospital_declared_patients_or_rows(room: Room, refused: bool) -> None:
    study = parse_study(STUDY + 'word = { type = "category" }\n')
    form = shape(Query("visits", (Aggregate(Statistic.KEYS, "word"),)), study, Mechanism.DISCRETE_GAUSSIAN)
    if not refused:
        room.require(form)
        return
    with pytest.raises(PlanRefused, match="MiB for its keys"):
        room.require(form)


def test_a_training_holds_as_many_rows_as_were_declared(tmp_path: Path) -> None:
    study = parse_study(TRAINED)
    form = step_form(step(), study)
    fitting = LEAST.training_bytes // row_bytes(2) - 1
    for rows, refused in ((fitting, False), (fitting + 2, True)):
        room = Room(LEAST, patients=10, rows={"visits": rows})
        if refused:
            with pytest.raises(PlanRefused, match="MiB for its rows"):
                room.require(form)
        else:
            room.require(form)
    # Without a word about rows a patient counts for as many as the study lets count.
    Room(LEAST, patients=fitting // 2).require(form)
    with pytest.raises(PlanRefused):
        Room(LEAST, patients=fitting // 2 + 2).require(form)
    site = LoneSite(tmp_path, study=TRAINED, room=Room(LEAST, patients=10**9))
    assert isinstance(site.pipeline.run(site.task(plan(site, step()))), Declined)
    assert site.rows.events == []
    assert site.spent == Cost.zero()
    site.ledger.close()


# --- site.toml --------------------------------------------------------------------------------------------

SITE = """\
[site]
name = "north"
patients = 5000
{site}
[tables.visits]
source = "visits.csv"
{table}
[policy]
epsilon = 1.0
delta = 1e-6
"""


def parsed(site: str = "", table: str = "") -> Room:
    study: Study = parse_study(STUDY)
    configuration = parse_site(SITE.format(site=site, table=table), study)
    assert configuration.policy.room.limits == configuration.limits
    return configuration.policy.room


def test_a_site_states_its_memory_and_its_rows() -> None:
    assert parsed() == Room(Limits(), 5000, {})
    assert parsed("memory_mebibytes = 2048", "rows = 70000") == Room(
        dataclasses.replace(Limits(), memory_mebibytes=2048), 5000, {"visits": 70_000}
    )


@pytest.mark.parametrize(
    ("site", "table", "told"),
    [
        ("memory_mebibytes = 1023", "", "memory_mebibytes"),
        ('memory_mebibytes = "4 GiB"', "", "memory_mebibytes"),
        ("", "rows = 0", "rows"),
        ("", "rows = -5", "rows"),
    ],
)
def test_what_can_be_no_memory_and_no_rows_is_refused(site: str, table: str, told: str) -> None:
    with pytest.raises(ConfigurationMistaken, match=told):
        parsed(site, table)
