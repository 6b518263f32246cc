"""How a name gets onto the roster: invitations for sites, profiles for analysts, and off it again.

An invitation is a secret that works once. The coordinator keeps its hash only, and the first signing key
that uses it owns it: the same key may repeat a call whose reply was lost, any other is refused.
"""

from __future__ import annotations

import datetime
import hashlib
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from coordinator.members.authority import Authority
from coordinator.members.folder import CoordinatorFolder
from coordinator.members.roster import Roster, check_name
from coordinator.store.ledger import Ledger, open_ledger
from coordinator.store.members import InvitationRecord, MemberState
from wardround.federation.errors import ConfigurationMistaken, NotAuthorized, Unavailable
from wardround.federation.study.study import delta_fault
from wardround.federation.trust.certificates import Role, key_to_pem, new_tls_key, request_key, tls_key_hash
from wardround.federation.trust.enrolment import AnalystProfile, Enrolment, Invitation, write_profile
from wardround.federation.trust.identity import Purpose

SECRET_BYTES = 32


@contextmanager
def opened(folder: CoordinatorFolder) -> Iterator[Ledger]:
    """The folder's ledger for one command, also while the coordinator serves."""
    ledger = open_ledger(folder.path, study=folder.study(), identity=folder.identity())
    try:
        yield ledger
    finally:
        ledger.close()


def make_invitation(folder: CoordinatorFolder, site: str, *, now: datetime.datetime) -> Invitation:
    """A fresh invitation; earlier unused ones for the name end.

    A site on the roster may be invited again, for a certificate that expired while its agent was off: such an
    invitation serves only the signing key that the site enrolled with.
    """
    check_name(site)
    secret = secrets.token_hex(SECRET_BYTES)
    expires = now + datetime.timedelta(hours=folder.configuration().invitation_hours)
    with opened(folder) as ledger:
        roster = Roster(ledger)
        standing = {s.name: s.state.value for s in roster.sites()} | {a.name: "an analyst" for a in roster.analysts()}
        if standing.get(site, MemberState.ACTIVE.value) != MemberState.ACTIVE.value:
            raise ConfigurationMistaken(
                f"{site} is already a member of the study ({standing[site]}); invite it under another name, "
                "because a name is used only once."
            )
        ledger.members.invite(site, secret_hash=_secret_hash(bytes.fromhex(secret)), expires=expires.timestamp())
        return Invitation(
            site=site,
            token=secret,
            expires=expires.isoformat(timespec="seconds"),
            address=folder.address(),
            enrolment_address=folder.enrolment_address(),
            authority=folder.authority().pem,
            coordinator_key=ledger.identity.public.key,
            study_hash=ledger.study.study_hash,
            study_text=folder.study_text(),
        )


def enrol_site(
    ledger: Ledger, authority: Authority, enrolment: Enrolment, *, life: datetime.timedelta, now: datetime.datetime
) -> bytes:
    """Put the site on the roster and issue its certificate; every refusal leaves the invitation as it was."""
    study = ledger.study
    if ledger.recovery.awaited():
        raise Unavailable("The coordinator is being recovered and takes no new site now; try again later.")
    key = request_key(enrolment.certificate_request)
    if enrolment.study_hash != study.study_hash or not enrolment.identity.verifies(
        Purpose.STUDY, bytes.fromhex(study.study_hash), enrolment.study_signature
    ):
        raise NotAuthorized("the site did not sign this study.")
    secret_hash = _secret_hash(enrolment.secret)
    _check_invitation(ledger.members.invitation(enrolment.site, secret_hash=secret_hash), enrolment, now)
    roster = Roster(ledger)
    known = next((site for site in roster.sites() if site.name == enrolment.site), None)
    if known is not None and (known.identity != enrolment.identity or known.state is not MemberState.ACTIVE):
        raise NotAuthorized(
            "this name belongs to a site that enrolled with another signing key, or that was revoked or frozen."
        )
    declared = {s.name: s.patients for s in roster.sites() if s.state is not MemberState.REVOKED}
    if (fault := delta_fault(study.cap.delta, declared | {enrolment.site: enrolment.patients})) is not None:
        raise ConfigurationMistaken(f"The site cannot join: {fault}")
    with ledger.members.using_invitation(enrolment.site, secret_hash=secret_hash) as invitation:
        _check_invitation(invitation.found, enrolment, now)
        invitation.use(enrolment.identity.key)
    if known is None:
        roster.enrol_site(
            name=enrolment.site,
            identity=enrolment.identity,
            patients=enrolment.patients,
            dataset=enrolment.dataset,
            study_signature=enrolment.study_signature,
        )
        if ledger.recovery.incarnation():
            # It may have belonged to the study in what was forgotten.
            ledger.recovery.await_later(enrolment.site)
    ledger.members.note_limits(enrolment.site, enrolment.limits)
    ledger.members.note_tls_key(enrolment.site, tls_key_hash(key))
    return authority.issue(key, role=Role.SITE, name=enrolment.site, life=life, now=now)


def _check_invitation(invitation: InvitationRecord | None, enrolment: Enrolment, now: datetime.datetime) -> None:
    if invitation is None:
        raise NotAuthorized("the invitation is not known for this site; ask the consortium for a new one.")
    if invitation.used_by not in ("", enrolment.identity.key):
        raise NotAuthorized("the invitation was already used; ask the consortium for a new one.")
    if now.timestamp() > invitation.expires:
        raise NotAuthorized("the invitation has expired; ask the consortium for a new one.")


def issue_profile(folder: CoordinatorFolder, name: str, out: Path, *, now: datetime.datetime) -> str:
    """Put an analyst on the roster and write the profile; an earlier profile of that name stops working."""
    check_name(name)
    configuration = folder.configuration()
    key = new_tls_key()
    expires = now + datetime.timedelta(hours=configuration.analyst_hours)
    authority = folder.authority()
    certificate = authority.issue(key.public_key(), role=Role.ANALYST, name=name, life=expires - now, now=now)
    with opened(folder) as ledger:
        Roster(ledger).add_analyst(name)
        profile = AnalystProfile(
            name=name,
            address=folder.address(),
            study=ledger.study.name,
            authority=authority.pem,
            certificate=certificate.decode(),
            key=key_to_pem(key).decode(),
        )
        write_profile(profile, out)
        ledger.members.note_tls_key(name, tls_key_hash(key.public_key()))
    return expires.isoformat(timespec="seconds")


def revoke(folder: CoordinatorFolder, name: str) -> str:
    """Take a name off the roster; says whether it was a site or an analyst."""
    with opened(folder) as ledger:
        roster = Roster(ledger)
        roster.revoke(name)
        return "site" if name in {record.name for record in roster.sites()} else "analyst"


def _secret_hash(secret: bytes) -> str:
    return hashlib.sha256(b"wardround/1/invitation\n" + secret).hexdigest()
