"""When a node stands for election: only after a majority agreed that there is no leader (H11).

PreVote (Ongaro's dissertation, section 9.6): a node whose patience ends asks the voters first, and raises
its term only if a majority has lost the leader too and finds its log good enough. So a node that comes back
from a partition, or cannot hear, deposes nobody. The turns of the nodes are staggered: two candidates at once
would split the votes.

Patience is short with a leader that kept time: one that was heard without a pause for a while, and is silent
now, has most likely died. Where heartbeats come late, on a busy machine or over a bad network, silence means
less: patience grows with the pauses, up to the configured one. What this node did not hear because it stood
still itself, or because its connection was broken, does not count as a pause of the leader.
"""

from typing import Final

from cluster.consensus import elections, guards
from cluster.consensus.elections import Elections
from cluster.consensus.engine import Engine
from cluster.consensus.library_words import EngineJournal
from cluster.consensus.member_list import has_majority
from cluster.consensus.membership import Membership
from cluster.consensus.messages import Message, NewerTerm, PreVoteGranted, PreVoteRequest

PRE_VOTE_PAUSE_S: Final = 0.05
"""The pause, in seconds, after a broken connection to the leader and between pre-votes; one more of them
passes for each node whose turn is earlier."""
SHORT_PATIENCE_HEARTBEATS: Final = 2.5
"""After so many heartbeats of silence a leader that kept time counts as lost."""
PAUSE_HEARTBEATS_MAX: Final = 2.0
"""A leader that is silent for longer, and then speaks again, does not keep time."""
KEEPS_TIME_S: Final = 0.5
"""For so long, in seconds, a new leader must be heard until its silence means more than another's."""
LATE_S: Final = 10.0
"""For so long, in seconds, a pause of a leader is remembered; the longest one, as long as others follow."""
PATIENCE_PER_PAUSE: Final = 1.5
"""The silence after which a leader counts as lost, as a multiple of the longest pause that is remembered."""
STALL_HEARTBEATS: Final = 1.0
"""A node ticks twice in a heartbeat. One that finds that it has not for so long stood still itself."""
TURN_S: Final = 0.01
"""The pause, in seconds, before the first question: the others may have heard the leader a bit later."""
RECENT_STALL: Final = 2.0
"""A stall explains what happens within so many times the silence after which a leader counts as lost."""
UNFIT_PATIENCE: Final = 10
"""A node that should not lead leaves the election to others for so many times the silence after which a
leader counts as lost. After that nobody else can win: perhaps it alone has the newest entry."""


class PreVote:
    """Holds the library's elections back until they are agreed to. Returns what to send, sends nothing."""

    def __init__(
        self,
        node_id: str,
        log: EngineJournal,
        engine: Engine,
        membership: Membership,
        told: Elections,
        *,
        leader_lost_after_s: float,
        heartbeat_s: float,
    ) -> None:
        """After a silence of `leader_lost_after_s` any leader counts as lost. `told` hears why."""
        self._node_id = node_id
        self._log = log
        self._engine = engine
        self._membership = membership
        self._told = told
        self._leader_lost_after_s = leader_lost_after_s
        self._short_patience_s = min(SHORT_PATIENCE_HEARTBEATS * heartbeat_s, leader_lost_after_s)
        self._pause_s_max = PAUSE_HEARTBEATS_MAX * heartbeat_s
        self._stall_s_min = STALL_HEARTBEATS * heartbeat_s
        self._turn_s = heartbeat_s / 2
        self._granted: set[str] = set()
        self._term = 0
        self._leader_heard_s = float("-inf")
        self._heard_term = 0
        self._heard_leader = ""
        self._keeps_time_from_s = float("-inf")
        self._longest_pause_s = 0.0
        self._late_until_s = float("-inf")
        self._looked_s = engine.now_s()
        self._stalled_s = 0.0
        """For how long this node stood still since it heard the leader."""
        self._stall_s, self._stall_ended_s = 0.0, float("-inf")
        self._may_hurry = False
        """Whether this node has not yet made up its mind about the silence of the leader that it hears."""
        self._led_s = float("-inf")
        self._is_leader_cut_off = False
        self._is_link_replaced = False
        """Whether the leader was not heard yet on the connection that took the place of another."""
        self.is_unfit = False
        """Whether this node should not lead, if another can. Set by the host."""
        # A node that has just started cannot know whether a leader is alive: it waits as if it had heard one.
        self._started_s = engine.now_s()

    @property
    def leader_silence_s(self) -> float:
        """Return how long nothing was heard from a leader; 0 on the leader, infinite if never."""
        return 0.0 if self._engine.is_leader else self._engine.now_s() - self._leader_heard_s

    @property
    def lag_s(self) -> float:
        """Return how long there was no leader for this node, itself included; infinite if never."""
        return min(self.leader_silence_s, self._engine.now_s() - self._led_s)

    @property
    def leader_is_alive(self) -> bool:
        """Whether there is a leader that this node would not see deposed."""
        now_s = self._engine.now_s()
        is_heard = not self._is_leader_cut_off and now_s - self._leader_heard_s < self._patience_s
        has_just_started = now_s - self._started_s < self._leader_lost_after_s
        return self._engine.is_leader or is_heard or has_just_started

    @property
    def is_voter(self) -> bool:
        """Whether this node votes and may lead."""
        return self._node_id in self._membership.voters

    @property
    def _patience_s(self) -> float:
        """Return the silence after which the leader that was heard last counts as lost."""
        if self._leader_heard_s < self._keeps_time_from_s:
            return self._leader_lost_after_s
        if self._leader_heard_s >= self._late_until_s:
            return self._short_patience_s
        patience_s = PATIENCE_PER_PAUSE * self._longest_pause_s
        return min(max(patience_s, self._short_patience_s), self._leader_lost_after_s)

    def _look_at_clock(self, now_s: float) -> None:
        """Find out whether this node stood still: what it then has not heard may wait to be read."""
        gap_s = now_s - self._looked_s
        if gap_s > self._stall_s_min:
            self._stalled_s += gap_s
            self._stall_s, self._stall_ended_s = gap_s, now_s
        self._looked_s = now_s

    def recent_stall_s(self) -> float:
        """Return for how long this process stood still just now, 0 if it did not."""
        now_s = self._engine.now_s()
        gap_s = now_s - self._looked_s
        if gap_s > self._stall_s_min:
            return gap_s
        is_recent = now_s - self._stall_ended_s < RECENT_STALL * self._leader_lost_after_s
        return self._stall_s if is_recent else 0.0

    def leader_heard(self) -> None:
        """Record that the leader of this term spoke."""
        now_s = self._engine.now_s()
        self._look_at_clock(now_s)
        pause_s = now_s - self._leader_heard_s - self._stalled_s
        was_broken = self._is_leader_cut_off or self._is_link_replaced
        if self._engine.term != self._heard_term or was_broken:
            self._heard_term = self._engine.term
            self._keeps_time_from_s = max(self._keeps_time_from_s, now_s + KEEPS_TIME_S)
        elif pause_s > self._pause_s_max:
            is_remembered = now_s < self._late_until_s
            self._longest_pause_s = max(pause_s, self._longest_pause_s if is_remembered else 0.0)
            self._late_until_s = now_s + LATE_S
        self._leader_heard_s = now_s
        self._heard_leader = self._engine.leader_id or ""
        self._told.settled()
        self._stalled_s = 0.0
        self._may_hurry = True
        self._is_leader_cut_off = self._is_link_replaced = False
        self._granted.clear()

    def leader_cut_off(self) -> None:
        """Record that the connection to the leader broke: look for another one soon.

        If it had asked this node to take over, it may have changed its mind before they meet again.
        """
        self._is_leader_cut_off = True
        self._engine.forget_takeover()
        self._engine.election_deadline_s = min(self._engine.election_deadline_s, self._soon_s())

    def link_replaced(self) -> None:
        """Record that the leader is reached by another connection, and may not be heard until it uses that.

        It is no less alive for it: were it cut off, then two followers that renew their connections at once
        would depose it between two of its heartbeats.
        """
        self._is_link_replaced = True
        self._engine.forget_takeover()

    @property
    def may_stand(self) -> bool:
        """Whether this node may start an election: it counts, and a majority or the leader itself agrees."""
        is_agreed = len(self._membership.voters) == 1 or self._engine.is_takeover_asked or self._is_won()
        return self.is_voter and is_agreed

    def ask(self, connected: set[str]) -> list[tuple[str, Message]]:
        """Return the questions to ask when this node's patience has ended and nobody has agreed yet.

        Tells the engine before its tick whether it may start an election.
        """
        engine = self._engine
        engine.may_stand = False
        now_s = engine.now_s()
        self._look_at_clock(now_s)
        if engine.is_leader:
            self._led_s = now_s
            return []
        if self._is_hurry_due(now_s):
            self._may_hurry = False
            engine.election_deadline_s = 0.0
        if engine.election_deadline_s >= now_s:
            return []
        if self._leaves_it_to_others():
            engine.election_deadline_s = self._soon_s()
            return []
        engine.may_stand = self.may_stand
        self._tell_why(now_s)
        if engine.may_stand:
            return []
        engine.election_deadline_s = self._soon_s()
        if not self.is_voter:
            return []
        self._granted = set()
        self._term = engine.term + 1
        request = PreVoteRequest(
            term=self._term,
            last_log_index=self._log.last_index,
            last_log_term=self._log.term_at(self._log.last_index) or 0,
        )
        return [(peer_id, request) for peer_id in sorted(connected & self._membership.voters)]

    def _tell_why(self, now_s: float) -> None:
        """Say why this node wants an election."""
        told, leader_id = self._told, self._heard_leader
        silence_s = now_s - self._leader_heard_s - self._stalled_s
        if self._engine.is_takeover_asked:
            told.asked_to(leader_id)
        elif self._led_s > self._leader_heard_s:
            told.wanted(elections.STOOD_DOWN, self._node_id)
        elif not leader_id:
            told.wanted(elections.START, "")
        elif self._is_leader_cut_off:
            told.wanted(elections.CUT_OFF, leader_id)
        elif self._stalled_s > silence_s:
            told.wanted(elections.stalled(self._stalled_s), self._node_id)
        else:
            told.wanted(elections.silent(silence_s), leader_id)

    def _is_hurry_due(self, now_s: float) -> bool:
        """Whether a leader that kept time is silent, and it is this node's turn to ask the others."""
        silence_s = now_s - self._leader_heard_s - self._stalled_s
        if not self._may_hurry or silence_s < self._short_patience_s or self._engine.term != self._heard_term:
            return False
        return silence_s >= self._patience_s + TURN_S + self._turn_s * self._turn()

    def _leaves_it_to_others(self) -> bool:
        """Whether this node is unfit to lead and others may still be about to; not if the leader asked it."""
        if not self.is_unfit or self._engine.is_takeover_asked or len(self._membership.voters) == 1:
            return False
        since_s = max(self._leader_heard_s, self._led_s, self._started_s)
        return self._engine.now_s() - since_s < UNFIT_PATIENCE * self._leader_lost_after_s

    def answer(self, message: PreVoteRequest) -> Message | None:
        """Return a yes to a pre-vote, or the newer term for a sender that is behind, or nothing."""
        term = self._engine.term
        if guards.grants_pre_vote(message, self._log, term, leader_is_alive=self.leader_is_alive):
            self._may_hurry = False  # two candidates would split the votes
            return PreVoteGranted(term=message.term)
        return NewerTerm(term=term) if message.term <= term else None

    def count(self, peer_id: str, message: PreVoteGranted) -> bool:
        """Count a yes; tell whether the election may start now."""
        if message.term != self._term or self.leader_is_alive or not self.is_voter:
            return False
        self._granted.add(peer_id)
        if not self._is_won():
            return False
        self._engine.election_deadline_s = 0.0
        return True

    def _is_won(self) -> bool:
        """Whether a majority, this node included, would vote for the next term."""
        return self._term == self._engine.term + 1 and has_majority(
            self._membership.voters, self._granted | {self._node_id}
        )

    def _soon_s(self) -> float:
        """Return a moment shortly ahead, another one on every node."""
        return self._engine.now_s() + PRE_VOTE_PAUSE_S * (1 + self._turn() + self._engine.random() / 2)

    def _turn(self) -> int:
        """Return how many nodes come before this one when the leader is lost."""
        others = self._membership.voters - {self._engine.leader_id, self._node_id}
        return sum(peer_id < self._node_id for peer_id in others)
