"""Reading TOML strictly: a key nobody knows is a mistake, not a comment; and host:port, said once.

A misspelt `max_epsilon_per_plan` that was silently ignored would be a policy the hospital believes in
and the agent does not; so every unknown key is refused, with the nearest name that exists.
"""

from __future__ import annotations

import difflib
import math
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction
from pathlib import Path

from wardround.federation.errors import ConfigurationMistaken, Unavailable
from wardround.federation.plain_text import LAYOUT, is_plain, text_fault

Toml = Mapping[str, object]

MAX_PORT = 65535
_LISTED = 50


def read_text(path: Path) -> str:
    """The text of a configuration file, or one clear sentence."""
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        msg = f"{path} does not exist; name an existing file."
    except IsADirectoryError:
        msg = f"{path} is a folder; name a file."
    except PermissionError:
        msg = f"{path} cannot be read with this user's permissions."
    except UnicodeDecodeError:
        msg = f"{path} cannot be read as UTF-8 text."
    except OSError as error:
        # No descriptor left, or a disk that fails: nothing in the file is wrong.
        raise Unavailable(f"{path} cannot be read now: {error.strerror}; try again.") from None
    raise ConfigurationMistaken(msg)


def parse(text: str, *, name: str) -> Section:
    """The top section of a TOML document called `name` in messages."""
    try:
        return Section(name, "", tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationMistaken(f"{name} is not valid TOML: {error}.") from None


def check_plain(text: str, *, name: str, broken: Iterable[str] = ()) -> None:
    """Refuse a TOML document, when it is first handed over, that does not show what it says.

    Its lines are looked at, comments too, and every key and text in it; those under the keys in `broken` may have
    several lines. What a folder keeps already is read as it is, and escaped where it is shown.
    """
    for number, line in enumerate(text.split("\n"), start=1):
        if (fault := text_fault(line.translate(LAYOUT))) is not None:
            raise ConfigurationMistaken(f"{name}: line {number} {fault}.")
    for path, value in _texts(tomllib.loads(text), ()):
        if (fault := text_fault(value.translate(LAYOUT) if path[-1] in broken else value)) is not None:
            raise ConfigurationMistaken(f"{name}: {'.'.join(path)} {fault}.")


def holds_texts(document: Toml, *, broken: Iterable[str]) -> bool:
    """Whether a document is made of plain texts, those under the keys in `broken` of several lines."""
    return all(
        isinstance(value, str) and is_plain(value.translate(LAYOUT) if key in broken else value)
        for key, value in document.items()
    )


def _texts(value: object, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str]]:
    """Every text of a TOML value with the keys that lead to it; a key leads to itself."""
    match value:
        case str():
            yield path, value
        case list():
            for item in value:
                yield from _texts(item, path)
        case dict():
            for key, item in value.items():
                yield (*path, key), key
                yield from _texts(item, (*path, key))
        case _:
            pass


class Section:
    """One table of a TOML file; `close` refuses what nobody asked for."""

    def __init__(self, file: str, path: str, content: Toml) -> None:
        self.file = file
        self.path = path
        self._content = content
        self._known: set[str] = set()

    def where(self, key: str) -> str:
        """How a message names a key."""
        return f"{self.path}.{key}" if self.path else key

    def fault(self, key: str, expected: str) -> ConfigurationMistaken:
        """The error for a key whose value is not what was expected."""
        return ConfigurationMistaken(f"{self.file}: {self.where(key)} must be {expected}.")

    def _take(self, key: str) -> object | None:
        self._known.add(key)
        return self._content.get(key)

    def text(self, key: str, default: str | None = None, *, choices: Iterable[str] = ()) -> str:
        value = self._take(key)
        if value is None and default is not None:
            return default
        options = tuple(choices)
        if not isinstance(value, str) or not value or (options and value not in options):
            raise self.fault(key, f"one of {', '.join(options)}" if options else "a non-empty text")
        return value

    def texts(self, key: str, default: tuple[str, ...] | None = None) -> tuple[str, ...]:
        value = self._take(key)
        if value is None and default is not None:
            return default
        if not isinstance(value, list) or not all(isinstance(item, str) and item for item in value):
            raise self.fault(key, "a list of texts")
        return tuple(value)

    def integer(self, key: str, default: int | None = None, *, lower: int, upper: int) -> int:
        value = self._take(key)
        if value is None and default is not None:
            return default
        if isinstance(value, bool) or not isinstance(value, int) or not lower <= value <= upper:
            raise self.fault(key, f"a whole number from {lower} to {upper}")
        return value

    def number(self, key: str, default: float | None = None, *, lower: float, upper: float) -> float:
        value = self._take(key)
        if value is None and default is not None:
            return default
        if (
            isinstance(value, bool)
            or not isinstance(value, int | float)
            or not math.isfinite(value)
            or not lower <= value <= upper
        ):
            raise self.fault(key, f"a number from {lower:g} to {upper:g}")
        return float(value)

    def exact(self, key: str) -> Fraction | None:
        """A decimal number exactly as written, or None when the key is absent."""
        value = self._take(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise self.fault(key, "a finite number")
        return Fraction(repr(value))

    def has(self, key: str) -> bool:
        """Whether the key is present; also marks it as known."""
        return self._take(key) is not None

    def raw(self, key: str) -> object | None:
        """The value as TOML gives it, for keys whose type depends on another key."""
        return self._take(key)

    def section(self, key: str, *, required: bool = True) -> Section:
        value = self._take(key)
        if value is None and not required:
            value = {}
        if not isinstance(value, dict):
            raise self.fault(key, "a table")
        return Section(self.file, self.where(key), value)

    def sections(self, key: str) -> tuple[Section, ...]:
        """The tables of an array of tables; none when the key is absent."""
        value = self._take(key)
        if value is None:
            return ()
        if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
            raise self.fault(key, "tables written as [[" + self.where(key) + "]]")
        return tuple(Section(self.file, self.where(key), item) for item in value)

    def names(self) -> tuple[str, ...]:
        """The keys of a section whose keys are names; each becomes known."""
        self._known.update(self._content)
        return tuple(self._content)

    def close(self) -> None:
        """Refuse every key that was not asked for, with the nearest that was."""
        for key in self._content:
            if key in self._known:
                continue
            near = difflib.get_close_matches(key, self._known, n=1, cutoff=0.5)
            hint = f"did you mean {near[0]!r}?" if near else f"known keys: {', '.join(sorted(self._known))}."
            raise ConfigurationMistaken(f"{self.file}: unknown key {self.where(key)!r}; {hint}")


def nearest(name: str, known: Iterable[str]) -> str:
    """The end of a sentence about an unknown name: the nearest known one, whatever its case, or all of them."""
    options = sorted(known)
    folded = {option.casefold(): option for option in reversed(options)}
    near = difflib.get_close_matches(name.casefold(), folded, n=1, cutoff=0.5)
    if near:
        return f"did you mean {folded[near[0]]!r}?"
    listed = options[:_LISTED] + (["…"] if len(options) > _LISTED else [])
    return f"there is {', '.join(listed) or 'none'}."


def split_address(address: str) -> tuple[str, int]:
    """Host and port; IPv6 hosts stand in brackets. `ValueError` when it is neither."""
    host, colon, port = address.rpartition(":")
    if not colon or not host or not port.isascii() or not port.isdigit() or int(port) > MAX_PORT:
        raise ValueError("not host:port")
    if (
        (":" in host) != (host.startswith("[") and host.endswith("]"))
        or any(c.isspace() or c == "/" for c in host)
        or not is_plain(host)
    ):
        raise ValueError("not host:port")
    return host.strip("[]"), int(port)


def join_address(host: str, port: int) -> str:
    """host:port, with brackets round an IPv6 host."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def address_fault(address: str) -> str | None:
    """What an address must be, when it is not; otherwise None."""
    try:
        split_address(address)
    except ValueError:
        return 'host:port, such as "coordinator.example.org:7443"'
    return None
