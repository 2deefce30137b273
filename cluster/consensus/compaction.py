"""When the log is written into a snapshot, what follows from a failure, and how much room the log has left.

The nodes of a cluster have nearly the same log, and would all write at the same moment. A large state takes
each of them seconds of a processor and hundreds of megabytes of a disk, and what a majority has to do waits
for that. So the first of them writes a little sooner and the last one a little later than the others, and who
is told that another one writes waits for it, but not for long.

Pure: time and sizes come from outside, and nothing is done here. The library would try again in the next tick
after a failure, 500 forks a minute on a disk that has no room for a snapshot; here it waits, from 1 s up to a
minute. Meanwhile nothing of the log goes. So that it fills neither memory nor disk, a leader takes less and
less: first nothing that needs room any more, and at the end nothing at all.
"""

import enum
import logging
from collections.abc import Callable
from typing import Final

LOG_BYTES_MAX: Final = 128 << 20
"""The memory, in bytes, that the log may take before it is compacted whatever its count."""
REPLAYED_BYTES: Final = 8 << 20
"""The bytes of entries that a start may have to apply before it serves, if the snapshot is not larger.

That is 50,000 to 80,000 commands in large batches, under a second of work. What takes longer to load than to
bring up to date is not written more often than its own size of log comes in."""
ENTRY_BYTES: Final = 1 << 10
"""What an entry counts beside its content, so that small ones come to a snapshot sooner: after 6,000 to 8,000
with a few commands each. That is more than their share of the work, on purpose. Whoever sends few commands at
a time loads no node, which can well afford the snapshot; and the longest starts are those of all nodes at
once, on processors that their clients keep busy."""
COMPACT_SECONDS: Final = 600
"""The time, in seconds, after which a log that changed is compacted: a quiet node restarts quickly, too."""
SPREAD: Final = 1 / 4
"""The part of a log's length, in entries, bytes and seconds, by which the last node writes after the first.

The length is what is said of it elsewhere in the middle of them, and for who is alone. Who waits for others
that write does so until its log is longer by this part once more."""
RETRY_SECONDS_MIN: Final = 1.0
RETRY_SECONDS_MAX: Final = 60.0
"""The pause, in seconds, behind a failed snapshot: the shortest, which doubles with each failure, and the
longest."""
UNCOMPACTED_ENTRIES: Final = 1_000_000
"""The entries, beside those of two snapshots, with which a log that is not compacted has room for releases
only. Each takes 200 bytes of memory besides its content."""

logger = logging.getLogger(__name__)


class LogSpace(enum.IntEnum):
    """What a leader may still put into its log. The numbers travel between nodes (peering.Ping)."""

    ANYTHING = 0
    """All is well."""
    WHAT_FREES = 1
    """The log is far longer than a snapshot would leave it: only what ends or keeps something, and reads."""
    NOTHING = 2
    """The log is as long as it may get."""


class Compaction:
    """The snapshots of one node, as far as its log is concerned. Times are seconds of one monotonic clock."""

    def __init__(
        self,
        entries_max: int,
        snapshot_index: int,
        now_s: float,
        do_others_write: Callable[[], bool] = lambda: False,
    ) -> None:
        """`entries_max` come between two snapshots; the newest one contains all up to `snapshot_index`.

        `do_others_write` tells whether any other node of the cluster is known to write one.
        """
        self._entries_max = entries_max
        self._do_others_write = do_others_write
        self._snapshot_index = snapshot_index
        self._snapshot_s = now_s
        self._is_forced = False
        self._share = 1.0
        self._replayed_bytes = self._bytes_at_begin = self._snapshot_bytes = 0
        self._retry_s = now_s
        self._failures = 0
        self.failures_count = 0
        """How many snapshots could not be written since this node started."""
        self.took_s = 0.0
        """How long, in seconds, writing the last one took; 0 if there was none."""
        self._begun_s = now_s
        self._failing_since_s: float | None = None

    def take_turn(self, place: int, count: int) -> None:
        """Record that this node has a place, from 0 on, among the `count` nodes that have this log."""
        self._share = 1 + SPREAD * (place / (count - 1) - 0.5) if count > 1 else 1.0

    def force(self) -> None:
        """Let a snapshot be due whatever the length of the log, if anything has changed."""
        self._is_forced = True

    def applied(self, count: int, size_bytes: int) -> None:
        """Record that `count` entries of so many bytes were applied: a start does it again."""
        self._replayed_bytes += size_bytes + count * ENTRY_BYTES

    def begun(self, now_s: float = 0.0) -> None:
        """Record that a snapshot of all that was applied so far is begun."""
        self._begun_s = now_s
        self._bytes_at_begin = self._replayed_bytes

    def is_due(self, applied_index: int, log_bytes: int, now_s: float) -> bool:
        """Whether a snapshot is to be begun now. There is none under way here."""
        if now_s < self._retry_s:
            return False
        # By its entries, bytes or age.
        length = max(
            (applied_index - self._snapshot_index + 1) / self._entries_max,
            self._replayed_bytes / max(REPLAYED_BYTES, self._snapshot_bytes),
            log_bytes / LOG_BYTES_MAX,
            (now_s - self._snapshot_s) / COMPACT_SECONDS,
        )
        is_long = length > self._share and (length > self._share + SPREAD or not self._do_others_write())
        if not self._is_forced and not is_long:
            return False
        if applied_index <= self._snapshot_index:
            self._snapshot_s, self._is_forced = now_s, False
            return False
        return True

    def written(self, index: int, size_bytes: int, now_s: float) -> None:
        """Record that the snapshot that was begun is in place: it has all up to `index`."""
        self._replayed_bytes -= self._bytes_at_begin
        self._snapshot_bytes = size_bytes
        self.took_s = now_s - self._begun_s
        self._has_snapshot(index, now_s)

    def received(self, index: int, now_s: float) -> None:
        """Record that a snapshot of everything up to `index` came from the leader."""
        self._replayed_bytes = self._bytes_at_begin = 0
        self._has_snapshot(index, now_s)

    def _has_snapshot(self, index: int, now_s: float) -> None:
        self._snapshot_index, self._snapshot_s, self._retry_s = index, now_s, now_s
        self._is_forced = False
        if self._failures:
            logger.info("event=snapshot-well-again failures=%d", self._failures)
        self._failures, self._failing_since_s = 0, None

    def failed(self, now_s: float) -> None:
        """Record that a snapshot could not be written: try again, but not at once."""
        pause_s = min(RETRY_SECONDS_MIN * 2**self._failures, RETRY_SECONDS_MAX)
        self._failures = min(self._failures + 1, 1000)
        self._retry_s = now_s + pause_s
        self.failures_count += 1
        if self._failing_since_s is None:
            self._failing_since_s = now_s
        logger.error(
            "event=snapshot-failing failures=%d failing_s=%.0f next_try_s=%.0f",
            self._failures,
            self.failing_s(now_s),
            pause_s,
        )

    def failing_s(self, now_s: float) -> float:
        """Return for how long snapshots have been failing; 0 if the last one did not."""
        return 0.0 if self._failing_since_s is None else now_s - self._failing_since_s

    def room(self, entries_count: int, log_bytes: int) -> LogSpace:
        """Return what may still be put into a log of so many entries and bytes."""
        bytes_unit, entries_unit = LOG_BYTES_MAX, self._entries_max + UNCOMPACTED_ENTRIES // 2
        if log_bytes > 3 * bytes_unit or entries_count > 3 * entries_unit:
            return LogSpace.NOTHING
        if log_bytes > 2 * bytes_unit or entries_count > 2 * entries_unit:
            return LogSpace.WHAT_FREES
        return LogSpace.ANYTHING
