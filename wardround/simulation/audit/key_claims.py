"""Which values an open category has, planned, read and bounded as a site does it, in two worlds.

The canary has every value there is, and the plan pays for one: all but one of them must be left out.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from site_agent.answering.pipeline import key_counts
from wardround.analyst.asking.builder import query
from wardround.federation.plan.plan import selection, shape_of
from wardround.federation.study.study import Study
from wardround.privacy.noise.distribution import Mechanism
from wardround.simulation.audit.coin_claims import MOST_KEYS, told_apart
from wardround.simulation.audit.findings import AuditFinding, Measure, Method, judged
from wardround.simulation.audit.question_claims import NOISE, Setting, plan_of
from wardround.simulation.audit.worlds import TABLE, Worlds, audit_study, one_canary

QUESTION = query(TABLE).keys("code").query


# So many that every value passes its threshold: what is told apart is then its count.
PATIENTS = 600


def key_claims(folder: Path, setting: Setting, tell: Callable[[str], None]) -> list[AuditFinding]:
    """The question under both kinds of noise."""
    study, worlds = audit_study(max_groups=1), one_canary(folder, patients=PATIENTS)
    found: list[AuditFinding] = []
    for mechanism in (Mechanism.DISCRETE_LAPLACE, Mechanism.DISCRETE_GAUSSIAN):
        name = f"values of an open category, {NOISE[mechanism]}"
        tell(name)
        found.append(_claim(name, study, worlds, mechanism, setting))
    return found


def _claim(name: str, study: Study, worlds: Worlds, mechanism: Mechanism, setting: Setting) -> AuditFinding:
    plan = plan_of(QUESTION, study, mechanism)
    form = shape_of(plan, study)
    fact = selection(plan.laws()[0], form.parts[0], plan.threshold)
    with_unit, without = (key_counts(world.keys(form), fact).counts for world in (worlds.with_unit, worlds.without))
    moved = [key for key in with_unit if with_unit[key] != without.get(key, 0)]
    if len(moved) != 1:
        # More values than are paid for are a violation; none is an audit that was asleep.
        return judged(name, Method.TWO_WORLDS, Measure.EPSILON, claimed=1.0, certified=float(len(moved)))
    draws = min(setting.draws, MOST_KEYS)
    measure, claimed, certified = told_apart(
        with_unit[moved[0]], without.get(moved[0], 0), fact, draws, alpha=setting.alpha
    )
    return judged(name, Method.TWO_WORLDS, measure, claimed=claimed, certified=certified)
