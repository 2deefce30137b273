"""What the changes of a hold have in common: another mode (`conversions`), and more locks (`additions`).

A change waits under an id of its own, which its client cannot choose. One waits at a time, and the hold stays
what it is until then; if the hold ends, so does the wait.
"""

from lockstate.rules.holds import Holds
from lockstate.tables.rare import changed
from lockstate.tables.records import Hold, RequestKey, Ticket
from lockstate.words import limits
from lockstate.words.commands.holds import Change
from lockstate.words.ids import attempt_of
from lockstate.words.modes import Mode, Scope
from lockstate.words.refusals import Refused
from lockstate.words.wanted import Wanted


def check_change(holds: Holds, command: Change) -> Refused | None:
    """Return what is wrong with what all these commands have, or None."""
    return (
        limits.check_made_id("ticket_id", command.ticket_id)
        or limits.check_made_id("attempt_id", command.attempt_id)
        or limits.check_range("wait_ms", command.wait_ms, limits.WAIT_MS_MAX)
        or holds.check_unused("ticket_id", command.ticket_id)
    )


def ticket_for(
    command: Change,
    hold: Hold,
    wanted: tuple[str, Mode, Scope, tuple[Wanted, ...]],
    *,
    now_ms: int,
    key: RequestKey | None,
    is_addition: bool = False,
) -> Ticket:
    """Return the ticket for a change, without an order and a deadline.

    `wanted` are name, mode, scope and locks, as a ticket has them; `key` is that of the request.
    """
    name, mode, scope, locks = wanted
    return Ticket(
        0,
        0,
        0,
        command.ticket_id,
        name,
        mode,
        hold.owner,
        hold.session_id,
        now_ms,
        attempt_of(command.ticket_id, command.attempt_id),
        key,
        scope,
        locks,
        rare=changed(None, note=hold.details.note, is_addition=is_addition),
        changes=hold.hold_id,
    )
