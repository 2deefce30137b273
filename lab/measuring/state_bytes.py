"""A process that holds many locks in a state machine, and nothing else: what one of them takes of its memory.

    python -m lab.measuring.state_bytes plain 1000000

Prints bytes of the process for each lock. It is a process of its own because memory that was freed before
would be used again.
"""

import gc
import os
import sys
from collections.abc import Callable, Iterator
from typing import Final

from http_api.__main__ import calm_collector
from lab.loads.machine_feed import Feed
from lockstate.words.commands import Acquire, Command
from lockstate.words.limits import TTL_MS_MAX
from lockstate.words.modes import Mode
from scripts.lib import processes

PLAIN, OWNED = "plain", "owned"
"""Flat names and leases of their own; names of three parts, leases and owners of their own."""


def _plain(feed: Feed, count: int) -> Iterator[Command]:
    """Yield acquires of flat names, each with a lease of its own and no owner."""
    for number in range(count):
        yield Acquire(f"job-{number}", Mode.EXCLUSIVE, *feed.new_hold_ids(), ttl_ms=TTL_MS_MAX)


_KINDS: Final[dict[str, Callable[[Feed, int], Iterator[Command]]]] = {PLAIN: _plain, OWNED: Feed.hold}


def bytes_per_lock(kind: str, count: int) -> float:
    """Hold so many locks, and return what the process has grown by for each."""
    feed = Feed()
    calm_collector()
    gc.collect()
    before_bytes = processes.resident_bytes(os.getpid())
    feed.apply_all(_KINDS[kind](feed, count))
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
