"""Defects that no world shows, and why: they take away a second protection, or nothing that was promised.

`scripts/simulate --mutation NAME` hunts for them, too, and finds nothing. docs/robustness.md has the reasons.
"""

from typing import Final

import msgspec

import cluster.commands.clock
from cluster.consensus import guards
from cluster.consensus.admission import Gate
from cluster.consensus.guards import Admission, LogView
from cluster.consensus.messages import UNSET, AppendEntries, Vote
from tests.simulation.faults.hostile_network import Chances
from tests.simulation.mutations.mutation import Mutation, Surroundings, replaced

_admit_append = guards.admit_append


def _admit_append_unread(message: AppendEntries, log: LogView, current_term: int) -> Admission:
    """Take over the leader's commit index up to the end of the own log, whatever was verified."""
    admitted = _admit_append(message, log, current_term)
    if admitted.message is None or message.previous_index is UNSET:
        return admitted
    unread = msgspec.structs.replace(admitted.message, commit_index=message.commit_index)
    return Admission(unread, admitted.reply)


def _vote_of_anybody(gate: Gate, peer_id: str, message: Vote) -> Vote | None:
    """Count a vote whether or not the list of members has its voter."""
    term = gate._engine.term
    if gate._voters_term != term:
        gate._voters_term, gate._voters = term, set()
    admitted = guards.admit_vote(peer_id, message, term, gate._voters)
    if admitted is not None:
        gate._voters.add(peer_id)
    return admitted


SURVIVORS: Final = (
    Mutation(
        name="commit-beyond-verified",
        sentence="A message raises the commit index beyond the last position that it verified.",
        found_by=(),
        apply=replaced(guards, "admit_append", _admit_append_unread),
        surroundings=Surroundings(
            rates={"isolate": 6.0, "split": 4.0, "transfer": 6.0},
            hostile=Chances(lost=0.05, repeated=0.1, late=0.1, late_us_max=3_000_000),
            fault_s=(0.5, 6.0),
        ),
    ),
    Mutation(
        name="vote-of-anybody",
        sentence="A vote counts although the member list does not have its voter.",
        found_by=(),
        apply=replaced(Gate, "_vote", _vote_of_anybody),
        surroundings=Surroundings(
            rates={"replace": 6.0, "shrink": 4.0, "grow": 4.0, "split": 4.0, "transfer": 6.0},
            hostile=Chances(lost=0.05, repeated=0.1, late=0.1, late_us_max=3_000_000),
            fault_s=(0.5, 6.0),
        ),
    ),
    Mutation(
        name="stalls-counted",
        sentence="The time for which a leader was stopped counts for all leases.",
        found_by=(),
        apply=replaced(cluster.commands.clock, "STALL_COUNTED_MS_MAX", 3_600_000),
        surroundings=Surroundings(rates={"pause": 10.0, "suspend": 6.0}, fault_s=(0.2, 4.0)),
    ),
)
