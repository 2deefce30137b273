"""Snapshots between the engine and the store: how one is written, and how one travels to a follower.

The sending end of a transfer is in `snapshot_send`, the bytes that arrive are in `storage/snapshot_incoming`;
here they meet the engine and the store.
"""

import logging
from collections.abc import Callable, Collection, Generator
from typing import Final, cast

from cluster.consensus import guards
from cluster.consensus.engine import Engine
from cluster.consensus.library_words import EngineJournal
from cluster.consensus.messages import Chunk, Message, SnapshotPosition
from cluster.consensus.pinned_log import PinnedLog
from cluster.consensus.ready import SnapshotDue
from cluster.consensus.snapshot_send import SnapshotSend
from cluster.errors import NodeFailed
from cluster.storage.journal_format import LogEntry
from cluster.storage.snapshot_store import DecodeState, Snapshot, SnapshotDamaged, SnapshotId, SnapshotStore
from lockstate.stored.snapshot import SnapshotError

CHUNK_BYTES: Final = 256 * 1024
"""Short enough not to delay a heartbeat behind it."""

logger = logging.getLogger(__name__)


class SnapshotTransfer:
    """Writes, sends and receives snapshots for one replica.

    What it wants to say goes into the engine's `sent`. `decode` makes a state of what was received, before it
    counts; without it only the digest is verified, at once.
    """

    def __init__(
        self,
        store: SnapshotStore,
        engine: Engine,
        log: EngineJournal,
        *,
        last: LogEntry | None,
        decode: DecodeState | None = None,
    ) -> None:
        self._store = store
        self._engine = engine
        self._log = log
        self._decode = decode
        self._last = last
        self._writing: LogEntry | None = None
        self._sending: dict[str, SnapshotSend] = {}
        self._pinned = PinnedLog()
        self._told: tuple[SnapshotId, int] | None = None
        self._checking: Generator[None, None, Snapshot] | None = None
        self._checked: Snapshot | None = None
        self._placing: Snapshot | None = None
        """Is being put in place, and nobody stops that."""
        self._placed: Snapshot | None = None
        """Is in place, on the disk; the log does not begin behind it yet."""
        self._unreadable: SnapshotId | None = None
        self._received: Snapshot | None = None
        self.is_writing = False
        """Whether a child of this node writes a snapshot."""

    @property
    def is_checking(self) -> bool:
        """Whether there is something to do for a received snapshot now: it is done in ticks."""
        is_unfinished = self._checking is not None or self._placing is not None
        return is_unfinished and self._decode is not None and not self._store.is_busy

    def take_received(self) -> Snapshot:
        """Return the snapshot that has just been received, verified and put in place."""
        snapshot, self._received = self._received, None
        assert snapshot is not None, "no snapshot was received"
        self._last = snapshot.last
        return snapshot

    def take_position(self, peer_id: str, position: SnapshotPosition) -> bool:
        """Record how much of a snapshot a peer has; whether there is more to send to it now."""
        sending = self._sending.get(peer_id)
        if sending is None or position.term != self._engine.term:
            return False
        return sending.answered(position)

    def stop_sending(self) -> None:
        """Forget all transfers: this node no longer leads, or another term begins."""
        self._pinned.clear()
        for peer_id in list(self._sending):
            self._forget(peer_id)

    def members_changed(self, peer_ids: Collection[str]) -> None:
        """Forget the transfers to all but these, who count or learn: nobody else is sent anything."""
        self._pinned.keep(peer_ids)
        for peer_id in [peer_id for peer_id in self._sending if peer_id not in peer_ids]:
            self._forget(peer_id)

    def stop_sending_to(self, peer_id: str) -> None:
        """Interrupt the transfer to a peer, which keeps what it has: next time, it is offered the same."""
        sending = self._sending.get(peer_id)
        if sending is not None:
            sending.begin()

    def first_needed(self, goal: int) -> int | None:
        """Return from which entry on followers need the log that have not all up to `goal` yet."""
        self._look_at_followers(goal)
        return self._pinned.first_needed()

    def _look_at_followers(self, goal: int | None = None) -> None:
        """End what is kept for those who have caught up, or stand still."""
        if self._pinned.pins:
            engine = self._engine
            for peer_id in self._pinned.look(engine.match_index, engine.now_s(), goal=goal):
                self._forget(peer_id)

    def _forget(self, peer_id: str) -> None:
        """End the transfer to a peer."""
        sending = self._sending.pop(peer_id, None)
        if sending is not None:
            sending.close()

    def begin_write(self, due: SnapshotDue, encode_state: Callable[[], bytes]) -> None:
        """Begin to write the state as it is now, which contains everything up to `due.last`."""
        self._writing, self.is_writing = due.last, True
        self._store.begin_write(due.last, due.previous, due.members, encode_state, due.log_digest)

    # -- what the engine asks (engine.Snapshots) ------------------------------------------------------------

    def poll(self) -> tuple[str, int]:
        """Return how the writing child is doing, and up to which index the state is written when "done".

        The engine asks in every tick: a good moment for a step of the check of what was received.
        """
        if self._checking is not None or self._checked is not None:
            self._go_on_checking()
        if self._pinned.pins:
            self._look_at_followers()
        if self._placing is not None or self._placed is not None:
            self._go_on_placing()
            # A snapshot of this node would be older, and take the place of that one.
            return "running", 0
        if not self.is_writing:
            return "idle", 0
        outcome, index = self._store.poll(), self._writing[1] if self._writing else 0
        self.is_writing = outcome == "running"
        if outcome == "done":
            self._last = self._writing
            logger.info("event=snapshot-written index=%d", index)
        elif outcome == "failed" and self._last is not None and self._last[1] >= index:
            # A newer one came from the leader, and ended the child.
            return "idle", index
        return outcome, index

    def size_bytes(self) -> int:
        """Return the size of this node's snapshot, 0 if there is none. Raises OSError."""
        return self._store.size_bytes()

    def next_chunk(self, peer_id: str) -> Chunk | None:
        """Return the next chunk for a peer, None when there is nothing to send or no room for it now."""
        engine = self._engine
        sending = self._present(peer_id) if engine.has_room(peer_id) else None
        chunk = None if sending is None else sending.next_chunk(CHUNK_BYTES)
        if sending is None or chunk is None:
            engine.pause_sending(peer_id)
        elif chunk.is_last:
            # Should the follower ask again, while it checks what it got, this is offered to it again.
            sending.begin()
        else:
            self._pinned.has_sent(peer_id, sending.offset, engine.now_s())
        return chunk

    def take_chunk(self, chunk: Chunk) -> bool:
        """Take one chunk; True when a snapshot is whole, checked, in place, and tells something new."""
        if not guards.snapshot_is_news(self._log, chunk.id.last_index, chunk.id.last_term):
            self._drop()
            # Tell the leader that everything up to there is here already.
            self._say(guards.acknowledge(chunk.id.last_index, current_term=self._engine.term))
            return False
        try:
            return self._receive(chunk)
        except (SnapshotDamaged, OSError) as error:
            self._refuse(error)
            return False

    def _say(self, message: Message) -> None:
        """Send a message to the leader."""
        leader_id = self._engine.leader_id
        if leader_id is not None:
            self._engine.sent.append((leader_id, message))

    # -- sending --------------------------------------------------------------------------------------------

    def _present(self, peer_id: str) -> SnapshotSend | None:
        """Return the transfer to a peer; a new one unless the log goes on behind the snapshot of the last.

        Where there is no newer snapshot the present one goes on: the library asks until it gets nothing, and
        would be given the first offer of one transfer after the other without an end.
        """
        sending = self._sending.get(peer_id)
        if sending is not None:
            needed = max(self._log.first_index, self._engine.match_index(peer_id))
            if sending.index >= needed or self._last is None or sending.index >= self._last[1]:
                return sending
        self._forget(peer_id)
        return self._open(peer_id)

    def _open(self, peer_id: str) -> SnapshotSend | None:
        if self._last is None or self._placing is not None:
            return None
        try:
            reader = self._store.open_reader()
        except OSError as error:
            logger.error("event=snapshot-not-readable peer=%s error=%r", peer_id, str(error))  # noqa: TRY400
            return None
        sending = self._sending[peer_id] = SnapshotSend(peer_id, reader, self._last[1], self._last[2])
        self._pinned.begin(peer_id, self._last[1], self._engine.now_s())
        return sending

    # -- receiving ------------------------------------------------------------------------------------------

    def _receive(self, chunk: Chunk) -> bool:
        if self._accept_checked():
            return True
        is_enough = self._checking is not None or self._placing is not None
        if is_enough or chunk.id == self._unreadable:
            # Nothing more is needed: the leader goes on to its last chunk, again and again.
            if chunk.is_offer:
                self._tell(chunk.id, chunk.id.size_bytes)
            return False
        if self._store.incoming != chunk.id:
            self._store.begin_receive(chunk.id)
        have_bytes = self._store.incoming_bytes
        if chunk.is_offer or chunk.offset > have_bytes:
            if chunk.is_offer or self._told != (chunk.id, have_bytes):
                self._tell(chunk.id, have_bytes)
            return False
        # What comes while much waits for the disk comes again: the leader asks where to go on.
        is_taken = self._store.has_room and self._store.write_chunk(chunk.data[have_bytes - chunk.offset :])
        if not is_taken:
            return False
        self._checking = self._store.check_received(self._decode)
        if self._decode is not None:
            return False
        while (snapshot := self._check_step(self._checking)) is None:
            assert not self._store.is_busy, "who has no decoder has disk work done in place"
        return self._accept(snapshot)

    def _tell(self, snapshot_id: SnapshotId, offset: int) -> None:
        """Tell the leader how much of its snapshot is here."""
        self._told = (snapshot_id, offset)
        self._say(SnapshotPosition(term=self._engine.term, digest=snapshot_id.digest, offset=offset))

    def _go_on_checking(self) -> None:
        """Do a step of the check, if there is something to check, and ask for the next tick."""
        snapshot_id = self._store.incoming
        if snapshot_id is None:
            return
        if not guards.snapshot_is_news(self._log, snapshot_id.last_index, snapshot_id.last_term):
            self._drop()
        elif self._checking is not None:
            try:
                self._check_step(self._checking)
            except (SnapshotDamaged, OSError) as error:
                self._refuse(error)

    def _go_on_placing(self) -> None:
        """Find out whether a snapshot is in place by now. Raises NodeFailed."""
        if self._placing is not None:
            self._put_in_place(self._placing)
        placed = self._placed
        if placed is not None and not guards.snapshot_is_news(self._log, *placed.last[1:]):
            # The log has come to there by itself meanwhile: both are right.
            self._placed = None

    def _check_step(self, checking: Generator[None, None, Snapshot]) -> Snapshot | None:
        """Do a step of the check; return the snapshot when that was the last one."""
        try:
            next(checking)
        except StopIteration as end:
            self._checking = None
            self._checked = snapshot = cast("Snapshot", end.value)
            return snapshot
        except SnapshotError as error:
            # The same bytes would be as unreadable the next time.
            self._unreadable = self._store.incoming
            raise SnapshotDamaged(str(error)) from error
        return None

    def _accept_checked(self) -> bool:
        """Put the checked snapshot in place, if there is one and it still tells something new.

        The chunk that came may be another leader's, and the log may have grown since the last tick.
        """
        self._go_on_placing()
        if self._placed is not None:
            self._received, self._placed = self._placed, None
            return True
        snapshot = self._checked
        if snapshot is None:
            return False
        if not guards.snapshot_is_news(self._log, *snapshot.last[1:]):
            self._drop()
            return False
        return self._accept(snapshot)

    def _accept(self, snapshot: Snapshot) -> bool:
        """Put a checked snapshot in place; whether it is there at once, and is to be installed."""
        self._checked = None
        self._put_in_place(snapshot)
        self._received, self._placed = self._placed, None
        return self._received is not None

    def _put_in_place(self, snapshot: Snapshot) -> None:
        """Put a snapshot in place, or look whether it is by now. Raises NodeFailed."""
        self._placing = snapshot
        try:
            is_in_place = self._store.put_received_in_place()
        except OSError as error:
            # Which of the two files is in place is not known: like a failed sync, this is final.
            raise NodeFailed(f"a received snapshot could not be put in place: {error}") from error
        if is_in_place:
            self._placing, self._placed = None, snapshot
            self._last = snapshot.last

    def _refuse(self, error: SnapshotDamaged | OSError) -> None:
        """Drop a snapshot that turned out to be damaged or cannot be stored, and say so."""
        snapshot_id = self._store.incoming
        index = 0 if snapshot_id is None else snapshot_id.last_index
        if isinstance(error, OSError):
            logger.error("event=snapshot-not-stored index=%d error=%r", index, str(error))
        else:
            logger.warning("event=snapshot-refused index=%d reason=%r", index, str(error))
        self._drop()

    def _drop(self) -> None:
        """Forget what was received."""
        self._store.abort_receive()
        self._checking = self._checked = self._told = None
