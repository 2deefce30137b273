"""Defects on the way of a command: what is pending, sent again, forwarded, batched, waited for, read."""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from cluster.commands.batcher import Batcher, Commands, _Room
from cluster.commands.outbox import _BARRIER, SHARED_S_MAX, Outbox, Pending, _retrieve
from cluster.storage.snapshot_store import SnapshotStore
from lockstate.machine import LockMachine
from lockstate.rules import attempts
from lockstate.tables.records import Hold, Ticket
from lockstate.tables.state import State
from lockstate.words.ids import AttemptId
from tests.simulation.mutations.mutation import Mutation, Surroundings, replaced
from tests.simulation.plan import CROWDS, Limits


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
    outbox.unsent[:] = [pending for pending in outbox._pending.values() if not pending.is_sent]
    return 0


def _go_on_writing(_store: SnapshotStore) -> None:
    """Let a child that writes an older snapshot finish."""


_next_entry = Batcher.next_entry


def _next_entry_without_rest(batcher: Batcher, now_ms: int, load_max: int | None = None) -> bytes | None:
    """Forget what of a batch does not fit into an entry."""
    count = len(batcher._queue)
    entry = _next_entry(batcher, now_ms, load_max)
    if batcher._queue and len(batcher._queue) == count:
        batcher._queue.popleft()
    return entry


def _next_batches_past_what_does_not_fit(
    batcher: Batcher, room: _Room
) -> list[tuple[str, list[int], list[bytes]]]:
    """Put into an entry what fits, also of an origin of which something before it did not fit."""
    left, batches = deque[Commands](), []
    for origin, seqs, commands in batcher._queue:
        taken = room.take(commands)
        batches.append((origin, seqs[:taken], [command.data for command in commands[:taken]]))
        if taken < len(commands):
            left.append((origin, seqs[taken:], commands[taken:]))
    batcher._queue = left
    return batches


def _nobody_goes(_outbox: Outbox) -> None:
    """Let those that wait for their turns wait."""


def _all_are_applied(outbox: Outbox, _seq: int) -> list[Pending]:
    """Take everything that is pending for applied."""
    return list(outbox._pending.values())


def _only_the_last(state: State, of: Hold | Ticket, attempt_id: AttemptId) -> None:
    """Forget the attempts before."""
    attempts._set(state, of, attempt_id, state.asking, ())


_CROWDED: Final = Surroundings(
    rates={"slow-node": 10.0}, fault_s=(1.0, 6.0), settings={"crowd": CROWDS[-3], "far_us": 40_000}
)
"""Many reads and writes at once, and nodes that hear late what is committed."""
_PATIENT: Final = Surroundings(
    rates={"transfer": 12.0, "isolate": 4.0},
    fault_s=(0.5, 3.0),
    settings={"crowd": CROWDS[-3]},
    client_settings={"timeout_s": (3.0, 6.0)},
)
"""Leaders come and go while much is pending, for longer than that takes."""
_BEHIND: Final = Surroundings(
    rates={"split": 15.0, "slow-link": 6.0, "pause": 6.0},
    fault_s=(0.3, 3.0),
    client_settings={"timeout_s": (3.0, 6.0)},
)
"""Nodes hear their clients, and for some seconds not each other."""

_LOADED: Final = Limits(free_load=0, entry_load=6, under_way_load=24)
"""What clients ask for makes nodes do as much as they take at a time."""

REQUESTS: Final = (
    Mutation(
        name="rest-of-batch-lost",
        sentence="Commands of a batch that do not fit into an entry are forgotten.",
        found_by=("in-turn", "liveness", "outcome-known"),
        apply=replaced(Batcher, "next_entry", _next_entry_without_rest),
        surroundings=Surroundings(
            settings={"limits": Limits(entry_bytes=2_000, entry_commands=1), "crowd": CROWDS[-3]}
        ),
    ),
    Mutation(
        name="origin-overtaken",
        sentence="Commands that do not fit into an entry are overtaken by later ones of their node.",
        found_by=("in-turn", "liveness", "outcome-known"),
        apply=replaced(Batcher, "_next_batches", _next_batches_past_what_does_not_fit),
        surroundings=Surroundings(settings={"limits": _LOADED, "crowd": CROWDS[-3]}),
    ),
    Mutation(
        name="turn-never-comes",
        sentence="A heavy command that waits for room does not hear when there is some.",
        found_by=("in-turn", "liveness", "outcome-known"),
        apply=replaced(Outbox, "_let_go", _nobody_goes),
        surroundings=Surroundings(settings={"limits": Limits(free_load=0, entry_load=6, under_way_load=1)}),
    ),
    Mutation(
        name="late-attempt-takes-over",
        sentence="The attempt that came last takes back what another attempt of the request was granted.",
        found_by=("model-events", "model-state", "reply", "holds-exclude"),
        apply=replaced(attempts, "join", _only_the_last),
        surroundings=_BEHIND,
    ),
    Mutation(
        name="reads-end-with-snapshot",
        sentence="A node that took over a snapshot takes all its pending reads and commands for applied.",
        found_by=("read-fresh", "reply", "read-view", "not-applied", "in-turn"),
        apply=replaced(Outbox, "applied_up_to", _all_are_applied),
        surroundings=Surroundings(
            rates={"isolate": 8.0, "slow-node": 6.0},
            settings={"compact_entries": 10, "crowd": CROWDS[-3]},
        ),
    ),
    Mutation(
        name="read-joins-sent-barrier",
        sentence="A read joins a barrier that was sent already.",
        found_by=("read-fresh",),
        apply=replaced(Outbox, "read", _read_with_any_barrier),
        surroundings=_CROWDED,
    ),
    Mutation(
        name="sent-not-sent-again",
        sentence="After a failover only what was never sent is sent.",
        found_by=("in-turn", "liveness"),
        apply=replaced(Outbox, "rewind", _rewind_what_was_never_sent),
        surroundings=_PATIENT,
    ),
    Mutation(
        name="older-snapshot-put-in-place",
        sentence="A child that ends late puts its older snapshot over a newer one that was received (H21).",
        found_by=("snapshot-newer", "node-ends"),
        apply=replaced(SnapshotStore, "_stop_writing", _go_on_writing),
        surroundings=Surroundings(
            rates={"isolate": 12.0},
            fault_s=(1.0, 6.0),
            settings={"compact_entries": 10, "child_step_us": 1_000_000},
        ),
    ),
)
