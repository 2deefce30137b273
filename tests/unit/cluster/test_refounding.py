"""New clusters out of old states: the directory that is made, and what a stopped node's directory has."""

from collections.abc import Callable
from pathlib import Path

import pytest

from cluster import refounding
from cluster.config import load
from cluster.errors import DataDirError, NoLeader, advice_on
from cluster.node import Node
from cluster.refounding import Place, Seed, Terms
from cluster.storage.data_directory import DataDir
from cluster.storage.files import Files
from lockstate.rules.restoring import TOKENS_SKIPPED
from lockstate.stored import snapshot
from lockstate.words.commands.holds import Acquire
from lockstate.words.ids import AttemptId, HoldId
from lockstate.words.modes import Mode
from lockstate.words.results import Granted
from scripts.lib import ports
from tests.support.replica_parts import FullDisk
from tests.unit.cluster.test_node import DEADLINE_S, running, until

ALONE = {"n1": "127.0.0.1:7800"}
THREE = {"n1": "127.0.0.1:1", "n2": "127.0.0.1:2", "n3": "127.0.0.1:3"}
BEHIND = Place(70, 4)
WAITED_MS = 3_000
"""Longer than the removal of two nodes takes."""


def acquire(name: str) -> Acquire:
    """Return an acquire of a lock, whose hold has its name."""
    return Acquire(name, Mode.EXCLUSIVE, HoldId(name), AttemptId(f"of-{name}"), ttl_ms=60_000)


async def a_seed(path: Path, peers: dict[str, str]) -> Seed:
    """Return the state of a node that has granted a lock, for a cluster of other nodes."""
    async with running(path) as node:
        await node.submit(acquire("old"), DEADLINE_S)
        return refounding.of_backup(snapshot.encode(node.machine.state), BEHIND, peers, "a test")


async def test_a_node_starts_on_what_was_made(tmp_path: Path) -> None:
    """It leads, has the state, goes on with its tokens, and its log begins behind the old; twice."""
    new = refounding.found(tmp_path / "new", "n1", await a_seed(tmp_path / "old", ALONE))
    assert new.next_token == 1 + TOKENS_SKIPPED
    assert new.record == "from a test; ended holds: 1, waits: 0, sessions: 0"
    for grant in range(2):
        async with running(tmp_path / "new") as node:
            replica = node.parts.replica
            assert replica.membership.latest.cluster_id == new.cluster_id
            assert replica.log.first_index > BEHIND.entry
            assert replica.role.term > BEHIND.term
            assert not [hold for hold in node.machine.state.holds if hold == "old"]
            answer = await node.submit(acquire(f"new-{grant}"), DEADLINE_S)
            assert isinstance(answer.result, Granted)
            assert answer.result.token == 1 + TOKENS_SKIPPED + grant


async def test_each_restoration_is_a_cluster_of_its_own(tmp_path: Path) -> None:
    """Two directories made of one state have different ids, and would refuse each other."""
    seed = await a_seed(tmp_path / "old", ALONE)
    made = [refounding.found(tmp_path / name, "n1", seed, Terms(keeps_holds=True)) for name in ("a", "b")]
    assert made[0].cluster_id != made[1].cluster_id


async def test_a_cluster_serves_when_a_majority_has_joined(tmp_path: Path) -> None:
    """One of three leads, is not ready, refuses what it is asked, and says what it waits for."""
    refounding.found(tmp_path / "new", "n1", await a_seed(tmp_path / "old", THREE))
    _, port = ports.of_cluster(ports.find_base(1), 1)[0]
    flags = ["--data-dir", str(tmp_path / "new"), "--http", "127.0.0.1:0", "--peer", f"127.0.0.1:{port}"]
    node = Node(load([*flags, "--secret", "s" * 16], {}))
    await node.start()
    try:
        await until(lambda: node.parts.replica.role.is_leader)
        assert not node.is_ready
        with pytest.raises(NoLeader, match="serves when a majority of its nodes has joined"):
            await node.read(lambda machine: machine.revision, 0.2)
        (forming,) = [one for one in node.status().obstacles if one.kind == "forming"]
        assert "restored on n1 and serves nobody before 2 of 3 nodes vote" in forming.detail
        assert "start n2 or n3 with --join" in forming.advice
        # An operator who knows that the others never come back takes them out.
        await node.remove_member("n2", DEADLINE_S)
        assert not node.is_ready
        await node.remove_member("n3", DEADLINE_S)
        assert await node.read(lambda machine: machine.revision, DEADLINE_S)
        assert node.is_ready
    finally:
        await node.stop()


async def test_no_time_passes_before_a_cluster_serves(tmp_path: Path) -> None:
    """Kept holds have their whole lease from then on, however long the nodes took to join."""
    seed = await a_seed(tmp_path / "old", THREE)
    refounding.found(tmp_path / "new", "n1", seed, Terms(keeps_holds=True))
    _, port = ports.of_cluster(ports.find_base(1), 1)[0]
    flags = ["--data-dir", str(tmp_path / "new"), "--http", "127.0.0.1:0", "--peer", f"127.0.0.1:{port}"]
    node = Node(load([*flags, "--secret", "s" * 16], {}))
    await node.start()
    try:
        began_ms = node.machine.now_ms
        await until(lambda: node.parts._clock.now_ms() > began_ms + WAITED_MS)
        for node_id in ("n2", "n3"):
            await node.remove_member(node_id, DEADLINE_S)
        hold = await node.read(lambda machine: machine.state.holds[HoldId("old")], DEADLINE_S)
        assert hold.expires_at_ms == began_ms + hold.ttl_ms
        assert node.machine.now_ms < began_ms + WAITED_MS
    finally:
        await node.stop()


def test_only_an_empty_directory_is_taken(tmp_path: Path) -> None:
    """Whatever is there is left alone, but for what a new disk has."""
    refounding.check_empty(tmp_path / "none")
    (tmp_path / "lost+found").mkdir()
    refounding.check_empty(tmp_path)
    (tmp_path / "journal").write_text("precious")
    with pytest.raises(DataDirError, match=r"is not empty \(it has journal\)"):
        refounding.found(tmp_path, "n1", refounding.of_nothing(ALONE))
    assert Files().names(tmp_path) == ["journal", "lost+found"]
    with pytest.raises(DataDirError, match="cannot be read"):
        refounding.check_empty(tmp_path / "journal")


async def test_a_full_disk_is_told(tmp_path: Path) -> None:
    """The operator hears of it, and not of a traceback."""
    files = FullDisk()
    files.is_full = True
    with pytest.raises(DataDirError, match="cannot be"):
        refounding.found(tmp_path / "new", "n1", refounding.of_nothing(ALONE), files=files)


@pytest.mark.parametrize("has_snapshot", [False, True])
async def test_a_survivor_has_all_its_entries(tmp_path: Path, has_snapshot: bool) -> None:  # noqa: FBT001
    """Those behind its snapshot are applied, committed or not; its directory is as it was."""
    path = tmp_path / "left"
    async with running(path) as node:
        await node.submit(acquire("first"), DEADLINE_S)
        if has_snapshot:
            node.parts.replica.engine.force_compaction()
            await until((path / "snapshot").exists)
        await node.submit(acquire("second"), DEADLINE_S)
        last, term = node.parts.replica.log.last_index, node.parts.replica.role.term
        state = snapshot.digest(node.machine.state)
    before = {name: (path / name).stat().st_mtime_ns for name in Files().names(path)}
    with refounding.survivor(path) as left:
        assert (left.node_id, left.last) == ("n1", (last, term))
        assert (left.loaded is not None) == has_snapshot
        assert left.uncertain_count <= 1
        assert left.written_s > 0
        machine, members = left.state()
        with pytest.raises(DataDirError, match="in use by another process"):
            DataDir.open(path, "n1")
    assert snapshot.digest(machine.state) == state
    assert list(machine.state.holds) == ["first", "second"]
    assert (members.cluster_id, list(members.nodes)) == (left.cluster_id, ["n1"])
    assert {name: (path / name).stat().st_mtime_ns for name in Files().names(path)} == before


async def test_a_running_node_is_no_survivor(tmp_path: Path) -> None:
    """Its directory is locked. That says all: the disk has not failed, and there is no advice on disks."""
    async with running(tmp_path):
        with (
            pytest.raises(DataDirError, match="in use by another process") as refused,
            refounding.survivor(tmp_path),
        ):
            pytest.fail("two in one directory")
    assert advice_on(refused.value) == ""


def _remove_snapshot(path: Path) -> None:
    (path / "snapshot").unlink()


def _damage_snapshot(path: Path) -> None:
    (path / "snapshot").write_bytes(b"HOLDFSNP")


def _remove_identity(path: Path) -> None:
    (path / "identity.json").unlink()


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (_remove_snapshot, "what is before it is missing"),
        (_damage_snapshot, "the snapshot cannot be used"),
        (_remove_identity, "is not the data directory of a node"),
    ],
)
async def test_a_spoiled_directory_is_refused(
    tmp_path: Path, spoil: Callable[[Path], None], says: str
) -> None:
    """What is not whole is not taken for a state."""
    async with running(tmp_path) as node:
        for number in range(8):
            await node.submit(acquire(f"a{number}"), DEADLINE_S)
        engine = node.parts.replica.engine
        engine._retained = 1
        engine.force_compaction()
        await until(lambda: node.parts.replica.log.first_index > 1)
    spoil(tmp_path)
    with pytest.raises(DataDirError, match=says), refounding.survivor(tmp_path):
        pytest.fail("it was taken")


def test_what_is_not_there_is_not_made(tmp_path: Path) -> None:
    """A wrong path does not become a data directory."""
    with (
        pytest.raises(DataDirError, match="is not the data directory of a node"),
        refounding.survivor(tmp_path / "wrong"),
    ):
        pytest.fail("it was taken")
    assert not Files().names(tmp_path)
