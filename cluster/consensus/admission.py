"""Where a peer's Raft message meets its guard, and what must be remembered from one message to the next.

The guards themselves are pure functions (guards.py). Here is their memory: whose vote was counted in this
term, and where a follower's wish to begin again was granted last.
"""

from typing import Protocol

from cluster.consensus import guards
from cluster.consensus.engine import Raft
from cluster.consensus.guards import Admission, GuardViolationError, Message
from cluster.consensus.member_list import Members
from cluster.consensus.prevote import PreVote


class Replica(guards.LogView, Protocol):
    """What the gate needs to know of the replica."""

    @property
    def members(self) -> Members:
        """Return the member list that counts."""


class Gate:
    """Admits messages to one node's Raft library."""

    def __init__(self, replica: Replica, raft: Raft, prevote: PreVote, *, rewind_pause_s: float) -> None:
        self._replica = replica
        self._raft = raft
        self._prevote = prevote
        self._rewind_pause_s = rewind_pause_s
        self._voters: set[str] = set()
        self._voters_term = 0
        self._rewinds: dict[str, tuple[int, float]] = {}

    def admit(self, peer_id: str, message: Message) -> Admission:
        """Say what becomes of a message that is known and well-formed. Raises GuardViolationError."""
        match message["type"]:
            case "append_entries":
                if self._raft.is_leader and message["term"] == self._raft.term:
                    raise GuardViolationError(
                        f"{peer_id} leads in term {message['term']}, and so does this node"
                    )
                return guards.admit_append(message, self._replica, self._raft.term)
            case "next_node_idx":
                return Admission(self._acknowledgement(peer_id, message))
            case "request_vote":
                is_alive = self._prevote.leader_is_alive
                return Admission(guards.admit_vote_request(message, leader_is_alive=is_alive))
            case "response_vote":
                return Admission(self._vote(peer_id, message))
            case _:
                # To take over is for those who count.
                return Admission(message if self._prevote.is_voter else None)

    def _acknowledgement(self, peer_id: str, message: Message) -> Message | None:
        if peer_id not in self._replica.members.nodes:
            return None
        admitted = guards.admit_acknowledgement(message, self._replica, self._raft.term)
        if admitted is None or not admitted["reset"] or not self._raft.is_leader:
            return admitted
        index, now_s = admitted["next_node_idx"], self._raft.now_s()
        last_index, last_s = self._rewinds.get(peer_id, (0, float("-inf")))
        is_old_news = index == last_index or index <= self._raft.match_index(peer_id)
        if is_old_news and now_s - last_s < self._rewind_pause_s:
            return guards.without_rewind(admitted)
        self._rewinds[peer_id] = (index, now_s)
        return admitted

    def _vote(self, peer_id: str, message: Message) -> Message | None:
        if self._voters_term != self._raft.term:
            self._voters_term, self._voters = self._raft.term, set()
        if peer_id not in self._replica.members.voters:
            return None
        admitted = guards.admit_vote(peer_id, message, self._raft.term, self._voters)
        if admitted is not None:
            self._voters.add(peer_id)
        return admitted
