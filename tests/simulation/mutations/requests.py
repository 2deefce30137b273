"""Defects on the way of a command: what is pending, sent again, forwarded, batched, waited for, read."""

import asyncio
from collections.abc import Callable
from typing import Any, Final

from cluster.commands.outbox import _BARRIER, SHARED_S_MAX, Outbox, _retrieve
from cluster.storage.snapshot_store import SnapshotStore
from lockstate.machine import LockMachine
from tests.simulation.mutations.mutation import Mutation, Surroundings, replaced


def _read_with_any_barrier(
    outbox: Outbox, query: Callable[[LockMachine], Any], timeout_s: float
) -> "asyncio.Future[Any]":
    """Join a barrier also when it was sent already."""
    barrier = outbox._barrier
    deadline_s = outbox._loop.time() + timeout_s
    in_time = 0 <= deadline_s - outbox._barrier_deadline_s <= SHARED_S_MAX
    if barrier is None or barrier.future.done() or not in_time:
        barrier = outbox._barrier = outbox.submit(_BARRIER, timeout_s)
        outbox._barrier_deadline_s = deadline_s
        barrier.readers = []
        barrier.future.add_done_callback(_retrieve)
    assert barrier.readers is not None
    future: asyncio.Future[Any] = outbox._loop.create_future()
    barrier.readers.append((query, future))
    return future


def _rewind_what_was_never_sent(outbox: Outbox) -> int:
    """Send again only what was never sent."""
    outbox._unsent = [pending for pending in outbox._pending.values() if not pending.is_sent]
    return 0


def _go_on_writing(_store: SnapshotStore) -> None:
    """Let a child that writes an older snapshot finish."""


REQUESTS: Final = (
    Mutation(
        name="read-joins-sent-barrier",
        sentence="A read joins a barrier that was sent already.",
        found_by=("read-fresh",),
        apply=replaced(Outbox, "read", _read_with_any_barrier),
    ),
    Mutation(
        name="sent-not-sent-again",
        sentence="After a failover only what was never sent is sent.",
        found_by=("in-turn", "liveness"),
        apply=replaced(Outbox, "rewind", _rewind_what_was_never_sent),
    ),
    Mutation(
        name="older-snapshot-put-in-place",
        sentence="A child that ends late puts its older snapshot over a newer one that was received (H21).",
        found_by=("snapshot-newer", "node-ends"),
        apply=replaced(SnapshotStore, "_stop_writing", _go_on_writing),
        surroundings=Surroundings(
            rates={"slow-child": 6.0, "isolate": 6.0}, settings={"compact_entries": 10}
        ),
    ),
)
