"""Waits: in healthy times nobody waits for long whose connection was kept by a node process that is gone."""

from collections.abc import Callable, Collection, Iterable
from typing import Final

from lockstate.words.ids import HoldId
from tests.simulation.checks.report import Report

LEFT_US: Final = 7_000_000
"""So long after a leader has begun, in healthy times, waits of runs that are gone have ended: its grace, and
time for two attempts."""


class Waits:
    """Who keeps the connections of those who wait; `waiting` tells it, by ticket."""

    def __init__(self, report: Report, waiting: Callable[[], Iterable[tuple[HoldId, str]]]) -> None:
        self._report = report
        self._waiting = waiting
        self._led_us = 0

    def leader_changed(self, now_us: int) -> None:
        """Record that another node leads: the grace begins anew."""
        self._led_us = now_us

    def healthy(self, from_us: int, until_us: int, runs: Collection[str]) -> None:
        """Check that all who wait do so at one of `runs`, which is every one that there was in this time."""
        if until_us - max(from_us, self._led_us) < LEFT_US:
            return
        for ticket_id, origin in self._waiting():
            if origin not in runs:
                self._report.fail("wait-left", f"{ticket_id} still waits at {origin}, which is gone")
