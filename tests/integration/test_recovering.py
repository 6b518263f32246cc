"""A role that is lost comes back from its copy by the commands of docs/deploy.md, over the wire, and nobody freezes."""

from __future__ import annotations

import shlex
import shutil
import signal

from tests.docs.pages import ROOT, blocks
from tests.integration.conftest import Make
from tests.integration.stage import AGES, Federation, eventually

NAMES = {"st-mary": "one", "ward-7": "two", "amira": "ada"}


def commands(about: str) -> list[str]:
    """The commands of the page that recover a role, about the names of this federation."""
    (text,) = [b.text for b in blocks(ROOT / "docs/deploy.md") if b.language == "sh" and about in b.text]
    for name, ours in NAMES.items():
        text = text.replace(name, ours)
    return text.strip().splitlines()


def follow(federation: Federation, line: str) -> None:
    """One command of the page, in the federation's folder."""
    match shlex.split(line):
        case ["mv", source, target]:
            (federation.folder / source).rename(federation.folder / target)
        case ["cp", "-a", source, target]:
            shutil.copytree(federation.folder / source, federation.folder / target)
        case ["wardround", *words]:
            done = federation.run(*words)
            assert done.code == 0, done.err
        case other:
            raise AssertionError(other)


def test_a_coordinator_comes_back_as_the_page_says(make_federation: Make) -> None:
    federation = make_federation(sites=("one", "two"))
    federation.start()
    first = federation.ask()
    (federation.folder / "copies").mkdir()
    assert federation.run("coordinator", "backup", "consortium", "copies/consortium").code == 0
    second = federation.ask(AGES)
    eventually(lambda: len(federation.rows("two", "SELECT 1 FROM receipts")) == 2, what="two has its receipt")
    federation.stop("consortium", number=signal.SIGKILL)
    *before, serve = commands("coordinator recover")
    for line in before:
        follow(federation, line)
    assert serve == "wardround coordinator serve consortium"
    federation.start_coordinator()
    eventually(lambda: len(federation.entries("consortium", "rejoined")) == 2, what="both sites are back")
    assert federation.ask(AGES)["estimates"] == second["estimates"]
    assert federation.ask()["estimates"] == first["estimates"]
    federation.ask(fresh=True)
    federation.check_ledgers()
    for name in federation.sites:
        assert federation.entries(name, "frozen") == []
        assert len(federation.entries(name, "charged")) == 3
    assert len(federation.entries("consortium", "imported")) == 2


def test_a_site_comes_back_as_the_page_says(make_federation: Make) -> None:
    federation = make_federation(sites=("one", "two"))
    federation.start()
    federation.ask()
    (federation.folder / "copies").mkdir()
    assert federation.run("site", "backup", "one", "copies/one").code == 0
    answer = federation.ask(AGES)
    eventually(lambda: len(federation.rows("one", "SELECT 1 FROM receipts")) == 2, what="one has its receipt")
    federation.stop("one", number=signal.SIGKILL)
    released = federation.rows("one", "SELECT plan_id, payload FROM releases")
    *before, check, serve = commands("site recover")
    for line in before[:-1]:
        follow(federation, line)
    # Tables are no part of a copy.
    shutil.copy(federation.folder / "lost-one" / "encounters.csv", federation.folder / "one")
    done = federation.run("site", "check", "one")
    assert (done.code, "do not serve" in done.out) == (1, True)
    assert "which lacks entry 7 that this site signed; recover it first: wardround site recover" in done.out
    follow(federation, before[-1])
    follow(federation, check)
    assert serve == "wardround site serve one"
    federation.start_site("one")
    assert federation.rows("one", "SELECT plan_id, payload FROM releases") == released
    assert federation.ask(AGES)["estimates"] == answer["estimates"]
    assert len(federation.ask(fresh=True)["sites"]["answered"]) == 2  # type: ignore[index,call-overload,arg-type]
    federation.check_ledgers()
    assert len(federation.entries("one", "recovered")) == 1
    assert len(federation.entries("one", "charged")) == 3
