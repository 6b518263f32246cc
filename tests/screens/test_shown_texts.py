"""What is printed, logged and drawn, without a terminal: one line where one is meant, and nothing interpreted."""

from __future__ import annotations

import io
import json
import logging
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from tests.cli.calling import call
from tests.screens.hostile_words import FORGED_LINE, HOSTILE
from wardround.analyst.estimation.fitted import Standardisation
from wardround.analyst.learning.model_store import CARD, StoredModel, keep
from wardround.analyst.learning.predictor import Predictor
from wardround.analyst.pictures.picture_files import write_picture
from wardround.analyst.showing.result import PreviewResult, Result
from wardround.analyst.tables.text_tables import TextTable, as_html, as_text
from wardround.cli.terminal import console
from wardround.federation.models.training import Input, ModelKind
from wardround.federation.plain_text import escaped, is_plain
from wardround.federation.question.answer import (
    Answer,
    Estimate,
    ExpectedError,
    Loss,
    Preview,
    PrivacyStatement,
    Remaining,
)

ALL = "".join(HOSTILE.values())
PRIVACY = PrivacyStatement("discrete_gaussian", Loss(0.5, 1e-7), Loss(0.9, 1e-6), Remaining(2.0, 0.7), 1, ALL)


def hostile_answer() -> Answer:
    """With hostile words wherever a word can be, as no door would let it in."""
    estimates = tuple(
        Estimate("count", text, ((text, text),), 7.0, 2.0, (3.0, 11.0), 0.95, term=text) for text in HOSTILE.values()
    )
    return Answer("ab" * 32, "patient", False, False, (ALL,), ((ALL, ALL),), (ALL,), estimates, PRIVACY)


def test_an_answer_has_no_lines_but_its_own() -> None:
    plain = Answer("ab" * 32, "patient", False, False, ("a",), (("b", "c"),), ("d",), (), PRIVACY)
    for form, more in (("long", 0), ("wide", 1)):
        long = form == "long"
        lines = Result(hostile_answer()).text(long=long).split("\n")
        # The answer without estimates has no error to explain.
        assert len(lines) == len(Result(plain).text(long=long).split("\n")) + len(HOSTILE) + more
        assert all(map(is_plain, lines))
        assert not any(line.startswith(FORGED_LINE) for line in lines)


def test_a_dry_run_has_no_lines_but_its_own() -> None:
    expected = tuple(ExpectedError("sum", text, 1, 3.0, text, 1.0) for text in HOSTILE.values())
    found = PreviewResult(Preview("ab" * 32, "patient", False, (ALL,), expected, PRIVACY))
    lines = str(found).split("\n")
    assert all(map(is_plain, lines))
    assert len(lines) == 2 + len(HOSTILE) + 2 + len(HOSTILE) + 3
    assert sum("this question would cost ε = 0.5 (δ = 10⁻⁷);" in line for line in lines) == 1


class _Texts(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.isolated: list[str] = []
        self._open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, text: str) -> None:
        assert self._open[-1] == "bdi", text
        self.isolated.append(text)


def test_in_a_notebook_every_text_is_escaped_and_isolated() -> None:
    table = TextTable((ALL, "b"), tuple((text, "1") for text in HOSTILE.values()), 1)
    read = _Texts()
    read.feed(as_html(table, [ALL]))
    assert read.tags == {"table", "thead", "tr", "th", "tbody", "td", "bdi", "p"}
    assert read.isolated == [
        escaped(ALL),
        "b",
        *(x for text in HOSTILE.values() for x in (escaped(text), "1")),
        escaped(ALL),
    ]
    assert all(map(is_plain, read.isolated))
    assert is_plain(as_text(table).replace("\n", ""))


def test_a_model_and_its_card_show_what_is_hidden_in_them(tmp_path: Path) -> None:
    column = Input(ALL, ALL, 0.0, 1.0)
    scaling = Standardisation(np.zeros(2), np.ones(2))
    model = Predictor(ModelKind.LINEAR, (column,), column, np.zeros(2), scaling)
    assert is_plain(repr(StoredModel(model, {})))
    text = (keep(tmp_path / "model", model, {"cohort": ALL}) / CARD).read_text("utf-8")
    assert is_plain(text.replace("\n", " "))
    assert json.loads(text)["cohort"] == ALL


def test_a_picture_is_sound_xml_and_draws_what_is_hidden_as_letters(tmp_path: Path) -> None:
    write_picture(Result(hostile_answer()).plot(), tmp_path / "answer.svg")
    drawn = (tmp_path / "answer.svg").read_text("utf-8")
    assert ElementTree.fromstring(drawn).tag.endswith("svg")  # noqa: S314 -- it is ours
    assert is_plain(drawn.replace("\n", ""))


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_what_is_said_and_noted_is_one_line(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    console.say(text)
    console.note(text)
    console.say_in_one_row(text)
    shown = capsys.readouterr()
    assert shown.out == f"{escaped(text)}\n" * 2
    assert shown.err == f"{escaped(text)}\n"
    # Brackets are brackets: nothing on the way takes them for colours or links.
    assert text.count("[") == shown.err.count("[")


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_a_record_is_one_line_with_its_traceback(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    before = logging.getLogger().handlers[:], logging.getLogger().level
    try:
        console.start_log()
        logging.getLogger("wardround.site").info("%s (%s)", text, text)
        # Other people's records take the same way.
        logging.getLogger("grpc._cython").error(text)
        logging.getLogger("wardround.wire").error("unexpected", exc_info=ValueError(text))
    finally:
        logging.getLogger().handlers[:], logging.getLogger().level = before
    *lines, last = stream.getvalue().split("\n")
    assert (len(lines), last) == (3, "")
    assert all(map(is_plain, lines))
    assert "ValueError" in lines[2]


def test_a_file_name_is_shown_and_not_obeyed(tmp_path: Path) -> None:
    named = tmp_path / "a\x1b[2J\nwardround: all is well"
    for words in (("ledger", "verify", named), ("study", "check", named), ("site", "check", named)):
        done = call(*words)
        assert done.code == 2
        assert "a\\x1b[2J\\nwardround: all is well" in done.sentence()
    done = call("ask", "--profile", named, "SELECT 1", "--json")
    assert json.loads(done.out)["error"]["message"] in done.err


def test_a_file_name_that_is_no_text_is_shown(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "wardround", "study", "check", b"\xff\xfe.toml"],
        cwd=tmp_path,
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (
        2,
        b"wardround: \\udcff\\udcfe.toml does not exist; name an existing file.\n",
    )
