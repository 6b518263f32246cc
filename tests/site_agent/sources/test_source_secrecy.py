"""A secret planted in rows appears nowhere but in its file; hostile text is only ever text."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from site_agent.reading.dataset import Dataset, TableFiles, TableSource
from site_agent.reading.sources.duckdb.connection import Limits
from site_agent.reading.sources.files.files import DuckdbFiles
from site_agent.serving.open_dataset import open_dataset
from tests.site_agent.sources.tables import ARROW, KEY, Row, form, random_rows, study, totals, write_csv, write_parquet
from wardround.federation.errors import FederationError, SourceAway, SourceFailed
from wardround.federation.forms.parts import AnswerLayout
from wardround.federation.question.cohort import And, Comparison, Operator, Within
from wardround.federation.question.query import Aggregate, Grouping, Query, Statistic
from wardround.federation.study.study import Study
from wardround.federation.study.study_file import parse_study
from wardround.privacy.noise.distribution import Mechanism

CANARY = "canary-7f3a9c"
COUNT = Aggregate(Statistic.COUNT)
ASKED = form(
    Query(
        "visits",
        (
            COUNT,
            Aggregate(Statistic.SUM, "age"),
            Aggregate(Statistic.MEAN, "sbp"),
            Aggregate(Statistic.STD, "gain"),
            Aggregate(Statistic.HISTOGRAM, "sbp", bins=5),
            Aggregate(Statistic.REGRESSION, "sbp", others=("age", "gain", "cost", "sex")),
            Aggregate(Statistic.SURVIVAL, "age", others=("sex",)),
        ),
        And((Comparison("age", Operator.GREATER, 1), Comparison("seen", Operator.LESS, "2030-01-01"))),
        (Grouping("dx"),),
    ),
    study(),
)
PLANTED: list[Row] = [
    *random_rows(patients=50, rows=2000, seed=9),
    *({"patient_id": f"{CANARY}{place}", "age": 50, "dx": CANARY, "sbp": 1.0} for place in range(200)),
]
TEXT: list[Row] = [dict.fromkeys(ARROW, CANARY), *({**row, "age": CANARY} for row in PLANTED)]


def told(error: BaseException) -> str:
    """Everything an error could tell, its whole chain included."""
    chain: list[BaseException] = []
    link: BaseException | None = error
    while link is not None:
        chain.append(link)
        link = link.__cause__ or link.__context__
    lines = [f"{link!r} {vars(link)!r}" for link in chain]
    lines += traceback.TracebackException.from_exception(error, capture_locals=False).format()
    return "\n".join(lines)


def raised(step: Callable[[AnswerLayout], object]) -> FederationError | None:
    try:
        step(ASKED)
    except FederationError as error:
        return error
    return None


def _broken_pages(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[4 : len(content) // 2] = b"\xa5" * (len(content) // 2 - 4)
    path.write_bytes(bytes(content))


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def _other_header(path: Path) -> None:
    path.write_bytes(CANARY.encode() + b",x\n" + path.read_bytes())


def _nothing(path: Path) -> None:
    pass


FAULTS: list[tuple[str, Callable[[Path], None], int]] = [
    ("parquet", _nothing, 1),
    ("parquet", _broken_pages, 512),
    ("parquet", _cut, 512),
    ("parquet", Path.unlink, 512),
    ("csv", _nothing, 1),
    ("csv", _other_header, 512),
    ("csv", Path.unlink, 512),
]


@pytest.mark.parametrize(("kind", "break_it", "memory"), FAULTS)
def test_no_fault_tells_what_a_row_holds(
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
    kind: str,
    break_it: Callable[[Path], None],
    memory: int,
) -> None:
    caplog.set_level(logging.DEBUG)
    path = tmp_path / f"visits.{kind}"
    _ = write_csv(path, TEXT) if kind == "csv" else write_parquet(path, PLANTED)
    break_it(path)
    limits = Limits(threads=2, memory_mebibytes=memory)
    source = DuckdbFiles({"visits": TableFiles(kind, str(path))}, key=KEY, limits=limits)
    errors = [error for step in (source.check, source.bounded) if (error := raised(step)) is not None]
    assert isinstance(errors[-1], SourceFailed | SourceAway)
    assert errors[-1].__context__ is None
    assert CANARY not in "".join(map(told, errors))
    captured = capfd.readouterr()
    assert CANARY not in captured.out + captured.err + caplog.text


def test_text_where_numbers_should_be_is_silent(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    source = visits(write_csv(tmp_path / "visits.csv", TEXT))
    assert totals(source, ASKED)
    assert capfd.readouterr() == ("", "")


def visits(path: Path) -> Dataset:
    return open_dataset({"visits": TableSource(str(path))}, folder=path.parent, key=KEY)


def test_nothing_is_written_to_the_home_or_working_folder(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    write_parquet(tmp_path / "visits.parquet", PLANTED)
    script = (
        "from tests.site_agent.sources.test_source_secrecy import ASKED, Path, totals, visits\n"
        f"totals(visits(Path({str(tmp_path / 'visits.parquet')!r})), ASKED)\n"
    )
    home = str(tmp_path / "home")
    folder = Path(__file__).parents[3]
    environment = {
        **os.environ,
        "HOME": home,
        "TMPDIR": home,
        "PYTHONPATH": str(folder),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    subprocess.run([sys.executable, "-c", script], cwd=home, env=environment, check=True)
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["home", "visits.parquet"]


def test_the_database_can_open_the_named_files_only(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "visits.csv", [])
    (tmp_path / "other.csv").write_text(CANARY)
    source = DuckdbFiles({"visits": TableFiles("csv", str(path))}, key=KEY)
    connection = source._connection([str(path)])
    for statement in (
        f"SELECT * FROM read_text('{tmp_path / 'other.csv'}')",
        "SELECT * FROM read_text('/etc/hostname')",
        "SELECT * FROM read_csv('https://127.0.0.1:9/a.csv')",
        f"COPY (SELECT 1) TO '{tmp_path / 'out.csv'}'",
        f"ATTACH '{tmp_path / 'out.db'}'",
        "INSTALL httpfs",
        "LOAD httpfs",
        "SET enable_external_access = true",
        "SET GLOBAL disabled_optimizers = ''",
        "SET temp_directory = '/'",
        "SELECT * FROM ROWS",
    ):
        with pytest.raises(Exception, match=r"."):
            connection.execute(statement)
    assert sorted(os.listdir(tmp_path)) == ["other.csv", "visits.csv"]  # noqa: PTH208


# --- Injection --------------------------------------------------------------------------------------------

PAYLOADS = [
    "'", "''", "'''", '"', '""', "\\", "\\'", "\\\\'", "`", ";", "--", "/*", "*/", "#", "$$", "$1", "?", "%", "_", "{",
    "}",
    "' OR '1'='1", "' OR 1=1 --", "'; DROP TABLE visits; --", "'); SELECT 1; --", "' UNION ALL SELECT 1,2,3 --",
    "x' AND 1=0 --", "1; SELECT * FROM read_text('/etc/passwd')", "'||(SELECT 1)||'", "'::BIGINT", "CAST('1' AS INT)",
    "NULL", "TRUE", "NaN", "E'\\x27'",
    "U&'\\0027'", "\u2019", "\u02bc", "\uff07", "é' --", "\u202e'", "a\nb", "a\r\nb",
    "\t",
    " lead", "trail ", "ENUM('a')", "$tag$'$tag$", "'/**/OR/**/1=1", "\\u0027", "&#39;", "%27", "0x27", "CHR(39)",
    "') AS ENUM('x", "'), 'b') AS BIGINT) --", "x'; COPY (SELECT 1) TO '/tmp/x'; --", "a''b", "a'b'c", "😀'",
    "\x01", "\x7f",
]  # fmt: skip


def _hostile_study() -> Study:
    listed = ", ".join(_toml(payload) for payload in PAYLOADS)
    columns = f'text = {{ type = "category", values = [{listed}] }}\nage = {{ type = "integer", lower = 0, upper = 9 }}'
    return study(unit="event", columns=columns)


def _toml(text: str) -> str:
    return '"' + "".join(f"\\U{ord(letter):08x}" for letter in text) + '"'


HOSTILE = _hostile_study()


def _hostile_rows() -> Sequence[Row]:
    return [
        {"patient_id": f"p{place}", "text": payload, "age": 1}
        for place, payload in enumerate(PAYLOADS)
        for _ in range(place % 3 + 1)
    ]


@pytest.fixture(scope="module", params=["csv", "parquet"])
def hostile(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    folder = tmp_path_factory.mktemp("o'brien; --")
    types = {"patient_id": ARROW["patient_id"], "text": ARROW["dx"], "age": ARROW["age"]}
    if request.param == "csv":
        return visits(write_csv(folder / "a';--.csv", _hostile_rows(), tuple(types)))
    return visits(write_parquet(folder / "a';--.parquet", _hostile_rows(), types))


@pytest.mark.parametrize("place", range(len(PAYLOADS)))
def test_a_hostile_literal_selects_its_own_rows_and_no_others(hostile: Dataset, place: int) -> None:
    payload = PAYLOADS[place]
    expected = [place % 3 + 1]
    for cohort in (Comparison("text", Operator.EQUAL, payload), Within("text", (payload,))):
        asked = form(Query("visits", (COUNT,), cohort), HOSTILE, Mechanism.DISCRETE_LAPLACE)
        assert totals(hostile, asked) == [expected]


def test_hostile_categories_are_groups_like_any_other(hostile: Dataset) -> None:
    asked = form(Query("visits", (COUNT,), None, (Grouping("text"),)), HOSTILE, Mechanism.DISCRETE_LAPLACE)
    assert totals(hostile, asked) == [[place % 3 + 1 for place in range(len(PAYLOADS))]]


NAMES = [
    "a[1]*?",
    "a' OR '1'='1",
    "{x}",
    "$1",
    "%s",
    "a\\b",
    'a"b',
    "ü ☃",
    "-rf",
    "~",
    "#?",
    "x=1",
    "a\nb",
    "..csv",
    "http:",
    "s3:",
]


@pytest.mark.parametrize("kind", ["csv", "parquet"])
@pytest.mark.parametrize("name", NAMES)
def test_a_hostile_path_is_one_file_and_no_pattern(tmp_path: Path, name: str, kind: str) -> None:
    asked = form(Query("visits", (COUNT,)), study(unit="event"), Mechanism.DISCRETE_LAPLACE)
    write: Callable[[Path, Sequence[Row]], Path] = write_csv if kind == "csv" else write_parquet
    write(tmp_path / f"a1xy.{kind}", [{"patient_id": "decoy"}] * 5)
    assert totals(visits(write(tmp_path / f"{name}.{kind}", [{"patient_id": "a"}] * 2)), asked) == [[2]]


WORDS = [
    "select",
    "order",
    "unit",
    "cell",
    "first",
    "second",
    "copy",
    "rank",
    "c_age",
    "f0",
    "typed",
    "records",
    "null",
    "true",
]


@pytest.mark.parametrize("kind", ["csv", "parquet"])
@pytest.mark.parametrize("word", WORDS)
def test_a_column_may_be_called_like_anything_in_the_statement(tmp_path: Path, word: str, kind: str) -> None:
    other = WORDS[(WORDS.index(word) + 1) % len(WORDS)]
    agreed = parse_study(
        'name = "t"\n[budget]\nepsilon = 1.0\ndelta = 1e-6\n'
        f'[tables.visits]\nunit_key = "{word}"\nmax_rows_per_unit = 2\n'
        f'[tables.visits.columns]\n{other} = {{ type = "integer", lower = 0, upper = 3 }}\n'
        'AGE = { type = "integer" }\n'
    )
    types = {word: ARROW["dx"], other: ARROW["age"], "AGE": ARROW["age"]}
    rows: list[Row] = [{word: f"p{place % 4}", other: place % 3, "AGE": 5} for place in range(12)]
    path = tmp_path / f"visits.{kind}"
    _ = write_csv(path, rows, tuple(types)) if kind == "csv" else write_parquet(path, rows, types)
    everything = (COUNT, Aggregate(Statistic.COUNT, word), Aggregate(Statistic.MEAN, other))
    asked = form(
        Query("visits", everything, Comparison("AGE", Operator.EQUAL, 5), (Grouping(other),)),
        agreed,
        Mechanism.DISCRETE_LAPLACE,
    )
    events, patients, mean = totals(visits(path), asked)
    assert sum(events) == sum(patients) == 8
    assert sum(mean) == 8 * asked.parts[2].l1_sensitivity // 2
