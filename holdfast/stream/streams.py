"""When a client uses a stream: once it has much to ask, and as long as a node offers one.

What it asks seldom goes over HTTP, which costs the cluster no session. Nobody waits for a stream: until it is
there, and whenever it is not, calls go over HTTP.
"""

import asyncio
import time
import weakref
from collections.abc import Mapping
from typing import Final

from holdfast.stream.stream_link import StreamLink, StreamUser
from holdfast.values.process import after_fork

BUSY_COUNT: Final = 8
"""Calls within BUSY_S with which a client is busy enough for a stream."""
BUSY_S: Final = 1.0
CONTENDED_S: Final = 1.0
"""Seconds after a try in vain in which whoever would wait for the same name does not try first."""
CONTENDED_COUNT_MAX: Final = 1000
"""Names that are remembered for that, at most."""
PAUSE_S_MAX: Final = 60.0
"""Seconds before a stream is asked for again, at most; after each one in vain it is twice as long."""
NO_STREAM_VARIABLE: Final = "HOLDFAST_NO_STREAM"


def is_switched_off(environment: Mapping[str, str]) -> bool:
    """Whether an operator wants no streams of the programs of this environment. Raises ValueError.

    A value that nobody foresaw is refused: who switches something off must not find it on.
    """
    value = environment.get(NO_STREAM_VARIABLE, "").strip().lower()
    if value in ("", "0", "false"):
        return False
    if value in ("1", "true"):
        return True
    raise ValueError(f"{NO_STREAM_VARIABLE}: {value!r} is neither 1 (no streams) nor 0")


class ClientStreams:
    """The stream of one client: at most one, of the loop that runs and of this process."""

    def __init__(self, user: StreamUser) -> None:
        self._user = user
        self._link: StreamLink | None = None
        self._count = 0
        self._counted_since_s = self._not_before_s = 0.0
        self._failures = 0
        self._contended: dict[str, float] = {}
        _all.add(self)

    def link(self) -> StreamLink | None:
        """Return the stream if there is one that takes calls; begin one if this client is busy."""
        link = self._link
        if link is not None and link.loop is asyncio.get_running_loop():
            return link if link.is_ready else None
        now_s = time.monotonic()
        if now_s - self._counted_since_s > BUSY_S:
            self._counted_since_s, self._count = now_s, 0
        self._count += 1
        if self._count >= BUSY_COUNT and now_s >= self._not_before_s:
            self.open()
        return None

    def note_contended(self, name: str) -> None:
        """Remember that somebody else had this."""
        if len(self._contended) >= CONTENDED_COUNT_MAX:
            self._contended.clear()
        self._contended[name] = time.monotonic() + CONTENDED_S

    def is_contended(self, name: str) -> bool:
        """Whether somebody else had this a moment ago, so that a try would be in vain again."""
        until_s = self._contended.get(name)
        if until_s is None:
            return False
        if time.monotonic() < until_s:
            return True
        del self._contended[name]
        return False

    def open(self) -> StreamLink:
        """Begin a stream on the running loop."""
        link = self._link = StreamLink(self._user)
        link.start(self._on_end)
        return link

    def _on_end(self, link: StreamLink) -> None:
        if self._link is link:
            self._link = None
            self._failures = 0 if link.was_of_use else self._failures + 1
            pause_s = min(link.pause_s * 2 ** min(max(0, self._failures - 1), 10), PAUSE_S_MAX)
            self._not_before_s = time.monotonic() + pause_s

    async def close(self) -> None:
        """Close the stream of the running loop; that of another one ends with it."""
        link, self._link = self._link, None
        if link is not None and link.loop is asyncio.get_running_loop():
            await link.close()

    def forget(self) -> None:
        """Leave the stream to the parent, in a process that was just forked."""
        if self._link is not None:
            _of_parents.append(self._link)
        self._link = None


_all: "weakref.WeakSet[ClientStreams]" = weakref.WeakSet()
_of_parents: list[StreamLink] = []
"""Kept, so that a child does not collect connections that it shares with its parent."""


def _forget_all() -> None:
    for streams in list(_all):
        streams.forget()


after_fork(_forget_all)
