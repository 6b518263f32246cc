"""Any valid word of ours, as hypothesis strategies."""

from __future__ import annotations

import dataclasses
import datetime
import math
from fractions import Fraction

from hypothesis import strategies as st

from wardround.federation.models.training import Model, ModelKind, Stage, StageKind, Step, Training
from wardround.federation.plan.plan import Plan
from wardround.federation.plan.recalled import Recalled
from wardround.federation.plan.task import (
    ALL_SITES,
    AskRequest,
    Declined,
    Failed,
    Pending,
    Released,
    SignedTask,
    Submission,
    Task,
)
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
from wardround.federation.question.cohort import And, Between, Comparison, Expression, IsNull, Not, Operator, Or, Within
from wardround.federation.question.query import Aggregate, Clip, GroupBy, Grouping, Query, Statistic
from wardround.federation.question.study_budget import (
    BudgetReport,
    ByOverlap,
    SiteBudget,
    SiteStanding,
    Spending,
    Statement,
)
from wardround.federation.study.study import Value
from wardround.federation.trust.asked_by import AskedBy
from wardround.federation.trust.enrolment import Enrolment, Greeting, Presenting, Standing
from wardround.federation.trust.entry import EMPTY, GENESIS, Entry, Head
from wardround.federation.trust.identity import PublicIdentity
from wardround.federation.trust.public_limits import PublicLimits, PublicSite
from wardround.privacy.mechanisms.private_selection import Choosing
from wardround.privacy.noise.distribution import Mechanism

digests = st.binary(min_size=32, max_size=32).map(bytes.hex)
signatures = st.binary(min_size=64, max_size=64)
names = st.from_regex(r"[A-Za-z][A-Za-z0-9_-]{0,62}", fullmatch=True)
sites = st.lists(names, max_size=5, unique=True).map(tuple)
codes = st.from_regex(r"[A-Za-z]{1,40}", fullmatch=True)
nonces = st.from_regex(r"[A-Za-z0-9_-]{0,64}", fullmatch=True)
# What rows and older versions may hold, and what is sent: without what `plain_text` refuses, listed here once more.
texts = st.text(st.characters(exclude_characters="\x00", exclude_categories=("Cs",)), max_size=256)
_TURNING = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
plain_texts = st.text(
    st.characters(exclude_characters=_TURNING, exclude_categories=("Cc", "Cs", "Zl", "Zp")), max_size=256
)
columns = plain_texts.filter(bool)
finite = st.floats(allow_nan=False, allow_infinity=False)
amounts = st.floats(min_value=0.0, allow_infinity=False)
shares = st.floats(min_value=0.0, max_value=1.0)
counts = st.integers(0, 2**63 - 1)


def _values(texts: st.SearchStrategy[str]) -> st.SearchStrategy[Value]:
    days = st.dates(min_value=datetime.date(1, 1, 1))
    return st.one_of(st.booleans(), st.integers(-(2**63), 2**63 - 1), finite, texts, days)


def _expressions(texts: st.SearchStrategy[str]) -> st.SearchStrategy[Expression]:
    values = _values(texts)
    leaves: st.SearchStrategy[Expression] = st.one_of(
        st.builds(Comparison, columns, st.sampled_from(Operator), values),
        st.builds(Within, columns, st.lists(values, min_size=1, max_size=4).map(tuple)),
        st.builds(Between, columns, values, values),
        st.builds(IsNull, columns),
    )
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.builds(Not, inner),
            st.builds(And, st.lists(inner, min_size=1, max_size=3).map(tuple)),
            st.builds(Or, st.lists(inner, min_size=1, max_size=3).map(tuple)),
        ),
        max_leaves=8,
    )


values = _values(texts)
clips = st.builds(Clip, columns, finite, finite)
aggregates = st.builds(
    Aggregate,
    st.sampled_from(Statistic),
    st.none() | columns,
    st.lists(columns, max_size=3).map(tuple),
    st.none() | finite,
    st.none() | st.integers(1, 4096),
    st.lists(clips, max_size=2).map(tuple),
)


def _queries(texts: st.SearchStrategy[str]) -> st.SearchStrategy[Query]:
    keys = st.lists(texts.filter(bool), max_size=3).map(tuple)
    groupings = st.one_of(
        st.builds(Grouping, columns, st.just(GroupBy.VALUE), keys=keys),
        st.builds(Grouping, columns, st.just(GroupBy.MONTH)),
        st.builds(Grouping, columns, st.just(GroupBy.BINS), edges=st.lists(finite, min_size=1, max_size=4).map(tuple)),
    )
    return st.builds(
        Query,
        columns,
        st.lists(aggregates, min_size=1, max_size=4).map(tuple),
        st.none() | _expressions(texts),
        st.lists(groupings, max_size=4).map(tuple),
    )


queries = _queries(texts)
scales = st.integers(1, 2**60).map(lambda number: Fraction(number, 1024))
stages = st.builds(
    Stage,
    st.sampled_from(StageKind),
    scales,
    st.integers(1, 100_000),
    st.integers(1, 100_000),
    st.integers(1, 2**32).map(lambda number: Fraction(number, 2**32)),
)


def _trainings(texts: st.SearchStrategy[str]) -> st.SearchStrategy[Training]:
    models = st.builds(
        Model,
        st.sampled_from(ModelKind),
        columns,
        columns,
        st.lists(columns, min_size=1, max_size=4).map(tuple),
        st.none() | _expressions(texts),
        st.integers(0, 256),
    )
    return st.builds(
        Training,
        models,
        st.lists(stages, min_size=1, max_size=3).map(tuple),
        st.integers(0, 2**32 - 1).map(lambda number: Fraction(number, 2**32)),
        st.floats(min_value=0.0, exclude_min=True, allow_infinity=False),
        st.integers(0, 2**60),
        st.booleans(),
    )


@st.composite
def _steps(draw: st.DrawFn, texts: st.SearchStrategy[str]) -> Step:
    training = draw(_trainings(texts))
    stage = draw(st.integers(0, len(training.stages) - 1))
    # Any bytes: whether they are finite numbers is not the wire's question.
    numbers = st.integers(0, 4).flatmap(lambda count: st.binary(min_size=8 * count, max_size=8 * count))
    return Step(
        training,
        stage,
        draw(st.integers(0, training.stages[stage].rounds - 1)),
        draw(numbers),
        draw(numbers),
        draw(numbers),
        draw(finite),
        draw(finite),
        draw(st.lists(finite, max_size=4).map(tuple)),
    )


steps = _steps(texts)
mechanisms = st.sampled_from([*Mechanism, Choosing.PERMUTE_AND_FLIP])
plans = st.builds(
    Plan,
    digests,
    queries | steps,
    mechanisms,
    st.lists(scales, min_size=1, max_size=4).map(tuple),
    sites,
    nonces,
    st.integers(0, 2**60),
)
heads = st.just(EMPTY) | st.builds(Head, st.integers(1, 2**63 - 1), digests)
epsilons = st.none() | st.floats(min_value=0.0, exclude_min=True, allow_infinity=False)
deltas = st.none() | st.floats(min_value=0.0, max_value=1.0, exclude_max=True)
errors = st.lists(st.floats(min_value=0.0, exclude_min=True, allow_infinity=False), max_size=4).map(tuple)
identities = st.builds(PublicIdentity, digests)
asked_by = st.builds(AskedBy, names, identities, plain_texts, epsilons, deltas, errors, signatures)
tasks = st.builds(SignedTask, st.builds(Task, plans, names, heads), signatures, st.none() | asked_by)

entries = st.builds(
    Entry, st.integers(2, 2**63 - 1), digests.filter(lambda text: text != GENESIS), codes, columns, signatures
) | st.builds(Entry, st.just(1), st.just(GENESIS), codes, columns, signatures)
chains = st.lists(entries, max_size=2).map(tuple)
submissions = st.one_of(
    st.builds(Released, digests, st.binary(min_size=1, max_size=200), entries, chains),
    st.builds(Declined, digests, codes, entries, chains),
    st.builds(Pending, digests),
    st.builds(Failed, digests),
)


def _recalled(plan: Plan, answer: Submission, **others: object) -> Recalled:
    """All of it about one plan."""
    kept = answer if isinstance(answer, Released | Declined) else None
    about = None if kept is None else dataclasses.replace(kept, plan_id=plan.plan_id)
    return Recalled(plan.plan_id, plan, answer=about, **others)  # type: ignore[arg-type]


recollections = st.builds(
    _recalled,
    plans,
    submissions,
    asked_by=st.none() | asked_by,
    charged=st.none() | entries,
    receipt=st.none() | entries,
)


def _signed(request: AskRequest, asked: AskedBy | None) -> AskRequest:
    """The request with somebody's word about who asked it, on the request's own terms."""
    if asked is None:
        return request
    terms = {"epsilon": request.epsilon, "delta": request.delta, "errors": request.errors}
    return dataclasses.replace(request, asked_by=dataclasses.replace(asked, **terms))


questions = st.builds(
    _signed,
    st.builds(AskRequest, _queries(plain_texts), epsilons, deltas, nonces, errors, require=st.integers(0, ALL_SITES))
    | st.builds(AskRequest, _steps(plain_texts), nonce=nonces),
    st.none() | asked_by,
)
progress = st.builds(
    Progress,
    counts,
    sites.flatmap(lambda found: st.tuples(*(st.tuples(st.just(name), st.sampled_from(SiteState)) for name in found))),
)
statistics = st.sampled_from([statistic.value for statistic in Statistic])
units = st.sampled_from(["patient", "event"])
overlaps = st.integers(1, 10_000)
intervals = st.tuples(finite, finite).map(sorted).map(tuple)
estimates = st.builds(
    Estimate,
    statistics,
    st.none() | columns,
    st.lists(st.tuples(columns, values), max_size=4).map(tuple),
    finite,
    amounts,
    intervals,
    shares,
    texts,
    st.booleans(),
)
losses = st.builds(Loss, amounts, shares)
remaining = st.builds(Remaining, amounts, shares)
statements = st.builds(
    PrivacyStatement,
    mechanisms.map(lambda mechanism: mechanism.value),
    losses,
    losses,
    remaining,
    overlaps,
    st.sampled_from(["parallel", "overlap 2", "trusted_total"]),
)
refusals = st.lists(st.tuples(names, codes), max_size=3, unique_by=lambda pair: pair[0]).map(tuple)
dearer = st.none() | st.builds(
    DearerNoise,
    st.sampled_from(["discrete_gaussian", "discrete_laplace"]),
    st.sampled_from(WhyDearer),
    amounts,
    amounts,
    st.none() | st.integers(0, 31),
)
plain_answers = st.builds(
    Answer,
    digests,
    units,
    st.booleans(),
    st.booleans(),
    sites,
    refusals,
    sites,
    st.lists(estimates, max_size=4).map(tuple),
    statements,
    dearer=dearer,
    asked_patients=st.none() | counts,
    lacking_patients=st.none() | counts,
)


@st.composite
def _answers(draw: st.DrawFn) -> Answer:
    """An answer with estimates, or with updates of one length: a total, or those of sites that answered."""
    answer = draw(plain_answers)
    owners = draw(st.sampled_from([(), ("",), answer.answered]))
    size = 8 * draw(st.integers(1, 4))
    updates = tuple(Update(site, draw(st.binary(min_size=size, max_size=size))) for site in owners)
    return dataclasses.replace(answer, updates=updates)


answers = _answers()
expected = st.builds(
    ExpectedError,
    statistics,
    st.none() | columns,
    st.integers(1, 1_000_000),
    amounts,
    plain_texts,
    shares,
    st.none() | amounts,
)
error_costs = st.builds(
    ErrorCost,
    st.lists(amounts, min_size=1, max_size=4).map(tuple),
    st.none() | losses,
    st.none() | st.sampled_from(["discrete_gaussian", "discrete_laplace"]),
    st.none() | amounts,
)
excesses = st.builds(Shortfall, amounts, amounts)
previews = st.builds(
    Preview,
    digests,
    units,
    st.booleans(),
    sites,
    st.lists(expected, max_size=4).map(tuple),
    statements,
    st.none() | excesses,
    st.just("") | digests,
    st.lists(st.builds(Foreseen, names, codes, columns), max_size=3, unique_by=lambda each: each.site).map(tuple),
    dearer,
    st.lists(error_costs, max_size=3).map(tuple),
)
site_budgets = st.lists(
    st.builds(SiteBudget, names, losses, st.booleans(), st.none() | st.sampled_from(SiteStanding)),
    max_size=4,
    unique_by=lambda site: site.name,
).map(tuple)
reports = st.builds(
    BudgetReport,
    names,
    units,
    overlaps,
    losses,
    losses,
    remaining,
    st.lists(st.tuples(codes, amounts | st.just(math.inf)), max_size=4).map(tuple),
    site_budgets,
    counts,
    st.tuples(amounts, amounts, amounts).map(lambda three: ByOverlap(*sorted(three))),
    st.lists(st.builds(Statement, codes, amounts | st.just(math.inf), st.booleans()), max_size=4).map(tuple),
    st.lists(st.builds(Spending, st.floats(0, 1e11), counts, amounts), max_size=4).map(tuple),
)

pems = st.binary(max_size=50).map(lambda raw: b"-----BEGIN THING-----\n" + raw.hex().encode())
limits = st.builds(PublicLimits, st.lists(codes, max_size=4).map(tuple), amounts, shares, st.booleans())
presentings = st.builds(Presenting, st.none() | limits, st.none() | entries, st.sampled_from(["", "0.1.0", "1.2rc3"]))
standings = st.builds(Standing, heads, st.none() | entries, st.none() | entries)
greetings = st.builds(Greeting, names, digests, counts, st.none() | standings)
enrolments = st.builds(
    Enrolment,
    st.binary(min_size=32, max_size=32),
    names,
    st.builds(PublicIdentity, digests),
    digests,
    signatures,
    pems,
    st.integers(1, 10**10),
    columns,
    st.none() | limits,
)
hospitals = st.lists(
    st.builds(PublicSite, names, counts, st.booleans(), st.none() | limits),
    max_size=4,
    unique_by=lambda each: each.name,
).map(tuple)
