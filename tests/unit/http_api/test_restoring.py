"""`holdfast-node restore` and `recover`: what an operator types, and what is refused."""

import asyncio
import hashlib
import io
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from cluster.refounding import Place, Terms, found, of_backup, survivor
from holdfast.wire import backup
from http_api.__main__ import main
from lockstate.machine import LockMachine
from lockstate.rules.restoring import TOKENS_SKIPPED
from lockstate.stored import snapshot
from lockstate.words.commands.entries import Batch, Entry
from lockstate.words.commands.holds import Acquire
from lockstate.words.ids import AttemptId, HoldId
from lockstate.words.modes import Mode
from tests.unit.cluster.test_node import DEADLINE_S, running
from tests.unit.cluster.test_refounding import acquire
from tests.unit.http_api.restored import state_in

MEMBERS = {"n1": "10.0.0.1:7800", "n2": "10.0.0.2:7800", "n3": "10.0.0.3:7800"}
PEERS = "n1=10.1.0.1:7800,n2=10.1.0.2:7800,n3=10.1.0.3:7800"
BEHIND = Place(19, 2)


def a_machine() -> LockMachine:
    """Return a state in which a lock is held."""
    machine = LockMachine()
    command = Acquire("kept", Mode.EXCLUSIVE, HoldId("h"), AttemptId("a"), ttl_ms=60_000)
    machine.apply(Entry(1_000, (Batch("o", (1,), (command,)),)))
    return machine


def a_backup(state: bytes | None = None) -> bytes:
    """Return a backup of that state, or of other bytes."""
    machine = a_machine()
    state = snapshot.encode(machine.state) if state is None else state
    content = backup.head(
        backup.BackupInfo(
            cluster_id="c" * 32, version="1.0.0", rules=machine.rules, revision=machine.revision,
            highest_token=1, created_ms=1_800_000_000_000, members=MEMBERS, log_index=BEHIND.entry,
            log_term=BEHIND.term, state_bytes=len(state),
        )
    ) + state  # fmt: skip
    return content + hashlib.sha256(content).digest()


@pytest.fixture
def saved(tmp_path: Path) -> str:
    """Return the path of a backup."""
    path = tmp_path / "saved"
    path.write_bytes(a_backup())
    return str(path)


def test_restored_with_the_members_of_the_backup(
    tmp_path: Path, saved: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without --peers the new cluster has the addresses of the old; what to do next is printed."""
    path = tmp_path / "n2"
    assert main(["restore", saved, "--data-dir", str(path), "--node-id", "n2"]) == 0
    said = capsys.readouterr().out
    machine, members, place = state_in(path)
    assert f"{path}: node n2 of the new cluster {members.cluster_id}, revision 2" in said
    assert "restored from the backup of cluster cccccccc" in said
    assert re.search(
        r"saved \S+Z; done at \S+Z; ended holds: 1, waits: 0, sessions: 0; tokens go on at 4294967297\n", said
    )
    assert "then start n1 and n3, each with its usual settings, an empty data directory, and" in said
    assert "    --join --peers n1=10.0.0.1:7800,n2=10.0.0.2:7800,n3=10.0.0.3:7800" in said
    assert "the cluster serves when 2 of its 3 nodes have caught up" in said
    assert {node_id: member.peer for node_id, member in members.nodes.items()} == MEMBERS
    assert (members.voters, members.serves) == (frozenset({"n2"}), False)
    assert not machine.state.holds
    assert machine.next_token == 1 + TOKENS_SKIPPED
    assert place.entry > BEHIND.entry
    assert place.term > BEHIND.term


def test_the_settings_of_the_node_are_taken(tmp_path: Path, saved: str) -> None:
    """From its file and its variables, as when it starts; holds are kept if that is asked for."""
    config = tmp_path / "node.toml"
    config.write_text(f'node_id = "n3"\ndata_dir = "{tmp_path}/n3"\nlog_level = "debug"\npeers = "{PEERS}"\n')
    assert main(["restore", saved, "--config", str(config), "--keep-holds", "--min-token", "1000"]) == 0
    machine, members, _ = state_in(tmp_path / "n3")
    assert members.nodes["n1"].peer == "10.1.0.1:7800"
    assert list(machine.state.holds) == ["h"]
    assert machine.next_token == 1000


def test_a_backup_comes_through_a_pipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As from another machine."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(a_backup())))
    assert main(["restore", "-", "--data-dir", str(tmp_path / "n1")]) == 0
    assert state_in(tmp_path / "n1")[0].revision == 2


def test_an_empty_cluster_with_a_least_token(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Where nothing is left but the memory of tokens."""
    path = tmp_path / "n1"
    assert main(["restore", "--min-token", "5000", "--data-dir", str(path)]) == 0
    machine, members, place = state_in(path)
    assert (machine.next_token, list(members.nodes), members.serves) == (5000, ["n1"], True)
    assert place.entry > 2
    assert "restored from an empty cluster" in capsys.readouterr().out


def _truncate(content: bytes) -> bytes:
    return content[:-1]


def _no_state(_: bytes) -> bytes:
    return a_backup(b"\x91\x00")


def _too_new(_: bytes) -> bytes:
    return a_backup(b"\x96\x63\x00\x00\x00\x00\x80")


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (_truncate, "the backup cannot be used: its last 1 bytes are missing: it was cut off"),
        (_no_state, "the backup cannot be used: this version cannot use the state in it: not a snapshot"),
        (_too_new, "the backup cannot be used: this version cannot use the state in it: "),
    ],
)
def test_a_damaged_backup_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], spoil: Callable[[bytes], bytes], says: str
) -> None:
    """The exit code is that of a directory that cannot be used, and nothing is made."""
    path = tmp_path / "saved"
    path.write_bytes(spoil(a_backup()))
    assert main(["restore", str(path), "--data-dir", str(tmp_path / "n1")]) == 3
    assert says in capsys.readouterr().err
    assert not (tmp_path / "n1").exists()


@pytest.mark.parametrize(
    ("flags", "code", "says"),
    [
        ((), 2, "give a FILE, or --min-token for an empty cluster; see `holdfast-node restore --help`"),
        (("{saved}", "--node-id", "n9"), 2, "the members in the backup are n1, n2, n3"),
        (("{saved}", "--node-id", "n9", "--peers", PEERS), 2, "must name this node too"),
        (("{saved}", "--node-id", "-"), 2, "a node id is"),
        (("{saved}", "--peers", "n1=h:1,n2=h:1"), 2, "two nodes cannot have the same address"),
        (("{saved}", "--peers", "n1=0.0.0.0:7800"), 2, "an address that the other nodes can reach"),
        (("{saved}", "--peers", ",".join(f"n{n}=h:{n}" for n in range(1, 9))), 2, "must name 1 to 7 nodes"),
        (("{saved}", "--min-token", "1"), 2, "must be above 1, the highest token known"),
        (("{saved}", "--min-token", str(1 << 60)), 2, "and at most"),
        (("{saved}", "--min-tokens", "1"), 2, "unrecognized arguments"),
        (("{saved}", "--data-dir", ""), 2, "must name a directory"),
        (("/nowhere/saved",), 3, "the backup cannot be read"),
        (("{saved}", "--data-dir", "{full}"), 3, "is not empty (it has x)"),
    ],
)
def test_wrong_words(  # noqa: PLR0917 - fixtures
    tmp_path: Path,
    saved: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    flags: tuple[str, ...],
    code: int,
    says: str,
) -> None:
    """Each is refused with a sentence, and nothing is made."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").write_text("")
    words = [flag.format(saved=saved, full=tmp_path / "full") for flag in flags]
    assert main(["restore", *words]) == code
    assert says in capsys.readouterr().err
    assert not (tmp_path / "holdfast-data").exists()


def a_survivor(path: Path, node_id: str = "n1", behind: Place = BEHIND) -> tuple[str, str]:
    """Make a data directory; return its path and the id of its cluster."""
    seed = of_backup(snapshot.encode(a_machine().state), behind, MEMBERS, "a test")
    return str(path), found(path, node_id, seed, Terms(keeps_holds=True)).cluster_id


def test_recovered_from_what_is_left(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The id of the old cluster is asked for; its directory stays, and the new one has another id."""
    path, old_id = a_survivor(tmp_path / "left")
    monkeypatch.setattr(sys, "stdin", io.StringIO(f"{old_id}\n"))
    assert main(["recover", "--data-dir", path, "--into", str(tmp_path / "new")]) == 0
    said = capsys.readouterr().out
    assert f"{path}: node n1 of cluster {old_id}" in said
    assert "last log entry 21, term 3, written 20" in said
    assert "0 min " in said
    assert "what the lost nodes acknowledged after that is lost" in said
    assert "Type the id of the cluster to go on:" in said
    assert f"restored from the directory of n1 in cluster {old_id}, up to log entry 21 of term 3" in said
    machine, members, place = state_in(tmp_path / "new")
    assert members.cluster_id not in ("", old_id)
    assert (members.voters, place.entry > 21, place.term > 3) == (frozenset({"n1"}), True, True)
    assert not machine.state.holds
    assert list(state_in(Path(path))[0].state.holds) == ["h"]


def test_the_newest_of_several_directories_counts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of two that are left of one cluster it is the one whose log goes on; holds are kept if asked for."""
    old_id = asyncio.run(_two_that_are_left(tmp_path))
    names = [str(tmp_path / name) for name in ("older", "newer", "copied")]
    into = ("--into", str(tmp_path / "new"), "--yes", old_id, "--keep-holds", "--min-token", "77")
    assert main(["recover", "--data-dir", *names, *into]) == 0
    machine, _, _ = state_in(tmp_path / "new")
    assert (list(machine.state.holds), machine.next_token) == (["first", "second"], 77)
    assert capsys.readouterr().out.count(f"node n1 of cluster {old_id}") == 3


async def _two_that_are_left(path: Path) -> str:
    """Make three directories of one cluster, of which one has more; return the id of the cluster."""
    async with running(path / "newer") as node:
        await node.submit(acquire("first"), DEADLINE_S)
        cluster_id = node.parts.replica.membership.latest.cluster_id
    for name in ("older", "copied"):
        shutil.copytree(path / "newer", path / name)
    async with running(path / "newer") as node:
        await node.submit(acquire("second"), DEADLINE_S)
    return cluster_id


def test_directories_of_two_clusters(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Which of them is meant cannot be guessed."""
    first, old_id = a_survivor(tmp_path / "a")
    other, _ = a_survivor(tmp_path / "b")
    into = ("--into", str(tmp_path / "new"), "--yes", old_id)
    assert main(["recover", "--data-dir", first, other, *into]) == 3
    assert "are those of different clusters" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("flags", "code", "says"),
    [
        (("--data-dir", "{left}", "--into", "{new}", "--yes", "other"), 2, "not 'other': nothing was done"),
        (("--data-dir", "{left}", "--into", "{new}"), 2, "not '': nothing was done"),
        (("--data-dir", "{left}", "--into", "{left}", "--yes", "{id}"), 3, "is not empty"),
        (("--data-dir", "{left}"), 2, "the following arguments are required: --into"),
        (("--data-dir", "{none}", "--into", "{new}"), 3, "is not the data directory of a node"),
    ],
)
def test_wrong_words_of_recover(  # noqa: PLR0917 - fixtures
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    flags: tuple[str, ...],
    code: int,
    says: str,
) -> None:
    """Each is refused with a sentence, and nothing is made."""
    left, old_id = a_survivor(tmp_path / "left")
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    new = tmp_path / "new"
    words = [flag.format(left=left, new=new, none=tmp_path / "none", id=old_id) for flag in flags]
    assert main(["recover", *words]) == code
    assert says in capsys.readouterr().err
    assert not new.exists()


def test_a_directory_without_a_cluster(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """There is nothing to be recovered in that of a node which never took part."""
    from cluster.storage.data_directory import DataDir  # noqa: PLC0415

    DataDir.open(tmp_path / "left", "n1").close()
    assert main(["recover", "--data-dir", str(tmp_path / "left"), "--into", str(tmp_path / "new")]) == 3
    assert "this node never belonged to a cluster" in capsys.readouterr().err


def test_a_removed_node_is_no_survivor(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its directory stopped when it was removed: those of members count."""
    path, old_id = a_survivor(tmp_path / "left", "n9")
    with survivor(Path(path)) as left:
        assert "n9" not in left.state()[1].nodes
    assert main(["recover", "--data-dir", path, "--into", str(tmp_path / "new"), "--yes", old_id]) == 3
    assert "n9 was removed from its cluster, whose members are n1, n2, n3" in capsys.readouterr().err
