"""What whole federations answered, drawn: units of the study, names of the question, models, and files by `--plot`."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.analyst.learning.clinics import STUDY, request_text, write
from tests.cli.calling import call
from tests.simulation.hospitals_on_disk import random_rows, study_text, write_site
from wardround.analyst.learning.request import read_request
from wardround.analyst.learning.trained_model import TrainingResult
from wardround.analyst.showing.result import Result
from wardround.federation.study.study_file import parse_study
from wardround.simulation.trial import TrainingTrial, Trial, run_trainings, run_trials

pytestmark = pytest.mark.usefixtures("same_noise")

MEASURED = study_text().replace("step = 0.1 }", 'step = 0.1, unit = "mmHg" }').replace("110 }", '110, unit = "years" }')


@pytest.fixture(scope="module")
def hospitals(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hospitals")
    for number, name in enumerate(("north", "south")):
        write_site(folder / "sites" / name, random_rows(number, patients=60))
    (folder / "study.toml").write_text(MEASURED, encoding="utf-8")
    return folder


def asked(hospitals: Path, sql: str) -> Result:
    (result,) = run_trials(parse_study(MEASURED), hospitals / "sites", Trial(sql, epsilon=3.0, delta=None), repeat=1)
    return result


@pytest.mark.parametrize(
    ("sql", "across", "upwards"),
    [
        ("AVG(sbp) FROM encounters", "AVG(sbp) [mmHg]", "whole cohort"),
        ("diagnosis AS d, VARIANCE(sbp) AS v FROM encounters GROUP BY d", "v [(mmHg)²]", "d"),
        ("HISTOGRAM(age, 11) FROM encounters", "age [years]", "HISTOGRAM(age, 11) [patients]"),
        ("COUNT(*) FROM encounters", "COUNT(*) [rows]", "whole cohort"),
        ("COUNT(DISTINCT patient_id) FROM encounters", "COUNT(DISTINCT patient_id) [patients]", "whole cohort"),
        (
            (
                "CASE WHEN age < 40 THEN 'young' WHEN age < 65 THEN 'middle' ELSE 'old' END AS years, AVG(sbp) "
                "FROM encounters GROUP BY years"
            ),
            "years [years]",
            "AVG(sbp) [mmHg]",
        ),
        ("MEDIAN(sbp) FROM encounters", "MEDIAN(sbp) [mmHg]", "whole cohort"),
    ],
)
def test_axes_have_the_units_of_the_study_and_the_names_of_the_question(
    hospitals: Path, sql: str, across: str, upwards: str
) -> None:
    ax = asked(hospitals, f"SELECT {sql}").plot()
    assert (ax.get_xlabel(), ax.get_ylabel()) == (across, upwards)


def test_intervals_stand_in_their_own_order(hospitals: Path) -> None:
    sql = (
        "SELECT CASE WHEN age < 40 THEN 'young' WHEN age < 65 THEN 'middle' ELSE 'old' END AS band, COUNT(*) AS n "
        "FROM encounters GROUP BY band ORDER BY band DESC"
    )
    assert [text.get_text() for text in asked(hospitals, sql).plot().get_xticklabels()] == ["young", "middle", "old"]


def test_simulate_writes_a_picture_and_still_one_document(hospitals: Path, tmp_path: Path) -> None:
    options = ("--study", hospitals / "study.toml", "--tables", hospitals / "sites", "--plot", tmp_path / "x.pdf")
    done = call("simulate", *options, "SELECT AVG(sbp) FROM encounters", "--epsilon", 3, "--json")
    assert (done.code, len(done.document()["estimates"])) == (0, 1)
    assert (tmp_path / "x.pdf").read_bytes().startswith(b"%PDF")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> TrainingResult:
    folder = tmp_path_factory.mktemp("clinics")
    write(folder / "sites", None, sizes={"north": 900, "south": 700})
    (folder / "request.toml").write_text(request_text(rounds=3, epsilon=2.9), encoding="utf-8")
    study = parse_study(STUDY.replace("upper = 200", 'upper = 200, unit = "mmHg"'))
    trial = TrainingTrial(read_request(folder / "request.toml"), noiseless=False, trusted_total=False)
    (result,) = run_trainings(study, folder / "sites", trial, repeat=1, out=None, on_round=None)
    return result


def test_a_model_is_drawn_with_calibration_and_its_curve(model: TrainingResult) -> None:
    coefficients, calibration, curve = model.plot().figure.axes
    names = [text.get_text() for text in coefficients.get_yticklabels()]
    assert names == ["age", "sbp [mmHg]", "sex=M", "smoker"]
    values = [each.value for each in model.trained.fitted.coefficients if each.name != "(intercept)"]
    assert list(coefficients.lines[0].get_xdata()) == values
    table = model.trained.fitted.scores
    assert table is not None
    assert len(table.yes) == 32
    area = next(each for each in model.trained.fitted.metrics if each.name == "auc")
    line = next(line for line in curve.lines if len(line.get_xdata()) == 33)
    drawn = sum(
        (right - left) * (low + high) / 2
        for left, right, low, high in zip(
            line.get_xdata(), line.get_xdata()[1:], line.get_ydata(), line.get_ydata()[1:], strict=False
        )
    )
    assert drawn == pytest.approx(area.value, abs=0.02), "the area below the curve is the one that is told"
    assert calibration.get_xlabel().startswith("predicted chance of ")


def test_train_and_ask_need_no_matplotlib_until_they_draw(
    hospitals: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    options = ("--study", hospitals / "study.toml", "--tables", hospitals / "sites", "SELECT COUNT(*) FROM encounters")
    assert call("simulate", *options).code == 0
    done = call("simulate", *options, "--plot", tmp_path / "x.svg")
    assert (done.code, done.out) == (2, "")
    assert done.sentence() == "matplotlib is not installed; install it with pip install 'wardround[plot]'."
