"""Defects of hand-overs: who gets the lock, and with what."""

from collections.abc import Sequence
from typing import Final

from lockstate.reads.holders import queue_of
from lockstate.rules import hand_overs
from lockstate.rules.hand_overs import HandOvers
from lockstate.rules.pleas import Pleas
from lockstate.tables.records import Hold, Permits, Plea, Ticket
from lockstate.tables.state import State
from lockstate.words.claims import Claims
from lockstate.words.commands.holds import HandOver
from lockstate.words.kinds import HoldKind
from lockstate.words.refusals import Refused
from lockstate.words.wanted import Wanted
from tests.simulation.mutations.mutation import (
    OPERATED,
    Mutation,
    Surroundings,
    many_snapshots,
    replaced,
    together,
)
from tests.simulation.workload import client_commands

_HANDED_OVER: Final = Surroundings(
    client_settings={**OPERATED, "vocabulary_share": 0.95, "hand_overs_share": 0.2}
)
_FROZEN: Final = Surroundings(
    minutes=6.0,
    client_settings={**OPERATED, "vocabulary_share": 0.95, "hand_overs_share": 0.4},
    around=together(many_snapshots, replaced(client_commands, "THAW_CHANCE", 0.05)),
)
"""Freezes mostly last as long as they may: few locks are handed over while one is there."""


def _first_in_line(of: HandOvers, command: HandOver, giver: Hold, lock: Wanted) -> Ticket | Hold | Refused:
    """Take the first that waits for the one that is meant."""
    receiver = _receiver(of, command, giver, lock)
    queue = list(queue_of(of._state, HoldKind.LOCK, lock.name))
    is_for_one = bool(queue) and hand_overs._waits_for(queue[0], lock)
    return queue[0] if isinstance(receiver, Ticket) and is_for_one else receiver


_receiver = HandOvers._receiver


def _ask_nobody(pleas: Pleas, asked: Sequence[Plea], receiver: Hold) -> None:
    """Forget what the giver was asked."""
    del pleas, asked, receiver


def _never_frozen(state: State, claims: Claims, permits: Permits = ()) -> Refused | None:
    """Let a lock be handed over while its name is frozen."""
    del state, claims, permits
    return None


HAND_OVERS: Final = (
    Mutation(
        name="hand-over-to-the-first",
        sentence="A lock that is handed over goes to the first that waits, whoever was meant.",
        found_by=("reply", "model-state", "model-events", "read-view"),
        apply=replaced(HandOvers, "_receiver", _first_in_line),
        surroundings=_HANDED_OVER,
    ),
    Mutation(
        name="hand-over-ends-revocations",
        sentence="Whoever is handed a lock need not give up what its giver was asked for.",
        found_by=("reply", "model-state", "model-events", "read-view"),
        apply=replaced(Pleas, "pass_on", _ask_nobody),
        surroundings=_HANDED_OVER,
    ),
    Mutation(
        name="hand-over-in-a-freeze",
        sentence="A lock can be handed over while it is frozen.",
        found_by=("reply", "model-state", "model-events", "read-view"),
        apply=replaced(hand_overs, "frozen", _never_frozen),
        surroundings=_FROZEN,
    ),
)
