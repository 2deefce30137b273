"""Defects of the consensus: each guard off, elections without consent, time that a leader makes up."""

from typing import Any, Final

from cluster.commands.clock import ClusterClock
from cluster.consensus import guards
from cluster.consensus.guards import Admission, LogView
from cluster.consensus.messages import (
    UNSET,
    Acknowledgement,
    AppendEntries,
    PreVoteRequest,
    Vote,
    VoteRequest,
)
from cluster.consensus.prevote import PreVote
from cluster.node import Node
from lockstate.machine import LockMachine
from tests.simulation.faults.hostile_network import Chances
from tests.simulation.mutations.mutation import Mutation, Surroundings, replaced, together
from tests.simulation.mutations.states import advance_anywhere

_LATE: Final = Chances(lost=0.02, repeated=0.1, late=0.1, late_us_max=3_000_000)
_MANY_LEADERS: Final = {"kill": 2.0, "isolate": 4.0, "split": 3.0, "transfer": 6.0}
_HOSTILE: Final = Surroundings(
    rates=_MANY_LEADERS, hostile=_LATE, fault_s=(0.5, 6.0), settings={"compact_entries": 1_000}
)
_REPEATED: Final = Surroundings(
    nodes_count=5,
    rates={"transfer": 20.0, "kill": 3.0, "split": 3.0},
    hostile=Chances(lost=0.1, repeated=0.6, late=0.0, late_us_max=1_500),
    fault_s=(0.5, 3.0),
    settings={"compact_entries": 1_000, "latency_us": 100, "jitter_us": 3_000},
)
"""Votes come one by one, and many of them twice."""
_SNAPSHOTS: Final = Surroundings(
    rates={"isolate": 8.0, "split": 4.0, "transfer": 4.0},
    fault_s=(3.0, 12.0),
    settings={"compact_entries": 10, "chunk_bytes": 512, "heartbeat_ms": 100, "election_ms_min": 400}
    | {"election_ms_max": 800},
)
_LEADERS: Final = Surroundings(rates=_MANY_LEADERS, fault_s=(0.5, 6.0))

_admit_append = guards.admit_append


def _admit_append_without_place(message: AppendEntries, log: LogView, current_term: int) -> Admission:
    """Let the commit index of messages without a log position through (H1)."""
    admitted = _admit_append(message, log, current_term)
    if admitted.message is None or message.previous_index is not UNSET:
        return admitted
    return Admission(message, admitted.reply)


def _admit_append_that_cuts(message: AppendEntries, log: LogView, current_term: int) -> Admission:
    """Let the library cut its log behind the position of every message (H2)."""
    if message.term < current_term or message.previous_index is UNSET:
        return _admit_append(message, log, current_term)
    return Admission(message)


def _admit_any_acknowledgement(message: Acknowledgement, _log: LogView, _term: int) -> Acknowledgement | None:
    return message


def _admit_any_vote(_voter: str, message: Vote, current_term: int, _voters: set[str]) -> Vote | None:
    return message if message.term == current_term else None


def _admit_any_request(message: VoteRequest, *, leader_is_alive: bool) -> VoteRequest | None:
    del leader_is_alive
    return message


def _grant_anything(
    message: PreVoteRequest, _log: LogView, current_term: int, *, leader_is_alive: bool
) -> bool:
    del leader_is_alive
    return message.term > current_term


def _always_news(_log: LogView, _index: int, _term: int) -> bool:
    return True


async def _read_at_once(node: Node, query: Any, timeout_s: float) -> Any:
    """Answer from the state of this node, however old it is."""
    del timeout_s
    node.parts.requests.check_open()
    return query(node.machine)


def _start_anew(clock: ClusterClock, _base_ms: int) -> None:
    _start(clock, 0)


def _start_ahead(clock: ClusterClock, base_ms: int) -> None:
    _start(clock, base_ms + 3_000)


def _now_ms_fast(clock: ClusterClock) -> int:
    return _now_ms(clock) * 102 // 100


_start, _now_ms = ClusterClock.start, ClusterClock.now_ms

CONSENSUS: Final = (
    Mutation(
        name="commit-without-log-check",
        sentence="A part of a snapshot raises the commit index up to the end of the follower's own log (H1).",
        found_by=("committed-entry", "committed-by-majority", "node-ends"),
        apply=replaced(guards, "admit_append", _admit_append_without_place),
        surroundings=_SNAPSHOTS,
    ),
    Mutation(
        name="cut-without-conflict",
        sentence="A late or repeated message cuts the log behind its position (H2).",
        found_by=("promise-kept", "leader-completeness", "committed-entry"),
        apply=replaced(guards, "admit_append", _admit_append_that_cuts),
        surroundings=_HOSTILE,
    ),
    Mutation(
        name="acks-without-term",
        sentence="An acknowledgement counts in whatever term it arrives (H3).",
        found_by=("match-index", "committed-by-majority"),
        apply=replaced(guards, "admit_acknowledgement", _admit_any_acknowledgement),
        surroundings=Surroundings(
            rates={"transfer": 20.0, "one-way": 8.0, "deaf": 6.0},
            hostile=Chances(lost=0.02, repeated=0.1, late=0.3, late_us_max=8_000_000),
            fault_s=(1.0, 8.0),
        ),
    ),
    Mutation(
        name="votes-counted-twice",
        sentence="A vote that arrives twice counts twice (H3).",
        found_by=("elected-by-majority", "one-leader-per-term", "leader-completeness"),
        apply=replaced(guards, "admit_vote", _admit_any_vote),
        surroundings=_REPEATED,
    ),
    Mutation(
        name="no-prevote",
        sentence="A node stands for election without asking, also against a leader that is alive (H11).",
        found_by=("election-agreed",),
        apply=together(
            replaced(PreVote, "may_stand", property(lambda self: self.is_voter)),
            replaced(guards, "admit_vote_request", _admit_any_request),
        ),
        surroundings=_LEADERS,
    ),
    Mutation(
        name="prevote-always-granted",
        sentence="Nodes agree to an election although they hear the leader.",
        found_by=("leader-kept",),
        apply=together(
            replaced(guards, "grants_pre_vote", _grant_anything),
            replaced(guards, "admit_vote_request", _admit_any_request),
            replaced(PreVote, "leader_is_alive", property(lambda self: self._engine.is_leader)),
        ),
        surroundings=_LEADERS,
    ),
    Mutation(
        name="snapshot-of-the-past-installed",
        sentence="A follower installs every snapshot, also one that is behind its log (H17).",
        found_by=("promise-kept", "leader-completeness", "apply-order"),
        apply=replaced(guards, "snapshot_is_news", _always_news),
        surroundings=Surroundings(
            rates={"isolate": 4.0, "transfer": 3.0},
            hostile=Chances(lost=0.02, repeated=0.2, late=0.2, late_us_max=3_000_000),
            settings={"compact_entries": 10, "chunk_bytes": 256 * 1024},
        ),
    ),
    Mutation(
        name="reads-without-barrier",
        sentence="Every node answers reads from its own state (H12).",
        found_by=("read-fresh",),
        apply=replaced(Node, "read", _read_at_once),
        surroundings=_LEADERS,
    ),
    Mutation(
        name="time-restarts-with-leader",
        sentence="A new leader's time begins at 0, and stands still until it has caught up.",
        found_by=("lease-late",),
        apply=replaced(ClusterClock, "start", _start_anew),
        surroundings=Surroundings(
            rates=_MANY_LEADERS,
            fault_s=(0.5, 6.0),
            client_settings={"names": tuple(f"n{number}" for number in range(100)), "ttl_ms": (50, 2_000)},
        ),
    ),
    Mutation(
        name="time-goes-back-with-leader",
        sentence="A new leader's time begins at 0, and nobody minds.",
        found_by=("model-state", "lease-late"),
        apply=together(
            replaced(ClusterClock, "start", _start_anew),
            replaced(LockMachine, "_advance_time", advance_anywhere),
        ),
        surroundings=_LEADERS,
    ),
    Mutation(
        name="time-jumps-with-leader",
        sentence="A new leader's time begins three seconds ahead.",
        found_by=("lease-early", "exclusion"),
        apply=replaced(ClusterClock, "start", _start_ahead),
        surroundings=_LEADERS,
    ),
    Mutation(
        name="time-too-fast",
        sentence="Cluster time runs 2 % too fast.",
        found_by=("lease-early", "exclusion"),
        apply=replaced(ClusterClock, "now_ms", _now_ms_fast),
        surroundings=Surroundings(minutes=1),
    ),
)
