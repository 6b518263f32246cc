"""What the consortium hands out, an invitation or a profile: one JSON document of texts, for its owner's eyes only."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TypeVar

from wardround.federation.errors import ConfigurationMistaken
from wardround.federation.private_files import write_private
from wardround.federation.strict_toml import holds_texts, read_text

_Word = TypeVar("_Word")


def write_handed(path: Path, texts: Mapping[str, str], *, form: str) -> None:
    """Write the file, readable by its owner only; `form` says what it is."""
    write_private(path, json.dumps({"form": form, **texts}, indent=1, sort_keys=True).encode())


def read_handed(path: Path, make: Callable[..., _Word], *, form: str, broken: Iterable[str], otherwise: str) -> _Word:
    """The word that `make` makes of the texts in a file of this form, or one sentence: the file is `otherwise`.

    The texts under the keys in `broken` may have several lines.
    """
    try:
        document = json.loads(read_text(path))
        if document.pop("form") == form and holds_texts(document, broken=broken):
            return make(**document)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        pass  # Answered below: whatever is wrong with it, it is not of this form.
    raise ConfigurationMistaken(f"{path} is {otherwise}")
