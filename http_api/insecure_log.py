"""Warnings about addresses that are open because somebody has asked for it: at the start, and once an hour.

Whoever reads the log must not forget: what was meant for a try is found in production years later.
"""

import logging
from collections.abc import Callable, Iterable
from typing import Final

logger = logging.getLogger("http_api")

PERIOD_S: Final = 3600.0
"""Seconds between two lines about the same address."""


class InsecureLog:
    """Writes the lines of one node. `now_s` is a clock in seconds that never goes back."""

    def __init__(self, now_s: Callable[[], float], warnings: Iterable[str]) -> None:
        """Say each of the warnings now; those that are empty are none."""
        self._now_s = now_s
        self._warnings = tuple(filter(None, warnings))
        self._tell()

    def look(self) -> None:
        """Say them again if an hour has passed."""
        if self._now_s() >= self._next_s:
            self._tell()

    def _tell(self) -> None:
        self._next_s = self._now_s() + PERIOD_S
        for warning in self._warnings:
            logger.warning("event=insecure-address detail=%r", warning)
