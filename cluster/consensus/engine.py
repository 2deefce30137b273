"""One node's Raft, behind typed words: the library is driven by hand in here, and speaks to nobody else.

The library's object, with our methods at its seams, is in `library`; its words end there and in
`library_words`. What we add to its safety is in `replica` and `guards`. Here is what the replica asks of
Raft: who leads, what is committed, what is to be sent, and when the log is to be compacted.

Nothing is acted on in here. What the library says during one call is collected in `sent`, `committed` and
`snapshot_due`, for the replica to take.
"""

from collections.abc import Callable, Collection
from typing import Final, Protocol

from cluster.consensus import compaction, library, pinned_log
from cluster.consensus.compaction import Compaction, LogSpace
from cluster.consensus.library import Library, RaftConfig
from cluster.consensus.library_words import EngineJournal
from cluster.consensus.log_digest import MEMBERS_MARK
from cluster.consensus.messages import Message
from cluster.storage.journal_format import LogEntry
from cluster.storage.snapshot_format import Snapshot

IN_FLIGHT_MAX: Final = 1
"""Entries proposed and not yet committed. Few means large batches: what arrives meanwhile shares the next."""
RETAINED_DIVISOR: Final = 4
"""The part of `compact_entries` and of LOG_BYTES_MAX that stays behind a compaction: one in so many.

Who was away briefly needs no snapshot. More bytes than that would ask for the next compaction at once."""

FOUNDED_INDEX: Final = 2
"""Where the list of the founding stands in the log of a cluster: behind the library's first entry."""
FOUNDED_TERM: Final = 0
"""Its term: before the first election."""

_COMMAND: Final = b"\x00"
"""The library's mark of a command."""
_MEMBERS: Final = MEMBERS_MARK
"""Our mark of a member list. The library, which has lower marks for entries of its own, does not know it."""


class Snapshots(library.SnapshotChunks, Protocol):
    """What is asked of the snapshots of this node (snapshot_transfer)."""

    def poll(self) -> tuple[str, int]:
        """Return how the writing child is doing, and up to which index the state is written when "done"."""

    def size_bytes(self) -> int:
        """Return the size of this node's snapshot, 0 if there is none."""

    def first_needed(self, goal: int) -> int | None:
        """Return from which entry on followers need the log that have not all up to `goal` yet."""

    def take_received(self) -> Snapshot:
        """Return the snapshot that `take_chunk` has just put in place."""


class Engine:
    """One node's Raft, driven by `receive` and `tick`. One thread.

    `journal` already begins where the newest snapshot ends; `applied_index` is that snapshot's last entry,
    or 1. `set_members` tells who counts, before anything else happens.

    What it knows is in plain attributes, as of the end of the last call: `term`, `is_leader`, `is_candidate`,
    `leader_id`, `commit_index` (the highest index known to be committed by messages), `applied_index` (the
    last entry handed out in `committed`, or contained in a snapshot) and `is_takeover_asked` (by the leader).
    """

    def __init__(
        self,
        config: RaftConfig,
        journal: EngineJournal,
        room_bytes: Callable[[str], int],
        *,
        applied_index: int,
    ) -> None:
        """`room_bytes` tells how much bulk data may be added to the connection with a peer."""
        self.journal = journal
        self._node_id = config.node_id
        self._room_bytes = room_bytes
        self._retained = config.compact_entries // RETAINED_DIVISOR
        self.sent: list[tuple[str, Message]] = []
        self._sent_bytes: dict[str, int] = {}
        self.committed: list[LogEntry] = []
        self.snapshot_due: tuple[LogEntry, LogEntry] | None = None
        self.installed: Snapshot | None = None
        # What the library asks for in the middle of a tick, told before it.
        self.may_stand = False
        self.has_proposal = False
        self.in_flight_max = IN_FLIGHT_MAX
        self.may_wait: Callable[[], bool] = lambda: False
        self.do_others_write: Callable[[], bool] = lambda: False
        # What the library knows: told by it at the end of each call.
        self.term = 0
        self.is_leader = self.is_candidate = self.is_takeover_asked = False
        self.leader_id: str | None = None
        self.commit_index = self.applied_index = 0
        self.library = Library(self, config)
        self.now_s: Final = self.library.now_s
        """The clock by which everything here goes: monotonic, in seconds."""
        self.tick: Final = self.library.tick
        self.receive: Final = self.library.take
        self.adopt_term: Final = self.library.adopt_term
        self.connected: Final = self.library.connect
        self.disconnected: Final = self.library.disconnect
        self.send_entries: Final = self.library.send_entries
        self.send_due: Final = self.library.send_due
        self.match_index: Final = self.library.match_index
        self.news_due_in_s: Final = self.library.news_due_in_s
        self.forget_takeover: Final = self.library.forget_takeover
        self._compaction = Compaction(
            config.compact_entries,
            applied_index,
            self.now_s(),
            lambda: self.do_others_write(),  # noqa: PLW0108 - it is set later
        )
        self._begin_behind(applied_index)

    def use_snapshots(self, snapshots: Snapshots) -> None:
        """Ask `snapshots` for what is sent and for what is due. Called once, before anything else."""
        self._snapshots = snapshots
        self.library.use_snapshots(snapshots)

    def collect_bulk(self, peer_id: str, message: Message, size_bytes: int) -> None:
        """Collect a message with entries or a part of a snapshot: it takes room on the connection."""
        self._sent_bytes[peer_id] = self._sent_bytes.get(peer_id, 0) + size_bytes
        self.sent.append((peer_id, message))

    def has_room(self, peer_id: str) -> bool:
        """Whether bulk data may be sent to the peer, besides what was collected for it."""
        return self._room_bytes(peer_id) > self._sent_bytes.get(peer_id, 0)

    def hand_out(self, entries: list[LogEntry]) -> bool:
        """Collect what is committed, to be applied; tell whether all of it are commands."""
        self.committed += entries
        size_bytes, are_commands = 0, True
        for content, _, _ in entries:
            size_bytes += len(content)
            are_commands = are_commands and content[:1] == _COMMAND
        self._compaction.applied(len(entries), size_bytes)
        return are_commands

    def take_sent(self) -> list[tuple[str, Message]]:
        """Return what is to be sent, and begin anew."""
        sent, self.sent = self.sent, []
        self._sent_bytes.clear()
        return sent

    # -- members --------------------------------------------------------------------------------------------

    def set_members(self, voters: Collection[str], learners: Collection[str]) -> None:
        """Count `voters` (this node's id left out) for majorities; send the log to `learners` besides."""
        self.library.set_members(voters, learners, self.now_s())
        others = {*voters, *learners}
        self._compaction.take_turn(sum(other < self._node_id for other in others), len(others) + 1)

    @staticmethod
    def members_in(command: bytes) -> bytes | None:
        """Return the encoded member list in an entry of the log, None if it is another entry."""
        return command[1:] if command[:1] == _MEMBERS else None

    @staticmethod
    def command_in(command: bytes) -> bytes | None:
        """Return the state machine's part of an entry of the log, None if it is another entry."""
        return command[1:] if command[:1] == _COMMAND else None

    # -- what it knows --------------------------------------------------------------------------------------

    @staticmethod
    def random() -> float:
        """Return the library's kind of random number, 0 to 1."""
        return library.random()

    @property
    def has_work(self) -> bool:
        """Whether a tick would find something to commit, to apply, to tell, or to take over."""
        return (
            self.commit_index > self.applied_index
            or self.is_takeover_asked
            or (self.is_leader and self.library.committable_index() > self.commit_index)
            or (self.is_leader and self.library.is_news_urgent)
        )

    @property
    def election_deadline_s(self) -> float:
        """Return when this node stands for election if it hears of no leader; on the clock of `now_s`."""
        return self.library.election_deadline_s

    @election_deadline_s.setter
    def election_deadline_s(self, deadline_s: float) -> None:
        self.library.election_deadline_s = deadline_s

    def silence_s(self, peer_id: str) -> float:
        """Return how long this leader has heard no answer from a peer; infinite if it is not a member."""
        return self.now_s() - self.library.answered_s(peer_id)

    def entries(self, first: int, last: int) -> list[LogEntry]:
        """Return the entries from `first` to `last`, both included, as far as the log holds them."""
        position = first - self.journal.first_index
        return self.journal.entries[position : position + last - first + 1] if position >= 0 else []

    def newest_command(self) -> bytes | None:
        """Return the newest command in the log, committed or not; None if there is none."""
        for content, _, _ in reversed(self.journal.entries):
            command = self.command_in(content)
            if command is not None:
                return command
        return None

    # -- what drives it -------------------------------------------------------------------------------------

    def append(self, entry: bytes) -> None:
        """Put a command at the end of the leader's log and send it."""
        self.journal.add(_COMMAND + entry, self.journal.last_index + 1, self.term)
        self.send_entries()

    def append_members(self, members: bytes) -> int:
        """Put a member list at the end of the leader's log, return its index. Send it by `send_entries`.

        It counts at once: `set_members` must come before anything is sent.
        """
        index = self.journal.last_index + 1
        self.journal.add(_MEMBERS + members, index, self.term)
        return index

    def begin_founded(self, members: bytes) -> None:
        """Put the list of the founding behind the first entry of an empty log.

        Every founder does that before it takes part: so the list is committed.
        """
        assert self.journal.last_index == FOUNDED_INDEX - 1, "a log that has begun already"
        self.journal.add(_MEMBERS + members, FOUNDED_INDEX, FOUNDED_TERM)
        self._begin_behind(self.applied_index)

    def _founded_index(self) -> int:
        """Return where the list of the founding stands if the log holds it, else 0.

        No leader appends anything in the term that it has.
        """
        founded = self.entries(FOUNDED_INDEX, FOUNDED_INDEX)
        is_founding = bool(founded) and founded[0][2] == FOUNDED_TERM
        return FOUNDED_INDEX if is_founding else 0

    def pause_sending(self, peer_id: str) -> None:
        """Treat a peer as caught up for now: the next heartbeat makes it ask for what it lacks."""
        self.library.send_from(peer_id, self.journal.last_index + 1)

    def resume_sending(self, peer_id: str) -> None:
        """Send a peer what it lacks, with the next `send_entries`, although it has not asked for it."""
        self.library.send_from(peer_id, self.match_index(peer_id) + 1)

    def force_compaction(self) -> None:
        """Write a snapshot in the next tick whatever the length of the log."""
        self._compaction.force()

    def compact(self, applied_index: int, now_s: float) -> None:
        """Collect that a snapshot is due; when one is written, drop the log before it, but for a tail.

        Called at the end of a tick, when everything committed is collected.
        """
        outcome, index = self._snapshots.poll()
        if outcome == "done":
            self._compaction.written(index, self._snapshots.size_bytes(), now_s)
            self.journal.remove_before(self.retained_from(index - 1) - self.journal.first_index)
        elif outcome == "failed":
            self._compaction.failed(now_s)
        elif outcome == "idle" and self._compaction.is_due(applied_index, self.journal.bytes_count, now_s):
            previous, last = self.entries(applied_index - 1, applied_index)
            self.snapshot_due = (last, previous)
            self._compaction.begun(now_s)

    @property
    def snapshots_failing_s(self) -> float:
        """Return for how long snapshots have been failing; 0 if the last one did not."""
        return self._compaction.failing_s(self.now_s())

    @property
    def snapshots_failed(self) -> int:
        """Return how many snapshots could not be written since this node started."""
        return self._compaction.failures_count

    @property
    def snapshot_took_s(self) -> float:
        """Return how long writing the last snapshot took, in seconds; 0 if none was written."""
        return self._compaction.took_s

    @property
    def log_room(self) -> LogSpace:
        """Return what may still be put into the log."""
        return self._compaction.room(len(self.journal.entries), self.journal.bytes_count)

    def retained_from(self, index: int) -> int:
        """Return the first entry that stays when everything up to behind `index` is in a snapshot.

        Who was away briefly needs no snapshot then, and who is getting an older one no second one.
        """
        journal = self.journal
        start = journal.tail_start(index, self._retained, compaction.LOG_BYTES_MAX // RETAINED_DIVISOR)
        needed = self._snapshots.first_needed(index + 1)
        if needed is None or needed >= start:
            return start
        return max(needed, journal.tail_start(index, pinned_log.ENTRIES_MAX, pinned_log.BYTES_MAX))

    def transfer(self, peer_id: str) -> None:
        """Ask a peer that has the whole log to stand for election at once."""
        self.library.transfer(peer_id)

    def install_received(self) -> None:
        """Make the log begin behind the snapshot that has just been received, verified and put in place."""
        snapshot = self.installed = self._snapshots.take_received()
        self.journal.clear()
        self.journal.add(*snapshot.previous)
        self.journal.add(*snapshot.last)
        if snapshot.log_digest is not None:
            self.journal.continue_digests(snapshot.last, snapshot.log_digest)
        self._compaction.received(snapshot.last[1], self.now_s())
        self._begin_behind(snapshot.last[1])

    def _begin_behind(self, index: int) -> None:
        """Record that state and log begin at a snapshot up to `index`."""
        commit_index = max(self.journal.commit_hint, index, self._founded_index())
        self.library.begin_behind(index, commit_index)
