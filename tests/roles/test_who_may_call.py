"""A certificate says who calls; the roster says whether that name, with that very key, may."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest

from coordinator.members.enrolment import issue_profile, opened, revoke
from coordinator.members.roster import authorize
from tests.roles.enrolled import LIFE, found
from wardround.federation.errors import NotAuthorized
from wardround.federation.trust.certificates import Role, new_tls_key
from wardround.federation.trust.enrolment import read_profile

NOW = datetime.datetime(2026, 3, 1, 12, 0, tzinfo=datetime.UTC)


def test_a_genuine_certificate_opens_the_door_only_with_the_key_on_the_roster(tmp_path: Path) -> None:
    folder, file = found(tmp_path / "consortium"), tmp_path / "amira.profile"
    issue_profile(folder, "amira", file, now=NOW)
    first = read_profile(file).certificate.encode()
    issue_profile(folder, "amira", file, now=NOW)
    with opened(folder) as ledger:
        assert authorize(ledger, read_profile(file).certificate.encode(), Role.ANALYST) == "amira"
        with pytest.raises(NotAuthorized, match="use the newer profile") as replaced:
            authorize(ledger, first, Role.ANALYST)
        assert not replaced.value.final, "a coordinator from a backup would say so too"
        with pytest.raises(NotAuthorized):
            authorize(ledger, read_profile(file).certificate.encode(), Role.SITE)


def test_a_name_that_was_revoked_or_never_known_is_told_so(tmp_path: Path) -> None:
    folder, file = found(tmp_path / "consortium"), tmp_path / "amira.profile"
    issue_profile(folder, "amira", file, now=NOW)
    stranger = folder.authority().issue(new_tls_key().public_key(), role=Role.ANALYST, name="bo", life=LIFE, now=NOW)
    revoke(folder, "amira")
    with opened(folder) as ledger:
        with pytest.raises(NotAuthorized, match=r"revoked the analyst amira.* under another name") as revoked:
            authorize(ledger, read_profile(file).certificate.encode(), Role.ANALYST)
        assert revoked.value.final
        with pytest.raises(NotAuthorized, match="does not know bo") as unknown:
            authorize(ledger, stranger, Role.ANALYST)
        assert not unknown.value.final
