"""A consortium and hospitals that enrol with it in this process: every file that `init` makes, without a wire."""

from __future__ import annotations

import datetime
from pathlib import Path

from coordinator.enrolment import enrol_site, make_invitation, opened
from coordinator.folder import CoordinatorFolder, open_folder
from coordinator.serve import initialise
from site_agent.enrolment import begin, finish, prepare_enrolment
from site_agent.folder import SiteFolder
from tests.roles.lone_site import STUDY
from wardround.federation.invitation import write_invitation

NOW = datetime.datetime.now(datetime.UTC)
LIFE = datetime.timedelta(days=14)

SITE = """\
[site]
name = "{name}"
patients = 1000
dataset = "ehr"
{more}
[tables.visits]
source = "visits.csv"
[policy]
epsilon = 4.0
delta = 1e-6
"""


def found(folder: Path, *, study: str = STUDY) -> CoordinatorFolder:
    """A coordinator as `init` leaves it."""
    initialise(folder, study_text=study, configuration_text=None, now=NOW)
    return open_folder(folder)


def invite(consortium: CoordinatorFolder, name: str, *, more: str = "") -> tuple[Path, Path]:
    """A hospital's invitation and its configuration, beside the consortium's folder."""
    invitation, config = (consortium.path.parent / f"{name}{end}" for end in (".invitation", ".toml"))
    write_invitation(make_invitation(consortium, name, now=NOW), invitation)
    config.write_text(SITE.format(name=name, more=more), encoding="utf-8")
    return invitation, config


def enrol(consortium: CoordinatorFolder, path: Path, invitation: Path, config: Path | None) -> SiteFolder:
    """`site init`, with the coordinator in the same process."""
    ready = prepare_enrolment(path, invitation, config)
    asked = begin(ready)
    with opened(consortium) as ledger:
        certificate = enrol_site(ledger, consortium.authority(), asked, life=LIFE, now=NOW)
    finish(ready, certificate)
    return SiteFolder(path)


def hospital(consortium: CoordinatorFolder, name: str = "north", *, more: str = "") -> SiteFolder:
    """An enrolled hospital beside the consortium's folder."""
    return enrol(consortium, consortium.path.parent / name, *invite(consortium, name, more=more))
