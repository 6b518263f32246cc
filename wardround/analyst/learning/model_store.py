"""A model on disk: `model.npz` holds its numbers, `card.json` what they mean, where they came from and what they cost.

The card is written last and names the digest of the numbers, so a folder with a card is a whole model. Reading runs no
code that a file brings along.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from wardround.analyst.estimation.fitted import Standardisation
from wardround.analyst.learning.predictor import Columns, Predictor
from wardround.analyst.showing.documents import Json
from wardround.federation.errors import ConfigurationMistaken
from wardround.federation.models.training import Input, ModelKind, Vector
from wardround.federation.plain_text import escaped
from wardround.federation.private_files import write_whole

NUMBERS = "model.npz"
CARD = "card.json"
FOLDER = "models"
# Numbers with noise: what a model says is no secret, and whoever uses it may be another user.
_EVERYBODY_READS = 0o644
_ARRAYS = ("weights", "centre", "spread")


@dataclass(frozen=True, slots=True, repr=False)
class StoredModel:
    """A model that can be asked for predictions, and its card."""

    predictor: Predictor
    card: Mapping[str, Json]

    def predict(self, columns: Columns) -> Vector:
        """A probability for a yes-or-no outcome, otherwise the expected value; one number for each row."""
        return self.predictor.predict(columns)

    def __repr__(self) -> str:
        features = ", ".join(dict.fromkeys(each.column for each in self.predictor.inputs))
        return escaped(f"<{self.predictor.kind.value} model of {self.predictor.target.column} from {features}>")


def check_folder(folder: Path, *, model_id: str) -> None:
    """Refuse a folder that cannot take this model, before anything is asked and charged."""
    card = folder / CARD
    if folder.exists() and not folder.is_dir():
        raise ConfigurationMistaken(f"{folder} is a file; name a folder for --out.")
    if card.exists() and _card(card).get("model_id") != model_id:
        raise ConfigurationMistaken(f"{folder} holds another model already; name a new folder for --out.")
    existing = next(place for place in (folder, *folder.absolute().parents) if place.exists())
    if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
        raise ConfigurationMistaken(f"{folder} cannot be written with this user's permissions.")


def keep(folder: Path, predictor: Predictor, card: Mapping[str, Json]) -> Path:
    """Write the model; a crash leaves no half of one.

    A folder that has it already stays as it is: its card tells of the training, not of who replayed it since.
    """
    buffer = io.BytesIO()
    names = np.array([each.name for each in predictor.inputs])
    np.savez(
        buffer,
        allow_pickle=False,
        names=names,
        weights=predictor.weights,
        centre=predictor.scaling.centre,
        spread=predictor.scaling.spread,
    )
    text = buffer.getvalue()
    whole: dict[str, Json] = {**card, "numbers": {"file": NUMBERS, "sha256": hashlib.sha256(text).hexdigest()}}
    if _holds(folder, whole):
        return folder
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(folder / NUMBERS, text, mode=_EVERYBODY_READS)
        card_text = json.dumps(whole, ensure_ascii=True, allow_nan=False, indent=2) + "\n"
        write_whole(folder / CARD, card_text.encode(), mode=_EVERYBODY_READS)
    except OSError as error:
        raise ConfigurationMistaken(
            f"{folder} cannot be written: {error.strerror}; the training is kept, and the same request writes it again."
        ) from None
    return folder


def _holds(folder: Path, card: Mapping[str, Json]) -> bool:
    """Whether a folder has this very model, whole and with a card of this version."""
    try:
        found = load_model(folder).card
    except ConfigurationMistaken:
        return False
    return all(found.get(key) == card.get(key) for key in ("model_id", "numbers", "format", "wardround", "statement"))


def load_model(path: str | os.PathLike[str]) -> StoredModel:
    """The model in a folder; `ConfigurationMistaken` in one sentence where it is none or was changed."""
    folder = Path(path)
    card = _card(folder / CARD)
    try:
        text = (folder / NUMBERS).read_bytes()
    except OSError as error:
        raise ConfigurationMistaken(f"{folder / NUMBERS} cannot be read: {error.strerror}.") from None
    numbers = card.get("numbers")
    if not isinstance(numbers, dict) or numbers.get("sha256") != hashlib.sha256(text).hexdigest():
        raise ConfigurationMistaken(f"{folder / NUMBERS} is not the file that {CARD} describes.")
    try:
        with np.load(io.BytesIO(text), allow_pickle=False) as arrays:
            weights, centre, spread = (np.asarray(arrays[name], dtype=np.float64) for name in _ARRAYS)
        inputs = tuple(_input(each) for each in _listed(card["inputs"]))
        scaling = Standardisation(centre, spread)
        kind = ModelKind(str(card["kind"]))
        target, categories = _input(card["target"]), _categories(card["categories"])
        predictor = Predictor(kind, inputs, target, weights, scaling, _hidden(card), categories)
        predictor.check()
    except (KeyError, TypeError, ValueError, zipfile.BadZipFile):
        raise ConfigurationMistaken(f"{folder} holds no model that this version can read.") from None
    return StoredModel(predictor, card)


def _card(path: Path) -> Mapping[str, Json]:
    try:
        found: Json = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigurationMistaken(f"{path.parent} holds no model: there is no {CARD} in it.") from None
    except OSError as error:
        raise ConfigurationMistaken(f"{path} cannot be read: {error.strerror}.") from None
    except ValueError:
        raise ConfigurationMistaken(f"{path} is not a model card.") from None
    if not isinstance(found, dict):
        raise ConfigurationMistaken(f"{path} is not a model card.")
    return found


def _listed(value: Json) -> list[Json]:
    if not isinstance(value, list):
        raise TypeError
    return value


def _input(value: Json) -> Input:
    match value:
        case {
            "name": str(name),
            "column": str(column),
            "low": int() | float() as low,
            "high": int() | float() as high,
            "value": str() | None as chosen,
        }:
            return Input(name, column, float(low), float(high), chosen)
        case _:
            raise TypeError


def _categories(value: Json) -> dict[str, tuple[str, ...]]:
    if not isinstance(value, dict):
        raise TypeError
    return {column: tuple(str(each) for each in _listed(values)) for column, values in value.items()}


def _hidden(card: Mapping[str, Json]) -> int:
    hidden = card["hidden"]
    if isinstance(hidden, bool) or not isinstance(hidden, int):
        raise TypeError
    return hidden
