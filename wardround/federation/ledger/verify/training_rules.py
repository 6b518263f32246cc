"""What must be true of trainings in a ledger: paid whole before any further round, and each round taken once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from wardround.federation.ledger.verify.problems import Code, Problem
from wardround.privacy.budget.facts import AnyFact, BlockFact, StepFact


class BlockRules:
    """The trainings that a ledger's charges speak of, at one site or, in a coordinator's, at several."""

    def __init__(self) -> None:
        self._rounds: dict[str, int] = {}
        self._paid_at: dict[str, set[str]] = {}
        self._went_on_at: dict[str, set[str]] = {}
        self._taken: dict[tuple[str, int], tuple[str, int]] = {}
        self._payers: dict[str, str] = {}
        self._numbers: dict[str, int] = {}

    def charged(
        self, facts: tuple[AnyFact, ...], *, plan_id: str, sites: Iterable[str], sequence: int
    ) -> Iterator[Code]:
        """What is wrong with a charge of these facts at these sites."""
        trained = [fact for fact in facts if isinstance(fact, BlockFact | StepFact)]
        if not trained:
            return
        if len(facts) > 1:
            yield Code.MALFORMED_ENTRY
        for fact in trained:
            asked = set(sites)
            match fact:
                case BlockFact():
                    if fact.block in self._rounds:
                        yield Code.REPEATED_CHARGE
                    stages = (*fact.trained, *fact.held_out)
                    if fact.rounds > sum(stage.count for stage in stages):
                        # Every round has a sum of its own, and each sum is paid for.
                        yield Code.UNPAID_STEP
                    self._rounds.setdefault(fact.block, fact.rounds)
                    self._numbers.setdefault(fact.block, sum(stage.dimension * stage.count for stage in stages))
                    self._paid_at.setdefault(fact.block, set()).update(asked)
                    self._payers.setdefault(plan_id, fact.block)
                case StepFact():
                    paid = self._paid_at.get(fact.block, set()) >= asked
                    if not paid or fact.place >= self._rounds.get(fact.block, 0):
                        yield Code.UNPAID_STEP
                    self._went_on_at.setdefault(fact.block, set()).update(asked)
            if (fact.block, fact.place) in self._taken:
                yield Code.REPEATED_STEP
            yield from self._counted(fact)
            self._taken.setdefault((fact.block, fact.place), (plan_id, sequence))

    def _counted(self, fact: BlockFact | StepFact) -> Iterator[Code]:
        """What is wrong with how many numbers a round releases: all rounds together release what was paid for."""
        left = self._numbers.get(fact.block, 0) - fact.dimension
        self._numbers[fact.block] = left
        if left < 0:
            yield Code.UNPAID_STEP

    def went_on(self, facts: tuple[AnyFact, ...], *, plan_id: str, site: str, sequence: int) -> Iterator[Code]:
        """What is wrong with a round that was forgotten and came back; of a training that was too, nothing is known."""
        if any(isinstance(fact, StepFact) and fact.block in self._rounds for fact in facts):
            yield from self.charged(facts, plan_id=plan_id, sites=(site,), sequence=sequence)

    def has_begun(self, block: str) -> bool:
        """Whether a round of this training was reserved."""
        return block in self._rounds

    def end(self) -> None:
        """No training that was paid until now goes on."""
        self._paid_at.clear()

    def given_back(self, plan_id: str, site: str) -> Iterator[Code]:
        """What is wrong with giving a plan's charge back at a site: further rounds there stood on it."""
        if (block := self._payers.get(plan_id)) is None:
            return
        if site in self._went_on_at.get(block, set()):
            yield Code.UNPAID_STEP
        self._paid_at[block].discard(site)

    def compare(self, stored: Mapping[str, tuple[str, int]]) -> Iterator[Problem]:
        """Where the table of rounds differs from the chain; a ledger from before there were any has none."""
        expected = {plan_id: key for key, (plan_id, _) in self._taken.items()}
        numbers = dict(self._taken.values())
        for plan_id in sorted(expected.keys() | stored.keys()):
            if expected.get(plan_id) != stored.get(plan_id):
                yield Problem(numbers.get(plan_id, 0), Code.WRONG_INDEX)
