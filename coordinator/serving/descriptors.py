"""How many descriptors this process has, and who gets them: so many for connections, the rest for the ledger.

A connection takes one as long as it lasts, and anybody may open connections. So their number is limited to what leaves
enough for everything else: the ledger, its journal, pieces of releases, the enrolment process.
"""

from __future__ import annotations

import logging
import resource
from dataclasses import dataclass

from wardround.federation.errors import ConfigurationMistaken

FEWEST_CONNECTIONS = 16


@dataclass(frozen=True, slots=True)
class Share:
    """How many connections a port has unless a number is configured, and what its process keeps for other things."""

    key: str
    connections: int
    kept_back: int


# Ten connections for each member of a large consortium, at some tens of kilobytes each. Kept back is for the ledger's
# connections and journals, for pieces, logs, gRPC's own, and whatever is opened for a moment.
MEMBERS = Share("connections", 2048, 256)
STRANGERS = Share("enrolment_connections", 256, 64)
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


def connections_within(limit: int, share: Share, *, wanted: int | None) -> int:
    """How many connections a port has: what was configured, or what `limit` leaves; a sentence if it cannot be."""
    room = limit - share.kept_back
    fewest = wanted or FEWEST_CONNECTIONS
    if fewest > room:
        raise ConfigurationMistaken(
            f"{share.key} = {fewest}, and {share.kept_back} other descriptors, are more than the {limit} that a "
            "process may have here; raise that limit (ulimit -n, or LimitNOFILE of the unit) or lower "
            f"{share.key} in coordinator.toml."
        )
    return wanted or min(room, share.connections)
