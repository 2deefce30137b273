"""How many connections clients may have, and what becomes of those above that.

A node that runs out of descriptors could not write its journal, so clients get only so many. It must still
tell its supervisor that it lives, and people what is wrong: a few connections more are taken, on which probes
are answered and everything else is refused. The oldest of these ends when another one comes.
"""

import logging
import time
from collections.abc import Callable, Iterator
from typing import Final, Protocol

from cluster.observing.metrics import Sample, gauge

SPARE_COUNT_MAX: Final = 50
"""Connections above the bound, for probes."""
TELL_S: Final = 10.0
"""Seconds between two log lines, at least."""

logger = logging.getLogger("http_api")


class Connection(Protocol):
    """A connection of a client."""

    def end(self) -> None:
        """Close it at once."""


class ConnectionRoom:
    """The connections of one node's clients: `count_max` of them, and a few for probes."""

    def __init__(self, count_max: int, now_s: Callable[[], float] = time.monotonic) -> None:
        self.count_max = count_max
        self._now_s = now_s
        self._count = 0
        self._spare: dict[Connection, None] = {}
        self._refused_count = 0
        self._told_s = float("-inf")

    def come(self, connection: Connection) -> bool:
        """Take a new connection; return whether it is a spare one. The oldest spare one may end for it."""
        if self._count < self.count_max:
            self._count += 1
            return False
        self._refused_count += 1
        self._tell()
        if len(self._spare) >= SPARE_COUNT_MAX:
            oldest = next(iter(self._spare))
            del self._spare[oldest]
            oldest.end()
        self._spare[connection] = None
        return True

    def gone(self, connection: Connection, *, is_spare: bool) -> None:
        """Record the end of a connection."""
        if is_spare:
            self._spare.pop(connection, None)
        else:
            self._count -= 1

    def _tell(self) -> None:
        now_s = self._now_s()
        if now_s - self._told_s >= TELL_S:
            self._told_s = now_s
            logger.warning(
                "event=connections-full in_use=%d limit=%d refused=%d detail=%r",
                self._count,
                self.count_max,
                self._refused_count,
                "clients have as many connections as the limit of open files allows (ulimit -n, LimitNOFILE):"
                " raise it, spread the clients over the nodes, or find out who opens so many. New ones get"
                " no answer but to probes",
            )

    def samples(self) -> Iterator[Sample]:
        """Yield what is so now."""
        yield gauge("http_connections", "Connections of clients.", self._count)
        yield gauge("http_connections_max", "Connections that clients may have.", self.count_max)
        text = "Connections above the bound, on which only probes are answered."
        yield "holdfast_http_connections_refused_total", text, "counter", {}, self._refused_count
