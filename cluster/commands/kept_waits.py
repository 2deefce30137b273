"""Waits of clients that are away: each keeps its place until they ask again, or a grace ends.

A wait gets here when its connection ends, or when its client asked for an answer after a while (`poll_ms`).
Only one with a `request_id` can be asked for again. Nothing of this is replicated: for the cluster the wait
goes on, with this node's attempt at it. Asked again here, it goes on without a command; asked again on
another node, it gets an attempt of that node, and the end of the grace only takes back the attempt of this
one.
"""

import asyncio
from collections.abc import Callable
from typing import Final, NamedTuple

from cluster.commands.outbox import Answer
from lockstate.catalogue import content_digest, request_key
from lockstate.tables.requests import key_of
from lockstate.words.commands.entries import MayBeCancelled
from lockstate.words.commands.holds import MayWait

KEEP_S: Final = 10.0
"""The grace, in seconds. A client that was cut off asks again within two or three; one that died holds up the
queue for no longer than this."""
KEPT_COUNT_MAX: Final = 100_000
"""Waits that are kept at once. Beyond it the oldest ends early: each takes about 2 kB of memory."""

_Key = tuple[str, str]


class _Kept(NamedTuple):
    command: MayBeCancelled
    answer: Answer
    timer: asyncio.TimerHandle


class KeptWaits:
    """Waits and grants by request, the oldest first. `undo` takes back one attempt."""

    def __init__(self, undo: Callable[[MayBeCancelled, Answer], None]) -> None:
        self._undo = undo
        self._kept: dict[_Key, _Kept] = {}

    def __len__(self) -> int:
        """Return how many are kept."""
        return len(self._kept)

    def keep(self, command: MayBeCancelled, principal: str, answer: Answer) -> None:
        """Keep the place or the hold of a request for the grace. It must have a `request_id`."""
        key = _key(command, principal)
        assert key is not None, "nobody could ask for it again"
        # Another attempt at the same request: the wait goes on with the newer one.
        self._end(key)
        timer = asyncio.get_running_loop().call_later(KEEP_S, self._end, key)
        if answer.wait is not None:
            answer.wait.add_done_callback(_look_at)
        self._kept[key] = _Kept(command, answer, timer)
        if len(self._kept) > KEPT_COUNT_MAX:
            self._end(next(iter(self._kept)))

    def take(self, command: MayWait, principal: str) -> tuple[MayWait, Answer] | None:
        """Return the attempt that waits for the same, for its client to go on with; None if there is none.

        What has ended meanwhile stays: the state machine knows what is left of a lease.
        """
        key = _key(command, principal)
        kept = None if key is None else self._kept.get(key)
        if key is None or kept is None or kept.answer.wait is None or kept.answer.wait.done():
            return None
        if content_digest(kept.command) != content_digest(command):
            return None
        assert isinstance(kept.command, MayWait), "only these wait for a future"
        kept.timer.cancel()
        del self._kept[key]
        return kept.command, kept.answer

    def _end(self, key: _Key) -> None:
        kept = self._kept.pop(key, None)
        if kept is not None:
            kept.timer.cancel()
            self._undo(kept.command, kept.answer)


def _look_at(wait: "asyncio.Future[Answer]") -> None:
    """Look at an end that nobody waits for: this node may have lost sight of the wait."""
    if not wait.cancelled():
        wait.exception()


def _key(command: MayBeCancelled, principal: str) -> _Key | None:
    key = request_key(command)
    return None if key is None else key_of(principal, key)
