"""Doubles for the coordinator's tests: tiny hospitals that really sign, keep a chain and add no noise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from coordinator.members.presence import Presence
from coordinator.rounds.coordinator import Coordinator
from coordinator.rounds.open_rounds import OpenRounds
from coordinator.store.ledger import begin_ledger, open_ledger
from wardround.federation.errors import FederationError, PlanRefused
from wardround.federation.forms.parts import Sums
from wardround.federation.forms.release import Release, release_hash
from wardround.federation.ledger.entry_body import encode_body
from wardround.federation.ledger.sqlite_file import Durability
from wardround.federation.ledger.verify.verify import Verification, verify
from wardround.federation.models.step_layout import StepLayout
from wardround.federation.plan.plan import Plan, form_of
from wardround.federation.plan.task import AskRequest, Declined, Failed, Pending, Released, SignedTask, Submission
from wardround.federation.question.answer import Answer, SiteState
from wardround.federation.question.query import Aggregate, Query, Statistic
from wardround.federation.study.study import Study
from wardround.federation.study.study_file import parse_study
from wardround.federation.trust.entry import EMPTY, Entry, Head, make_entry
from wardround.federation.trust.identity import Identity, Purpose
from wardround.privacy.accounting.cost import Cost
from wardround.simulation.pumped import DrivenAttendant, PumpedClock

STUDY = """\
name = "cardio"
overlap = 1
min_sites = 1
deadline_seconds = 60
approval_seconds = 3600
[budget]
epsilon = 3.0
delta = 1e-6
pure_epsilon = 0
[tables.encounters]
unit_key = "patient_id"
max_rows_per_unit = 4
[tables.encounters.columns]
age = { type = "integer", lower = 0, upper = 110 }
sbp = { type = "number", lower = 80, upper = 200, step = 0.1 }
diagnosis = { type = "category", values = ["E11", "I10", "C50"] }
smoker = { type = "boolean" }
day = { type = "date" }
"""

PATIENTS = Query("encounters", (Aggregate(Statistic.COUNT, "patient_id"),))
TRUTH = {"one": 1, "two": 10, "three": 100}
ANALYST = "ada"


def study_text(**changes: object) -> str:
    """The study above with some of its keys changed; None leaves a key out."""
    lines = []
    for line in STUDY.splitlines():
        key = line.partition(" =")[0]
        if key not in changes:
            lines.append(line)
        elif changes[key] is not None:
            lines.append(f"{key} = {changes[key]}")
    return "\n".join(lines)


def study(**changes: object) -> Study:
    return parse_study(study_text(**changes))


def ask(
    epsilon: float | None = 0.5, *, query: Query = PATIENTS, nonce: str = "", delta: float | None = None
) -> AskRequest:
    return AskRequest(query, epsilon, delta, nonce)


@dataclass
class Hospital:
    """One site with a true count and its own signed chain; `mood` is what it does with the next task."""

    name: str
    count: int
    study: Study
    mood: str = "release"
    identity: Identity = field(default_factory=Identity.generate)
    head: Head = EMPTY
    kept: dict[str, Submission] = field(default_factory=dict)
    held: list[Plan] = field(default_factory=list)
    seen: list[SignedTask] = field(default_factory=list)
    events: list[str] = field(default_factory=list)
    noise: Callable[[int], np.ndarray] | None = None

    def sign(self, kind: str, **body: str) -> Entry:
        entry = make_entry(self.identity, after=self.head, kind=kind, body=encode_body(body))
        self.head = entry.head
        return entry

    def values(self, plan: Plan) -> np.ndarray:
        """The count in every cell of every part, on the part's grid; a mean is of `count` values in the middle."""
        form = form_of(plan, self.study)
        if isinstance(form, StepLayout):
            return np.full(form.dimension, self.count, dtype=np.int64)
        cells: list[int] = []
        for part in form.parts:
            one = part.increment
            if part.sums is Sums.COUNTED_LEVELS:
                high = part.quantisers[0].high
                cells += [self.count * (high // 2), self.count * (high - high // 2)] * part.groups
            else:
                cells += [self.count * one] * part.groups
        exact = np.array(cells, dtype=np.int64)
        return exact if self.noise is None else exact + self.noise(exact.size)

    def release(self, plan: Plan, *, values: np.ndarray | None = None) -> Released:
        answer = self.values(plan) if values is None else values
        self.sign("charged", plan_id=plan.plan_id)
        payload = Release(plan.plan_id, self.name, "2026-01-31", answer).encode()
        return Released(
            plan.plan_id, payload, self.sign("released", plan_id=plan.plan_id, release_hash=release_hash(payload))
        )

    def decline(self, plan: Plan, code: str = "PlanRefused") -> Declined:
        return Declined(plan.plan_id, code, self.sign("refused", plan_id=plan.plan_id, code=code))

    def answer(self, plan: Plan) -> Submission:
        if plan.plan_id in self.kept:
            return self.kept[plan.plan_id]
        match self.mood:
            case "release":
                try:
                    self.kept[plan.plan_id] = self.release(plan)
                except PlanRefused:
                    self.kept[plan.plan_id] = self.decline(plan)
            case "refuse":
                self.kept[plan.plan_id] = self.decline(plan)
            case "hold":
                self.held.append(plan)
                return Pending(plan.plan_id)
            case _:
                return Failed(plan.plan_id)
        return self.kept[plan.plan_id]

    def step(self, coordinator: Coordinator) -> bool:
        """Claim one task and answer it; False when there is nothing to do or the hospital sleeps."""
        if self.mood == "sleep":
            return False
        try:
            signed = coordinator.claim(self.name, wait_seconds=0.0)
            if signed is None:
                return False
            self.seen.append(signed)
            submission = self.answer(signed.task.plan)
            receipt = coordinator.submit(self.name, submission)
        except FederationError as error:
            self.events.append(error.code)
            return False
        if isinstance(submission, Released | Declined):
            assert receipt is not None
            assert receipt.signed_by(coordinator.identity.public)
        return True

    def approve(self, coordinator: Coordinator) -> None:
        """The steward says yes to everything held."""
        self.mood = "release"
        for plan in self.held:
            coordinator.submit(self.name, self.answer(plan))
        self.held.clear()


class World:
    """A coordinator without threads and its hospitals; waiting lets the hospitals work, one turn each."""

    def __init__(self, folder: Path, *, noiseless: bool = True, counts_calls: bool = False, **changes: object) -> None:
        self.folder = folder
        self.counts_calls = counts_calls
        self.study = study(**changes)
        (folder / "study.toml").write_text(study_text(**changes), encoding="utf-8")
        self.identity = Identity.generate()
        self.identity.save(folder / "identity.pem")
        self.noiseless = noiseless
        self.hospitals: dict[str, Hospital] = {}
        self.rounds = OpenRounds()
        self.clock = PumpedClock(self.pump, date=1000.0)
        begin_ledger(folder, study=self.study, identity=self.identity, keeping=Durability.FILE).close()
        self.coordinator = self.opened()
        self.coordinator.roster.add_analyst(ANALYST)

    def opened(self) -> Coordinator:
        return Coordinator(
            open_ledger(self.folder, study=self.study, identity=self.identity, keeping=Durability.FILE),
            clock=self.clock,
            attendant=DrivenAttendant(),
            rounds=self.rounds,
            presence=Presence() if self.counts_calls else None,
            noiseless=self.noiseless,
        )

    def restart(self) -> None:
        """Lose everything that is not on disk, and go on from there."""
        self.coordinator.ledger.close()
        self.rounds = OpenRounds()
        self.clock = PumpedClock(self.pump, date=self.clock.date())
        self.coordinator = self.opened()
        self.coordinator.resume()

    def enrol(self, name: str, *, count: int, patients: int = 1000, mood: str = "release") -> Hospital:
        hospital = Hospital(name, count, self.study, mood)
        hospital.sign("opened", role="site")
        self.coordinator.roster.enrol_site(
            name=name,
            identity=hospital.identity.public,
            patients=patients,
            dataset="ehr",
            study_signature=hospital.identity.sign(Purpose.STUDY, bytes.fromhex(self.study.study_hash)),
        )
        self.hospitals[name] = hospital
        return hospital

    def pump(self) -> bool:
        turns = [hospital.step(self.coordinator) for hospital in self.hospitals.values()]
        return any(turns)

    def watch(self, plan_id: str, *, analyst: str = ANALYST) -> Answer:
        told = self.coordinator.watch(analyst, plan_id, seen=0, wait_seconds=0.0)
        assert isinstance(told, Answer)
        return told

    def ask(self, request: AskRequest | None = None) -> Answer:
        return self.watch(self.coordinator.ask(ANALYST, ask() if request is None else request))

    def states(self, plan: Plan) -> dict[str, SiteState]:
        """Where every participant is, as the coordinator knows it."""
        with self.coordinator._rounds.looking(plan.plan_id) as found:
            if found is not None:
                return dict(found.states)
        return self.coordinator.ledger.tasks.states(plan.plan_id)

    def kinds(self) -> list[str]:
        """The kinds of the coordinator's entries, in order."""
        with self.coordinator.ledger.database.reading() as connection:
            return [row[0] for row in connection.execute("SELECT kind FROM entries ORDER BY sequence")]

    def close(self) -> None:
        self.coordinator.close()

    def verified(self) -> Verification:
        """The verdict of `ledger verify` on the coordinator's folder."""
        return verify(self.folder)

    def spent(self) -> Cost:
        return self.coordinator._accounting.balances().whole


def oracle(folder: Path, *, moods: dict[str, str] | None = None, **changes: object) -> World:
    """Three hospitals with true counts 1, 10 and 100: one glance at a number names the bug."""
    world = World(folder, **changes)  # type: ignore[arg-type]
    for name, count in TRUTH.items():
        world.enrol(name, count=count, mood=(moods or {}).get(name, "release"))
    return world
