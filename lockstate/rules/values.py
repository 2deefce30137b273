"""Values: a text that marks a hold, by which it can be ended or renewed by who knows no more than that.

"End it if it still has my value" is what other systems offer in the place of ids and sessions. A value may be
secret: then it works like a password, and only its holder is ever told it. So no refusal says more than that
nobody holds the name with this value, whatever there is instead.

A value says nothing of who may have the lock: it decides no grant.
"""

from collections.abc import Callable
from typing import Any, Final

from lockstate.reads.held import remaining_ms
from lockstate.reads.holders import holders_of
from lockstate.rules.checks import check_value, invalid
from lockstate.tables.crowds import is_known_by_value
from lockstate.tables.principals import lease_id_of
from lockstate.tables.rare import Rare, changed
from lockstate.tables.records import Hold
from lockstate.tables.state import State
from lockstate.words import limits
from lockstate.words.commands.holds import Acquisition, Campaign, Release, ReleaseByValue, Renew, RenewByValue
from lockstate.words.kinds import IfHeld
from lockstate.words.refusals import Reason, Refused
from lockstate.words.results import Result
from lockstate.words.wanted import ORDINARY, Uncommon

NOBODY: Final = Refused(Reason.NOT_HOLDER, "nobody holds it with this value")


class Values:
    """Applies the commands that name a hold by its value to one state."""

    def __init__(
        self, state: State, release: Callable[[Release], Result], renew: Callable[[Renew], Result]
    ) -> None:
        """`release` and `renew` apply the commands that name a hold by its id."""
        self._state = state
        self._release = release
        self._renew = renew

    def release(self, command: ReleaseByValue) -> Result:
        """Give back the oldest hold that has the value, as a release of it would."""
        refused = _check(command)
        if refused is not None:
            return refused
        hold = hold_with(self._state, command)
        return NOBODY if hold is None else self._release(Release(hold.hold_id))

    def renew(self, command: RenewByValue) -> Result:
        """Renew the oldest hold that has the value, as a renewal of it would."""
        refused = _check(command)
        if refused is not None:
            return refused
        hold = hold_with(self._state, command)
        if hold is None:
            return NOBODY
        left_ms = (remaining_ms(self._state, hold) or 0) if command.adds else 0
        return self._renew(Renew(hold.hold_id, command.ttl_ms + left_ms, exact=command.exact))


def hold_with(state: State, command: ReleaseByValue | RenewByValue) -> Hold | None:
    """Return the hold of exactly this name that has the value: of several, the one with the lowest token.

    What belongs to another principal than the one that asks is none. Nor is a hold of several things: it
    would end as a whole, and who may use one of its names need not have a right on the others.
    """
    crowd = state.crowds.of(command.kind, command.name)
    if crowd is not None:
        return crowd.with_value(command.value)
    is_foreign = state.principals.is_foreign
    for hold in holders_of(state, command.kind, command.name):
        is_it = is_known_by_value(hold) and hold.details.value == command.value
        if is_it and not is_foreign(lease_id_of(hold)):
            return hold
    return None


def asked_of_hold(asked: Uncommon | None, **more: Any) -> Rare | None:
    """Return what a command asks for a hold that few have, with `more` fields of it."""
    if asked is None and not more:
        return None
    given = asked or ORDINARY
    return changed(
        None,
        note=given.note,
        value=given.value,
        is_secret=given.is_secret,
        lock_delay_ms=given.lock_delay_ms,
        priority=given.priority,
        **more,
    )


def asked_of_ticket(asked: Uncommon | None, if_held: IfHeld = IfHeld.RENEW) -> Rare | None:
    """Return what a command asks for a wait, and for the hold that it becomes, that few have."""
    if asked is None and if_held is IfHeld.RENEW:
        return None
    return asked_of_hold(asked, if_held=if_held, asks=(asked or ORDINARY).asks)


def texts_of(command: Acquisition) -> tuple[str, str]:
    """Return the note and the value that a command gives its hold, "" for what it does not give."""
    if isinstance(command, Campaign):
        return "", command.value
    asked = command.uncommon or ORDINARY
    return asked.note, asked.value


def _check(command: ReleaseByValue | RenewByValue) -> Refused | None:
    if not command.value:
        return invalid("value: must not be empty")
    return limits.check_name(command.name) or check_value(command.value)
