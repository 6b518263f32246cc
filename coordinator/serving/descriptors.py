"""How many descriptors this process has, and who gets them: so many for connections, the rest for the ledger.

A connection takes one as long as it lasts, and anybody may open connections. So their number is limited to what leaves
enough for everything else: the ledger, its journal, pieces of releases, the enrolment process.
"""

from __future__ import annotations

import logging
import resource

from wardround.federation.errors import ConfigurationMistaken

# For the ledger's connections and journals, pieces, logs, gRPC's own, and whatever is opened for a moment.
KEPT_BACK = 256
# Of the process with the enrolment port, which has no ledger.
KEPT_BACK_FOR_ENROLMENT = 64
FEWEST_CONNECTIONS = 16
# Ten for each member of a large consortium; each costs some tens of kilobytes.
MOST_CONNECTIONS = 2048
# More than the ports can use; some systems allow a thousand million, and programs that close them all take minutes.
_ENOUGH = 65_536

log = logging.getLogger("wardround.coordinator")


def raise_limit() -> int:
    """How many descriptors this process may have from now on: as many as the system lets it allow itself."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _ENOUGH if hard == resource.RLIM_INFINITY else min(hard, _ENOUGH)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return _ENOUGH if soft == resource.RLIM_INFINITY else soft
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    except (ValueError, OSError) as error:
        log.info("the limit of %d descriptors cannot be raised to %d: %s", soft, wanted, error)
        return soft
    return wanted


def connections_within(limit: int, *, wanted: int | None, enrolment: int) -> int:
    """How many connections members may have: what was configured, or what `limit` leaves; a sentence if it cannot be.

    The process with the enrolment port has a limit of its own, of the same size.
    """
    room = limit - KEPT_BACK
    if (wanted or FEWEST_CONNECTIONS) > room:
        raise ConfigurationMistaken(
            f"{wanted or FEWEST_CONNECTIONS} connections and {KEPT_BACK} other descriptors are more than the {limit} "
            "that this process may have; raise its limit (ulimit -n, or LimitNOFILE of its unit) or lower "
            "connections in coordinator.toml."
        )
    if enrolment > limit - KEPT_BACK_FOR_ENROLMENT:
        raise ConfigurationMistaken(
            f"enrolment_connections = {enrolment} and {KEPT_BACK_FOR_ENROLMENT} other descriptors are more than the "
            f"{limit} that a process may have; raise the limit (ulimit -n, or LimitNOFILE of the unit) or lower "
            "enrolment_connections in coordinator.toml."
        )
    return wanted or min(room, MOST_CONNECTIONS)
