"""A process that holds many locks in a state machine, and nothing else: what one of them takes of its memory.

    python -m lab.measuring.state_bytes plain 1000000

Prints bytes of the process for each lock. It is a process of its own because memory that was freed before
would be used again.
"""

import gc
import itertools
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from http_api.__main__ import calm_collector
from lab.loads.machine_feed import Feed
from lockstate.words.commands.entries import Command
from lockstate.words.commands.holds import Acquire
from lockstate.words.commands.streams import Numbered, ResumeStream
from lockstate.words.limits import TTL_MS_MAX
from lockstate.words.modes import Mode
from scripts.lib import processes

PLAIN, OWNED, STREAMED = "plain", "owned", "streamed"
"""Flat names and leases of their own; names of three parts, leases and owners of their own; flat names on
streams, as busy clients acquire them."""
FRAME: Final = 256
"""Commands of a frame of a stream."""


def _plain(feed: Feed, count: int) -> Iterator[Command]:
    """Yield acquires of flat names, each with a lease of its own and no owner."""
    for number in range(count):
        yield Acquire(f"job-{number}", Mode.EXCLUSIVE, *feed.new_hold_ids(), ttl_ms=TTL_MS_MAX)


def _streamed(feed: Feed, count: int) -> Iterator[Iterable[Command]]:
    """Yield frames of streams, which acquire flat names and acknowledge what came before."""
    yield [ResumeStream(session_id) for session_id in feed.sessions]
    following = dict.fromkeys(feed.sessions, 1)
    turns = itertools.cycle(feed.sessions)
    done = 0
    while done < count:
        # At last one lock in each session, so that nearly all outcomes are acknowledged.
        size = max(min(FRAME, count - done - len(feed.sessions)), 1)
        session_id = next(turns)
        first = following[session_id]
        acquires = tuple(
            Acquire(f"job-{number}", Mode.EXCLUSIVE, *feed.new_hold_ids(), session_id=session_id)
            for number in range(done, done + size)
        )
        acked = ((1, first - 1),) if first > 1 else ()
        yield [Numbered(size, session_id, 1, first, acked, acquires)]
        following[session_id], done = first + size, done + size


_KINDS: Final[dict[str, Callable[[Feed, int], Iterable[Iterable[Command]]]]] = {
    PLAIN: lambda feed, count: [_plain(feed, count)],
    OWNED: lambda feed, count: [feed.hold(count)],
    STREAMED: _streamed,
}


def bytes_per_lock(kind: str, count: int) -> float:
    """Hold so many locks, and return what the process has grown by for each."""
    feed = Feed()
    calm_collector()
    gc.collect()
    before_bytes = processes.resident_bytes(os.getpid())
    for commands in _KINDS[kind](feed, count):
        feed.apply_all(commands)
    held = feed.machine.counts()["holds"]
    if held != count:
        raise RuntimeError(f"{held} of {count} locks are held")
    gc.collect()
    return (processes.resident_bytes(os.getpid()) - before_bytes) / count


def main() -> None:
    """Measure what the arguments say, and print it."""
    kind, count = sys.argv[1], int(sys.argv[2])
    print(bytes_per_lock(kind, count))


if __name__ == "__main__":
    main()
