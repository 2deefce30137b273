"""Where the leader is to be reached: looked up once for all streams of a node."""

import asyncio
from collections.abc import Callable
from typing import Final

from lockapi.node import NodeState

HINT_S: Final = 1.0
"""Seconds between two looks at who leads."""


class LeaderWatch:
    """Where the leader of one node's cluster is, and who is told when that is another node."""

    def __init__(self) -> None:
        self._url, self._next_look_s = "", 0.0
        self._heard = ""
        """What was told last."""
        self._told: set[Callable[[str], None]] = set()
        self._timer: asyncio.TimerHandle | None = None

    def url(self, node: NodeState) -> str:
        """Return it as it was within the last second, "" if that is not known."""
        now_s = asyncio.get_running_loop().time()
        if now_s >= self._next_look_s:
            self._next_look_s = now_s + HINT_S
            status = node.status()
            self._url = next((peer.http for peer in status.nodes if peer.id == status.leader), "")
        return self._url

    def follow(self, node: NodeState, tell: Callable[[str], None]) -> None:
        """Tell where the leader is, every now and then: one timer for all, as most streams are idle."""
        self._told.add(tell)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(HINT_S, self._look, node)

    def leave(self, tell: Callable[[str], None]) -> None:
        """Tell it no more."""
        self._told.discard(tell)
        if self._timer is not None and not self._told:
            self._timer.cancel()
            self._timer = None

    def _look(self, node: NodeState) -> None:
        self._timer = asyncio.get_running_loop().call_later(HINT_S, self._look, node)
        before, url = self._heard, self.url(node)
        if url != before:
            self._heard = url
            for tell in tuple(self._told):
                tell(url)
