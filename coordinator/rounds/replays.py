"""Which answers were there already when an analyst asked."""

from __future__ import annotations

import threading
from collections import OrderedDict

_REMEMBERED = 10_000


class Replays:
    """Whether the stored answer was there when an analyst asked; only for show, so only in memory."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._asked: OrderedDict[tuple[str, str], bool] = OrderedDict()

    def note(self, analyst: str, plan_id: str, *, replayed: bool) -> None:
        with self._guard:
            self._asked[analyst, plan_id] = replayed
            self._asked.move_to_end((analyst, plan_id))
            if len(self._asked) > _REMEMBERED:
                self._asked.popitem(last=False)

    def replayed(self, analyst: str, plan_id: str, *, otherwise: bool) -> bool:
        with self._guard:
            return self._asked.get((analyst, plan_id), otherwise)
