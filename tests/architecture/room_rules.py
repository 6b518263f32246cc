"""The rules of the rooms: who may import a driver, the wire, Flower, or name a statistic."""

from __future__ import annotations

import ast
import re

from tests.architecture.rules import Module, allowed, imported, used, within

# Messages never travel past the codec.
GENERATED_ALLOWED = (
    "protos._generated*",
    "protos.cohorts",
    "protos.words",
    "protos.pages",
    "protos.chunked_release",
    "protos.calls",
    "protos.statuses",
    "coordinator.serving.*_service",
    "coordinator.serving.serve",
    "site_agent.serving.link",
    "wardround.analyst.link.link",
)
# Flower is an extra of the analyst's, and no site or coordinator ever needs it.
FLOWER_ALLOWED = ("wardround.analyst.flower*",)
# What Flower does not call public.
FLOWER_INSIDE = (
    "flwr.supercore",
    "flwr.common",
    "flwr.proto",
    "flwr.app.exception",
    "flwr.app.message",
    "flwr.server",
    "flwr.superlink",
    "flwr.compat",
)
FLOWER_INSIDE_ALLOWED = ("wardround.analyst.flower.messages",)
# Who may know a database driver: each role's storage room, what is under every ledger, and sources of rows.
DRIVERS = ("sqlite3", "psycopg")
DRIVERS_ALLOWED = (
    "coordinator.store*",
    "site_agent.store*",
    "site_agent.reading.sources.sqlite*",
    "site_agent.reading.sources.postgresql*",
    "wardround.federation.ledger*",
)
# Each role has one storage room: outside it there is no SQL, no connection and nothing that works on one.
STORES = {"coordinator": "coordinator.store", "site_agent": "site_agent.store"}
STORE_INSIDE = ("chain", "accounts", "sqlite_file.Database")
STORE_VERBS = frozenset(("execute", "executemany", "fetchone", "fetchall", "database"))
SQL = re.compile(r"\s*(?:SELECT|INSERT|UPDATE|DELETE|CREATE|ALTER|DROP|PRAGMA|BEGIN|COMMIT|ROLLBACK)\b")
SQL_ALLOWED = ("site_agent.reading.sources*", "site_agent.reading.relations*")
# What a statistic is stands in its own file, and everything else reads the table of them.
STATISTICS_NAMED_ALLOWED = (
    "wardround.federation.statistics*",
    "wardround.federation.question.answer",  # which number of a table is no estimate
    "wardround.analyst.asking.multi_round",  # keys come first; a search for a quantile asks shares
    "wardround.analyst.learning.driver",  # who would take part, by a count
)
# Whoever reads rows sees what a part adds up, never which statistic asked.
READERS = (
    "site_agent.reading.sources*",
    "site_agent.reading.statements*",
    "site_agent.reading.columnstore*",
    "site_agent.reading.bounding.[!t]*",
)
# Estimates are given a law, a threshold or a fact, never a plan; and what they are made of knows none of them.
UNKNOWN_TO_STATISTICS = ("plan", "ledger")


def drivers(module: Module) -> list[str]:
    """A ledger is spoken to in one room, so that another database can be put there."""
    if allowed(module, DRIVERS_ALLOWED):
        return []
    return [
        f"{module.name}:{line} {name}"
        for line, name in imported(module.tree)
        if any(within(name, driver) for driver in DRIVERS)
    ]


def storage_rooms(module: Module) -> list[str]:
    """Outside a role's storage room nothing speaks SQL; inside it nothing knows who decides, or the wire."""
    role = module.name.partition(".")[0]
    if (store := STORES.get(role)) is None:
        return []
    tree = module.tree
    if within(module.name, store):
        return [
            f"{module.name}:{line} {name}"
            for line, name in imported(tree)
            if (within(name, role) and not within(name, store)) or within(name, "protos")
        ]
    shared = [f"wardround.federation.ledger.{name}" for name in STORE_INSIDE]
    found = [(line, name) for line, name in imported(tree) if any(within(name, each) for each in shared)]
    for part in () if allowed(module, SQL_ALLOWED) else ast.walk(tree):
        match part:
            case ast.Attribute(attr=name) if name in STORE_VERBS:
                found.append((part.lineno, name))
            case ast.Constant(value=str(text)) if SQL.match(text):
                found.append((part.lineno, text))
    return [f"{module.name}:{line} {name}" for line, name in found]


def statistics_by_name(module: Module) -> list[str]:
    if allowed(module, STATISTICS_NAMED_ALLOWED):
        return []
    return [f"{module.name}:{line} {name}" for line, name in used(module.tree) if _is_statistic(name)]


def rooms_of_statistics(module: Module) -> list[str]:
    """Sources know no statistic, statistics know no plan, and forms know no statistic."""
    federation = "wardround.federation"
    if allowed(module, READERS):
        unknown = [f"{federation}.statistics", f"{federation}.question.query.Statistic"]
    elif within(module.name, f"{federation}.statistics") or within(module.name, f"{federation}.forms"):
        unknown = [f"{federation}.{name}" for name in UNKNOWN_TO_STATISTICS]
        unknown += [f"{federation}.statistics"] if within(module.name, f"{federation}.forms") else []
    else:
        return []
    return [
        f"{module.name}:{line} {name}"
        for line, name in imported(module.tree)
        if any(within(name, each) for each in unknown)
    ]


def generated_imports(module: Module) -> list[str]:
    if allowed(module, GENERATED_ALLOWED):
        return []
    return [f"{module.name}:{line} {name}" for line, name in imported(module.tree) if within(name, "protos._generated")]


def flower_imports(module: Module) -> list[str]:
    """Flower stays where it is an extra, and what may change under us in one module of those."""
    found = []
    for line, name in imported(module.tree):
        outside = within(name, "flwr") and not allowed(module, FLOWER_ALLOWED)
        inside = any(within(name, each) for each in FLOWER_INSIDE) and not allowed(module, FLOWER_INSIDE_ALLOWED)
        if outside or inside:
            found.append(f"{module.name}:{line} {name}")
    return found


def _is_statistic(name: str) -> bool:
    owner, _, member = name.rpartition(".")
    return owner.rpartition(".")[2] == "Statistic" and member.isupper()
