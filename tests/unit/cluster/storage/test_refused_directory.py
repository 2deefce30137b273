"""A directory that its cluster has refused for good remembers it, and nobody starts on it any more."""

from pathlib import Path

import pytest

from cluster.errors import DataDirError, IdentityRefused, NodeFailed
from cluster.storage.data_directory import REFUSAL_NAME, DataDir
from tests.support.replica_parts import FullDisk

REASON = "refused by n1: node n3 was removed from this cluster"


def refuse(path: Path) -> None:
    """Let the directory be refused."""
    datadir = DataDir.open(path, "n3")
    datadir.remember_refusal(REASON)
    datadir.close()


def test_a_refused_directory_is_not_opened_again(tmp_path: Path) -> None:
    """Whoever tries hears the same reason each time, with exit code 4, and the lock is free."""
    refuse(tmp_path / "d")
    for _ in range(2):
        with pytest.raises(IdentityRefused, match=f"does not take part again: {REASON}") as caught:
            DataDir.open(tmp_path / "d", "n3")
        assert caught.value.exit_code == 4


def test_a_refusal_counts_for_the_disk_that_was_refused(tmp_path: Path) -> None:
    """A file that somebody copied into another directory refuses nobody."""
    refuse(tmp_path / "d")
    DataDir.open(tmp_path / "other", "n3").close()
    (tmp_path / "other" / REFUSAL_NAME).write_bytes((tmp_path / "d" / REFUSAL_NAME).read_bytes())
    DataDir.open(tmp_path / "other", "n3").close()


@pytest.mark.parametrize("place", range(0, 120, 7))
def test_a_damaged_refusal_is_damage(tmp_path: Path, place: int) -> None:
    """It opens nothing: either the reason is told, or that the file is damaged."""
    refuse(tmp_path / "d")
    file = tmp_path / "d" / REFUSAL_NAME
    damaged = bytearray(file.read_bytes())
    damaged[place] ^= 4
    file.write_bytes(damaged)
    with pytest.raises(DataDirError, match=REFUSAL_NAME):
        DataDir.open(tmp_path / "d", "n3")


def test_a_disk_that_is_full_remembers_nothing(tmp_path: Path) -> None:
    """The directory is as before, and its node, refused again, tries again."""
    disk = FullDisk()
    datadir = DataDir.open(tmp_path / "d", "n3", files=disk)
    disk.is_full = True
    with pytest.raises(OSError, match="No space left"):
        datadir.remember_refusal(REASON)
    with pytest.raises(NodeFailed):
        datadir.remember_refusal(REASON)
    datadir.close()
    DataDir.open(tmp_path / "d", "n3").close()
