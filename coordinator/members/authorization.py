"""Every call is checked against the roster: a certificate alone opens nothing.

The certificate says who calls; the roster says whether that name, with that very TLS key, may still take
part. Both are read anew at each call, so a revocation holds from the next call on.
"""

from __future__ import annotations

from coordinator.members.roster import Roster
from coordinator.store.ledger import Ledger
from wardround.federation.errors import NotAuthorized
from wardround.federation.trust.certificates import Role, holder


def authorize(ledger: Ledger, certificate: bytes, role: Role) -> str:
    """The caller's name, if it may act in `role` now; otherwise `NotAuthorized` or `SiteFrozen`."""
    caller = holder(certificate)
    if caller.role is not role:
        raise NotAuthorized(f"this call needs a certificate of the role {role.value}, not {caller.role.value}.")
    if ledger.members.tls_key(caller.name) != caller.tls_key:
        raise NotAuthorized
    roster = Roster(ledger)
    match role:
        case Role.SITE:
            return roster.admit_site(caller.name).name
        case _:
            return roster.admit_analyst(caller.name).name
