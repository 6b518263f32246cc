"""Files that people hand over: nothing in them may show another thing than it says; what was let in before still opens.

| file | refused when | escaped when shown |
|---|---|---|
| study.toml | it is checked or simulated, a coordinator is made, a hospital signs | to hospitals, in answers |
| coordinator.toml | a coordinator is made | in errors |
| site.toml | a hospital is about to enrol | by `site check`, in logs and errors |
| invitation, profile | always | – |
| request.toml | always | – |
| names of sites, analysts and studies, tables and columns | always, by their letters | – |
"""

from __future__ import annotations

import dataclasses
import datetime
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from coordinator.members.enrolment import issue_profile, make_invitation
from coordinator.members.folder import CoordinatorFolder, open_folder
from coordinator.serving.serve import initialise
from coordinator.store.ledger import begin_ledger
from site_agent.serving.enrolment import prepare_enrolment
from tests.cli.calling import call
from tests.docs.pages import ROOT
from tests.screens.hostile_words import SITE, STUDY, Hospital
from wardround.analyst.learning.request import parse_request
from wardround.federation.errors import ConfigurationMistaken
from wardround.federation.ledger.verify.verify import verify
from wardround.federation.plain_text import is_plain
from wardround.federation.plan.sql_text import study_text
from wardround.federation.strict_toml import check_plain
from wardround.federation.study.study_file import new_study, parse_study, read_study
from wardround.federation.trust.enrolment import Invitation, read_invitation, read_profile, write_invitation
from wardround.federation.trust.identity import Identity

NOW = datetime.datetime(2026, 3, 1, 12, 0, tzinfo=datetime.UTC)
CLOSED = STUDY.replace('note = { type = "category" }', 'note = { type = "category", values = ["a", "b"] }')
# As TOML writes what it may not hold as it is; the last is the raw character.
HIDDEN = ("\\u202e", "\\u001b", "\\n", "\\u2028", "\\u007f", "\u2067")
BEFORE = CLOSED.replace('"b"', '"b\\n    age: integer from 0 to 1\\u001b[1A\\u202e"')
"""A study of before, with a category that would forge the bounds that a hospital signs."""


def sample(name: str) -> str:
    return (ROOT / "deploy" / name).read_text("utf-8")


DOORS: dict[str, tuple[str, Callable[[str], object]]] = {
    "study.toml": (sample("study.toml"), new_study),
    "request.toml": (sample("request.toml"), parse_request),
    "site.toml": (sample("site.toml"), lambda text: check_plain(text, name="site.toml", broken=("relation",))),
    "coordinator.toml": (sample("coordinator.toml"), lambda text: check_plain(text, name="coordinator.toml")),
}


@pytest.mark.parametrize("name", DOORS)
@pytest.mark.parametrize("hidden", HIDDEN)
def test_a_hidden_character_in_any_text_of_a_document_is_refused(name: str, hidden: str) -> None:
    text, read = DOORS[name]
    read(text)
    lines = [line.partition(" #")[0] for line in text.splitlines() if not line.startswith("#")]
    sound = "\n".join(lines)
    places = [found.end() - 1 for found in re.finditer(r'"[^"\n]+"', sound)]
    assert places
    for place in places:
        with pytest.raises(ConfigurationMistaken) as caught:
            read(sound[:place] + hidden + sound[place:])
        assert is_plain(caught.value.message)


def test_the_sentence_says_which_line_or_which_key() -> None:
    with pytest.raises(ConfigurationMistaken, match=r"^study.toml: line 1 has U\+202E at place 18, "):
        new_study(STUDY.replace('"trial"', '"trial" # \u202e', 1))
    with pytest.raises(
        ConfigurationMistaken, match=r"^study.toml: tables.visits.columns.note.values has U\+001B at place 2, "
    ):
        new_study(CLOSED.replace('"b"', '"b\\u001b"'))


def test_a_select_has_lines_and_nothing_else_that_is_hidden() -> None:
    relation = 'relation = """\nSELECT *\tFROM this\r\n{}"""\n'
    check_plain(relation.format(""), name="site.toml", broken=("relation",))
    with pytest.raises(ConfigurationMistaken, match=r"relation has U\+202E"):
        check_plain(relation.format("-- \\u202e"), name="site.toml", broken=("relation",))
    with pytest.raises(ConfigurationMistaken, match=r"site.dataset has U\+000A at place 4, "):
        check_plain('[site]\ndataset = "ehr\\nx"\n', name="site.toml", broken=("relation",))


def test_a_coordinator_is_not_made_of_hidden_characters(tmp_path: Path) -> None:
    for study, configuration in ((BEFORE, None), (STUDY, 'listen = "127.0.0.1:0" # \u202e\n')):
        with pytest.raises(ConfigurationMistaken, match=r"U\+(000A|202E)"):
            initialise(tmp_path / "new", study_text=study, configuration_text=configuration, now=NOW)
        assert not (tmp_path / "new").exists()
    with pytest.raises(ConfigurationMistaken, match="host:port"):
        initialise(tmp_path / "new", study_text=STUDY, configuration_text='listen = "a\\u001b:7"', now=NOW)


def test_nobody_checks_or_simulates_a_study_that_hides_something(tmp_path: Path) -> None:
    (tmp_path / "study.toml").write_text(BEFORE, encoding="utf-8")
    for words in (
        ("study", "check", tmp_path / "study.toml"),
        ("simulate", "--study", tmp_path / "study.toml", "--tables", tmp_path, "SELECT COUNT(*) FROM visits"),
        ("coordinator", "init", tmp_path / "new", "--study", tmp_path / "study.toml"),
    ):
        done = call(*words)
        assert done.code == 2
        assert "tables.visits.columns.note.values has U+000A at place 2" in done.sentence()
    with pytest.raises(ConfigurationMistaken):
        read_study(tmp_path / "study.toml")


# --- invitations and profiles -----------------------------------------------------------------------------------------


@pytest.fixture
def consortium(tmp_path: Path) -> CoordinatorFolder:
    initialise(tmp_path / "consortium", study_text=STUDY, configuration_text=None, now=NOW)
    return open_folder(tmp_path / "consortium")


def test_every_field_of_an_invitation_and_a_profile_is_plain(consortium: CoordinatorFolder, tmp_path: Path) -> None:
    invitation, profile = tmp_path / "an.invitation", tmp_path / "a.profile"
    write_invitation(make_invitation(consortium, "north", now=NOW), invitation)
    issue_profile(consortium, "amira", profile, now=NOW)
    for file, read in ((invitation, read_invitation), (profile, read_profile)):
        read(file)
        document = json.loads(file.read_text("utf-8"))
        for field in document:
            file.write_text(json.dumps({**document, field: document[field] + "\u202e"}), encoding="utf-8")
            with pytest.raises(ConfigurationMistaken, match=r"is not an (invitation|analyst's profile)"):
                read(file)


@pytest.mark.parametrize("name", ["north\u202e", "no\x1bth", "north\n", "no\u200brth", "nörth"])
def test_a_name_has_letters_that_everybody_reads_alike(
    consortium: CoordinatorFolder, tmp_path: Path, name: str
) -> None:
    for words in (("invite", name), ("analyst", name), ("revoke", name)):
        done = call(
            "coordinator", words[0], consortium.path, name, *(("--out", tmp_path / "o") * (words[0] != "revoke"))
        )
        assert done.code == 2
        assert is_plain(done.sentence())
    with pytest.raises(ConfigurationMistaken, match="letters, digits"):
        new_study(STUDY.replace('"trial"', json.dumps(name)))


# --- joining, and what was joined before ------------------------------------------------------------------------------


def invited(consortium: CoordinatorFolder, file: Path, text: str) -> Invitation:
    """An invitation to this study, as a consortium of before would have written it."""
    study_hash = parse_study(text).study_hash
    made = make_invitation(consortium, "north", now=NOW)
    invitation = dataclasses.replace(made, study_text=text, study_hash=study_hash)
    write_invitation(invitation, file)
    return invitation


def test_a_hospital_signs_nothing_that_hides_something(consortium: CoordinatorFolder, tmp_path: Path) -> None:
    file, config = tmp_path / "an.invitation", tmp_path / "north.toml"
    invited(consortium, file, BEFORE)
    config.write_text(SITE, encoding="utf-8")
    with pytest.raises(ConfigurationMistaken, match=r"the invitation's study: .*note.values has U\+000A"):
        prepare_enrolment(tmp_path / "north", file, config)
    invited(consortium, file, STUDY)
    config.write_text(SITE.replace("patients", 'dataset = "ehr\\u202e"\npatients'), encoding="utf-8")
    with pytest.raises(ConfigurationMistaken, match=r"north.toml: site.dataset has U\+202E at place 4"):
        prepare_enrolment(tmp_path / "north", file, config)
    assert not (tmp_path / "north").exists()


def test_a_site_that_signed_such_a_study_before_opens_verifies_and_can_renew(
    consortium: CoordinatorFolder, tmp_path: Path
) -> None:
    (tmp_path / "north").mkdir()
    hospital = Hospital(
        tmp_path / "north", study=BEFORE, site=SITE.replace("patients", 'dataset = "e\\u202e"\npatients')
    )
    hospital.ledger.close()
    assert verify(hospital.folder).valid
    for words in (("requests",), ("history",), ("history", "--json")):
        assert call("site", words[0], hospital.folder, *words[1:]).code == 0
    (hospital.folder / "visits.csv").write_text("patient_id,age,note\np,40,a\n", encoding="utf-8")
    file = tmp_path / "again.invitation"
    invited(consortium, file, BEFORE)
    again = prepare_enrolment(hospital.folder, file, None)
    # What is signed once more is shown as it is, and its lines are ours.
    assert "'b\\n    age: integer from 0 to 1\\x1b[1A\\u202e'" in again.text()
    assert len(again.text().splitlines()) == len(study_text(parse_study(CLOSED)).splitlines()) + 1


def test_a_coordinator_of_before_opens_and_verifies(tmp_path: Path) -> None:
    (tmp_path / "study.toml").write_text(BEFORE, encoding="utf-8")
    identity = Identity.generate()
    identity.save(tmp_path / "identity.pem")
    begin_ledger(tmp_path, study=parse_study(BEFORE), identity=identity).close()
    assert CoordinatorFolder(tmp_path).study() == parse_study(BEFORE)
    assert verify(tmp_path).valid
