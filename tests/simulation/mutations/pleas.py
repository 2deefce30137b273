"""Defects of revocation, of what is told of queues, and of limits that need not be known."""

from typing import Final

from lockstate.rules import semaphores
from lockstate.rules.effects import Effects
from lockstate.rules.holds import Holds
from lockstate.rules.pleas import Pleas
from lockstate.tables.records import Hold, Plea, Semaphore, Ticket
from lockstate.words.claims import Claims
from lockstate.words.commands import AcquirePermits, PutOff, Revoke
from lockstate.words.results import Granted, Left, Refused, Result
from tests.simulation.mutations.mutation import Mutation, Surroundings, replaced

_ASKED: Final = Surroundings(minutes=2, client_settings={"vocabulary_share": 0.9, "think_s": 0.15})


def _never_asked(pleas: Pleas, hold: Hold, command: Revoke) -> bool:
    """Forget what was asked before, also if that was to be done earlier."""
    del pleas, hold, command
    return False


def _put_off_again(pleas: Pleas, command: PutOff) -> Result:
    """Let a holder say "not yet" as often as it likes."""
    for plea in pleas._state.pleas.of_hold(command.hold_id).values():
        if plea.is_put_off:
            pleas._state.ledger.change(plea)
            plea.is_put_off = False
    return _put_off(pleas, command)


_put_off = Pleas.put_off


def _released_in_the_end(pleas: Pleas, plea: Plea) -> None:
    """Ask, and let the hold be when the grace is over."""
    pleas._state.pleas.drop(plea)


def _tell_no_reason(effects: Effects, ticket: Ticket, why: Left) -> None:
    """Say of every wait that its time was over."""
    del why
    _tell_left(effects, ticket, Left.TIMED_OUT)


_tell_left = Effects.tell_left


def _begin_for_another(holds: Holds, hold: Hold, claims: Claims, waited_ms: int, ticket: int = 0) -> Granted:
    """Give the wait that ends the number of the newest one."""
    return _begin(holds, hold, claims, waited_ms, ticket and holds.state.next_order - 1)


_begin = Holds.begin


def _any_limit(semaphore: Semaphore, command: AcquirePermits) -> Refused | None:
    """Take who insists on a limit for one who does not."""
    return _check_limit(semaphore, command) if command.permits > semaphore.limit else None


_check_limit = semaphores._check_limit


PLEAS: Final = (
    Mutation(
        name="revocation-postpones-another",
        sentence="A second revocation gives the holder more time.",
        found_by=("reply", "model-state", "model-events"),
        apply=replaced(Pleas, "_is_asked", _never_asked),
        surroundings=_ASKED,
    ),
    Mutation(
        name="put-off-for-ever",
        sentence="A holder puts off a revocation more than once.",
        found_by=("reply", "model-state", "model-events"),
        apply=replaced(Pleas, "put_off", _put_off_again),
        surroundings=_ASKED,
    ),
    Mutation(
        name="revocation-has-no-end",
        sentence="A hold that was to be given up lives on when the grace is over.",
        found_by=("reply", "model-state", "model-events"),
        apply=replaced(Pleas, "end", _released_in_the_end),
        surroundings=_ASKED,
    ),
    Mutation(
        name="left-for-another-reason",
        sentence="A wait ends with the wrong reason.",
        found_by=("model-events",),
        apply=replaced(Effects, "tell_left", _tell_no_reason),
        surroundings=_ASKED,
    ),
    Mutation(
        name="grant-of-another-ticket",
        sentence="A grant names the wrong wait.",
        found_by=("queue-told", "model-events"),
        apply=replaced(Holds, "begin", _begin_for_another),
        surroundings=_ASKED,
    ),
    Mutation(
        name="strict-limit-ignored",
        sentence="A request that insists on another limit of a semaphore is granted.",
        found_by=("reply", "model-state", "model-events"),
        apply=replaced(semaphores, "_check_limit", _any_limit),
        surroundings=_ASKED,
    ),
)
