"""What a hospital publishes is the same, to the byte, whatever its rows are: enrolment, greeting and refusals."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from coordinator.members.folder import CoordinatorFolder
from coordinator.planning.plans import plans_for
from protos.chunked_release import write_submission
from protos.words import ENROLMENT, PRESENTING
from site_agent.answering.pipeline import Pipeline
from site_agent.serving.enrolment import begin, prepare_enrolment
from site_agent.serving.folder import SiteFolder
from site_agent.serving.open_dataset import site_dataset
from site_agent.store.ledger import SiteLedger
from tests.fixtures.asking import asked_by
from tests.roles.enrolled import NOW, found, hospital, invite
from wardround.analyst.sql.read import parse
from wardround.federation.plan.task import AskRequest, Declined, Task, sign_task
from wardround.federation.refusal import RefusalReason
from wardround.federation.trust.enrolment import Presenting
from wardround.federation.trust.entry import EMPTY
from wardround.simulation.noise import ZeroNoise

HEAD = b"patient_id,age,sbp\n"
TABLES = {
    "two patients": HEAD + b"a,40,120\nb,50,130\n",
    "every row another": HEAD + b"x,41,121\ny,51,131\n",
    "many patients": HEAD + b"".join(b"p%d,%d,%d\n" % (n, n % 110, 80 + n % 120) for n in range(500)),
    "nobody": HEAD,
    "values that cannot be read": HEAD + b"a,forty,\xff\n",
}
PAIR = ("north", "south")
# A question for each reason that a policy, a schema or a ledger gives, its ε and who is asked.
ASKED = {
    RefusalReason.STATISTIC: ("SELECT SUM(age) FROM visits", 0.2, PAIR),
    RefusalReason.EPSILON: ("SELECT COUNT(*) FROM visits", 0.5, PAIR),
    RefusalReason.COMPANY: ("SELECT COUNT(*) FROM visits", 0.2, ("north",)),
    RefusalReason.SCHEMA: ("SELECT code, COUNT(*) FROM visits GROUP BY code", 0.2, PAIR),
    RefusalReason.OWN_BUDGET: ("SELECT COUNT(*) FROM visits", 0.3, PAIR),
}


@pytest.fixture(scope="module")
def consortium(tmp_path_factory: pytest.TempPathFactory) -> CoordinatorFolder:
    return found(tmp_path_factory.mktemp("roles") / "consortium")


@pytest.fixture(scope="module")
def enrolled(consortium: CoordinatorFolder) -> Path:
    """A hospital with its keys; copies of it differ in their rows alone."""
    site = hospital(consortium).path
    config = (site / "site.toml").read_text(encoding="utf-8")
    policy = 'statistics = ["count", "mean"]\nmax_epsilon_per_plan = 0.4\nmin_sites = 2\n'
    (site / "site.toml").write_text(config.replace("epsilon = 4.0", "epsilon = 0.1") + policy, encoding="utf-8")
    return site


def published(site: Path, consortium: CoordinatorFolder, invitation: Path) -> dict[str, bytes]:
    """All that leaves the hospital before it is asked anything that it answers."""
    enrolment = ENROLMENT.write(begin(prepare_enrolment(site, invitation, None)))
    # Signed with a number that is drawn anew each time; it holds the name and the key alone.
    enrolment.ClearField("certificate_request")
    folder = SiteFolder(site)
    told = {"enrolment": enrolment.SerializeToString()}
    told["greeting"] = PRESENTING.encode(Presenting(folder.configuration().policy.public()))
    study, ledger = folder.study(), SiteLedger(folder.ledger, identity=folder.identity())
    configuration = folder.configuration()
    ledger.set_cap(configuration.policy.cap)
    pipeline = Pipeline(
        configuration.name,
        study,
        configuration.policy,
        consortium.identity().public,
        ledger,
        site_dataset(folder, configuration, study),
        ZeroNoise(),
        NOW.date,
        key=folder.row_key(),
    )
    for reason, (sql, epsilon, participants) in ASKED.items():
        plan = plans_for(AskRequest(parse(sql), epsilon=epsilon), study, dict.fromkeys(participants, 1000))[0]
        reply = pipeline.run(sign_task(Task(plan, "north", EMPTY), consortium.identity(), asked_by(plan)))
        assert isinstance(reply, Declined)
        assert reply.code == reason
        told[reason] = write_submission(reply).SerializeToString()
    ledger.close()
    return told


def test_every_row_may_change_and_no_byte_does(consortium: CoordinatorFolder, enrolled: Path, tmp_path: Path) -> None:
    invitation, _ = invite(consortium, "north")
    found_in = {}
    for number, (title, rows) in enumerate(TABLES.items()):
        site = tmp_path / str(number) / "north"
        shutil.copytree(enrolled, site)
        (site / "visits.csv").write_bytes(rows)
        found_in[title] = published(site, consortium, invitation)
    first = found_in["two patients"]
    assert b"count" in first["greeting"]
    assert b"count" in first["enrolment"]
    for title, told in found_in.items():
        assert told == first, title
