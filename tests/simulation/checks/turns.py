"""Turns: a node's commands come into effect in the order in which it took them, over all failovers.

A node numbers what it is asked, and sends what is pending again from the lowest number on. So none of it ends
without an outcome when something that came later to the same process has one; but for what makes all nodes do
much, which has to wait for its turn without a number, as hardly anything does in most worlds.
"""

from collections.abc import Hashable
from typing import Final, Literal

from tests.simulation.checks.report import Report

SAME_US: Final = 1_000
"""What happens so soon one after the other may be told in any order."""

Kind = Literal["command", "wait", "read", "other"]
"""A request that may wait in a queue can end without an outcome there: it has taken its turn. A read may
have been answered at the place of an earlier one: it says nothing of what came before it."""


class Turns:
    """By process of a node: the newest of its calls that has an outcome."""

    def __init__(self, report: Report) -> None:
        self.are_kept = True
        """Whether hardly anything has to wait without a number."""
        self._report = report
        self._answered: dict[Hashable, tuple[int, int]] = {}

    def answered(self, process: Hashable, number: int, kind: Kind, now_us: int) -> None:
        """Record that a process has an outcome for its call of this number. Numbers rise as calls come."""
        if kind in ("command", "wait") and number > self._answered.get(process, (0, 0))[0]:
            self._answered[process] = (number, now_us)

    def failed(self, process: Hashable, number: int, kind: Kind, now_us: int) -> None:
        """Check a call that ended because its time was over."""
        newest, answered_us = self._answered.get(process, (0, 0))
        is_passed = kind in ("command", "read") and number < newest and answered_us + SAME_US < now_us
        if is_passed and self.are_kept:
            self._report.fail(
                "in-turn",
                f"{process} gives up call {number}; call {newest}, which came later, had an outcome "
                f"{(now_us - answered_us) / 1e6:.3f} s before that",
            )

    def ended(self, process: Hashable) -> None:
        """Forget a process that is gone."""
        self._answered.pop(process, None)
