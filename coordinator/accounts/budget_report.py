"""The privacy report: what the ledger's charges cost one unit, by every accountant, and over time.

The filter's figures are the guarantee; whatever an accountant says of the realised ledger only describes it, because
a schedule that grew by reading answers was not fixed beforehand. Nothing is computed while the ledger is read, and
nothing is computed twice: only what is new is added.

A round that cost nothing, because its training was paid before, is no charge. A charge that a refusal gave back is
taken out where it stood, so the history shows what was really spent, never rises and falls again, and ends at what is
spent now.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace

from coordinator.accounts.accounting import Balances
from coordinator.store.ledger import Ledger
from coordinator.store.members import MemberState, SiteRecord
from coordinator.store.rounds import ChargeEntry
from wardround.federation.errors import LedgerCorrupt
from wardround.federation.ledger.entry_body import cost_in, decode_body, facts_in, text_in
from wardround.federation.question.answer import Loss
from wardround.federation.question.study_budget import (
    BudgetReport,
    ByOverlap,
    SiteBudget,
    SiteStanding,
    Spending,
    Statement,
)
from wardround.federation.study.study import Study
from wardround.privacy.accounting.cost import Cost
from wardround.privacy.accounting.events import Event, Schedule
from wardround.privacy.budget.facts import AnyFact
from wardround.privacy.budget.filter import epsilon_spent
from wardround.privacy.budget.parallel import groups_among, over_groups
from wardround.privacy.report.dearest_patient import dearest_patients
from wardround.privacy.report.running_accountants import RunningAccountants
from wardround.privacy.report.schedules import schedule_of

# A picture shows no more; of a longer history every second, fourth, … point is kept, and always the last.
MOST_POINTS = 256


@dataclass(frozen=True, slots=True)
class Reserved:
    """A plan with its charge at every one of its sites; of a forgotten plan, at one that recalled it."""

    plan_id: str
    date: float
    sites: frozenset[str]
    cost: Cost
    facts: tuple[AnyFact, ...]
    imported: bool = False


@dataclass(frozen=True, slots=True)
class Voided:
    """A charge given back at one site."""

    plan_id: str
    site: str


@dataclass(frozen=True, slots=True)
class Level:
    """What the dearest unit had lost after a charge, and when that was."""

    date: float
    spent: Cost


@dataclass(frozen=True, slots=True)
class _Charge:
    date: float
    cost: Cost
    schedule: Schedule
    sites: frozenset[str]


class Tally:
    """The charges of one study."""

    def __init__(self, study: Study) -> None:
        self._study = study
        self._plans = 0
        self._charges: list[_Charge] = []
        self._places: dict[str, int] = {}
        self._cells: dict[frozenset[str], Counter[Event]] = {}
        self._costs: dict[str, Cost] = {}
        self._history: list[Level] = []

    @property
    def plans(self) -> int:
        """How many plans were read, those that cost nothing included."""
        return self._plans

    @property
    def charges(self) -> int:
        """How many questions and trainings were charged."""
        return len(self._charges)

    @property
    def costs(self) -> dict[str, Cost]:
        """What each site that was ever charged has spent."""
        return dict(self._costs)

    @property
    def history(self) -> tuple[Level, ...]:
        """One level after each charge, oldest first."""
        return tuple(self._history)

    def read(self, news: Iterable[Reserved | Voided]) -> None:
        """Take in what the ledger has added, in its order."""
        for entry in news:
            match entry:
                case Reserved(cost=cost):
                    self._plans += not entry.imported
                    if cost == Cost.zero():
                        continue
                    if entry.imported and self._is_part(entry):
                        place = self._places[entry.plan_id]
                        self._ask(place, self._charges[place].sites | entry.sites)
                        continue
                    charge = _Charge(entry.date, entry.cost, schedule_of(entry.facts), entry.sites)
                    self._places[entry.plan_id] = len(self._charges)
                    self._charges.append(charge)
                    self._count(charge, 1)
                case Voided(plan_id, site) if plan_id in self._places:
                    place = self._places[plan_id]
                    self._ask(place, self._charges[place].sites - {site})
                case Voided():
                    # Nothing was charged, so nothing is given back.
                    continue
        self._catch_up()

    def schedules(self) -> dict[str, Schedule]:
        """What each site has released about its patients, as an accountant reads it."""
        found: dict[str, Schedule] = {}
        # Sites that took part in the same questions have one schedule, made once.
        made: dict[tuple[bool, ...], Schedule] = {}
        for site in sorted({site for sites in self._cells for site in sites}):
            pattern = tuple(site in sites for sites in self._cells)
            if pattern not in made:
                counts: Counter[Event] = Counter()
                for sites, cell in self._cells.items():
                    if site in sites:
                        counts.update(cell)
                made[pattern] = Schedule.of(counts)
            found[site] = made[pattern]
        return found

    def _is_part(self, entry: Reserved) -> bool:
        """Whether the same charge was imported at another site before."""
        place = self._places.get(entry.plan_id)
        return place is not None and self._charges[place].cost == entry.cost

    def _ask(self, place: int, sites: frozenset[str]) -> None:
        """The charge at this place was made at these sites, after all."""
        before = self._charges[place]
        for charge in self._charges[place : len(self._history)]:
            self._spend(charge, -1)
        del self._history[place:]
        after = replace(before, sites=sites)
        self._count(before, -1)
        self._count(after, 1)
        self._charges[place] = after

    def _catch_up(self) -> None:
        for charge in self._charges[len(self._history) :]:
            self._spend(charge, 1)
            # A clock that was set back does not turn the history round.
            date = max(charge.date, self._history[-1].date) if self._history else charge.date
            whole = over_groups(self._costs, self._study.groups_among(self._costs))
            self._history.append(Level(date, whole))

    def _spend(self, charge: _Charge, sign: int) -> None:
        for site in charge.sites:
            spent = self._costs.get(site, Cost.zero())
            self._costs[site] = Cost(
                mu_squared=spent.mu_squared + sign * charge.cost.mu_squared,
                pure=spent.pure + sign * charge.cost.pure,
                slack=spent.slack + sign * charge.cost.slack,
            )

    def _count(self, charge: _Charge, sign: int) -> None:
        cell = self._cells.setdefault(charge.sites, Counter())
        for event, count in charge.schedule.counts:
            cell[event] += sign * count
            if not cell[event]:
                del cell[event]
        if not cell:
            del self._cells[charge.sites]


@dataclass(frozen=True, slots=True)
class _Figures:
    """What only changes with a charge."""

    accountants: tuple[tuple[str, float], ...]
    by_overlap: ByOverlap
    history: tuple[Spending, ...]
    charges: int


@dataclass(frozen=True, slots=True)
class _Reading:
    """What one look at the ledger saw."""

    sites: tuple[SiteRecord, ...]
    balances: Balances
    entries: tuple[ChargeEntry, ...]
    dates: dict[str, float]


class Reporting:
    """The study's report, at any moment."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._guard = threading.Lock()
        self._tally = Tally(ledger.study)
        self._losses = RunningAccountants(ledger.study.cap.delta)
        self._epsilons: dict[Cost, float] = {}
        self._sequence = 0
        self._figures: _Figures | None = None

    def report(self, *, live: Collection[str] | None = None) -> BudgetReport:
        """The budget as the ledger has it now; `live` are the sites that are there, where that is known."""
        study = self._ledger.study
        # Whoever asks meanwhile waits here, where nobody who charges or releases ever comes by.
        with self._guard:
            seen = self._look()
            figures = self._up_to_date(seen)
        spent = seen.balances.spent()
        return BudgetReport(
            study=study.name,
            unit=study.unit.value,
            overlap=study.overlap_among(site.name for site in seen.sites),
            cap=Loss(study.cap.epsilon, study.cap.delta),
            spent=spent,
            remaining=seen.balances.remaining(delta=study.cap.delta),
            accountants=figures.accountants,
            sites=tuple(
                SiteBudget(
                    site.name,
                    seen.balances.site_spent(site.name),
                    frozen=site.state is MemberState.FROZEN,
                    standing=standing_of(site, live),
                )
                for site in seen.sites
            ),
            events=figures.charges,
            by_overlap=figures.by_overlap,
            statements=_statements(study, spent, figures),
            history=figures.history,
        )

    def _look(self) -> _Reading:
        """Read, and no more: a reader that dawdles would keep a charge from being written."""
        ledger = self._ledger
        with ledger.one_moment():
            return _Reading(
                sites=ledger.members.sites(),
                balances=Balances(ledger.study, ledger.rounds.spent()),
                entries=ledger.rounds.charges_after(self._sequence),
                dates=ledger.rounds.dates_after(self._tally.plans),
            )

    def _up_to_date(self, seen: _Reading) -> _Figures:
        if self._figures is None or seen.entries:
            # All of it is understood before any of it is counted, and counted before anything is said of it.
            news, self._figures = tuple(_news(seen)), None
            self._tally.read(news)
            self._sequence = max((entry.sequence for entry in seen.entries), default=self._sequence)
            self._figures = self._computed()
        return self._figures

    def _computed(self) -> _Figures:
        study, schedules, costs = self._ledger.study, self._tally.schedules(), self._tally.costs
        return _Figures(
            accountants=self._losses.epsilons(dearest_patients(schedules, study.groups_among(schedules))),
            by_overlap=_by_overlap(study, costs),
            history=self._thinned(),
            charges=self._tally.charges,
        )

    def _thinned(self) -> tuple[Spending, ...]:
        history = self._tally.history
        stride = 1
        while len(history) > stride * MOST_POINTS:
            # Doubled, so that the points that stay are those whose ε is known already.
            stride *= 2
        kept = [
            (number, level)
            for number, level in enumerate(history, start=1)
            if number % stride == 0 or number == len(history)
        ]
        cap = self._ledger.study.cap
        self._epsilons = {
            level.spent: self._epsilons[level.spent]
            if level.spent in self._epsilons
            else epsilon_spent(level.spent, cap)
            for _, level in kept
        }
        return tuple(Spending(level.date, number, self._epsilons[level.spent]) for number, level in kept)


def standing_of(site: SiteRecord, live: Collection[str] | None) -> SiteStanding:
    """Whether a site takes part, and is there as far as that is known."""
    match site.state:
        case MemberState.FROZEN:
            return SiteStanding.FROZEN
        case MemberState.REVOKED:
            return SiteStanding.REVOKED
        case MemberState.ACTIVE:
            return SiteStanding.AWAY if live is not None and site.name not in live else SiteStanding.ACTIVE


def _news(seen: _Reading) -> Iterator[Reserved | Voided]:
    for entry in seen.entries:
        body = decode_body(entry.body)
        plan_id = text_in(body, "plan_id")
        if entry.kind == "voided":
            yield Voided(plan_id, text_in(body, "site"))
            continue
        if entry.kind == "imported":
            # Of a plan that is no round the date is forgotten, too.
            site, date = frozenset((text_in(body, "site"),)), seen.dates.get(plan_id, 0.0)
            yield Reserved(plan_id, date, site, cost_in(body), facts_in(body), imported=True)
            continue
        sites = body.get("sites")
        if not isinstance(sites, list) or plan_id not in seen.dates:
            raise LedgerCorrupt(private="a charge does not say where or when")
        yield Reserved(plan_id, seen.dates[plan_id], frozenset(map(str, sites)), cost_in(body), facts_in(body))


def _by_overlap(study: Study, costs: dict[str, Cost]) -> ByOverlap:
    """What the sharing of patients is worth: none at all, the declared one, and everybody everywhere."""

    def epsilon(*, overlap: int | None) -> float:
        return epsilon_spent(over_groups(costs, groups_among(costs, declared=(), overlap=overlap)), study.cap)

    declared = epsilon_spent(over_groups(costs, study.groups_among(costs)), study.cap)
    return ByOverlap(one=epsilon(overlap=1), declared=declared, every=epsilon(overlap=None))


def _statements(study: Study, spent: Loss, figures: _Figures) -> tuple[Statement, ...]:
    described = (Statement(name, epsilon, guarantee=False) for name, epsilon in figures.accountants)
    return (
        Statement("cap", study.cap.epsilon, guarantee=True),
        Statement("filter", spent.epsilon, guarantee=True),
        *described,
    )
