"""Who belongs to the study: sites with their keys and declared numbers, and analysts.

A name is used once: what a name has spent and signed stays with it. A certificate alone opens nothing: it says who
calls, and the roster says whether that name, with that very TLS key, may still take part. Both are read anew at each
call, so a revocation made by another process holds from the next call on.
"""

from __future__ import annotations

from coordinator.store.ledger import Ledger
from coordinator.store.members import AnalystRecord, ChangingMember, MemberState, SiteRecord
from wardround.federation.errors import ConfigurationMistaken, NotAuthorized, SiteFrozen
from wardround.federation.limits import NAME
from wardround.federation.trust.certificates import Role, holder
from wardround.federation.trust.identity import PublicIdentity
from wardround.federation.trust.public_limits import PublicSite

MOST_PATIENTS = 10**12

_SITE_REVOKED = (
    "The consortium revoked this site, so the coordinator asks it nothing more and takes nothing from it; keep the "
    "folder, which is the record of what left, and ask the consortium if that is a mistake."
)


class Roster:
    """The sites and analysts of one study."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def enrol_site(
        self, *, name: str, identity: PublicIdentity, patients: int, dataset: str, study_signature: bytes
    ) -> SiteRecord:
        """Put a site on the roster with an account of its own; the same enrolment again changes nothing."""
        check_name(name)
        if not 0 <= patients <= MOST_PATIENTS:
            raise ConfigurationMistaken(
                f"{name} declares {patients} patients; declare a whole number from 0 to {MOST_PATIENTS}."
            )
        record = SiteRecord(name, identity, patients, dataset, study_signature, MemberState.ACTIVE)
        with self._ledger.members.changing(name) as member:
            if member.site == record:
                return record
            self._refuse_taken(member, identity.key)
            member.enrol(record, self._ledger.study.cap.allowance())
        return record

    def add_analyst(self, name: str) -> AnalystRecord:
        """Put an analyst on the roster; once there, adding again changes nothing."""
        check_name(name)
        record = AnalystRecord(name, MemberState.ACTIVE)
        with self._ledger.members.changing(name) as member:
            if member.analyst != record:
                self._refuse_taken(member, "")
                member.add_analyst()
        return record

    def sites(self) -> tuple[SiteRecord, ...]:
        """Every site that ever enrolled, by name."""
        return self._ledger.members.sites()

    def public_sites(self) -> tuple[PublicSite, ...]:
        """Every site that was not revoked, by name, with what it says in public."""
        limits = self._ledger.members.limits()
        return tuple(
            PublicSite(site.name, site.patients, site.state is MemberState.ACTIVE, limits.get(site.name))
            for site in self.sites()
            if site.state is not MemberState.REVOKED
        )

    def analysts(self) -> tuple[AnalystRecord, ...]:
        """Every analyst that was ever added, by name."""
        return self._ledger.members.analysts()

    def site(self, name: str) -> SiteRecord:
        """The site as it stands; `NotAuthorized` when it never enrolled."""
        found = self._ledger.members.site(name)
        if found is None:
            raise NotAuthorized
        return found

    def analyst(self, name: str) -> AnalystRecord:
        """The analyst as it stands; `NotAuthorized` when it was never added."""
        found = self._ledger.members.analyst(name)
        if found is None:
            raise NotAuthorized
        return found

    def admit_site(self, name: str) -> SiteRecord:
        """The site, if it may take part now; otherwise `NotAuthorized` or `SiteFrozen`."""
        found = self.site(name)
        refuse_unless_active(found.state)
        return found

    def admit_analyst(self, name: str) -> AnalystRecord:
        """The analyst, if it may ask now; otherwise `NotAuthorized`."""
        found = self.analyst(name)
        if found.state is not MemberState.ACTIVE:
            raise NotAuthorized(
                f"The consortium revoked the analyst {name}, who may not ask any more; if you are still to take part, "
                "ask the consortium for a profile under another name.",
                final=True,
            )
        return found

    def revoke(self, name: str) -> None:
        """End a site's or an analyst's part in the study; revoking again changes nothing."""
        with self._ledger.members.changing(name) as member:
            found = [record for record in (member.site, member.analyst) if record is not None]
            if not found:
                known = sorted({site.name for site in self.sites()} | {analyst.name for analyst in self.analysts()})
                raise ConfigurationMistaken(
                    f"no site or analyst is called {name!r}; the study has {', '.join(known) or 'none yet'}."
                )
            if MemberState.REVOKED not in {record.state for record in found}:
                member.revoke()

    def freeze(self, name: str, reason: str) -> None:
        """Silence a site whose ledger contradicts itself; freezing again changes nothing, and revoked stays revoked."""
        with self._ledger.members.changing(name) as member:
            if member.site is None:
                raise NotAuthorized
            if member.site.state is MemberState.ACTIVE:
                member.freeze(reason)

    def _refuse_taken(self, member: ChangingMember, key: str) -> None:
        if member.site is not None or member.analyst is not None:
            raise ConfigurationMistaken(
                f"the name {member.name!r} is already taken in this study; a name is used once."
            )
        if self._ledger.members.has_key(key):
            raise ConfigurationMistaken(
                f"{member.name} sent a signing key that another site has already enrolled with."
            )


def refuse_unless_active(standing: MemberState | None) -> None:
    """`NotAuthorized` or `SiteFrozen` unless a site of this standing may take part."""
    if standing is MemberState.FROZEN:
        raise SiteFrozen
    if standing is MemberState.REVOKED:
        raise NotAuthorized(_SITE_REVOKED, final=True)
    if standing is not MemberState.ACTIVE:
        raise NotAuthorized


def check_name(name: str) -> None:
    """Refuse what could not stand in a certificate, a folder or a message."""
    if not NAME.fullmatch(name):
        raise ConfigurationMistaken(
            f"{name!r} cannot be used as a name; use letters, digits, '-' and '_', beginning with a letter."
        )


def authorize(ledger: Ledger, certificate: bytes, role: Role) -> str:
    """The caller's name, if it may act in `role` now; otherwise `NotAuthorized` or `SiteFrozen`."""
    caller = holder(certificate)
    if caller.role is not role:
        raise NotAuthorized(f"this call needs a certificate of the role {role.value}, not {caller.role.value}.")
    if (known := ledger.members.tls_key(caller.name)) != caller.tls_key:
        raise NotAuthorized(_replaced(caller.name, role) if known else _unknown(caller.name))
    roster = Roster(ledger)
    match role:
        case Role.SITE:
            return roster.admit_site(caller.name).name
        case _:
            return roster.admit_analyst(caller.name).name


def _replaced(name: str, role: Role) -> str:
    how = "use the newer profile" if role is Role.ANALYST else "start the agent again from the folder that holds it"
    return (
        f"A newer certificate was issued for {name}, so this one is not valid any more; {how}, or ask the consortium."
    )


def _unknown(name: str) -> str:
    return f"The coordinator does not know {name}; ask the consortium whether it runs this study here."
