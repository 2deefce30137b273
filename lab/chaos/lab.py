"""What a workload gets from the lab, and what the lab wants from a workload."""

import random
import secrets
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar

import aiohttp

from lab.chaos import http_client
from lab.chaos.history import HistoryWriter

PATIENCE_S = 15.0
"""How long a client repeats one request before it gives up."""


class Lab:
    """The cluster as clients see it, and where they write down what they see. For one event loop.

    `nodes` are the URLs by id; the lab may change them while clients run (a node that is added or moved), so
    clients look at them at each request. A target whose clients must live elsewhere, such as in a network
    namespace, overrides `open_session`.
    """

    def __init__(
        self,
        nodes: Mapping[str, str],
        history: HistoryWriter,
        *,
        seed: int,
        prefix: str = "",
        patience_s: float = PATIENCE_S,
        scale: float = 1.0,
    ) -> None:
        """Make the lab of one run.

        `prefix` begins all names; unless given, it is another one for each run. `scale` multiplies the number
        of clients, never below one.
        """
        self.nodes = dict(nodes)
        self.redis_ports: dict[str, int] = {}
        """Where nodes serve clients of Redis on this machine, if they do."""
        self.history = history
        self.seed = seed
        self.prefix = prefix or f"chaos-{secrets.token_hex(3)}"
        self.patience_s = patience_s
        self.scale = scale

    def clients(self, count: int) -> int:
        """Return how many clients a workload starts that would like `count`."""
        return max(1, round(count * self.scale))

    def random(self, *purpose: str | int) -> random.Random:
        """Return random numbers for one purpose: the same for the same seed, whatever others draw."""
        return random.Random(f"{self.seed}/{'/'.join(map(str, purpose))}")

    def open_session(self) -> aiohttp.ClientSession:
        """Return a new session, with connections of its own, for one client."""
        return http_client.open_session(aiohttp.TCPConnector(limit=0))


class Workload(ABC):
    """Clients that do one thing to the cluster, and record it."""

    name: ClassVar[str]
    """What the operations of this workload are recorded under, and what begins its names after the prefix."""

    @abstractmethod
    async def run(self, lab: Lab, until_s: float) -> None:
        """Run until `until_s` of time.monotonic(), then finish or give up what is under way, and return.

        Returns within the patience of the lab after `until_s`. Whatever the cluster does is recorded and
        never raised. When cancelled, requests under way are recorded as `unknown`.
        """


def now_ns() -> int:
    """Return the clock of the history."""
    return time.monotonic_ns()
