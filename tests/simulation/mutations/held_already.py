"""Defects of what an acquire does when its session holds that already."""

from typing import Final

import msgspec

from lockstate.rules.holds import Holds
from lockstate.tables.owners import wish_of
from lockstate.tables.records import NOTHING, Hold, RequestKey
from lockstate.words.claims import Claims
from lockstate.words.commands.holds import Acquire
from lockstate.words.events import EventKind
from lockstate.words.kinds import HoldKind, IfHeld
from lockstate.words.refusals import Refused
from lockstate.words.results import Granted, Released, Result
from tests.simulation.mutations.mutation import Mutation, Surroundings, replaced

_TREE: Final = ("a", "a/b", "a/b/c", "a/d", "e")
_SESSIONS: Final = Surroundings(minutes=1, client_settings={"vocabulary_share": 0.8, "names": _TREE})

_PERMITS: Final = Surroundings(
    minutes=1,
    client_settings={
        "vocabulary_share": 0.7,
        "names": _TREE,
        "wait_ms": (5_000, 20_000),
        "permits_again_share": 0.8,
    },
)
"""Sessions ask for permits once more before they have been given the first ones."""

_held_again, _take_over, _share = Holds.held_again, Holds._take_over, Holds.share


def _never_refused(holds: Holds, hold: Hold, command: Acquire, key: RequestKey | None) -> Granted | Refused:
    """Renew what was to be refused."""
    if command.if_held is IfHeld.REFUSE:
        command = msgspec.structs.replace(command, if_held=IfHeld.RENEW)
    return _held_again(holds, hold, command, key)


def _not_counted(holds: Holds, hold: Hold, note: str, lock_delay_ms: int, _if_held: IfHeld) -> None:
    """Let one release end what was acquired twice."""
    _take_over(holds, hold, note, lock_delay_ms, IfHeld.RENEW)


def _always_counted(holds: Holds, hold: Hold, note: str, lock_delay_ms: int, _if_held: IfHeld) -> None:
    """Count what was to be renewed."""
    _take_over(holds, hold, note, lock_delay_ms, IfHeld.COUNT)


def _nothing_taken_over(holds: Holds, hold: Hold, _note: str, _lock_delay_ms: int, if_held: IfHeld) -> None:
    """Keep the lock-delay of the first acquire, whatever the second one says."""
    _take_over(holds, hold, "", 0, if_held)


def _release_once_and_for_all(holds: Holds, hold: Hold) -> Result:
    """Say that others still count on it, and end it."""
    told = Released((), hold.details.depth - 1)
    holds.serve(holds.end(hold, EventKind.RELEASED))
    return told


def _share_permits(holds: Holds, hold: Hold, claims: Claims) -> None:
    """Let those of a session that wait for permits share them."""
    wish = wish_of(hold) if hold.kind is HoldKind.SEMAPHORE else None
    for ticket in list(holds.state.wishes.get(wish, NOTHING).values()) if wish else ():
        holds.state.remove_ticket(ticket, claims)
        holds.effects.settle(ticket, holds.granted(hold))
    _share(holds, hold, claims)


HELD_ALREADY: Final = (
    Mutation(
        name="held-refusal-ignored",
        sentence="A session that wants a lock only if it does not hold it is given what it holds.",
        found_by=("reply", "model-state", "model-events"),
        apply=replaced(Holds, "held_again", _never_refused),
        surroundings=_SESSIONS,
        seeds_max=30,
    ),
    Mutation(
        name="acquires-not-counted",
        sentence="One release ends what was acquired twice.",
        found_by=("reply", "model-state", "model-events"),
        apply=replaced(Holds, "_take_over", _not_counted),
        surroundings=_SESSIONS,
    ),
    Mutation(
        name="renewals-counted",
        sentence="A renewed hold needs another release.",
        found_by=("reply", "model-state", "model-events"),
        apply=replaced(Holds, "_take_over", _always_counted),
        surroundings=_SESSIONS,
    ),
    Mutation(
        name="delay-not-taken-over",
        sentence="The lock-delay of a second acquire is ignored.",
        found_by=("reply", "model-state", "model-events", "read-view"),
        apply=replaced(Holds, "_take_over", _nothing_taken_over),
        surroundings=_SESSIONS,
    ),
    Mutation(
        name="counted-release-ends-all",
        sentence="A release that is said to leave the hold ends it.",
        found_by=("reply", "model-state", "model-events"),
        apply=replaced(Holds, "release_once", _release_once_and_for_all),
        surroundings=_SESSIONS,
    ),
    Mutation(
        name="waiting-permits-shared",
        sentence="Two waits of a session for as many permits get one hold.",
        found_by=("queue-told", "reply", "model-state", "model-events"),
        apply=replaced(Holds, "share", _share_permits),
        surroundings=_PERMITS,
        seeds_max=20,
    ),
)
