"""What the command line prints: answers on standard output, everything else on standard error.

With `--json` standard output holds exactly one JSON document, also when something was refused.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Mapping
from typing import NoReturn

from wardround.federation.errors import FederationError, Unavailable

Document = Mapping[str, object]


class Interrupted(Unavailable):
    """Whoever called has stopped it; what it had asked for is decided without it."""

    sentence = "interrupted."
    # What shells expect of a program that Ctrl-C ended.
    exit_code = 130


def say(text: str = "") -> None:
    """A line for the person at the terminal, on standard output."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def note(text: str) -> None:
    """Progress, on standard error."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def print_document(document: Document) -> None:
    """The one JSON document of this call."""
    sys.stdout.write(json.dumps(document, ensure_ascii=False, allow_nan=False) + "\n")
    sys.stdout.flush()


def fail(error: FederationError, *, as_json: bool) -> NoReturn:
    """Report the error in one sentence and leave with its exit code."""
    if as_json:
        from wardround.analyst.documents import error_document  # a site's commands load no analyst unless asked

        print_document(error_document(error))
    note(f"wardround: {error.message}")
    raise SystemExit(error.exit_code)


def start_log() -> None:
    """Log to standard error, one line an event: names, plan ids and codes, never a value."""
    logging.basicConfig(
        stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s", force=True
    )
