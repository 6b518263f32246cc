"""A certificate says who calls; the roster says whether that name, with that very key, may."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest

from coordinator.members.enrolment import issue_profile, opened
from coordinator.members.roster import authorize
from tests.roles.enrolled import found
from wardround.federation.errors import NotAuthorized
from wardround.federation.trust.certificates import Role
from wardround.federation.trust.enrolment import read_profile

NOW = datetime.datetime(2026, 3, 1, 12, 0, tzinfo=datetime.UTC)


def test_a_genuine_certificate_opens_the_door_only_with_the_key_on_the_roster(tmp_path: Path) -> None:
    folder, file = found(tmp_path / "consortium"), tmp_path / "amira.profile"
    issue_profile(folder, "amira", file, now=NOW)
    first = read_profile(file).certificate.encode()
    issue_profile(folder, "amira", file, now=NOW)
    with opened(folder) as ledger:
        assert authorize(ledger, read_profile(file).certificate.encode(), Role.ANALYST) == "amira"
        with pytest.raises(NotAuthorized):
            authorize(ledger, first, Role.ANALYST)
        with pytest.raises(NotAuthorized):
            authorize(ledger, read_profile(file).certificate.encode(), Role.SITE)
