"""How much a data directory takes."""

import shutil
from pathlib import Path

from cluster.storage.disk_space import disk_space


def test_files_are_added_up_by_what_they_are(tmp_path: Path) -> None:
    """The snapshot, the segments, and everything together; and what the disk has."""
    sizes = {"snapshot": 7, "snapshot.old": 5, "journal-0000000000000001.log": 30}
    sizes |= {"journal-0000000000000002.log": 40, "journal-0000000000000003.log.tmp": 1, "peers.json": 2}
    for name, size in sizes.items():
        (tmp_path / name).write_bytes(b"x" * size)
    space = disk_space(tmp_path)
    assert (space.snapshot, space.journal, space.directory) == (7, 70, 85)
    assert space.disk == shutil.disk_usage(tmp_path).total
    assert 0 < space.free <= space.disk


def test_a_directory_that_is_yet_to_be_made_is_empty(tmp_path: Path) -> None:
    """The disk is that of the folder in which it will be."""
    space = disk_space(tmp_path / "a" / "b")
    assert (space.snapshot, space.journal, space.directory) == (0, 0, 0)
    assert space.disk == shutil.disk_usage(tmp_path).total
