"""A consortium of many small hospitals over SQLite files, and many analysts, enrolled without a wire."""

from __future__ import annotations

import shutil
from pathlib import Path

from coordinator.members.enrolment import issue_profile, make_invitation
from coordinator.members.folder import open_folder
from coordinator.serving.serve import initialise
from tests.integration.building import move_to_own_ports
from tests.integration.stage import Federation, now
from tests.integration.terms import Terms
from tests.roles.enrolled import enrol
from tests.site_agent.sources.database_files import write_sqlite
from wardround.federation.trust.enrolment import write_invitation

PATIENTS = 20

CONFIGURATION = """\
[site]
name = "{name}"
patients = 100
dataset = "{name}"

[tables.encounters]
source = "sqlite:hospital.db"

[policy]
epsilon = {epsilon}
delta = 1e-6
"""


def found_many(folder: Path, *, sites: int, analysts: int, epsilon: float) -> Federation:
    """A stopped federation in which every site has to answer."""
    folder.mkdir(parents=True)
    names = tuple(f"hospital-{number:03}" for number in range(sites))
    terms = Terms(epsilon=epsilon, min_sites=sites, sites=names, deadline_seconds=3000.0)
    federation = Federation(folder, terms)
    initialise(federation.consortium, study_text=terms.study(), configuration_text=terms.coordinator(), now=now())
    move_to_own_ports(federation)
    consortium = open_folder(federation.consortium)
    rows = [
        {"patient_id": f"p{patient}", "age": 30 + patient, "sbp": 120.0, "diagnosis": "E11"}
        for patient in range(PATIENTS)
    ]
    table = write_sqlite(folder / "hospital.db", rows, list(rows[0]), table="encounters")
    for name in names:
        invitation, config = folder / f"{name}.invitation", folder / f"{name}.toml"
        write_invitation(make_invitation(consortium, name, now=now()), invitation)
        config.write_text(CONFIGURATION.format(name=name, epsilon=epsilon), encoding="utf-8")
        federation.site(name).mkdir(mode=0o700)
        shutil.copy(table, federation.site(name) / "hospital.db")
        enrol(consortium, federation.site(name), invitation, config)
    for number in range(analysts):
        issue_profile(consortium, f"analyst-{number:02}", federation.profile(f"analyst-{number:02}"), now=now())
    return federation
