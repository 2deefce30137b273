"""Whether this process must not take part: it runs on a copy of a data directory, or on one that is too old.

A copy and its original vote, acknowledge and serve in one name; an older copy has forgotten what it promised.
So a process that was told so by a voter takes nothing of Raft from anybody, as if it were alone: it does not
vote, acknowledge or lead, and its clients are refused. That other voters let it in changes nothing: the nodes
of a cluster that was copied as a whole let each other in, under the ids of the originals.

The word stands until the process that gave it lets this one in, over whichever connection, or another one at
the address where it was heard. That happens soon after a crash, when the end of the run before is noticed.
Otherwise a person decides which of the two is to live, stops the other one, and starts this one again.
"""

import logging
from collections.abc import Callable, Collection
from typing import Final

from cluster.peers.handshake import Objection
from cluster.peers.objections import Kind

WORDS_COUNT_MAX: Final = 64
"""Words that are kept, newest last: one for each address of each peer."""
_KINDS: Final = frozenset({Kind.DUPLICATE, Kind.OLDER_COPY})

logger = logging.getLogger(__name__)


class ShutOut:
    """What voters have said of the directory of this process. One thread."""

    def __init__(self, voters: Callable[[], Collection[str]]) -> None:
        self._voters = voters
        self.words: dict[tuple[str, str], Objection] = {}
        """What was said, by peer and address. To be read only; while it is empty, there is no reason."""

    def said(self, peer_id: str, address: str, objection: Objection) -> None:
        """Take why a peer at this address does not let this process in; empty: the peer dialed this node."""
        if objection.kind not in _KINDS or peer_id not in self._voters():
            return
        word = (peer_id, address)
        if word not in self.words:
            logger.critical("event=shut-out peer=%s reason=%r", peer_id, objection.reason)
        self.words.pop(word, None)
        self.words[word] = objection
        if len(self.words) > WORDS_COUNT_MAX:
            del self.words[next(iter(self.words))]

    def let_in(self, peer_id: str, address: str, run_id: str) -> None:
        """Record that a peer at this address, or the process with this run id, lets this one in."""
        for word, objection in tuple(self.words.items()):
            if word[0] == peer_id and (word[1] == address or objection.run_id == run_id != ""):
                del self.words[word]
                logger.warning("event=let-in-again peer=%s", peer_id)

    @property
    def reason(self) -> str:
        """Why this process does not take part, empty if it may."""
        for (peer_id, _), objection in self.words.items():
            if peer_id in self._voters():
                return f"{peer_id} says: {objection.reason}"
        return ""
