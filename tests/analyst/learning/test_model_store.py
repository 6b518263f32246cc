"""A model on disk: whole or not at all, honest about itself, and the same model when it is read again."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import pickle
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import wardround
from tests.analyst.learning.clinics import SIZES, federation, patients, request, seeded, study, write
from wardround.analyst.estimation.fitted import Standardisation
from wardround.analyst.learning.model_store import CARD, NUMBERS, check_folder, keep, load_model
from wardround.analyst.learning.predictor import Predictor
from wardround.analyst.learning.trained_model import TrainingResult
from wardround.federation.errors import ConfigurationMistaken, QueryMistaken
from wardround.federation.models.training import Input, ModelKind
from wardround.simulation.federation import SimulatedFederation
from wardround.simulation.sites import find_sites

SHORT = {"rounds": 3}
ROWS = {
    "age": [40, 80, 62],
    "sbp": [110.0, 160.0, 125.0],
    "sex": ["F", "M", "M"],
    "smoker": [False, True, False],
}


@pytest.fixture(scope="module")
def clinics(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SimulatedFederation]:
    folder = tmp_path_factory.mktemp("clinics")
    found = federation(folder / "federation", find_sites(write(folder / "tables"), study()), noise=seeded)
    yield found
    found.close()


@pytest.fixture(scope="module")
def result(clinics: SimulatedFederation) -> TrainingResult:
    return clinics.client.train(request(**SHORT, cohort="age >= 20"))


def test_a_stored_model_is_the_same_model(result: TrainingResult, tmp_path: Path) -> None:
    kept = result.save(tmp_path / "models" / "first")
    assert kept.document()["artifact"] == str(tmp_path / "models" / "first")
    found = wardround.load_model(tmp_path / "models" / "first")
    assert found.predict(ROWS).tobytes() == result.predict(ROWS).tobytes()
    chances = found.predict(ROWS)
    assert ((chances > 0) & (chances < 1)).all()
    assert chances[0] < chances[2] < chances[1]
    assert repr(found) == "<logistic model of readmitted from age, sbp, sex, smoker>"
    with np.load(tmp_path / "models" / "first" / NUMBERS) as arrays:
        assert list(arrays["names"]) == ["age", "sbp", "sex=M", "smoker"]
        assert {name: arrays[name].shape for name in ("weights", "centre", "spread")} == {
            "weights": (5,),
            "centre": (4,),
            "spread": (4,),
        }


def test_the_card_tells_where_a_model_came_from_and_what_it_cost(result: TrainingResult, tmp_path: Path) -> None:
    card = load_model(result.save(tmp_path / "m").artifact or "").card
    assert card["model_id"] == result.model_id
    assert card["study"] == {"name": "readmission", "hash": study().study_hash}
    assert (card["kind"], card["table"], card["cohort"], card["unit"]) == ("logistic", "visits", "age >= 20", "patient")
    assert card["plan_ids"] == [answer.plan_id for answer in result.trained.answers]
    assert card["participants"] == sorted(SIZES)
    assert card["initialisation"] == "zeros"
    assert card["strategy"] == "fedavg"
    assert card["wardround"] == version("wardround")
    assert [each["stage"] for each in card["stages"]] == ["moments", "products", "gradient", "scores"]  # type: ignore[union-attr,index,call-overload]
    assert card["privacy"]["charged"]["epsilon"] == pytest.approx(1.0, rel=1e-3)  # type: ignore[index,call-overload]
    assert card["asked"] == {"epsilon": 1.0, "delta": 1e-6}
    assert "one patient, with all of the patient's rows" in str(card["statement"])
    first, *others = card["assumptions"]  # type: ignore[misc]
    assert (
        first == "No patient is at more than 1 site, as the study declares; where that is false, so is the statement."
    )
    assert any("nobody else is trusted" in str(each) for each in others)
    assert card["categories"] == {"sex": ["F", "M"]}
    assert {each["name"] for each in card["metrics"]} >= {"auc", "accuracy"}  # type: ignore[union-attr,index,call-overload]
    assert all(each["reason"] or each["standard_error"] > 0 for each in card["metrics"])  # type: ignore[union-attr,index,call-overload,operator]


def test_the_model_is_kept_under_its_own_name_or_in_the_folder_that_was_named(
    clinics: SimulatedFederation, result: TrainingResult, tmp_path: Path
) -> None:
    wanted = request(**SHORT, cohort="age >= 20")
    under = clinics.client.train(wanted, under=tmp_path / "models")
    assert under.artifact == tmp_path / "models" / result.model_id
    again = clinics.client.train(wanted, under=tmp_path / "models")
    assert load_model(again.artifact or "").predict(ROWS).tobytes() == result.predict(ROWS).tobytes()
    assert sorted(path.name for path in under.artifact.iterdir()) == [CARD, NUMBERS]


def test_a_folder_that_cannot_take_the_model_is_refused_before_anything_is_charged(
    clinics: SimulatedFederation, result: TrainingResult, tmp_path: Path
) -> None:
    result.save(tmp_path / "taken")
    (tmp_path / "file").write_text("", encoding="utf-8")
    before = clinics.client.budget().report.spent
    for place, sentence in (
        (tmp_path / "taken", "holds another model already; name a new folder for --out."),
        (tmp_path / "file", "is a file; name a folder for --out."),
        (tmp_path / "file" / "below", "cannot be written with this user's permissions."),
    ):
        with pytest.raises(ConfigurationMistaken) as found:
            clinics.client.train(request(**SHORT, epsilon=0.7), out=place)
        assert found.value.message.endswith(sentence)
    assert clinics.client.budget().report.spent == before
    check_folder(tmp_path / "taken", model_id=result.model_id)
    check_folder(tmp_path / "new" / "newer", model_id=result.model_id)


def test_a_model_that_was_changed_or_is_none_is_one_sentence(result: TrainingResult, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationMistaken, match=r"holds no model: there is no card\.json in it"):
        load_model(tmp_path)
    folder = result.save(tmp_path / "m").artifact
    assert folder is not None
    card = json.loads((folder / CARD).read_text("utf-8"))
    whole = (folder / NUMBERS).read_bytes()
    (folder / NUMBERS).write_bytes(whole[:-1])
    with pytest.raises(ConfigurationMistaken, match=r"is not the file that card\.json describes"):
        load_model(folder)
    (folder / NUMBERS).unlink()
    with pytest.raises(ConfigurationMistaken, match=r"model\.npz cannot be read"):
        load_model(folder)
    for text in ("[]", "{", "\xff"):
        (folder / CARD).write_bytes(text.encode("latin-1"))
        with pytest.raises(ConfigurationMistaken, match="is not a model card"):
            load_model(folder)
    for change in ({"kind": "oracle"}, {"inputs": []}, {"inputs": 3}, {"hidden": True}, {"target": {}}):
        (folder / NUMBERS).write_bytes(whole)
        (folder / CARD).write_text(json.dumps({**card, **change}), encoding="utf-8")
        with pytest.raises(ConfigurationMistaken, match="holds no model that this version can read"):
            load_model(folder)


def test_a_model_from_a_stranger_runs_no_code(result: TrainingResult, tmp_path: Path) -> None:
    folder = result.save(tmp_path / "m").artifact
    assert folder is not None
    evil = pickle.dumps(Bomb(str(tmp_path / "exploded")))
    (folder / NUMBERS).write_bytes(evil)
    card = json.loads((folder / CARD).read_text("utf-8"))
    card["numbers"]["sha256"] = hashlib.sha256(evil).hexdigest()
    (folder / CARD).write_text(json.dumps(card), encoding="utf-8")
    with pytest.raises(ConfigurationMistaken):
        load_model(folder)
    assert not (tmp_path / "exploded").exists()


@dataclasses.dataclass
class Bomb:
    """What a pickle would do when it is read."""

    place: str

    def __reduce__(self) -> tuple[object, tuple[str, str]]:
        return open, (self.place, "w")


# --- Predictions ------------------------------------------------------------------------------------------


def test_predictions_take_lists_arrays_frames_and_texts(result: TrainingResult) -> None:
    expected = result.predict(ROWS)
    frame = pd.DataFrame(ROWS)
    texts = {name: [str(value) for value in column] for name, column in ROWS.items()}
    for columns in ({name: np.array(column) for name, column in ROWS.items()}, frame, texts):
        assert np.array_equal(result.predict(columns), expected)  # type: ignore[arg-type]


def test_a_row_with_an_absent_value_has_no_prediction(result: TrainingResult) -> None:
    rows: dict[str, list[object]] = {name: list(column) for name, column in ROWS.items()}
    rows["sbp"][0], rows["sex"][1] = None, None
    found = result.predict(rows)
    assert np.isnan(found[:2]).all()
    assert found[2] == result.predict(ROWS)[2]
    rows["sbp"][0] = float("inf")
    assert np.isnan(result.predict(rows)[0])


def test_a_category_that_nobody_listed_has_no_prediction(result: TrainingResult, tmp_path: Path) -> None:
    rows = {**ROWS, "sex": ["f", "M", "X"]}
    for model in (result, load_model(result.save(tmp_path / "m").artifact or "")):
        found = model.predict(rows)
        assert np.isnan(found).tolist() == [True, False, True]
        assert found[1] == model.predict(ROWS)[1]


def test_a_category_of_whole_numbers_is_known_as_a_float_too() -> None:
    predictor = Predictor(
        ModelKind.LOGISTIC,
        (Input("ward=2", "ward", 0.0, 1.0, "2"),),
        Input("y", "y", 0.0, 1.0),
        np.array([0.0, 1.0]),
        Standardisation(np.zeros(1), np.ones(1)),
        categories={"ward": ("1", "2")},
    )
    found = predictor.predict({"ward": [1.0, 2.0, float("nan"), 3.0]})
    assert np.isnan(found).tolist() == [False, False, True, True]
    assert found[:2].tolist() == predictor.predict({"ward": ["1", "2"]}).tolist()


def test_a_replay_leaves_the_kept_model_as_it_is(clinics: SimulatedFederation, tmp_path: Path) -> None:
    wanted = request(**SHORT, epsilon=0.1)
    first = clinics.client.train(wanted, out=tmp_path / "m")
    before = {path.name: path.read_bytes() for path in (tmp_path / "m").iterdir()}
    clinics.client.train(request(**SHORT, epsilon=0.11))
    again = clinics.client.train(wanted, out=tmp_path / "m")
    assert (first.document()["replayed"], again.document()["replayed"]) == (False, True)
    assert {path.name: path.read_bytes() for path in (tmp_path / "m").iterdir()} == before
    (tmp_path / "m" / NUMBERS).write_bytes(b"")
    clinics.client.train(wanted, out=tmp_path / "m")
    assert (tmp_path / "m" / NUMBERS).read_bytes() == before[NUMBERS]


def test_columns_that_do_not_fit_are_one_sentence(result: TrainingResult) -> None:
    with pytest.raises(QueryMistaken, match="the column 'sbp' is absent; did you mean 'sbpp'"):
        result.predict({**{name: ROWS[name] for name in ("age", "sex", "smoker")}, "sbpp": [1]})
    with pytest.raises(QueryMistaken, match="must be equally long: age has 3, sbp has 1"):
        result.predict({**ROWS, "sbp": [1.0]})
    with pytest.raises(QueryMistaken, match="must be a sequence of values"):
        result.predict({**ROWS, "sbp": [[1.0], [2.0], [3.0]]})
    with pytest.raises(QueryMistaken, match="'age' must be a sequence of values"):
        result.predict({"age": 40, "sbp": 120.0, "sex": "F", "smoker": False})  # type: ignore[dict-item]


def test_a_linear_model_predicts_in_the_targets_own_units() -> None:
    """Halfway up from the middle of 0 to 30 by one and a half spreads of a tenth: 15 + 15·(3·0.1·½)."""
    predictor = Predictor(
        ModelKind.LINEAR,
        (Input("x", "x", 0.0, 10.0),),
        Input("y", "y", 0.0, 30.0),
        np.array([np.sqrt(2.0) / 2.0, 0.0]),
        Standardisation(np.array([0.0, 0.0]), np.array([1.0, 0.1])),
    )
    predictor.check()
    assert predictor.predict({"x": [5.0]}) == pytest.approx([17.25])


def test_a_model_with_other_numbers_than_it_has_is_refused(tmp_path: Path) -> None:
    predictor = Predictor(
        ModelKind.LOGISTIC,
        (Input("x", "x", 0.0, 10.0),),
        Input("y", "y", 0.0, 1.0),
        np.zeros(3),
        Standardisation(np.zeros(1), np.ones(1)),
    )
    with pytest.raises(ValueError, match="as many numbers"):
        predictor.check()
    card = {"kind": "logistic", "inputs": [], "target": {}, "hidden": 0}
    with pytest.raises(ConfigurationMistaken):
        load_model(keep(tmp_path, predictor, card))  # type: ignore[arg-type]


def test_a_noiseless_model_orders_the_patients_it_was_fitted_to(tmp_path: Path) -> None:
    found = federation(tmp_path / "f", find_sites(write(tmp_path / "t"), study()))
    result = found.client.train(request())
    rows = [row for site, number in SIZES.items() for row in patients(site, number)]
    chances = result.predict({name: [row[name] for row in rows] for name in ROWS})
    outcome = np.array([row["readmitted"] == "true" for row in rows])
    ranks = np.argsort(np.argsort(chances))
    auc = (ranks[outcome].mean() - (outcome.sum() - 1) / 2) / (~outcome).sum()
    assert auc > 0.7
    assert abs(chances.mean() - outcome.mean()) < 0.03
    found.close()
