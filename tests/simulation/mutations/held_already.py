"""Defects of what an acquire does when its session holds that already."""

from typing import Final

import msgspec

from lockstate.rules.effects import Effects
from lockstate.rules.holds import ends, grants, reentry, waiting
from lockstate.rules.locks import Locks
from lockstate.tables.owners import wish_of
from lockstate.tables.records import NOTHING, Hold, RequestKey
from lockstate.tables.state import State
from lockstate.tables.tickets import remove_ticket
from lockstate.words.claims import Claims
from lockstate.words.commands.holds import Acquire, Release
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

_held_again, _take_over, _share = reentry.held_again, reentry._take_over, reentry.share


def _never_refused(
    effects: Effects, hold: Hold, command: Acquire, key: RequestKey | None
) -> Granted | Refused:
    """Renew what was to be refused."""
    if command.if_held is IfHeld.REFUSE:
        command = msgspec.structs.replace(command, if_held=IfHeld.RENEW)
    return _held_again(effects, hold, command, key)


def _not_counted(state: State, hold: Hold, note: str, lock_delay_ms: int, _if_held: IfHeld) -> None:
    """Let one release end what was acquired twice."""
    _take_over(state, hold, note, lock_delay_ms, IfHeld.RENEW)


def _always_counted(state: State, hold: Hold, note: str, lock_delay_ms: int, _if_held: IfHeld) -> None:
    """Count what was to be renewed."""
    _take_over(state, hold, note, lock_delay_ms, IfHeld.COUNT)


def _nothing_taken_over(state: State, hold: Hold, _note: str, _lock_delay_ms: int, if_held: IfHeld) -> None:
    """Keep the lock-delay of the first acquire, whatever the second one says."""
    _take_over(state, hold, "", 0, if_held)


def _release_once_and_for_all(locks: Locks, command: Release) -> Result:
    """Say that others still count on it, and end it."""
    result = _release(locks, command)
    if isinstance(result, Released) and result.depth:
        hold = locks._state.holds[command.hold_id]
        waiting.serve(locks._effects, ends.end(locks._effects, hold, EventKind.RELEASED))
    return result


_release = Locks.release


def _share_permits(effects: Effects, hold: Hold, claims: Claims) -> None:
    """Let those of a session that wait for permits share them."""
    wish = wish_of(hold) if hold.kind is HoldKind.SEMAPHORE else None
    for ticket in list(effects.state.wishes.get(wish, NOTHING).values()) if wish else ():
        remove_ticket(effects.state, ticket, claims)
        effects.settle(ticket, grants.grant_of(effects.state, hold))
    _share(effects, hold, claims)


HELD_ALREADY: Final = (
    Mutation(
        name="held-refusal-ignored",
        sentence="A session that wants a lock only if it does not hold it is given what it holds.",
        found_by=("reply", "model-state", "model-events"),
        apply=replaced(reentry, "held_again", _never_refused),
        surroundings=_SESSIONS,
        seeds_max=30,
    ),
    Mutation(
        name="acquires-not-counted",
        sentence="One release ends what was acquired twice.",
        found_by=("reply", "model-state", "model-events"),
        apply=replaced(reentry, "_take_over", _not_counted),
        surroundings=_SESSIONS,
    ),
    Mutation(
        name="renewals-counted",
        sentence="A renewed hold needs another release.",
        found_by=("reply", "model-state", "model-events"),
        apply=replaced(reentry, "_take_over", _always_counted),
        surroundings=_SESSIONS,
    ),
    Mutation(
        name="delay-not-taken-over",
        sentence="The lock-delay of a second acquire is ignored.",
        found_by=("reply", "model-state", "model-events", "read-view"),
        apply=replaced(reentry, "_take_over", _nothing_taken_over),
        surroundings=_SESSIONS,
    ),
    Mutation(
        name="counted-release-ends-all",
        sentence="A release that is said to leave the hold ends it.",
        found_by=("reply", "model-state", "model-events"),
        apply=replaced(Locks, "release", _release_once_and_for_all),
        surroundings=_SESSIONS,
    ),
    Mutation(
        name="waiting-permits-shared",
        sentence="Two waits of a session for as many permits get one hold.",
        found_by=("queue-told", "reply", "model-state", "model-events"),
        apply=replaced(reentry, "share", _share_permits),
        surroundings=_PERMITS,
        seeds_max=20,
    ),
)
