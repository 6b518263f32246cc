"""One word or more of each conversation on the wire, with every field set to something of its own."""

from __future__ import annotations

import dataclasses
import datetime
import math
from collections.abc import Mapping
from fractions import Fraction

from protos.chunked_release import Chunk
from protos.statuses import Fault
from protos.words import Claim, Poll, Returned, WantedPlan, Watch
from wardround.federation.models.training import Model, ModelKind, Stage, StageKind, Step, Training
from wardround.federation.plan.plan import Plan
from wardround.federation.plan.recalled import Recalled
from wardround.federation.plan.task import AskRequest, Declined, Failed, Pending, Released, SignedTask, Task
from wardround.federation.question.answer import (
    Answer,
    DearerNoise,
    ErrorCost,
    Estimate,
    ExpectedError,
    Foreseen,
    Loss,
    Preview,
    PrivacyStatement,
    Progress,
    Remaining,
    Shortfall,
    SiteState,
    Update,
    WhyDearer,
)
from wardround.federation.question.cohort import And, Between, Comparison, IsNull, Not, Operator, Or, Within
from wardround.federation.question.query import Aggregate, Clip, GroupBy, Grouping, Query, Statistic
from wardround.federation.question.study_budget import BudgetReport, ByOverlap, SiteBudget, Spending, Statement
from wardround.federation.trust.asked_by import AskedBy
from wardround.federation.trust.enrolment import Enrolment, Greeting, Presenting, Standing
from wardround.federation.trust.entry import EMPTY, GENESIS, Entry, Head
from wardround.federation.trust.identity import PublicIdentity
from wardround.federation.trust.public_limits import PublicLimits, PublicSite
from wardround.privacy.mechanisms.private_selection import Choosing
from wardround.privacy.noise.distribution import Mechanism

HASH, OTHER_HASH = "ab" * 32, "0123456789abcdef" * 4
SIGNATURE = bytes(range(64))
PEM = b"-----BEGIN CERTIFICATE-----\nMAo=\n-----END CERTIFICATE-----\n"
DAY = datetime.date(2025, 2, 28)

COHORT = Or(
    (
        And((Comparison("age", Operator.GREATER_OR_EQUAL, 40), Not(Comparison("sbp", Operator.LESS, 139.5)))),
        Within("dx", ("E11", "I10")),
        Between("seen", DAY, datetime.date(2025, 6, 30)),
        Comparison("died", Operator.EQUAL, value=True),
        IsNull("weight"),
    )
)
QUERY = Query(
    "visits",
    (
        Aggregate(Statistic.COUNT),
        Aggregate(Statistic.QUANTILE, "age", level=0.25, clips=(Clip("age", 18.0, 90.0),)),
        Aggregate(Statistic.HISTOGRAM, "sbp", bins=12),
        Aggregate(Statistic.CORRELATION, "sbp", ("age", "weight")),
    ),
    COHORT,
    (
        Grouping("dx", keys=("E11", "é")),
        Grouping("seen", GroupBy.MONTH),
        Grouping("age", GroupBy.BINS, edges=(0.0, 40.0, 65.5)),
    ),
)
MODEL = Model(ModelKind.PERCEPTRON, "visits", "died", ("age", "sbp"), IsNull("weight"), 8)
GRADIENTS = Stage(StageKind.GRADIENT, Fraction(4097, 1024), rounds=6, steps=2, rate=Fraction(3, 2**32))
TRAINING = Training(
    MODEL, (Stage(StageKind.MOMENTS, Fraction(1, 1024)), GRADIENTS), Fraction(1, 4), 0.5, 7, by_site=True
)
STEP = Step(TRAINING, 1, 5, bytes(range(16)), bytes(range(16, 32)), bytes(range(200)), 0.25, 64.0, (0.5, 1.5))
PLANS = (
    Plan(HASH, QUERY, Mechanism.DISCRETE_GAUSSIAN, (Fraction(4097, 1024), Fraction(8)), ("north", "south"), "n-1", 7),
    Plan(HASH, STEP, Mechanism.DISCRETE_GAUSSIAN, (Fraction(4097, 1024),), ("north",)),
    Plan(OTHER_HASH, Query("visits", (Aggregate(Statistic.COUNT, "patient_id"),)), Mechanism.DISCRETE_LAPLACE,
         (Fraction(1, 1024),), ("north",)),
    Plan(HASH, Query("visits", (Aggregate(Statistic.CHOICE, "dx"),)), Choosing.PERMUTE_AND_FLIP, (Fraction(2),),
         ("a",)),
)  # fmt: skip
HEAD = Head(3, OTHER_HASH)
ENTRY = Entry(2, HASH, "released", '{"plan_id":"x"}', SIGNATURE)
FIRST = Entry(1, GENESIS, "opened", "{}", SIGNATURE)
TASKS = tuple(
    SignedTask(Task(plan, "north", head), SIGNATURE) for plan, head in zip(PLANS, (HEAD, EMPTY) * 2, strict=True)
)
ASKED_BY = (
    AskedBy(
        "amira", PublicIdentity(OTHER_HASH), "Do dosages differ by ward? (ε of the pilot)", 0.5, 1e-7, (), SIGNATURE
    ),
    AskedBy("ben", PublicIdentity(HASH), "", None, None, (), SIGNATURE),
    AskedBy("amira", PublicIdentity(OTHER_HASH), "again", 0.5, None, (50.0, 0.25), SIGNATURE),
)
SIGNED = tuple(
    dataclasses.replace(signed, asked_by=asked_by) for signed, asked_by in zip(TASKS[:2], ASKED_BY[:2], strict=True)
)
SUBMISSIONS = (
    Released(HASH, bytes(range(40)), ENTRY),
    Declined(HASH, "PlanRefused", FIRST),
    Pending(HASH),
    Failed(HASH),
    Released(HASH, bytes(range(40)), ENTRY, (FIRST,)),
    Declined(HASH, "PlanRefused", ENTRY, (FIRST,)),
)
REQUESTS = (AskRequest(QUERY, 0.5, 1e-7, "n-1"), AskRequest(QUERY), AskRequest(STEP, nonce="again"),
            AskRequest(QUERY, 0.5, errors=(50.0, 0.25)), AskRequest(QUERY, 0.5, 1e-7, "n-1", (), ASKED_BY[0]),
            AskRequest(STEP, asked_by=ASKED_BY[1]),
            AskRequest(QUERY, 0.5, None, "", (50.0, 0.25), ASKED_BY[2]))  # fmt: skip
LOSS = Loss(0.5, 1e-7)
PRIVACY = PrivacyStatement("discrete_gaussian", LOSS, Loss(0.9, 1e-6), Remaining(2.0, 0.7), 2, "overlap 2")
ESTIMATES = (
    Estimate("count", None, (), 12.5, 1.25, (10.0, 15.0), 0.95),
    Estimate("mean", "sbp", (("dx", "E11"), ("died", True), ("n", 3), ("seen", DAY)), -1.5, 0.0, (-2.0, -1.0), 0.9,
             "slope", sampling=True),
)  # fmt: skip
ANSWERS = (
    Answer(HASH, "patient", False, True, ("north",), (("south", "PlanRefused"),), ("west",), ESTIMATES, PRIVACY),
    Answer(HASH, "event", True, False, ("north", "south"), (), (), (), PRIVACY,
           (Update("north", bytes(range(16))), Update("south", bytes(range(16, 32))))),
    Answer(HASH, "patient", False, False, ("north", "south"), (), (), (), PRIVACY, (Update("", bytes(24)),)),
    Answer(HASH, "patient", False, False, ("north",), (), (), (), PRIVACY,
           dearer=DearerNoise("discrete_laplace", WhyDearer.USED_UP, 16.0, 45.0, 0)),
)  # fmt: skip
PREVIEWS = (
    Preview(HASH, "patient", True, ("north", "south"),
            (ExpectedError("mean", "sbp", 3, 1.5, "at 1000 patients", 0.25), ExpectedError("count", None, 1, 0.0, "")),
            PRIVACY, Shortfall(3.0, 0.5)),
    Preview(HASH, "event", False, (), (), PRIVACY),
    Preview(HASH, "patient", False, ("north",), (), PRIVACY, block=OTHER_HASH),
    Preview(HASH, "patient", False, ("north", "south"), (), PRIVACY,
            foreseen=(Foreseen("south", "StatisticNotAllowed", "south does not allow HISTOGRAM"),)),
    Preview(HASH, "patient", False, ("north",), (ExpectedError("count", None, 1, 25.5, "", 1.0, 50.0),), PRIVACY,
            dearer=DearerNoise("discrete_gaussian", WhyDearer.DOES_NOT_FIT, 0.25, 0.5),
            by_error=(ErrorCost((25.0,)), ErrorCost((50.0,), LOSS, "discrete_laplace", 0.125),
                      ErrorCost((100.0,), LOSS))),
)  # fmt: skip
REPORT = BudgetReport(
    "cardio", "patient", 2, Loss(3.0, 1e-6), LOSS, Remaining(1.5, 0.25), (("basic", math.inf), ("pld", 0.5)),
    (SiteBudget("north", LOSS, frozen=True), SiteBudget("south", Loss(0.0, 0.0), frozen=False)), 7,
    ByOverlap(0.25, 0.5, 1.0), (Statement("filter", 0.5, guarantee=True), Statement("rdp", math.inf, guarantee=False)),
    (Spending(1.75e9, 3, 0.25), Spending(1.76e9, 7, 0.5)),
)  # fmt: skip
LIMITS = PublicLimits(("count", "mean", "training"), 0.5, 1e-7, by_person=True)
ENROLMENT = Enrolment(bytes(range(32)), "north", PublicIdentity(HASH), OTHER_HASH, SIGNATURE, PEM, 1000, "ehr")

SPOKEN: Mapping[str, tuple[object, ...]] = {
    "value": (True, -3, 1.5, "Müller", DAY),
    "query": (QUERY,),
    "step": (STEP,),
    "head": (HEAD, EMPTY),
    "plan": PLANS,
    "task": (*TASKS, *SIGNED),
    "entry": (ENTRY, FIRST),
    "submission": SUBMISSIONS,
    "receipt": (None, ENTRY),
    "claim request": (Poll(0.0), Poll(12.5), Poll(1.0, ENTRY)),
    "shown": ((), (FIRST, ENTRY)),
    "recalled": (
        Recalled(PLANS[0].plan_id),
        Recalled(
            PLANS[0].plan_id, PLANS[0], ASKED_BY[0], FIRST, ENTRY, Declined(PLANS[0].plan_id, "PlanRefused", ENTRY)
        ),
        Recalled(PLANS[1].plan_id, PLANS[1], None, FIRST, ENTRY, Released(PLANS[1].plan_id, bytes(range(40)), ENTRY)),
    ),
    "rejoining": (EMPTY, HEAD),
    "return after": (0, 7),
    "returned chain": ((), (FIRST, ENTRY)),
    "wanted": (WantedPlan(HASH), WantedPlan(HASH, 2**20)),
    "returned": (Returned(TASKS[0]), Returned(TASKS[1], bytes(range(40)))),
    "list after": ("", HASH),
    "reserved": ((), (HASH, PLANS[0].plan_id)),
    "claim": (Claim(None, 1.5), Claim(TASKS[0], 0.0), Claim(SIGNED[0], 0.0)),
    "chunk": (Chunk(HASH, 2, 3, bytes(range(30))),),
    "question": REQUESTS,
    "preview request": REQUESTS,
    "asked": (HASH,),
    "watch": (Watch(HASH, 3, 12.5, 7, 11),),
    "progress": (Progress(9, tuple((state.value, state) for state in SiteState)),),
    "page": ANSWERS,
    "preview": PREVIEWS,
    "sites": ((), ("north", "south")),
    "hospitals request": ("", "north"),
    "hospitals": ((), (PublicSite("north", 1000, True, LIMITS), PublicSite("south", 7, active=False))),
    "budget": (REPORT,),
    "study": ('name = "cardio"',),
    "presenting": (Presenting(), Presenting(LIMITS), Presenting(LIMITS, ENTRY)),
    "greeting": (
        Greeting("north", HASH, 1_750_000_000_123),
        Greeting("north", HASH, 1_750_000_000_123, Standing(EMPTY)),
        Greeting("north", HASH, 1_750_000_000_123, Standing(ENTRY.head, ENTRY)),
        Greeting("north", HASH, 1_750_000_000_123, Standing(ENTRY.head, ENTRY, FIRST)),
    ),
    "renewal": (PEM,),
    "renewed": (PEM,),
    "enrolment": (ENROLMENT, dataclasses.replace(ENROLMENT, limits=LIMITS)),
    "enrolled": (PEM,),
    "fault": (Fault("BudgetExceeded", "A sentence about ε.", 3.0, 0.5), Fault("PlanRefused", "No.", 0.0, 0.0)),
}
