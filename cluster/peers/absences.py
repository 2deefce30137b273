"""Which peers are not connected, since when, and how the last try to reach them ended. Pure.

Times are seconds of one monotonic clock.
"""

from collections.abc import Callable, Collection
from typing import Final, NamedTuple

LEFT: Final = "its connection ended, and there is no new one yet"
"""Why a peer is absent until a try to connect has ended; this node does not dial all peers itself."""


class Absence(NamedTuple):
    """A peer that is not connected."""

    since_s: float
    reason: str
    """How the last try to connect ended, or the connection; empty if there was none yet."""


class Absences:
    """The peers of one node that should be connected and are not. Bounded by the number of its peers."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._absent: dict[str, Absence] = {}

    def expect(self, absent: Collection[str]) -> None:
        """Record that exactly these peers should be connected and are not."""
        began = Absence(self._now_s(), "")
        self._absent = {peer_id: self._absent.get(peer_id, began) for peer_id in absent}

    def failed(self, peer_id: str, reason: str) -> None:
        """Record how a try to connect with a peer ended; nothing, if that peer is not awaited."""
        absence = self._absent.get(peer_id)
        if absence is not None:
            self._absent[peer_id] = absence._replace(reason=reason)

    def came(self, peer_id: str) -> None:
        """Record that a peer is connected."""
        self._absent.pop(peer_id, None)

    def left(self, peer_id: str) -> None:
        """Record that a peer is not connected any more."""
        self._absent[peer_id] = Absence(self._now_s(), LEFT)

    def all(self) -> dict[str, Absence]:
        """Return all absences, by the id of the peer."""
        return dict(self._absent)
