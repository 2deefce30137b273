"""The commands about semaphores: permits with owner, number and lease, granted in order."""

from typing import Final

from lockstate.reads.held import available
from lockstate.rules.checks import check_attempt, check_lease, check_limit
from lockstate.rules.effects import Effects
from lockstate.rules.holds import admission, ends, grants, waiting
from lockstate.rules.namespace_rules import check_allowed
from lockstate.rules.refusals import SESSION_EXPIRED, no_permits
from lockstate.rules.values import asked_of_hold, asked_of_ticket
from lockstate.tables.claim_table import Freed
from lockstate.tables.freezes import freeze_of
from lockstate.tables.rare import Rare
from lockstate.tables.records import Hold, HoldOrTicket, RequestKey, Semaphore, Ticket, permits_in, precedence
from lockstate.words import limits
from lockstate.words.claims import permits_of
from lockstate.words.commands.holds import AcquirePermits
from lockstate.words.commands.primitives import ResizeSemaphore
from lockstate.words.events import Left
from lockstate.words.ids import OwnerName, attempt_of
from lockstate.words.kinds import HoldKind
from lockstate.words.modes import Mode
from lockstate.words.refusals import Reason, Refused
from lockstate.words.results import Resized, Result

NO_LIMIT: Final = Refused(Reason.LIMIT_MISMATCH, "limit: is required, because nobody uses the semaphore yet")


class Semaphores:
    """Applies the commands about semaphores to one state."""

    def __init__(self, effects: Effects) -> None:
        self._effects = effects
        self._state = effects.state

    def acquire(self, command: AcquirePermits, key: RequestKey | None = None) -> Result:
        """Grant, queue or refuse. The first request gives the semaphore its limit."""
        state, effects = self._state, self._effects
        refused = (
            _check(command)
            or admission.check_unused(state, "hold_id", command.hold_id)
            or check_allowed(state, command)
        )
        if refused is not None:
            return refused
        owner, session = command.owner, None
        if command.session_id:
            session = state.sessions.get(command.session_id)
            if session is None:
                return SESSION_EXPIRED
            owner = owner or session.owner
        known = state.semaphores.get(command.name)
        semaphore = known or Semaphore(command.name, command.limit)
        count = len(state.semaphores) + len(state.permit_delays) if known is None else 0
        refused = (
            _check_limit(semaphore, command)
            or admission.check_room(state, session, 1, command)
            or limits.check_count(count, limits.SEMAPHORES_COUNT_MAX, "semaphores")
        )
        if refused is not None:
            return refused
        if state.freezes and freeze_of(state.freezes, (), ((command.name, 0),)) is not None:
            return self._while_frozen(command, owner, key, semaphore)
        if not semaphore.queue and semaphore.used + command.permits <= semaphore.limit:
            state.add_semaphore(semaphore)
            hold = self._record(Hold, command, owner, key, asked_of_hold(command.uncommon))
            return grants.begin(effects, hold, (), 0)
        return self._in_turn(command, owner, key, semaphore)

    def _while_frozen(
        self, command: AcquirePermits, owner: OwnerName, key: RequestKey | None, semaphore: Semaphore
    ) -> Result:
        """Queue or refuse a request, even if there are permits; a new semaphore begins with its queue."""
        if command.wait_ms == 0:
            return no_permits(self._state, semaphore)
        self._state.add_semaphore(semaphore)
        result = waiting.wait(self._effects, self._ticket(command, owner, key), (), command.wait_ms)
        self._state.drop_if_idle(semaphore)
        return result

    def _in_turn(
        self, command: AcquirePermits, owner: OwnerName, key: RequestKey | None, semaphore: Semaphore
    ) -> Result:
        """Grant what fits to who comes before all who wait, or queue or refuse the request."""
        if semaphore.queue and semaphore.used + command.permits <= semaphore.limit:
            ticket = self._ticket(command, owner, key)
            ticket.order = self._state.next_order  # the order it would get: it is judged as if it waited
            if precedence(ticket) < precedence(next(iter(semaphore.queue.values()))):
                return waiting.pass_by(self._effects, ticket, ())
        if command.wait_ms == 0:
            return no_permits(self._state, semaphore)
        return waiting.wait(self._effects, self._ticket(command, owner, key), (), command.wait_ms)

    def _ticket(self, command: AcquirePermits, owner: OwnerName, key: RequestKey | None) -> Ticket:
        """Return the ticket for what `command` asks for, with the place that its priority gives it."""
        return self._record(Ticket, command, owner, key, asked_of_ticket(command.uncommon))

    def _record(
        self,
        make: type[HoldOrTicket],
        command: AcquirePermits,
        owner: OwnerName,
        key: RequestKey | None,
        rare: Rare | None,
    ) -> HoldOrTicket:
        """Return the hold that `command` asks for, or the ticket for it."""
        return make(
            0,
            0,
            command.ttl_ms,
            command.hold_id,
            command.name,
            Mode.EXCLUSIVE,
            owner,
            command.session_id,
            self._state.now_ms,
            attempt_of(command.hold_id, command.attempt_id),
            key,
            kind=HoldKind.SEMAPHORE,
            permits=command.permits,
            rare=rare,
        )

    def resize(self, command: ResizeSemaphore) -> Result:
        """Give a semaphore another limit. Holders keep their permits; waiters that want more are refused."""
        state, effects = self._state, self._effects
        refused = (
            limits.check_name(command.name)
            or check_limit(command.limit)
            or limits.check_text("reason", command.reason, limits.REASON_BYTES_MAX)
        )
        if refused is not None:
            return refused
        semaphore = state.semaphores.get(command.name)
        if semaphore is None:
            return Refused(
                Reason.NOT_HOLDER, "nobody holds a permit or waits for one: the next request sets the limit"
            )
        if command.limit != semaphore.limit:
            effects.tell_resized(command.name, command.limit, command.reason)
        # Nobody waits for more than there were.
        queued = list(semaphore.queue.values()) if command.limit < semaphore.limit else []
        state.resize(semaphore, command.limit)
        freed: Freed = [permits_of(command.name)]
        wanted = [(one, dict(permits_in(one))[command.name]) for one in queued]
        for ticket in [waiter for waiter, permits in wanted if permits > command.limit]:
            detail = f"the semaphore was resized to {command.limit}"
            mismatch = Refused(Reason.LIMIT_MISMATCH, detail, facts={"limit": command.limit})
            freed += ends.end_wait(effects, ticket, Left.LIMIT_MISMATCH, mismatch)
        waiting.serve(effects, freed)
        return Resized(semaphore.limit, available(semaphore))


def _check_limit(semaphore: Semaphore, command: AcquirePermits) -> Refused | None:
    """Refuse a request if the semaphore has another limit than it needs, or would have none."""
    limit = semaphore.limit
    if not limit:
        return NO_LIMIT
    if not command.is_strict:
        return refuse_limit(limit, command.permits)
    if command.limit == limit:
        return None
    detail = f"the semaphore has a limit of {limit}: use that limit, or resize the semaphore"
    return Refused(Reason.LIMIT_MISMATCH, detail, facts={"limit": limit})


def refuse_limit(limit: int, permits: int) -> Refused | None:
    """Refuse more permits than a semaphore has; with limit 0 it has no limit yet."""
    if not limit:
        return NO_LIMIT
    if permits <= limit:
        return None
    detail = f"the semaphore has a limit of {limit}: ask for at most that many permits, or resize it"
    return Refused(Reason.LIMIT_MISMATCH, detail, facts={"limit": limit})


def _check(command: AcquirePermits) -> Refused | None:
    is_open = command.limit == 0 and not command.is_strict
    return (
        limits.check_name(command.name)
        or check_limit(command.permits if is_open else command.limit, command.permits)
        or check_attempt(command)
        or check_lease(command)
    )
