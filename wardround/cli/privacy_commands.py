"""`wardround account`, `calibrate` and `audit`: what privacy costs, and whether this installation leaks no more.

They only compute: they read no study, no ledger and no patient.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import Annotated

import typer

from wardround.cli.analyst_commands import AsJson, Quiet
from wardround.cli.terminal.console import print_document, say, show
from wardround.federation.errors import Mistaken
from wardround.federation.strict_toml import nearest
from wardround.privacy.accounting import events as words
from wardround.privacy.accounting.events import Event, Schedule

# What an event is called here: its numbers, and those of them that may be left out.
_KINDS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "gaussian": (("z",), ()),
    "discrete_gaussian": (("sigma",), ("shift",)),
    "laplace": (("epsilon",), ()),
    "discrete_laplace": (("epsilon",), ("shift",)),
    "pure": (("epsilon",), ()),
    "approx": (("epsilon", "delta"), ()),
    "subsampled": (("q", "z"), ()),
}
_WHOLE = ("count", "shift")
NOT_WHAT_WAS_CLAIMED = 4


def add_to(app: typer.Typer) -> None:
    """Put the accountants, the planner and the audit on the door."""
    app.command(
        epilog="Example: wardround account --delta 1e-7 gaussian:z=25:count=800 laplace:epsilon=0.02:count=60 "
        "subsampled:q=0.01:z=1:count=1000"
    )(account)
    app.command(epilog="Example: wardround calibrate --epsilon 1 --delta 1e-6 --rounds 12 --queries 10")(calibrate)
    app.command(epilog="Example: wardround audit --draws 400000 --json")(audit)


def account(
    events: Annotated[
        list[str],
        typer.Argument(
            metavar="EVENT…",
            help="KIND:name=value:…[:count=N], where KIND is gaussian (z), laplace, discrete_laplace or pure "
            "(epsilon), approx (epsilon, delta), subsampled (q, z) or discrete_gaussian (sigma, shift).",
        ),
    ],
    delta: Annotated[float, typer.Option("--delta", metavar="D", help="The δ at which ε is given.")],
    overlap: Annotated[int, typer.Option("--overlap", metavar="K", help="How many sites one patient may be at.")] = 1,
    as_json: AsJson = False,
) -> None:
    """Show what a schedule of releases costs one patient, by every accountant."""
    from wardround.privacy.report.compare import compare

    schedule = read_schedule(events)
    try:
        lines = compare(schedule, delta=delta, overlap=overlap)
    except ValueError as error:
        raise Mistaken(_sentence(error)) from None
    if as_json:
        print_document({line.accountant: line.epsilon if math.isfinite(line.epsilon) else None for line in lines})
        return
    sites = "" if overlap == 1 else f", at each of {overlap} sites"
    say(f"{schedule.events} events{sites}; ε at δ = {delta:g}:")
    for line in lines:
        told = f"{line.epsilon:10.4g}" if math.isfinite(line.epsilon) else f"{'–':>10}"
        say(f"  {line.accountant:<11}{told}   {line.note}".rstrip())
    say(
        "Each holds if all questions were fixed before the first answer; `pld` is the tightest. None of "
        "them ever decides"
    )
    say(
        "whether a question may run: the filter does, and it holds even if each question is chosen after "
        "earlier answers."
    )


def calibrate(
    delta: Annotated[float, typer.Option("--delta", metavar="D", help="The δ of all answers together.")],
    epsilon: Annotated[float | None, typer.Option("--epsilon", metavar="E", help="The ε of all together.")] = None,
    rounds: Annotated[int, typer.Option("--rounds", metavar="T", help="How many rounds.")] = 1,
    queries: Annotated[int, typer.Option("--queries", metavar="Q", help="How many answers in each.")] = 1,
    sensitivity: Annotated[
        float, typer.Option("--sensitivity", metavar="S", help="How much one patient can change an answer.")
    ] = 1.0,
    standard_error: Annotated[
        float | None,
        typer.Option("--standard-error", metavar="SE", help="Instead of --epsilon: the standard error wanted."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Find the least noise for a budget, or the budget that a wanted noise needs."""
    from wardround.privacy.report.compare import classic_sigma, epsilon_for, plan_noise

    if (epsilon is None) == (standard_error is None):
        raise Mistaken("Give either --epsilon or --standard-error, not both.")
    shape = {"rounds": rounds, "queries": queries}
    try:
        if epsilon is None:
            wanted = standard_error or 0.0
            epsilon = epsilon_for(standard_error=wanted, delta=delta, sensitivity=sensitivity, **shape)
        plan = plan_noise(epsilon=epsilon, delta=delta, sensitivity=sensitivity, **shape)
    except ValueError as error:
        raise Mistaken(_sentence(error)) from None
    try:
        classic: float | None = classic_sigma(epsilon=epsilon, delta=delta, sensitivity=sensitivity, **shape)
    except ValueError:
        classic = None
    if as_json:
        print_document(
            {
                "sigma": plan.sigma,
                "mechanism": "discrete_gaussian",
                "classic": classic,
                "laplace": plan.laplace,
                "zcdp": plan.zcdp,
                "mu": plan.mu,
                "standard_error": {"discrete_gaussian": plan.sigma, "discrete_laplace": plan.laplace_deviation},
                "better": plan.better.value,
                "epsilon": epsilon,
                "delta": delta,
                "rounds": rounds,
                "queries": queries,
                "sensitivity": sensitivity,
            }
        )
        return
    answers = "1 answer" if rounds * queries == 1 else f"{rounds * queries} answers"
    say(f"ε = {epsilon:.4g}, δ = {delta:g} for {answers}, each changed by at most {sensitivity:g} by one patient:")
    say(f"  Gaussian, analytic   σ = {plan.sigma:.4g}   (μ = {plan.mu:.4g} in all)")
    say(f"  Gaussian, by zCDP    σ = {plan.zcdp:.4g}")
    refused = "refused: its proof ends at ε = 1" if classic is None else f"σ = {classic:.4g}"
    say(f"  Gaussian, classic    {refused}   (ε and δ split evenly)")
    say(f"  Laplace, δ = 0       b = {plan.laplace:.4g}   (standard error {plan.laplace_deviation:.4g})")
    name = "Laplace" if plan.better.value == "discrete_laplace" else "Gaussian"
    say(f"{name} noise is the smaller here. It is added once at each site.")


def read_schedule(events: list[str]) -> Schedule:
    """The schedule that the words of a command line name."""
    counts: Counter[Event] = Counter()
    try:
        for text in events:
            event, count = _read_event(text)
            counts[event] += count
        return Schedule.of(counts)
    except ValueError as error:
        raise Mistaken(_sentence(error)) from None


def _read_event(text: str) -> tuple[Event, int]:
    kind, *settings = text.split(":")
    if kind not in _KINDS:
        raise Mistaken(f"{text!r}: there is no event {kind!r}; {nearest(kind, _KINDS)}")
    required, optional = _KINDS[kind]
    numbers = _read_numbers(text, settings, known=(*required, *optional, "count"))
    missing = [name for name in required if name not in numbers]
    if missing:
        raise Mistaken(f"{text!r}: a {kind} event needs {' and '.join(missing)}, as in {_example(kind)}.")
    count = int(numbers.pop("count", 1.0))
    if count < 1:
        raise Mistaken(f"{text!r}: count must be at least 1.")
    shift = int(numbers.pop("shift", 1.0))
    try:
        match kind:
            case "gaussian":
                return words.Gaussian(**numbers), count
            case "discrete_gaussian":
                return words.DiscreteGaussian(**numbers, shift=shift), count
            case "laplace":
                return words.Laplace(**numbers), count
            case "discrete_laplace":
                return words.DiscreteLaplace(**numbers, shift=shift), count
            case "pure":
                return words.Pure(**numbers), count
            case "approx":
                return words.Approximate(**numbers), count
            case _:
                return words.SubsampledGaussian(**numbers), count
    except ValueError as error:
        raise Mistaken(f"{text!r}: {error}.") from None


def _read_numbers(text: str, settings: list[str], *, known: tuple[str, ...]) -> dict[str, float]:
    numbers: dict[str, float] = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        if name not in known:
            raise Mistaken(f"{text!r}: unknown key {name!r}; {nearest(name, known)}")
        if name in numbers:
            raise Mistaken(f"{text!r}: {name} is given twice.")
        try:
            numbers[name] = float(int(value)) if name in _WHOLE else float(value)
        except (ValueError, OverflowError):
            kind = "a whole number" if name in _WHOLE else "a number"
            told = f"{value!r} is not {kind}" if equals else f"say {name}=…"
            raise Mistaken(f"{text!r}: {name} must be {kind}; {told}.") from None
    return numbers


def _example(kind: str) -> str:
    values = {"z": "25", "sigma": "25", "epsilon": "0.02", "delta": "1e-9", "q": "0.01"}
    return ":".join([kind, *(f"{name}={values[name]}" for name in _KINDS[kind][0]), "count=10"])


def _sentence(error: ValueError) -> str:
    text = str(error)
    return f"{text[:1].upper()}{text[1:]}."


def audit(
    draws: Annotated[int | None, typer.Option("--draws", metavar="N", help="Draws of each world (300000).")] = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Try to tell two worlds apart, with and without one patient, through every mechanism.

    Models are trained whole, one training for every thousand draws.

    Proves a lower bound on what each mechanism leaks and compares it with what is charged. Mechanisms that are
    broken on purpose must be flagged in the same run. Exit code 4 when a claim does not hold, or was not tested
    hard enough, or a broken control was missed.
    """
    from wardround.cli.terminal.step_lines import Steps
    from wardround.simulation.audit.run import DEFAULT_DRAWS, run_audit

    with Steps("auditing", quiet=quiet) as steps:
        report = run_audit(
            draws=DEFAULT_DRAWS if draws is None else draws, tell=lambda step: steps.name(f"auditing: {step}")
        )
    if as_json:
        print_document(report.document())
    else:
        show(report.text())
    if not report.passed:
        raise typer.Exit(NOT_WHAT_WAS_CLAIMED)
