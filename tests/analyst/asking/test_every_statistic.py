"""Every statistic and every kind of group, asked in SQL of a simulated federation and shown."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterator

import pytest

from wardround.analyst.sql.read import parse
from wardround.analyst.tables.wide_tables import WideTable
from wardround.federation.errors import BudgetExceeded
from wardround.federation.question.query import Statistic
from wardround.federation.study.study_file import parse_study
from wardround.simulation.federation import SimulatedFederation, SimulatedSite
from wardround.simulation.sites import find_sites

pytestmark = pytest.mark.usefixtures("same_noise")

STUDY = parse_study(
    """
    name = "cardio"
    overlap = 1
    [budget]
    epsilon = 40.0
    delta = 1e-6
    [tables.encounters]
    unit_key = "patient_id"
    max_rows_per_unit = 3
    max_windows_per_unit = 3
    [tables.encounters.columns]
    age       = { type = "integer", lower = 0, upper = 110 }
    sbp       = { type = "number", lower = 80, upper = 200, step = 0.1 }
    diagnosis = { type = "category", values = ["E11", "I10", "C50"] }
    smoker    = { type = "boolean" }
    admitted  = { type = "date", lower = "2025-01-01", upper = "2025-06-30" }
    code      = { type = "category" }
    days      = { type = "integer", lower = 0, upper = 60 }
    died      = { type = "boolean" }
    """
)
QUESTIONS = {
    "COUNT(*)": 1,
    "COUNT(DISTINCT patient_id)": 1,
    "SUM(sbp)": 1,
    "AVG(CLAMP(sbp, 90, 180))": 1,
    "VARIANCE(sbp)": 1,
    "STDDEV(sbp)": 1,
    "MEDIAN(sbp), QUANTILE(sbp, 0.9)": 2,
    "HISTOGRAM(sbp, 6)": 6,
    "SHARE_BELOW(sbp, 140)": 1,
    "CHI_SQUARE(diagnosis, smoker)": 3 + 6,
    "CORR(age, sbp, days)": 3,
    "REGRESS(sbp, age, smoker)": 5,
    "KAPLAN_MEIER(days, died, 6)": 7,
    "MODE(diagnosis)": 1,
    "KEYS(code)": 2,
}
GROUPS = {
    "diagnosis": ["E11", "I10", "C50"],
    "DATE_TRUNC('month', admitted)": [f"2025-{month:02d}" for month in range(1, 7)],
    "CASE WHEN age BETWEEN 0 AND 39 THEN 'young' WHEN age <= 64 THEN 'middle' ELSE 'old' END": [
        *("young", "middle", "old")
    ],
    "WIDTH_BUCKET(age, 40, 80, 2)": ["< 40", "[40, 60)", "[60, 80)", ">= 80"],
    "code": ["aa", "bb"],
}


def word(truth: bool) -> str:
    return str(truth).lower()


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SimulatedFederation]:
    folder = tmp_path_factory.mktemp("hospitals")
    draw = random.Random(11)
    for site in ("north", "south"):
        rows = ["patient_id,age,sbp,diagnosis,smoker,admitted,code,days,died"]
        for patient in range(150):
            age, smokes = draw.randint(18, 95), draw.random() < 0.3
            for _ in range(draw.randint(1, 3)):
                pressure = min(199.0, max(81.0, draw.gauss(110 + 0.4 * age, 10)))
                day = f"2025-{draw.randint(1, 6):02d}-{draw.randint(1, 28):02d}"
                code = "lone" if patient == 0 else draw.choice(("aa", "bb"))
                values = (f"{site}-{patient}", age, f"{pressure:.1f}", draw.choice(("E11", "I10", "C50")))
                more = (word(smokes), day, code, draw.randint(0, 60), word(draw.random() < 0.4))
                rows.append(",".join(map(str, (*values, *more))))
        (folder / site).mkdir()
        (folder / site / "encounters.csv").write_text("\n".join(rows), "utf-8")
    sites = {name: SimulatedSite(dataset, 150) for name, dataset in find_sites(folder, STUDY).items()}
    found = SimulatedFederation(STUDY, sites, folder=tmp_path_factory.mktemp("federation"))
    yield found
    found.close()


def rows(table: WideTable) -> int:
    return len(table.numbers[0].cells)


@pytest.mark.parametrize("aggregates", QUESTIONS)
def test_a_statistic_is_asked_and_shown(federation: SimulatedFederation, aggregates: str) -> None:
    result = federation.client.ask(f"SELECT {aggregates} FROM encounters", epsilon=4.0)
    assert len(result) >= QUESTIONS[aggregates]
    for each in result:
        assert all(math.isfinite(end) for end in each.interval)
        if each.reason is None:
            assert each.interval[0] <= each.value <= each.interval[1]
            assert math.isfinite(each.standard_error)
        else:
            assert each.reason.sentence in str(result)
    assert result.privacy.charged.epsilon == pytest.approx(4.0, rel=1e-3)
    assert json.loads(json.dumps(result.document(), allow_nan=False))["estimates"]
    assert len(result.to_pandas(long=True)) == len(result)
    cells = [cell for table in result.tables for column in table.numbers for cell in column.cells if cell is not None]
    assert sorted(map(id, cells)) == sorted(map(id, result))
    assert len(result.to_pandas()) == result.to_arrow().num_rows == sum(map(rows, result.tables))
    assert str(result)
    assert result.plot().get_xlabel()
    assert federation.client.preview(f"SELECT {aggregates} FROM encounters", epsilon=4.0).preview.replayed


@pytest.mark.parametrize("group", GROUPS)
def test_a_group_is_asked_and_shown(federation: SimulatedFederation, group: str) -> None:
    text = f"SELECT {group} AS g, COUNT(DISTINCT patient_id) AS n, AVG(sbp) FROM encounters GROUP BY g"
    # The key of a lone patient may be shown with the weight δ: so seldom that it never is.
    result = federation.client.ask(text, epsilon=4.0, delta=1e-12)
    assert [each.group for each in result if each.statistic == "count"] == [(("g", key),) for key in GROUPS[group]]
    assert len(result) == 2 * len(GROUPS[group])
    assert [ax.get_title(loc="left") for ax in result.plot().figure.axes] == ["n", "AVG(sbp)"]
    # Shown otherwise it is the same question: nothing is charged.
    spent = federation.client.budget().report.events
    top = federation.client.ask(f"{text} HAVING n > -1000 ORDER BY n DESC LIMIT 1", epsilon=4.0, delta=1e-12)
    assert top.answer.replayed
    assert top.answer.estimates == result.answer.estimates
    assert (len(top), federation.client.budget().report.events) == (2, spent)
    assert top.gap is not None


def test_a_search_is_ten_questions(federation: SimulatedFederation) -> None:
    before = federation.client.budget().report.events
    result = federation.client.ask("SELECT MEDIAN(sbp) FROM encounters", epsilon=8.0, search=True)
    assert len(set(result.plan_ids)) == 10
    assert federation.client.budget().report.events == before + 10
    assert 110.0 < result.estimates[0].value < 155.0
    assert federation.client.ask("SELECT MEDIAN(sbp) FROM encounters", epsilon=8.0, search=True).answer.replayed
    assert federation.client.budget().report.events == before + 10


def test_a_course_beyond_the_budget_charges_nothing(federation: SimulatedFederation) -> None:
    before = federation.client.budget().report
    with pytest.raises(BudgetExceeded) as fault:
        federation.client.ask(
            "SELECT code, AVG(sbp) FROM encounters GROUP BY code", epsilon=before.remaining.epsilon * 1.001
        )
    assert fault.value.difference > 0
    assert federation.client.budget().report.events == before.events


def test_every_statistic_is_among_the_questions() -> None:
    asked = {each.statistic for text in QUESTIONS for each in parse(f"SELECT {text} FROM t").aggregates}
    assert asked == set(Statistic)
