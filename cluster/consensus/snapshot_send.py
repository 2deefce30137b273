"""One snapshot on its way out: what travels, and where to go on after a connection broke.

    leader -> follower   Chunk without data: an offer of this very snapshot
    follower -> leader   SnapshotPosition: how much of it is here already
    leader -> follower   Chunks from there on, the last one without data

Every chunk says where it belongs, so a lost or repeated one is noticed: the follower takes what continues
what it has, and tells its position when something is missing.
"""

import logging
from typing import Final

from cluster.consensus.messages import Chunk, SnapshotPosition
from cluster.storage.snapshot_format import SnapshotId
from cluster.storage.snapshot_store import SnapshotReader

WAITS_MAX: Final = 3
"""How often, a heartbeat apart, the next chunk is asked for before an answer to the offer counts as lost. A
follower that decodes a large state answers late."""

logger = logging.getLogger(__name__)


class SnapshotSend:
    """One snapshot on its way to one peer, over one connection after the other."""

    def __init__(self, peer_id: str, reader: SnapshotReader, index: int, term: int) -> None:
        """Begin; nothing is sent yet."""
        self._peer_id = peer_id
        self.index = index
        self._reader = reader
        self._id = SnapshotId(index, term, reader.size, reader.digest)
        self.begin()

    def begin(self) -> None:
        """Begin, or begin again on another connection: with an offer of the same snapshot."""
        self._reader.offset = 0
        self._is_offered = False
        self._is_answered = False
        self._waited = 0
        self._has_begun = False
        self._went_back_to = -1

    @property
    def offset(self) -> int:
        """Return how much was sent."""
        return self._reader.offset

    def next_chunk(self, size_bytes: int) -> Chunk | None:
        """Return the next chunk; None while the answer to the offer is awaited. Raises OSError."""
        if not self._is_offered:
            self._is_offered = True
            return Chunk(b"", 0, False, self._id)
        if not self._is_answered and self._waited < WAITS_MAX:
            self._waited += 1
            return None
        offset = self._reader.offset
        data = self._reader.read(size_bytes)
        if data and not self._has_begun:
            self._has_begun = True
            logger.info(
                "event=snapshot-sending peer=%s index=%d bytes=%d from=%d",
                self._peer_id,
                self._id.last_index,
                self._id.size_bytes,
                offset,
            )
        return Chunk(data, offset, not data, self._id)

    def answered(self, position: SnapshotPosition) -> bool:
        """Go on where the follower is; whether that was not known before.

        Back to the same place only once: several chunks behind a lost one tell the same. If that is lost as
        well, the end of this transfer and the next offer find it out.
        """
        if not self._is_offered:
            # Of the last time. The next offer waits for its turn, or a follower that takes nothing is asked
            # again and again without a pause.
            return False
        if position.digest != self._id.digest or not 0 <= position.offset <= self._id.size_bytes:
            return False
        is_back = position.offset < self._reader.offset
        is_news = not self._is_answered or position.offset != self._reader.offset
        self._is_answered = True
        if is_back and position.offset == self._went_back_to:
            return False
        if is_back:
            self._went_back_to = position.offset
        elif is_news:
            self._has_begun = False  # the log tells where it really goes on, also where the answer came late
        self._reader.offset = position.offset
        return is_news

    def close(self) -> None:
        """Close the file. Idempotent."""
        self._reader.close()
