"""Thirty ways to break a promise, each by one small change of the source, and the tests that must notice.

A mutant names no file: it is found by the line it changes, wherever that line is moved to, and must be found once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Mutant:
    """Source text, what replaces it, and the tests of which at least one must fail then."""

    old: str
    new: str
    tests: tuple[str, ...]


def mutant(old: str, new: str, *tests: str) -> Mutant:
    return Mutant(old, new, tests)


PIPELINE, HOSTILE = (
    "tests/site_agent/answering/test_pipeline.py",
    "tests/site_agent/answering/test_hostile_coordinator.py",
)
LIMITS, BUDGET, COLLECTION = (
    "tests/site_agent/answering/test_policy_limits.py",
    "tests/coordinator/accounts/test_budget.py",
    "tests/coordinator/rounds/test_collection.py",
)
LOSS, PARALLEL, MECHANISMS = (
    "tests/privacy/accounting/test_loss.py",
    "tests/privacy/budget/test_parallel.py",
    "tests/privacy/mechanisms/test_mechanisms.py",
)
ASKING = "tests/site_agent/answering/test_hostile_asking.py"
VERIFY, EXACT = "tests/federation/ledger/test_verify_site.py", "tests/site_agent/sources/test_bounded_exactness.py"

MUTANTS: Mapping[str, Mutant] = {
    # --- a site pays, and asks nobody but itself ---
    "nothing is charged": mutant(
        "            self._spend(charge, Asking(plan, asked_by), task.head, form.table.name)\n",
        "            pass\n",
        PIPELINE,
    ),
    "a plan is answered anew each time": mutant(
        "            self._unkept.pop(plan.plan_id, None)\n            return earlier\n",
        "            self._unkept.pop(plan.plan_id, None)\n",
        PIPELINE,
    ),
    "any coordinator's signature will do": mutant(
        "    if not signed.signed_by(coordinator):\n", "    if False:\n", HOSTILE
    ),
    "another site's task will do": mutant("    if signed.task.site != site:\n", "    if False:\n", HOSTILE),
    "another study will do": mutant(
        "    if plan.study_hash != study.study_hash:\n", "    if False:\n", HOSTILE
    ),
    "a plan that is not canonical will do": mutant(
        "    if canonical.encode(form.query) != canonical.encode(plan.query) or len",
        "    if len",
        HOSTILE,
        "tests/federation/test_shape_and_plan.py",
    ),
    "a plan may cost anything": mutant(
        "    if not affordable(charge.cost, limits):\n",
        "    if False:\n",
        LIMITS,
        HOSTILE,
    ),
    "any statistic is allowed": mutant(
        "for word in dict.fromkeys(needed) if word not in limits.statistics)",
        "for word in dict.fromkeys(needed) if False)",
        HOSTILE,
        LIMITS,
    ),
    "any company will do": mutant("    if len(plan.participants) < policy.min_sites:\n", "    if False:\n", LIMITS),
    "a steward is not asked": mutant(
        "        automatic = self.policy.approval is Approval.AUTOMATIC\n", "        automatic = True\n", PIPELINE
    ),
    "an analyst's signature may be on anything": mutant(
        ", query=query, nonce=plan.nonce):\n        raise PlanRefused",
        ", query=query, nonce=plan.nonce) and False:\n        raise PlanRefused",
        ASKING,
    ),
    "an analyst pays whatever it costs": mutant(
        "    if not agreed(asked_by, admitted, study):\n", "    if False:\n", ASKING
    ),
    "another key is as good as the known one": mutant("in (None, asked_by.key.key)\n", "is not ...\n", ASKING),
    "whoever is said to ask last asked": mutant(
        "    return otherwise if row is None else _decoded(row[0])\n", "    return otherwise\n", ASKING
    ),
    "what fails leaves its table open": mutant(
        "        self._close(form.table, before)\n", "", "tests/site_agent/closing/test_failures_close.py"
    ),
    # --- noise and norms ---
    "noise is halved": mutant("_saturated(drawn, LARGEST_NOISE)", "_saturated(drawn // 2, LARGEST_NOISE)", MECHANISMS),
    "a price is rounded down": mutant("pure=_up(epsilon * PURE_UNIT)", "pure=int(epsilon * PURE_UNIT)", LOSS),
    "the coarseness of noise is free": mutant(" * (1 + 1 / (20 * variance)) ** 2", "", LOSS),
    "a patient at two sites pays at one": mutant("reverse=True)[:overlap])", "reverse=True)[:1])", PARALLEL),
    "rows of a patient are not counted into the norm": mutant(
        "    norm = frame.rows * largest\n",
        "    norm = largest\n",
        "tests/federation/test_norms_of_records.py",
        "tests/federation/test_shape_and_plan.py",
    ),
    "groups of a patient are not counted into the norm": mutant(
        "        l2_sensitivity_squared=frame.max_groups * levels**2,\n",
        "        l2_sensitivity_squared=levels**2,\n",
        "tests/federation/test_norms_of_records.py",
        "tests/federation/test_shape_and_plan.py",
    ),
    "values are not clipped": mutant(
        "    inside = whole(least(greatest(rounded, low), high))\n",
        "    inside = whole(rounded)\n",
        EXACT,
    ),
    # --- the consortium ---
    "a study's budget is not asked": mutant(
        "            if (excess := _excess(Balances(study, round_.spent), asked.question, due)) is not None:\n",
        "            if False:\n",
        BUDGET,
    ),
    "other bytes under one plan are taken": mutant(
        '            task.freeze("two answers to one plan")\n            return ReleaseConflict()\n',
        "            return task.receipt(kept.receipt)\n",
        COLLECTION,
    ),
    "an entry need not be signed": mutant(
        "    if not all(entry.signed_by(identity) for entry in entries):\n", "    if False:\n", COLLECTION
    ),
    "a forked chain is taken": mutant(
        "        if (fault := _fork(task, submission)) is not None:\n",
        "        if False:\n",
        COLLECTION,
    ),
    "a release of any length is taken": mutant(
        "                if not extent(release).is_paid_by(self._charge(plan).facts):\n",
        "                if False:\n",
        COLLECTION,
    ),
    "a refusal gives back twice": mutant(
        "                return task.receipt(kept.receipt)\n",
        "                if isinstance(submission, Declined):\n                    self._accounting.void(task)\n"
        "                return task.receipt(kept.receipt)\n",
        COLLECTION,
    ),
    "a certificate alone opens the door": mutant(
        "    if (known := ledger.members.tls_key(caller.name)) != caller.tls_key:\n",
        "    if False:\n",
        "tests/roles/test_who_may_call.py",
    ),
    # --- ledgers ---
    "a chain may be broken": mutant(
        "        if (entry.sequence, entry.previous) != (before.sequence + 1, before.digest):\n",
        "        if False:\n",
        VERIFY,
    ),
    "a ledger need not be signed": mutant("        if not entry.signed_by(signer):\n", "        if False:\n", VERIFY),
    "a release need not be paid for": mutant(
        "        if plan_id not in self._charges:\n            yield Code.UNPAID_RELEASE\n", "", VERIFY
    ),
    # --- trainings ---
    "a model is tried on those it learnt from": mutant(
        "examples.fold(held_out=stage.kind is StageKind.SCORES)",
        "examples.fold(held_out=False)",
        "tests/site_agent/learning/test_step_contributions.py",
        "tests/site_agent/learning/test_folds_of_units.py",
        "tests/analyst/learning/test_training_driver.py",
    ),
    "rows of one patient are several contributions": mutant(
        "        means /= sizes[several, np.newaxis]\n",
        "",
        "tests/site_agent/learning/test_step_contributions.py",
        "tests/site_agent/learning/test_whole_vectors.py",
    ),
    # --- screens and the wire ---
    "a site is named twice": mutant(
        "tuple(sorted(set(self.participants))) == self.participants", "True", HOSTILE,
        "tests/federation/test_shape_and_plan.py",
    ),
}  # fmt: skip
