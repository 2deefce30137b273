"""The objections between this node and its peers that stand at present, for operators to act on."""

import time
from typing import Final, NamedTuple

from cluster.peers.handshake import Objection
from cluster.peers.objections import Kind

FRESH_S_MAX: Final = 5.0
"""Seconds that an objection is told: whoever still meets it meets it again about every two seconds."""
COPY_FRESH_S_MAX: Final = 60.0
"""Seconds that an objection to a copy is told: it may be let in elsewhere, and not come again."""
_COPIES: Final = frozenset({Kind.DUPLICATE, Kind.OLDER_COPY})
_KINDS: Final = frozenset(Kind)
_LASTING: Final = frozenset({Kind.OTHER_CLUSTER, Kind.OTHER_DISK, Kind.REMOVED})
"""The kinds that do not pass by themselves while a node joins."""


class Met(NamedTuple):
    """An objection between this node and a peer."""

    objection: Objection
    is_ours: bool
    """Whether this node objects to the peer; else the peer objects to this node."""
    since_s: float
    last_s: float
    """When it was met for the first and for the last time, by the monotonic clock."""

    @property
    def is_fresh(self) -> bool:
        """Whether it stands at present, as far as can be known."""
        fresh_s = COPY_FRESH_S_MAX if self.objection.kind in _COPIES else FRESH_S_MAX
        return time.monotonic() - self.last_s < fresh_s


class ObjectionsMet:
    """The last objection of each kind to each peer, or of each peer to this node."""

    def __init__(self) -> None:
        self._met: dict[str, dict[str, Met]] = {}

    def met(self, peer_id: str, objection: Objection, *, is_ours: bool) -> bool:
        """Record an objection, which is this node's if it `is_ours`, else the peer's; return if it is new."""
        now_s = time.monotonic()
        # A peer's word for a kind is not bounded; what this release does not know counts as one.
        kind = objection.kind if objection.kind in _KINDS else ""
        kinds = self._met.setdefault(peer_id, {})
        before = kinds.get(kind)
        is_known = before is not None and before.is_fresh
        since_s = before.since_s if before is not None and is_known else now_s
        kinds[kind] = Met(objection, is_ours, since_s, now_s)
        return not is_known

    def gone(self, peer_id: str) -> None:
        """Record that both let each other in, or that the peer is another one from now on.

        That one of two processes with the same identity is let in says nothing of the other.
        """
        kinds = self._met.pop(peer_id, {})
        if not _COPIES.isdisjoint(kinds):
            self._met[peer_id] = {kind: kinds[kind] for kind in _COPIES & kinds.keys()}

    def why_not_joining(self, peer_id: str) -> str:
        """Return why a peer that is to join cannot, empty if nothing is known that lasts."""
        lasting = [met for met in self._of(peer_id) if met.objection.kind in _LASTING]
        return max(lasting, key=lambda met: met.last_s).objection.reason if lasting else ""

    def standing(self) -> dict[str, Met]:
        """Return the objection that stands at present for each peer: one that lasts, else the newest."""
        found = {}
        for peer_id in self._met:
            if fresh := self._of(peer_id):
                found[peer_id] = max(fresh, key=lambda met: (met.objection.kind in _LASTING, met.last_s))
        return found

    def _of(self, peer_id: str) -> list[Met]:
        """Return the objections that stand at present between this node and a peer."""
        return [met for met in self._met.get(peer_id, {}).values() if met.is_fresh]
