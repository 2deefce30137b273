"""What earlier releases have stored and sent means today what it meant to them, byte for byte.

`stored` holds bytes with what their own release made of them; make_*.py say how. Nothing there ever changes.
"""

import json
import tarfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cluster.config import load
from cluster.consensus import member_list
from cluster.consensus.member_list import Members
from cluster.node import Node
from cluster.peers import handshake
from cluster.peers.handshake import (
    Challenge,
    FirstProof,
    HandshakeState,
    Hello,
    Objection,
    Particulars,
    Proof,
    Refusal,
)
from cluster.peers.link import FrameKind
from cluster.peers.peering import Handlers, Peering
from cluster.storage.data_directory import DataDir
from cluster.storage.files import Files
from cluster.storage.journal import Journal
from cluster.storage.snapshot_store import SnapshotStore
from lockstate import codec, fingerprint, invariants, snapshot
from lockstate.machine import LockMachine
from tests.compat.values import plain

STORED = Path(__file__).with_name("stored")
SECRET = b"the secret of a stored cluster"
DEADLINE_S = 20.0
FIRST, SECOND, THIRD, FOURTH, FIFTH = "0.1.0", "rules_2", "rules_3", "rules_4", "rules_5"
SIXTH, SEVENTH, EIGHTH = "rules_6", "rules_7", "rules_8"
RULES = {FIRST: 1, SECOND: 2, THIRD: 3, FOURTH: 4, FIFTH: 5, SIXTH: 6, SEVENTH: 7, EIGHTH: 8}
FINGERPRINTS = {
    FIRST: 0x5D3BFE3C0FA97262,
    SECOND: 0xFAC527CD7C497B44,
    THIRD: 0x7BE2EAF83BE98426,
    FOURTH: 0xA7566D4E794F7438,
    FIFTH: 0x4DBB0624765A6F7D,
    SIXTH: 0xCB079B4ADF95475F,
    SEVENTH: 0x30C00184E79FF103,
    EIGHTH: 0xCD65A77C35EA56BE,
}
"""What version 1 of the fingerprint makes of the stored snapshots: releases that tell each other another one
stop each other. If they must change, fingerprint.VERSION changes first."""
EMPTY = {FOURTH: 1, EIGHTH: 1}
"""Tables that a stored snapshot has no row of: with rules 4 nothing had anything beside its fields yet."""
RELEASES = pytest.mark.parametrize("release", RULES)
DIRECTORIES = pytest.mark.parametrize("release", [FIRST, SECOND, THIRD, FIFTH, EIGHTH])
"""Those of which a node's data directory is stored."""
SPEAKERS = pytest.mark.parametrize("release", [FIRST, SECOND])
"""Those that brought another protocol between nodes."""


def load_json(release: str, name: str) -> Any:
    """Return what a stored file says."""
    return json.loads((STORED / release / name).read_text())


def stored_bytes(release: str, table: str) -> dict[str, bytes]:
    """Return the messages of one table of peers.json, by name."""
    return {name: bytes.fromhex(data) for name, data in load_json(release, "peers.json")[table].items()}


# -- entries and states -------------------------------------------------------------------------------------


@RELEASES
def test_entries_do_what_they_did(release: str) -> None:
    """Every command of a stored history has the outcome that its release gave it, and so has the state."""
    machine = LockMachine()
    for number, step in enumerate(load_json(release, "history.json")):
        outcome = machine.apply(codec.decode_entry(bytes.fromhex(step["entry"]), machine.rules))
        assert plain(outcome, RULES[release]) == step["outcome"], f"entry {number}"
        assert snapshot.digest(machine) == step["digest"], f"entry {number}"
    assert machine.rules == RULES[release]


def test_rules_2_do_with_every_command_what_rules_1_did() -> None:
    """Rules 2 brought formats only: the entries of release 0.1.0 have the same outcomes under them."""
    machine = LockMachine()
    machine.state.rules = 2
    for number, step in enumerate(load_json(FIRST, "history.json")):
        entry = codec.decode_entry(bytes.fromhex(step["entry"]), machine.rules)
        assert plain(machine.apply(entry)) == step["outcome"], f"entry {number}"


@RELEASES
def test_a_snapshot_is_what_it_was(release: str) -> None:
    """A stored state with a row in every table is restored, sound, and encoded to the same bytes again."""
    data = (STORED / release / "snapshot").read_bytes()
    machine = snapshot.decode(data)
    invariants.check(machine)
    assert machine.rules == RULES[release]
    tables = [bool(table) for table in msgspec.msgpack.decode(data)[-1]]
    assert tables.count(False) == EMPTY.get(release, 0), "it has all tables"
    assert snapshot.encode(machine) == data
    assert snapshot.digest(machine) in {step["digest"] for step in load_json(release, "history.json")}


@RELEASES
def test_a_fingerprint_means_the_same_in_every_release(release: str) -> None:
    """Nodes of different releases compare the fingerprints of version 1 of their states."""
    machine = snapshot.decode((STORED / release / "snapshot").read_bytes())
    assert fingerprint.VERSION == 1
    assert machine.fingerprint == FINGERPRINTS[release], "count fingerprint.VERSION up"


# -- data directories ---------------------------------------------------------------------------------------


def unpacked(release: str, tmp_path: Path) -> Path:
    """Return a copy of a stored data directory."""
    directory = tmp_path / "n1"
    with tarfile.open(STORED / release / "data_directory.tar.xz") as archive:
        archive.extractall(directory, filter="data")
    return directory


@asynccontextmanager
async def running(directory: Path) -> AsyncIterator[Node]:
    """Run a node on the directory."""
    node = Node(load(["--data-dir", str(directory), "--http", "127.0.0.1:0", "--peer", "127.0.0.1:0"], {}))
    await node.start()
    try:
        await node.read(lambda machine: machine.revision, DEADLINE_S)
        yield node
    finally:
        await node.stop()


@DIRECTORIES
def test_journal_and_snapshot_are_read_back(release: str, tmp_path: Path) -> None:
    """What is on disk restores the very state that the release had when it stopped, before anything runs."""
    directory, facts = unpacked(release, tmp_path), load_json(release, "data_directory.json")
    datadir = DataDir.open(directory, "n1")
    assert (datadir.disk_id, datadir.identity.group) == (facts["disk_id"], 0)
    stored = SnapshotStore(directory, Files()).load()
    journal = Journal.open(directory)
    assert stored is not None
    machine = snapshot.decode(stored.state)
    journal.begin_at(stored.previous, stored.last)
    for command, index, _ in journal[:]:
        if index > stored.last[1] and command[:1] == b"\0":
            machine.apply(codec.decode_entry(command[1:], machine.rules))
    assert snapshot.digest(machine) == facts["digest"]
    assert (machine.revision, machine.next_token) == (facts["revision"], facts["next_token"])
    journal.close()
    datadir.close()


@DIRECTORIES
async def test_a_node_goes_on_with_a_stored_directory(release: str, tmp_path: Path) -> None:
    """It holds what was held, with the same tokens, and the next token is larger: nobody begins again."""
    directory, facts = unpacked(release, tmp_path), load_json(release, "data_directory.json")
    async with running(directory) as node:
        held = sorted([hold.name, hold.token] for hold in node.machine.state.holds.values())
        assert held == facts["holds"]
        assert node.machine.next_token == facts["next_token"]
        assert node.machine.revision >= facts["revision"]


# -- between nodes ------------------------------------------------------------------------------------------


@SPEAKERS
def test_a_handshake_is_understood_and_repeated(release: str) -> None:
    """Stored proofs hold, and this release would send the same bytes."""
    stored = {name: handshake.decode(data) for name, data in stored_bytes(release, "handshake").items()}
    hello, challenge, refusal = stored["hello"], stored["challenge"], stored["refusal"]
    assert isinstance(hello, Hello)
    assert isinstance(challenge, Challenge)
    assert isinstance(refusal, Refusal)
    assert hello.protocol == 1
    exchange = HandshakeState("n1", "n2", hello.nonce, challenge.nonce)
    rules = RULES[release]
    assert exchange.protocol == rules
    told = {
        "dialer": Particulars("disk-1", "http://n1", 5, rules=rules),
        "acceptor": Particulars("disk-2", "http://n2", rules=rules),
    }
    for role, particulars in told.items():
        proof = stored[role]
        assert isinstance(proof, Proof | FirstProof)
        assert exchange.proven(SECRET, role.encode(), proof) == particulars
        assert exchange.prove(SECRET, role.encode(), particulars) == proof
    assert refusal.objection == Objection("it was removed", is_final=True)
    assert exchange.is_refused(SECRET, refusal)
    for name, data in stored_bytes(release, "handshake").items():
        assert handshake.encode(stored[name]) == data


class Listener:
    """A node that writes down what its peers say."""

    def __init__(self) -> None:
        self.heard: list[tuple[Any, ...]] = []

    def __getattr__(self, name: str) -> Any:
        return lambda *args: self.heard.append((name, *args))


FRAMES: dict[str, msgspec.msgpack.Decoder[Any]] = {
    FIRST: msgspec.msgpack.Decoder(tuple[int, msgspec.Raw]),
    SECOND: msgspec.msgpack.Decoder(tuple[int, int, msgspec.Raw]),
}


@SPEAKERS
@pytest.mark.parametrize("name", load_json(FIRST, "peers.json")["frames"])
def test_frames_reach_the_node(release: str, name: str, tmp_path: Path) -> None:
    """Every frame that nodes of a release sent to each other is handed on, and would be sent the same."""
    kind, *_, body = FRAMES[release].decode(stored_bytes(release, "frames")[name])
    assert FrameKind(kind).name == name.split(" ", maxsplit=1)[0]
    datadir, listener = DataDir.open(tmp_path / "n9", "n9"), Listener()
    peering = Peering(datadir, "n9", "http://n9", listener)
    peering.handlers = Handlers(
        raft=listener.raft,
        forwarded=listener.forwarded,
        transfer_asked=listener.transfer_asked,
        change_asked=listener.change_asked,
        change_decided=listener.change_decided,
    )
    peering.is_established = True
    sender = "n1"
    if kind == FrameKind.FORWARD:
        sender = msgspec.msgpack.decode(body)[1].rpartition(".")[0]
    if kind == FrameKind.REFUSED:
        # The link takes it.
        heard: object = msgspec.msgpack.decode(body, type=Objection)
    else:
        peering.frame(sender, kind, body)
        heard = peering.pings[sender] if kind == FrameKind.PING else listener.heard[-1][-1]
    # This release sends the same content, in whatever order a map may have; new fields stand behind it.
    assert begins_with(msgspec.msgpack.decode(msgspec.msgpack.encode(heard)), msgspec.msgpack.decode(body))
    datadir.close()


def begins_with(ours: object, theirs: object) -> bool:
    """Whether all that `theirs` says is said by `ours` at the same place, with more at the ends of arrays."""
    if isinstance(ours, list) and isinstance(theirs, list):
        return len(ours) >= len(theirs) and all(map(begins_with, ours, theirs))
    if isinstance(ours, dict) and isinstance(theirs, dict):
        return ours.keys() == theirs.keys() and all(begins_with(ours[key], theirs[key]) for key in theirs)
    return ours == theirs


def test_member_lists_are_read_and_written_as_before() -> None:
    """A list that stands in a log or a snapshot is the same list, and the same bytes."""
    for name, data in stored_bytes(FIRST, "members").items():
        members = member_list.decode(data)
        assert isinstance(members, Members)
        assert member_list.encode(members) == data, name
        assert members.nodes["n3"].disk_id == "disk-3"
    replaced = member_list.decode(stored_bytes(FIRST, "members")["replaced"])
    assert (replaced.removed, replaced.version) == ({"disk-1": "n1"}, 3)
