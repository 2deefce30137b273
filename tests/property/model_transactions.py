"""Transactions in the model: tried on the lists of holds and waits first, then done."""

from lockstate.words.cell_operations import (
    CellCompare,
    DeleteOperation,
    EndOperation,
    GetOperation,
    HoldCompare,
    LockCompare,
    Operation,
    PutOperation,
    RenewOperation,
    TakeOperation,
)
from lockstate.words.commands.cells import TransactCells
from lockstate.words.commands.holds import Acquire
from lockstate.words.events import EventKind
from lockstate.words.ids import AttemptId, HoldId
from lockstate.words.kinds import HoldKind
from lockstate.words.modes import Mode
from lockstate.words.refusals import Reason, Refused
from lockstate.words.results import RELEASED, CellDone, LockDone, LockTaken, Result, Transacted
from lockstate.words.wanted import Uncommon, Wanted
from tests.property.model_acquire import refuse_there, ticket_of
from tests.property.model_cells import do, is_true_of_cell, refuse_puts
from tests.property.model_changes import end_hold, grant, serve
from tests.property.model_locks import delays_in_the_way, holds_in_the_way, is_grantable, names, parts_of
from tests.property.model_namespaces import refuse_named_in, refuse_ttl
from tests.property.model_principals import is_foreign, refuse_named
from tests.property.model_records import Hold, ModelState, Ticket
from tests.property.model_refusals import refuse_now
from tests.property.model_values import mark
from tests.property.model_views import renewed

BAD = Refused(Reason.INVALID_REQUEST, "")
GONE = Refused(Reason.LEASE_EXPIRED, "")


def transact(state: ModelState, command: TransactCells) -> Result:
    """Do one branch of a transaction, or nothing."""
    succeeded = all(_is_true(state, compare) for compare in command.compares)
    branch = command.then if succeeded else command.otherwise
    refused = _try(state, branch, command.endless_not_for)
    if refused is not None:
        return refused
    state.cells_revision += any(
        isinstance(part, PutOperation) or (isinstance(part, DeleteOperation) and state.cell(part.key))
        for part in branch
    )
    results = tuple([_do(state, operation) for operation in branch])
    serve(state)
    return Transacted(succeeded, state.cells_revision, results)


def _is_true(state: ModelState, compare: CellCompare | HoldCompare | LockCompare) -> bool:
    if isinstance(compare, CellCompare):
        return is_true_of_cell(state, compare)
    if isinstance(compare, HoldCompare):
        hold = state.hold(compare.hold_id)
        return hold is not None and not is_foreign(state, hold) and compare.token in {0, hold.token}
    if compare.hold_id:
        has = [one.hold_id for one in state.holds if parts_of(one, HoldKind.LOCK, compare.name)]
        return has == [compare.hold_id]
    ticket = _ticket(state, TakeOperation(compare.name, HoldId("")))
    return not (holds_in_the_way(state, ticket) or delays_in_the_way(state, ticket))


def _try(state: ModelState, branch: tuple[Operation, ...], not_for: tuple[str, ...]) -> Refused | None:
    """Return the refusal of the first part that could not be done after those before it.

    The lists are changed for that as the parts would change them, and are then what they were.
    """
    holds, tickets = state.holds, state.tickets
    state.holds, state.tickets = list(holds), list(tickets)
    ended: list[Hold] = []
    refused: Refused | None = None
    for operation in branch:
        if refused is None and isinstance(operation, TakeOperation):
            refused = _try_take(state, operation, not_for)
            if refused is not None and refused.reason in {Reason.LOCK_HELD, Reason.FROZEN}:
                state.holds, state.tickets = holds, tickets
                refused = refuse_now(state, _ticket(state, operation), *ended)
        elif refused is None and isinstance(operation, EndOperation | RenewOperation):
            refused = _try_with_hold(state, operation, ended)
    state.parts_refused += refused is not None
    puts = [operation for operation in branch if isinstance(operation, PutOperation)]
    refused = refused or refuse_puts(state, [*puts])
    state.holds, state.tickets = holds, tickets
    return refused


def _try_take(state: ModelState, take: TakeOperation, not_for: tuple[str, ...]) -> Refused | None:
    ids: list[str] = [session.session_id for session in state.sessions]
    if take.hold_id in [*ids, *[hold.hold_id for hold in state.holds]] or state.ticket(take.hold_id):
        return BAD
    ticket = _ticket(state, take)
    refused = (
        refuse_there(state, _asked(take, not_for), [take.name])
        or refuse_named(state, "holds", [take.name], take.value)
        or refuse_named_in(state, "holds", [take.name], ticket)
    )
    if refused is not None:
        return refused
    if not is_grantable(state, ticket):
        return Refused(Reason.LOCK_HELD, "")
    state.tickets.append(ticket)  # it counts like the hold
    return None


def _try_with_hold(
    state: ModelState, operation: EndOperation | RenewOperation, ended: list[Hold]
) -> Refused | None:
    hold = state.hold(operation.hold_id)
    is_forced = isinstance(operation, EndOperation) and bool(operation.reason)
    if hold is None or (is_foreign(state, hold) and not is_forced):
        return GONE
    if isinstance(operation, RenewOperation):
        if hold.session_id or hold.lease is None:
            return BAD
        return refuse_ttl(state, operation.ttl_ms, names(hold))
    if hold.depth > 1 and not is_forced:
        return BAD
    if not (is_forced and hold.lock_delay_ms):
        ended.append(hold)
        state.holds.remove(hold)
        state.tickets = [ticket for ticket in state.tickets if ticket.changes is not hold]
    return None


def _do(state: ModelState, operation: Operation) -> CellDone | LockDone:
    if isinstance(operation, PutOperation | DeleteOperation | GetOperation):
        return do(state, operation)
    if isinstance(operation, TakeOperation):
        grant(state, _ticket(state, operation))
        return LockTaken(state.holds[-1].token, state.left_ms(state.holds[-1]))
    hold = state.hold(operation.hold_id)
    assert hold is not None
    if isinstance(operation, EndOperation):
        kind = EventKind.FORCED if operation.reason else EventKind.RELEASED
        end_hold(state, hold, kind, operation.reason)
        return RELEASED
    assert hold.lease is not None
    hold.lease.ttl_ms, hold.lease.expires_at_ms = operation.ttl_ms, 0
    state.restart(hold.lease)
    return renewed(state, hold, hold.token)


def _asked(take: TakeOperation, not_for: tuple[str, ...] = ()) -> Acquire:
    """Return the acquire that asks for the same."""
    rare = Uncommon(value=take.value, is_endless=not take.ttl_ms, endless_not_for=not_for)
    attempt_id = AttemptId(take.hold_id)
    return Acquire(
        take.name,
        Mode.EXCLUSIVE,
        take.hold_id,
        attempt_id,
        ttl_ms=take.ttl_ms,
        owner=take.owner,
        uncommon=rare,
    )


def _ticket(state: ModelState, take: TakeOperation) -> Ticket:
    """Return a ticket for what a transaction takes."""
    command = _asked(take)
    ticket = ticket_of(state, command, HoldKind.LOCK, [Wanted(take.name)])
    mark(ticket, command)
    ticket.ttl_ms, ticket.request = take.ttl_ms, None
    return ticket
