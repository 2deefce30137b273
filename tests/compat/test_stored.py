"""What releases have stored means today what it meant to them, byte for byte.

`stored` holds bytes with what their own release made of them; make_*.py say how. Once a release is out,
nothing of it ever changes there.
"""

import json
import tarfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest

from cluster.config import load
from cluster.node import Node
from cluster.storage.data_directory import DataDir
from cluster.storage.files import Files
from cluster.storage.journal import Journal
from cluster.storage.snapshot_store import SnapshotStore
from lockstate import invariants
from lockstate.machine import LockMachine
from lockstate.stored import snapshot
from lockstate.tables import fingerprint
from lockstate.words import codec
from lockstate.words.cell_operations import Operation
from lockstate.words.commands.cells import TransactCells
from lockstate.words.results import Transacted
from tests.compat.values import plain
from tests.support.vocabulary import VOCABULARY

STORED = Path(__file__).with_name("stored")
DEADLINE_S = 20.0
FINGERPRINTS = {"1.0.0": 0x78D5B902DB0B0F2F}
"""What version 1 of the fingerprint makes of the stored snapshots: releases that tell each other another one
stop each other. If they must change, fingerprint.VERSION changes first."""
FIELDS = {"rules", "bytes_max", "cells_revision", "rules_hold", "preferred"}
"""All that snapshots have besides tables; the group is always the same."""
ACTS = 21
"""The table of what operators did before the oldest event of the audit, which takes a full audit."""
RELEASES = pytest.mark.parametrize("release", FINGERPRINTS)


def load_json(release: str, name: str) -> Any:
    """Return what a stored file says."""
    return json.loads((STORED / release / name).read_text())


# -- entries and states -------------------------------------------------------------------------------------


@RELEASES
def test_entries_do_what_they_did(release: str) -> None:
    """Every command of a stored history has the outcome that its release gave it, and so has the state."""
    machine, kinds, done = LockMachine(), set[type](), set[type]()
    for number, step in enumerate(load_json(release, "history.json")):
        entry = codec.decode_entry(bytes.fromhex(step["entry"]), machine.rules)
        kinds |= {type(command) for batch in entry.batches for command in batch.commands}
        outcome = machine.apply(entry)
        assert plain(outcome) == step["outcome"], f"entry {number}"
        for batch, told in zip(entry.batches, outcome.batches, strict=True):
            commands = dict(zip(batch.seqs, batch.commands, strict=True))
            for seq, result in zip(told.seqs, told.results, strict=True):
                command = commands[seq]
                if isinstance(command, TransactCells) and isinstance(result, Transacted):
                    done |= {type(part) for part in (command.then if result.succeeded else command.otherwise)}
        assert snapshot.digest(machine.state) == step["digest"], f"entry {number}"
    assert kinds >= VOCABULARY.keys(), "every command is in it"
    assert done == set(get_args(Operation)), "transactions do all that one can do"


@RELEASES
def test_a_snapshot_is_what_it_was(release: str) -> None:
    """A stored state with rows in all tables is restored, sound, and encoded to the same bytes again."""
    data = (STORED / release / "snapshot").read_bytes()
    machine = LockMachine(snapshot.decode(data))
    invariants.check(machine.state)
    *_, fields, tables = msgspec.msgpack.decode(data)
    assert fields.keys() == FIELDS
    empty = [place for place, table in enumerate(tables) if not table]
    assert empty == [ACTS], "every other table has a row"
    assert snapshot.encode(machine.state) == data
    assert snapshot.digest(machine.state) in {step["digest"] for step in load_json(release, "history.json")}


@RELEASES
def test_a_fingerprint_means_the_same_in_every_release(release: str) -> None:
    """Nodes of different releases compare the fingerprints of version 1 of their states."""
    machine = LockMachine(snapshot.decode((STORED / release / "snapshot").read_bytes()))
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


@RELEASES
def test_journal_and_snapshot_are_read_back(release: str, tmp_path: Path) -> None:
    """What is on disk restores the very state that the release had when it stopped, before anything runs."""
    directory, facts = unpacked(release, tmp_path), load_json(release, "data_directory.json")
    datadir = DataDir.open(directory, "n1")
    assert (datadir.disk_id, datadir.identity.group) == (facts["disk_id"], 0)
    stored = SnapshotStore(directory, Files()).load()
    journal = Journal.open(directory, datadir.disk_id)
    assert stored is not None
    machine = LockMachine(snapshot.decode(stored.state))
    journal.begin_at(stored.previous, stored.last)
    for command, index, _ in journal[:]:
        if index > stored.last[1] and command[:1] == b"\0":
            machine.apply(codec.decode_entry(command[1:], machine.rules))
    assert snapshot.digest(machine.state) == facts["digest"]
    assert (machine.revision, machine.next_token) == (facts["revision"], facts["next_token"])
    journal.close()
    datadir.close()


@RELEASES
async def test_a_node_goes_on_with_a_stored_directory(release: str, tmp_path: Path) -> None:
    """It holds what was held, with the same tokens, and the next token is larger: nobody begins again."""
    directory, facts = unpacked(release, tmp_path), load_json(release, "data_directory.json")
    async with running(directory) as node:
        held = sorted([hold.name, hold.token] for hold in node.machine.state.holds.values())
        assert held == facts["holds"]
        assert node.machine.next_token == facts["next_token"]
        assert node.machine.revision >= facts["revision"]
