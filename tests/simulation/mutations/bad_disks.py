"""Defects that show on disks which do not give back what was written."""

import logging
from pathlib import Path
from typing import Any, Final

import msgspec

import cluster.storage.data_directory
import cluster.storage.recovery
import cluster.storage.snapshot_store
from cluster.errors import DataDirError
from cluster.storage.data_directory import _Checked
from cluster.storage.files import Files
from cluster.storage.journal_format import SEGMENT_HEADER_BYTES
from cluster.storage.replay import ReplayedLog, Segment
from cluster.storage.segment_writer import SegmentWriter, Sizes
from cluster.storage.snapshot_format import Snapshot, read_header, read_snapshot
from tests.simulation.mutations.mutation import Mutation, Surroundings, replaced

_WRONG: Final = Surroundings(
    rates={"wrong-read": 20.0},
    fault_s=(0.5, 2.0),
    settings={"compact_entries": 30, "segment_bytes": 4_096, "prepared_bytes": 0},
)
_ERRORS: Final = Surroundings(
    rates={"read-error": 20.0}, fault_s=(0.5, 2.0), settings={"compact_entries": 100, "segment_bytes": 4_096}
)
_IDS: Final = Surroundings(
    rates={"wrong-read": 16.0, "rot": 6.0}, fault_s=(0.5, 2.0), settings={"compact_entries": 100}
)

_read_segment = cluster.storage.recovery._read_segment


def _go_on_with_another_read(
    _cls: type[SegmentWriter], view: ReplayedLog, files: Files, sizes: Sizes
) -> SegmentWriter:
    """Read the header once more, and believe it."""
    fd = files.open(view.segments[-1].path)
    header = files.read_at(fd, SEGMENT_HEADER_BYTES, 0)
    return SegmentWriter(
        fd,
        header,
        end=view.end,
        sequence=view.sequence,
        file_bytes=view.file_bytes,
        files=files,
        sizes=sizes,
    )


def _check_nothing_again(*_: Any) -> None:
    """Believe at once what no checksum vouches for."""


def _read_snapshot_and_header(fd: int, files: Files) -> Snapshot:
    """Check one reading of the header, and use another."""
    header, _ = read_header(fd, files)
    snapshot = read_snapshot(fd, files)
    return msgspec.structs.replace(
        snapshot, previous=header.previous, last=header.last, members=header.members
    )


def _read_segment_or_not(
    view: ReplayedLog, segment: Segment, files: Files, on_cut: logging.Logger, *, is_last: bool
) -> None:
    """Leave out the last segment if it cannot be read."""
    try:
        _read_segment(view, segment, files, on_cut, is_last=is_last)
    except OSError:
        if not is_last:
            raise


def _decode_unchecked(file: Path, stored_type: Any, files: Files) -> Any:
    """Believe a file of the data directory that can be decoded."""
    try:
        checked = msgspec.json.decode(files.read(file), type=_Checked)
        return msgspec.json.decode(checked.content, type=stored_type)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise DataDirError(f"{file} is damaged") from error


BAD_DISKS: Final = (
    Mutation(
        name="header-read-twice",
        sentence="The head of a segment is checked in one read, and used from another.",
        found_by=("damage-unnoticed", "node-ends", "promise-kept"),
        apply=replaced(SegmentWriter, "go_on", classmethod(_go_on_with_another_read)),
        surroundings=_WRONG,
    ),
    Mutation(
        name="snapshot-read-twice",
        sentence="The head of a snapshot is checked in one read, and used from another.",
        found_by=("damage-unnoticed", "promise-kept", "node-ends"),
        apply=replaced(cluster.storage.snapshot_store, "read_snapshot", _read_snapshot_and_header),
        surroundings=_WRONG,
    ),
    Mutation(
        name="unwritten-not-read-again",
        sentence="What a start takes for unwritten or torn is overwritten after one look.",
        found_by=("promise-kept", "term-on-disk", "node-ends", "damage-unnoticed"),
        apply=replaced(cluster.storage.recovery, "_check_again", _check_nothing_again),
        surroundings=_WRONG,
    ),
    Mutation(
        name="read-error-taken-for-end",
        sentence="A last segment that cannot be read is taken for one that is not there.",
        found_by=("promise-kept", "term-on-disk", "node-ends"),
        apply=replaced(cluster.storage.recovery, "_read_segment", _read_segment_or_not),
        surroundings=_ERRORS,
    ),
    Mutation(
        name="file-checksum-ignored",
        sentence="The checksums of the files that hold ids are not looked at.",
        found_by=("damage-unnoticed", "node-ends"),
        apply=replaced(cluster.storage.data_directory, "_decode", _decode_unchecked),
        surroundings=_IDS,
    ),
)
