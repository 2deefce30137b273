"""What the journal's records say, taken one block after the other. No file is touched here."""

from dataclasses import dataclass, field
from pathlib import Path

from cluster.storage.journal_format import (
    NO_DISK,
    NO_SALT,
    BlockHead,
    FormatError,
    LogEntry,
    RecordType,
    parse_begin,
    parse_hard_state,
    parse_heard,
    parse_index,
    read_entries,
    read_record,
)


@dataclass
class Segment:
    """One segment file; `last_index` is the highest entry in it that the log may still need."""

    number: int
    path: Path
    last_index: int = 0


@dataclass
class ReplayedLog:
    """What the records say so far. `first` and `following` bound the log even where it is not loaded."""

    disk_id: str = NO_DISK
    """The disk id of the directory that the journal is in."""
    first: int = 1
    following: int = 1
    entries: list[LogEntry] = field(default_factory=list)
    term: int = 0
    voted_for: str | None = None
    commit_index: int = 1
    heard: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Term and index that the directories of peers are known to have come to, by disk id."""
    sequence: int = 0
    segments: list[Segment] = field(default_factory=list)
    salt: bytes = NO_SALT
    """The salt of the last segment read."""
    header: bytes = b""
    """The header of the last segment read."""
    file_bytes: int = 0
    """The length of the last segment read."""
    end: int = 0
    """The offset in the last segment read behind its last good block."""

    @property
    def is_complete(self) -> bool:
        """Whether every entry between `first` and `following` is loaded."""
        return len(self.entries) == self.following - self.first

    def apply(self, data: bytes, block: BlockHead) -> None:
        """Take the records of one block into account. Raises FormatError when one contradicts the view."""
        offset = block.start
        while True:
            entries, offset = read_entries(data, offset, block.end)
            if entries:
                self._append(entries)
            if offset == block.end:
                break
            record_type, start, offset = read_record(data, offset, block.end)
            self._apply_change(record_type, data, start, offset)
        self.sequence = block.sequence

    def _apply_change(self, record_type: RecordType, data: bytes, start: int, end: int) -> None:
        match record_type:
            case RecordType.TRUNCATE_FROM:
                self._truncate_from(parse_index(data, start, end))
            case RecordType.KEEP_FROM:
                self._keep_from(parse_index(data, start, end))
            case RecordType.RESTART_AT:
                self.first = self.following = parse_index(data, start, end)
                self.entries.clear()
                for segment in self.segments:
                    segment.last_index = 0
            case RecordType.HARD_STATE:
                self.term, self.voted_for = parse_hard_state(data, start, end)
            case RecordType.COMMIT:
                self.commit_index = parse_index(data, start, end)
            case RecordType.HEARD:
                disk_id, term, index = parse_heard(data, start)
                self.heard[disk_id] = (term, index)
            case RecordType.BEGIN:
                self._begin(*parse_begin(data, start))
            case RecordType.ENTRY | RecordType.END:
                message = f"a record of type {record_type.name} is cut or stands in a wrong place"
                raise FormatError(message)

    def _append(self, entries: list[LogEntry]) -> None:
        following = self.following
        for entry in entries:
            if entry[1] != following:
                message = f"entry {entry[1]} follows where {following} is due"
                raise FormatError(message)
            following += 1
        self.entries += entries
        self.following = following
        segment = self.segments[-1]
        if segment.last_index < following:
            segment.last_index = following - 1

    def _truncate_from(self, index: int) -> None:
        self._check_within(index)
        if self.entries:
            del self.entries[max(0, index - self.entries[0][1]) :]
        self.following = index

    def _keep_from(self, index: int) -> None:
        self._check_within(index)
        self.first = index
        if self.entries:
            del self.entries[: max(0, index - self.entries[0][1])]

    def _check_within(self, index: int) -> None:
        if not self.first <= index < self.following:
            message = f"entry {index} is named, but the log is {self.first} to before {self.following}"
            raise FormatError(message)

    def _begin(self, first: int, following: int) -> None:
        if len(self.segments) == 1:
            self.first, self.following = first, following
        elif (first, following) != (self.first, self.following):
            message = (
                f"the segment continues a log from {first} to before {following}, but the segments before it"
                f" hold one from {self.first} to before {self.following}"
            )
            raise FormatError(message)
