"""Snapshots between the library and our store: when to write one, and how one travels to a follower.

This object stands where the library has its own serializer, so its method names are the library's. A snapshot
travels as chunks `[data, is_first, is_last, index, term]`; the receiver verifies the whole before it counts.
"""

import logging
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

import msgspec

from cluster import guards
from cluster.records import LogEntry
from cluster.snapshots import Snapshot, SnapshotDamaged, SnapshotReader, SnapshotStore

CHUNK_BYTES: Final = 256 * 1024
"""Short enough not to delay a heartbeat behind it."""

logger = logging.getLogger(__name__)


class Replica(guards.LogView, Protocol):
    """What the transfer asks of the replica."""

    def link_has_room(self, peer_id: str) -> bool:
        """Whether bulk data may be sent to the peer now."""

    def pause_sending(self, peer_id: str) -> None:
        """Send a peer no snapshot until it asks again."""

    def decline_snapshot(self, index: int) -> None:
        """Tell the leader that everything up to `index` is here already."""


class _Node(Protocol):
    @property
    def id(self) -> str: ...


class _Sending(msgspec.Struct):
    """One snapshot on its way to one peer."""

    reader: SnapshotReader
    index: int
    term: int
    is_first: bool = True


class SnapshotTransfer:
    """Writes, sends and receives snapshots for one replica.

    `states` maps the store's outcomes to the library's numbers; `members` returns the member list as of an
    index, for a snapshot that ends there.
    """

    def __init__(
        self,
        store: SnapshotStore,
        encode_state: Callable[[], bytes],
        replica: Replica,
        *,
        states: Mapping[str, int],
        members: Callable[[int], bytes],
        last: LogEntry | None,
    ) -> None:
        self._store = store
        self._encode_state = encode_state
        self._replica = replica
        self._states = states
        self._members = members
        self._last = last
        self._writing: LogEntry | None = None
        self._sending: dict[str, _Sending] = {}
        self._received: Snapshot | None = None
        self._is_receiving = False

    def take_received(self) -> Snapshot:
        """Return the snapshot that has just been received and verified."""
        snapshot, self._received = self._received, None
        assert snapshot is not None, "no snapshot was received"
        self._last = snapshot.last
        return snapshot

    def stop_sending(self) -> None:
        """Forget all transfers: this node leads no more, or another term begins."""
        for peer_id in list(self._sending):
            self.stop_sending_to(peer_id)

    def stop_sending_to(self, peer_id: str) -> None:
        """Forget the transfer to a peer."""
        sending = self._sending.pop(peer_id, None)
        if sending is not None:
            sending.reader.close()

    # -- the library's names --------------------------------------------------------------------------------

    def checkSerializing(self) -> tuple[int, int]:  # noqa: N802 - the library's name
        """Return how the writing child is doing, and before which index the log may go on success."""
        outcome = self._store.poll()
        if outcome == "done":
            self._last = self._writing
            logger.info("event=snapshot-written index=%d", self._writing[1] if self._writing else 0)
        return self._states[outcome], self._writing[1] - 1 if self._writing else 0

    def serialize(self, data: tuple[Any, LogEntry, LogEntry, object], _index: int) -> None:
        """Begin to write the state as it is now; `data` holds the last two applied entries."""
        _, last, previous, _ = data
        self._writing = last
        self._store.begin_write(last, previous, self._members(last[1]), self._encode_state)

    def getTransmissionData(self, node: _Node) -> tuple[bytes, bool, bool, int, int] | None:  # noqa: N802
        """Return the next chunk for a peer, None when there is nothing to send or no room for it now."""
        has_room = self._replica.link_has_room(node.id)
        sending = (self._sending.get(node.id) or self._open(node.id)) if has_room else None
        if sending is None:
            self._replica.pause_sending(node.id)
            return None
        data = sending.reader.read(CHUNK_BYTES)
        is_first, sending.is_first = sending.is_first, False
        if not data:
            self.stop_sending_to(node.id)
        return data, is_first, not data, sending.index, sending.term

    def setTransmissionData(self, chunk: list[Any] | None) -> bool:  # noqa: N802 - the library's name
        """Take one chunk; True when it completes a snapshot that is whole and tells something new."""
        if chunk is None:
            return False
        data, is_first, is_last, index, term = chunk
        if not guards.snapshot_is_news(self._replica, index, term):
            self._store.abort_receive()
            self._is_receiving = False
            self._replica.decline_snapshot(index)
            return False
        try:
            return self._receive(data, is_first=is_first, is_last=is_last)
        except SnapshotDamaged as error:
            logger.warning("event=snapshot-refused index=%d reason=%r", index, str(error))
        except OSError as error:
            logger.error("event=snapshot-not-stored index=%d error=%r", index, str(error))  # noqa: TRY400
            self._store.abort_receive()
        self._is_receiving = False
        return False

    def cancelTransmisstion(self, node: _Node) -> None:  # noqa: N802 - the library's name, spelt so
        """Forget a transfer: the peer is gone."""
        self.stop_sending_to(node.id)

    # -- helpers --------------------------------------------------------------------------------------------

    def _receive(self, data: bytes, *, is_first: bool, is_last: bool) -> bool:
        if is_first:
            self._store.begin_receive()
            self._is_receiving = True
        elif not self._is_receiving:
            return False
        self._store.write_chunk(data)
        if not is_last:
            return False
        self._is_receiving = False
        self._received = self._store.finish()
        return True

    def _open(self, peer_id: str) -> _Sending | None:
        if self._last is None:
            return None
        try:
            reader = self._store.open_reader()
        except OSError as error:
            logger.error("event=snapshot-not-readable peer=%s error=%r", peer_id, str(error))  # noqa: TRY400
            return None
        logger.info("event=snapshot-sending peer=%s index=%d bytes=%d", peer_id, self._last[1], reader.size)
        sending = self._sending[peer_id] = _Sending(reader, self._last[1], self._last[2])
        return sending
