"""What hospitals will do with a question, by their published limits, in lines that are read before the wait."""

from __future__ import annotations

from wardround.analyst.tables.text_tables import MAX_LISTED
from wardround.federation.question.answer import Foreseen, Preview


def foreseen_lines(preview: Preview) -> list[str]:
    """Who would refuse and how many are left, and where a person decides; nothing of a question that is answered."""
    if preview.replayed:
        return []
    refusing = [each for each in preview.foreseen if each.refuses]
    waiting = [each for each in preview.foreseen if not each.refuses]
    lines = []
    if refusing:
        left, them = len(preview.sites) - len(refusing), "it" if len(refusing) == 1 else "them"
        lines.append(f"{_joined(refusing)}; without {them} {left} of {len(preview.sites)} hospitals would answer.")
    if waiting:
        lines.append(f"{_joined(waiting)}.")
    return lines


def _joined(found: list[Foreseen]) -> str:
    more = f"; and {len(found) - MAX_LISTED} more" if len(found) > MAX_LISTED else ""
    return "; ".join(each.sentence for each in found[:MAX_LISTED]) + more
