"""What a person sees of a command that takes longer than a moment, and what a script does."""

from __future__ import annotations

import contextlib
import re
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from protos._generated import analyst_service_pb2 as analyst_pb
from protos._generated import answer_pb2
from site_agent.serving.open_dataset import prepare_site
from tests.cli.calling import call
from tests.protos.certificates import TestAuthority
from tests.roles.enrolled import found as founded
from tests.roles.enrolled import hospital
from tests.screens.hostile_words import FORGED, HOSTILE, Desk, listening, profile_at
from tests.screens.terminal import PATIENCE_SECONDS, Terminal, terminal
from tests.simulation.hospitals_on_disk import random_rows, study_text, write_site
from wardround.analyst.learning.driver import TrainingRound
from wardround.analyst.link.link import RoundNotice
from wardround.cli.main import main
from wardround.cli.terminal import bar
from wardround.cli.terminal.round_lines import RoundLines, TrainingLines
from wardround.cli.terminal.step_lines import EVERY_SECONDS, Steps
from wardround.federation.plain_text import is_plain
from wardround.federation.question.answer import Progress, Remaining, SiteState

SITES = (("lakeside", SiteState.OPEN), ("north", SiteState.RELEASED), ("st-mary", SiteState.PENDING))
# What rich writes: colours, the cursor hidden and shown, a row cleared, the cursor moved to its beginning or one up.
DRAWING = re.compile(r"\x1b\[[\d;]*m|\x1b\[\?25[lh]|\x1b\[2K|\x1b\[1A|\r")


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing here depends on how long a second is."""
    monkeypatch.setattr(bar, "AFTER_SECONDS", 0.01)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)


def shows(found: Terminal, *words: str) -> list[str]:
    return found.until(lambda rows: all(word in " ".join(rows) for word in words), what=" ".join(words))


def test_a_question_is_a_bar_that_says_who_is_missing_and_goes_away(monkeypatch: pytest.MonkeyPatch) -> None:
    with terminal(columns=130) as found:
        monkeypatch.setattr(sys, "stderr", found.stream)
        lines = RoundLines()
        lines.show(Progress(1, SITES))
        (row,) = shows(found, "1 of 3 answered; waiting for lakeside, st-mary (data steward)")
        assert re.match(r"━+[╸╺]?━* 0:00:\d\d ", row)
        lines.begin(RoundNotice(2, 10, "the median"))
        lines.show(Progress(2, SITES))
        shows(found, "round 2 of 10: the median; 1 of 3 answered")
        lines.close()
        assert found.screen() == []
        assert found.written().endswith("\x1b[?25h") or "\x1b[?25h" in found.written(), "the cursor is back"


def test_a_training_is_a_bar_of_its_rounds_and_what_a_site_did_not_do_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    with terminal(columns=130) as found:
        monkeypatch.setattr(sys, "stderr", found.stream)
        lines = TrainingLines()
        lines.begin(TrainingRound(4, 9, "gradients", Remaining(2.0, 0.5)))
        shows(found, "round 4 of 9: gradients (ε = 2 is left)")
        lines.show(Progress(1, (("lakeside", SiteState.REFUSED), ("north", SiteState.RELEASED))))
        rows = shows(found, "refused")
        assert rows[0] == "  lakeside  refused"
        assert "round 4 of 9" in rows[1]
        lines.close()
        assert found.screen() == ["  lakeside  refused"]


@pytest.mark.parametrize("columns", [40, 80])
def test_no_name_draws_a_row_of_its_own(monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    names = [*HOSTILE.values(), "[bold red]x[/]" + "界" * 60, ":warning: " + FORGED * 9]
    with terminal(columns=columns) as found:
        monkeypatch.setattr(sys, "stderr", found.stream)
        lines = RoundLines()
        for name in names:
            for state in (SiteState.OPEN, SiteState.PENDING, SiteState.RELEASED):
                lines.show(Progress(1, ((name, state), ("north", SiteState.OPEN))))
                rows = shows(found, " of 2 ")
                assert len(rows) == 1
                assert not rows[0].startswith(FORGED)
        lines.show(Progress(1, (("[bold]x", SiteState.OPEN),)))
        if columns == 80:
            shows(found, "0 of 1 answered; waiting for [bold]x")
        lines.close()
        assert is_plain(DRAWING.sub("", found.written()).replace("\n", " "))
        assert found.screen() == []


def test_a_line_beside_the_bar_begins_no_other_line(monkeypatch: pytest.MonkeyPatch) -> None:
    with terminal(columns=60) as found:
        monkeypatch.setattr(sys, "stderr", found.stream)
        drawn = bar.Bar(found.stream, "waiting")
        shows(found, "waiting")
        for words in HOSTILE.values():
            drawn.line(f"  {words}")
        drawn.close()
        assert all(row.startswith("  ") for row in found.screen())
        assert is_plain(DRAWING.sub("", found.written()).replace("\n", " "))


def test_what_is_written_to_the_same_terminal_has_the_row_to_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    with terminal(columns=80) as found:
        monkeypatch.setattr(sys, "stderr", found.stream)
        monkeypatch.setattr(sys, "stdout", found.stream)
        with Steps("asking", quiet=False) as steps:
            shows(found, "asking")
            steps.make_room()
            monkeypatch.setattr(bar, "AFTER_SECONDS", 3600.0)
            steps.make_room()
            found.stream.write("an answer\n")
            assert found.screen() == ["an answer"]
        assert found.screen() == ["an answer"]


def test_a_terminal_that_cannot_be_redrawn_has_plain_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    with terminal() as found:
        monkeypatch.setattr(sys, "stderr", found.stream)
        lines = RoundLines()
        lines.show(Progress(1, SITES))
        lines.close()
        assert found.screen() == [
            "  lakeside  waiting for the site",
            "  north     answered",
            "  st-mary   waiting for a data steward",
        ]


def test_whoever_is_quick_sees_no_bar_and_loads_no_rich(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bar, "AFTER_SECONDS", 3600.0)
    before = threading.active_count()
    with terminal() as found:
        monkeypatch.setattr(sys, "stderr", found.stream)
        lines = RoundLines()
        lines.show(Progress(1, SITES))
        lines.close()
        assert found.written() == ""
    assert threading.active_count() <= before


def test_quiet_is_quiet_on_a_terminal_and_elsewhere(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def work() -> None:
        training = TrainingLines(quiet=True)
        training.begin(TrainingRound(1, 9, "gradients", Remaining(2.0, 0.5)))
        for lines in (training, RoundLines(quiet=True)):
            lines.show(Progress(1, (("lakeside", SiteState.REFUSED),)))
            lines.close()
        with Steps("auditing", quiet=True, clock=iter(range(0, 1000, 100)).__next__) as steps:
            steps.name("a step")
            steps.count("1 of 2", done=1, total=2)
            steps.thousands(5000)

    work()
    assert capsys.readouterr().err == ""
    with terminal() as found:
        monkeypatch.setattr(sys, "stderr", found.stream)
        assert bar.bar_for("auditing", quiet=True) is None
        work()
        assert found.written() == ""


def test_without_a_terminal_steps_are_lines_and_counts_are_told_now_and_then(
    capsys: pytest.CaptureFixture[str],
) -> None:
    now = 0.0
    with Steps("asking", quiet=False, clock=lambda: now) as steps:
        steps.name("auditing: laplace")
        for number in range(1, 31):
            now += EVERY_SECONDS / 10
            steps.count(f"{number} of 30 done", done=number, total=30)
            steps.thousands(1000 * number)
    assert capsys.readouterr().err == "auditing: laplace\n10 of 30 done\n20 of 30 done\n30 of 30 done\n"


def test_preparing_says_how_many_thousand_rows_were_read_and_leaves_no_number_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    site = hospital(founded(tmp_path / "consortium"))
    rows = "".join(f"{number},50,120,a\n" for number in range(2345))
    (site.path / "visits.csv").write_text(f"patient_id,age,sbp,code\n{rows}", encoding="utf-8")
    read: list[int] = []
    assert prepare_site(site.path, report=lambda _: None, on_rows=read.append) == ("visits",)
    assert read[-1] == 2345
    assert call("site", "prepare", site.path, "--quiet").err == ""
    assert "2345" not in call("site", "prepare", site.path).err
    with terminal(columns=100) as found:
        monkeypatch.setattr(sys, "stderr", found.stream)
        with Steps("preparing", quiet=False) as steps:
            steps.name("visits: reading rows")
            steps.thousands(read[-1])
            shows(found, "visits: reading rows, 2,000 so far")
        assert found.screen() == []


def test_many_answers_are_counted_on_a_terminal_and_their_document_is_alone(tmp_path: Path) -> None:
    (tmp_path / "study.toml").write_text(study_text(), encoding="utf-8")
    write_site(tmp_path / "sites" / "north", random_rows(1, patients=9))
    words = ("simulate", "--study", tmp_path / "study.toml", "--tables", tmp_path / "sites", "--json", "--epsilon", "1")
    with terminal(columns=100) as found, terminal(columns=1000) as other:
        with (
            contextlib.redirect_stderr(found.stream),
            contextlib.redirect_stdout(other.stream),
            pytest.raises(SystemExit) as left,
        ):
            main([str(word) for word in (*words, "--repeat", 60, "SELECT COUNT(*) FROM encounters")])
        assert left.value.code == 0
        assert re.search(r"\d of 60 done", found.written())
        assert found.screen() == []
        assert other.written().count('"runs"') == 1
        assert "done" not in other.written()


class SlowDesk(Desk):
    """A coordinator whose site never answers."""

    def Await(self, request: object, context: grpc.ServicerContext) -> analyst_pb.AwaitReply:  # noqa: N802
        time.sleep(0.2)
        return self.watched[0]


@pytest.fixture
def heard() -> Iterator[None]:
    """Whoever runs tests in the background may have made Ctrl-C mean nothing to all that they start."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("heard")
def test_a_question_that_waits_shows_its_bar_and_ctrl_c_takes_it_away(tmp_path: Path) -> None:
    authority = TestAuthority()
    sites = [answer_pb2.SiteProgress(site="north", state=answer_pb2.SITE_STATE_OPEN)]
    desk = SlowDesk(watched=[analyst_pb.AwaitReply(progress=answer_pb2.Progress(seen=1, sites=sites))])
    with listening(desk, authority) as address, terminal(columns=200) as found:
        profile = profile_at(tmp_path, address, authority)
        with found.process("ask", "--profile", profile, "SELECT COUNT(*) FROM visits", folder=tmp_path) as asking:
            (row,) = shows(found, "0 of 1 answered; waiting for north")
            assert row.startswith("━")
            asking.send_signal(signal.SIGINT)
            assert asking.wait(PATIENCE_SECONDS) == 130
        (row,) = found.screen()
        assert row.startswith("wardround: interrupted; what was asked is kept: the same command goes on")
        assert found.written().rindex("\x1b[?25h") > found.written().rindex("\x1b[?25l"), "the cursor is back"
