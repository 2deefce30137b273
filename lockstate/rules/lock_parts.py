"""What transactions do to locks: compare, take, end and renew, by the rules of the commands that do so.

First all of it is looked at, each part as if those before it had been done: what they end is not in its way,
and counts no more; what they take counts already. To count like that, tables of what principals and
namespaces have are changed, and changed back before anything is done or refused.

Clients that wait are served after the last part. So a name that is released and taken again is never free in
between; but nobody overtakes: it cannot be taken if others wait for it.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final, Protocol, assert_never, get_args

import msgspec

from lockstate.reads.held import remaining_ms
from lockstate.reads.holders import holders_of
from lockstate.rules.checks import check_acquire, invalid
from lockstate.rules.effects import Effects
from lockstate.rules.holds import admission, ends, grants, waiting
from lockstate.rules.refusals import LEASE_EXPIRED, lock_held
from lockstate.tables.claim_table import Freed
from lockstate.tables.principals import lease_id_of
from lockstate.tables.queues import can_go
from lockstate.tables.records import Hold, RequestKey, Ticket
from lockstate.words import limits
from lockstate.words.cell_operations import (
    EndOperation,
    LockCompare,
    LockOperation,
    RenewOperation,
    TakeOperation,
)
from lockstate.words.claims import Claims, claims_of_one
from lockstate.words.commands.cells import TransactCells
from lockstate.words.commands.holds import Acquire, Renew
from lockstate.words.events import EventKind
from lockstate.words.ids import NO_HOLD, AttemptId, HoldId, OwnerName
from lockstate.words.kinds import HoldKind
from lockstate.words.modes import CONFLICTS, Mode
from lockstate.words.refusals import Refused
from lockstate.words.results import RELEASED, LockDone, LockTaken, Renewed, Result
from lockstate.words.wanted import Uncommon

LOCK_OPERATIONS: Final[frozenset[type]] = frozenset(get_args(LockOperation))
"""The classes of these: to look one up takes a tenth of what it takes to ask what it is not."""
_EXCLUSIVE: Final = Mode.EXCLUSIVE


def check_lock_part(operation: LockOperation) -> Refused | None:
    """Return what is wrong with an operation, whatever the state, or None."""
    match operation:
        case TakeOperation():
            return check_acquire(_asked(operation))
        case EndOperation():
            return limits.check_text("reason", operation.reason, limits.REASON_BYTES_MAX)
        case RenewOperation():
            return limits.check_ttl(operation.ttl_ms)
        case _:
            assert_never(operation)


def refuse_forced(command: TransactCells) -> Refused | None:
    """Refuse to end holds by force without a name for which the right to do that could be looked up."""
    named = {compare.hold_id for compare in command.compares if isinstance(compare, LockCompare)}
    for operation in command.then:
        if isinstance(operation, EndOperation) and operation.reason and operation.hold_id not in named:
            return invalid("then: a hold that ends by force needs a compare with its name")
    if any(isinstance(operation, EndOperation) and operation.reason for operation in command.otherwise):
        return invalid("else: no hold can be ended by force")
    return None


class Acquires(Protocol):
    """The rules of an acquire, as `Locks` has them."""

    def check(self, command: Acquire) -> Refused | None:
        """Refuse what is not well formed, reuses an id, or is not allowed for its names."""

    def hold(self, command: Acquire, owner: OwnerName, key: RequestKey | None) -> Hold:
        """Return the hold that a command asks for, to be begun."""

    def ticket(self, command: Acquire, owner: OwnerName, key: RequestKey | None) -> Ticket:
        """Return the ticket for what a command asks for."""


class Renewals(Protocol):
    """The rules of a renewal, as `Sessions` has them."""

    def refuse_length(self, hold: Hold, command: Renew) -> Refused | None:
        """Refuse a length that the lease of a hold cannot get."""

    def renew(self, command: Renew) -> Result:
        """Start the lease of a hold anew."""


class LockParts:
    """Does what transactions do to the locks of one state."""

    def __init__(self, effects: Effects, locks: Acquires, renewals: Renewals) -> None:
        self._effects = effects
        self._locks = locks
        self._renewals = renewals
        self._state = effects.state

    def is_true(self, compare: LockCompare) -> bool:
        """Whether just this hold has a name, or nobody has it."""
        state = self._state
        if compare.hold_id:
            return [hold.hold_id for hold in holders_of(state, HoldKind.LOCK, compare.name)] == [
                compare.hold_id
            ]
        claims = claims_of_one(compare.name, _EXCLUSIVE)
        return not any(state.claimed.held_on(name) & CONFLICTS[claim] for name, claim in claims)

    def can_take(self, name: str, ended: HoldId) -> bool:
        """Whether nothing but the hold that ends before, if there is one, is in the way of taking a name."""
        hold = self._state.holds.get(ended)
        asked = Acquire(name, _EXCLUSIVE, NO_HOLD, AttemptId(""))
        return self._can_go(asked, claims_of_one(name, _EXCLUSIVE), {} if hold is None else {ended: hold})

    # -- what is looked at before anything is done ----------------------------------------------------------

    def check(
        self,
        operations: Iterable[LockOperation],
        not_for: tuple[str, ...],
        rest: Callable[[], Refused | None],
    ) -> Refused | None:
        """Return why one of these cannot be done after those before it, or the `rest` after them, or None."""
        ended: dict[HoldId, Hold] = {}
        taken: list[Hold] = []
        refused: Refused | None = None
        for operation in operations:
            refused = self._check(operation, not_for, ended, taken)
            if refused is not None:
                break
        refused = refused or rest()
        for hold in taken:
            self._state.count_hold(hold, -1)
            self._state.principals.drop(hold.hold_id)
        for hold in ended.values():
            self._count_end(hold, 1)
        return refused

    def _check(
        self, operation: LockOperation, not_for: tuple[str, ...], ended: dict[HoldId, Hold], taken: list[Hold]
    ) -> Refused | None:
        if isinstance(operation, TakeOperation):
            asked = _asked(operation, not_for)
            refused = self._check_take(asked, ended, len(taken))
            if refused is None:
                taken.append(self._hold_of(asked))
                taken[-1].token = self._state.next_token
                self._state.count_hold(taken[-1], 1)
            return refused
        hold = self._state.holds.get(operation.hold_id)
        is_forced = isinstance(operation, EndOperation) and bool(operation.reason)
        if hold is None or (not is_forced and self._state.principals.is_foreign(lease_id_of(hold))):
            return LEASE_EXPIRED
        if isinstance(operation, RenewOperation):
            return self._renewals.refuse_length(hold, _renewal(operation))
        if not is_forced and hold.details.depth > 1:
            return invalid(f"hold_id: the hold was acquired {hold.details.depth} times")
        if is_forced and hold.details.lock_delay_ms:
            return None  # what it had is delayed then: it counts as it did, and nobody can take it
        ended[hold.hold_id] = hold
        self._count_end(hold, -1)
        return None

    def _count_end(self, hold: Hold, by: int) -> None:
        """Count a hold, and the wait for a change of it, as gone (-1), or as there again (1)."""
        if hold.changing:
            self._state.count_ticket(self._state.tickets[hold.changing], by)
        self._state.count_hold(hold, by)

    def _check_take(self, asked: Acquire, ended: Mapping[HoldId, Hold], taken_count: int) -> Refused | None:
        """Refuse what an acquire without waiting would be refused."""
        state, claims = self._state, claims_of_one(asked.name, _EXCLUSIVE)
        refused = (
            self._locks.check(asked)
            or admission.check_room(state, None, len(claims), asked)
            or limits.check_count(len(state.holds) + taken_count, limits.HOLDS_COUNT_MAX, "holds")
        )
        if refused is not None:
            return refused
        return None if self._can_go(asked, claims, ended) else lock_held(state, claims, ended)

    def _can_go(self, asked: Acquire, claims: Claims, ended: Mapping[HoldId, Hold]) -> bool:
        """Whether nothing but what has ended is in the way of a hold that somebody asks for last of all."""
        # It has no session, so nobody whom it passes by its priority can wait for what it waits for.
        ticket = self._locks.ticket(asked, asked.owner, None)
        ticket.order = self._state.next_order
        return can_go(self._state, ticket, claims, ended)

    # -- what is done ---------------------------------------------------------------------------------------

    def do(self, operation: LockOperation, not_for: tuple[str, ...], freed: Freed) -> LockDone:
        """Carry out an operation that nothing is in the way of; what it frees is served when all are done."""
        if isinstance(operation, TakeOperation):
            hold = self._hold_of(_asked(operation, not_for))
            grants.begin(self._effects, hold, claims_of_one(hold.name, _EXCLUSIVE), 0)
            return LockTaken(hold.token, remaining_ms(self._state, hold))
        if isinstance(operation, EndOperation):
            kind = EventKind.FORCED if operation.reason else EventKind.RELEASED
            freed += ends.end(self._effects, self._state.holds[operation.hold_id], kind, operation.reason)
            return RELEASED
        renewed = self._renewals.renew(_renewal(operation))
        assert isinstance(renewed, Renewed), "what could refuse it was looked at"
        return renewed

    def serve(self, freed: Freed) -> None:
        """Serve those that wait for what a transaction has freed."""
        if freed or self._state.rates.stale:
            waiting.serve(self._effects, freed)

    def repeated(self, operation: LockOperation, first: LockTaken | Renewed) -> LockTaken | Renewed:
        """Return the outcome that an operation had, with what is left of the lease now."""
        hold = self._state.holds.get(operation.hold_id)
        if hold is None or self._state.principals.is_foreign(lease_id_of(hold)):
            return msgspec.structs.replace(first, expires_in_ms=0)
        return msgspec.structs.replace(first, expires_in_ms=remaining_ms(self._state, hold))

    def _hold_of(self, asked: Acquire) -> Hold:
        """Return the hold that is taken, which is of the principal that asks from now on."""
        principals = self._state.principals
        if principals.asking:
            principals.put(asked.hold_id, principals.asking)
        return self._locks.hold(asked, asked.owner, None)


def _asked(take: TakeOperation, not_for: tuple[str, ...] = ()) -> Acquire:
    """Return the acquire that asks for the same."""
    uncommon = None
    if take.value or not take.ttl_ms:
        uncommon = Uncommon(value=take.value, is_endless=not take.ttl_ms, endless_not_for=not_for)
    return Acquire(
        take.name,
        _EXCLUSIVE,
        take.hold_id,
        AttemptId(take.hold_id),
        ttl_ms=take.ttl_ms,
        owner=take.owner,
        uncommon=uncommon,
    )


def _renewal(operation: RenewOperation) -> Renew:
    """Return the renewal that asks for the same."""
    return Renew(operation.hold_id, operation.ttl_ms, exact=True)
