"""coordinator.toml: where the coordinator listens and how long what it issues lives."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from wardround.federation.addresses import address_fault, split_address
from wardround.federation.errors import ConfigurationMistaken
from wardround.federation.strict_toml import Section, parse, read_text

LOOPBACK = "127.0.0.1:0"
FORTNIGHT_HOURS = 14 * 24.0
WEEK_HOURS = 7 * 24.0
QUARTER_HOURS = 90 * 24.0
YEAR_HOURS = 366 * 24.0
SHORTEST_HOURS = 0.001


@dataclass(frozen=True, slots=True)
class CoordinatorConfiguration:
    """Two ports (one for enrolment alone), the names they are dialled by, and lifetimes."""

    listen: str = LOOPBACK
    enrolment_listen: str = LOOPBACK
    address: str | None = None
    enrolment_address: str | None = None
    certificate_hours: float = FORTNIGHT_HOURS
    analyst_hours: float = QUARTER_HOURS
    invitation_hours: float = WEEK_HOURS


def read_coordinator(path: Path) -> CoordinatorConfiguration:
    """The configuration in a file."""
    return parse_coordinator(read_text(path), name=path.name)


def parse_coordinator(text: str, *, name: str = "coordinator.toml") -> CoordinatorConfiguration:
    """The configuration in a text."""
    top = parse(text, name=name)
    configuration = CoordinatorConfiguration(
        listen=_address(top, "listen", LOOPBACK),
        enrolment_listen=_address(top, "enrolment_listen", LOOPBACK),
        address=_address(top, "address", "") or None,
        enrolment_address=_address(top, "enrolment_address", "") or None,
        certificate_hours=top.number("certificate_hours", FORTNIGHT_HOURS, lower=SHORTEST_HOURS, upper=YEAR_HOURS),
        analyst_hours=top.number("analyst_hours", QUARTER_HOURS, lower=SHORTEST_HOURS, upper=YEAR_HOURS),
        invitation_hours=top.number("invitation_hours", WEEK_HOURS, lower=SHORTEST_HOURS, upper=YEAR_HOURS),
    )
    top.close()
    if (configuration.address is None) != (configuration.enrolment_address is None):
        raise ConfigurationMistaken(f"{name}: address and enrolment_address are given together or not at all.")
    if configuration.address is None and split_address(configuration.listen)[0] in ("0.0.0.0", "::"):  # noqa: S104
        raise ConfigurationMistaken(f"{name}: listen is every address, so address must say which one sites dial.")
    return configuration


def _address(top: Section, key: str, default: str) -> str:
    if not top.has(key):
        return default
    address = top.text(key)
    if (fault := address_fault(address)) is not None:
        raise top.fault(key, fault)
    return address
