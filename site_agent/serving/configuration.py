"""site.toml: one hospital, in its own words. The policy here has the last word over every plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from site_agent.answering.admission import Approval, Policy
from site_agent.answering.memory_check import Room
from site_agent.reading.dataset import FORMATS, Declared, TableSource, kind_of
from site_agent.reading.memory_limits import LEAST_MEBIBYTES, MEMORY_MEBIBYTES, Limits
from wardround.federation.errors import ConfigurationMistaken
from wardround.federation.limits import MAX_SITES, NAME
from wardround.federation.question.query import Statistic
from wardround.federation.statistics import ALLOWED_BY_DEFAULT
from wardround.federation.strict_toml import Section, address_fault, nearest, parse, read_text
from wardround.federation.study.study import Study, delta_fault
from wardround.federation.trust.public_limits import TRAINING
from wardround.privacy.budget.filter import Cap

_MOST_MEBIBYTES = 2**24
_MOST_ROWS = 10**12
_EXAMPLES = {"public": '"icd_codes"', "key": '"pid", "persons.id"'}


@dataclass(frozen=True, slots=True)
class SiteConfiguration:
    """What the hospital decided: its name, its coordinator, its tables and its policy."""

    name: str
    patients: int
    dataset: str
    account: str | None
    address: str | None
    proxy: str | None
    tables: Mapping[str, TableSource]
    policy: Policy
    limits: Limits


def read_site(path: Path, study: Study) -> SiteConfiguration:
    """The configuration in a file, checked against the study the site signs."""
    return parse_site(read_text(path), study, name=path.name)


def parse_site(text: str, study: Study, *, name: str = "site.toml") -> SiteConfiguration:
    """The configuration in a text, checked against the study the site signs."""
    top = parse(text, name=name)
    site = top.section("site")
    title = site.text("name")
    if not NAME.fullmatch(title):
        raise site.fault("name", "letters, digits, '-' and '_', beginning with a letter")
    patients = site.integer("patients", lower=1, upper=10**10)
    dataset = site.text("dataset", title)
    account = site.text("account") if site.has("account") else None
    memory = site.integer("memory_mebibytes", MEMORY_MEBIBYTES, lower=LEAST_MEBIBYTES, upper=_MOST_MEBIBYTES)
    site.close()
    coordinator = top.section("coordinator", required=False)
    address = coordinator.text("address") if coordinator.has("address") else None
    if address is not None and (fault := address_fault(address)) is not None:
        raise coordinator.fault("address", fault)
    proxy = coordinator.text("proxy") if coordinator.has("proxy") else None
    coordinator.close()
    tables = _tables(top.section("tables"), study)
    limits = Limits(memory_mebibytes=memory)
    rows = {table: source.rows for table, source in tables.items() if source.rows is not None}
    policy = _policy(top.section("policy"), study, Room(limits, patients, rows))
    top.close()
    if (fault := delta_fault(policy.cap.delta, {title: patients})) is not None:
        raise ConfigurationMistaken(f"{name}: policy.delta: {fault}")
    return SiteConfiguration(title, patients, dataset, account, address, proxy, tables, policy, limits)


def _tables(section: Section, study: Study) -> dict[str, TableSource]:
    known = [table.name for table in study.tables]
    tables: dict[str, TableSource] = {}
    for name in section.names():
        if name not in known:
            raise ConfigurationMistaken(f"{section.file}: the study has no table {name!r}; {nearest(name, known)}")
        entry = section.section(name)
        relation = entry.text("relation") if entry.has("relation") else None
        tables[name] = TableSource(
            entry.text("source"),
            relation,
            rank=entry.text("rank") if entry.has("rank") else None,
            timeout_seconds=entry.number("timeout_seconds", 600.0, lower=1.0, upper=86_400.0),
            prepared_hours=entry.number("prepared_hours", 24.0, lower=0.0, upper=24.0 * 366),
            rows=entry.integer("rows", lower=1, upper=_MOST_ROWS) if entry.has("rows") else None,
            declared=_declared(entry),
        )
        entry.close()
        if tables[name].rank is not None and kind_of(tables[name].source) != "postgresql":
            raise entry.fault("rank", "left out: only a PostgreSQL source uses a rank column")
        if relation is not None:
            # Reading a SELECT needs the SQL parser; a site that names none does without it.
            from site_agent.reading.relations.hospital_select import check_relation  # noqa: PLC0415

            check_relation(study.table(name), tables[name])
    return tables


def _declared(entry: Section) -> Declared:
    """What the hospital says about the tables that its SELECT reads."""
    declared = Declared(entry.texts("public", ()), entry.texts("key", ()))
    for word, names in (("public", declared.public), ("key", declared.keys)):
        if names and not entry.has("relation"):
            raise entry.fault(word, "left out: it is about the tables that a SELECT in relation reads")
        if any(not all(part.strip() == part != "" for part in name.split(".")) for name in names):
            raise entry.fault(word, f"a list of names as the SELECT writes them, such as [{_EXAMPLES[word]}]")
    if declared.public and kind_of(entry.text("source")) in FORMATS:
        raise entry.fault("public", "left out: a SELECT over files reads these files alone")
    return declared


def _policy(section: Section, study: Study, room: Room) -> Policy:
    epsilon = section.number("epsilon", lower=0.0, upper=1e4)
    delta = section.number("delta", lower=0.0, upper=1.0)
    # A hospital that does not mention the pure lane follows the study's, inside its own cap.
    pure = section.number("pure_epsilon", min(study.cap.pure_epsilon, epsilon), lower=0.0, upper=1e4)
    try:
        cap = Cap(epsilon=epsilon, delta=delta, pure_epsilon=pure)
    except ValueError as error:
        raise ConfigurationMistaken(f"{section.file}: {section.path}: {error}.") from None
    # Keys are texts of the hospital's own tables: they leave only where the hospital wrote the word down.
    names = section.texts("statistics", (*(s.value for s in ALLOWED_BY_DEFAULT), TRAINING))
    known = [*(s.value for s in Statistic), TRAINING]
    for name in names:
        if name not in known:
            raise ConfigurationMistaken(
                f"{section.file}: policy.statistics: unknown statistic {name!r}; {nearest(name, known)}"
            )
    policy = Policy(
        cap=cap,
        max_epsilon_per_plan=section.number("max_epsilon_per_plan", epsilon, lower=0.0, upper=1e4),
        statistics=tuple(Statistic(name) for name in names if name != TRAINING),
        approval=Approval(section.text("approval", Approval.AUTOMATIC.value, choices=[a.value for a in Approval])),
        training=TRAINING in names,
        min_sites=_min_sites(section, study),
        analysts=_analysts(section),
        room=room,
    )
    section.close()
    return policy


def _analysts(section: Section) -> tuple[str, ...]:
    """Who may ask; everybody where the hospital names nobody."""
    names = section.texts("analysts", ())
    if section.has("analysts") and not (names and all(map(NAME.fullmatch, names))):
        raise section.fault("analysts", 'a list of analysts\' names, such as ["amira", "ben"]; or left out')
    return names


def _min_sites(section: Section, study: Study) -> int:
    """A hospital may ask for more company than the study does, and not for less."""
    least = section.integer("min_sites", study.min_sites, lower=1, upper=MAX_SITES)
    if least < study.min_sites:
        raise section.fault("min_sites", f"{study.min_sites} or more, because the study itself needs so many sites")
    return least
