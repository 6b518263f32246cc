"""Sites of a simulation in processes of their own: the same releases, the same ledgers, the same refusals."""

from __future__ import annotations

import dataclasses
import multiprocessing
import os
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path

import numpy as np
import pytest

from site_agent.reading.dataset import Dataset
from tests.analyst.learning.clinics import SIZES, request, seeded, study, write
from wardround.federation.errors import ConfigurationMistaken, InvariantBroken, LedgerBusy, Mistaken, PeerUnreachable
from wardround.federation.forms.parts import AnswerLayout
from wardround.federation.ledger import chain
from wardround.federation.ledger.entry_body import decode_body, text_in
from wardround.federation.models.step_layout import StepLayout
from wardround.federation.plan.task import Submission
from wardround.federation.trust.entry import Entry
from wardround.federation.trust.identity import PublicIdentity
from wardround.privacy.noise.vectors import Bounded
from wardround.simulation.federation import SimulatedFederation, SimulatedSite, default_policy
from wardround.simulation.noise import ZeroNoise
from wardround.simulation.sites import find_sites

COUNT = "SELECT sex, COUNT(*) FROM visits GROUP BY sex"


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Dataset]:
    return find_sites(write(tmp_path_factory.mktemp("tables")), study())


def sites_over(tables: Mapping[str, Dataset]) -> dict[str, SimulatedSite]:
    return {name: SimulatedSite(dataset, 300, noise=seeded(name)) for name, dataset in tables.items()}


@contextmanager
def federation(folder: Path, sites: Mapping[str, SimulatedSite], *, processes: int) -> Iterator[SimulatedFederation]:
    folder.mkdir()
    found = SimulatedFederation(study(), sites, folder=folder, processes=processes)
    try:
        yield found
    finally:
        found.close()
    assert multiprocessing.active_children() == []


@pytest.mark.parametrize("processes", [2, 3])
def test_questions_and_trainings_are_answered_alike_and_every_ledger_is_whole(
    tmp_path: Path, tables: dict[str, Dataset], processes: int
) -> None:
    found = []
    for number in (1, processes):
        folder = tmp_path / str(number)
        with federation(folder, sites_over(tables), processes=number) as here:
            answer = here.client.ask(COUNT, epsilon=0.5)
            model = here.client.train(request(rounds=3))
            again = here.client.ask(COUNT, epsilon=0.5)
            spent = again.privacy.spent
            # Somebody who asks again gets the stored bytes.
            assert (again.answer.replayed, again.estimates) == (True, answer.estimates)
        found.append((answer.answer.plan_id, answer.estimates, model.predictor.weights.tolist(), spent))
        kinds = {site: entries_of(folder / site) for site in SIZES}
        assert all(each.count("charged") == each.count("released") >= 4 for each in kinds.values())
        assert entries_of(folder).count("received") == sum(each.count("released") for each in kinds.values())
        assert {site: receipts_of(folder / site) for site in SIZES} == {
            site: each.count("released") for site, each in kinds.items()
        }
    assert found[0] == found[1]


def entries_of(folder: Path) -> list[str]:
    """The kinds of a closed ledger's entries, after each was seen to be signed and to follow the one before."""
    with closing(sqlite3.connect(folder / "ledger.sqlite")) as connection:
        entries = list(chain.entries(connection))
    key = PublicIdentity(text_in(decode_body(entries[0].body), "key"))
    assert all(entry.signed_by(key) for entry in entries)
    assert [entry.previous for entry in entries[1:]] == [entry.digest for entry in entries[:-1]]
    return [entry.kind for entry in entries]


def receipts_of(folder: Path) -> int:
    """How many answers the site knows to have arrived."""
    with closing(sqlite3.connect(folder / "ledger.sqlite")) as connection:
        return int(connection.execute("SELECT COUNT(*) FROM receipts").fetchone()[0])


def test_what_a_busy_coordinator_did_not_take_is_delivered_in_the_next_turn(
    tmp_path: Path, tables: dict[str, Dataset], monkeypatch: pytest.MonkeyPatch
) -> None:
    with federation(tmp_path / "f", sites_over(tables), processes=2) as here:
        take, handed_in = here.coordinator.submit, list[str]()

        def submit(site: str, submission: Submission) -> Entry | None:
            handed_in.append(site)
            if len(handed_in) == 2:
                raise LedgerBusy
            return take(site, submission)

        monkeypatch.setattr(here.coordinator, "submit", submit)
        with pytest.raises(LedgerBusy):
            here.client.ask(COUNT, epsilon=0.5)
        answer = here.client.ask(COUNT, epsilon=0.5)
    assert sorted(answer.answer.answered) == sorted(SIZES)
    for site in SIZES:
        assert entries_of(tmp_path / "f" / site) == ["opened", "capped", "pinned", "charged", "released"]
        assert receipts_of(tmp_path / "f" / site) == 1


def test_a_site_that_refuses_is_named_and_the_others_answer(tmp_path: Path, tables: dict[str, Dataset]) -> None:
    careful = dataclasses.replace(default_policy(study()), max_epsilon_per_plan=0.1)
    sites = sites_over(tables) | {"south": SimulatedSite(tables["south"], 300, policy=careful)}
    with federation(tmp_path / "f", sites, processes=2) as here:
        answer = here.client.ask(COUNT, epsilon=0.5)
    assert [site for site, _ in answer.answer.refused] == ["south"]
    assert sorted(answer.answer.answered) == ["east", "north", "west"]


class Endless:
    """A table whose process is killed while it reads."""

    def check(self, form: AnswerLayout) -> None:
        del form

    def bounded(self, form: AnswerLayout) -> tuple[Bounded, ...]:
        del form
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError

    def keys(self, form: AnswerLayout) -> Mapping[str, int]:
        raise AssertionError(form)

    def examples(self, form: StepLayout) -> object:
        raise AssertionError(form)


class Tripping(Endless):
    """A table that breaks a rule when it is first read."""

    def __init__(self, table: Dataset) -> None:
        self._table = table
        self._tripped = False

    def bounded(self, form: AnswerLayout) -> tuple[Bounded, ...]:
        if not self._tripped:
            self._tripped = True
            raise InvariantBroken("A rule was broken.")
        return self._table.bounded(form)


@pytest.mark.parametrize("site", sorted(SIZES))
def test_a_site_that_breaks_a_rule_is_heard_and_the_next_turn_goes_on(
    tmp_path: Path, tables: dict[str, Dataset], site: str
) -> None:
    sites = sites_over(tables) | {site: SimulatedSite(Tripping(tables[site]), 300, noise=seeded(site))}  # type: ignore[arg-type]
    with federation(tmp_path / "f", sites, processes=2) as here:
        with pytest.raises(InvariantBroken, match="A rule was broken"):
            here.client.ask(COUNT, epsilon=0.5)
        answer = here.client.ask(COUNT, epsilon=0.5)
    assert sorted(answer.answer.answered) == sorted(SIZES)
    for name in SIZES:
        assert entries_of(tmp_path / "f" / name) == ["opened", "capped", "pinned", "charged", "released"]


def test_a_process_that_dies_ends_the_simulation_with_a_sentence(tmp_path: Path, tables: dict[str, Dataset]) -> None:
    sites = sites_over(tables) | {"south": SimulatedSite(Endless(), 300)}  # type: ignore[arg-type]
    with federation(tmp_path / "f", sites, processes=2) as here:
        with pytest.raises(InvariantBroken, match="process of the simulation ended"):
            here.client.ask(COUNT, epsilon=0.5)
        assert multiprocessing.active_children() == []
        with pytest.raises(PeerUnreachable, match="make the federation anew"):
            here.client.ask("SELECT COUNT(*) FROM visits", epsilon=0.5)


def test_what_cannot_be_sent_to_another_process_is_said(tmp_path: Path, tables: dict[str, Dataset]) -> None:
    class Local(ZeroNoise):
        guard = threading.Lock()

    sites = sites_over(tables) | {"south": SimulatedSite(tables["south"], 300, noise=Local())}
    (tmp_path / "f").mkdir()
    with pytest.raises(Mistaken, match="can be pickled"):
        SimulatedFederation(study(), sites, folder=tmp_path / "f", processes=2)
    assert multiprocessing.active_children() == []


def test_a_site_that_cannot_begin_is_said(tmp_path: Path, tables: dict[str, Dataset]) -> None:
    (tmp_path / "south").mkdir()
    (tmp_path / "south" / "ledger.sqlite").mkdir()
    with pytest.raises(ConfigurationMistaken, match=r"ledger\.sqlite"):
        SimulatedFederation(study(), sites_over(tables), folder=tmp_path, processes=2)
    assert multiprocessing.active_children() == []


PROGRAM = """
import sys
from pathlib import Path
from tests.analyst.learning.clinics import study
from wardround.federation.errors import Mistaken
from wardround.simulation.federation import SimulatedFederation, SimulatedSite
from wardround.simulation.sites import find_sites

sites = {name: SimulatedSite(each, 300) for name, each in find_sites(Path(sys.argv[1]), study()).items()}
try:
    SimulatedFederation(study(), sites, folder=Path(sys.argv[2]), processes=2)
except Mistaken as mistaken:
    print(mistaken.message)
"""


def test_a_program_that_does_not_say_where_it_begins_is_told_so(tmp_path: Path) -> None:
    write(tmp_path / "tables", sizes={"east": 3, "north": 3})
    (tmp_path / "program.py").write_text(PROGRAM, encoding="utf-8")
    (tmp_path / "f").mkdir()
    done = subprocess.run(
        [sys.executable, tmp_path / "program.py", tmp_path / "tables", tmp_path / "f"],
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "ended before its sites began" in done.stdout
    assert "__main__" in done.stdout


@pytest.mark.parametrize("processes", [0, -1, 5])
def test_an_impossible_number_of_processes_is_refused(
    tmp_path: Path, tables: dict[str, Dataset], processes: int
) -> None:
    with pytest.raises(Mistaken, match=f"processes is {processes}; it must be from 1 to the number of sites, 4"):
        SimulatedFederation(study(), sites_over(tables), folder=tmp_path, processes=processes)
    assert list(tmp_path.iterdir()) == []


def test_sampling_is_alike_too(tmp_path: Path, tables: dict[str, Dataset]) -> None:
    wanted = request(
        kind="perceptron", hidden=3, rounds=2, batch_size=40, patients=700, local_steps=2, schedule="local_steps"
    )
    weights = []
    for number in (1, 2):
        with federation(tmp_path / str(number), sites_over(tables), processes=number) as here:
            weights.append(here.client.train(wanted).predictor.weights)
    assert np.array_equal(weights[0], weights[1])
