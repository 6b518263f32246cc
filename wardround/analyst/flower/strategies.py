"""Flower's strategies as a way to combine the sites' models: their own classes, on numbers that are private already.

Whatever a strategy does costs nothing, and a model that only one site can have made up is kept from it. A strategy
that remembers (moments, momentum) is as exact on a replay as the rounds are: what it remembers belongs to the model
it led to, so the same rounds lead to the same models however often they are combined.
"""

from __future__ import annotations

import copy
import inspect
import math
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message
from flwr.serverapp.strategy import (
    Bulyan,
    FedAdagrad,
    FedAdam,
    FedAvg,
    FedAvgM,
    FedMedian,
    FedTrimmedAvg,
    FedYogi,
    Krum,
    MultiKrum,
    Strategy,
)

from wardround.analyst.estimation.fitted import settled
from wardround.analyst.flower.messages import (
    APP_FAULTS,
    NamedRun,
    arrays_of,
    failed,
    identify,
    is_model,
    place_of,
    quietly,
    run_of,
    trained,
)
from wardround.analyst.learning.request import PAID
from wardround.federation.errors import QueryMistaken
from wardround.federation.models.training import Vector
from wardround.federation.strict_toml import nearest

Option = float | int

_KNOWN: dict[str, type[FedAvg]] = {
    each.__name__.lower(): each
    for each in (Bulyan, FedAdagrad, FedAdam, FedAvg, FedAvgM, FedMedian, FedTrimmedAvg, FedYogi, Krum, MultiKrum)
}
# What a strategy asks of a runtime. Here every site takes part in every round.
_OF_A_RUNTIME = re.compile(r"fraction_|min_\w+_nodes|\w+_key$|\w+_fn$|selection_rule|self")
_EVERYBODY = {"min_train_nodes": 1, "min_evaluate_nodes": 1, "min_available_nodes": 1}
_WRITTEN = re.compile(r"\s*([\w-]+)\s*(?:\((.*)\))?\s*", re.DOTALL)

KEPT = 8
"""So many models back a combination remembers."""

# What Flower's strategies, and those made from them, raise over numbers they cannot use.
_FAULTS = (
    *APP_FAULTS,
    ArithmeticError,
    AttributeError,
    LookupError,
    NotImplementedError,
    RuntimeError,
    TypeError,
    ValueError,
)


def combine_by(name: str, **options: Option) -> StrategyCombine:
    """The combination by the strategy of this name, for one training.

    The name is that of Flower's class, with options in brackets where it is written in a file:
    `krum(num_malicious_nodes = 1)`. `QueryMistaken` with the nearest name or option that exists.
    """
    plain, written = _read(name)
    kind = _KNOWN.get(plain)
    if kind is None:
        names = [each.__name__ for each in _KNOWN.values()]
        raise QueryMistaken(f"there is no strategy {name!r} here; {nearest(name, names)}")
    chosen = {**written, **options}
    _require_options(kind, chosen)
    try:
        with quietly():
            strategy = kind(**_EVERYBODY, **chosen)  # type: ignore[arg-type]
    except _FAULTS as fault:
        raise QueryMistaken(f"the strategy {kind.__name__} cannot be made so: {_first_line(fault)}") from None
    return StrategyCombine(strategy)


class StrategyCombine:
    """A `Combine` that is one of Flower's strategies, or one that somebody made from them; for one training."""

    def __init__(self, strategy: Strategy) -> None:
        self._fresh = strategy
        self._memories: dict[bytes, _Memory] = {}

    @property
    def title(self) -> str:
        return type(self._fresh).__name__

    def __call__(self, weights: Vector, updates: Mapping[str, Vector], examples: Mapping[str, float]) -> Vector:
        """The new model.

        Raises:
            QueryMistaken: the strategy failed, or what it made is no model; the rounds so far are kept.
        """
        memory = self._memory_of(weights)
        strategy, turn = copy.deepcopy(memory.strategy), memory.turns + 1
        found = self._aggregated(strategy, turn, weights, updates, examples)
        if found.shape != weights.shape:
            raise self._fault(len(updates), f"it made {found.size} numbers of {weights.size}")
        if not is_model(found):
            raise self._fault(len(updates), "what it made is not finite")
        # The first memory of a model stays: a training that comes by again goes on from there every time.
        self._memories.setdefault(settled(found).tobytes(), _Memory(strategy, turn))
        self._forget()
        return found

    def _aggregated(
        self,
        strategy: Strategy,
        turn: int,
        weights: Vector,
        updates: Mapping[str, Vector],
        examples: Mapping[str, float],
    ) -> Vector:
        replies = list(_replies(updates, examples, turn=turn))
        if all(each.has_error() for each in replies):
            raise self._fault(len(updates), "none of them is a model of finite numbers")
        try:
            # A number that overflows is found in the result.
            with quietly(), np.errstate(all="ignore"):
                identify()
                sites = [place_of(site) for site in updates]
                # Strategies learn here where the model stood. Which sites they would draw is no matter: all answered.
                list(strategy.configure_train(turn, arrays_of(weights), ConfigRecord(), _Roster(sites)))
                arrays, _ = strategy.aggregate_train(turn, replies)
        except _FAULTS as fault:
            raise self._fault(len(updates), _first_line(fault)) from None
        if arrays is None:
            raise self._fault(len(updates), "it makes no model of so few")
        return _numbers(arrays)

    def _memory_of(self, weights: Vector) -> _Memory:
        key = weights.tobytes()
        if not self._memories:
            self._memories[key] = _Memory(self._fresh, 0)
        if (found := self._memories.get(key)) is None:
            raise QueryMistaken(
                f"this combination by {self.title} has not led to the model it is given; make one for each training."
            )
        return found

    def _forget(self) -> None:
        # The first stays, for a training that begins again.
        while len(self._memories) > KEPT + 1:
            del self._memories[list(self._memories)[1]]

    def _fault(self, sites: int, why: str) -> QueryMistaken:
        return QueryMistaken(f"the strategy {self.title} cannot combine the models of {sites} sites: {why}. {PAID}")


@dataclass(frozen=True, slots=True)
class _Memory:
    """A strategy as it was when a model was made, and after how many rounds."""

    strategy: Strategy
    turns: int


class _Roster(NamedRun):
    """Who takes part, for strategies that ask; nothing can be sent."""

    def __init__(self, places: list[int]) -> None:
        super().__init__(run_of("0"))
        self._places = places

    def get_node_ids(self) -> Iterable[int]:
        return list(self._places)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        raise NotImplementedError("a strategy that sends messages needs a grid; run it as an app")

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        raise NotImplementedError("a strategy that sends messages needs a grid; run it as an app")

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        raise NotImplementedError("a strategy that sends messages needs a grid; run it as an app")


def _replies(updates: Mapping[str, Vector], examples: Mapping[str, float], *, turn: int) -> Iterator[Message]:
    """In the order of names, so that sums have the same last bits every time."""
    for site, weights in sorted(updates.items()):
        if is_model(weights):
            yield trained(site, weights, max(examples[site], 1.0), turn=turn)
        else:
            yield failed(site, f"the model of {site} is not finite", turn=turn)


def _numbers(arrays: ArrayRecord) -> Vector:
    return np.concatenate([each.numpy().astype(np.float64).ravel() for each in arrays.values()])


def _read(name: str) -> tuple[str, dict[str, Option]]:
    """`Krum(num_malicious_nodes = 1)` as a name and options."""
    if (found := _WRITTEN.fullmatch(name)) is None:
        raise QueryMistaken(f"a strategy is a name, with options in brackets after it, not {name!r}.")
    try:
        options = tomllib.loads(f"options = {{{found[2] or ''}}}")["options"]
    except tomllib.TOMLDecodeError:
        raise QueryMistaken(
            f"the options of a strategy are written as in krum(num_malicious_nodes = 1), not {name!r}."
        ) from None
    return re.sub("[-_]", "", found[1]).lower(), options


def _require_options(kind: type[FedAvg], options: Mapping[str, object]) -> None:
    known = [name for name in inspect.signature(kind).parameters if not _OF_A_RUNTIME.match(name)]
    for name, value in options.items():
        if name not in known:
            told = nearest(name, known) if known else "it has none."
            raise QueryMistaken(f"the strategy {kind.__name__} has no option {name!r} here; {told}")
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not (number and math.isfinite(value)):  # type: ignore[arg-type]
            raise QueryMistaken(f"the option {name!r} of the strategy {kind.__name__} must be a finite number.")
        whole = inspect.signature(kind).parameters[name].annotation in (int, "int")
        if value < 0 or (whole and not isinstance(value, int)):  # type: ignore[operator]
            told = "a whole number, at least 0" if whole else "at least 0"
            raise QueryMistaken(f"the option {name!r} of the strategy {kind.__name__} must be {told}.")


def _first_line(fault: BaseException) -> str:
    return (str(fault).strip().splitlines() or [type(fault).__name__])[0].rstrip(".")
