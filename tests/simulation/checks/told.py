"""Ends of waits: who waits at a node is told soon after that node has seen the wait end."""

from collections import OrderedDict, deque
from typing import Final

from tests.simulation.checks.grants import shorten
from tests.simulation.checks.model_replay import Step
from tests.simulation.checks.report import Report

SOON_US: Final = 1_000_000
"""So long a node may have known of the end of a wait, and not told it."""
STEP_US: Final = 100_000
"""How exactly it is known when a node was at which revision."""
STEPS_KEPT: Final = 600


class Told:
    """At which revision which wait ended, and when each process of a node was there."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._ended: OrderedDict[str, int] = OrderedDict()
        self._reached: dict[str, deque[tuple[int, int]]] = {}

    def applied(self, step: Step) -> None:
        """Record which waits ended."""
        for waited_for, _ in step.wait_ends:
            self._ended[waited_for] = step.revision
        shorten(self._ended)

    def reached(self, node_id: str, revision: int, now_us: int) -> None:
        """Record that a node has applied everything up to a revision."""
        reached = self._reached.setdefault(node_id, deque(maxlen=STEPS_KEPT))
        if not reached or now_us - reached[-1][0] >= STEP_US:
            reached.append((now_us, revision))

    def began_anew(self, node_id: str) -> None:
        """Record that a node has another process, or a snapshot: what it saw before does not count."""
        self._reached.pop(node_id, None)

    def failed(self, node_id: str, waited_for: str, now_us: int) -> None:
        """Check a wait that ended at a node because its time was over."""
        revision = self._ended.get(waited_for)
        if revision is None:
            return
        for at_us, reached in self._reached.get(node_id, ()):
            if reached >= revision:
                if now_us - at_us > SOON_US:
                    self._report.fail(
                        "wait-told",
                        f"{node_id} gives up waiting for {waited_for}; that ended at revision {revision}, "
                        f"and the node was at {reached} {(now_us - at_us) / 1e6:.2f} s before",
                    )
                return
