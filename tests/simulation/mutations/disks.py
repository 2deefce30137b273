"""Defects of what is on disk: promises before the sync, damage that passes, logs that are thrown away."""

from typing import Any, Final

import cluster.storage.recovery
from cluster.consensus import commit_rule, guards, library
from cluster.loop import Loop
from cluster.peers import entry_check
from cluster.peers.handshake import Particulars
from cluster.peers.peer_table import View
from cluster.storage.journal import Journal
from cluster.storage.journal_format import BlockHead, LogEntry, decode_head
from cluster.storage.log_on_disk import LogOnDisk
from cluster.storage.recovery import segment_path
from cluster.storage.replay import ReplayedLog
from tests.simulation.mutations.belonging import FOUND_WITH_ANY_DISK
from tests.simulation.mutations.mutation import Mutation, Surroundings, many_snapshots, replaced, together
from tests.simulation.world.files import SimFiles

_POWER: Final = Surroundings(
    rates={"power-at-write": 8.0, "power": 2.0, "power-all": 2.0},
    fault_s=(0.5, 4.0),
    settings={"compact_entries": 100},
)
_KILLS: Final = Surroundings(
    rates={"kill": 6.0, "kill-all": 1.0}, fault_s=(0.5, 4.0), settings={"compact_entries": 20}
)
_DAMAGE: Final = Surroundings(
    rates={"bit-flip": 6.0, "kill": 1.0},
    fault_s=(0.5, 4.0),
    settings={"segment_bytes": 32_768, "compact_entries": 200},
)
LATE_SYNC_S: Final = 0.004
"""Longer than a follower takes to answer in these worlds."""


def _request_sync_late(loop: Loop) -> None:
    """Sync a little later, as if this node's loop had more to do. No defect: promises wait for it."""
    if not loop._sync_is_due and loop._present_sync is None:
        loop._sync_is_due = True
        loop._loop.call_later(LATE_SYNC_S, loop.run, loop._sync)


def _majority_with_unsynced(_synced_index: int, match_indexes: list[int]) -> int:
    """Count the own copy of an entry although it is not on disk yet."""
    return commit_rule.majority_index(2**60, match_indexes)


def _set_term_in_memory(journal: Journal, term: int, voted_for: str | None) -> None:
    """Forget term and vote with the process."""
    journal._term, journal._voted_for = term, voted_for


def _sync_in_words_only(files: SimFiles, fd: int) -> None:
    """Take the time of a sync, and leave everything in memory."""
    del fd
    if files.recording is None:
        files._sync_cost()


def _begin_at_always_anew(journal: Journal, previous: LogEntry, last: LogEntry) -> None:
    """Throw away what the log holds behind the snapshot."""
    journal.clear()
    journal.add(*previous)
    journal.add(*last)


def _decode_block_unchecked(data: bytes, offset: int, seed: int) -> BlockHead | None:
    """Believe a block whose head is right, whatever its payload."""
    head = decode_head(data, offset, seed)
    return None if head is None or head.end > len(data) else head


def _cut_any_tail(_view: ReplayedLog, _data: bytes, _offset: int, _seed: int) -> None:
    """Take everything that does not verify for a torn last write."""


def _unlink_too_much(disk: LogOnDisk) -> None:
    """Remove all segments but the last one."""
    for segment in disk.segments[:-1]:
        disk._files.unlink(segment_path(disk._directory, segment.number))
    del disk.segments[:-1]


def _delete_nothing(journal: Journal, position: int) -> None:
    """Cut the log in memory, and not on disk."""
    if 0 < position < len(journal.entries):
        del journal.entries[position:]
        journal.synced_index = min(journal.synced_index, journal.last_index)


def _no_disk_is_known(view: View, peer_id: str) -> frozenset[str]:
    """Let every disk in."""
    del view, peer_id
    return frozenset()


def _nothing_is_forgotten(_view: View, _theirs: Particulars) -> None:
    """Let in whoever knows less than it did."""


def _fsync_no_names(files: SimFiles, _directory: Any) -> None:
    """Leave changes of names to chance."""
    files._sync_cost()


DISKS: Final = (
    Mutation(
        name="ack-before-sync",
        sentence="Acknowledgements and votes leave before the sync (H4).",
        found_by=("promise-on-disk", "vote-on-disk"),
        apply=replaced(guards, "PROMISES", frozenset()),
        surroundings=_POWER,
    ),
    Mutation(
        name="leader-counts-unsynced-copy",
        sentence="A leader commits on the strength of its own copy before that is on disk.",
        found_by=("committed-by-majority",),
        apply=replaced(library, "majority_index", _majority_with_unsynced),
        surroundings=Surroundings(
            rates={"power": 2.0, "slow-link": 4.0},
            settings={"latency_us": 100, "jitter_us": 50, "sync_us": 100},
            around=together(many_snapshots, replaced(Loop, "request_sync", _request_sync_late)),
        ),
    ),
    Mutation(
        name="vote-not-stored",
        sentence="Term and vote are not written to the journal (H4).",
        found_by=("vote-on-disk", "term-on-disk"),
        apply=replaced(Journal, "set_vote", _set_term_in_memory),
        surroundings=_KILLS,
    ),
    Mutation(
        name="sync-lies",
        sentence="Files are not synced at all (H4).",
        found_by=("promise-kept", "term-on-disk", "node-ends"),
        apply=replaced(SimFiles, "fdatasync", _sync_in_words_only),
        surroundings=_POWER,
    ),
    Mutation(
        name="names-not-synced",
        sentence="Directories are not synced: new segments and snapshots may lose their names.",
        found_by=("promise-kept", "term-on-disk", "node-ends"),
        apply=replaced(SimFiles, "fsync_dir", _fsync_no_names),
        surroundings=_POWER,
    ),
    Mutation(
        name="log-dropped-behind-snapshot",
        sentence="A restart drops the log behind the snapshot (H16).",
        found_by=("promise-kept",),
        apply=replaced(Journal, "begin_at", _begin_at_always_anew),
        surroundings=_KILLS,
    ),
    Mutation(
        name="torn-block-accepted",
        sentence="The checksum of a block is not looked at.",
        found_by=("node-ends", "damage-unnoticed", "promise-kept"),
        apply=replaced(cluster.storage.recovery, "decode_block", _decode_block_unchecked),
        surroundings=_POWER,
        seeds_max=40,
    ),
    Mutation(
        name="lost-disk-let-in",
        sentence="A node that lost its disk is let in again under its name (H18).",
        found_by=(
            "founding-true",
            "promise-kept",
            "leader-completeness",
            "committed-by-majority",
            "liveness",
        ),
        # All that keeps it out: with one of these left, it waits to be let in, and nothing comes of it.
        apply=together(
            replaced(View, "disks", _no_disk_is_known),
            replaced(entry_check, "_forgotten", _nothing_is_forgotten),
            FOUND_WITH_ANY_DISK,
        ),
        surroundings=Surroundings(
            rates={"lost-disk": 8.0, "isolate": 8.0, "transfer": 4.0, "kill": 3.0}, fault_s=(1.0, 8.0)
        ),
    ),
    Mutation(
        name="damage-cut-silently",
        sentence="A damaged block that was synced is cut as if it were a torn write.",
        found_by=("damage-unnoticed", "promise-kept"),
        apply=replaced(cluster.storage.recovery, "_check_tail", _cut_any_tail),
        surroundings=_DAMAGE,
    ),
    Mutation(
        name="segments-removed-early",
        sentence="Compaction removes segments whose entries are still needed (H5).",
        found_by=("node-ends", "promise-kept"),
        apply=replaced(LogOnDisk, "unlink_obsolete", _unlink_too_much),
        surroundings=Surroundings(
            rates={"kill": 6.0}, settings={"segment_bytes": 4_096, "compact_entries": 100}
        ),
    ),
    Mutation(
        name="cut-not-stored",
        sentence="A cut of the log at a conflict is not written to the journal.",
        found_by=("node-ends", "log-matching", "leader-completeness"),
        apply=replaced(Journal, "remove_from", _delete_nothing),
        surroundings=Surroundings(
            rates={"kill": 3.0, "isolate": 6.0, "split": 4.0, "transfer": 2.0},
            fault_s=(1.0, 6.0),
            settings={"compact_entries": 1_000},
        ),
    ),
)
