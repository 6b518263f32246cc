"""Every charge that stands, added up as the ledger grows: by site, by event, and over time.

Only what is new is added. A round that cost nothing, because its training was paid before, is no charge. A charge that
a refusal gave back is taken out where it stood, so the history shows what was really spent, never rises and falls
again, and ends at what is spent now.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace

from wardround.federation.study.study import Study
from wardround.privacy.accounting.cost import Cost
from wardround.privacy.accounting.events import Event, Schedule
from wardround.privacy.budget.facts import AnyFact
from wardround.privacy.budget.parallel import over_groups
from wardround.privacy.report.schedules import schedule_of


@dataclass(frozen=True, slots=True)
class Reserved:
    """A plan with its charge at every one of its sites."""

    plan_id: str
    date: float
    sites: frozenset[str]
    cost: Cost
    facts: tuple[AnyFact, ...]


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
                    self._plans += 1
                    if cost == Cost.zero():
                        continue
                    charge = _Charge(entry.date, entry.cost, schedule_of(entry.facts), entry.sites)
                    self._places[entry.plan_id] = len(self._charges)
                    self._charges.append(charge)
                    self._count(charge, 1)
                case Voided(plan_id, site) if plan_id in self._places:
                    self._void(self._places[plan_id], site)
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

    def _void(self, place: int, site: str) -> None:
        before = self._charges[place]
        for charge in self._charges[place : len(self._history)]:
            self._spend(charge, -1)
        del self._history[place:]
        after = replace(before, sites=before.sites - {site})
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
