"""How many log lines strangers may cause: a few of each kind a minute, which say how many were left out."""

import time
from collections.abc import Callable
from typing import Final

_MINUTE_S: Final = 60.0


class LogBudget:
    """Counts the lines of each kind. Kinds must not come from clients: there is a counter for each."""

    def __init__(self, lines_a_minute: int, now_s: Callable[[], float] = time.monotonic) -> None:
        """Allow `lines_a_minute` of each kind."""
        self._allowed = lines_a_minute
        self._now_s = now_s
        self._minutes: dict[str, tuple[float, int]] = {}

    def take(self, kind: str) -> bool:
        """Return whether one more line of this kind may be written now."""
        now_s = self._now_s()
        since_s, count = self._minutes.get(kind, (float("-inf"), 0))
        if now_s - since_s >= _MINUTE_S:
            since_s, count = now_s, 0
        self._minutes[kind] = since_s, count + 1
        return count < self._allowed
