"""When a node stops because its peers do not let it in, and when its directory remembers that. Mostly pure.

A node that must not take part harms nobody while it is not let in: it only tries again. To stop is for the
operator, who shall see that it will never be let in. To stop wrongly costs a quorum. So one peer's word about
who is a member stops nobody, and neither does any word while a leader is heard:

    removed        this very disk is in the list of those removed: nobody else can know its id. One word is
                   enough, and the directory remembers it. That of this node's leader counts at once: its
                   clients shall go elsewhere
    other-disk     said by so many that no majority is left without them, and contradicted by nobody. The
                   directory remembers it, but not one that is yet to join: its peers may be behind
    other-cluster  the same, from peers that this node dialed. It is not remembered: to put a wrong address
                   right must be enough
    all others     a peer that is behind, a release that is too old: tried again
"""

import enum
from collections.abc import Collection
from typing import Final

import msgspec

from cluster.consensus.member_list import has_majority
from cluster.peers.handshake import Objection
from cluster.peers.objections import Kind

SILENT_ELECTIONS_COUNT: Final = 3
"""Election timeouts without a word from a leader, after which none is heard."""
WORD_S_MAX: Final = 15.0
"""Seconds that a peer's word counts: who goes on refusing this node says so about every two seconds."""


class Stop(enum.Enum):
    """What comes of it that peers refuse this node."""

    NO = 0
    STOP = 1
    STOP_AND_REMEMBER = 2
    """Stop, and never start with this directory again."""


class Situation(msgspec.Struct, frozen=True, kw_only=True):
    """What counts for one kind of objection."""

    kind: str
    is_leader_heard: bool
    """Whether this node leads, or has heard a leader within a few election timeouts, or has just started."""
    is_let_in: bool
    """Whether any peer takes this node at present."""
    is_joining_empty: bool
    """Whether this node is to join and has nothing in its log."""
    node_id: str
    leader_id: str | None
    """Whom this node follows, heard or not."""
    voters: Collection[str]
    refusers: Collection[str]
    """Who says so at present."""


class Ruling(msgspec.Struct, frozen=True):
    """Whether to stop, and the reason to give."""

    stop: Stop
    reason: str = ""


def decide(situation: Situation) -> Stop:
    """Return whether to stop."""
    is_removed = situation.kind == Kind.REMOVED
    if is_removed and situation.leader_id in situation.refusers:
        return Stop.STOP_AND_REMEMBER
    if situation.is_leader_heard or not situation.refusers:
        return Stop.NO
    if is_removed:
        return Stop.STOP_AND_REMEMBER
    rest = (set(situation.voters) | {situation.node_id}) - set(situation.refusers)
    if situation.is_let_in or has_majority(situation.voters, rest):
        return Stop.NO
    if situation.kind == Kind.OTHER_DISK and not situation.is_joining_empty:
        return Stop.STOP_AND_REMEMBER
    return Stop.STOP if situation.kind == Kind.OTHER_CLUSTER else Stop.NO


class Objections:
    """What the peers of one node say against it. Bounded by the number of its peers."""

    def __init__(self) -> None:
        self._words: dict[str, tuple[Objection, float]] = {}

    def add(self, peer_id: str, objection: Objection, now_s: float) -> None:
        """Record an objection; a newer word of the same peer counts instead of the one before."""
        self._words[peer_id] = (objection, now_s)

    def forget(self, peer_id: str) -> None:
        """Record that a peer lets this node in."""
        self._words.pop(peer_id, None)

    def keep(self, peer_ids: Collection[str], now_s: float) -> None:
        """Forget those that are not peers any more, and words that are old. A removal is never taken back."""
        self._words = {
            peer_id: (objection, said_s)
            for peer_id, (objection, said_s) in self._words.items()
            if objection.kind == Kind.REMOVED or (peer_id in peer_ids and now_s - said_s < WORD_S_MAX)
        }

    def verdict(
        self,
        *,
        node_id: str,
        is_leader_heard: bool,
        let_in_by: Collection[str],
        is_joining_empty: bool,
        voters: Collection[str],
        leader_id: str | None = None,
    ) -> Ruling:
        """Return what comes of all that is said at present, the gravest first."""
        verdict = Ruling(Stop.NO)
        for kind, words in self.by_kind().items():
            situation = Situation(
                kind=kind,
                is_leader_heard=is_leader_heard,
                is_let_in=bool(set(let_in_by) - set(words)),
                is_joining_empty=is_joining_empty,
                node_id=node_id,
                leader_id=leader_id,
                voters=voters,
                refusers=words,
            )
            stop = decide(situation)
            if stop.value > verdict.stop.value:
                last = list(words.values())[-1]
                verdict = Ruling(stop, f"refused by {', '.join(words)}: {last.reason}")
        return verdict

    def by_kind(self) -> dict[str, dict[str, Objection]]:
        """Return the objections by kind and by who says so."""
        kinds: dict[str, dict[str, Objection]] = {}
        for peer_id, (objection, _) in sorted(self._words.items()):
            kinds.setdefault(objection.kind, {})[peer_id] = objection
        return kinds

    def __len__(self) -> int:
        """Return how many peers refuse this node."""
        return len(self._words)
