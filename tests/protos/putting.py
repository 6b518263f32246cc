"""One thing done to a sound message."""

from __future__ import annotations

from google.protobuf.message import Message


def put(message: Message, path: str, content: object) -> None:
    """Set the field at a dotted path; None clears it, and a list replaces what it held."""
    *parents, last = path.split(".")
    for parent in parents:
        message = message[int(parent)] if parent.isdigit() else getattr(message, parent)  # type: ignore[index]
    if content is None or isinstance(content, list):
        message.ClearField(last)
        if content:
            getattr(message, last).extend(content)
    else:
        setattr(message, last, content)
