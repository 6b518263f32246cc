"""Lines that are not proper CSV: nothing is raised, and only what is broken is left out."""

from __future__ import annotations

from pathlib import Path

import pytest

from site_agent.reading.sources.files import csv_soundness
from tests.site_agent.sources.tables import dataset, form, study, totals
from wardround.federation.errors import SchemaRefused, SourceAway
from wardround.federation.question.cohort import Comparison, IsNull, Operator
from wardround.federation.question.query import Aggregate, Grouping, Query, Statistic
from wardround.privacy.noise.distribution import Mechanism

COLUMNS = 'v = { type = "number", lower = 0, upper = 1000, step = 1 }\nt = { type = "category", values = ["x", "y"] }'
AGREED = study(rows=100, columns=COLUMNS)
ASKED = form(
    Query("visits", (Aggregate(Statistic.COUNT), Aggregate(Statistic.SUM, "v"))),
    AGREED,
    Mechanism.DISCRETE_LAPLACE,
)
HEAD = b"patient_id,v,t\n"


def read(tmp_path: Path, content: bytes) -> tuple[int, int]:
    path = tmp_path / "visits.csv"
    path.write_bytes(content)
    (events,), (total,) = totals(dataset(path), ASKED)
    return events, int(total * ASKED.parts[1].grid)


@pytest.mark.parametrize(
    ("lines", "events", "total"),
    [
        (b"a,1,x\nb,2,y\n", 2, 3),
        (b"a,1,x\nb,2\nc,4,y\n", 2, 5),
        (b"a,1,x\nb,2,y,surplus\nc,4,y\n", 3, 7),
        (b"a,1,x\nb,2,y,,,\nc,4,y\n", 3, 7),
        (b'a,1,"two\nlines"\nb,2,"a ""quoted"" word, and a comma"\n', 2, 3),
        (b"a\xff,1,x\nb,2,y\n", 1, 2),
        (b"a,1,\xff in a column nobody asked for\nb,2,y\n", 2, 3),
        (b"a,1,x\x00y\nb,2,y\n", 2, 3),
        (b"a,1\x00,x\nb,2,y\n", 2, 2),
        (b"a,1,x\r\nb,2,y\r\n", 2, 3),
        (b"a,1,x\r\nb,2,y\nc,4,y\r\n", 3, 7),
        (b"a,1,x\n\n\nb,2,y\n\n", 2, 3),
        (b"a,1,x\nb,2,y", 2, 3),
        (b"#a,1,x\n", 1, 1),
        (b',1,x\n"",2,x\nb,4,y\n', 1, 4),
        (b'a,,x\na,"",x\na,NULL,x\na,nan,x\na,1e999,x\na,1,x\n', 6, 1),
        (b'a, 1 ,x\n"a","2","y"\n', 2, 3),
        (b"a,1," + b"x" * 3_000_000 + b"\nb,2,y\n", 1, 2),
        (b"a,1,x\n" + b",".join([b"z"] * 100_000) + b"\nb,2,y\n", 3, 3),
        (b"", 0, 0),
    ],
)  # fmt: skip
def test_a_broken_line_costs_at_most_itself(tmp_path: Path, lines: bytes, events: int, total: int) -> None:
    assert read(tmp_path, HEAD + lines) == (events, total)


@pytest.mark.parametrize(
    ("head", "row"),
    [
        (b"\xef\xbb\xbfpatient_id,v,t\n", b"a,1,x\n"),
        (b"patient_id;v;t\n", b"a;1;x\n"),
        (b"patient_id\tv\tt\n", b"a\t1\tx\n"),
        (b"patient_id|v|t\n", b"a|1|x\n"),
        (b'"patient_id","v","t"\n', b'"a","1","x"\n'),
        (b't,other,v,"a, b",patient_id\n', b'x,?,1,"1,2",a\n'),
        (b"v,x';--,patient_id,t\n", b"1,2,a,x\n"),
        (b"V,v,patient_id,t,T\n", b"5,1,a,x,y\n"),
        (b"patient_id,v,t\r", b"a,1,x\r"),
    ],
)  # fmt: skip
def test_headers_of_many_kinds_are_understood(tmp_path: Path, head: bytes, row: bytes) -> None:
    assert read(tmp_path, head + row) == (1, 1)


def test_a_header_alone_is_an_empty_table(tmp_path: Path) -> None:
    assert read(tmp_path, HEAD) == (0, 0)
    assert read(tmp_path, HEAD.strip()) == (0, 0)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\n",
        b"\x00\n",
        b"\xff\xfep\x00",
        b'patient_id,v,"t\n',
        b"patient_id,w,t\na,1,x\n",
        b"patient_id,v,v\na,1,2\n",
    ],
)
def test_a_header_that_cannot_serve_is_refused_before_any_row(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "visits.csv"
    path.write_bytes(content)
    with pytest.raises(SchemaRefused) as refusal:
        dataset(path).check(ASKED)
    assert refusal.value.message.count(".") == 1
    assert str(tmp_path) not in refusal.value.message


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (b'a,1,x\nc,1,"open\n' + b"b,2,y\n" * 7_000_000, "the quotation mark in line 3 is never closed"),
        (b'a,1,x\nb,2,5" cuff\nc,4,y\n', "a quotation mark in line 3 stands inside a field"),
        (b'a,1,x\nb,2,"cuff"5\nc,4,y\n', "a quotation mark in line 3 is followed by more text"),
        (b'a,1, "x"\n', "a quotation mark in line 2 stands inside a field"),
        (b"a,1,x\nb,2,y\rc,3,x\n", "line 3 ends otherwise than the first one"),
    ],
    ids=["never closed", "inside", "more text", "a blank before", "a lone return"],
)
def test_what_is_no_csv_is_away_before_any_question_and_its_line_is_named(
    tmp_path: Path, lines: bytes, said: str
) -> None:
    with pytest.raises(SourceAway) as away:
        read(tmp_path, HEAD + lines)
    assert away.value.unread
    assert away.value.private == f"{tmp_path / 'visits.csv'}: {said}"


def test_text_in_typed_columns_is_absent_or_its_value(tmp_path: Path) -> None:
    columns = (
        'i = { type = "integer", lower = -100, upper = 100 }\nb = { type = "boolean" }\n'
        'd = { type = "date" }\nt = { type = "category", values = ["X", "x"] }'
    )
    agreed = study(unit="event", columns=columns)
    lines = [
        "p,12,true,2024-01-31,x", "p,12.0,T,2024-01-31 10:00:00,x ", "p,1e1,yes,2024-02-30,X", "p,12.7,1,infinity,",
        "p,99999999999999999999,0,31.01.2024,x", "p,0x10,No,9999-12-31,x", "p,ten,maybe,,x", "p,-0,2,10000-01-01,x",
    ]  # fmt: skip
    path = tmp_path / "visits.csv"
    path.write_text("patient_id,i,b,d,t\n" + "\n".join(lines))
    source = dataset(path)

    def ask(query: Query) -> list[float]:
        asked = form(query, agreed, Mechanism.DISCRETE_LAPLACE)
        return [float(value * asked.parts[0].grid) for value in totals(source, asked)[0]]

    count = (Aggregate(Statistic.COUNT),)
    assert ask(Query("visits", (Aggregate(Statistic.SUM, "i"),))) == [12 + 12 + 10]
    assert ask(Query("visits", count, None, (Grouping("b"),))) == [2.0, 4.0]
    assert ask(Query("visits", count, None, (Grouping("t"),))) == [1.0, 5.0]
    assert ask(Query("visits", count, IsNull("d"))) == [4.0]
    assert ask(Query("visits", count, Comparison("d", Operator.GREATER_OR_EQUAL, "2024-01-31"))) == [4.0]


def _long_field(size_bytes: int) -> bytes:
    """A field in quotation marks, with a comma and a doubled mark again and again."""
    return b'"' + b'x,""' * (size_bytes // 4) + b'"'


def test_no_field_is_so_long_that_others_are_lost_behind_it(tmp_path: Path) -> None:
    # DuckDB found nothing behind one of 64 million bytes.
    longest = csv_soundness._LONGEST_FIELD_BYTES
    assert read(tmp_path, HEAD + b"a,1," + _long_field(longest - 8) + b"\nb,2,y\n") == (1, 2)
    with pytest.raises(SourceAway) as away:
        read(tmp_path, HEAD + b"a,1," + _long_field(longest + 8) + b"\nb,2,y\n")
    assert "a field in quotation marks that ends in line 2 is too long" in str(away.value.private)


@pytest.mark.parametrize("chunk_bytes", [1, 2, 3, 5, 8, 2**24])
def test_a_field_is_measured_from_its_own_begin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk_bytes: int
) -> None:
    monkeypatch.setattr(csv_soundness, "_LONGEST_FIELD_BYTES", 9)
    monkeypatch.setattr(csv_soundness, "_CHUNK_BYTES", chunk_bytes)
    path = tmp_path / "a.csv"
    for lines, fault in (
        (b'a,b\n"","12345678"\nlong without,"""a""6"\n', ""),
        (b'a,b\n"","123456789"\n', "a field in quotation marks that ends in line 2 is too long"),
        (b'a,b\n"","""""1234"""\n', "a field in quotation marks that ends in line 2 is too long"),
        (b'a,b\n"123\n45678",""\n', "a field in quotation marks that ends in line 3 is too long"),
    ):
        path.write_bytes(lines)
        assert csv_soundness.csv_fault(path, ",") == fault
