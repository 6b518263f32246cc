"""A federation's folders, made in this process in a moment: every file that `init` makes, without a wire."""

from __future__ import annotations

from pathlib import Path

from coordinator.members.enrolment import issue_profile
from coordinator.members.folder import open_folder
from coordinator.serving.serve import initialise
from tests.integration.building import ANALYSTS, invite, move_to_own_ports
from tests.integration.stage import Federation, now
from tests.integration.terms import Terms, rows_of
from tests.roles.enrolled import enrol


def found(folder: Path, terms: Terms, *, analysts: tuple[str, ...] = ANALYSTS) -> Federation:
    """A stopped federation: a coordinator, every site of the terms with its rows, and the profiles."""
    folder.mkdir(parents=True, exist_ok=True)
    federation = Federation(folder, terms)
    initialise(federation.consortium, study_text=terms.study(), configuration_text=terms.coordinator(), now=now())
    move_to_own_ports(federation)
    consortium = open_folder(federation.consortium)
    for name in terms.sites:
        place = federation.site(name)
        place.mkdir(mode=0o700)
        (place / "encounters.csv").write_text(rows_of(name), encoding="utf-8")
        enrol(consortium, place, invite(federation, name), folder / f"{name}.toml")
    for analyst in analysts:
        issue_profile(consortium, analyst, federation.profile(analyst), now=now())
    return federation
