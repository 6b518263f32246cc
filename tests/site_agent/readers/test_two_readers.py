"""What decides speed never decides a value: both readers of a file hand out the same, and so does Python's own."""

from __future__ import annotations

import csv
import decimal
import io
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some
from sqlglot import exp

from site_agent.reading.batches import stat_text
from site_agent.reading.memory_limits import Limits
from site_agent.reading.sources.duckdb.connection import locked_database
from site_agent.reading.sources.files import csv_soundness, csv_substitutes, file_soundness
from site_agent.reading.sources.files.csv_soundness import Header, csv_fault
from site_agent.reading.sources.files.csv_substitutes import SubstitutedText, is_whole
from site_agent.reading.sources.files.file_readers import csv_reader, parquet_reader
from site_agent.reading.sources.files.file_soundness import Reading
from site_agent.reading.sources.files.thrift_compact import decoded, encoded
from tests.fixtures.exploring import examples

SAME_FOLDER = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=150)
LETTERS = some.sampled_from(["a", '"', '""', ",", ";", "\n", "\r\n", "\r", " ", "ü", "\x00", "\x1a", "'", "\\", "#"])
SUBSTITUTE = "\x1a"
BYTES = [
    b"\x01",
    b"\x80",
    b"\xbf",
    b"\xc3",
    b"\xe2\x82",
    b"\xed\xa0\x80",
    b"\xf0\x9f\x98",
    "\U0001f600".encode(),
]
FIELDS = some.lists(LETTERS, max_size=5).map("".join)


@some.composite
def csv_texts(draw: some.DrawFn) -> tuple[str, str]:
    """A header and records, most of which are written as they should be."""
    delimiter, end = draw(some.sampled_from(",;|\t")), draw(some.sampled_from(["\n", "\r\n", "\r"]))
    lines = [f"h0{delimiter}h1"]
    for fields in draw(some.lists(some.lists(FIELDS, min_size=1, max_size=3), max_size=6)):
        style = draw(some.sampled_from(["quoted", "quoted", "plain", "plain", "as it is"]))
        if style == "quoted":
            fields = ['"' + field.replace('"', '""') + '"' for field in fields]  # noqa: PLW2901
        elif style == "plain":
            fields = ["".join(x for x in field if x not in f'"\r\n{delimiter}') for field in fields]  # noqa: PLW2901
        lines.append(delimiter.join(fields))
    return end.join(lines) + draw(some.sampled_from(["", end])), delimiter


@SAME_FOLDER
@given(written=csv_texts())
def test_what_passes_as_csv_is_read_as_python_reads_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: tuple[str, str]
) -> None:
    monkeypatch.setattr(csv_soundness, "_CHUNK_BYTES", 7)
    text, delimiter = written
    path = tmp_path / "a.csv"
    path.write_bytes(text.encode())
    if csv_fault(path, delimiter):
        return
    records = list(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True))[1:]
    expected = [tuple(field or None for field in record[:2]) for record in records if len(record) >= 2]
    with locked_database([str(path)], Limits(threads=1)) as connection:
        statement = csv_reader((str(path),), delimiter, 2).sql(dialect="duckdb")
        found = connection.execute(f"SELECT * FROM {statement}").fetchall()
    assert sorted(map(repr, found)) == sorted(map(repr, expected))


@SAME_FOLDER
@given(
    content=some.lists(LETTERS.map(str.encode) | some.sampled_from(BYTES) | some.binary(max_size=3)).map(b"".join),
    begin=some.integers(0, 60),
    number=some.integers(0, 60),
)
def test_one_byte_stands_for_one_that_is_no_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes, begin: int, number: int
) -> None:
    monkeypatch.setattr(csv_substitutes, "_BLOCK_BYTES", 7)
    path = tmp_path / "a.csv"
    path.write_bytes(content)
    view = SubstitutedText(len(content))
    with path.open("rb") as file:
        whole = view.between(file.fileno(), 0, view.size_bytes)
        some_of_it = view.between(file.fileno(), begin, min(begin + number, view.size_bytes))
    assert len(whole) == len(content)
    assert some_of_it == whole[begin : begin + number]
    letters = content.decode("utf-8", "surrogateescape")
    assert whole.decode() == "".join(SUBSTITUTE if "\udc80" <= letter <= "\udcff" else letter for letter in letters)
    assert (SUBSTITUTE.encode() in whole) is not is_whole(path)


def _csv_fields(path: Path) -> list[tuple[str | None, ...]]:
    """The fields of a file with two columns, read as it is or mended."""
    reading = file_soundness._csv(str(path), stat_text([path]), Header(("h0", "h1"), ","))
    mended = [reading.mended] if reading.mended is not None else []
    file = csv_reader([file.name for file in mended] or [str(path)], ",", 2)
    rows = exp.select(*(reading.values or "*")).from_(file).sql(dialect="duckdb")
    with locked_database([str(path)], Limits(), mended=mended) as connection:
        return connection.execute(rows).fetchall()


@pytest.mark.parametrize("poison", [b"\xff", b"\x01\xff", b"\xff\x02", b"\xe2\x82", b"a\x1a"])
def test_a_field_is_absent_for_its_own_bytes_alone(tmp_path: Path, poison: bytes) -> None:
    fields = [b"a\x01b", b"\x01\x02", "ü\x7f€".encode(), *(bytes([place]) for place in (*range(1, 9), 127))]
    (tmp_path / "a.csv").write_bytes(b"h0,h1\n" + b"".join(b"%s,%s\n" % (field, poison) for field in fields))
    assert _csv_fields(tmp_path / "a.csv") == [(field.decode(), None) for field in fields]


@pytest.mark.parametrize("letter", ["x", "\x01", "\x1a", "ü"])
@pytest.mark.parametrize("size_bytes", [1_500_000, 2_000_100])
def test_no_other_record_is_left_out_because_a_file_is_mended(tmp_path: Path, letter: str, size_bytes: int) -> None:
    longest = letter.encode() * (size_bytes // len(letter.encode()))
    found = []
    for other in (b"b", b"b\xff"):
        (tmp_path / "a.csv").write_bytes(b"h0,h1\na,a\nb,%s\nc,%s\nd,d\n" % (longest, other))
        found.append([fields for fields in _csv_fields(tmp_path / "a.csv") if fields[0] != "c"])
    assert found[0] == found[1]
    assert [fields[0] for fields in found[0]] == (["a", "b", "d"] if size_bytes < 2_000_000 else ["a", "d"])


COLUMNS = {
    "text": (pa.string(), some.text(some.characters(exclude_categories=("Cs",)), max_size=20)),
    "ms": (pa.timestamp("ms"), some.integers(-9_223_372_022_400_000, 9_223_372_036_854_775)),
    "zone": (pa.timestamp("ms", "UTC"), some.integers(-9_223_372_022_400_000, 9_223_372_036_854_775)),
    "us": (pa.timestamp("us"), some.integers(-9_223_372_022_400_000_000, 2**63 - 2)),
    "ns": (pa.timestamp("ns", "UTC"), some.integers(-(2**63) + 2, 2**63 - 2)),
    "time": (pa.time32("ms"), some.integers(0, 86_399_999)),
    "nanos": (pa.time64("ns"), some.integers(0, 86_399_999_999_999)),
    "small": (pa.decimal128(4, 2), some.decimals(-99, 99, places=2)),
    "wide": (pa.decimal128(38, 38), some.integers(-(10**38) + 1, 10**38 - 1).map(
        lambda digits: decimal.Decimal(digits).scaleb(-38, decimal.Context(prec=60)))),
    "whole": (pa.decimal128(20, 0), some.integers(-(10**20) + 1, 10**20 - 1).map(decimal.Decimal)),
    "day": (pa.date32(), some.integers(-(2**31), 2**31 - 1)),
}  # fmt: skip


@settings(SAME_FOLDER, max_examples=examples(10, 40))
@given(draw=some.data())
def test_both_readers_of_parquet_hand_out_the_same(tmp_path: Path, draw: some.DataObject) -> None:
    size = draw.draw(some.integers(0, 30))
    arrays = {
        name: pa.array(draw.draw(some.lists(some.none() | values, min_size=size, max_size=size)), kind)
        for name, (kind, values) in COLUMNS.items()
    }
    path = str(tmp_path / "a.parquet")
    options = {"use_dictionary": draw.draw(some.booleans()), "row_group_size": draw.draw(some.sampled_from([3, 100]))}
    pq.write_table(pa.table(arrays), path, compression=draw.draw(some.sampled_from(["none", "zstd"])), **options)
    state = stat_text([path])
    assert file_soundness._parquet(path, state, None, Limits()) == Reading(), "it is clean"
    listed = ", ".join(f'"{name}"::VARCHAR' for name in COLUMNS)
    own = f"SELECT * FROM read_parquet('{path}')"
    with locked_database([path], Limits()) as connection:
        described = connection.execute(f"DESCRIBE {own}").fetchall()
        expected = connection.execute(f"SELECT {listed} FROM ({own}) ORDER BY ALL").fetchall()
    bared = file_soundness._bared(path, state, {line[0]: line[1] for line in described}, Limits())
    assert bared.mended is not None
    with locked_database((), Limits(), mended=[bared.mended]) as connection:
        rows = exp.select(*bared.values).from_(parquet_reader((bared.mended.name,))).sql(dialect="duckdb")
        assert [line[:2] for line in connection.execute(f"DESCRIBE {rows}").fetchall()] == [x[:2] for x in described]
        assert connection.execute(f"SELECT {listed} FROM ({rows}) ORDER BY ALL").fetchall() == expected


@given(content=some.binary(max_size=200))
def test_whatever_a_footer_holds_is_a_tree_or_a_fault(content: bytes) -> None:
    try:
        tree = decoded(content)
    except ValueError:
        return
    assert decoded(encoded(tree)) == tree
