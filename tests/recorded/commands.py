"""What scripts read: exit codes, error documents and the form of every `--json` document that needs no wire.

Of what noise makes new in every run only the keys are recorded; what is computed is recorded as it is. The
documents of `ask`, `budget` and `train` over a federation are those of `questions` and `kept_folders`.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
from collections.abc import Iterator
from pathlib import Path

from tests.cli.calling import call
from tests.recorded.recording import Json

STUDY = """\
name = "cardio"
unit = "patient"
overlap = 1
min_sites = 2
[budget]
epsilon = 3.0
delta = 1e-6
[tables.encounters]
unit_key = "patient_id"
max_rows_per_unit = 4
[tables.encounters.columns]
age       = { type = "integer", lower = 0, upper = 110 }
sbp       = { type = "number", lower = 80, upper = 200, step = 0.1 }
positive  = { type = "boolean" }
diagnosis = { type = "category", values = ["E11", "I10"] }
"""
REQUEST = """\
kind = "linear"
table = "encounters"
target = "sbp"
features = ["age"]
epsilon = 1.0
"""
_SILENT = (
    ("ledger", "export"),
    *(("coordinator", word) for word in ("init", "invite", "revoke")),
    *(("site", word) for word in ("init", "approve", "deny", "reopen", "prepare")),
)
COUNT = "SELECT diagnosis, COUNT(*), AVG(sbp) FROM encounters GROUP BY diagnosis"
ON_TABLES = ("--study", "study.toml", "--tables", "hospitals")

COMPUTED: tuple[tuple[object, ...], ...] = (
    ("study", "check", "study.toml"),
    ("account", "--delta", "1e-7", "gaussian:z=25:count=800"),
    ("account", "--delta", "1e-5", "subsampled:q=0.01:z=1:count=100"),
    ("calibrate", "--epsilon", "1", "--delta", "1e-6"),
    ("calibrate", "--epsilon", "1", "--delta", "1e-6", "--standard-error", "10"),
)
DRAWN: tuple[tuple[object, ...], ...] = (
    ("simulate", *ON_TABLES, "--epsilon", "0.5", COUNT),
    ("simulate", *ON_TABLES, "--train", "request.toml"),
)
WRONG: tuple[tuple[object, ...], ...] = (
    ("simulate", *ON_TABLES, "--epsilon", "0.5", "SELECT MAX(age) FROM encounters"),
    ("simulate", *ON_TABLES, "--epsilon", "0.5", "SELECT AVG(agee) FROM encounters"),
    ("simulate", *ON_TABLES, "--epsilon", "-1", COUNT),
    ("simulate", *ON_TABLES, "--epsilon", "99", COUNT),
    ("simulate", "--study", "study.toml", "--tables", "nowhere", "--epsilon", "0.5", COUNT),
    ("simulate", "--study", "nowhere.toml", "--tables", "hospitals", "--epsilon", "0.5", COUNT),
    ("simulate", "--study", "wrong.toml", "--tables", "hospitals", "--epsilon", "0.5", COUNT),
    ("ask", "--profile", "nobody.profile", COUNT, "--epsilon", "0.5"),
    ("ask", "--profile", "study.toml", COUNT, "--epsilon", "0.5"),
    ("budget", "--profile", "nobody.profile"),
    ("train", "--profile", "nobody.profile", "request.toml"),
    ("study", "check", "nowhere.toml"),
    ("study", "check", "wrong.toml"),
    ("account", "--delta", "1e-7", "gaussian:y=25"),
    ("account", "--delta", "2", "gaussian:z=25"),
    ("calibrate", "--epsilon", "0", "--delta", "1e-6"),
    ("ledger", "verify", "nowhere"),
    ("ledger", "export", "nowhere", "out.json"),
    ("coordinator", "init", "hospitals", "--study", "study.toml"),
    ("coordinator", "invite", "nowhere", "north", "--out", "north.invitation"),
    ("coordinator", "revoke", "nowhere", "north"),
    ("site", "init", "new", "--invite", "nobody.invitation"),
    ("site", "check", "nowhere"),
    ("site", "history", "nowhere"),
    ("site", "requests", "nowhere"),
    ("site", "approve", "nowhere", "abc"),
    ("site", "deny", "nowhere", "abc"),
    ("site", "reopen", "nowhere", "encounters"),
    ("site", "prepare", "nowhere"),
)


def documents(folder: Path) -> Iterator[tuple[str, Json]]:
    with contextlib.chdir(folder):
        _write()
        os.environ["COLUMNS"] = "120"
        for words in COMPUTED:
            yield _title(words), _told(words)
        for words in DRAWN:
            code, document = _told(words)
            yield _title(words), [code, form(document)]
        for words in WRONG:
            yield _title(words), _told(words)


def _write() -> None:
    chance = random.Random(5)
    Path("study.toml").write_text(STUDY, encoding="utf-8")
    Path("wrong.toml").write_text(STUDY.replace("min_sites", "minsites"), encoding="utf-8")
    Path("request.toml").write_text(REQUEST, encoding="utf-8")
    for hospital in ("lakeside", "st-mary"):
        lines = ["patient_id,age,sbp,positive,diagnosis"]
        for patient in range(200):
            age, dx = chance.randint(18, 95), chance.choice(["E11", "I10"])
            lines.append(
                f"{hospital}-{patient},{age},{chance.gauss(138, 15):.1f},{chance.choice(['true', 'false'])},{dx}"
            )
        Path("hospitals", hospital).mkdir(parents=True)
        Path("hospitals", hospital, "encounters.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _title(words: tuple[object, ...]) -> str:
    return " ".join(map(str, words))


def _told(words: tuple[object, ...]) -> list[Json]:
    # A command that only does something has no document, and says what was wrong in one sentence.
    if words[:2] in _SILENT:
        done = call(*words)
        return [done.code, done.sentence()]
    done = call(*words, "--json")
    return [done.code, json.loads(done.out)]


def form(document: Json) -> Json:
    """The keys alone: noise decides every number, and whether there is an estimate at all."""
    match document:
        case dict():
            return {key: form(value) for key, value in document.items()}
        case list():
            kinds = [form(each) for each in document]
            return [each for place, each in enumerate(kinds) if each not in kinds[:place]]
        case _:
            return "value"
