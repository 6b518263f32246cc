"""How a federation of real processes comes into being: initialised, enrolled over the wire, and moved to its ports."""

from __future__ import annotations

from pathlib import Path

from coordinator.members.enrolment import issue_profile, make_invitation
from coordinator.members.folder import CoordinatorFolder
from coordinator.serving.serve import initialise
from site_agent.serving.enrolment import enrol, prepare_enrolment
from tests.fixtures.ports import HOST, take_port
from tests.integration.stage import Federation, now
from tests.integration.terms import Terms, rows_of
from wardround.federation.trust.enrolment import write_invitation

ANALYSTS = ("ada", "bob")


def build(folder: Path, terms: Terms) -> None:
    """Initialise a coordinator, enrol every site over the enrolment port, issue the profiles, and stop."""
    folder.mkdir(parents=True)
    federation = Federation(folder, terms)
    initialise(federation.consortium, study_text=terms.study(), configuration_text=terms.coordinator(), now=now())
    consortium = CoordinatorFolder(federation.consortium)
    move_to_own_ports(federation)
    try:
        federation.start_coordinator()
        for name in terms.sites:
            invite(federation, name)
            place = federation.site(name)
            place.mkdir(mode=0o700)
            (place / "encounters.csv").write_text(rows_of(name), encoding="utf-8")
            enrol(prepare_enrolment(place, folder / f"{name}.invitation", folder / f"{name}.toml"))
        for analyst in ANALYSTS:
            issue_profile(consortium, analyst, federation.profile(analyst), now=now())
        assert federation.stop("consortium") == 0
    finally:
        federation.close()
    for log in folder.glob("*.log"):
        log.unlink()


def invite(federation: Federation, name: str) -> Path:
    """A site's invitation and its configuration, ready for `site init`."""
    out = federation.folder / f"{name}.invitation"
    write_invitation(make_invitation(CoordinatorFolder(federation.consortium), name, now=now()), out)
    (federation.folder / f"{name}.toml").write_text(federation.terms.site(name), encoding="utf-8")
    return out


def _mentions(federation: Federation) -> list[Path]:
    patterns = ("*.profile", "*.invitation", "*/coordinator.json")
    return [file for pattern in patterns for file in federation.folder.glob(pattern)]


def move_to_own_ports(federation: Federation) -> None:
    """Give a federation ports that nobody else is given; nothing that is signed names a port."""
    for note in ("address", "enrolment_address"):
        fresh = f"{HOST}:{take_port()}"
        old = (federation.consortium / note).read_text(encoding="utf-8").strip()
        (federation.consortium / note).write_text(fresh + "\n", encoding="utf-8")
        for file in _mentions(federation):
            file.write_text(file.read_text(encoding="utf-8").replace(old, fresh), encoding="utf-8")
