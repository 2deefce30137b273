"""Where a peer's Raft message meets its guard, and what must be remembered from one message to the next.

The guards themselves are pure functions (guards.py). Here is their memory: whose vote was counted in this
term, when a follower's wish to begin again was granted last, what the leader has been told already, and whose
committed entries are others than those of this node.
"""

from cluster.consensus import guards, log_digest
from cluster.consensus.engine import Engine
from cluster.consensus.guards import Admission, GuardViolationError
from cluster.consensus.library_words import EngineJournal
from cluster.consensus.log_digest import Difference
from cluster.consensus.member_list import has_majority
from cluster.consensus.membership import Membership
from cluster.consensus.messages import (
    UNSET,
    Acknowledgement,
    AppendEntries,
    Guarded,
    TakeOver,
    Vote,
    VoteRequest,
)
from cluster.consensus.prevote import PreVote
from cluster.errors import NodeFailed, PeerFault


class TwoLeadersError(PeerFault):
    """A peer leads in the term in which this node leads: somebody voted twice, or the peer is broken."""


class Gate:
    """Admits messages to one node's engine.

    One peer's word stops no node: a peer that would change what is committed here may be the one that is
    broken, and all others would stop with this node. Its message is dropped, and its connection cut. If a
    majority of the voters says so, each as a leader, this node is the broken one: then it stops.
    """

    def __init__(
        self,
        log: EngineJournal,
        engine: Engine,
        membership: Membership,
        prevote: PreVote,
        *,
        rewind_pause_s: float,
    ) -> None:
        self._log = log
        self._engine = engine
        self._membership = membership
        self._prevote = prevote
        self._rewind_pause_s = rewind_pause_s
        self._voters: set[str] = set()
        self._voters_term = 0
        self._rewinds: dict[str, tuple[int, float]] = {}
        self._acknowledged: tuple[str, int, int] = ("", 0, 0)
        self._parted: tuple[str, int, Difference] | None = None
        """The last leader and term with another history than this log."""
        self._contradicted_by: set[str] = set()

    def admit(self, peer_id: str, message: Guarded) -> Admission:
        """Say what becomes of a message for the engine.

        Raises GuardViolationError, TwoLeadersError, and NodeFailed when a majority contradicts this node.
        """
        match message:
            case AppendEntries():
                try:
                    return self._append(peer_id, message)
                except GuardViolationError as error:
                    self._contradicted(peer_id, error)
                    raise
            case Acknowledgement():
                return self._acknowledgement(peer_id, message)
            case VoteRequest():
                is_alive = self._prevote.leader_is_alive
                return Admission(guards.admit_vote_request(message, leader_is_alive=is_alive))
            case Vote():
                return Admission(self._vote(peer_id, message))
            case TakeOver():
                # To take over is for those who count.
                return Admission(message if self._prevote.is_voter else None)

    def acknowledging(self, peer_id: str, message: Acknowledgement) -> None:
        """Record what a peer will know. Called for each one that leaves, or will after the sync."""
        if message.success:
            self._acknowledged = (peer_id, message.term, message.next_index)

    def forget(self, peer_id: str) -> None:
        """Record that a connection broke: what was on its way may be lost."""
        if self._acknowledged[0] == peer_id:
            self._acknowledged = ("", 0, 0)

    def _append(self, peer_id: str, message: AppendEntries) -> Admission:
        if self._engine.is_leader and message.term == self._engine.term:
            raise TwoLeadersError(f"{peer_id} leads in term {message.term}, and so does this node")
        if (
            self._parted is None
            and not self._contradicted_by
            and guards.only_adds(message, self._log, self._engine.term)
        ):
            return Admission(message, only_adds=True)
        found = self._difference_to(peer_id, message)
        if found is not None:
            return Admission(None, difference=found)
        is_news_only = guards.is_only_news_of_a_commit(message, self._log)
        admission = guards.admit_append(message, self._log, self._engine.term)
        if self._contradicted_by and message.entries is not UNSET:
            self._contradicted_by.discard(peer_id)
        reply = admission.reply
        if (
            is_news_only
            and type(reply) is Acknowledgement
            and self._acknowledged == (peer_id, reply.term, reply.next_index)
        ):
            return Admission(admission.message)
        return admission

    def _difference_to(self, peer_id: str, message: AppendEntries) -> Difference | None:
        """Return where a leader's history differs from this log; in its term it is not followed any more."""
        if message.term < self._engine.term:
            return None
        parted = self._parted
        if (
            parted is not None
            and parted[:2] == (peer_id, message.term)
            and self._log.digest_at(parted[2].index) == parted[2].own
        ):
            return parted[2]
        found = log_digest.difference(message, self._log)
        self._parted = None if found is None else (peer_id, message.term, found)
        return found

    def _contradicted(self, peer_id: str, error: GuardViolationError) -> None:
        """Record whose history is another one. Raises NodeFailed when a majority has another one."""
        voters = self._membership.voters
        self._contradicted_by.add(peer_id)
        if has_majority(voters, self._contradicted_by):
            raise NodeFailed(
                f"nodes {', '.join(sorted(self._contradicted_by))}, a majority, have other entries committed"
                f" than this node: {error}. Do not delete anything yet: if they run on older copies of their"
                " directories, this one has what was acknowledged. If they do not, this node's disk cannot be"
                " trusted: replace it by a node with a new id (see 'Nodes that differ' in docs/operating.md)"
            ) from error

    def _acknowledgement(self, peer_id: str, message: Acknowledgement) -> Admission:
        if peer_id not in self._membership.latest.nodes:
            return Admission(None)
        engine = self._engine
        admitted = guards.admit_acknowledgement(message, self._log, engine.term)
        if admitted is None or not admitted.reset or not engine.is_leader:
            return Admission(admitted)
        index, now_s = admitted.next_index, engine.now_s()
        last_index, last_s = self._rewinds.get(peer_id, (0, float("-inf")))
        is_old_news = index == last_index or index <= engine.match_index(peer_id)
        is_first = now_s - last_s >= self._rewind_pause_s
        if is_old_news and not is_first:
            return Admission(guards.without_rewind(admitted))
        self._rewinds[peer_id] = (index, now_s)
        # What a broken link lost does not wait for a heartbeat; who asks again and again does.
        return Admission(admitted, is_send_due=is_first)

    def _vote(self, peer_id: str, message: Vote) -> Vote | None:
        if self._voters_term != self._engine.term:
            self._voters_term, self._voters = self._engine.term, set()
        if peer_id not in self._membership.voters:
            return None
        admitted = guards.admit_vote(peer_id, message, self._engine.term, self._voters)
        if admitted is not None:
            self._voters.add(peer_id)
        return admitted
