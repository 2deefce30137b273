"""Why leadership came to this node, or left it: what one line of the log tells of each change.

Nothing is decided here. `prevote` says why it wants an election, the replica who has voted and what happened.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

START: Final = "start"
"""This node has known no leader since it started."""
CUT_OFF: Final = "connection lost"
"""The connection with the leader ended, as when its process dies."""
HANDED_OVER: Final = "handed over"
"""The leader asked this node to take over."""
STOOD_DOWN: Final = "stood down"
"""No majority answered the leader, which was this node."""
NEWER_TERM: Final = "newer term"
"""Other nodes had begun an election, though this leader was running and answered by a majority."""


def silent(silence_s: float) -> str:
    """Return the reason that nothing was heard from the leader for so long, in seconds."""
    return f"silent {round(silence_s * 1000)} ms"


def stalled(stall_s: float) -> str:
    """Return the reason that this process stood still for so long, in seconds."""
    return f"own loop stalled {stall_s:.1f} s"


class _Cause(NamedTuple):
    reason: str
    by: str
    began_s: float


class Elections:
    """What is known of the present election and leadership of one node. One thread."""

    def __init__(self, node_id: str, now_s: Callable[[], float]) -> None:
        self._node_id: Final = node_id
        self._now_s = now_s
        self._cause: _Cause | None = None
        self._voters: set[str] = set()
        self._won_s = now_s()
        self._handed_to = ""

    def wanted(self, reason: str, by: str) -> None:
        """Record why this node wants to lead, and which leader it is about; the first reason stays."""
        if self._cause is None:
            self._cause = _Cause(reason, by, self._now_s())

    def asked_to(self, by: str) -> None:
        """Record that the leader asked this node to take over: that counts before every other reason."""
        if self._cause is None or self._cause.reason != HANDED_OVER:
            self._cause = _Cause(HANDED_OVER, by, self._now_s())

    def settled(self) -> None:
        """Forget why this node wanted to lead: a leader was heard."""
        self._cause = None

    def stood(self) -> None:
        """Begin to count votes: this node is a candidate."""
        self._voters.clear()

    def voted(self, peer_id: str) -> None:
        """Record a vote for this node."""
        self._voters.add(peer_id)

    def handing_over(self, to: str) -> None:
        """Record that this leader asked a peer to take over."""
        self._handed_to = to

    def won(self, term: int) -> str:
        """Return the line for an election that this node has won."""
        now_s = self._now_s()
        cause, self._cause = self._cause or _Cause(START, "", now_s), None
        self._won_s, self._handed_to = now_s, ""
        voters, self._voters = self._voters | {self._node_id}, set()
        return (
            f"event=election result=won leader={self._node_id} term={term} reason={cause.reason!r}"
            f" by={cause.by or '-'} votes={','.join(sorted(voters))}"
            f" took_ms={round((now_s - cause.began_s) * 1000)}"
        )

    def lost(self, term: int, *, newer_from: str, stall_s: float) -> str:
        """Return the line for a leadership that has ended.

        `newer_from` is who told of the newer term, empty if there is none; `stall_s` is for how long this
        process has just stood still.
        """
        if self._handed_to:
            reason, by = HANDED_OVER, self._handed_to
        elif stall_s > 0:
            reason, by = stalled(stall_s), newer_from
        else:
            reason, by = (NEWER_TERM, newer_from) if newer_from else (STOOD_DOWN, self._node_id)
        led_ms, self._handed_to = round((self._now_s() - self._won_s) * 1000), ""
        return (
            f"event=election result=lost leader={self._node_id} term={term} reason={reason!r} by={by or '-'}"
            f" led_ms={led_ms}"
        )
