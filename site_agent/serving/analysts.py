"""The analysts whose keys a site knows, as its steward sees them, and how a steward gives a name its key.

A fingerprint that two people compare, by telephone or on paper, proves that the coordinator did not make the key. It is
only a hash; so it can be trusted where the site has seen the key itself, and otherwise the whole key is needed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from site_agent.serving.serve import open_ledger
from site_agent.serving.steward import person
from site_agent.store.askers import Pin, Pinned
from wardround.federation.errors import Mistaken
from wardround.federation.limits import NAME
from wardround.federation.trust.identity import KEY_FORM, PublicIdentity

_HOW = {Pinned.FIRST_SIGHT: "first seen {date}, not compared", Pinned.STEWARD: "compared {date}"}
_DIGITS = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class KnownAnalyst:
    """An analyst with the known key, and other keys under which questions in this name arrived."""

    pin: Pin
    others: tuple[PublicIdentity, ...]

    def lines(self) -> list[str]:
        """The analyst for the console."""
        how = _HOW[self.pin.how].format(date=self.pin.date)
        first = f"{self.pin.analyst}  {self.pin.key.fingerprint}  {how}"
        return [first, *(f"  also asked under another key: {key.fingerprint}" for key in self.others)]

    def document(self) -> dict[str, object]:
        """The analyst for machines."""
        return {
            "analyst": self.pin.analyst,
            "key": self.pin.key.key,
            "fingerprint": self.pin.key.fingerprint,
            "how": self.pin.how.value,
            "date": self.pin.date,
            "other_fingerprints": [key.fingerprint for key in self.others],
        }


def known_analysts(path: Path) -> list[KnownAnalyst]:
    """Every analyst whose key the site in this folder knows, by name."""
    with open_ledger(path) as ledger:
        return [
            KnownAnalyst(pin, tuple(key for key in ledger.analysts.shown(pin.analyst) if key != pin.key))
            for pin in ledger.analysts.listed()
        ]


def trust(path: Path, analyst: str, words: Sequence[str]) -> PublicIdentity:
    """Know an analyst by the key with this fingerprint, or by this whole key, from now on; the key."""
    if not NAME.fullmatch(analyst):
        raise Mistaken(f"{analyst!r} is no analyst's name; see: wardround site analyst list {path}")
    written = "".join("".join(words).lower().split())
    digits = written.removeprefix(KEY_FORM).replace(":", "")
    if not _DIGITS.fullmatch(digits):
        raise Mistaken(
            "a fingerprint is 64 hexadecimal digits in groups of four, and a whole key begins with "
            f"{KEY_FORM}; the analyst sees both with: wardround analyst fingerprint"
        )
    with open_ledger(path) as ledger:
        whole = written.startswith(KEY_FORM)
        key = PublicIdentity(digits) if whole else _seen(ledger.analysts.shown(analyst), digits, analyst)
        ledger.analysts.trust(analyst, key, by=person())
    return key


def _seen(shown: Sequence[PublicIdentity], digits: str, analyst: str) -> PublicIdentity:
    """The key with this fingerprint among those that were shown under the name."""
    for key in shown:
        if key.fingerprint.replace(" ", "") == digits:
            return key
    raise Mistaken(
        f"no question of {analyst} under a key with this fingerprint has arrived here; give the whole key instead, "
        f"{KEY_FORM}…, as the analyst sees it with: wardround analyst fingerprint"
    )
