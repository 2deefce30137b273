"""Directories that a node has used, and that do not say which cluster it was founded with."""

from collections.abc import Callable
from pathlib import Path

import pytest

from cluster.config import NodeConfig, load
from cluster.errors import DataDirError
from cluster.node import Node
from cluster.storage.data_directory import DataDir
from cluster.storage.journal import Journal
from cluster.storage.snapshot_store import SNAPSHOT_NAME


def alone(directory: Path) -> NodeConfig:
    """Return the configuration of a node that is to be a cluster of its own."""
    return load(["--node-id", "n1", "--data-dir", str(directory), "--http", "127.0.0.1:0"], {})


def vote(journal: Journal) -> None:
    """Leave a vote on the disk."""
    journal.set_vote(1, "n2")


def append(journal: Journal) -> None:
    """Leave an entry on the disk."""
    journal.add(b"entry", 2, 1)


@pytest.mark.parametrize("did", [vote, append])
async def test_who_has_used_its_journal_founds_no_cluster(
    did: Callable[[Journal], None], tmp_path: Path
) -> None:
    """What it has voted or acknowledged was said in a cluster that it does not know any more."""
    datadir = DataDir.open(tmp_path, "n1")
    datadir.close()
    journal = Journal.open(tmp_path, datadir.disk_id)
    did(journal)
    journal.close()
    with pytest.raises(DataDirError, match=r"in use before .* or cluster.json is missing"):
        await Node(alone(tmp_path)).start()


async def test_who_has_a_snapshot_founds_no_cluster(tmp_path: Path) -> None:
    """It stands for a log."""
    datadir = DataDir.open(tmp_path, "n1")
    datadir.close()
    Journal.open(tmp_path, datadir.disk_id).close()
    (tmp_path / SNAPSHOT_NAME).write_bytes(b"whatever it is")
    with pytest.raises(DataDirError, match=r"in use before .* or cluster.json is missing"):
        await Node(alone(tmp_path)).start()


async def test_who_has_met_others_founds_no_cluster_without_them(tmp_path: Path) -> None:
    """It would lead alone, beside its cluster: peers are remembered once that is founded, and not before."""
    datadir = DataDir.open(tmp_path, "n1")
    datadir.remember("n2", "disk of n2")
    datadir.close()
    Journal.open(tmp_path, datadir.disk_id).close()
    with pytest.raises(DataDirError, match=r"in use before .* or cluster.json is missing"):
        await Node(alone(tmp_path)).start()
    DataDir.open(tmp_path, "n1").close()
