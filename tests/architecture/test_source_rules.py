"""The layout and the voice of the source are still true, and every rule that says so can fail."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

import pytest

from tests.architecture import room_rules, rules
from tests.architecture.rules import Module

Rule = Callable[[Module], list[str]]

SHIPPED_RULES: tuple[Rule, ...] = (
    rules.forbidden_names,
    rules.asserts,
    rules.broad_excepts,
    rules.seeded_randomness,
    rules.system_entropy,
    rules.fleeting_ledgers,
    rules.pickles,
    room_rules.drivers,
    room_rules.storage_rooms,
    room_rules.statistics_by_name,
    room_rules.rooms_of_statistics,
    room_rules.generated_imports,
    room_rules.flower_imports,
    rules.untyped,
    rules.empty_docstrings,
    rules.named_messages,
)

# For each rule, source that breaks it: a rule that cannot fail proves nothing.
BROKEN: tuple[tuple[Rule, str, str], ...] = (
    (rules.forbidden_names, "coordinator.round_manager", ""),
    (rules.forbidden_names, "site_agent.serving.agent", "class HTTPServer: ..."),
    (rules.forbidden_names, "site_agent.serving.agent", "async def run_jobs(): ..."),
    (rules.forbidden_names, "coordinator.rounds.coordinator", "class Client: ..."),
    (rules.too_long, "wardround.privacy.accounting.cost", "x = 1\n" * 401),
    (
        rules.empty_docstrings,
        "coordinator.rounds.round",
        "class A:\n    def f(self):\n        '''Hang up.'''\n        g()",
    ),
    (
        rules.empty_docstrings,
        "coordinator.rounds.round",
        "class A:\n    def f(self):\n        '''See `B.check`.'''\n        g()",
    ),
    (rules.named_messages, "coordinator.rounds.round", "if x:\n    msg = 'no'\n    raise ValueError(msg)"),
    (rules.asserts, "wardround.privacy.accounting.cost", "def f(x):\n    assert x > 0"),
    (rules.broad_excepts, "coordinator.rounds.round", "try:\n    f()\nexcept:\n    g()"),
    (rules.broad_excepts, "coordinator.rounds.round", "try:\n    f()\nexcept Exception:\n    g()"),
    (rules.broad_excepts, "coordinator.rounds.round", "try:\n    f()\nexcept (OSError, BaseException) as e:\n    g()"),
    (rules.broad_excepts, "coordinator.rounds.round", "with contextlib.suppress(Exception):\n    f()"),
    (rules.seeded_randomness, "wardround.privacy.noise.sampler", "import random"),
    (rules.seeded_randomness, "wardround.privacy.noise.sampler", "from random import gauss"),
    (rules.seeded_randomness, "wardround.privacy.noise.sampler", "import numpy as np\nnp.random.normal()"),
    (rules.seeded_randomness, "wardround.privacy.noise.sampler", "from numpy.random import default_rng"),
    (rules.system_entropy, "coordinator.rounds.combining", "import os\nos.urandom(8)"),
    (rules.system_entropy, "coordinator.rounds.combining", "import secrets"),
    (rules.system_entropy, "coordinator.rounds.combining", "from uuid import uuid4"),
    (rules.fleeting_ledgers, "coordinator.serving.serve", "open_ledger(folder, keeping=Durability.FILE)"),
    (rules.fleeting_ledgers, "site_agent.serving.serve", "kept = Durability.MEMORY"),
    (room_rules.drivers, "site_agent.serving.agent", "import sqlite3"),
    (room_rules.drivers, "site_agent.reading.sources.files.files", "from sqlite3 import Connection"),
    (room_rules.storage_rooms, "site_agent.answering.pipeline", "from wardround.federation.ledger import chain"),
    (
        room_rules.storage_rooms,
        "site_agent.reading.sources.sqlite.table",
        "from wardround.federation.ledger.sqlite_file import Database",
    ),
    (room_rules.storage_rooms, "site_agent.serving.steward", "connection.execute('DELETE FROM requests')"),
    (rules.pickles, "coordinator.serving.site_service", "import pickle"),
    (rules.pickles, "site_agent.serving.agent", "from multiprocessing.connection import Client"),
    (room_rules.drivers, "coordinator.accounts.accounting", "import sqlite3"),
    (room_rules.drivers, "coordinator.rounds.dispatch", "def late():\n    from psycopg import connect"),
    (room_rules.drivers, "wardround.federation.plan.plan", "from sqlite3 import Row"),
    (room_rules.storage_rooms, "coordinator.accounts.accounting", "from wardround.federation.ledger import chain"),
    (
        room_rules.storage_rooms,
        "coordinator.accounts.accounting",
        "from wardround.federation.ledger.accounts import debit",
    ),
    (
        room_rules.storage_rooms,
        "coordinator.members.enrolment",
        "from wardround.federation.ledger.sqlite_file import Database",
    ),
    (room_rules.storage_rooms, "coordinator.rounds.dispatch", "with ledger.database.reading() as found: ..."),
    (room_rules.storage_rooms, "coordinator.rounds.dispatch", "rows = found.execute(text).fetchall()"),
    (room_rules.storage_rooms, "coordinator.rounds.round", 'TEXT = "SELECT plan_id FROM rounds"'),
    (room_rules.storage_rooms, "coordinator.rounds.round", 'TEXT = f"""\n  UPDATE {table} SET state = 1"""'),
    (room_rules.storage_rooms, "coordinator.store.rounds", "from coordinator.accounts.accounting import Balances"),
    (room_rules.storage_rooms, "coordinator.store.rounds", "from protos import words"),
    (room_rules.storage_rooms, "coordinator.store.rounds", "from protos.words import stored_plan"),
    (room_rules.storage_rooms, "site_agent.store.requests", "def late():\n    from protos.words import TASK"),
    (
        room_rules.statistics_by_name,
        "coordinator.planning.plans",
        "from wardround.federation.question.query import Statistic\nx is Statistic.MEAN",
    ),
    (
        room_rules.statistics_by_name,
        "coordinator.planning.plans",
        "from wardround.federation import query\nquery.Statistic.KEYS",
    ),
    (
        room_rules.rooms_of_statistics,
        "site_agent.reading.sources.sqlite.table",
        "from wardround.federation.statistics import find",
    ),
    (
        room_rules.rooms_of_statistics,
        "site_agent.reading.columnstore.array_cells",
        "from wardround.federation.question.query import Statistic",
    ),
    (
        room_rules.rooms_of_statistics,
        "wardround.federation.statistics.keys",
        "from wardround.federation.plan.plan import Plan",
    ),
    (
        room_rules.rooms_of_statistics,
        "wardround.federation.forms.parts",
        "from wardround.federation.statistics import ALL",
    ),
    (room_rules.generated_imports, "coordinator.planning.plans", "from protos._generated import plan_pb2"),
    (room_rules.generated_imports, "coordinator.planning.plans", "import protos._generated.plan_pb2"),
    (room_rules.flower_imports, "site_agent.serving.agent", "import flwr"),
    (room_rules.flower_imports, "wardround.analyst.asking.client", "def late():\n    from flwr.app import Message"),
    (room_rules.flower_imports, "wardround.analyst.flower.grid", "from flwr.supercore.run import Run"),
    (room_rules.flower_imports, "wardround.analyst.flower.grid", "from flwr.app.message import make_message"),
    (rules.untyped, "coordinator.planning.plans", "from typing import Any"),
    (rules.untyped, "coordinator.planning.plans", "import typing as t\nx: t.Any = 1"),
)

SOUND: tuple[tuple[Rule, str, str], ...] = (
    (rules.forbidden_names, "wardround.analyst.asking.client", "class Client: ..."),
    (rules.forbidden_names, "site_agent.datasets", "class Dataset: ...\ndef preserve(observer): ..."),
    (rules.broad_excepts, "coordinator.rounds.round", "try:\n    f()\nexcept OSError:\n    g()"),
    (rules.broad_excepts, "coordinator.rounds.round", "try:\n    f()\nexcept BaseException:\n    undo()\n    raise"),
    (rules.broad_excepts, "site_agent.serving.agent", "try:\n    f()\nexcept Exception:\n    g()"),
    (rules.seeded_randomness, "wardround.simulation.cohort", "import random"),
    (rules.system_entropy, "wardround.privacy.noise.keystream", "import os\nos.urandom(8)"),
    (rules.fleeting_ledgers, "coordinator.serving.serve", "open_ledger(folder, keeping=Durability.DURABLE)"),
    (
        room_rules.storage_rooms,
        "site_agent.store.outbox",
        "import sqlite3\nconnection.execute('SELECT 1 FROM releases')",
    ),
    (
        room_rules.storage_rooms,
        "site_agent.reading.sources.sqlite.table",
        "import sqlite3\nconnection.execute('SELECT age FROM visits')",
    ),
    (
        room_rules.storage_rooms,
        "site_agent.serving.folder",
        "from wardround.federation.ledger.sqlite_file import LEDGER_FILE",
    ),
    (rules.pickles, "wardround.simulation.processes", "import pickle"),
    (room_rules.drivers, "coordinator.store.rounds", "import sqlite3"),
    (room_rules.drivers, "wardround.federation.ledger.chain", "import sqlite3"),
    (
        room_rules.storage_rooms,
        "coordinator.store.rounds",
        "from coordinator.store.rounds import decode_plan\nc.execute(x)",
    ),
    (
        room_rules.storage_rooms,
        "coordinator.members.folder",
        "from wardround.federation.ledger.sqlite_file import LEDGER_FILE, lost",
    ),
    (room_rules.storage_rooms, "coordinator.rounds.round", 'with ledger.one_moment():\n    f("Select a site.")'),
    (
        room_rules.statistics_by_name,
        "coordinator.planning.plans",
        "from wardround.federation.question.query import Statistic\n[*Statistic]",
    ),
    (room_rules.statistics_by_name, "wardround.federation.statistics.mean", "x = Statistic.MEAN"),
    (
        room_rules.rooms_of_statistics,
        "site_agent.reading.bounding.tally",
        "from wardround.federation.statistics import own_definition",
    ),
    (
        room_rules.rooms_of_statistics,
        "wardround.federation.statistics.keys",
        "from wardround.federation.study.study import Table",
    ),
    (room_rules.generated_imports, "coordinator.serving.site_service", "from protos._generated import plan_pb2"),
    (room_rules.flower_imports, "wardround.analyst.flower.grid", "from flwr.app import Message\nimport flwr.serverapp"),
    (room_rules.flower_imports, "wardround.analyst.flower.messages", "from flwr.supercore.run import Run"),
    (rules.untyped, "coordinator.planning.plans", "any(x)"),
)


@pytest.mark.parametrize("rule", SHIPPED_RULES, ids=lambda rule: rule.__name__)
def test_shipped_source_obeys(rule: Rule) -> None:
    found = [line for path in rules.python_files(*rules.SHIPPED) for line in rule(rules.read(path))]
    assert found == []


def test_no_file_is_longer_than_a_reader_can_hold() -> None:
    everything = rules.python_files(*rules.SHIPPED, "tests", "bench")
    assert [line for path in everything for line in rules.too_long(rules.read(path))] == []


@pytest.mark.parametrize(("rule", "name", "text"), BROKEN)
def test_a_broken_module_is_found(rule: Rule, name: str, text: str) -> None:
    assert rule(Module(name, text)) != []


@pytest.mark.parametrize(("rule", "name", "text"), SOUND)
def test_a_sound_module_is_left_alone(rule: Rule, name: str, text: str) -> None:
    assert rule(Module(name, text)) == []


def test_no_committed_text_names_a_machine_an_index_or_unfinished_work() -> None:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=rules.ROOT, capture_output=True, check=False)
    if listed.returncode != 0:
        pytest.skip("not a git checkout")
    paths = (rules.ROOT / name for name in listed.stdout.decode().split("\0") if name)
    found: list[str] = []
    for path in paths:
        if path.is_file() and b"\0" not in (raw := path.read_bytes()):
            found += rules.forbidden_text(str(path.relative_to(rules.ROOT)), raw.decode("utf-8"))
    assert found == []


@pytest.mark.parametrize(
    "line",
    [
        "see /" + "work/main",
        "'/" + "home/ada/notes'",
        "--find-links file://" + "/opt/x",
        "https://py" + "pi.org/simple",
        "# TO" + "DO: later",
    ],
)
def test_forbidden_text_is_found(line: str) -> None:
    assert rules.forbidden_text("README.md", line) != []


def test_ordinary_text_is_left_alone() -> None:
    text = "cd $HOME/work/x\nCOPY . /srv/wardround\nnetwork/home/page\n/workers/1\nDIR=/var/lib/wardround"
    assert rules.forbidden_text("docs/site.md", text) == []
