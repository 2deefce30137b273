"""Defects of what only few holds have: a value, and no deadline."""

from typing import Final

from lockstate.reads import held
from lockstate.reads.holders import holders_of
from lockstate.rules import values
from lockstate.rules.effects import Effects
from lockstate.rules.holds import grants, reentry, waiting
from lockstate.tables.rare import changed
from lockstate.tables.records import Hold, Ticket, hold_of
from lockstate.tables.state import State
from lockstate.words.claims import Claims
from lockstate.words.commands.holds import ReleaseByValue, RenewByValue
from lockstate.words.results import Granted
from tests.simulation.mutations.mutation import Mutation, Surroundings, replaced

_MARKED: Final = Surroundings(minutes=2, client_settings={"vocabulary_share": 0.9, "think_s": 0.15})


def _begins_alike(state: State, command: ReleaseByValue | RenewByValue) -> Hold | None:
    """Take the first hold whose value begins with what is named."""
    of_name = holders_of(state, command.kind, command.name)
    return next((hold for hold in of_name if hold.details.value.startswith(command.value)), None)


def _also_lists(state: State, command: ReleaseByValue | RenewByValue) -> Hold | None:
    """Take a hold of several locks for one of each of their names."""
    of_name = holders_of(state, command.kind, command.name)
    return next((hold for hold in of_name if hold.details.value == command.value), None)


def _take_no_value(state: State, hold: Hold, value: str, *, is_secret: bool) -> None:
    """Leave a hold the value that it has."""
    del state, hold, value, is_secret


def _without_value(ticket: Ticket, now_ms: int) -> Hold:
    """Forget the value over the wait."""
    hold = _hold_of(ticket, now_ms)
    if hold.kind == "lock":
        hold.rare = changed(hold.rare, value="", is_secret=False)
    return hold


_hold_of = hold_of


def _tell_all(record: Hold | Ticket) -> str:
    """Forget that there are secrets."""
    return "" if isinstance(record, Ticket) else record.details.value


def _taken_openly(state: State, hold: Hold, value: str, *, is_secret: bool) -> None:
    """Take a value and leave it as secret as the one before was."""
    was_secret = hold.details.is_secret
    _take_value(state, hold, value, is_secret=is_secret and was_secret)


_take_value = reentry._take_value


def _count_down(state: State, hold: Hold) -> int | None:
    """Say that nothing is left of what has no deadline."""
    return _remaining_ms(state, hold) or 0


_remaining_ms = held.remaining_ms


def _begin_with_an_end(
    effects: Effects, hold: Hold, claims: Claims, waited_ms: int, ticket: int = 0
) -> Granted:
    """Let what has no deadline end after three seconds."""
    if hold.is_endless:
        hold.ttl_ms = 3_000
    return _begin(effects, hold, claims, waited_ms, ticket)


_begin = grants.begin


HOLD_VALUES: Final = (
    Mutation(
        name="value-that-begins-alike",
        sentence="A hold is ended by a beginning of its value.",
        found_by=("reply", "model-state", "model-events"),
        apply=replaced(values, "hold_with", _begins_alike),
        surroundings=_MARKED,
    ),
    Mutation(
        name="value-ends-a-list",
        sentence="A hold of several locks is ended by its value and one of their names.",
        found_by=("reply", "model-state", "model-events"),
        apply=replaced(values, "hold_with", _also_lists),
        surroundings=_MARKED,
    ),
    Mutation(
        name="second-value-ignored",
        sentence="A hold keeps its first value when its session acquires it with another one.",
        found_by=("reply", "model-state", "model-events"),
        apply=replaced(reentry, "_take_value", _take_no_value),
        surroundings=_MARKED,
    ),
    Mutation(
        name="secret-value-is-told",
        sentence="Events and reads tell a secret value.",
        found_by=("read-view", "model-state", "model-events"),
        apply=replaced(held, "told_value", _tell_all),
        surroundings=_MARKED,
    ),
    Mutation(
        name="secret-value-turns-open",
        sentence="A secret value that takes the place of an open one is told to everybody.",
        found_by=("read-view", "model-state", "model-events"),
        apply=replaced(reentry, "_take_value", _taken_openly),
        surroundings=_MARKED,
    ),
    Mutation(
        name="value-lost-in-the-queue",
        sentence="A hold that was granted after a wait has no value.",
        found_by=("reply", "model-state", "model-events"),
        apply=replaced(waiting, "hold_of", _without_value),
        surroundings=_MARKED,
    ),
    Mutation(
        name="endless-hold-expires",
        sentence="A hold without a deadline has one after all.",
        found_by=("reply", "model-state", "model-events"),
        apply=replaced(grants, "begin", _begin_with_an_end),
        surroundings=_MARKED,
    ),
    Mutation(
        name="endless-hold-says-it-is-over",
        sentence="The holder of a hold without a deadline is told that no time is left.",
        found_by=("reply", "read-view", "model-state", "model-events"),
        apply=replaced(held, "remaining_ms", _count_down),
        surroundings=_MARKED,
    ),
)
