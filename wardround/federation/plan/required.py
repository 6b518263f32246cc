"""How many hospitals an answer must have, as an analyst requires it: a number, or all that are asked."""

from __future__ import annotations

from wardround.federation.errors import Mistaken
from wardround.federation.plan.task import ALL_SITES

_DIGITS = len(str(ALL_SITES))


def required(text: str | int | None) -> int:
    """The number that `all`, a number or nothing stands for."""
    if text is None:
        return 0
    if text == "all":
        return ALL_SITES
    written = str(text)
    number = int(written) if written.isascii() and written.isdecimal() and len(written) < _DIGITS else 0
    if number < 1:
        raise Mistaken(f"what is required is {text!r}; it must be 'all' or a number of hospitals.")
    return number


def fewer_are_kept(answered: int, asked: int) -> str:
    """What to say where the one answer that a question has is of too few hospitals."""
    return (
        f"An answer of {answered} of {asked} hospitals is kept for this question; ask it without --require to read it, "
        "or again with --fresh, which is charged again."
    )
