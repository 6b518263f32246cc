"""Hostile text in every place that takes text: it is refused in one sentence, or it means itself and no more.

Whatever it was, afterwards the hospital's files are the same to the last byte, nothing new lies beside them,
and no sentence tells anything that only the database knows.
"""

from __future__ import annotations

import dataclasses
import datetime
import hashlib
import json
import math
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from site_agent.reading.dataset import Dataset, TableSource
from site_agent.serving.configuration import parse_site
from site_agent.serving.open_dataset import open_dataset
from tests.fixtures.injection import PAYLOADS, SQL
from tests.site_agent.sources.conformance.sources import KEY, SOURCES
from tests.site_agent.sources.conformance.study_rows import UNIT_KEY
from tests.site_agent.sources.reference_totals import Row, reference_keys, reference_totals
from wardround.analyst.sql.read import parse
from wardround.federation.errors import FederationError, Mistaken, SchemaRefused
from wardround.federation.forms.parts import AnswerLayout
from wardround.federation.plan.layout import shape
from wardround.federation.question.cohort import Comparison, Operator, Within
from wardround.federation.question.query import Aggregate, Clip, GroupBy, Grouping, Query, Statistic
from wardround.federation.study.study import Study
from wardround.federation.study.study_file import parse_study
from wardround.privacy.noise.distribution import Mechanism

CANARY = "canary-5d1f"
COUNT = Aggregate(Statistic.COUNT)
DATABASES = [name for name in ("sqlite", "duckdb", "postgresql") if not SOURCES[name].absent()]
IDS = [f"{place:02d}" for place in range(len(PAYLOADS))]
EACH = pytest.mark.parametrize("payload", PAYLOADS, ids=IDS)


def toml(text: str) -> str:
    """A text as TOML writes it; `json` quotes alike."""
    return json.dumps(text, ensure_ascii=False).replace("\u007f", "\\u007f")


def study_text(columns: str, *, table: str = "visits", key: str = UNIT_KEY) -> str:
    return (
        'name = "trial"\nunit = "event"\n[budget]\nepsilon = 3.0\ndelta = 1e-6\n'
        f"[tables.{toml(table)}]\nunit_key = {toml(key)}\nmax_rows_per_unit = 1\n"
        f"[tables.{toml(table)}.columns]\n{columns}"
    )


COLUMNS = (
    f"dx = {{ type = 'category', values = [{', '.join(map(toml, PAYLOADS))}] }}\n"
    "note = { type = 'category' }\n"
    'age = { type = "integer", lower = 0, upper = 200 }\n'
    'seen = { type = "date", lower = "2024-01-01", upper = "2024-12-31" }\n'
)
STUDY = parse_study(study_text(COLUMNS))
ROWS: list[Row] = [
    {UNIT_KEY: f"p{place}-{copy}", "dx": payload, "note": payload, "age": place, "seen": datetime.date(2024, 1, 9)}
    for place, payload in enumerate(PAYLOADS)
    for copy in range(place % 3 + 1)
] + [{UNIT_KEY: CANARY, "dx": CANARY, "note": CANARY, "age": 7, "seen": datetime.date(2024, 2, 1)}]


def asked(query: Query, study: Study = STUDY) -> AnswerLayout:
    return shape(query, study, Mechanism.DISCRETE_LAPLACE)


def totals(source: Dataset, form: AnswerLayout) -> list[list[int]]:
    source.check(form)
    return [part.total.tolist() for part in source.bounded(form)]


@dataclasses.dataclass(frozen=True)
class Hospital:
    """Every source over the same rows, and the folder that holds all of their files."""

    folder: Path
    sources: Mapping[str, Dataset]

    def state(self) -> dict[str, str]:
        files = (path for path in self.folder.rglob("*") if path.is_file())
        return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}

    def path(self, name: str) -> str:
        return str(self.folder / name / f"visits.{name}")

    def filled(self, payload: str) -> str:
        return payload.replace("@", str(self.folder))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Hospital:
    folder = tmp_path_factory.mktemp("hospital")
    (folder / "secret.csv").write_text(f"note\n{CANARY}\n")
    sources: dict[str, Dataset] = {}
    for name in DATABASES:
        (folder / name).mkdir()
        sources[name] = SOURCES[name].opened(ROWS, STUDY, folder / name)
    return Hospital(folder, sources)


@pytest.fixture
def hospital(made: Hospital) -> Iterator[Hospital]:
    before = made.state()
    yield made
    assert made.state() == before


def sentence(error: FederationError) -> str:
    """What somebody is told: one short line that the database had no part in."""
    chain: list[BaseException] = [error]
    while (link := chain[-1].__cause__ or chain[-1].__context__) is not None:
        chain.append(link)
    assert CANARY not in " ".join(f"{link!r} {link}" for link in chain)
    assert not any(type(link).__module__.startswith(("sqlite3", "_duckdb", "duckdb", "psycopg")) for link in chain)
    assert error.message.isprintable()
    assert len(error.message) < 500
    assert error.message.endswith((".", "?", ")"))
    return error.message


def refusal(step: Callable[[], object]) -> str:
    """The sentence; empty where the step went through."""
    try:
        step()
    except FederationError as error:
        return sentence(error)
    return ""


# --- The analyst's SQL ------------------------------------------------------------------------------------


@EACH
def test_raw_text_in_a_question_is_refused_or_means_what_it_says(hospital: Hospital, payload: str) -> None:
    for text in SQL.values():
        try:
            form = asked(parse(text.replace("{}", hospital.filled(payload))))
        except Mistaken as error:
            sentence(error)
            continue
        expected = reference_totals(form, ROWS)
        for name in ("sqlite", "duckdb"):
            assert totals(hospital.sources[name], form) == expected, (text, name)


@EACH
def test_a_quoted_text_in_a_question_is_the_text_itself(payload: str) -> None:
    literal = "'" + payload.replace("'", "''") + "'"
    text = f"SELECT COUNT(*) FROM visits WHERE note = {literal}"
    query = Query("visits", (COUNT,), Comparison("note", Operator.EQUAL, payload))
    said = refusal(lambda: parse(text))
    assert said or parse(text) == query


# --- Words of a plan, as a hostile coordinator would send them --------------------------------------------


@pytest.mark.parametrize("name", DATABASES)
@EACH
def test_a_value_and_a_key_of_a_plan_are_compared_and_nothing_else(hospital: Hospital, payload: str, name: str) -> None:
    cohort = Within("note", (payload, payload + "'"))
    form = asked(Query("visits", (COUNT,), cohort, (Grouping("note", keys=(payload, "a")),)))
    place = PAYLOADS.index(payload)
    found = totals(hospital.sources[name], form)
    assert found == reference_totals(form, ROWS)
    assert sum(found[0]) == place % 3 + 1


@pytest.mark.parametrize("name", DATABASES)
def test_hostile_categories_are_groups_like_any_other(hospital: Hospital, name: str) -> None:
    form = asked(Query("visits", (COUNT,), None, (Grouping("dx"),)))
    assert totals(hospital.sources[name], form) == [[place % 3 + 1 for place in range(len(PAYLOADS))]]


@pytest.mark.parametrize("name", DATABASES)
def test_hostile_values_are_keys_like_any_other(hospital: Hospital, name: str) -> None:
    form = asked(Query("visits", (Aggregate(Statistic.KEYS, "note"),)))
    assert dict(hospital.sources[name].keys(form)) == reference_keys(form, ROWS)


PLANS: Mapping[str, Callable[[str], Query]] = {
    "table": lambda word: Query(word, (COUNT,)),
    "column": lambda word: Query("visits", (Aggregate(Statistic.SUM, word),)),
    "other column": lambda word: Query("visits", (Aggregate(Statistic.CORRELATION, "age", (word,)),)),
    "clip": lambda word: Query("visits", (Aggregate(Statistic.SUM, "age", clips=(Clip(word, 1.0, 2.0),)),)),
    "cohort": lambda word: Query("visits", (COUNT,), Comparison(word, Operator.EQUAL, 1)),
    "value of a number": lambda word: Query("visits", (COUNT,), Comparison("age", Operator.EQUAL, word)),
    "value of a date": lambda word: Query("visits", (COUNT,), Comparison("seen", Operator.LESS, word)),
    "group": lambda word: Query("visits", (COUNT,), None, (Grouping(word),)),
    "keys of a closed category": lambda word: Query("visits", (COUNT,), None, (Grouping("dx", keys=(word,)),)),
    "month": lambda word: Query("visits", (COUNT,), None, (Grouping(word, GroupBy.MONTH),)),
}


@EACH
def test_a_hostile_word_of_a_plan_is_refused_before_anything_is_read(payload: str) -> None:
    for place, plan in PLANS.items():
        assert refusal(lambda plan=plan: asked(plan(payload))), place


@pytest.mark.parametrize("edge", [math.nan, math.inf, -math.inf])
def test_edges_that_are_no_numbers_are_refused(edge: float) -> None:
    grouping = Grouping("age", GroupBy.BINS, edges=(1.0, edge))
    assert refusal(lambda: asked(Query("visits", (COUNT,), None, (grouping,))))


# --- The consortium's study.toml --------------------------------------------------------------------------

AGE = 'age = { type = "integer", lower = 0, upper = 200 }\n'
STUDIES: Mapping[str, Callable[[str], str]] = {
    "table": lambda word: study_text(AGE, table=word),
    "unit key": lambda word: study_text(AGE, key=word),
    "column": lambda word: study_text(f"{toml(word)} = {{ type = 'boolean' }}\n"),
    "type": lambda word: study_text(f"x = {{ type = {toml(word)} }}\n"),
    "bound": lambda word: study_text(f"x = {{ type = 'number', lower = {toml(word)}, upper = 3 }}\n"),
    "day": lambda word: study_text(f"x = {{ type = 'date', lower = {toml(word)}, upper = '2025-01-01' }}\n"),
    "unit": lambda word: study_text(AGE).replace('"event"', toml(word)),
    "name": lambda word: study_text(AGE).replace('"trial"', toml(word)),
}
WORDS_THAT_ARE_NAMES = {"sqlite_master", "NULL", "null", "TRUE", "NaN"}


@EACH
def test_a_hostile_word_in_a_study_is_refused_where_it_could_become_a_name(payload: str) -> None:
    for place, text in STUDIES.items():
        said = refusal(lambda text=text: parse_study(text(payload)))
        assert said or payload in WORDS_THAT_ARE_NAMES, place


@EACH
def test_a_default_is_what_an_absent_value_counts_as(tmp_path: Path, payload: str) -> None:
    columns = f"dx = {{ type = 'category', values = [{toml(payload)}, 'other'], default = {toml(payload)} }}\n"
    study = parse_study(study_text(columns))
    rows: list[Row] = [{UNIT_KEY: "a", "dx": None}, {UNIT_KEY: "b", "dx": "other"}, {UNIT_KEY: "c", "dx": payload}]
    source = SOURCES["sqlite"].opened(rows, study, tmp_path)
    assert totals(source, asked(Query("visits", (COUNT,), None, (Grouping("dx"),)), study)) == [[2, 1]]


# --- The hospital's site.toml -----------------------------------------------------------------------------


def site(hospital: Hospital, **words: str) -> Dataset:
    lines = "\n".join(f"{key} = {toml(word)}" for key, word in words.items())
    text = (
        f'[site]\nname = "st-mary"\npatients = 100\n[tables.visits]\n{lines}\n[policy]\nepsilon = 1.0\ndelta = 1e-6\n'
    )
    return open_dataset(parse_site(text, STUDY).tables, folder=hospital.folder, key=KEY)


@pytest.mark.parametrize("name", ["sqlite", "duckdb"])
@EACH
def test_a_hostile_relation_is_the_hospitals_table_or_none(hospital: Hospital, payload: str, name: str) -> None:
    form = asked(Query("visits", (COUNT,)))
    relation = hospital.filled(payload)
    said = refusal(lambda: site(hospital, source=hospital.path(name), relation=relation).check(form))
    if not said:
        found = totals(site(hospital, source=hospital.path(name), relation=relation), form)
        assert found == reference_totals(form, ROWS)
        assert payload in {"`visits`", "[visits]", "main.visits"}


@EACH
def test_a_hostile_source_is_a_path_to_nothing(hospital: Hospital, payload: str) -> None:
    form = asked(Query("visits", (COUNT,)))
    for beginning in ("", "sqlite:", "duckdb:", "csv:"):
        source = beginning + hospital.filled(payload)
        assert refusal(lambda source=source: site(hospital, source=source).check(form)), source


SELECTS = (
    "SELECT * FROM visits; DROP TABLE visits",
    "SELECT * FROM read_csv('@/secret.csv')",
    "SELECT * FROM '@/secret.csv'",
    "SELECT *, load_extension('@/secret.csv') FROM visits",
    "SELECT *, (SELECT content FROM read_text('@/secret.csv')) AS x FROM visits",
    "SELECT patient_id, random() AS age FROM visits",
    "SELECT * FROM visits LIMIT 1",
    "SELECT * FROM pragma_table_info('visits')",
    "SELECT * FROM duckdb_settings()",
    "SELECT * FROM sqlite_master",
    "SELECT * FROM information_schema.tables",
    "WITH x AS (DELETE FROM visits RETURNING *) SELECT * FROM x",
    "INSERT INTO visits SELECT * FROM visits",
    "ATTACH '@/leak.db' AS leak",
    "COPY visits TO '@/leak.csv'",
    "VACUUM INTO '@/leak.db'",
    "PRAGMA journal_mode = WAL",
    "SELECT * INTO leak FROM visits",
    "SELECT max(age) AS age, 'all' AS patient_id FROM visits",
    "EXPLAIN SELECT * FROM visits",
    "VALUES (1, 2)",
    "SELECT * FROM other.visits",
    "SELECT * FROM temp.visits",
)


@pytest.mark.parametrize("name", ["sqlite", "duckdb"])
@pytest.mark.parametrize("place", range(len(SELECTS)))
def test_a_relation_that_does_more_than_select_is_refused(hospital: Hospital, place: int, name: str) -> None:
    relation = hospital.filled(SELECTS[place])
    assert refusal(
        lambda: site(hospital, source=hospital.path(name), relation=relation).check(
            asked(Query("visits", (COUNT,), Comparison("age", Operator.EQUAL, 1)))
        )
    )


# --- Databases that are hostile themselves ----------------------------------------------------------------


def test_a_view_of_a_hostile_database_reaches_no_function_and_no_file(tmp_path: Path) -> None:
    path = tmp_path / "visits.sqlite"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE inner_rows (patient_id, age)")
    connection.execute("CREATE VIEW visits AS SELECT patient_id, load_extension('/tmp/x') AS age FROM inner_rows")
    connection.commit()
    connection.close()
    study = parse_study(study_text(AGE))
    source = open_dataset({"visits": TableSource(str(path))}, folder=tmp_path, key=KEY)
    with pytest.raises(SchemaRefused):
        source.check(asked(Query("visits", (Aggregate(Statistic.SUM, "age"),)), study))


def test_the_corpus_is_large() -> None:
    """Payloads times places: SQL, quoted SQL, plans, values, studies, defaults, relations and sources."""
    assert len(set(PAYLOADS)) == len(PAYLOADS)
    assert len(PAYLOADS) * (len(SQL) + 1 + len(PLANS) + len(DATABASES) + len(STUDIES) + 1 + 2 + 4) >= 3_000
