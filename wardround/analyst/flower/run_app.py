"""An existing Flower `ServerApp`, run unchanged against the sites of a study.

The app decides where the model goes; the request decides what may be asked, how often and for how much. Run again, an
app that computes the same from the same replies goes on where it was, from the stored rounds, and pays nothing twice.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol, runtime_checkable

from flwr.app import ArrayRecord, RecordDict
from flwr.serverapp import ServerApp

from wardround.analyst.estimation.fitted import Metric
from wardround.analyst.flower.grid import WardroundGrid, unread_text
from wardround.analyst.flower.messages import APP_FAULTS, has_main, surroundings, weights_in
from wardround.analyst.flower.private_rounds import PrivateRounds
from wardround.analyst.learning.driver import TrainingRound, prepared
from wardround.analyst.learning.model_card import privacy_of
from wardround.analyst.learning.planner import outline
from wardround.analyst.learning.predictor import Predictor
from wardround.analyst.learning.request import PLAIN, TrainingRequest, read_request
from wardround.analyst.link.link import AnalystLink
from wardround.analyst.link.signing import with_purpose
from wardround.federation.errors import QueryMistaken
from wardround.federation.models import definition_of
from wardround.federation.question.answer import Answer, PrivacyStatement
from wardround.federation.study.study import Study

ROUNDS_SETTING = "num-server-rounds"
"""Where apps made from Flower's templates look how many rounds to run."""

Setting = bool | float | int | str


@runtime_checkable
class Linked(Protocol):
    """Whoever is linked to a study already: a `Client`."""

    @property
    def study(self) -> Study: ...

    @property
    def link(self) -> AnalystLink:
        """What it speaks over."""


@dataclass(frozen=True, slots=True)
class AppResult:
    """What an app's run leaves: what it cost, who took part, and how to use a model that it made.

    `state` is what the app kept in its context. `metrics` are those of all held-out patients together. `notes` say
    what of the app had no effect.
    """

    rounds: PrivateRounds
    state: RecordDict
    notes: tuple[str, ...] = ()

    @property
    def model_id(self) -> str:
        """The name of the training: that of everything it is made from."""
        return self.rounds.beginning.block

    @property
    def answers(self) -> tuple[Answer, ...]:
        """Every round's answer, without its sums."""
        return tuple(self.rounds.answers)

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """How the model did on held-out patients, with errors; nothing if the app did not ask after its last round."""
        return self.rounds.metrics

    @property
    def privacy(self) -> PrivacyStatement:
        """What the whole training cost one unit, and what is left; `QueryMistaken` when no round was asked."""
        if not self.rounds.answers:
            raise QueryMistaken("the app asked for no round, so nothing was charged.")
        return privacy_of(self.answers)

    def predictor(self, arrays: ArrayRecord) -> Predictor:
        """A model of the app's, ready to predict in the columns' own units."""
        return self.rounds.predictor(weights_in(arrays))


def grid_over(
    federation: Linked | AnalystLink,
    request: TrainingRequest | str | Path,
    *,
    nonce: str = "",
    clock: Callable[[], float] = time.monotonic,
    on_round: Callable[[TrainingRound], None] | None = None,
) -> WardroundGrid:
    """The sites of a study as a grid for the rounds of a request; nothing is asked or spent yet.

    The request's strategy is the app's own, so it must be left out.
    """
    wanted = request if isinstance(request, TrainingRequest) else read_request(Path(request))
    if definition_of(wanted.kind).least_squares:
        raise QueryMistaken(f"a {wanted.kind.value} model is found from one round of sums; train it without an app.")
    if wanted.strategy != PLAIN:
        raise QueryMistaken("an app combines by its own strategy; leave strategy out of the request.")
    wanted = replace(wanted, by_site=True)
    if isinstance(federation, Linked):
        study, link = federation.study, federation.link
    else:
        study, link = federation.study(), federation
    link = with_purpose(link, wanted.purpose)
    exact = outline(wanted, study, sites=link.sites())
    beginning = prepared(exact, study, link, nonce=nonce, combine=None)
    return WardroundGrid(PrivateRounds(beginning, study, link, clock=clock, on_round=on_round))


def run_app(
    app: ServerApp,
    federation: Linked | AnalystLink,
    request: TrainingRequest | str | Path,
    *,
    run_config: Mapping[str, Setting] | None = None,
    nonce: str = "",
    on_round: Callable[[TrainingRound], None] | None = None,
) -> AppResult:
    """Run an app to its end.

    `run_config` is what the app finds in its context; `num-server-rounds` is the number of training rounds that the
    request has, unless it says otherwise.

    Raises:
        BudgetExceeded: the whole training does not fit into what remains; nothing was charged.
        QueryMistaken: the request is wrong, or the app's strategy could not go on; the rounds so far are kept.
        TooFewSites: a round has too few answers; what was done before it is kept.
        Unavailable: as for a question; the same call goes on later.
    """
    if not has_main(app):
        raise QueryMistaken("an app needs a function marked with @app.main(); server_fn and its like are not run here.")
    grid = grid_over(federation, request, nonce=nonce, on_round=on_round)
    settings = {ROUNDS_SETTING: grid.rounds.rounds, **(run_config or {})}
    context = surroundings(grid.run, settings)
    try:
        app(grid, context)
    except APP_FAULTS as fault:
        raise QueryMistaken(f"the app could not go on: {fault} The rounds so far are kept and paid for.") from None
    return AppResult(grid.rounds, context.state, (unread_text(grid.unread),) if grid.unread else ())
