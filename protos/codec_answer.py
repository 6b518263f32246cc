"""Questions, progress, answers and previews, as messages and back.

A question that is too large for the tasks made from it, or holds a text that is not plain, is refused here, on both
sides, before anything is decided.
"""

from __future__ import annotations

from collections.abc import Iterable

from protos import checks
from protos._generated import answer_pb2 as pb
from protos.codec_plan import mechanism_from_number, mechanism_to_number
from protos.codec_query import (
    STATISTICS,
    column_name,
    query_from_message,
    query_to_message,
    statistic_from_number,
    value_from_message,
    value_to_message,
)
from protos.codec_training import step_from_message, step_to_message
from protos.limits import MAX_MESSAGE_BYTES
from wardround.federation.answer import (
    Answer,
    AskRequest,
    Estimate,
    Excess,
    ExpectedError,
    Loss,
    Preview,
    PrivacyStatement,
    Progress,
    Remaining,
    SiteState,
)
from wardround.federation.errors import QueryMistaken
from wardround.federation.expressions import MAX_TEXT
from wardround.federation.no_estimate import NoEstimate
from wardround.federation.plain_text import fault_in
from wardround.federation.query import MAX_AGGREGATES, MAX_GROUP_COLUMNS, Query, Statistic
from wardround.federation.shape import MAX_CELLS
from wardround.federation.study import Unit
from wardround.federation.training import Step

MAX_ESTIMATES = MAX_AGGREGATES * MAX_CELLS
MAX_NOTE = 1024
MAX_OVERLAP = 10_000
MAX_COMPOSITION = 64
# A task is the question with its participants: the names of ten thousand sites take a little more than half of a MiB.
MAX_QUESTION_BYTES = MAX_MESSAGE_BYTES * 3 // 4

_STATES = {
    SiteState.OPEN: pb.SITE_STATE_OPEN,
    SiteState.CLAIMED: pb.SITE_STATE_CLAIMED,
    SiteState.PENDING: pb.SITE_STATE_PENDING,
    SiteState.RELEASED: pb.SITE_STATE_RELEASED,
    SiteState.REFUSED: pb.SITE_STATE_REFUSED,
    SiteState.FAILED: pb.SITE_STATE_FAILED,
    SiteState.MISSING: pb.SITE_STATE_MISSING,
}
_STATES_BACK = {int(number): state for state, number in _STATES.items()}
_REASONS = {
    NoEstimate.TOO_FEW: pb.NO_ESTIMATE_TOO_FEW,
    NoEstimate.NO_SPREAD: pb.NO_ESTIMATE_NO_SPREAD,
    NoEstimate.PREDICTORS_ALIKE: pb.NO_ESTIMATE_PREDICTORS_ALIKE,
    NoEstimate.NOBODY_LEFT: pb.NO_ESTIMATE_NOBODY_LEFT,
}
_REASONS_BACK = {int(number): reason for reason, number in _REASONS.items()}
UNITS = {Unit.PATIENT: pb.UNIT_PATIENT, Unit.EVENT: pb.UNIT_EVENT}
_UNITS_BACK = {int(number): unit for unit, number in UNITS.items()}


def question_to_message(request: AskRequest) -> pb.Question:
    """A question as a message; `QueryMistaken` when its numbers cannot mean a loss, or it is too large."""
    epsilon, delta = request.epsilon, request.delta
    if epsilon is not None and not 0.0 < epsilon < float("inf"):
        msg = f"ε must be a finite number above 0, not {epsilon!r}."
        raise QueryMistaken(msg)
    if delta is not None and not 0.0 <= delta < 1.0:
        msg = f"δ must be at least 0 and below 1, not {delta!r}."
        raise QueryMistaken(msg)
    asked = request.query
    if isinstance(asked, Step) and (epsilon, delta) != (None, None):
        msg = "a step has the noise of its training; ε and δ are not given again."
        raise QueryMistaken(msg)
    message = pb.Question(
        query=query_to_message(asked) if isinstance(asked, Query) else None,
        step=step_to_message(asked) if isinstance(asked, Step) else None,
        epsilon=epsilon,
        delta=delta,
        nonce=request.nonce,
    )
    # Only now: its depth was looked at.
    if (fault := fault_in(asked)) is not None:
        raise QueryMistaken(f"a text in the question {fault}.")
    if (size := message.ByteSize()) > MAX_QUESTION_BYTES:
        msg = f"the question takes {size} bytes; at most {MAX_QUESTION_BYTES} can be sent; list fewer values."
        raise QueryMistaken(msg)
    return message


def question_from_message(message: pb.Question) -> AskRequest:
    """The question in a message."""
    checks.require(message.ByteSize() <= MAX_QUESTION_BYTES, "a question is too large.")
    epsilon = checks.finite(message.epsilon, "ε", lower=0.0) if message.HasField("epsilon") else None
    checks.require(epsilon != 0.0, "ε is not above 0.")
    delta = checks.finite(message.delta, "δ", lower=0.0) if message.HasField("delta") else None
    checks.require(delta is None or delta < 1.0, "δ is not below 1.")
    return AskRequest(
        checks.plain(_asked(message), "a text in a question"), epsilon, delta, checks.nonce(message.nonce)
    )


def _asked(message: pb.Question) -> Query | Step:
    match message.WhichOneof("asked"):
        case "query":
            return query_from_message(message.query)
        case "step":
            given = message.HasField("epsilon") or message.HasField("delta")
            checks.require(not given, "a step has the noise of its training.")
            return step_from_message(message.step)
        case None:
            raise checks.malformed("a question asks nothing.")


def progress_to_message(progress: Progress) -> pb.Progress:
    """Progress as a message."""
    sites = [pb.SiteProgress(site=site, state=_STATES[state]) for site, state in progress.sites]
    return pb.Progress(seen=progress.seen, sites=sites)


def progress_from_message(message: pb.Progress) -> Progress:
    """The progress in a message."""
    names = checks.names([site.site for site in message.sites], "the participants")
    states = [checks.member(_STATES_BACK, site.state, "a site's state") for site in message.sites]
    return Progress(checks.whole(message.seen, "progress"), tuple(zip(names, states, strict=True)))


def answer_to_message(answer: Answer, estimates: Iterable[pb.Estimate]) -> pb.Answer:
    """An answer with these of its estimates, which are messages already; its updates go beside it."""
    return pb.Answer(
        plan_id=answer.plan_id,
        unit=UNITS[Unit(answer.unit)],
        replayed=answer.replayed,
        noiseless=answer.noiseless,
        answered=answer.answered,
        refused=[pb.RefusedSite(site=site, code=code) for site, code in answer.refused],
        missing=answer.missing,
        estimates=estimates,
        privacy=_privacy_to_message(answer.privacy),
        left_out=answer.left_out,
    )


def answer_from_message(message: pb.Answer) -> Answer:
    """The answer in a message, with the estimates that came with it and no updates."""
    refused = checks.names([site.site for site in message.refused], "the sites that refused")
    codes = [checks.word(site.code, "a refusal's code") for site in message.refused]
    checks.require(len(message.estimates) <= MAX_ESTIMATES, "an answer has too many estimates.")
    checks.require(message.HasField("privacy"), "an answer does not say what it cost.")
    return Answer(
        plan_id=checks.digest(message.plan_id, "a plan id"),
        unit=unit_from_number(message.unit),
        replayed=message.replayed,
        noiseless=message.noiseless,
        answered=checks.names(message.answered, "the sites that answered"),
        refused=tuple(zip(refused, codes, strict=True)),
        missing=checks.names(message.missing, "the missing sites"),
        estimates=tuple(_estimate_from_message(estimate) for estimate in message.estimates),
        privacy=_privacy_from_message(message.privacy),
        left_out=checks.names(message.left_out, "the sites that are left out"),
    )


def estimate_to_message(estimate: Estimate) -> pb.Estimate:
    """One estimate as a message."""
    lower, upper = estimate.interval
    return pb.Estimate(
        statistic=STATISTICS[Statistic(estimate.statistic)],
        column=estimate.column,
        group=[pb.GroupKey(column=column, value=value_to_message(value)) for column, value in estimate.group],
        value=lower / 2 + upper / 2 if estimate.value is None else estimate.value,
        standard_error=upper / 2 - lower / 2 if estimate.standard_error is None else estimate.standard_error,
        lower=lower,
        upper=upper,
        confidence=estimate.confidence,
        term=estimate.term,
        sampling=estimate.sampling,
        reason=pb.NO_ESTIMATE_UNSPECIFIED if estimate.reason is None else _REASONS[estimate.reason],
    )


def _estimate_from_message(message: pb.Estimate) -> Estimate:
    checks.require(len(message.group) <= MAX_GROUP_COLUMNS, "an estimate has too many group columns.")
    lower, upper = checks.finite(message.lower, "an interval"), checks.finite(message.upper, "an interval")
    checks.require(lower <= upper, "an interval is the wrong way round.")
    value = checks.finite(message.value, "an estimate")
    error = checks.finite(message.standard_error, "a standard error", lower=0.0)
    silent = message.reason != pb.NO_ESTIMATE_UNSPECIFIED
    reason = checks.member(_REASONS_BACK, message.reason, "the reason for no estimate") if silent else None
    return Estimate(
        statistic=statistic_from_number(message.statistic).value,
        column=column_name(message.column) if message.HasField("column") else None,
        group=tuple((column_name(key.column), value_from_message(key.value)) for key in message.group),
        value=value if reason is None else None,
        standard_error=error if reason is None else None,
        interval=(lower, upper),
        confidence=checks.finite(message.confidence, "a confidence", lower=0.0, upper=1.0),
        term=checks.foreign_text(message.term, "a term", longest=MAX_TEXT, shortest=0),
        sampling=message.sampling,
        reason=reason,
    )


def unit_from_number(number: int) -> str:
    """The unit's word."""
    return checks.member(_UNITS_BACK, number, "a unit").value


def loss_to_message(loss: Loss) -> pb.Loss:
    """A loss as a message."""
    return pb.Loss(epsilon=loss.epsilon, delta=loss.delta)


def loss_from_message(message: pb.Loss) -> Loss:
    """The loss in a message."""
    return Loss(checks.finite(message.epsilon, "ε", lower=0.0), checks.finite(message.delta, "δ", lower=0.0, upper=1.0))


def remaining_to_message(remaining: Remaining) -> pb.Remaining:
    """What remains as a message."""
    return pb.Remaining(epsilon=remaining.epsilon, fraction=remaining.fraction)


def remaining_from_message(message: pb.Remaining) -> Remaining:
    """What remains, in a message."""
    return Remaining(
        checks.finite(message.epsilon, "what remains", lower=0.0),
        checks.finite(message.fraction, "the share that remains", lower=0.0, upper=1.0),
    )


def _privacy_to_message(privacy: PrivacyStatement) -> pb.PrivacyStatement:
    return pb.PrivacyStatement(
        mechanism=mechanism_to_number(privacy.mechanism),
        charged=loss_to_message(privacy.charged),
        spent=loss_to_message(privacy.spent),
        remaining=remaining_to_message(privacy.remaining),
        overlap=privacy.overlap,
        composition=privacy.composition,
    )


def _privacy_from_message(message: pb.PrivacyStatement) -> PrivacyStatement:
    return PrivacyStatement(
        mechanism=mechanism_from_number(message.mechanism).value,
        charged=loss_from_message(message.charged),
        spent=loss_from_message(message.spent),
        remaining=remaining_from_message(message.remaining),
        overlap=overlap_number(message.overlap),
        composition=checks.text(message.composition, "a composition", longest=MAX_COMPOSITION),
    )


def overlap_number(value: int) -> int:
    """An overlap within bounds."""
    return checks.whole(value, "an overlap", lower=1, upper=MAX_OVERLAP)


def preview_to_message(preview: Preview) -> pb.Preview:
    """A dry run as a message."""
    return pb.Preview(
        plan_id=preview.plan_id,
        unit=UNITS[Unit(preview.unit)],
        replayed=preview.replayed,
        sites=preview.sites,
        expected=[_expected_to_message(expected) for expected in preview.expected],
        privacy=_privacy_to_message(preview.privacy),
        excess=None if preview.excess is None else _excess_to_message(preview.excess),
    )


def preview_from_message(message: pb.Preview) -> Preview:
    """The dry run in a message."""
    checks.require(len(message.expected) <= MAX_AGGREGATES, "a preview has too many parts.")
    checks.require(message.HasField("privacy"), "a preview does not say what it would cost.")
    return Preview(
        plan_id=checks.digest(message.plan_id, "a plan id"),
        unit=unit_from_number(message.unit),
        replayed=message.replayed,
        sites=checks.names(message.sites, "the participants"),
        expected=tuple(_expected_from_message(expected) for expected in message.expected),
        privacy=_privacy_from_message(message.privacy),
        excess=_excess_from_message(message.excess) if message.HasField("excess") else None,
    )


def _excess_to_message(excess: Excess) -> pb.Excess:
    return pb.Excess(asked=excess.asked, remaining=excess.remaining)


def _excess_from_message(message: pb.Excess) -> Excess:
    return Excess(
        checks.finite(message.asked, "what is asked", lower=0.0),
        checks.finite(message.remaining, "what remains", lower=0.0),
    )


def _expected_to_message(expected: ExpectedError) -> pb.ExpectedError:
    return pb.ExpectedError(
        statistic=STATISTICS[Statistic(expected.statistic)],
        column=expected.column,
        groups=expected.groups,
        standard_error=expected.standard_error,
        note=expected.note,
        share=expected.share,
    )


def _expected_from_message(message: pb.ExpectedError) -> ExpectedError:
    return ExpectedError(
        statistic=statistic_from_number(message.statistic).value,
        column=column_name(message.column) if message.HasField("column") else None,
        groups=checks.whole(message.groups, "the number of groups", lower=1, upper=MAX_CELLS),
        standard_error=checks.finite(message.standard_error, "a standard error", lower=0.0),
        note=checks.text(message.note, "a note", longest=MAX_NOTE, shortest=0),
        share=checks.finite(message.share, "a share", lower=0.0, upper=1.0),
    )
