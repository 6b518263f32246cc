"""A file that is not of its format is refused as a whole: for every cohort alike, and before anything is charged."""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable, Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from site_agent.reading.dataset import Tables, TableSource
from site_agent.reading.sources.files.thrift_compact import BINARY, decoded, encoded
from site_agent.serving.check import check_site
from site_agent.serving.open_dataset import open_dataset
from tests.roles.enrolled import found, hospital
from tests.site_agent.closing.failing_sources import COHORTS, KEY, asking, parquet_with_a_damaged_page
from tests.site_agent.closing.watched_site import WatchedSite
from wardround.federation.plan.task import Failed, Released

Break = Callable[[bytes], bytes]


def _footer(content: bytes) -> int:
    return len(content) - 8 - struct.unpack("<I", content[-8:-4])[0]


def _over(begin: int, size: int, byte: bytes = b"\xff") -> Break:
    return lambda content: content[:begin] + byte * size + content[begin + size :]


CSV: Mapping[str, Break] = {
    "a mark never closed": lambda content: content.replace(b"p30,50,E11", b'p30,50,"E11'),
    "a mark inside a field": lambda content: content.replace(b"p30,50,E11", b'p30,50,E"11"'),
    "text after a mark": lambda content: content.replace(b"p30,50,E11", b'p30,50,"E"11'),
    "a lone return": lambda content: content.replace(b"p30,50,E11\n", b"p30,50,E11\r"),
    "a mark at the end": lambda content: content + b'"',
}
PARQUET: Mapping[str, Break] = {
    "empty": lambda _: b"",
    "cut in half": lambda content: content[: len(content) // 2],
    "cut by a byte": lambda content: content[:-1],
    "another magic": lambda content: content[:-4] + b"PAR2",
    "a footer of zeros": lambda content: content[: _footer(content)] + bytes(len(content) - _footer(content)),
    "a footer too long": lambda content: content[:-8] + b"\xff\xff\xff\x7f" + content[-4:],
    "a page header of ones": _over(4, 8),
    "a page header of zeros": _over(4, 12, b"\x00"),
    "pages of zeros": lambda content: _over(4, _footer(content) - 4, b"\x00")(content),
    "pages gone": lambda content: content[:4] + content[_footer(content) :],
}


def _rows() -> list[tuple[str, int, str]]:
    return [(f"p{place}", 20 + place, "E11" if place % 2 == 0 else "I10") for place in range(60)]


def written(folder: Path, kind: str, change: Break) -> Tables:
    path = folder / f"visits.{kind}"
    if kind == "csv":
        lines = "".join(f"{patient},{age},{dx}\n" for patient, age, dx in _rows())
        path.write_text(f"patient_id,age,dx\n{lines}")
    else:
        columns = zip(("patient_id", "age", "dx"), zip(*_rows(), strict=True), strict=True)
        pq.write_table(pa.table({name: list(values) for name, values in columns}), path, compression="snappy")
    whole = path.read_bytes()
    path.write_bytes(change(whole))
    return open_dataset({"visits": TableSource(str(path))}, folder=folder, key=KEY)


BROKEN = [("csv", name) for name in CSV] + [("parquet", name) for name in PARQUET]


def refused_alike(site: WatchedSite, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        said = {type(site.ask(asking(cohort))) for cohort in COHORTS}
    assert said == {Failed}
    assert site.kinds() == [], "nothing is charged, refused or closed"
    assert "read" not in site.watched.events
    (line,) = [record.message for record in caplog.records if record.name == "wardround.site"]
    assert "fix its file" in line
    assert "visits." in line


@pytest.mark.parametrize(("kind", "name"), BROKEN)
def test_a_broken_file_is_refused_for_all_cohorts_and_read_once_it_is_mended(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, kind: str, name: str
) -> None:
    site = WatchedSite(tmp_path, written(tmp_path, kind, (CSV if kind == "csv" else PARQUET)[name]))
    refused_alike(site, caplog)
    written(tmp_path, kind, lambda content: content)
    assert isinstance(site.ask(asking(COHORTS[0])), Released)
    site.ledger.close()


def test_a_page_that_cannot_be_read_is_refused_for_all_cohorts(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    site = WatchedSite(tmp_path, parquet_with_a_damaged_page(tmp_path, bad=True))
    refused_alike(site, caplog)
    assert "canary" not in caplog.text
    site.ledger.close()


def test_site_check_names_the_file_and_the_line_and_no_value(tmp_path: Path) -> None:
    site = hospital(found(tmp_path / "consortium"))
    path = site.path / "visits.csv"
    path.write_text('patient_id,age,sbp,code\n1,50,120,a\n2,51,121,"canary\n', encoding="utf-8")
    reported: list[str] = []
    findings = {each.subject: each for each in check_site(site.path, report=reported.append)}
    assert not findings["table visits"].ok
    assert findings["table visits"].text.endswith(f"{path}: the quotation mark in line 3 is never closed")
    assert "canary" not in repr(findings)
    assert reported == ["reading the files of visits once, to check their format"]


def _saying(column: int, least: bytes, greatest: bytes) -> Break:
    """The file with other statistics of one column, in every row group."""

    def spoiled(content: bytes) -> bytes:
        begin = _footer(content)
        tree = decoded(content[begin:-8])
        for group in tree[4][1].values:  # type: ignore[union-attr]
            group[1][1].values[column][3][1][12][1].update({5: (BINARY, greatest), 6: (BINARY, least)})  # type: ignore[index,union-attr]
        footer = encoded(tree)
        return content[:begin] + footer + struct.pack("<I", len(footer)) + b"PAR1"

    return spoiled


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(_saying(1, b"abc", b"abc"), id="of another type"),
        pytest.param(_saying(2, b"\xff", b"\xff"), id="no text"),
        pytest.param(_saying(1, struct.pack("<q", 5), struct.pack("<q", 5)), id="false about a number"),
        pytest.param(_saying(0, b"a", b"a"), id="false about a unit"),
        pytest.param(_saying(2, b"a", b"a"), id="false about a text"),
    ],
)
def test_statistics_decide_nothing(tmp_path: Path, change: Break) -> None:
    (tmp_path / "true").mkdir()
    sites = [WatchedSite(tmp_path / "true", written(tmp_path / "true", "parquet", lambda content: content))]
    sites.append(WatchedSite(tmp_path, written(tmp_path, "parquet", change)))
    said = [[site.ask(asking(cohort)) for cohort in COHORTS] for site in sites]
    grouped = [site.ask("SELECT dx, COUNT(*) FROM visits GROUP BY dx") for site in sites]
    for true, false in [*zip(*said, strict=True), tuple(grouped)]:
        assert isinstance(true, Released)
        assert isinstance(false, Released)
        assert true.payload == false.payload
    for site in sites:
        site.ledger.close()
