"""What a person sees on a terminal, read back from its screen, when somebody has tried to forge a line of it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from protos._generated import analyst_service_pb2 as analyst_pb
from protos._generated import answer_pb2, plan_pb2
from tests.protos.certificates import TestAuthority
from tests.screens.hostile_words import (
    FORGED,
    FORGED_LINE,
    HOSTILE,
    SITE,
    STUDY,
    Desk,
    Hospital,
    asked,
    asked_among,
    listening,
    plan_of,
    profile_at,
)
from tests.screens.terminal import Terminal, terminal
from wardround.federation.plain_text import is_plain

COUNT = "SELECT COUNT(*) FROM visits"
# As many words as a message may have, laid out for the terminal's width: without a single hidden character.
PADDED = "".join(f"ok{' ' * 98}{FORGED_LINE}".ljust(200) for _ in range(4))


def nothing_steers(found: Terminal) -> None:
    """Whatever was written, only we begin lines, and nothing else in it moves or turns anything."""
    assert is_plain(found.written().replace("\r\n", "\n").replace("\n", " "))


def begun(rows: list[str]) -> list[str]:
    """The rows that begin a line; those that go on with one are indented."""
    return [row for row in rows if row and not row.startswith(" ")]


@pytest.mark.parametrize(
    "name", ["a line of its own", "the same line again", "the line above", "an empty screen", "backspaces"]
)
def test_a_terminal_is_deceived_by_what_is_not_escaped(name: str) -> None:
    with terminal() as found:
        found.stream.write(f"0123456789abcdef  pending   2026-01-01  ε = 0.5  {COUNT} WHERE note = '{HOSTILE[name]}'\n")
        assert any(row.startswith(FORGED) for row in found.screen())


def test_a_request_is_one_row_with_its_true_price_whatever_it_asks(tmp_path: Path) -> None:
    hospital = Hospital(tmp_path)
    queries = {
        **{name: asked(text) for name, text in HOSTILE.items()},
        "ten thousand characters": asked_among([f"{number:<98} {FORGED_LINE}" for number in range(60)]),
        "wide letters": asked(f"{'病' * 30}{FORGED_LINE}"),
        "ambiguous letters": asked(f"{'ж' * 50}{FORGED_LINE}"),
        "a tower of marks": asked("x" + "\u0300\u0489" * 100),
        "letters from the right": asked("אבג 0.001 = ε"),
    }
    plans = [hospital.holds(query, epsilon=0.5 + place / 100) for place, query in enumerate(queries.values())]
    for columns in (80, 120):
        with terminal(columns=columns) as found:
            with found.process("site", "requests", tmp_path, folder=tmp_path) as listing:
                assert listing.wait() == 0
            rows = found.screen()
            nothing_steers(found)
        assert len(rows) == len(queries)
        for place, (row, plan_id) in enumerate(zip(rows, plans, strict=True)):
            line = re.fullmatch(
                rf"{plan_id[:16]}  pending   \d{{4}}-\d\d-\d\d  ε = ([\d.]+)\s+ada \(not compared\)  SELE.*", row
            )
            assert line is not None, row
            assert float(line[1]) == pytest.approx(0.5 + place / 100, rel=1e-3)


def test_all_of_a_request_is_shown_between_its_price_and_its_price(tmp_path: Path) -> None:
    hospital = Hospital(tmp_path)
    texts = [f"{number:<98} {FORGED_LINE}" for number in range(60)]
    plan_id = hospital.holds(asked_among(texts))
    with terminal(rows=200) as found:
        assert found.here("site", "requests", tmp_path, plan_id[:8]) == 0
        rows = found.screen()
        nothing_steers(found)
    first, who, last = begun(rows)
    assert re.match(rf"{plan_id}  pending   \S+  ε = 0.5", first)
    assert who.startswith("Asked by ada under the key ")
    assert last == rows[-1] == "Approving it costs ε = 0.5."
    shown = "".join(row.strip() for row in rows).replace(" ", "")
    assert all(text.replace(" ", "") in shown for text in texts)


@pytest.mark.parametrize("text", [*HOSTILE.values(), PADDED], ids=[*HOSTILE, "padded"])
def test_a_coordinators_words_are_one_sentence_of_ours(tmp_path: Path, text: str) -> None:
    authority = TestAuthority()
    desk = Desk(says=f"Too few. {text}")
    with listening(desk, authority) as address, terminal() as found:
        profile = profile_at(tmp_path, address, authority)
        assert found.here("ask", "--profile", profile, COUNT) == 1
        rows = found.screen()
        nothing_steers(found)
        (line,) = begun(rows)
        assert line.startswith("wardround: Too few. ")
        assert found.here("ask", "--profile", profile, COUNT, "--dry-run", "--json") == 1
        nothing_steers(found)


def preview(note: str, *sites: str) -> analyst_pb.PreviewReply:
    loss = answer_pb2.Loss(epsilon=0.4, delta=1e-6)
    return analyst_pb.PreviewReply(
        preview=answer_pb2.Preview(
            plan_id="ab" * 32,
            unit=answer_pb2.UNIT_PATIENT,
            sites=sites,
            expected=[
                answer_pb2.ExpectedError(
                    statistic=plan_pb2.STATISTIC_COUNT, groups=1, standard_error=3.0, note=note, share=1.0
                )
            ],
            privacy=privacy(loss),
        )
    )


def privacy(loss: answer_pb2.Loss) -> answer_pb2.PrivacyStatement:
    return answer_pb2.PrivacyStatement(
        mechanism=plan_pb2.MECHANISM_DISCRETE_GAUSSIAN,
        charged=loss,
        spent=loss,
        remaining=answer_pb2.Remaining(epsilon=3.0, fraction=0.9),
        overlap=1,
        composition="parallel",
    )


def answer(*texts: str) -> analyst_pb.AwaitReply:
    """An answer with keys that a coordinator may have from a hospital's rows, or may not."""
    loss = answer_pb2.Loss(epsilon=0.4, delta=1e-6)
    estimates = [
        answer_pb2.Estimate(
            statistic=plan_pb2.STATISTIC_KEYS,
            column="note",
            group=[answer_pb2.GroupKey(column="note", value=plan_pb2.Value(text=text))],
            value=7.0,
            standard_error=2.0,
            lower=3.0,
            upper=11.0,
            confidence=0.95,
            term=text,
        )
        for text in texts
    ]
    whole = answer_pb2.Answer(
        plan_id="ab" * 32,
        unit=answer_pb2.UNIT_PATIENT,
        answered=["north"],
        estimates=estimates,
        privacy=privacy(loss),
    )
    return analyst_pb.AwaitReply(page=analyst_pb.AnswerPage(answer=whole, all_estimates=len(texts)))


def test_a_dry_run_shows_its_price_whatever_is_noted_beside_it(tmp_path: Path) -> None:
    authority = TestAuthority()
    desk = Desk(preview=preview(PADDED, "north"))
    with listening(desk, authority) as address, terminal() as found:
        profile = profile_at(tmp_path, address, authority)
        assert found.here("ask", "--profile", profile, COUNT, "--dry-run") == 0
        rows = found.screen()
        assert not any(row.startswith(FORGED) for row in rows)
        assert "this question would cost ε = 0.4; so far" in " ".join(row.strip() for row in rows)
        desk.preview = preview(HOSTILE["the line above"], "north")
        assert found.here("ask", "--profile", profile, COUNT, "--dry-run") == 1
        desk.preview = preview("", "north", "so\nuth")
        assert found.here("ask", "--profile", profile, COUNT, "--dry-run") == 1
        assert [row for row in found.screen() if row.startswith("wardround: ")] == [
            "wardround: a note has U+001B at place 2, a control or direction character; leave it out.",
            "wardround: the participants is not a name.",
        ]
        nothing_steers(found)


def test_an_answer_is_a_row_for_each_key_whatever_the_keys_are(tmp_path: Path) -> None:
    authority = TestAuthority()
    desk = Desk(watched=[answer(*HOSTILE.values(), "Diabète\u00a0۲")])
    picture = tmp_path / "keys.svg"
    with listening(desk, authority) as address, terminal(columns=400) as found:
        profile = profile_at(tmp_path, address, authority)
        assert found.here("ask", "--profile", profile, "SELECT KEYS(note) FROM visits", "--plot", picture) == 0
        rows = found.screen()
        nothing_steers(found)
    lines = [row for row in rows if row.endswith("7.0 ± 2.0")]
    assert len(lines) == len(HOSTILE) + 1
    assert not any(row.startswith(FORGED) for row in rows)
    assert any("[/][red]ok[/red][link=http://evil.example]" in row for row in lines)
    assert "<b>" not in picture.read_text("utf-8")
    assert is_plain(picture.read_text("utf-8").replace("\n", " "))


def test_on_a_narrow_terminal_every_number_stays_beside_its_key(tmp_path: Path) -> None:
    authority = TestAuthority()
    desk = Desk(watched=[answer(*HOSTILE.values(), "a diagnosis with a name of many words")])
    with listening(desk, authority) as address, terminal(columns=36) as found:
        profile = profile_at(tmp_path, address, authority)
        assert found.here("ask", "--profile", profile, "SELECT KEYS(note) FROM visits") == 0
        rows = found.screen()
    table = rows[: rows.index("Answered: north.")]
    lines = [row for row in table if row.endswith("7.0 ± 2.0")]
    assert len(lines) == len(HOSTILE) + 1
    assert any(row.startswith("a diagnosis with a") for row in lines)


def test_progress_is_a_row_for_each_site_whatever_their_names_are(tmp_path: Path) -> None:
    authority = TestAuthority()
    names = [*HOSTILE.values(), "s" * 63]
    sites = [answer_pb2.SiteProgress(site=name, state=answer_pb2.SITE_STATE_OPEN) for name in names]
    desk = Desk(watched=[analyst_pb.AwaitReply(progress=answer_pb2.Progress(seen=1, sites=sites))])
    with listening(desk, authority) as address, terminal() as found:
        profile = profile_at(tmp_path, address, authority)
        assert found.here("ask", "--profile", profile, COUNT) == 1
        assert found.screen() == ["wardround: the participants is not a name."]


def test_the_log_of_a_site_is_one_line_an_event(tmp_path: Path) -> None:
    authority = TestAuthority()
    desk = Desk(says=f"Too few. {HOSTILE['a line of its own']}{HOSTILE['the line above']}{PADDED}")
    with listening(desk, authority) as address, terminal() as found:
        hospital = Hospital(tmp_path, address=address, authority=authority)
        desk.tasks.append(hospital.task(plan_of(asked(HOSTILE["a turned line"]))))
        with found.process("site", "serve", tmp_path, folder=tmp_path):
            found.until(lambda rows: sum("trying again" in row for row in rows) > 1, what="two failures")
        rows = found.screen()
        nothing_steers(found)
    for row in begun(rows):
        assert re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} wardround\.\w+ [A-Z]+ |wardround: north serves ", row), (
            row
        )
    assert "is refused: a text in the plan has U+202E at place 2" in " ".join(row.strip() for row in rows)
    # Refused for good, by a signed entry that costs nothing, and never held for the steward to read.
    assert {each.declined.code for each in desk.submitted} == {"PlanRefused"}
    assert hospital.ledger.requests() == []
    assert (hospital.ledger.spent().mu_squared, hospital.ledger.spent().pure) == (0, 0)


def test_a_question_with_a_hidden_character_never_leaves(tmp_path: Path) -> None:
    authority = TestAuthority()
    with listening(Desk(), authority) as address, terminal() as found:
        profile = profile_at(tmp_path, address, authority)
        for text in ("E\u202e11", "E\x1b[2J"):
            sql = f"SELECT COUNT(*) FROM visits WHERE age > 3 AND note = '{text}'"
            assert found.here("ask", "--profile", profile, sql) == 2
            sentence = f"wardround: the question has U+{ord(text[1]):04X} at place {sql.index(text) + 2}, "
            assert " ".join(row.strip() for row in found.screen()).endswith(
                f"{sentence}a control or direction character; leave it out."
            )
        # A line break lays out a question, but not a text in it, nor a name that is shown.
        for sql in (f"{COUNT}\nWHERE note = 'E\n11'", 'SELECT COUNT(*) AS "a\nb"\nFROM visits'):
            assert found.here("ask", "--profile", profile, sql) == 2
            assert "a text in the question has U+000A at place 2" in " ".join(found.screen()[-2:])


def test_the_words_of_the_tests_are_sound() -> None:
    assert not any(map(is_plain, (text for name, text in HOSTILE.items() if name != "markup")))
    assert is_plain(PADDED)
    assert is_plain((STUDY + SITE).replace("\n", " "))
