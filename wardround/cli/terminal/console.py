"""What the command line prints: answers on standard output, everything else on standard error.

With `--json` standard output holds exactly one JSON document, also when something was refused. A line is one line
whatever it quotes. On a terminal a line that is too long goes on below, indented: a row that begins at the left edge
was begun by us, so nobody's words can be taken for a line of ours.
"""

from __future__ import annotations

import codecs
import io
import json
import logging
import os
import sys
from collections.abc import Mapping
from typing import NoReturn, TextIO

from wardround.federation.errors import FederationError, Unavailable
from wardround.federation.plain_text import escaped, fitted, rows

Document = Mapping[str, object]

_COLUMNS = 80
_IN_ASCII = {
    "±": "+/-", "─": "-", "━": "-", "…": "...", "→": "->", "×": "x", "≥": ">=", "≤": "<=", "·": "*", "“": '"', "”": '"',
    "ε": "epsilon", "δ": "delta", "χ": "chi", "σ": "sigma", "μ": "mu", "⁻": "^-", "√": "sqrt ",
} | dict(zip("⁰¹²³⁴⁵⁶⁷⁸⁹", "0123456789", strict=True))  # fmt: skip
_PLAINLY = "wardround-plainly"


class Unwritable(Unavailable):
    """What was found cannot be written where it was to go."""

    sentence = "The output cannot be written."


class Interrupted(Unavailable):
    """Whoever called has stopped it; what it had asked for is decided without it."""

    sentence = "interrupted."
    # What shells expect of a program that Ctrl-C ended.
    exit_code = 130


def write_plainly() -> None:
    """Whatever letters this terminal or file takes, an answer that was paid for can be read on it."""
    codecs.register_error(_PLAINLY, _in_ascii)
    # Whoever closed an output wants nothing on it.
    sys.stdout, sys.stderr = (stream or io.TextIOWrapper(io.BytesIO()) for stream in (sys.stdout, sys.stderr))
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=_PLAINLY)


def _in_ascii(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    letters = error.object[error.start : error.end]
    spelt = (_IN_ASCII.get(letter) or letter.encode("ascii", "backslashreplace").decode("ascii") for letter in letters)
    return "".join(spelt), error.end


def say(*lines: str) -> None:
    """Lines for the person at the terminal, on standard output; an empty one when there is none."""
    _write(sys.stdout, [laid_out(line, sys.stdout) for line in lines or ("",)])


def show(text: str) -> None:
    """A text of several lines that we laid out, on standard output."""
    say(*text.split("\n"))


def note(*lines: str) -> None:
    """Progress, on standard error."""
    _write(sys.stderr, [laid_out(line, sys.stderr) for line in lines])


def say_in_one_row(text: str) -> None:
    """A line on standard output that a terminal shows in one row, cut where it would not fit."""
    width = columns(sys.stdout)
    _write(sys.stdout, [escaped(text) if width is None else fitted(text, width)])


def laid_out(line: str, stream: TextIO) -> str:
    """One line as it is written; on a terminal in rows of its width, all but the first indented."""
    width = columns(stream)
    if width is None:
        return escaped(line)
    return escaped(line) if len(rows(line, width)) == 1 else "\n  ".join(rows(line, width - 2))


def columns(stream: TextIO) -> int | None:
    """How many columns to use of the terminal that a stream is, or None when it is no terminal."""
    if not stream.isatty():
        return None
    try:
        # The last one stays free: some terminals go to the next row as soon as it is used.
        return (os.get_terminal_size(stream.fileno()).columns or _COLUMNS) - 1
    except OSError:
        return _COLUMNS - 1


def _write(stream: TextIO, lines: list[str]) -> None:
    try:
        stream.write("".join(f"{line}\n" for line in lines))
        stream.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        why = os.strerror(error.errno or 0)
        # What is still held back would be written once more as the process ends, and fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        raise Unwritable(f"The output cannot be written ({why}); make room or write it elsewhere.") from None


def print_document(document: Document) -> None:
    """The one JSON document of this call: whatever ASCII cannot show is written out, and nothing is lost."""
    _write(sys.stdout, [json.dumps(document, ensure_ascii=True, allow_nan=False)])


def fail(error: FederationError, *, as_json: bool) -> NoReturn:
    """Report the error in one sentence and leave with its exit code."""
    if as_json:
        from wardround.analyst.showing.documents import error_document  # a site's commands load no analyst unless asked

        print_document(error_document(error))
    note(f"wardround: {error.message}")
    raise SystemExit(error.exit_code)


def start_log() -> None:
    """Log to standard error, one line an event: names, plan ids and codes, never a value."""
    lines = logging.StreamHandler(sys.stderr)
    lines.setFormatter(OneLine("%(asctime)s %(name)s %(levelname)s %(message)s"))
    logging.basicConfig(handlers=[lines], level=logging.INFO, force=True)


class OneLine(logging.Formatter):
    """A record in one line, its traceback too, so that nothing it quotes can begin another one."""

    def format(self, record: logging.LogRecord) -> str:
        return laid_out(super().format(record), sys.stderr)
