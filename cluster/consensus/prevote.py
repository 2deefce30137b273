"""When a node stands for election: only after a majority agreed that there is no leader (H11).

PreVote (Ongaro's dissertation, section 9.6): a node whose patience ends asks the voters first, and raises
its term only if a majority has lost the leader too and finds its log good enough. So a node that comes back
from a partition, or cannot hear, deposes nobody. The turns of the nodes are staggered: two candidates at once
would split the votes.
"""

from typing import Final, Protocol

from cluster.consensus import guards
from cluster.consensus.engine import Raft
from cluster.consensus.guards import Message
from cluster.consensus.member_list import has_majority

PRE_VOTE_PAUSE_S: Final = 0.05
"""One of these passes after a broken connection to the leader, and between pre-votes, and one more for each
node whose turn is earlier."""


class Replica(guards.LogView, Protocol):
    """What pre-votes need to know of the replica."""

    @property
    def voters(self) -> frozenset[str]:
        """Return who votes."""

    @property
    def connected(self) -> frozenset[str]:
        """Return the peers that can be reached."""

    def send_at_once(self, peer_id: str, message: Message) -> None:
        """Send a message that promises nothing."""


class PreVote:
    """Holds the library's elections back until they are agreed to."""

    def __init__(self, node_id: str, replica: Replica, raft: Raft, leader_lost_after_s: float) -> None:
        self._node_id = node_id
        self._replica = replica
        self._raft = raft
        self._leader_lost_after_s = leader_lost_after_s
        self._granted: set[str] = set()
        self._term = 0
        self._leader_heard_s = float("-inf")
        self._led_s = float("-inf")
        self._is_leader_cut_off = False
        # Who has just started cannot know whether a leader is alive: it waits as if it had heard one.
        self._started_s = raft.now_s()

    @property
    def leader_silence_s(self) -> float:
        """Return how long nothing was heard from a leader; 0 on the leader, infinite if never."""
        return 0.0 if self._raft.is_leader else self._raft.now_s() - self._leader_heard_s

    @property
    def lag_s(self) -> float:
        """Return how long there was no leader for this node, itself included; infinite if never."""
        return min(self.leader_silence_s, self._raft.now_s() - self._led_s)

    @property
    def leader_is_alive(self) -> bool:
        """Whether there is a leader that this node would not see deposed."""
        silence_s = self._raft.now_s() - self._leader_heard_s
        is_heard = not self._is_leader_cut_off and silence_s < self._leader_lost_after_s
        has_just_started = self._raft.now_s() - self._started_s < self._leader_lost_after_s
        return self._raft.is_leader or is_heard or has_just_started

    @property
    def is_voter(self) -> bool:
        """Whether this node votes and may lead."""
        return self._node_id in self._replica.voters

    def leader_heard(self) -> None:
        """Take note that the leader of this term spoke."""
        self._leader_heard_s = self._raft.now_s()
        self._is_leader_cut_off = False
        self._granted.clear()

    def leader_cut_off(self) -> None:
        """Take note that the connection to the leader broke: look for another one soon.

        If it had asked this node to take over, it may have changed its mind before they meet again.
        """
        self._is_leader_cut_off = True
        self._raft.forget_transfer()
        self._raft.election_deadline_s = min(self._raft.election_deadline_s, self._soon_s())

    @property
    def may_stand(self) -> bool:
        """Whether this node may start an election: it counts, and a majority or the leader itself agrees."""
        is_agreed = len(self._replica.voters) == 1 or self._raft.is_transfer_pending or self._is_won()
        return self.is_voter and is_agreed

    def hold_back(self) -> None:
        """Ask for pre-votes when this node's patience has ended and nobody has agreed to an election yet."""
        raft = self._raft
        if raft.is_leader:
            self._led_s = raft.now_s()
        if raft.is_leader or raft.election_deadline_s >= raft.now_s() or self.may_stand:
            return
        raft.election_deadline_s = self._soon_s()
        if not self.is_voter:
            return
        self._granted = set()
        self._term = raft.term + 1
        request = {
            "type": "pre_vote",
            "term": self._term,
            "last_log_index": self._replica.last_index,
            "last_log_term": self._replica.term_at(self._replica.last_index) or 0,
        }
        for peer_id in sorted(self._replica.connected & self._replica.voters):
            self._replica.send_at_once(peer_id, request)

    def answer(self, peer_id: str, message: Message) -> None:
        """Say yes to a pre-vote, or nothing; tell who is behind of the newer term."""
        term = self._raft.term
        if guards.grants_pre_vote(message, self._replica, term, leader_is_alive=self.leader_is_alive):
            self._replica.send_at_once(peer_id, {"type": "pre_vote_granted", "term": message["term"]})
        elif message["term"] <= term:
            self._replica.send_at_once(peer_id, guards.tell_term(term))

    def count(self, peer_id: str, message: Message) -> bool:
        """Count a yes; tell whether the election may start now."""
        if message["term"] != self._term or self.leader_is_alive or not self.is_voter:
            return False
        self._granted.add(peer_id)
        if not self._is_won():
            return False
        self._raft.election_deadline_s = 0.0
        return True

    def _is_won(self) -> bool:
        """Whether a majority, this node included, would vote for the next term."""
        return self._term == self._raft.term + 1 and has_majority(
            self._replica.voters, self._granted | {self._node_id}
        )

    def _soon_s(self) -> float:
        """Return a moment shortly ahead, another one on every node."""
        others = self._replica.voters - {self._raft.leader_id, self._node_id}
        turn = sum(peer_id < self._node_id for peer_id in others)
        return self._raft.now_s() + PRE_VOTE_PAUSE_S * (1 + turn + self._raft.random() / 2)
