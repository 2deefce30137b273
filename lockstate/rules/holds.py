"""How holds of every kind begin, change and end, and how waiters are let through.

Every grant is made here or, for one free exclusive lock that nobody waits for, by the fast path in
`plain_locks`. That is most grants, and they must be equal: it writes the same records, token and event that
`begin` would, and leaves to `locks` whatever is not plain. The property test runs every history both ways and
compares states and results (tests/property/test_plain_locks.py).

Theory of operation
-------------------

A *hold* is one granted right: to a lock, to several locks together, to permits of a semaphore, or to lead an
election. It has one secret id, one fencing token and one lease, which is its own or its session's. A lock or
an election claims records of names (see `claims`), a semaphore counts permits; beyond that the kinds do not
differ here. Whoever cannot have a hold at once may wait for it: as a *ticket*.

    request --------- begin ---------> hold  <---+ renewed, convert, add, give_up, proclaim
       |                               ^ | |     |
       |                               | | +-----+
       +--- wait ---> ticket --- serve + |
                        |                +--- end ---> gone; after an expiry or a force, its lock-delay stays
                        +--- end_wait ---> refused

What each move relies on and what it keeps true. The sentences in backquotes are functions of `invariants`.

begin       Relies on the caller: nothing is in the way of the claims (`is_free`, `can_go`, or there are the
            permits), so `holders_are_compatible`. Draws the next token: `tokens_are_unique_and_given_out`.
            The lease begins now, also after a wait, and so does the time for which it may be held.
pass_by     Grants a request that comes before everybody who waits for the same (`can_go`). Refuses a grant
            that would close a deadlock: those that it passes wait for what it gets.
wait        Relies on the caller: something is in the way. Refuses a wait that would close a deadlock, and one
            for which there is no room. Enters the ticket in the queue of each of its claims, behind what
            comes before it: `queues_are_right`.
end         Takes a hold out of every table, and the ticket of its change before it: `tables_agree`,
            `claims_are_counted`. After an expiry or a force, the lock-delay begins in the same move, so that
            nobody is granted what the late holder may still be writing to.
hand over   Ends a hold and begins that of its receiver in one move (see `hand_overs`), ahead of all that
            wait. Refused if another hold is in the way, or if it would close a deadlock.
end_wait    Takes a ticket out of every table, and settles its request with a refusal.
convert     Gives a hold another mode that nothing is in the way of. The hold keeps its id, and gets a new
            token if the new mode excludes more, and somebody may write (`DRAWING`). Pleas for waits that
            it is not in the way of any more end: `pleas_are_of_holds`.
add         Gives a hold more locks that nothing is in the way of, and the next token: for each of them it
            must be higher than that of everybody who had it before.
give_up     Ends a part of a hold of several locks, with the pleas for it. The rest keeps its token, its lease
            and its pleas.
serve       Lets through every ticket that nothing is in the way of any more, conversions first, then in order
            of arrival, until none is left: `nobody_waits_in_vain`.

Why grants happen where they do: tokens are drawn in `begin`, `convert` and `add`, by the fast path where it
stands for `begin`, and nowhere else. All of these are called from three kinds of places: a command that has
just found its claims free, `serve`, and a hand-over, for which only the hold that it ends is in the way. To
see that a lock has one holder, read those calls. A newcomer waits also for what only an earlier ticket
claims, so it cannot overtake; `precedence` says which one is earlier.

A move that ends something does not serve. It returns what became free, and the command serves once, after
the last of what it ends is gone: while a session is half closed, the tables do not agree and nothing may be
granted. But a command does not return before it has served. So no other command, no revision and no time lies
between an end and the grants that follow from it, and every node that applies the entry makes the same ones.
"""

from collections.abc import Callable, Collection, Container, Iterable
from itertools import islice
from typing import Any, Final

import msgspec

from lockstate.reads import views
from lockstate.rules import deadlocks
from lockstate.rules.effects import Effects
from lockstate.rules.namespace_rules import delay_of, held_ms_max_of, if_held_of, names_asked
from lockstate.rules.rates import Taken, take_together
from lockstate.rules.values import texts_of
from lockstate.tables import budget
from lockstate.tables.blockers import shown_conflicts, shown_covering
from lockstate.tables.claim_table import Freed
from lockstate.tables.freezes import freeze_of
from lockstate.tables.owners import wish_of
from lockstate.tables.principals import bytes_of_texts
from lockstate.tables.queues import can_go, candidates, is_free
from lockstate.tables.rare import PLAIN, changed
from lockstate.tables.rates import Taker
from lockstate.tables.records import (
    NOTHING,
    Ask,
    Hold,
    Permits,
    Plea,
    RequestKey,
    Semaphore,
    Session,
    Ticket,
    each_lock,
    hold_of,
    names_of,
    permits_in,
)
from lockstate.tables.state import State, claims_of_hold
from lockstate.tables.wait_graph import Cycle
from lockstate.words import limits
from lockstate.words.claims import Claims, claims_of, permits_of, semaphore_of, shown_name
from lockstate.words.commands.holds import Acquire, Acquisition
from lockstate.words.events import HELD_TOO_LONG, Event, EventKind, Left
from lockstate.words.ids import NO_ATTEMPT, NO_OWNER, AttemptId, HoldId, OwnerName
from lockstate.words.kinds import HoldKind, IfHeld
from lockstate.words.modes import DRAWING, Mode
from lockstate.words.refusals import Reason, Refused
from lockstate.words.results import Granted, GrantedSeveral, PermitsHeld, Queued, Released
from lockstate.words.views import HolderView
from lockstate.words.wanted import ORDINARY, Wanted, WantedRate

SESSION_EXPIRED: Final = Refused(Reason.SESSION_EXPIRED, "the session has expired or never existed")
LEASE_EXPIRED: Final = Refused(Reason.LEASE_EXPIRED, "the hold has ended or never existed")
_LOCK: Final = HoldKind.LOCK
_SEMAPHORE: Final = HoldKind.SEMAPHORE
_ELECTION: Final = HoldKind.ELECTION
_GRANTED: Final = EventKind.GRANTED
_EXPIRED: Final = EventKind.EXPIRED
_FORCED: Final = EventKind.FORCED
_RELEASED: Final = EventKind.RELEASED
"""Members under names of this module: looking one up in its enumeration costs more than making an event."""

_LEAVE_DELAYS: Final = (_EXPIRED, _FORCED)
"""The ends that a hold's lock-delay follows."""

RETRY_MS: Final = 1000
"""Milliseconds after which to ask again when no lease or delay says it: a table is full, or only waiters are
in the way."""


PLACES_PER_LOOK: Final = 4
"""Places of rate limits that are counted anew in the time in which one holder or waiter is looked at."""


class Holds:
    """Begins and ends holds and waits of one state."""

    def __init__(self, state: State, effects: Effects) -> None:
        self.state = state
        self.effects = effects

    # -- what may be asked for ------------------------------------------------------------------------------

    def check_unused(self, field: str, secret: str) -> Refused | None:
        """Refuse an id that is in use already: ids are random, so whoever made this one made a mistake."""
        state = self.state
        if secret in state.holds or secret in state.tickets or secret in state.sessions:
            return Refused(Reason.INVALID_REQUEST, f"{field}: is in use")
        return None

    def check_room(
        self, session: Session | None, claims_count: int, new: Acquisition | None
    ) -> Refused | None:
        """Refuse the `new` hold that a command asks for if there is no room; or a change of one."""
        state = self.state
        if (
            (session is None or session.claims_count + claims_count <= limits.SESSION_CLAIMS_MAX)
            and len(state.holds) < limits.HOLDS_COUNT_MAX
            and len(state.locks) + len(state.intents) < limits.RECORDS_COUNT_MAX
            and not state.is_tight
            and not state.principals.quotas
            and not state.spaces
        ):
            return None
        if session is not None and session.claims_count + claims_count > limits.SESSION_CLAIMS_MAX:
            held = f"the session has {session.claims_count} claims"
            return Refused(
                Reason.OVERLOADED, f"{held}; {limits.SESSION_CLAIMS_MAX} are allowed", (), 0, RETRY_MS
            )
        return (
            check_count(len(state.holds), limits.HOLDS_COUNT_MAX, "holds")
            or check_count(len(state.claimed), limits.RECORDS_COUNT_MAX, "names")
            or budget.check_room(state)
            or (None if new is None else self._check_quotas(new))
        )

    def _check_quotas(self, new: Acquisition) -> Refused | None:
        """Refuse a new hold for which a quota has no room, of who asks or of a namespace."""
        state = self.state
        names, said_bytes = names_asked(new), bytes_of_texts(*texts_of(new))
        return state.principals.check_named("holds", names, said_bytes) or (
            state.namespaces.check_named("holds", names, said_bytes)
        )

    def check_added(self, hold: Hold, names: Collection[str]) -> Refused | None:
        """Refuse more names to a hold for which a quota has no room, of who asks or of a namespace."""
        state = self.state
        return state.principals.check_named("holds", names) or state.namespaces.check_added(hold, names)

    def check_texts(self, hold: Hold, note: str, value: str) -> Refused | None:
        """Refuse another note or value of a hold for which a quota has no room."""
        state = self.state
        return state.principals.check_texts(hold, note, value) or (
            state.namespaces.check_texts(hold, state.tickets.get(hold.changing), note, value)
            if state.spaces
            else None
        )

    # -- how holds begin ------------------------------------------------------------------------------------

    def begin(self, hold: Hold, claims: Claims, waited_ms: int, ticket: int = 0) -> Granted:
        """Begin a hold that nothing is in the way of: it gets the next token, and its lease begins now.

        `ticket` is the number of the wait that it ends.
        """
        state = self.state
        hold.token = state.next_token
        state.next_token += 1
        if state.spaces and (delay_ms := delay_of(state, hold)) != hold.details.lock_delay_ms:
            hold.rare = changed(hold.rare, lock_delay_ms=delay_ms)
        if hold.ttl_ms:
            hold.order = state.take_order()
            state.start(hold)
            if hold.rare is not None and hold.rare.at_ms:
                hold.expires_at_ms = hold.rare.at_ms + hold.ttl_ms  # before that its holder cannot use it
        lease = state.add_hold(hold, claims)
        if state.spaces:
            self._bound(hold, [hold] if hold.name else views.parts_of(hold))
        kind = EventKind.ELECTED if hold.kind is _ELECTION else _GRANTED
        if hold.name:
            # The same as below for a single thing, which nearly every grant is of, without the calls.
            self.effects.events.append(
                Event(
                    state.revision,
                    state.now_ms,
                    kind,
                    hold.name,
                    hold.mode,
                    hold.owner,
                    hold.token,
                    hold.session_id or hold.hold_id,
                    waited_ms,
                    "",
                    hold.kind,
                    hold.scope,
                    hold.permits,
                    views.told_value(hold),
                    ticket,
                    0,
                    state.principals.of(hold) if state.owners else "",
                )
            )
            if hold.rare is not None or hold.kind is not _LOCK or hold.hold_id in state.pleas.of_holds:
                return self.granted(hold)
            expires_in_ms = lease.expires_at_ms - state.now_ms
            if expires_in_ms <= 0:
                if hold.is_endless:
                    return self.granted(hold)
                expires_in_ms = 0  # overdue, not ended yet
            return Granted(
                hold.hold_id, hold.token, hold.name, hold.mode, expires_in_ms, NO_OWNER, hold.scope
            )
        self.effects.tell(kind, hold, waited_ms, ticket=ticket)
        return self.granted(hold)

    def _bound(self, hold: Hold, granted: Iterable[Hold | views.Part]) -> None:
        """Note until when a hold may have each of these names, which it has just got.

        Only where a namespace says so. The holder is told some time before.
        """
        state = self.state
        since_ms = max(state.now_ms, hold.details.at_ms)
        for part in granted:
            held_ms_max = held_ms_max_of(state, part.name)
            if held_ms_max is None:
                continue
            notice_ms = min(held_ms_max // 2, limits.HELD_NOTICE_MS_MAX)
            bound = Plea(
                state.take_order(),
                since_ms + held_ms_max - notice_ms,
                hold.hold_id,
                part.name,
                part.kind,
                HELD_TOO_LONG,
                notice_ms,
                is_put_off=True,
                is_bound=True,
                is_told=False,
            )
            state.pleas.enter(bound)

    def granted(self, hold: Hold) -> Granted:
        """Return the grant of a hold as its holder is to see it now."""
        state = self.state
        expires_in_ms = views.remaining_ms(state, hold)
        if hold.kind is _LOCK:
            granted = Granted(
                hold.hold_id,
                hold.token,
                hold.name,
                hold.mode,
                expires_in_ms,
                NO_OWNER,
                hold.scope,
                hold.locks,
                value=hold.details.value,
            )
            return self._of_kinds(hold, granted) if hold.permits else granted
        if hold.kind is _SEMAPHORE:
            return self._of_permits(hold, expires_in_ms)
        return Granted(hold.hold_id, hold.token, hold.name, hold.mode, expires_in_ms, hold.owner)

    def _of_permits(self, hold: Hold, expires_in_ms: int | None) -> Granted:
        """Return the grant of permits of a semaphore."""
        semaphore = self.state.semaphores[hold.name]
        return Granted(
            hold.hold_id,
            hold.token,
            hold.name,
            hold.mode,
            expires_in_ms,
            NO_OWNER,
            hold.scope,
            (),
            hold.permits,
            views.available(semaphore),
            0,
            semaphore.limit,
            hold.details.value,
        )

    def _of_kinds(self, hold: Hold, granted: Granted) -> GrantedSeveral:
        """Return the grant of a hold of several kinds."""
        state = self.state
        semaphores = [(state.semaphores[name], count) for name, count in permits_in(hold)]
        return GrantedSeveral(
            **msgspec.structs.asdict(granted),
            held=tuple(
                [PermitsHeld(one.name, count, views.available(one), one.limit) for one, count in semaphores]
            ),
            at_ms=hold.details.at_ms,
        )

    def renewed(self, hold: Hold, attempt_id: AttemptId, key: RequestKey | None, value: str = "") -> Granted:
        """Renew what a session holds already, and hand it to the attempt that asks for it again.

        A leader says `value` from now on.
        """
        self.state.extend(self.state.lease_of(hold))
        return self._passed_on(hold, attempt_id, key, value)

    def held_again(self, hold: Hold, command: Acquire, key: RequestKey | None) -> Granted | Refused:
        """Renew, count or refuse what a session holds already. Note, delay and value are taken if given."""
        if_held = if_held_of(self.state, command)
        if if_held is IfHeld.REFUSE and hold.details.depth:
            return refused_as_held(hold)
        asked, has = command.uncommon or ORDINARY, hold.details
        refused = self.check_texts(hold, asked.note or has.note, asked.value or has.value)
        if refused is not None:
            return refused
        self.state.extend(self.state.lease_of(hold))
        self._take_over(hold, asked.note, asked.lock_delay_ms, if_held)
        self._take_value(hold, asked.value, is_secret=asked.is_secret)
        return self._passed_on(hold, command.attempt_id, key, "")

    def _take_value(self, hold: Hold, value: str, *, is_secret: bool) -> None:
        """Let a hold have the value, if there is one, that another acquire of it gives."""
        if value:
            self._change(hold, value=value, is_secret=is_secret)

    def _take_over(self, hold: Hold, note: str, lock_delay_ms: int, if_held: IfHeld) -> None:
        """Let a hold say and do what another acquire of it asks for, or the first of one handed over."""
        has = hold.details
        if note or lock_delay_ms:
            self._change(hold, note=note or has.note, lock_delay_ms=lock_delay_ms or has.lock_delay_ms)
            self._change(hold, lock_delay_ms=delay_of(self.state, hold))
        if if_held is IfHeld.COUNT or not has.depth:
            self._change(hold, depth=has.depth + 1)

    def _change(self, hold: Hold, **fields: Any) -> None:
        """Let a hold have other details (see `rare`) from now on. What they say counts."""
        state, rare = self.state, changed(hold.rare, **fields)
        says = rare or PLAIN
        if state.owners:
            state.principals.count_texts(hold, says.note, says.value)
        if state.spaces:
            state.namespaces.count_texts(hold, state.tickets.get(hold.changing), says.note, says.value)
        state.set_rare(hold, rare)

    def release_once(self, hold: Hold) -> Released:
        """Count one release of a hold that takes several."""
        depth = hold.details.depth - 1
        self._change(hold, depth=depth)
        return Released((), depth)

    def uncount(self, hold: Hold) -> None:
        """Take back the newest counted acquire; what was counted before is not its own to undo.

        The attempt is forgotten: a second cancel of it, which does come, finds nothing to take back.
        """
        self.release_once(hold)
        hold.attempt_id = NO_ATTEMPT

    def _passed_on(self, hold: Hold, attempt_id: AttemptId, key: RequestKey | None, value: str) -> Granted:
        state = self.state
        state.ledger.change(hold)
        hold.attempt_id, hold.request = attempt_id, key
        if hold.details.attempts:
            self._change(hold, attempts=())
        if hold.kind is _ELECTION:
            self.proclaim(hold, value)
        return msgspec.structs.replace(self.granted(hold), depth=hold.details.depth)

    def proclaim(self, hold: Hold, value: str) -> None:
        """Set what a leader says; nothing happens if it says that already."""
        if value != hold.details.value:
            self._change(hold, value=value)
            self.effects.tell(EventKind.ELECTED, hold, 0)

    def check_passing(self, ticket: Ticket) -> Refused | None:
        """Refuse a grant by which some of those that wait behind it would wait for ever."""
        cycle = deadlocks.find(self.state, ticket)
        return None if cycle is None else refused_for(cycle)

    def pass_by(self, ticket: Ticket, claims: Claims) -> Granted | Refused:
        """Grant at once what only later waiters are in the way of, unless some would wait for ever then.

        The session may be among them with the same wish, which is granted with it.
        """
        refused = self.check_passing(ticket)
        if refused is not None:
            return refused
        hold = hold_of(ticket, self.state.now_ms)
        granted = self.begin(hold, claims, 0)
        self.share(hold, claims)
        return granted

    def wait(self, ticket: Ticket, claims: Claims, wait_ms: int) -> Queued | Refused:
        """Queue a ticket that cannot go at once, unless it would wait for ever or there is no room."""
        state = self.state
        ticket.order, ticket.expires_at_ms = state.take_order(), state.now_ms + wait_ms
        cycle = deadlocks.find(state, ticket)
        if cycle is not None:
            return refused_for(cycle)
        refused = (
            check_count(len(state.tickets), limits.TICKETS_COUNT_MAX, "waiters")
            or check_count(len(state.claimed), limits.RECORDS_COUNT_MAX, "names")
            or state.principals.check("waits")
            or (state.namespaces.check("waits", names_of(ticket)) if state.spaces else None)
        )
        if refused is not None:
            return refused
        queue_length = self._queue_length(ticket, claims)
        if queue_length >= limits.QUEUE_LENGTH_MAX:
            detail = f"{queue_length} wait already; no more are allowed"
            return Refused(Reason.QUEUE_FULL, detail, (), queue_length, RETRY_MS)
        position = views.newcomer_position(state, ticket, claims, queue_length)
        ticket.origin = state.asking
        state.add_ticket(ticket, claims)
        if (asks := ticket.details.asks) is not None:
            state.pleas.enter_ask(Ask(state.take_order(), state.now_ms + asks.ask_after_ms, ticket.hold_id))
        self.effects.tell(EventKind.QUEUED, ticket, 0)
        return Queued(ticket.hold_id, position)

    def _queue_length(self, ticket: Ticket, claims: Claims) -> int:
        if not ticket.permits:
            return views.queue_length(self.state, claims)
        queues = [len(self.state.semaphores[name].queue) for name, _ in permits_in(ticket)]
        return max([*queues, views.queue_length(self.state, claims)])

    # -- how things end -------------------------------------------------------------------------------------

    def end(self, hold: Hold, kind: EventKind, reason: str = "", delay_ms: int = 0) -> Freed:
        """End a hold, record the event, and return what became free.

        A hold that its holder did not end leaves a lock-delay: the longer of its own and of the force's.
        """
        state = self.state
        principal = state.principals.of(hold) if state.owners else ""
        by = state.principals.asking if kind is _FORCED else ""
        if hold.changing:
            freed = self.end_wait(state.tickets[hold.changing], Left.LEASE_EXPIRED, LEASE_EXPIRED)
            freed += state.remove_hold(hold)
        else:
            freed = state.remove_hold(hold)
        delay_ms = max(hold.details.lock_delay_ms, delay_ms)
        if delay_ms and kind in _LEAVE_DELAYS:
            for lock in each_lock(hold) if hold.kind is not _SEMAPHORE else ():
                state.set_delay(lock.name, lock.scope, delay_ms, principal)
            for name, count in permits_in(hold):
                state.withhold_permits(name, count, delay_ms, principal)
        if kind is _RELEASED and hold.kind is _ELECTION:
            kind = EventKind.RESIGNED
        if not hold.name:
            self.effects.tell(kind, hold, state.now_ms - hold.since_ms, reason)
            self._disown(hold)
            return freed
        self.effects.events.append(
            Event(
                state.revision,
                state.now_ms,
                kind,
                hold.name,
                hold.mode,
                hold.owner,
                hold.token,
                hold.session_id or hold.hold_id,
                state.now_ms - hold.since_ms,
                reason,
                hold.kind,
                hold.scope,
                hold.permits,
                views.told_value(hold),
                0,
                0,
                principal,
                by,
            )
        )
        if principal:
            self._disown(hold)
        return freed

    def _disown(self, record: Hold | Ticket) -> None:
        """Forget whose something was that is gone, unless it was its session's or only a change."""
        if not record.session_id and not (isinstance(record, Ticket) and record.changes):
            self.state.principals.drop(record.hold_id)

    def end_wait(self, ticket: Ticket, why: Left, refusal: Refused | None = None) -> Freed:
        """End a wait with a refusal, by default one that says what is in the way; return what became free."""
        state = self.state
        claims, permits = claims_of_hold(ticket), permits_in(ticket)
        position = views.last_position(state, ticket) if why is Left.TIMED_OUT else 0
        freed = state.remove_ticket(ticket, claims)
        self.effects.settle(ticket, refusal or self.in_the_way(claims, permits, (ticket.changes,)), position)
        self.effects.tell_left(ticket, why)
        if state.owners:
            self._disown(ticket)
        return freed

    def in_the_way(self, claims: Claims, permits: Permits, but: Container[HoldId] = ()) -> Refused:
        """Return the refusal that says who is in the way, except `but`, and when to ask again.

        Of several kinds it tells of the locks if one of them cannot be had, else of a semaphore.
        """
        if self.state.freezes and (refused := frozen(self.state, claims, permits)) is not None:
            return refused
        if not permits or (claims and not is_free(self.state, claims)):
            return self.lock_held(claims, but)
        semaphores = [(self.state.semaphores[name], count) for name, count in permits]
        lacking = [one for one, count in semaphores if one.queue or one.used + count > one.limit]
        return self.no_permits((lacking or [semaphores[0][0]])[0])

    def lock_held(self, claims: Claims, but: Container[HoldId] = ()) -> Refused:
        """Return the refusal that says who is in the way of `claims`, except `but`, and when to ask again."""
        state = self.state
        if state.freezes and (refused := frozen(state, claims)) is not None:
            return refused
        in_the_way = shown_conflicts(state, claims, but)
        named = in_the_way or shown_covering(state, claims)
        holders = tuple([views.holder_view(state, hold, shown_name(name)) for name, hold in named])
        delays_ms = views.delays_ms(state, claims)
        if in_the_way:
            detail = f"held by {holders[0].owner}"
        elif delays_ms:
            detail = "delayed after an expiry or a forced release"
        else:
            detail = "others wait for it"
        waits_ms = _known(holders) + delays_ms
        retry_after_ms = _pause_ms(waits_ms)
        return Refused(Reason.LOCK_HELD, detail, holders, views.queue_length(state, claims), retry_after_ms)

    def no_permits(self, semaphore: Semaphore) -> Refused:
        """Return the refusal that says who has the permits, and when to ask again."""
        state = self.state
        if state.freezes and (refused := frozen(state, (), ((semaphore.name, 0),))) is not None:
            return refused
        first = islice(semaphore.holders.values(), limits.HOLDERS_SHOWN_MAX)
        holders = tuple([views.holder_view(state, hold, semaphore.name, _SEMAPHORE) for hold in first])
        available = max(views.available(semaphore), 0)
        others = ", and others wait" if semaphore.queue else ""
        waits_ms = _known(holders)
        first_delays = islice(semaphore.delays.values(), limits.HOLDERS_SHOWN_MAX)
        waits_ms += [delay.expires_at_ms - state.now_ms for delay in first_delays]
        return Refused(
            Reason.NO_PERMITS,
            f"{available} of {semaphore.limit} permits are available{others}",
            holders,
            len(semaphore.queue),
            _pause_ms(waits_ms),
            (),
            {"available": available, "limit": semaphore.limit},
        )

    # -- how waiters are let through ------------------------------------------------------------------------

    def serve(self, freed: Freed) -> None:
        """Let through, in order of arrival, every waiter that nothing is in the way of any more."""
        state = self.state
        if state.rates.stale:
            state.searched_count += state.rates.settle(state.now_ms) // PLACES_PER_LOOK
        if len(freed) == 1:
            semaphore = state.semaphores.get(semaphore_of(freed[0][0]))
            if semaphore is not None and not semaphore.queue:
                state.drop_if_idle(semaphore)  # the same as below, without the calls
                return
        for ticket in candidates(state, freed):
            if ticket.hold_id not in state.tickets:
                continue  # it waited for several locks, and went when another of them was looked at
            claims = claims_of_hold(ticket)
            if not can_go(state, ticket, claims):
                continue
            if ticket.permits and ticket.is_of_kinds:
                freed += self._let_several_through(ticket, claims)
            else:
                freed += self._let_through(ticket, claims)
        self._drop_idle(freed)

    def _drop_idle(self, ended: Freed) -> None:
        """Forget the semaphores of what has ended that nobody uses any more."""
        for name, _ in ended:
            if semaphore := self.state.semaphores.get(semaphore_of(name)):
                self.state.drop_if_idle(semaphore)

    def _let_through(self, ticket: Ticket, claims: Claims) -> Freed:
        """End a wait with a grant; return what became free, which only a conversion can cause."""
        state = self.state
        state.remove_ticket(ticket, claims)
        if ticket.changes:
            hold, freed = state.holds[ticket.changes], []
            number = ticket.order
            if ticket.is_addition:
                self.add(hold, ticket.locks, state.now_ms - ticket.since_ms, number)
            else:
                freed = self.convert(hold, ticket.mode, ticket.locks, claims, number)
            self.effects.settle(ticket, self.granted(hold))
            return freed
        hold = hold_of(ticket, state.now_ms)
        waited_ms = state.now_ms - ticket.since_ms
        self.effects.settle(ticket, self.begin(hold, claims, waited_ms, ticket.order))
        self.share(hold, claims)
        return []

    def _let_several_through(self, ticket: Ticket, claims: Claims) -> Freed:
        """End a wait for several kinds: with a grant, or a refusal if a rate limit has no place in time.

        Return what it does not keep any more: its places in the queues, or all that it stood in the way of.
        """
        state = self.state
        taken = self.take_rates(ticket, ticket.details.rates, ticket.expires_at_ms - state.now_ms)
        if isinstance(taken, Refused):
            is_other = taken.reason is Reason.LIMIT_MISMATCH
            return self.end_wait(ticket, Left.LIMIT_MISMATCH if is_other else Left.RATE_LIMITED, taken)
        state.remove_ticket(ticket, claims)
        waited_ms = state.now_ms - ticket.since_ms
        hold = hold_of(ticket, state.now_ms)
        self.effects.settle(ticket, self.begin_several(hold, claims, taken, waited_ms, ticket.order))
        return [permits_of(name) for name, _ in permits_in(ticket)]

    def take_rates(self, by: Hold | Ticket, wanted: tuple[WantedRate, ...], wait_ms: int) -> Taken | Refused:
        """Take from rate limits for a hold, all or none, within what is left of its wait."""
        taker = Taker((by.hold_id,), principal=self.state.principals.of(by))
        return take_together(self.state, wanted, max(wait_ms, 0), taker)

    def begin_several(
        self,
        hold: Hold,
        claims: Claims,
        taken: Taken,
        waited_ms: int,
        ticket: int = 0,
    ) -> Granted:
        """Begin a hold of several kinds, for which there are the permits, and the rates have been `taken`."""
        at_ms, used = taken
        if at_ms > self.state.now_ms:
            hold.rare = changed(hold.rare, at_ms=at_ms)
        granted = self.begin(hold, claims, waited_ms, ticket)
        return msgspec.structs.replace(granted, rates=used)

    def share(self, hold: Hold, claims: Claims) -> None:
        """Give a hold to all other tickets of its session that want the same, for acquire is reentrant.

        What they free needs no serving: the hold claims the same. Their leases are not renewed, for their
        clients have given no sign of life since they asked.
        """
        state = self.state
        if hold.kind is _SEMAPHORE:
            return
        wish = wish_of(hold)
        for ticket in list(state.wishes.get(wish, NOTHING).values()) if wish else ():
            asked = ticket.details
            if asked.if_held is IfHeld.REFUSE and hold.details.depth:
                self.end_wait(ticket, Left.ALREADY_HELD, refused_as_held(hold))
                continue
            state.remove_ticket(ticket, claims)
            self._take_over(hold, asked.note, asked.lock_delay_ms, asked.if_held)
            if hold.kind is not _ELECTION:
                self._take_value(hold, asked.value, is_secret=asked.is_secret)
            granted = self._passed_on(hold, ticket.attempt_id, ticket.request, asked.value)
            self.effects.settle(ticket, granted)
            self.effects.tell_left(ticket, Left.SHARED)

    def convert(
        self, hold: Hold, mode: Mode, locks: tuple[Wanted, ...], claims: Claims, ticket: int = 0
    ) -> Freed:
        """Give a hold another mode that nothing is in the way of; return what became free.

        `ticket` is the number of the wait that this ends.

        A hold that may write from now on, or is protected against a writer that it was not, gets a new token:
        the old one may be lower than that of another who has left since, and what the lock protects would
        refuse it as stale. From shared to update nothing of that happens.
        """
        state = self.state
        token = hold.token
        if _draws_token(hold, mode):
            token = state.next_token
            state.next_token += 1
        state.namespaces.count_hold(hold, -1)
        freed = state.reclaim(hold, claims, token)
        state.ledger.change(hold)
        hold.mode, hold.locks = mode, locks
        state.namespaces.count_hold(hold, 1)
        if state.pleas:
            self._drop_obeyed(hold)
        self.effects.tell(EventKind.CONVERTED, hold, state.now_ms - hold.since_ms, ticket=ticket)
        return freed

    def _drop_obeyed(self, hold: Hold) -> None:
        """End the pleas to a hold that is not any more in the way of the waits for which they were made."""
        pleas, tickets = self.state.pleas, self.state.tickets_in_order
        for plea in list(pleas.of_hold(hold.hold_id).values()):
            ticket = tickets.get(plea.ticket)
            if ticket is not None and not views.is_in_the_way(hold, ticket, plea.kind, plea.name):
                pleas.drop(plea)

    def add(self, hold: Hold, more: tuple[Wanted, ...], waited_ms: int = 0, ticket: int = 0) -> None:
        """Give a hold `more` locks that nothing is in the way of; `ticket` is the number of the wait for it.

        All of the hold is told of: what is new as granted, what it had as converted, for the token is another
        one. Nothing becomes free.
        """
        state = self.state
        had, locks = tuple(each_lock(hold)), (*each_lock(hold), *more)
        token = state.next_token
        state.next_token += 1
        state.count_hold(hold, -1)
        state.claim_more(hold, claims_of("", hold.mode, hold.scope, locks), token)
        state.ledger.change(hold)
        hold.locks = locks
        state.count_hold(hold, 1)
        self._change(hold, lock_delay_ms=delay_of(state, hold))
        if state.spaces:
            self._bound(hold, [views.Part(_LOCK, lock.name) for lock in more])
        self.effects.tell(EventKind.CONVERTED, hold, state.now_ms - hold.since_ms, locks=had)
        self.effects.tell(_GRANTED, hold, waited_ms, locks=more, ticket=ticket)

    def give_up(self, hold: Hold, gone: tuple[Wanted, ...], kept: tuple[Wanted, ...]) -> Freed:
        """End a part of a hold of several locks, record the event, and return what became free."""
        state = self.state
        freed = state.reclaim(hold, claims_of(hold.name, hold.mode, hold.scope, kept), hold.token)
        for lock in gone if state.pleas else ():
            for plea in state.pleas.of_name(hold.hold_id, _LOCK, lock.name):
                state.pleas.drop(plea)
        self.effects.tell(_RELEASED, hold, state.now_ms - hold.since_ms, locks=gone)
        state.ledger.change(hold)
        state.count_hold(hold, -1)
        hold.locks = kept
        state.count_hold(hold, 1)
        return freed


def _draws_token(hold: Hold, mode: Mode) -> bool:
    """Whether any lock of a hold needs a new token with this mode."""
    if not hold.locks:
        return (hold.mode, mode) in DRAWING
    return any((lock.mode, mode) in DRAWING for lock in hold.locks)


def _pause_ms(waits_ms: list[int]) -> int:
    """Return when to ask again, if what is in the way ends after these times: within a second.

    Holders release long before their leases end.
    """
    return max(1, min([*waits_ms, RETRY_MS]))


def _known(holders: Iterable[HolderView]) -> list[int]:
    """Return when holds end, of those that have a deadline."""
    return [holder.expires_in_ms for holder in holders if holder.expires_in_ms is not None]


def held_already(
    state: State,
    session: Session,
    owner: OwnerName,
    holders: Collection[Hold],
    is_wanted: Callable[[Hold], bool],
) -> Hold | None:
    """Return the wanted hold among `holders` that `session` has as `owner` already, or None."""
    mine = session.holds_of(owner)
    known = mine.values() if len(mine) < len(holders) else holders
    state.searched_count += len(known)
    found = [
        hold
        for hold in known
        if hold.session_id == session.session_id and hold.owner == owner and is_wanted(hold)
    ]
    return min(found, key=lambda hold: hold.token, default=None)


def check_count(count: int, count_max: int, what: str) -> Refused | None:
    """Refuse more of something than the cluster may have."""
    if count < count_max:
        return None
    return Refused(Reason.OVERLOADED, f"the cluster has {count} {what}; no more are allowed", (), 0, RETRY_MS)


def refuse_kind(state: State, hold: Hold, kind: HoldKind) -> Refused:
    """Return the refusal of a command that takes a hold for one of another kind."""
    holder = views.holder_view(state, hold, views.parts_of(hold)[0].name)
    return Refused(Reason.WRONG_KIND, f"hold_id: its kind is {hold.kind}, not {kind}", (holder,))


def frozen(state: State, claims: Claims, permits: Permits = ()) -> Refused | None:
    """Refuse what a freeze is in the way of; the refusal says why, and when to ask again."""
    freeze = freeze_of(state.freezes, claims, permits)
    if freeze is None:
        return None
    why = f": {freeze.reason}" if freeze.reason else ""
    left_ms = freeze.expires_at_ms - state.now_ms if freeze.expires_at_ms else RETRY_MS
    return Refused(Reason.FROZEN, f"{freeze.prefix!r} is frozen{why}", retry_after_ms=_pause_ms([left_ms]))


def refused_as_held(hold: Hold) -> Refused:
    """Return the refusal of an acquire that must not find its session holding the same already."""
    return Refused(Reason.ALREADY_HELD, f"the session holds it already, with token {hold.token}")


def refused_for(cycle: Cycle) -> Refused:
    """Return the refusal that names a deadlock."""
    steps = cycle.steps[: limits.CYCLE_SHOWN_MAX]
    way = ", ".join(f"{step.owner} waits for {step.name}" for step in steps)
    reason = Reason.CONVERSION_DEADLOCK if cycle.is_of_conversions else Reason.DEADLOCK
    return Refused(reason, f"would wait for ever: {way}", cycle=steps)
