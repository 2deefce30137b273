"""A state is read in pieces at the start of a node, and the node says how far it is."""

import asyncio
from pathlib import Path

import pytest

from cluster import loading
from cluster.loading import Loading
from cluster.storage.files import Files
from cluster.storage.snapshot_format import Snapshot, write_snapshot
from cluster.storage.snapshot_store import SNAPSHOT_NAME, SnapshotStore
from lockstate.machine import LockMachine
from lockstate.stored import snapshot
from lockstate.stored.snapshot import GROUP_ROWS, SnapshotError
from lockstate.words.commands.entries import Batch, Entry
from lockstate.words.commands.holds import Acquire
from lockstate.words.ids import AttemptId, HoldId
from lockstate.words.modes import Mode

GROUPS = 4


def store_of(directory: Path, state: bytes) -> SnapshotStore:
    """Return a store with a snapshot of this state."""
    entry = (b"", 1, 1)
    write_snapshot(directory / SNAPSHOT_NAME, Snapshot(entry, entry, state), Files())
    return SnapshotStore(directory)


def held(count: int) -> bytes:
    """Return a state with so many held locks."""
    machine, numbers = LockMachine(), range(1, count + 1)
    commands = [
        Acquire(f"a/{number}", Mode.EXCLUSIVE, HoldId(f"h{number}"), AttemptId("a"), ttl_ms=60_000)
        for number in numbers
    ]
    machine.apply(Entry(0, (Batch("n1", tuple(numbers), tuple(commands)),)))
    return snapshot.encode(machine.state)


async def test_the_loop_runs_while_a_state_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Others see the percentage rise, and a line tells of it; the state is whole at the end."""
    monkeypatch.setattr(loading, "PIECE_S", 0.0)
    monkeypatch.setattr(loading, "TOLD_EVERY_S", 0.0)
    caplog.set_level("INFO", "cluster.loading")
    data, told = held(GROUPS * GROUP_ROWS), list[str]()
    start, seen = Loading(), list[int]()
    start.on_progress = told.append
    reading = asyncio.create_task(start.load(store_of(tmp_path, data)))
    while not reading.done():
        seen.append(start.percent)
        await asyncio.sleep(0)
    found = reading.result()
    assert found is not None
    assert isinstance(found.decoded, LockMachine)
    assert (found.state, snapshot.encode(found.decoded.state)) == (b"", data)
    assert seen == sorted(seen)
    assert len(set(seen)) > GROUPS
    assert (seen[0], start.percent) == (0, 100)
    assert "event=loading percent=100 " in caplog.messages[-1]
    assert told[-1] == str(start) == "the node is starting: it has read 100 % of its state"


async def test_a_node_without_a_snapshot_has_nothing_to_read(tmp_path: Path) -> None:
    """As at its first start."""
    assert await Loading().load(SnapshotStore(tmp_path)) is None


@pytest.mark.parametrize("state", [b"", b"damage", held(1)[:-1]])
async def test_a_state_that_is_not_one_is_refused(tmp_path: Path, state: bytes) -> None:
    """The file is whole, and what it says is not a state of this version."""
    with pytest.raises(SnapshotError):
        await Loading().load(store_of(tmp_path, state))


async def test_a_start_that_is_cancelled_ends_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever stops a node need not wait until it has read its state."""
    monkeypatch.setattr(loading, "PIECE_S", 0.0)
    start = Loading()
    reading = asyncio.create_task(start.load(store_of(tmp_path, held(GROUPS * GROUP_ROWS))))
    while not (start.percent or reading.done()):  # noqa: ASYNC110 - nothing tells of it
        await asyncio.sleep(0)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    assert start.percent < 100
