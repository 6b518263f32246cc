"""Folders of a real federation, as this version of wardround leaves them: `python -m tests.recorded.make_folders NAME`.

A coordinator and three hospitals, in processes of their own over mutual TLS, that answered, refused, waited for a
steward, froze and trained a model; then everything was stopped in the middle of a round. Later versions must open,
serve and verify what is kept in `folders/NAME.tar.xz`; a version that changes what is on disk adds one of its own.
"""

from __future__ import annotations

import contextlib
import sys
import tarfile
from dataclasses import dataclass
from pathlib import Path

from tests.integration.building import build
from tests.integration.stage import AGES, PATIENTS, Asked, Federation, closing, eventually
from tests.integration.terms import Terms
from tests.recorded.recording import new_folder
from wardround.analyst.showing.documents import Json
from wardround.federation.errors import AwaitingApproval

FOLDERS = Path(__file__).parent / "folders"
SUMS = "SELECT diagnosis, SUM(age) FROM encounters GROUP BY diagnosis"
MEANS = "SELECT AVG(sbp) FROM encounters WHERE age >= 40"
CORRELATION = "SELECT CORR(age, sbp) FROM encounters"
REQUEST = """\
kind = "logistic"
table = "encounters"
target = "diagnosis"
features = ["age", "sbp"]
epsilon = 5.0
rounds = 2
"""
ALLOWED = 'statistics = ["count", "sum", "mean", "correlation", "training"]'


@dataclass(frozen=True, slots=True)
class OwnTerms(Terms):
    """One hospital allows some statistics only, one asks a steward."""

    def site(self, name: str) -> str:
        text = Terms.site(self, name)
        if name == "two":
            return f"{text}{ALLOWED}\n"
        return text.replace('"automatic"', '"manual"') if name == "three" else text


def made(folder: Path) -> Federation:
    """Everything that can be in a ledger, and nobody serving any more."""
    build(folder, OwnTerms())
    with closing(Federation(folder, OwnTerms())) as federation:
        federation.start_timeless_coordinator()
        for name in federation.sites:
            federation.start_site(name)
        persistently(federation, PATIENTS)
        federation.stop("one")
        old = (federation.site("one") / "ledger.sqlite").read_bytes()
        federation.start_site("one")
        persistently(federation, AGES)
        (folder / "request.toml").write_text(REQUEST, encoding="utf-8")
        eventually(lambda: trained(federation), what="the training is decided and done")
        # From here on the first hospital has forgotten what it answered.
        federation.stop("one")
        (federation.site("one") / "ledger.sqlite").write_bytes(old)
        federation.start_site("one")
        received = federation.received()
        federation.after_the_deadline(
            Asked(lambda: persistently(federation, SUMS)),
            when=lambda: federation.received() > received and "frozen" in federation.log("one"),
            what="one froze and the others answered",
        )
        denied(federation)
        left_open(federation)
        for name in list(federation.running):
            federation.stop(name)
    return federation


def persistently(federation: Federation, question: str) -> dict[str, Json]:
    """The answer, which the steward of one hospital has to let through."""
    found: list[dict[str, Json]] = []

    def answered() -> bool:
        with contextlib.suppress(AwaitingApproval):
            found.append(federation.ask(question))
        decide(federation, "approve")
        return bool(found)

    eventually(answered, what=f"a steward lets {question} through")
    return found[0]


def trained(federation: Federation) -> bool:
    request = federation.folder / "request.toml"
    done = federation.run("train", "--profile", federation.profile(), request, "--json", "--out", "models")
    decide(federation, "approve")
    assert done.code in (0, 3), done.err
    return done.code == 0


def denied(federation: Federation) -> None:
    asked = federation.asking(CORRELATION)
    eventually(lambda: decide(federation, "deny"), what="the correlation is denied")
    federation.after_the_deadline(
        asked, when=lambda: len(federation.entries("consortium", "declined")) > 1, what="the refusal arrived"
    )


def left_open(federation: Federation) -> None:
    """A round that waits for a steward when everybody stops."""
    federation.asking(MEANS)
    eventually(lambda: waiting(federation), what="the mean waits for a steward")


def waiting(federation: Federation) -> list[str]:
    rows = federation.rows("three", "SELECT plan_id FROM requests WHERE state = 'pending'")
    return [str(plan_id) for (plan_id,) in rows]


def decide(federation: Federation, word: str) -> bool:
    """Whether a request was waiting; it is decided now."""
    found = waiting(federation)
    for plan_id in found:
        done = federation.run("site", word, federation.site("three"), plan_id)
        assert done.code == 0, done.err
    return bool(found)


def archive(federation: Federation, path: Path) -> None:
    """The folders, the profile and its key alone, with nothing of this machine in them."""

    def nobody(info: tarfile.TarInfo) -> tarfile.TarInfo | None:
        info.uid = info.gid = 0
        info.uname = info.gname = ""
        return None if Path(info.name).name in ("serving", "days") else info

    with tarfile.open(path, "w:xz") as archive:
        for name in ("consortium", *federation.sites, "ada.profile", "ada.profile.identity.pem"):
            archive.add(federation.folder / name, name, filter=nobody)


if __name__ == "__main__":
    (name,) = sys.argv[1:]
    FOLDERS.mkdir(exist_ok=True)
    with new_folder() as place:
        archive(made(Path(place) / "federation"), FOLDERS / f"{name}.tar.xz")
    print(f"wrote folders/{name}.tar.xz")
