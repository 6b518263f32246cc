"""An answer as an analyst hears it: what was stored, with what is spent and left by now."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, replace

from coordinator.accounts.accounting import Accounting, Balances
from coordinator.planning.dearer import dearer_noise
from coordinator.rounds.combining import updates
from coordinator.rounds.stored_answers import PAGE_ESTIMATES, StoredAnswer, read_answer, with_pages
from coordinator.store.ledger import Ledger
from coordinator.store.rounds import Question
from wardround.federation.errors import InvariantBroken
from wardround.federation.forms.release import decode_release
from wardround.federation.forms.totals import NoiseSetting
from wardround.federation.models.training import Step
from wardround.federation.plan.plan import Plan
from wardround.federation.question.answer import (
    Answer,
    DearerNoise,
    Excerpt,
    Loss,
    PrivacyStatement,
    Update,
)

_REMEMBERED = 10_000


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which estimates of an answer are read: those from number `first` on, at most so many if there is a limit."""

    first: int = 0
    most: int | None = None


WHOLE = Wanted()


class Telling:
    """Answers from the ledger, of a long one as much as is wanted."""

    def __init__(self, ledger: Ledger, accounting: Accounting, setting: NoiseSetting) -> None:
        self._ledger = ledger
        self._accounting = accounting
        self._setting = setting
        self.replays = Replays()

    def excerpt(self, analyst: str, question: Question, wanted: Wanted) -> Excerpt | None:
        """The stored answer to a question, if there is one."""
        plan, ledger = question.plan, self._ledger
        steps = isinstance(plan.query, Step)
        with ledger.one_moment():
            text = ledger.answers.text(plan.plan_id)
            if text is None:
                return None
            now = self._accounting.balances()
            payloads = ledger.submissions.releases(plan.plan_id) if steps else {}
        stored, first, total = self._read(plan, text, wanted)
        patients = {site.name: site.patients for site in ledger.members.sites()}
        lacking = sorted(set(plan.participants) - set(stored.outcome.answered))
        answer = Answer(
            plan_id=plan.plan_id,
            unit=ledger.study.unit.value,
            replayed=self.replays.replayed(analyst, plan.plan_id, otherwise=analyst != question.analyst),
            noiseless=stored.noiseless,
            answered=stored.outcome.answered,
            refused=stored.outcome.refused,
            missing=stored.outcome.missing,
            estimates=stored.estimates,
            privacy=statement(
                now,
                mechanism=stored.mechanism,
                cost=stored.charged,
                overlap=stored.overlap,
                composition=stored.composition,
                delta=question.delta,
            ),
            updates=self._updates(plan, stored, payloads),
            left_out=stored.left_out,
            # Said once, with the first estimates: it is reckoned anew each time.
            dearer=self.dearer(question) if first == 0 else None,
            asked_patients=sum(patients[site] for site in plan.participants) if lacking else None,
            lacking_patients=sum(patients[site] for site in lacking) if lacking else None,
        )
        return Excerpt(answer, first, total)

    def dearer(self, question: Question) -> DearerNoise | None:
        """That other noise would have been better, if so."""
        sites = self._ledger.members.sites()
        asked = {site.name: site.patients for site in sites if site.name in question.plan.addressed}
        return dearer_noise(question, self._ledger.study, asked, self._setting)

    def _read(self, plan: Plan, text: str, wanted: Wanted) -> tuple[StoredAnswer, int, int]:
        """What is stored, with the wanted estimates; the number of the first, and how many there are in all."""
        found = read_answer(text)
        if found.answer.mechanism != plan.mechanism.value:
            raise InvariantBroken(private="a stored answer was made by another plan")
        first = min(wanted.first, found.total)
        end = found.total if wanted.most is None else min(first + wanted.most, found.total)
        stored, begins = found.answer, 0
        if found.pages and first < end:
            first_page, end_page = first // PAGE_ESTIMATES, -(-end // PAGE_ESTIMATES)
            pages = self._ledger.answers.pages(plan.plan_id, first=first_page, end=end_page)
            stored, begins = with_pages(found, pages, first_page=first_page), first_page * PAGE_ESTIMATES
        return replace(stored, estimates=stored.estimates[first - begins : end - begins]), first, found.total

    def _updates(self, plan: Plan, stored: StoredAnswer, payloads: Mapping[str, bytes]) -> tuple[Update, ...]:
        """The sums of a step, which are not stored a second time: what the sites released is the answer."""
        if not isinstance(plan.query, Step):
            return ()
        releases = [decode_release(payloads[site]) for site in stored.outcome.answered]
        return updates(releases, by_site=plan.query.training.by_site)


def statement(
    now: Balances, *, mechanism: str, cost: Loss, overlap: int, composition: str, delta: float
) -> PrivacyStatement:
    """What a plan costs, and what is spent and left now."""
    return PrivacyStatement(
        mechanism=mechanism,
        charged=cost,
        spent=now.spent(),
        remaining=now.remaining(delta=delta),
        overlap=overlap,
        composition=composition,
    )


class Replays:
    """Whether the stored answer was there when an analyst asked; only for show, so only in memory."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._asked: OrderedDict[tuple[str, str], bool] = OrderedDict()

    def note(self, analyst: str, plan_id: str, *, replayed: bool) -> None:
        with self._guard:
            self._asked[analyst, plan_id] = replayed
            self._asked.move_to_end((analyst, plan_id))
            if len(self._asked) > _REMEMBERED:
                self._asked.popitem(last=False)

    def replayed(self, analyst: str, plan_id: str, *, otherwise: bool) -> bool:
        with self._guard:
            return self._asked.get((analyst, plan_id), otherwise)
