"""The situations in which a machine is most likely to be wrong, and commands that lead into deadlocks."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Final

from lockstate.words.commands.holds import Acquire, AcquirePermits, Acquisition, Campaign
from lockstate.words.events import Event, EventKind
from lockstate.words.ids import NO_HOLD, NO_OWNER, AttemptId
from lockstate.words.kinds import HoldKind
from lockstate.words.modes import Mode, Scope
from lockstate.words.outcomes import Settled
from lockstate.words.refusals import CycleView, QuotaExceeded, Reason, Refused, RefusedInNamespace
from lockstate.words.results import (
    FrameRefused,
    Granted,
    GrantedSeveral,
    LockTaken,
    NumberedDone,
    RatesForgotten,
    Released,
    Resized,
    Result,
    Transacted,
    WaitsAbandoned,
)
from tests.property.model_changes import due
from tests.property.model_deadlock import party, reachable, tickets_needed, to_be_given_back
from tests.property.model_locks import (
    covers,
    delays_in_the_way,
    earlier,
    freeze_over,
    is_left_in,
    parts,
    used,
)
from tests.property.model_namespaces import rows as namespace_rows
from tests.property.model_records import Deadlock, Hold, Key, ModelState, Party

SITUATIONS: Final[dict[str, int]] = {
    "a conversion waits": 150,
    "a conversion stands ahead of a ticket": 80,
    "a conversion is served": 5,
    "a hold is shared": 1,
    "a conversion's hold ends first": 6,
    "two conversions in one's way": 6,
    "a ticket waits for several locks": 250,
    "several locks are served": 8,
    "a part is released": 3,
    "a subtree waits for what is in it": 170,
    "a delay is in the way": 200,
    "a deadlock of one": 20,
    "a deadlock of two": 40,
    "a deadlock of three": 3,
    "a deadlock over permits": 20,
    "a deadlock over an election": 20,
    "a deadlock over a conversion": 4,
    "permits are waited for": 200,
    "permits are served": 12,
    "more permits are used than there are": 20,
    "a resize refuses a waiter": 4,
    "permits stay away": 200,
    "a leader is succeeded": 6,
    "something overdue is left": 100,
    "a wait ends by time": 70,
    "a session expires": 100,
    "a session is ended by force": 10,
    "a wait is ended by force": 10,
    "a delay is lifted": 3,
    "a fence is forgotten": 1,
    "rate limits are forgotten": 4,
    "a rate limit of somebody is forgotten": 1,
    "waits are abandoned": 14,
    "some abandoned waits are left": 2,
    "a number is applied": 60,
    "a number waits": 60,
    "the wait of a number is served": 3,
    "a number comes again": 20,
    "a number comes again while it waits": 3,
    "a frame has no effect": 30,
    "a secret is held": 100,
    "a value is waited for": 3,
    "something has no deadline": 100,
    "a ticket stands ahead of an earlier one": 90,
    "a ticket of a lower priority has become older": 40,
    "permits are queued ahead": 12,
    "a request passes those who wait": 3,
    "a deadlock by passing": 3,
    "a deadlock of others by passing": 2,
    "a wait is frozen": 40,
    "something frozen is refused": 2,
    "a frozen wait ends": 2,
    "a bound is told": 5,
    "something is held too long": 3,
    "a thaw grants": 1,
    "a revocation is withdrawn": 1,
    "a lock is handed to a waiter": 5,
    "a lock is handed to a session": 5,
    "a wait asks by itself": 5,
    "a hold goes on in what is frozen": 30,
    "several kinds are waited for": 100,
    "several kinds are served": 5,
    "several kinds go at once": 50,
    "a moment is reserved for several kinds": 60,
    "several kinds find no rate": 8,
    "a wait for several kinds ends for a rate": 10,
    "a deadlock over several kinds": 15,
    "a place of a rate limit is to come": 60,
    "a place is given back": 3,
    "a place is waited for twice": 3,
    "something of another principal is asked for": 12,
    "a quota is used up": 5,
    "a quota of cells or fences is used up": 1,
    "a quota of bytes is used up": 5,
    "a cell counts for another one than who wrote it": 40,
    "a quota of a namespace is used up": 5,
    "a namespace does not allow it": 5,
    "a namespace counts holds and waits": 20,
    "a hold lies in a namespace that is newer": 20,
    "a transaction takes a lock": 25,
    "a transaction takes what it has ended": 12,
    "a transaction is refused for its locks": 50,
    "a transaction lets a waiter through": 1,
}
"""Each situation, and how often the seeds must lead to it at least: about a third of how often they do."""

_ENDS: Final = {EventKind.RELEASED, EventKind.FORCED}
_ATTEMPT: Final = AttemptId("a1")


def _is_number(key: Key | None) -> bool:
    return key is not None and isinstance(key[1], int)


def _done(result: Result) -> set[type]:
    """Return the kinds of what a transaction has done."""
    return set(map(type, result.results)) if isinstance(result, Transacted) else set()


def _used_up(results: list[Result]) -> set[str]:
    """Return which quotas had no room."""
    return {result.quota for result in results if isinstance(result, QuotaExceeded)}


def _cycles(results: list[Result]) -> list[tuple[CycleView, ...]]:
    return [r.cycle for r in results if isinstance(r, Refused) and r.reason is Reason.DEADLOCK]


def _settled(state: ModelState, reason: Reason) -> list[Settled]:
    return [s for s in state.settled if isinstance(s.result, Refused) and s.result.reason is reason]


def _served(state: ModelState) -> list[tuple[str, Granted]]:
    return [(s.hold_id, s.result) for s in state.settled if isinstance(s.result, Granted)]


def _over(results: list[Result], kind: HoldKind) -> bool:
    return any(step.kind is kind for cycle in _cycles(results) for step in cycle)


def _conversion_deadlock(state: ModelState, results: list[Result]) -> bool:
    """Whether a conversion was refused for a cycle of more than conversions."""
    return any(ticket.converts for ticket, *_ in _deadlocks(state, results))


def _deadlocks(state: ModelState, results: list[Result]) -> list[Deadlock]:
    """Return about those that the entry led to; none if it led to none."""
    return state.deadlocks[-len(results) :] if _cycles(results) else []


def _subtree_waits(state: ModelState) -> bool:
    return any(
        lock.scope is Scope.SUBTREE and any(other.name != lock.name for other in thing.locks)
        for ticket in state.tickets
        if ticket.kind is HoldKind.LOCK
        for lock in ticket.locks
        for thing in to_be_given_back(state, ticket)
        if any(covers(lock, other.name) for other in thing.locks)
    )


_Look = Callable[[ModelState, list[Result]], object]
_LOOKS: Final[dict[str, _Look]] = {
    "a conversion waits": lambda w, _: any(t.converts for t in w.tickets),
    "a conversion stands ahead of a ticket": lambda w, _: any(
        other.converts and other.created > t.created
        for t in w.tickets
        if not t.converts
        for other in earlier(w, t)
    ),
    "a conversion is served": lambda w, _: any(
        waited != granted.hold_id and granted.hold_id not in dict(_served(w))
        for waited, granted in _served(w)
    ),
    "a hold is shared": lambda w, _: any(
        waited != granted.hold_id and granted.hold_id in dict(_served(w)) for waited, granted in _served(w)
    ),
    "a conversion's hold ends first": lambda w, _: _settled(w, Reason.LEASE_EXPIRED),
    "two conversions in one's way": lambda _, results: any(
        isinstance(r, Refused) and r.reason is Reason.CONVERSION_DEADLOCK for r in results
    ),
    "a ticket waits for several locks": lambda w, _: any(len(t.locks) > 1 for t in w.tickets),
    "several locks are served": lambda w, _: any(len(granted.locks) > 1 for _, granted in _served(w)),
    "a part is released": lambda _, results: any(isinstance(r, Released) and r.locks for r in results),
    "a subtree waits for what is in it": lambda w, _: _subtree_waits(w),
    "a delay is in the way": lambda w, _: any(delays_in_the_way(w, t) for t in w.tickets),
    "a deadlock of one": lambda _, results: any(len(c) == 1 for c in _cycles(results)),
    "a deadlock of two": lambda _, results: any(len(c) == 2 for c in _cycles(results)),
    "a deadlock of three": lambda _, results: any(len(c) == 3 for c in _cycles(results)),
    "a deadlock over permits": lambda _, results: _over(results, HoldKind.SEMAPHORE),
    "a deadlock over an election": lambda _, results: _over(results, HoldKind.ELECTION),
    "a deadlock over a conversion": _conversion_deadlock,
    "permits are waited for": lambda w, _: any(t.permits for t in w.tickets),
    "permits are served": lambda w, _: any(granted.permits for _, granted in _served(w)),
    "more permits are used than there are": lambda _, results: any(
        isinstance(r, Resized) and r.available < 0 for r in results
    ),
    "a resize refuses a waiter": lambda w, _: _settled(w, Reason.LIMIT_MISMATCH),
    "permits stay away": lambda w, _: any(d.permits and used(w, d.name) for d in w.delays),
    "a leader is succeeded": lambda w, _: any(granted.owner for _, granted in _served(w)),
    "something overdue is left": lambda w, _: due(w) and due(w)[0][0] < w.now_ms,
    "a wait ends by time": lambda w, _: _settled(w, Reason.LOCK_HELD) or _settled(w, Reason.NO_PERMITS),
    "waits are abandoned": lambda _, results: any(isinstance(r, WaitsAbandoned) and r.ended for r in results),
    "some abandoned waits are left": lambda _, results: any(
        isinstance(r, WaitsAbandoned) and r.left for r in results
    ),
    "a number is applied": lambda _, results: any(isinstance(r, NumberedDone) and r.results for r in results),
    "a number waits": lambda w, _: any(_is_number(t.request) for t in w.tickets),
    "the wait of a number is served": lambda w, _: any(
        isinstance(r.result, Granted) and r.outcome_ms == w.now_ms
        for stream in w.streams.values()
        for r in stream.kept.values()
        if r.result is not None and r.answers_to in dict(_served(w))
    ),
    "a number comes again": lambda w, _: w.numbers_again,
    "a number comes again while it waits": lambda w, _: w.numbers_waiting_again,
    "a frame has no effect": lambda _, results: any(isinstance(r, FrameRefused) for r in results),
    "a ticket stands ahead of an earlier one": lambda w, _: any(
        other.created > t.created and not other.converts for t in w.tickets for other in tickets_needed(w, t)
    ),
    "a ticket of a lower priority has become older": lambda w, _: any(
        other.priority < t.priority for t in w.tickets for other in tickets_needed(w, t)
    ),
    "permits are queued ahead": lambda w, _: any(
        other.created > t.created for t in w.tickets if t.permits for other in tickets_needed(w, t)
    ),
    "something of another principal is asked for": lambda w, _: w.foreign,
    "a quota is used up": lambda _, r: bool(_used_up(r) & {"sessions", "holds", "waits"}),
    "a quota of cells or fences is used up": lambda _, r: bool(_used_up(r) & {"cells", "fences"}),
    "a quota of bytes is used up": lambda _, r: "bytes" in _used_up(r),
    "a cell counts for another one than who wrote it": lambda w, _: any(
        cell.principal != cell.writer for cell in w.cells
    ),
    "a quota of a namespace is used up": lambda _, r: any(
        isinstance(one, RefusedInNamespace) and one.quota for one in r
    ),
    "a namespace does not allow it": lambda _, r: any(
        isinstance(one, RefusedInNamespace) and not one.quota for one in r
    ),
    "a namespace counts holds and waits": lambda w, _: any(
        row.waits and row.holds > row.waits for row in namespace_rows(w)
    ),
    "a hold lies in a namespace that is newer": lambda w, _: any(
        hold is old and hold.token == token
        for namespace in w.namespaces.values()
        for old, token in namespace.holds_before
        for hold in w.holds
    ),
    "a transaction takes a lock": lambda _, results: any(LockTaken in _done(r) for r in results),
    "a transaction takes what it has ended": lambda w, results: (
        any({LockTaken, Released} <= _done(r) for r in results)
        and {e.name for e in w.events if e.kind in _ENDS}
        & {e.name for e in w.events if e.kind is EventKind.GRANTED}
    ),
    "a transaction is refused for its locks": lambda w, _: w.parts_refused,
    "a transaction lets a waiter through": lambda w, results: (
        any(Released in _done(r) for r in results) and _served(w)
    ),
    "a request passes those who wait": lambda w, _: w.passed,
    "a deadlock by passing": lambda w, results: any(len(starts) > 1 for *_, starts in _deadlocks(w, results)),
    "a deadlock of others by passing": lambda w, results: any(
        starts[0] not in reachable(every, starts[0]) for _, every, starts in _deadlocks(w, results)
    ),
    "a session expires": lambda w, _: any(e.kind is EventKind.SESSION_EXPIRED for e in w.events),
    "a session is ended by force": lambda w, _: any(e.kind is EventKind.SESSION_FORCED for e in w.events),
    "a wait is ended by force": lambda w, _: any(e.kind is EventKind.WAIT_FORCED for e in w.events),
    "a delay is lifted": lambda w, _: any(e.kind is EventKind.DELAY_LIFTED for e in w.events),
    "a wait is frozen": lambda w, _: any(freeze_over(w, ticket) for ticket in w.tickets),
    "something frozen is refused": lambda _, results: any(
        isinstance(r, Refused) and r.reason is Reason.FROZEN for r in results
    ),
    "a frozen wait ends": lambda w, _: _settled(w, Reason.FROZEN),
    "a wait asks by itself": lambda w, _: any(
        e.kind is EventKind.REVOKED and e.reason == "a wait needs it" for e in w.events
    ),
    "a revocation is withdrawn": lambda w, _: any(e.kind is EventKind.REVOCATION_WITHDRAWN for e in w.events),
    "a lock is handed to a waiter": lambda w, _: _is_handed_over(w.events, to_waiter=True),
    "a lock is handed to a session": lambda w, _: _is_handed_over(w.events, to_waiter=False),
    "a bound is told": lambda w, _: any(
        e.kind is EventKind.REVOKED and e.reason == "held-too-long" for e in w.events
    ),
    "something is held too long": lambda w, _: any(
        e.kind is EventKind.EXPIRED and e.reason == "held-too-long" for e in w.events
    ),
    "a thaw grants": lambda w, _: any(e.kind is EventKind.THAWED for e in w.events) and _served(w),
    "a hold goes on in what is frozen": lambda w, _: any(
        is_left_in(one.prefix, hold) for one in w.freezes for hold in w.holds
    ),
    "several kinds are waited for": lambda w, _: any(t.is_of_kinds for t in w.tickets),
    "several kinds are served": lambda w, _: any(isinstance(g, GrantedSeveral) for _, g in _served(w)),
    "several kinds go at once": lambda _, results: any(isinstance(r, GrantedSeveral) for r in results),
    "a moment is reserved for several kinds": lambda w, _: any(h.at_ms > w.now_ms for h in w.holds),
    "several kinds find no rate": lambda _, results: any(
        isinstance(r, Refused) and r.reason is Reason.RATE_LIMITED for r in results
    ),
    "a wait for several kinds ends for a rate": lambda w, _: _settled(w, Reason.RATE_LIMITED),
    "a deadlock over several kinds": lambda _, results: any(
        len({step.kind for step in cycle}) > 1 for cycle in _cycles(results)
    ),
    "a place of a rate limit is to come": lambda w, _: w.places(),
    "a place is given back": lambda w, _: w.given_back,
    "a place is waited for twice": lambda w, _: any(len(place.ids) > 1 for _, place in w.places()),
    "a fence is forgotten": lambda w, _: any(e.kind is EventKind.FENCE_FORGOTTEN for e in w.events),
    "rate limits are forgotten": lambda _, results: any(
        isinstance(r, RatesForgotten) and r.count for r in results
    ),
    "a rate limit of somebody is forgotten": lambda w, _: any(
        e.kind is EventKind.RATE_LIMIT_FORGOTTEN and e.principal for e in w.events
    ),
    "a secret is held": lambda w, _: any(hold.is_secret for hold in w.holds),
    "something has no deadline": lambda w, _: any(hold.lease is None for hold in w.holds),
    "a value is waited for": lambda w, _: any(granted.value != "" for _, granted in _served(w)),
}


def seen(state: ModelState, results: list[Result]) -> list[str]:
    """Return which of the situations an entry led to; `results` are those of the machine."""
    return [sight for sight, look in _LOOKS.items() if look(state, results)]


def crossings(state: ModelState) -> list[Acquisition]:
    """Return requests that may close a cycle: by parties that are waited for, for what their waiters hold."""
    wishes: list[Acquisition] = []
    for one in state.holds:
        if one.session_id or one.has_owner:
            waiting = _waiting_for(state, one)
            wishes += [_wish(state, one, other) for other in state.holds if party(other) in waiting]
    return wishes


def _waiting_for(state: ModelState, hold: Hold) -> list[Party]:
    """Return the parties that wait, directly or not, for the one that has `hold`; not that one itself."""
    waited_for = [party(hold)]
    while True:
        more = [
            party(ticket)
            for ticket in state.tickets
            if party(ticket) not in waited_for
            and (
                any(party(item) in waited_for for item in to_be_given_back(state, ticket))
                or any(party(earlier) in waited_for for earlier in tickets_needed(state, ticket))
            )
        ]
        if not more:
            return waited_for[1:]
        waited_for += more


def _wish(state: ModelState, one: Hold, other: Hold) -> Acquisition:
    """Return a wish of the party of `one` for what `other` is of."""
    lock = parts(other)[-1]
    ttl_ms = 0 if one.session_id else 5000
    owner = one.owner if one.has_owner else NO_OWNER
    if lock.kind is HoldKind.SEMAPHORE:
        limit = state.limits[lock.name]
        return AcquirePermits(
            lock.name,
            limit,
            limit,
            NO_HOLD,
            _ATTEMPT,
            session_id=one.session_id,
            ttl_ms=ttl_ms,
            owner=owner,
        )
    if other.kind is HoldKind.ELECTION:
        return Campaign(lock.name, one.session_id, "v1", NO_HOLD, _ATTEMPT, owner=owner)
    return Acquire(
        lock.name,
        Mode.EXCLUSIVE,
        NO_HOLD,
        _ATTEMPT,
        session_id=one.session_id,
        ttl_ms=ttl_ms,
        owner=owner,
        scope=lock.scope,
    )


def _is_handed_over(events: Sequence[Event], *, to_waiter: bool) -> bool:
    """Whether a lock was handed over, and the grant that follows ended a wait."""
    return any(
        one.kind is EventKind.HANDED_OVER and bool(after.ticket) is to_waiter
        for one, after in pairwise(events)
    )
