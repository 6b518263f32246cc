"""Every wrong call: one sentence that says what was wrong and what to do, the right exit code, one JSON document."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.cli.calling import Call, call
from tests.simulation.hospitals_on_disk import random_rows, study_text, write_site
from wardround.federation.ledger.verify.verify import verify

COUNT = "SELECT COUNT(*) FROM encounters"


@dataclass(frozen=True)
class Desk:
    """A folder with a study, tables, a coordinator, and a few wrong files."""

    folder: Path

    def __call__(self, *words: object) -> Call:
        """One command, its words named as they stand on this desk."""
        before = verify(self.folder / "consortium").head
        done = call(
            *(self.folder / word[1:] if isinstance(word, str) and word.startswith("@") else word for word in words)
        )
        assert verify(self.folder / "consortium").head == before, "a wrong call leaves the ledger as it was"
        return done

    def simulate(self, sql: str, *options: object) -> Call:
        return self("simulate", "--study", "@study.toml", "--tables", "@sites", sql, *options)


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Desk:
    folder = tmp_path_factory.mktemp("desk")
    (folder / "study.toml").write_text(study_text() + "bmi = { type = 'number' }\n", encoding="utf-8")
    (folder / "garbled.toml").write_text("name = [\n", encoding="utf-8")
    (folder / "binary.toml").write_bytes(b"\xff\xfe\x00")
    (folder / "misspelt.toml").write_text(study_text().replace("overlap =", "overlp ="), encoding="utf-8")
    (folder / "listening.toml").write_text('lisen = "127.0.0.1:0"\n', encoding="utf-8")
    (folder / "anywhere.toml").write_text('listen = "everywhere"\n', encoding="utf-8")
    (folder / "broken.profile").write_text("{", encoding="utf-8")
    (folder / "other.profile").write_text('{"form": "something else"}', encoding="utf-8")
    (folder / "list.profile").write_text("[]", encoding="utf-8")
    (folder / "empty").mkdir()
    write_site(folder / "sites" / "north", random_rows(1, patients=9))
    assert call("coordinator", "init", folder / "consortium", "--study", folder / "study.toml").code == 0
    return Desk(folder)


def wrong(done: Call, *, code: int, says: str) -> None:
    """One sentence, with a full stop or a hint at its end, that contains what is expected of it."""
    assert (done.code, done.out) == (code, "")
    sentence = done.sentence()
    assert says in sentence, sentence
    # A command to type next ends a sentence as well as a full stop does, and can be copied.
    assert sentence.endswith((".", "?", "--help")) or "wardround " in sentence, sentence
    assert "Traceback" not in sentence
    assert "Something unexpected" not in sentence


QUESTIONS = {
    "SELECT AVG(spb) FROM encounters": "unknown column 'spb' in table 'encounters'; did you mean 'sbp'?",
    "SELECT COUNT(*) FROM encouters": "unknown table 'encouters'; did you mean 'encounters'?",
    "SELECT COUNT(*) FROM encounters WHERE wieght > 3": "unknown column 'wieght'",
    "SELECT diagnosys, COUNT(*) FROM encounters GROUP BY diagnosys": "did you mean 'diagnosis'?",
    "SELECT AVG(bmi) FROM encounters": "bound",
    "SELECT SUM(bmi) FROM encounters": "bound",
    "SELECT AVG(diagnosis) FROM encounters": "'diagnosis'",
    "SELECT sbp, COUNT(*) FROM encounters GROUP BY sbp": "'sbp'",
    "SELECT AVG(patient_id) FROM encounters": "unit key",
    "SELECT * FROM encounters": "COUNT",
    "SELECT patient_id FROM encounters": "COUNT(DISTINCT patient_id)",
    "SELECT COUNT(*) FROM encounters a JOIN encounters b ON a.age = b.age": "join",
    "SELECT COUNT(*) FROM encounters, encounters": "table",
    "SELECT COUNT(*) OVER () FROM encounters": "window",
    "SELECT COUNT(*) FROM (SELECT * FROM encounters)": "subquer",
    "SELECT COUNT(*) FROM encounters WHERE age IN (SELECT 1)": "subquer",
    "WITH a AS (SELECT 1) SELECT COUNT(*) FROM encounters": "WITH",
    "SELECT COUNT(*) FROM encounters UNION SELECT COUNT(*) FROM encounters": "SELECT",
    "SELECT COUNT(*) FROM encounters HAVING AVG(age) > 3": "HAVING",
    "SELECT COUNT(*) FROM encounters ORDER BY 2": "ORDER BY",
    "SELECT COUNT(*) FROM encounters LIMIT 0": "LIMIT",
    "SELECT MAX(age) FROM encounters": "PERCENTILE_CONT",
    "SELECT COUNT(*) + 1 FROM encounters": "COUNT",
    "DROP TABLE encounters": "SELECT",
    "SELECT COUNT(*) FROM encounters; SELECT COUNT(*) FROM encounters": "one",
    "": "SELECT",
    "what is the mean age?": "SELECT",
    "SELECT COUNT(*) FROM encounters WHERE age >": "read",
    "SELECT COUNT(*) FROM encounters WHERE age = 'old'": "'age'",
    "SELECT COUNT(*) FROM encounters WHERE age > 1" + "0" * 400: "large",
    "SELECT COUNT(*) FROM encounters WHERE diagnosis = 'Z99'": "'diagnosis'",
}


@pytest.mark.parametrize("sql", QUESTIONS, ids=lambda sql: sql[:60])
def test_a_question_that_cannot_be_asked_is_one_sentence(desk: Desk, sql: str) -> None:
    done = desk.simulate(sql, "--json")
    assert done.code == 2
    assert QUESTIONS[sql].lower() in done.sentence().lower(), done.sentence()
    assert done.document()["error"] == {"code": "QueryMistaken", "message": done.sentence()}
    wrong(desk.simulate(sql), code=2, says="")


SHARPNESS = {
    ("--epsilon", "0"): (2, "ε must be a finite number above 0, not 0."),
    ("--epsilon", "-1"): (2, "ε must be a finite number above 0, not -1."),
    ("--epsilon", "nan"): (2, "ε must be a finite number above 0, not nan."),
    ("--epsilon", "inf"): (2, "ε must be a finite number above 0, not inf."),
    ("--epsilon", "much"): (2, "number"),
    ("--epsilon", ""): (2, "number"),
    ("--epsilon", "1e-300"): (2, "too small"),
    ("--epsilon", "11"): (1, "The question asks for ε = 11 but ε = 6 remains, 5 too little; nothing was charged."),
    ("--delta", "-1e-9"): (2, "δ must be a number from 0 to below 1, not -1e-09."),
    ("--delta", "nan"): (2, "δ must be a number from 0 to below 1, not nan."),
    ("--delta", "1"): (2, "δ must be a number from 0 to below 1, not 1."),
    ("--delta", "2e-6"): (2, "above the study's δ = 1e-06"),
    ("--delta", "1e-30"): (2, "too small"),
}


@pytest.mark.parametrize("form", ["--long", "--intervals"])
def test_a_training_has_no_form_of_an_answer(desk: Desk, form: str) -> None:
    trained = desk("simulate", "--study", "@study.toml", "--tables", "@sites", "--train", "@none.toml", form)
    wrong(trained, code=2, says="--long and --intervals are for the answer to a question; leave them out")


@pytest.mark.parametrize("options", SHARPNESS, ids=" ".join)
def test_a_senseless_loss_is_one_sentence(desk: Desk, options: tuple[str, str]) -> None:
    code, says = SHARPNESS[options]
    wrong(desk.simulate(COUNT, *options), code=code, says=says)
    told = desk.simulate(COUNT, *options, "--json").document()["error"]
    assert says in told["message"]
    if code == 1:
        assert (told["asked"], told["charged"]) == (11, 0)
        assert told["remaining"] == pytest.approx(6)
        assert told["difference"] == told["asked"] - told["remaining"]


def test_a_delta_of_one_patient_is_refused(desk: Desk, tmp_path: Path) -> None:
    """δ at or above 1/patients would allow publishing one patient whole."""
    (tmp_path / "study.toml").write_text(study_text().replace("delta = 1e-6", "delta = 0.2"), encoding="utf-8")
    done = call("simulate", "--study", tmp_path / "study.toml", "--tables", desk.folder / "sites", COUNT)
    wrong(done, code=2, says="is not below 1/9 (the patients declared by 1 site)")


CALLS: dict[str, tuple[tuple[object, ...], str]] = {
    "no such command": (("simulte",), "No such command 'simulte'; did you mean 'simulate'"),
    "no such subcommand": (("site", "sreve"), "No such command 'sreve'; did you mean 'serve' or 'recover'?"),
    "no such option": (("ledger", "verify", "@consortium", "--jsn"), "No such option --jsn; did you mean --json?"),
    "an option like none": (("budget", "--xyzzy"), "No such option --xyzzy. See: wardround budget --help"),
    "a command like none": (("xyzzy",), "No such command 'xyzzy'. See: wardround --help"),
    "an option of the door": (("--versoin",), "No such option --versoin; did you mean --version?"),
    "a missing option": (("ask", COUNT), "--profile"),
    "a missing argument": (("budget",), "--profile"),
    "a word too many": (("ledger", "verify", "@consortium", "again"), "again"),
    "no profile": (("budget", "--profile", "@nowhere"), "does not exist; name an existing file."),
    "a folder for a profile": (("budget", "--profile", "@empty"), "is a folder; name a file."),
    "a broken profile": (("ask", "--profile", "@broken.profile", COUNT), "is not an analyst's profile"),
    "another file for a profile": (("ask", "--profile", "@other.profile", COUNT), "is not an analyst's profile"),
    "a list for a profile": (("ask", "--profile", "@list.profile", COUNT), "is not an analyst's profile"),
    "a study for a profile": (("ask", "--profile", "@study.toml", COUNT), "is not an analyst's profile"),
    "bytes for a profile": (("ask", "--profile", "@binary.toml", COUNT), "cannot be read as UTF-8 text"),
    # The profile would be refused too: the picture comes first, before anything could be asked and charged.
    "a picture of no known form": (
        ("ask", "--profile", "@other.profile", COUNT, "--plot", "@x.jpg"),
        "ending in .svg, .png or .pdf",
    ),
    "a model's picture of no known form": (
        ("train", "--profile", "@other.profile", "@nowhere", "--plot", "@x.txt"),
        "ending in .svg, .png or .pdf",
    ),
    "a picture of a training's dry run": (
        ("train", "--profile", "@other.profile", "@nowhere", "--dry-run", "--plot", "@x.svg"),
        "a dry run has no model to draw",
    ),
    "a picture of many answers": (
        ("simulate", "--study", "@study.toml", "--tables", "@sites", COUNT, "--repeat", "3", "--plot", "@x.svg"),
        "--plot draws one answer; leave it out, or leave out --repeat.",
    ),
    "a simulation's picture nowhere": (
        ("simulate", "--study", "@study.toml", "--tables", "@sites", COUNT, "--plot", "@no/x.svg"),
        "cannot be written",
    ),
    "a picture of a dry run": (
        ("ask", "--profile", "@other.profile", COUNT, "--dry-run", "--plot", "@x.svg"),
        "a dry run has no answer to draw",
    ),
    "a picture nowhere": (("ask", "--profile", "@other.profile", COUNT, "--plot", "@no/x.svg"), "cannot be written"),
    "a budget's picture nowhere": (
        ("budget", "--profile", "@other.profile", "--plot", "@no/x.svg"),
        "cannot be written",
    ),
    "the secure sum": (("ask", "--profile", "@other.profile", COUNT, "--privacy", "sum"), "secure sum"),
    "no study": (("coordinator", "init", "@new", "--study", "@nowhere"), "does not exist"),
    "a garbled study": (("coordinator", "init", "@new", "--study", "@garbled.toml"), "is not valid TOML"),
    "bytes for a study": (("coordinator", "init", "@new", "--study", "@binary.toml"), "cannot be read as UTF-8 text"),
    "a misspelt study": (("coordinator", "init", "@new", "--study", "@misspelt.toml"), "did you mean 'overlap'?"),
    "a misspelt coordinator": (
        ("coordinator", "init", "@new", "--study", "@study.toml", "--config", "@listening.toml"),
        "unknown key 'lisen'; did you mean 'listen'?",
    ),
    "a coordinator without an address": (
        ("coordinator", "init", "@new", "--study", "@study.toml", "--config", "@anywhere.toml"),
        'listen must be host:port, such as "coordinator.example.org:7443".',
    ),
    "a folder that is taken": (
        ("coordinator", "init", "@consortium", "--study", "@study.toml"),
        "is already a coordinator's folder",
    ),
    "a file for a folder": (("coordinator", "init", "@study.toml", "--study", "@study.toml"), "name a new folder"),
    "a folder inside a file": (
        ("coordinator", "init", "@study.toml/new", "--study", "@study.toml"),
        "cannot be made a folder",
    ),
    "serving nothing": (("coordinator", "serve", "@empty"), "is not a coordinator's folder"),
    "serving a site's folder": (("site", "serve", "@consortium"), "is not an enrolled site's folder"),
    "checking nothing": (("site", "check", "@nowhere"), "is not an enrolled site's folder"),
    "requests of nothing": (("site", "requests", "@empty"), "is not an enrolled site's folder"),
    "approving for nothing": (("site", "approve", "@empty", "00"), "is not an enrolled site's folder"),
    "denying for nothing": (("site", "deny", "@empty", "00"), "is not an enrolled site's folder"),
    "history of nothing": (("site", "history", "@empty"), "is not an enrolled site's folder"),
    "inviting for nothing": (
        ("coordinator", "invite", "@empty", "north", "--out", "@x"),
        "is not a coordinator's folder",
    ),
    "inviting no name": (
        ("coordinator", "invite", "@consortium", "no name", "--out", "@x"),
        "'no name' cannot be used as a name",
    ),
    "inviting a path": (
        ("coordinator", "invite", "@consortium", "../north", "--out", "@x"),
        "'../north' cannot be used as a name",
    ),
    "an invitation nowhere": (
        ("coordinator", "invite", "@consortium", "north", "--out", "@nowhere/x"),
        "cannot be written",
    ),
    "an invitation on a folder": (
        ("coordinator", "invite", "@consortium", "north", "--out", "@empty"),
        "cannot be written",
    ),
    "an analyst without a name": (
        ("coordinator", "analyst", "@consortium", "", "--out", "@x"),
        "'' cannot be used as a name",
    ),
    "a profile nowhere": (
        ("coordinator", "analyst", "@consortium", "amira", "--out", "@nowhere/x"),
        "cannot be written",
    ),
    "a profile inside a file": (
        ("coordinator", "analyst", "@consortium", "amira", "--out", "@study.toml/x"),
        "cannot be written",
    ),
    "an export inside a file": (("ledger", "export", "@consortium", "--out", "@study.toml/x"), "cannot be written"),
    "an export on a folder": (("ledger", "export", "@consortium", "--out", "@empty"), "cannot be written"),
    "revoking nobody": (("coordinator", "revoke", "@consortium", "nobody"), "'nobody'"),
    "no invitation": (("site", "init", "@new", "--invite", "@nowhere"), "does not exist"),
    "a study for an invitation": (("site", "init", "@new", "--invite", "@study.toml"), "is not an invitation"),
    "a ledger that is not there": (("ledger", "verify", "@nowhere"), "neither a folder with a ledger nor an export"),
    "a folder without a ledger": (("ledger", "verify", "@empty"), "no ledger"),
    "exporting nothing": (("ledger", "export", "@empty", "--out", "@x"), "no ledger"),
    "an export nowhere": (("ledger", "export", "@consortium", "--out", "@nowhere/x"), "cannot be written"),
    "a demo of one": (("demo", "--sites", "1"), "a demo needs from 2 to 32 hospitals"),
    "a demo on a full folder": (("demo", "--keep", "@sites"), "name a new folder"),
    "a demo on a file": (("demo", "--keep", "@study.toml"), "folder"),
    "tables that are not there": (
        ("simulate", "--study", "@study.toml", "--tables", "@nowhere", COUNT),
        "is not a folder",
    ),
}


@pytest.mark.parametrize("case", CALLS)
def test_a_wrong_call_is_one_sentence(desk: Desk, case: str) -> None:
    words, says = CALLS[case]
    wrong(desk(*words), code=2, says=says)
    assert not (desk.folder / "new").exists(), "nothing half-made is left"


@pytest.mark.parametrize(
    "words",
    [
        ("site", "check", "@empty", "--json"),
        ("site", "history", "@empty", "--json"),
        ("site", "requests", "@empty", "--json"),
        ("ledger", "verify", "@empty", "--json"),
        ("budget", "--profile", "@nowhere", "--json"),
        ("budget", "--json"),
        ("ask", "--profile", "@nowhere", COUNT, "--json"),
        ("ask", "--json"),
        ("simulate", "--json"),
        ("train", "--json"),
        ("train", "--profile", "@nowhere", "@nowhere.toml", "--json"),
        ("demo", "--sites", "0", "--json"),
        ("demo", "--sites", "few", "--json"),
        ("nothing", "--json"),
    ],
    ids=" ".join,
)
def test_with_json_a_wrong_call_is_also_one_document(desk: Desk, words: tuple[str, ...]) -> None:
    done = desk(*words)
    assert done.code == 2
    assert done.document()["error"]["message"] == done.sentence()
    assert done.document()["error"]["code"] in {"Mistaken", "ConfigurationMistaken"}


def test_a_site_with_a_misspelt_configuration_is_told_the_nearest_key(desk: Desk, tmp_path: Path) -> None:
    invitation = tmp_path / "north.invitation"
    assert call("coordinator", "invite", desk.folder / "consortium", "north", "--out", invitation).code == 0
    config = tmp_path / "site.toml"
    first = call("site", "init", tmp_path / "north", "--invite", invitation)
    wrong(first, code=2, says="was written for you; fill it in")
    template = (tmp_path / "north" / "site.toml").read_text(encoding="utf-8").replace("patients = 0 ", "patients = 9 ")
    for before, after, says in (
        ("max_epsilon_per_plan", "max_epsilon_per_plam", "did you mean 'max_epsilon_per_plan'?"),
        ("[tables.encounters]", "[tables.encouters]", "did you mean 'encounters'?"),
        ('"mean"', '"meen"', "did you mean 'mean'?"),
        ('approval = "automatic"', 'approval = "never"', "must be one of automatic, manual."),
        ('name = "north"', 'name = "south"', "the invitation is for 'north'."),
        ("patients = 9 ", "patients = -9 ", "must be a whole number from 1"),
        ('"encounters.csv"', '"encounters.xls"', ".csv, .parquet"),
        ("epsilon = 10.0", "epsilon = nan", "policy.epsilon must be a number"),
        ("[policy]", "[policy", "is not valid TOML"),
    ):
        assert before in template, before
        config.write_text(template.replace(before, after), encoding="utf-8")
        wrong(call("site", "init", tmp_path / "n", "--invite", invitation, "--config", config), code=2, says=says)
        assert not (tmp_path / "n").exists()


def test_a_file_that_is_no_ledger_is_an_invalid_one(desk: Desk) -> None:
    """A damaged export may look like anything, so this is a verdict (4) and not a mistake (2)."""
    done = desk("ledger", "verify", "@study.toml", "--json")
    assert done.code == 4
    assert done.document()["valid"] is False
    assert done.document()["problems"] == [{"entry": 0, "code": "Unreadable"}]


def test_a_sound_ledger_is_valid_and_its_export_too(desk: Desk, tmp_path: Path) -> None:
    out = tmp_path / "consortium.ledger"
    assert desk("ledger", "export", "@consortium", "--out", out).code == 0
    for place in ("@consortium", out):
        done = desk("ledger", "verify", place, "--json")
        assert (done.code, done.document()["valid"], done.err) == (0, True, "")


def test_an_unreadable_file_is_one_sentence(desk: Desk, tmp_path: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root reads everything")
    secret = tmp_path / "study.toml"
    secret.write_text("", encoding="utf-8")
    secret.chmod(0)
    wrong(desk("coordinator", "init", "@new", "--study", secret), code=2, says="is not readable")


@pytest.mark.parametrize("words", [("--help",), ("simulate", "--help"), ("version",)], ids=" ".join)
def test_a_reader_that_goes_away_is_no_error(words: tuple[str, ...]) -> None:
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [sys.executable, "-m", "wardround", *words], stdout=write, stderr=subprocess.PIPE, check=False, timeout=300
    )
    os.close(write)
    assert done.returncode == 0
    assert done.stderr == b""


def test_what_nobody_foresaw_says_where_and_never_what(monkeypatch: pytest.MonkeyPatch, desk: Desk) -> None:
    def break_down(path: Path) -> None:
        raise RuntimeError("patient 4711 has a secret")

    monkeypatch.setattr("wardround.cli.simulation_commands.read_study", break_down)
    done = desk.simulate(COUNT, "--json")
    assert done.code == 4
    assert "RuntimeError at test_bad_calls.py" in done.sentence()
    assert "4711" not in done.err + done.out
