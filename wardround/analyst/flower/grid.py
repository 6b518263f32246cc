"""A wardround federation as a Flower grid: what an app sends is numbers, and every site answers by its own rules.

A message says where the model stands and nothing else is read from it: no code, no settings; settings that an app
sends all the same are named once. One round is one plan to all sites, whoever of them is written to, so the price of a
training does not depend on what an app does. Replies are in the order of the sites' names, so that an app that is run
again takes the very same steps and pays nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet

import numpy as np
from flwr.app import ArrayRecord, Message, MessageType, MetricRecord, RecordDict

from wardround.analyst.estimation.fitted import Metric
from wardround.analyst.flower.messages import (
    ARRAYS,
    EXAMPLES,
    METRICS,
    NamedRun,
    arrays_of,
    declined,
    identify,
    place_of,
    reply,
    run_of,
    weights_in,
)
from wardround.analyst.flower.private_rounds import PrivateRounds
from wardround.federation.errors import DeadlinePassed, QueryMistaken
from wardround.federation.models.training import Vector

# Settings are for code that is not there. This one would change what is trained without anybody noticing.
_PROXIMAL = "proximal-mu"
_ONE_MODEL = "a message carries one model, as one ArrayRecord."
# Every strategy of Flower's sends this one by itself; it asks for nothing.
_COUNTED = "server-round"

log = logging.getLogger("wardround.flower")


class WardroundGrid(NamedRun):
    """Flower's grid over the sites of a study, for the rounds of one request.

    A site that refused, is missing or sent something impossible replies with an error, as does every site to a message
    that no round can answer. What ends a training (the budget, too few sites, a coordinator that is away) is raised.
    """

    def __init__(self, rounds: PrivateRounds) -> None:
        self.rounds = rounds
        super().__init__(run_of(rounds.beginning.block))
        self._sites = {place_of(site): site for site in rounds.sites}
        self._pushed: dict[str, Message] = {}
        self._sent = 0
        self._unread: tuple[str, ...] = ()
        identify(self._run.run_id)

    @property
    def sites(self) -> Mapping[int, str]:
        """Which site each of Flower's numbers is."""
        return dict(self._sites)

    @property
    def unread(self) -> tuple[str, ...]:
        """The names of settings that were sent to sites and that no site reads, in the order they came."""
        return self._unread

    def first_arrays(self) -> ArrayRecord:
        """A model to begin with: where this project's own training would."""
        return arrays_of(self.rounds.first_weights())

    # --- Flower's words -----------------------------------------------------------------------------------

    def get_node_ids(self) -> Iterable[int]:
        """Every site's number, in the order of their names."""
        return list(self._sites)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Take messages in; nothing is asked of a site before the replies are pulled."""
        numbers = []
        for message in messages:
            self._sent += 1
            number = f"{self._sent}"
            self._pushed[number] = message
            numbers.append(number)
        return numbers

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """The replies to these messages, after the round that they ask for."""
        return self._pulled(message_ids, timeout=None)

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        """The replies to these messages; none when the time is over, and sending them again goes on with the round."""
        return self._pulled(self.push_messages(messages), timeout=timeout)

    # --- Rounds -------------------------------------------------------------------------------------------

    def _pulled(self, numbers: Iterable[str], *, timeout: float | None) -> list[Message]:
        asked = {number: self._pushed[number] for number in numbers if number in self._pushed}
        replies: list[Message] = []
        for kind in dict.fromkeys(message.metadata.message_type for message in asked.values()):
            group = {number: each for number, each in asked.items() if each.metadata.message_type == kind}
            try:
                replies += self._answered(kind, group, timeout=timeout)
            except DeadlinePassed:
                continue
            for number in group:
                del self._pushed[number]
        return replies

    def _answered(self, kind: str, asked: Mapping[str, Message], *, timeout: float | None) -> list[Message]:
        sites = {self._sites.get(message.metadata.dst_node_id, ""): number for number, message in asked.items()}
        try:
            sent = _sent(list(asked.values()), sites=sites)
            weights, like = _model(sent)
            self._note_settings(sent)
            contents = self._contents(kind, weights, like, limit_seconds=timeout)
        except QueryMistaken as mistake:
            return [declined(message, number, mistake.message) for number, message in asked.items()]
        silent = self.rounds.silent()
        return [
            reply(asked[number], number, contents[site])
            if site in contents
            else declined(asked[number], number, silent.get(site, f"{site} gave nothing."))
            for site, number in sorted(sites.items())
        ]

    def _note_settings(self, sent: Sequence[RecordDict]) -> None:
        """Name settings that are not read: an app would otherwise believe in a learning rate that nobody uses."""
        names = dict.fromkeys(name for content in sent for record in content.config_records.values() for name in record)
        if news := tuple(name for name in names if name != _COUNTED and name not in self._unread):
            self._unread += news
            log.warning("%s", unread_text(news))

    def _contents(
        self, kind: str, weights: Vector, like: ArrayRecord, *, limit_seconds: float | None
    ) -> dict[str, RecordDict]:
        match kind:
            case MessageType.TRAIN:
                models = self.rounds.train(weights, limit_seconds=limit_seconds)
                return {
                    site: RecordDict(
                        {
                            ARRAYS: arrays_of(model.weights, like),
                            METRICS: MetricRecord({EXAMPLES: max(model.examples, 1.0)}),
                        }
                    )
                    for site, model in models.items()
                }
            case MessageType.EVALUATE:
                scores = self.rounds.evaluate(weights, limit_seconds=limit_seconds)
                known = [{each.name for each in found.metrics if each.value is not None} for found in scores.values()]
                everywhere = set.intersection(*known) if known else set()
                return {
                    site: RecordDict(
                        {METRICS: MetricRecord({**known_metrics(found.metrics, everywhere), EXAMPLES: found.examples})}
                    )
                    for site, found in scores.items()
                }
            case _:
                raise QueryMistaken(
                    f"a site answers train and evaluate messages, not {kind!r}: it runs no code of an app."
                )


def unread_text(names: Sequence[str]) -> str:
    """One sentence about settings that were sent in vain; their values are nobody's business."""
    return f"Sites read no settings of an app, so these have no effect: {', '.join(names)}. The request decides."


def _sent(asked: Sequence[Message], *, sites: Mapping[str, str]) -> list[RecordDict]:
    """What the messages carry; an app may send one and the same to all, and reading it once is enough."""
    if "" in sites or len(sites) != len(asked):
        raise QueryMistaken("each message of a round goes to another site of the study.")
    found: dict[int, RecordDict] = {}
    for message in asked:
        if not message.has_content():
            raise QueryMistaken(_ONE_MODEL)
        found[id(message.content)] = message.content
    return list(found.values())


def _model(sent: Sequence[RecordDict]) -> tuple[Vector, ArrayRecord]:
    """The one model that all messages carry."""
    found: list[tuple[Vector, ArrayRecord]] = []
    for content in sent:
        records = list(content.array_records.values())
        if len(records) != 1:
            raise QueryMistaken(_ONE_MODEL)
        if any(_PROXIMAL in settings for settings in content.config_records.values()):
            raise QueryMistaken("sites have no proximal term, so FedProx would be FedAvg; use that, or local_steps.")
        # Strategies put one record into what they send to each.
        if found and records[0] is found[0][1]:
            continue
        found.append((weights_in(records[0]), records[0]))
    if any(not np.array_equal(weights, found[0][0]) for weights, _ in found[1:]):
        raise QueryMistaken("a round is one plan to all sites, so all messages of it carry the same model.")
    return found[0]


def known_metrics(metrics: Sequence[Metric], names: AbstractSet[str]) -> dict[str, float]:
    """Flower takes means of numbers that every site has: a metric without an estimate at one of them is left out."""
    return {each.name: each.value for each in metrics if each.value is not None and each.name in names}
