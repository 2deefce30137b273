"""Values in the model: what a hold is marked with, and what is asked of the hold that has a value."""

import msgspec

from lockstate.words import limits
from lockstate.words.commands.holds import (
    Acquire,
    AcquirePermits,
    Release,
    ReleaseByValue,
    Renew,
    RenewByValue,
)
from lockstate.words.kinds import HoldKind
from lockstate.words.refusals import Reason, Refused
from lockstate.words.results import Granted
from tests.property.model_locks import names
from tests.property.model_principals import is_foreign
from tests.property.model_records import Hold, ModelState, Ticket


def mark(ticket: Ticket, command: Acquire | AcquirePermits) -> None:
    """Let a ticket have what is uncommon of what a command asks for."""
    rare = command.uncommon
    if rare is not None:
        ticket.value, ticket.is_secret, ticket.priority = rare.value, rare.is_secret, rare.priority
        ticket.lock_delay_ms, ticket.note, ticket.asks = rare.lock_delay_ms, rare.note, rare.asks


def take(hold: Hold, ticket: Ticket) -> None:
    """Let a hold have the value of another acquire of it, if that gives one."""
    if ticket.value:
        hold.value, hold.is_secret = ticket.value, ticket.is_secret


def told(thing: Hold | Ticket) -> str:
    """Return the value of something as everybody may know it: of those that wait, only candidates say one."""
    if thing.kind is HoldKind.ELECTION:
        return thing.value
    return thing.value if isinstance(thing, Hold) and not thing.is_secret else ""


def with_value(hold: Hold, granted: Granted) -> Granted:
    """Return a grant with the value, which the holder is told."""
    if hold.kind is HoldKind.ELECTION or not hold.value:
        return granted
    return msgspec.structs.replace(granted, value=hold.value)


def refuse_bad_value(command: Acquire | AcquirePermits) -> list[Refused | None]:
    """Return what is wrong with the value that an acquire gives."""
    asked = command.uncommon
    if asked is None:
        return []
    bad = Refused(Reason.INVALID_REQUEST, "") if asked.is_secret and not asked.value else None
    return [bad, limits.check_text("value", asked.value, limits.HOLD_VALUE_BYTES_MAX)]


def by_id(state: ModelState, command: ReleaseByValue | RenewByValue) -> Release | Renew | Refused:
    """Return the same for the oldest hold of this name and kind alone that has the value."""
    for hold in state.holds:
        is_meant = hold.kind is command.kind and not hold.is_several and names(hold) == [command.name]
        if is_meant and hold.value == command.value and not is_foreign(state, hold):
            if isinstance(command, RenewByValue):
                lease = hold.lease if command.adds else None
                left_ms = 0 if lease is None else max(0, lease.expires_at_ms - state.now_ms)
                return Renew(hold.hold_id, command.ttl_ms + left_ms, exact=command.exact)
            return Release(hold.hold_id)
    return Refused(Reason.NOT_HOLDER, "")
