"""A value planted in the rows appears nowhere else: no output, log, error, ledger, export or file.

Everything a federation does is done here with planted rows: answers, refusals, sources that fail after the
charge, tables that cannot be read; then every byte that any process wrote is searched.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from site_agent.serving.check import check_site
from site_agent.telling.history import departures
from tests.integration.conftest import Make
from tests.integration.stage import Asked, Federation, eventually, sites_in
from tests.integration.terms import rows_of
from wardround.federation.ledger.verify.evidence import export

TEXT = "Qzcanarytext"
NUMBER = "84620517739"
PATIENT = "patient-zq-77310946"
CANARIES = (TEXT, NUMBER, PATIENT)
# A number may also be written as a float or with an exponent; its digits are what would give it away.
TRACES = tuple(canary.encode() for canary in (*CANARIES, "8.4620517739", "8462051773"))

PLANTED = "".join(
    f"{PATIENT},{age},{sbp},{diagnosis}\n"
    for age, sbp, diagnosis in (
        (44, 130, TEXT),
        (NUMBER, NUMBER, "E11"),
        (TEXT, TEXT, "I10"),
        (f"-{NUMBER}", f"{NUMBER}e99", f"'; {TEXT}"),
    )
)
QUESTIONS = (
    "SELECT COUNT(DISTINCT patient_id) FROM encounters",
    "SELECT diagnosis, COUNT(*), AVG(sbp), SUM(age) FROM encounters WHERE age >= 0 GROUP BY diagnosis",
)


def plant(federation: Federation, name: str, text: str) -> None:
    (federation.site(name) / "encounters.csv").write_text(text, encoding="utf-8")


def written(folder: Path) -> dict[str, bytes]:
    """Every file under the federation's folders but the hospitals' own tables."""
    found: dict[str, bytes] = {}
    for path in sorted(folder.rglob("*")):
        # A database that is in use removes its journal after each write.
        with contextlib.suppress(FileNotFoundError):
            if path.is_file() and path.name != "encounters.csv":
                found[str(path.relative_to(folder))] = path.read_bytes()
    return found


def check_silence(federation: Federation, *outputs: str) -> None:
    files = written(federation.folder)
    assert {"consortium/ledger.sqlite", "two/ledger.sqlite", "two.log", "consortium.log"} <= set(files)
    found = [(name, trace) for name, content in files.items() for trace in TRACES if trace in content]
    found += [(output, trace) for output in outputs for trace in TRACES if trace in output.encode()]
    assert found == []


def test_a_planted_value_appears_nowhere_but_in_its_source(make_federation: Make) -> None:
    federation = make_federation(sites=("one", "two"))
    plant(federation, "one", rows_of("one") + PLANTED)
    # Rows that no CSV reader can make sense of: surplus fields, too few of them, and text that is none.
    plant(
        federation, "two", rows_of("two") + PLANTED + f"{PATIENT},{NUMBER},x,y,z,{TEXT}\n{TEXT}\n{PATIENT},,,{TEXT}\n"
    )
    federation.start()
    federation.await_sites()
    outputs = []
    for question in QUESTIONS:
        done = federation.ask_command(question)
        assert done.code == 0, done.err
        outputs += [done.out, done.err]
    (federation.site("two") / "encounters.csv").rename(federation.site("two") / "moved")
    outputs += [repr(check_site(federation.site("two")))]
    refused = federation.ask("SELECT SUM(age) FROM encounters")
    assert sites_in(refused)["refused"] == {"two": "SchemaRefused"}
    assert federation.entries("two", "charged", str(refused["plan_id"])) == []
    (federation.site("two") / "moved").unlink()
    # No header at all: the planted row stands where the names of the columns should.
    plant(federation, "two", PLANTED)
    outputs += [repr(federation.run("site", "check", federation.site("two")))]
    outputs += [repr(refused), repr(federation.ask("SELECT AVG(age) FROM encounters"))]
    # A quotation mark that is never closed: the line is named, and nothing of what stands in it.
    plant(federation, "two", rows_of("two") + PLANTED + f'{PATIENT},"{TEXT}\n{TEXT}')
    federation.asking("SELECT SUM(sbp) FROM encounters")
    eventually(lambda: "never closed" in federation.log("two"), what="the agent names the line")
    outputs += [repr(federation.run("site", "check", federation.site("two")))]
    for name in ("consortium", "two"):
        export(federation.folder / name, federation.folder / f"{name}.ledger")
    outputs += [line.text() for line in departures(federation.site("two"))]
    check_silence(federation, *outputs)


def test_a_broken_page_is_found_before_the_charge_and_nothing_of_it_is_said(make_federation: Make) -> None:
    pytest.importorskip("pyarrow")
    import pyarrow as pa
    import pyarrow.parquet as pq

    federation = make_federation(sites=("one", "two"))
    site = federation.site("two")
    table = pa.table(
        {
            "patient_id": [PATIENT] * 4000,
            "age": pa.array([44] * 4000, pa.int64()),
            "sbp": [float(NUMBER)] * 4000,
            "diagnosis": [f"{TEXT}{number}" for number in range(4000)],
        }
    )
    pq.write_table(table, site / "encounters.parquet", compression="none", use_dictionary=False)
    whole = (site / "encounters.parquet").read_bytes()
    config = site / "site.toml"
    config.write_text(config.read_text(encoding="utf-8").replace(".csv", ".parquet"), encoding="utf-8")
    # The footer, which is all that a schema needs, is sound; the pages with the rows are not.
    at = whole.index(TEXT.encode())
    spoiled = whole[: at - 2000] + b"\xff" * 4000 + whole[at + 2000 :]
    (site / "encounters.parquet").write_bytes(spoiled)
    federation.start_timeless_coordinator()
    federation.start_site("one")
    federation.start_site("two")
    done = federation.after_the_deadline(
        Asked(lambda: federation.ask_command("SELECT diagnosis, AVG(sbp) FROM encounters GROUP BY diagnosis")),
        when=lambda: federation.received() == 1 and "is broken" in federation.log("two"),
        what="one answered and the file of two was found broken",
    )
    assert done.code == 0, done.err
    assert sites_in(done.document) == {
        "answered": ["one"],
        "refused": {},
        "missing": ["two"],
        "left_out": [],
        "lacking_patients": 1000,
        "asked_patients": 2000,
    }
    assert federation.entries("two", "charged") == []
    assert federation.entries("two", "released") == []
    files = {name: content for name, content in written(federation.folder).items() if not name.endswith(".parquet")}
    assert [(name, trace) for name, content in files.items() for trace in TRACES if trace in content] == []
    assert not any(trace in (done.out + done.err).encode() for trace in TRACES)
    # Mended, the site answers the same plan under the same charge, too late for this answer.
    (site / "encounters.parquet").write_bytes(whole)
    federation.ask(QUESTIONS[0])
    eventually(lambda: federation.entries("two", "released"), what="the site answers again")
    federation.check_ledgers()
