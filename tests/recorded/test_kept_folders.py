"""Folders of earlier versions are served on: old rounds end, new questions are answered, every ledger stays valid."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.calling import call
from tests.recorded.kept_folders import ROLES, SHARP, Reopened, names, reopened, unpacked
from tests.recorded.make_folders import MEANS
from wardround.federation.errors import AwaitingApproval
from wardround.federation.ledger.verify.verify import verify

COUNT = "SELECT diagnosis, COUNT(*) FROM encounters GROUP BY diagnosis"


def approve(found: Reopened) -> None:
    (waiting,) = [request for request in found.agents["three"].ledger.requests() if request.state.value == "pending"]
    done = call("site", "approve", found.folder / "three", waiting.plan_id)
    assert done.code == 0, done.err
    # What the thread of a serving agent does that looks for decisions.
    found.agents["three"].run_approved()


@pytest.mark.parametrize("name", names())
def test_a_folder_of_an_earlier_version_goes_on(name: str, tmp_path: Path) -> None:
    folder = unpacked(name, tmp_path)
    with reopened(folder) as found:
        found.coordinator.resume()
        # The round that was open when everybody stopped, and one that begins now.
        for question, values in ((MEANS, 1), (COUNT, 2)):
            with pytest.raises(AwaitingApproval):
                found.client.ask(question, epsilon=SHARP)
            approve(found)
            answer = found.client.ask(question, epsilon=SHARP).document()
            assert answer["sites"]["answered"] == ["three", "two"]
            assert answer["sites"]["missing"] == ["one"]
            assert len(answer["estimates"]) == values
        # Two encounters of each of 110 patients, halved by diagnosis; no noise is drawn here.
        assert [estimate["value"] for estimate in answer["estimates"]] == [110.0, 110.0]
        assert found.agents["one"].ledger.frozen() is not None
    for role in ROLES:
        found = verify(folder / role)
        assert found.problems == (), role
        # The first hospital is frozen, and signs nothing any more.
        assert found.unattested == () or role == "one", role
