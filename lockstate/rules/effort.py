"""How much of the state a command goes through beyond what it names: what it ends, lets through, looks at.

Nodes count it as load (see `cluster.commands.encoded_command`). Nothing here decides what a command does.
What a command only names, however much that is, its bytes tell.
"""

from collections.abc import Iterable
from itertools import islice
from typing import Final

from lockstate.reads.held import available
from lockstate.reads.holders import holders_of, queue_of
from lockstate.rules.deadlocks import is_waited_for
from lockstate.rules.holds.waiting import PLACES_PER_LOOK
from lockstate.tables.claim_table import claims_of_hold, weight_of
from lockstate.tables.crowds import SEARCHED_MAX
from lockstate.tables.delays import delays_of
from lockstate.tables.owners import order_in
from lockstate.tables.records import CONVERSION, Hold, Lock, Session, Ticket, each_lock, permits_in
from lockstate.tables.state import State
from lockstate.words import limits
from lockstate.words.cell_operations import EndOperation
from lockstate.words.claims import record_name
from lockstate.words.commands.cells import DeleteCells, TransactCells
from lockstate.words.commands.entries import Cancel
from lockstate.words.commands.holds import (
    Acquire,
    AcquirePermits,
    AcquireSeveral,
    Acquisition,
    AddLocks,
    Campaign,
    Convert,
    HandOver,
    Release,
)
from lockstate.words.commands.overrides import (
    ForceCloseSession,
    ForceRelease,
    ForceWaits,
    ForgetRates,
    Freeze,
    LiftDelay,
    Revoke,
    Thaw,
    WithdrawRevocation,
)
from lockstate.words.commands.primitives import ResizeSemaphore
from lockstate.words.commands.sessions import CloseSession, KeepAlive
from lockstate.words.kinds import HoldKind
from lockstate.words.modes import CONFLICTING, Claim, is_intent

_MOVE: Final = 4
"""Claims that end in the time in which one waiter is let through, or one holder asked or forced."""
_LOOKS: Final = 2
"""Holds and waiters that are looked at in the time in which one claim ends."""
_LOCK: Final = HoldKind.LOCK


def of_acquire(state: State, command: Acquire) -> int:
    """Return where it is looked for what the session has already, and for a deadlock if it waits."""
    session = state.sessions.get(command.session_id)
    has_many = session is not None and len(session.holds) > SEARCHED_MAX
    if not (has_many or command.wait_ms):
        return 0
    names = [lock.name for lock in command.locks] or [command.name]
    known = len(holders_of(state, _LOCK, names[0])) if has_many else 0
    return (known + _search(state, command, session, names)) // _LOOKS


def of_permits(state: State, command: AcquirePermits) -> int:
    """Return where it is looked for a deadlock if it waits."""
    session = state.sessions.get(command.session_id)
    return _search(state, command, session, (), (command.name,)) // _LOOKS


def of_several(state: State, command: AcquireSeveral) -> int:
    """Return where it is looked for a deadlock if it waits."""
    session = state.sessions.get(command.session_id)
    locks, permits = [one.name for one in command.locks], [one.name for one in command.permits]
    return _search(state, command, session, locks, permits) // _LOOKS


def of_campaign(state: State, command: Campaign) -> int:
    """Return where it is looked for a deadlock if it waits."""
    session = state.sessions.get(command.session_id)
    return _search(state, command, session, (record_name(HoldKind.ELECTION, command.name),)) // _LOOKS


def of_conversion(state: State, command: Convert) -> int:
    """Return where it is looked for a deadlock if it waits."""
    hold = state.holds.get(command.hold_id)
    names = [name for name, claim in claims_of_hold(hold) if not is_intent(claim)] if hold else []
    return _looked_through(state, names) // _LOOKS if command.wait_ms else 0


def of_addition(state: State, command: AddLocks) -> int:
    """Return where it is looked for a deadlock if it waits."""
    return _looked_through(state, [one.name for one in command.locks]) // _LOOKS if command.wait_ms else 0


def _search(
    state: State,
    command: Acquisition,
    session: Session | None,
    locks: Iterable[str],
    semaphores: Iterable[str] = (),
) -> int:
    """Return how many holders and waiters a request looks through that waits, for it may close a deadlock."""
    if not command.wait_ms:
        return 0
    may_close = session is not None and (session.tickets or is_waited_for(state, session))
    return _looked_through(state, locks, semaphores) if may_close or state.ranked_count else 0


def _looked_through(state: State, locks: Iterable[str], semaphores: Iterable[str] = ()) -> int:
    """Return how many have these or wait for them; of those that have them the search looks at few."""
    found = [(lock.holders_count, lock.queue_length) for name in locks if (lock := state.locks.get(name))]
    known = [state.semaphores.get(name) for name in semaphores]
    found += [(len(one.holders), len(one.queue)) for one in known if one is not None]
    return sum([min(holders, limits.DEADLOCK_STEPS_MAX) + waiters for holders, waiters in found])


def of_release(state: State, command: Release | Cancel) -> int:
    """Return what ends with a hold, who may be let through then, and which places are counted anew."""
    hold = state.holds.get(command.hold_id)
    if hold is None:
        return 0
    if hold.kind is _LOCK and hold.name and state.locks[hold.name].queues is None:
        return 1 + hold.name.count("/")  # the same as below, without the calls
    return weight_of(hold) + _MOVE * _let_through_by(state, hold) + _counted_anew(state, hold.hold_id)


def of_transaction(state: State, command: TransactCells) -> int:
    """Return what ends in either branch, and who may be let through then, as of releases."""
    operations = (*command.then, *command.otherwise)
    ended = [operation.hold_id for operation in operations if isinstance(operation, EndOperation)]
    return sum([of_release(state, Release(hold_id)) for hold_id in ended])


def of_hand_over(state: State, command: HandOver) -> int:
    """Return what ends and who may be let through, as of a release, and where it is looked for a deadlock."""
    hold = state.holds.get(command.hold_id)
    if hold is None:
        return 0
    locks = [lock.name for lock in each_lock(hold)]
    return weight_of(hold) + _MOVE * _let_through_by(state, hold) + _looked_through(state, locks) // _LOOKS


def of_cancel(state: State, command: Cancel) -> int:
    """Return what ends with a wait or a hold, or a place, and who may be let through then."""
    ticket = state.tickets.get(command.hold_id)
    if ticket is None:
        return of_release(state, command) or _counted_anew(state, command.attempt_id)
    return weight_of(ticket) + _MOVE * _let_through_by(state, ticket)


def of_close(state: State, command: CloseSession) -> int:
    """Return what ends with a session."""
    return _of_session(state, state.sessions.get(command.session_id))


def of_force_close(state: State, command: ForceCloseSession) -> int:
    """Return what ends with the session of a public name."""
    return _of_session(state, state.sessions_in_order.get(order_in(command.session_name)))


def of_keepalive(state: State, command: KeepAlive) -> int:
    """Return where it is looked for what the session is to give up."""
    session = state.sessions.get(command.session_id) if state.pleas else None
    return 0 if session is None else min(len(state.pleas), len(session.holds)) // _LOOKS


def of_force(state: State, command: ForceRelease) -> int:
    """Return who is forced by a command that means all holders of a name."""
    return 0 if command.token else _MOVE * len(holders_of(state, command.kind, command.name))


def of_revoke(state: State, command: Revoke) -> int:
    """Return who is asked by a command that means all holders of a name, and who is looked at for that."""
    holders = 0 if command.token else len(holders_of(state, command.kind, command.name))
    return _MOVE * min(holders, limits.REVOKED_PER_COMMAND_MAX) + holders // _LOOKS


def of_withdrawal(state: State, command: WithdrawRevocation) -> int:
    """Return how much is taken back of all holders of a name, and who is looked at for that."""
    holders = 1 if command.token else len(holders_of(state, command.kind, command.name))
    asked = min(len(state.pleas), holders * (limits.PLEAS_PER_NAME_MAX + 1), limits.REVOKED_PER_COMMAND_MAX)
    return _MOVE * asked + holders // _LOOKS if asked else 0


def of_forced_waits(state: State, command: ForceWaits) -> int:
    """Return which waits end, who may be let through then, and who is looked at for that."""
    ticket = state.tickets_in_order.get(command.ticket) if command.ticket else None
    waiting_count = len(queue_of(state, command.kind, command.name))
    if command.ticket:
        ended = 0 if ticket is None else weight_of(ticket) + _MOVE * _let_through_by(state, ticket)
        return ended + waiting_count // _LOOKS
    return 2 * _MOVE * waiting_count


def of_lifting(state: State, command: LiftDelay) -> int:
    """Return how many delays end."""
    return _MOVE * len(delays_of(state, command.kind, command.name))


def of_freeze(state: State, _: Freeze) -> int:
    """Return who is looked at to tell what is left below a prefix, at most."""
    return min(len(state.holds) + len(state.tickets), limits.LIST_ROWS_MAX) // _LOOKS


def of_thaw(state: State, command: Thaw) -> int:
    """Return who may be let through below a prefix, at most."""
    return _MOVE * len(state.tickets) if command.prefix in state.freezes else 0


def of_resize(state: State, command: ResizeSemaphore) -> int:
    """Return who may be let through by more permits, or else who may want too many."""
    semaphore = state.semaphores.get(command.name)
    if semaphore is None:
        return 0
    more = max(command.limit - semaphore.limit + available(semaphore), 0)
    is_less = command.limit < semaphore.limit
    return _MOVE * (len(semaphore.queue) if is_less else min(more, len(semaphore.queue)))


def of_deletion(state: State, command: DeleteCells) -> int:
    """Return how many cells with a prefix go."""
    found = state.cells.below(command.key, b"") if command.is_prefix else ()
    return sum([1 for _ in islice(found, limits.CELLS_DELETED_MAX)])


def of_forgotten_rates(state: State, command: ForgetRates) -> int:
    """Return how many rate limits go, and places of them."""
    found = state.rates.named(command.name, is_prefix=command.is_prefix)
    weights = [1 + len(state.rates.places_of(one)) for one in islice(found, limits.RATES_FORGOTTEN_MAX)]
    return _MOVE * min(sum(weights), limits.RATES_FORGOTTEN_MAX + limits.RATE_PLACES_MAX)


def _of_session(state: State, session: Session | None) -> int:
    if session is None:
        return 0
    ended = session.claims_count + len(state.cells.of_session(session.session_id))
    if not state.rates.by_id:
        return ended
    keys = {place.key for hold_id in session.holds for place in state.rates.by_id.get(hold_id, ())}
    return ended + sum([state.rates.places_count(key) for key in keys]) // (PLACES_PER_LOOK * _LOOKS)


def _counted_anew(state: State, one: str) -> int:
    """Return how long it takes to count rate limits again without the places that have this id."""
    return state.rates.counted_with(one) // (PLACES_PER_LOOK * _LOOKS)


def _let_through_by(state: State, record: Hold | Ticket) -> int:
    """Return how many waiters the end of a hold or a wait may let through together, at most."""
    permits = [(state.semaphores[name].queue, count) for name, count in permits_in(record)]
    locks = [(lock, claim) for name, claim in claims_of_hold(record) if (lock := state.locks.get(name))]
    return sum([min(count, len(queue)) for queue, count in permits]) + sum(
        [
            len(queue)
            for lock, claim in locks
            if lock.queues and _keeps_out(lock, claim, record)
            for slot, queue in lock.queues.items()
            if slot % CONVERSION not in CONFLICTING[slot % CONVERSION]
        ]
    )


def _keeps_out(lock: Lock, claim: Claim, record: Hold | Ticket) -> bool:
    """Whether those who could hold a name together may wait for this hold or waiter alone."""
    if isinstance(record, Hold):
        return lock.holders_count == 1 and not is_intent(claim)
    first = next(iter((lock.queues or {}).get(claim, ())), None)
    return claim in CONFLICTING[claim] and first == record.hold_id
