"""The tests would notice: each mutant breaks one rule about closed tables, and the test of that rule fails on it."""

from __future__ import annotations

import importlib
import types
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.site_agent.closing import test_failures_close as failures
from tests.site_agent.closing import test_lost_connections as lost
from tests.site_agent.closing import test_unforeseen_failures as unforeseen
from tests.site_agent.closing import test_what_analysts_see as analysts
from wardround.federation.errors import FederationError

ROOT = Path(__file__).parents[3]
SQLITE = "SQLite, a function that raises"

# Where each module's word is used.
USES = {
    "site_agent.answering.closing": ("site_agent.answering.pipeline", "Closing"),
    "site_agent.store.closed_tables": ("site_agent.store.ledger", "ClosedTables"),
    "site_agent.answering.pipeline": ("tests.site_agent.lone_site", "Pipeline"),
    "coordinator.rounds.open_rounds": ("tests.coordinator.hospitals", "OpenRounds"),
    "coordinator.rounds.collection": ("coordinator.rounds.coordinator", "Collection"),
}


def closes_for_all(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    failures.test_a_failure_closes_the_table_for_twelve_cohorts_alike(folder, SQLITE, caplog)


def opens_by_a_change(folder: Path, _: pytest.LogCaptureFixture) -> None:
    failures.test_a_table_opens_by_itself_once_its_source_has_changed_or_a_steward_says_so(folder, SQLITE)


def opens_once_a_day(folder: Path, _: pytest.LogCaptureFixture) -> None:
    failures.test_a_source_that_changes_all_day_opens_its_table_once_a_day(folder)


def stays_closed(folder: Path, _: pytest.LogCaptureFixture) -> None:
    failures.test_a_closed_table_is_closed_after_a_restart_too(folder)


def counts_lost_readings(folder: Path, _: pytest.LogCaptureFixture) -> None:
    lost.test_lost_readings_of_many_plans_count_together_and_an_answer_clears_its_own(folder)


def counts_deaths(folder: Path, _: pytest.LogCaptureFixture) -> None:
    lost.test_a_row_that_ends_the_agent_closes_its_table(folder)


def lets_files_be_replaced(folder: Path, _: pytest.LogCaptureFixture) -> None:
    lost.test_a_file_that_is_gone_or_replaced_while_it_is_read_closes_nothing(folder)


def closes_whatever_failed(folder: Path, _: pytest.LogCaptureFixture) -> None:
    unforeseen.test_trainings_keys_and_choices_close_it_as_questions_do(folder, "keys")


def tells_nothing(folder: Path, _: pytest.LogCaptureFixture) -> None:
    worlds = analysts.two_worlds(folder)
    try:
        analysts.test_every_state_is_that_of_a_site_that_was_never_started(worlds)
    finally:
        for world in worlds:
            world.close()


def asks_others_first(folder: Path, _: pytest.LogCaptureFixture) -> None:
    analysts.test_what_never_failed_is_handed_out_before_what_did(folder)


class Mutant(NamedTuple):
    module: str
    old: str
    new: str
    law: Callable[[Path, pytest.LogCaptureFixture], None]


CLOSING, CLOSED, PIPELINE = (
    "site_agent.answering.closing",
    "site_agent.store.closed_tables",
    "site_agent.answering.pipeline",
)
OPEN, COLLECTION = "coordinator.rounds.open_rounds", "coordinator.rounds.collection"
MUTANTS = {
    "nothing is closed": Mutant(CLOSING, "        self._close(form.table, before)\n", "", closes_for_all),
    "only the plan that failed is closed": Mutant(
        PIPELINE, "not self.closing.is_open(form.table) or not self._checked", "not self._checked", closes_for_all
    ),
    "what was paid is read all the same": Mutant(
        PIPELINE,
        "if self.ledger.is_abandoned(plan.plan_id) or not self.closing.is_open(form.table):",
        "if self.ledger.is_abandoned(plan.plan_id):",
        closes_for_all,
    ),
    "only what was foreseen closes": Mutant(
        PIPELINE, "except Exception:", "except MemoryError:", closes_whatever_failed
    ),
    "the closing is not written down": Mutant(
        CLOSING, "        self.tables.close(table.name, source=state)\n", "", stays_closed
    ),
    "the log names the question": Mutant(
        CLOSING,
        "        self._close(form.table, before)\n",
        "        self._close(form.table, before)\n        log.info(plan_id)\n",
        closes_for_all,
    ),
    "a table opens without a change": Mutant(
        CLOSED, 'closed.source in ("", source)', 'closed.source == ""', closes_for_all
    ),
    "a table never opens by itself": Mutant(
        CLOSED, 'if closed is None or closed.source in ("", source) or', "if True or", opens_by_a_change
    ),
    "a table opens as often as its source changes": Mutant(
        CLOSED, " or self._reopened_today(connection, table)", "", opens_once_a_day
    ),
    "a change is not looked for": Mutant(CLOSING, "if after != before or", "if", lets_files_be_replaced),
    "lost readings are not counted": Mutant(
        CLOSING, "        if away.unread:\n", "        if True:\n", counts_lost_readings
    ),
    "readings that never ended do not matter": Mutant(CLOSING, " and unended < MOST_UNENDED", "", counts_deaths),
    "analysts are told that a site failed": Mutant(
        OPEN, "(SiteState.CLAIMED, SiteState.FAILED)", "(SiteState.CLAIMED,)", tells_nothing
    ),
    "analysts are told that a site took a task up": Mutant(
        OPEN, "(SiteState.CLAIMED, SiteState.FAILED)", "(SiteState.FAILED,)", tells_nothing
    ),
    "whoever watches wakes when a site fails": Mutant(
        COLLECTION,
        "self._rounds.move(plan_id, site, SiteState.FAILED, now=self._clock.now())",
        "self._move(site, plan_id, SiteState.FAILED)",
        tells_nothing,
    ),
    "what fails is handed out first": Mutant(
        OPEN,
        "if (plan_id := queue.next()) is not None:",
        "if not queue.failed and (plan_id := queue.next()):",
        asks_others_first,
    ),
}


def mutated(mutant: Mutant) -> types.ModuleType:
    """The module with this change of its source."""
    path = ROOT / (mutant.module.replace(".", "/") + ".py")
    source = path.read_text(encoding="utf-8")
    assert source.count(mutant.old) == 1, f"the mutant no longer fits {mutant.module}: {mutant.old}"
    module = types.ModuleType(mutant.module)
    module.__file__ = str(path)
    exec(compile(source.replace(mutant.old, mutant.new), str(path), "exec"), module.__dict__)  # noqa: S102 -- a mutant is source text
    return module


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_breaks_its_rule(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    mutant = MUTANTS[name]
    user, word = USES[mutant.module]
    monkeypatch.setattr(importlib.import_module(user), word, getattr(mutated(mutant), word))
    with pytest.raises((AssertionError, FederationError, OverflowError, lost.DiedError)):
        mutant.law(tmp_path, caplog)
