"""`wardround simulate --train`: the contract's document, and tables and requests that are wrong in every usual way."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.analyst.learning.clinics import STUDY, Row, request_text, write
from tests.cli.calling import Call, call
from wardround.analyst.learning.model_store import load_model

pytestmark = pytest.mark.usefixtures("same_noise")

SMALL = {"north": 60, "south": 50, "west": 40}
SHORT = {"rounds": 3}


def simulate(
    folder: Path,
    *words: object,
    change: Callable[[str, list[Row]], Sequence[Row]] | None = None,
    study: str = STUDY,
    **changes: object,
) -> Call:
    """One training on small hospitals whose rows were changed."""
    if not (folder / "sites").exists():
        write(folder / "sites", change, sizes=SMALL)
    (folder / "study.toml").write_text(study, encoding="utf-8")
    (folder / "request.toml").write_text(request_text(**{**SHORT, **changes}), encoding="utf-8")
    options = ("--study", folder / "study.toml", "--tables", folder / "sites", "--train", folder / "request.toml")
    return call("simulate", *options, *words)


def trained(folder: Path, *words: object, **changes: object) -> dict[str, object]:
    done = simulate(folder, *words, "--json", **changes)  # type: ignore[arg-type]
    assert (done.code, done.err) == (0, "")
    document = done.document()
    json.dumps(document, allow_nan=False)
    return document


def test_the_document_is_the_contracts(tmp_path: Path) -> None:
    document = trained(tmp_path)
    assert set(document) >= {
        *("model_id", "kind", "rounds", "sites", "coefficients", "metrics", "plan_ids", "artifact", "privacy")
    }
    assert document["kind"] == "logistic"
    assert document["rounds"] == {"done": 3, "planned": 3}
    assert document["sites"] == {"answered": sorted(SMALL), "refused": {}, "missing": []}
    coefficients = document["coefficients"]
    assert isinstance(coefficients, list)
    assert [each["name"] for each in coefficients] == ["(intercept)", "age", "sbp", "sex=M", "smoker"]
    assert all(each["interval"][0] < each["value"] < each["interval"][1] for each in coefficients)
    metrics = document["metrics"]
    assert isinstance(metrics, list)
    assert {each["name"] for each in metrics} >= {"auc", "accuracy"}
    assert document["artifact"] is None
    assert document["noiseless"] is False
    privacy = document["privacy"]
    assert isinstance(privacy, dict)
    assert privacy["mechanism"] == "discrete_gaussian"
    assert privacy["charged"]["epsilon"] == pytest.approx(1.0, rel=1e-3)
    assert privacy["composition"] == "parallel"


def test_a_person_reads_coefficients_metrics_and_the_price(tmp_path: Path) -> None:
    done = simulate(tmp_path)
    assert (done.code, done.err) == (0, "")
    for words in ("coefficient", "± ", "on held-out patients", "auc", "Answered every round: north, south, west."):
        assert words in done.out
    assert done.out.endswith(
        "this model: ε = 1; in all 1 of 3 (δ = 10⁻⁶, per patient, not a plain sum); noise: Gaussian, at each hospital\n"
    )


def test_what_a_model_means_for_one_patient_is_explained_when_asked_for(tmp_path: Path) -> None:
    done = simulate(tmp_path, "--explain", rounds=2)
    assert "Protected: one patient, with all of the patient's rows" in done.out
    assert "cost ε = 1 at δ = 1e-06" in done.out
    assert "the largest next question has ε = " in done.out


def test_one_noise_on_the_total_is_labelled_and_costs_the_same(tmp_path: Path) -> None:
    changes = {"kind": "linear", "target": "sbp", "features": ["age"], "rounds": None}
    each, total = (trained(tmp_path, "--privacy", kind, **changes)["privacy"] for kind in ("site", "sum"))
    assert isinstance(each, dict)
    assert isinstance(total, dict)
    assert (each["composition"], total["composition"]) == ("parallel", "trusted_total")
    assert each["charged"] == total["charged"]


def test_runs_are_independent_and_a_loss_can_be_tried(tmp_path: Path) -> None:
    document = trained(tmp_path, "--repeat", 2, "--epsilon", 2.5, rounds=2, validation_fraction=0)
    runs = document["runs"]
    assert isinstance(runs, list)
    assert len({run["coefficients"][1]["value"] for run in runs}) == 2
    assert {run["model_id"] for run in runs} == {runs[0]["model_id"]}
    assert all(run["privacy"]["charged"]["epsilon"] == pytest.approx(2.5, rel=1e-3) for run in runs)
    assert all(run["metrics"] == [] for run in runs)


def test_a_model_can_be_kept(tmp_path: Path) -> None:
    document = trained(tmp_path, "--out", tmp_path / "model", "--noiseless")
    assert document["artifact"] == str(tmp_path / "model")
    found = load_model(tmp_path / "model")
    assert found.card["noiseless"] is True
    assert str(found.card["statement"]).startswith("NO NOISE")


# --- Tables -----------------------------------------------------------------------------------------------


def holes(site: str, rows: list[Row]) -> Sequence[Row]:
    for place, row in enumerate(rows):
        row["sbp"] = ("NaN", "inf", "", "abc", row["sbp"])[place % 5]
        row["readmitted"] = "" if place % 7 == 0 else row["readmitted"]
    return rows


def constant(site: str, rows: list[Row]) -> Sequence[Row]:
    return [{**row, "sbp": "120.0", "smoker": "true"} for row in rows]


def one_class(site: str, rows: list[Row]) -> Sequence[Row]:
    return [{**row, "readmitted": "true"} for row in rows] if site == "north" else rows


def one_class_everywhere(site: str, rows: list[Row]) -> Sequence[Row]:
    return [{**row, "readmitted": "true"} for row in rows]


def one_patient(site: str, rows: list[Row]) -> Sequence[Row]:
    return rows[:1] if site == "west" else rows


def fewer_patients_than_inputs(site: str, rows: list[Row]) -> Sequence[Row]:
    return rows[:1]


def nobody(site: str, rows: list[Row]) -> Sequence[Row]:
    return []


WRONG = (holes, constant, one_class, one_class_everywhere, one_patient, fewer_patients_than_inputs, nobody)
MODELS: tuple[dict[str, object], ...] = (
    {},
    {"kind": "linear", "target": "sbp", "features": ["age", "sex", "smoker"], "rounds": None},
    {"kind": "poisson", "target": "stay", "features": ["age", "sbp", "smoker"]},
    {"kind": "perceptron", "hidden": 3, "rounds": 2},
    {"schedule": "local_steps", "rounds": 2, "local_steps": 2},
)


@pytest.mark.parametrize("change", WRONG, ids=lambda change: change.__name__)
def test_tables_that_are_wrong_or_thin_simply_train(
    tmp_path: Path, change: Callable[[str, list[Row]], Sequence[Row]]
) -> None:
    """What a site's rows are must show in nothing but a value: not in an error, nor in who answers."""
    document = trained(tmp_path, change=change, **MODELS[WRONG.index(change) % len(MODELS)])
    assert document["sites"] == {"answered": sorted(SMALL), "refused": {}, "missing": []}


@pytest.mark.slow
@pytest.mark.parametrize("change", WRONG, ids=lambda change: change.__name__)
def test_every_model_simply_trains_on_every_wrong_table(
    tmp_path: Path, change: Callable[[str, list[Row]], Sequence[Row]]
) -> None:
    for changes in MODELS:
        for words in (("--noiseless",), ()):
            document = trained(tmp_path, *words, change=change, **changes)
            assert document["sites"] == {"answered": sorted(SMALL), "refused": {}, "missing": []}


def test_a_site_without_the_column_refuses_and_the_others_train(tmp_path: Path) -> None:
    write(tmp_path / "sites", sizes=SMALL)
    (tmp_path / "sites" / "west" / "visits.csv").write_text("patient_id,age\np1,40\n", encoding="utf-8")
    document = trained(tmp_path)
    assert document["sites"] == {
        "answered": ["north", "south"],
        "refused": {"west": "SchemaRefused"},
        "missing": [],
        "reasons": {"west": "its table does not have the columns or types that the study describes"},
    }


# --- Requests ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "changes", "code", "sentence"),
    [
        ((), {"features": ["agee"]}, 2, "unknown column 'agee' in table 'visits'; did you mean 'age'?"),
        ((), {"epsilom": 2}, 2, "unknown key 'epsilom'; did you mean 'epsilon'?"),
        ((), {"epsilon": 30}, 1, "but ε = 3 remains"),
        (("--privacy", "sum"), {"by_site": True}, 2, "so no site's sums can be shown"),
        (("--privacy", "total"), {}, 2, "it must be 'site' or 'sum'."),
        (("--search",), {}, 2, "--search finds a quantile; leave it out with --train."),
        (("--repeat", "2", "--out", "x"), {}, 2, "--out keeps the one model of --train"),
        (("SELECT COUNT(*) FROM visits",), {}, 2, 'simulate takes either a question, "SELECT …", or --train'),
        (("--epsilon", "-1"), {}, 2, "epsilon must be a finite number above 0."),
    ],
    ids=str,
)
def test_a_wrong_request_is_one_sentence(
    tmp_path: Path, words: tuple[str, ...], changes: dict[str, object], code: int, sentence: str
) -> None:
    done = simulate(tmp_path, *words, "--json", **changes)  # type: ignore[arg-type]
    assert done.code == code
    assert sentence in done.sentence()
    assert done.document()["error"]["message"] == done.sentence()


def test_nothing_to_do_is_one_sentence(tmp_path: Path) -> None:
    write(tmp_path / "sites", sizes=SMALL)
    (tmp_path / "study.toml").write_text(STUDY, encoding="utf-8")
    done = call("simulate", "--study", tmp_path / "study.toml", "--tables", tmp_path / "sites")
    assert (done.code, done.sentence()) == (
        2,
        'simulate takes either a question, "SELECT …", or --train request.toml.',
    )
