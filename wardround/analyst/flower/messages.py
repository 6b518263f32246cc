"""Models and sites in Flower's words, and the only place that touches what Flower does not call public.

Those are who sends a message, how one is built without a runtime, and what a run is. A new version of Flower that
changes them changes this module alone.
"""

from __future__ import annotations

import hashlib
import logging
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from typing import TypeAlias

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Error, Message, Metadata, MetricRecord, RecordDict
from flwr.app.exception import AppExitException
from flwr.app.message import make_message
from flwr.serverapp import Grid, ServerApp
from flwr.supercore import telemetry
from flwr.supercore.run import Run
from flwr.supercore.task_identity import TaskIdentity

from wardround.federation.errors import QueryMistaken
from wardround.federation.models.training import Vector

ARRAYS = "arrays"
METRICS = "metrics"
EXAMPLES = "num-examples"
"""Keys that Flower's own strategies use unless they are told otherwise."""

REFUSED_CODE = 1
APP_FAULTS = (AppExitException,)
"""What Flower raises to end an app."""

FlowerRun: TypeAlias = Run
"""What Flower knows about a run."""

_ASKING = 1
_FARTHEST = 1e100

# Also where somebody loaded Flower before this package.
telemetry.FLWR_TELEMETRY_ENABLED = "0"


# --- Models -----------------------------------------------------------------------------------------------


def arrays_of(weights: Vector, like: ArrayRecord | None = None) -> ArrayRecord:
    """Weights as a record: one array, or cut into the names, shapes and kinds of number that another has."""
    if like is None:
        return ArrayRecord({"weights": Array(np.array(weights))})
    found: dict[str, Array] = {}
    place = 0
    for name, each in like.items():
        size = math.prod(each.shape)
        found[name] = _array(weights[place : place + size], each.dtype, each.shape)
        place += size
    return ArrayRecord(found)


def _array(numbers: Vector, kind: str, shape: tuple[int, ...]) -> Array:
    """Numbers in Flower's form; how it begins is worked out once for all sites."""
    beginning, stored = _beginning(kind, shape)
    return Array(dtype=kind, shape=shape, stype=stored, data=beginning + numbers.astype(kind).tobytes())


@lru_cache(maxsize=64)
def _beginning(kind: str, shape: tuple[int, ...]) -> tuple[bytes, str]:
    """What comes before the numbers of such an array, and what Flower calls its form."""
    empty = np.zeros(shape, dtype=kind)
    array = Array(empty)
    return array.data[: len(array.data) - empty.nbytes], array.stype


def weights_in(record: ArrayRecord) -> Vector:
    """The numbers of all arrays one after another; `QueryMistaken` where they are no finite numbers."""
    found: list[Vector] = []
    for name, each in record.items():
        try:
            values = each.numpy()
        except (TypeError, ValueError):
            raise QueryMistaken(f"the array {name!r} cannot be read as numbers.") from None
        if values.dtype.kind != "f":
            raise QueryMistaken(f"the array {name!r} must hold floating-point numbers, not {values.dtype}.")
        found.append(values.astype(np.float64).ravel())
    weights = np.concatenate(found) if found else np.zeros(0)
    if not is_model(weights):
        raise QueryMistaken("a model's numbers must be finite.")
    return weights


def is_model(weights: Vector) -> bool:
    """Whether these can be a model's numbers: finite, and no farther out than any step goes."""
    return bool(np.isfinite(weights).all()) and float(np.abs(weights).max(initial=0.0)) <= _FARTHEST


# --- Messages ---------------------------------------------------------------------------------------------


def place_of(site: str) -> int:
    """The number that Flower knows a site by: the same in every run, and never that of whoever asks."""
    return int.from_bytes(hashlib.sha256(site.encode()).digest()[:7], "big") + _ASKING + 1


def trained(site: str, weights: Vector, examples: float, *, turn: int) -> Message:
    """A site's model after a round, as the reply of a site would bring it."""
    metrics = MetricRecord({EXAMPLES: float(examples)})
    return make_message(_from(site, turn), content=RecordDict({ARRAYS: arrays_of(weights), METRICS: metrics}))


def failed(site: str, sentence: str, *, turn: int) -> Message:
    """A site's reply that brings no model."""
    return make_message(_from(site, turn), error=Error(REFUSED_CODE, sentence))


def reply(asked: Message, number: str, content: RecordDict) -> Message:
    """An answer to a message that a grid gave this number."""
    return make_message(_back(asked, number), content=content)


def declined(asked: Message, number: str, sentence: str) -> Message:
    """An answer that says why there is none."""
    return make_message(_back(asked, number), error=Error(REFUSED_CODE, sentence))


def addressed(content: RecordDict, kind: str, place: int, *, group: str, ttl: float | None) -> Message:
    """A message to one site."""
    identify()
    return Message(content, place, kind, ttl=ttl, group_id=group)


def _back(asked: Message, number: str) -> Metadata:
    of = asked.metadata
    return Metadata(
        run_id=of.run_id,
        message_id="",
        src_node_id=of.dst_node_id,
        dst_node_id=of.src_node_id,
        reply_to_message_id=number,
        group_id=of.group_id,
        created_at=of.created_at,
        ttl=of.ttl,
        message_type=of.message_type,
    )


def _from(site: str, turn: int) -> Metadata:
    return Metadata(
        run_id=0,
        message_id="",
        src_node_id=place_of(site),
        dst_node_id=_ASKING,
        reply_to_message_id="",
        group_id=str(turn),
        created_at=0.0,
        ttl=1.0,
        message_type="train",
    )


# --- Runs -------------------------------------------------------------------------------------------------


def identify(run: int = 0) -> None:
    """Give this process what Flower's messages want to know of a sender, unless a runtime of its own has."""
    for name, number in (("run_id", run), ("node_id", _ASKING), ("task_id", 0)):
        try:
            getattr(TaskIdentity, name)
        except RuntimeError:
            setattr(TaskIdentity, name, number)


def run_of(model_id: str) -> Run:
    """A run, named by what it trains."""
    return Run.create_empty(run_id=int(model_id[:14], 16))


def has_main(app: ServerApp) -> bool:
    """Whether an app is a function of a grid; those of the old style are parts for a runtime to put together."""
    return getattr(app, "_main", None) is not None


def surroundings(run: Run, settings: Mapping[str, bool | float | int | str]) -> Context:
    """What an app is told about its run."""
    return Context(run.run_id, _ASKING, {}, RecordDict(), dict(settings))


@contextmanager
def quietly() -> Iterator[None]:
    """Keep Flower's log off an analyst's screen where nobody runs an app of their own."""
    log = logging.getLogger("flwr")
    before = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(before)


class NamedRun(Grid):
    """What our grids have in common: the name of a run, which decides nothing, and how a message is addressed."""

    def __init__(self, run: FlowerRun) -> None:
        self._run = run

    def set_run(self, run: FlowerRun) -> None:
        self._run = run

    @property
    def run(self) -> FlowerRun:
        return self._run

    def create_message(
        self, content: RecordDict, message_type: str, dst_node_id: int, group_id: str, ttl: float | None = None
    ) -> Message:
        return addressed(content, message_type, dst_node_id, group=group_id, ttl=ttl)
