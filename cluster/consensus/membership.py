"""Which member list counts on one node: that of its snapshot, or a newer one in its log.

Keeps the lists in step with the log as it grows, is cut and is compacted, and turns them into the bytes of
entries and snapshots.
"""

from collections.abc import Callable, Iterable

from cluster.consensus import member_list
from cluster.consensus.member_list import Members, MembersLog, MembersUnreadable
from cluster.errors import NodeFailed
from cluster.storage.journal_format import LogEntry

FIRST: bytes = b""
"""Stands in a snapshot for the list that counts while neither the log nor a snapshot has one."""


class Membership:
    """The lists of one node. `first` counts while neither its log nor its snapshot has one.

    `members_in` returns the encoded list in an entry of the log, None if it is another entry.
    """

    def __init__(self, node_id: str, first: Members, members_in: Callable[[bytes], bytes | None]) -> None:
        self._node_id = node_id
        self._first = first
        self._members_in = members_in
        self._lists = MembersLog(first)
        self.committed = first
        """The newest list that is known to be committed."""
        self._committed_index = 0
        self._count(first)

    def _count(self, latest: Members) -> None:
        """Make `latest` the list that counts: the newest one in the log, committed or not."""
        self.latest = latest
        self.voters = latest.voters
        """The nodes that vote and count for a majority."""
        self.learners = latest.learners
        """The nodes that are only catching up."""
        self.is_alone = self.voters == {self._node_id}
        """Whether this node alone is the majority."""

    @property
    def latest_index(self) -> int:
        """Return where the newest list stands in the log; 0 if it came with the snapshot or is the first."""
        return self._lists.latest_index

    @property
    def is_first(self) -> bool:
        """Whether the list that counts is still the one that the cluster began with."""
        return self.latest is self._first

    @property
    def is_listed(self) -> bool:
        """Whether the log, or a snapshot, has a list: what the cluster began with need not be asked for."""
        return not self.is_first

    def restart(self, encoded: bytes) -> None:
        """Begin anew behind a snapshot with this list. Raises NodeFailed if it is a newer version's."""
        self._committed_index = 0
        self.committed = self._decode(encoded)
        self._lists.restart(self.committed)
        self._count(self._lists.latest)

    def follow(
        self, last_index: int, term_at: Callable[[int], int | None], entries: Iterable[LogEntry]
    ) -> bool:
        """Look at the log after it may have been cut and `entries` appended; tell whether the list changed.

        Raises NodeFailed if a list is a newer version's.
        """
        before = self.latest
        self._lists.follow(last_index, term_at, entries, self._parse)
        latest = self._lists.latest
        if latest is not before:
            self._count(latest)
        return latest is not before

    def append(self, index: int, term: int, new: Members) -> None:
        """Record a list that this leader appended. It counts from now on."""
        self._lists.append(index, term, new)
        self._count(new)

    def commit(self, index: int) -> None:
        """Record that everything up to `index` is committed."""
        self._committed_index = max(index, self._committed_index)
        self._lists.committed(self._committed_index)
        self.committed = self._lists.at(self._committed_index)

    def encoded_at(self, index: int) -> bytes:
        """Return the list that counts at `index`, for a snapshot up to there."""
        at = self._lists.at(index)
        return FIRST if at is self._first else member_list.encode(at)

    def _parse(self, command: bytes) -> Members | None:
        encoded = self._members_in(command)
        return None if encoded is None else self._decode(encoded)

    def _decode(self, encoded: bytes) -> Members:
        if encoded == FIRST:
            return self._first
        try:
            return member_list.decode(encoded)
        except MembersUnreadable as error:
            raise NodeFailed(f"{error}: upgrade this node") from error
