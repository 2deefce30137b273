"""Several kinds at once: locks, permits of semaphores and places of rate limits, all of them or none.

What is granted is one hold of kind LOCK with one id, one token and one lease: it is renewed, released and put
off as a hold of locks is, and ends as a whole whoever ends it, by whichever of its names. Its `permits` count
what it asked for beside locks, and its `rare` says what that is.

Who waits for several kinds holds nothing. It stands in all its queues, of locks and of semaphores, and goes
when it is its turn in each of them and everything is free at once. Until then nobody overtakes it in any. Its
places of rate limits are taken with the grant and not before. Those whose moment is to come are given back
if the hold ends before it.

A hold of several kinds is never shared: it is not what a session has already that asks for the same again.
Nor can it be converted, which would give its permits another token.
"""

from collections.abc import Sequence

from lockstate.rules.checks import check_attempt, check_lease, check_limit, check_locks, invalid
from lockstate.rules.effects import Effects
from lockstate.rules.holds import admission, grants, waiting
from lockstate.rules.namespace_rules import check_allowed
from lockstate.rules.rates import check_wanted, refuse_wanted
from lockstate.rules.refusals import SESSION_EXPIRED, in_the_way
from lockstate.rules.semaphores import refuse_limit
from lockstate.rules.values import asked_of_hold
from lockstate.tables.freezes import freeze_of
from lockstate.tables.queues import can_go, is_free
from lockstate.tables.rare import Rare
from lockstate.tables.records import (
    Hold,
    HoldOrTicket,
    RequestKey,
    Semaphore,
    Ticket,
    hold_of,
    permits_in,
)
from lockstate.words import limits
from lockstate.words.claims import Claims, claims_of
from lockstate.words.commands.holds import AcquireSeveral
from lockstate.words.ids import OwnerName, attempt_of
from lockstate.words.refusals import Refused
from lockstate.words.results import Result
from lockstate.words.wanted import Uncommon, WantedPermits, WantedRate


class Several:
    """Applies the commands about several kinds at once to one state."""

    def __init__(self, effects: Effects) -> None:
        self._effects = effects
        self._state = effects.state

    def acquire(self, command: AcquireSeveral, key: RequestKey | None = None) -> Result:
        """Grant all, queue or refuse. `key` is the key under which the request is remembered."""
        state = self._state
        refused = (
            check_several(command)
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
        claims = _claims(command)
        refused = (
            self._check_limits(command.permits)
            or refuse_wanted(state, command.rates)
            or admission.check_room(
                state, session, (len(claims) or 1) + len(command.permits) + len(command.rates), command
            )
        )
        if refused is not None:
            return refused
        for wanted in command.permits:
            state.add_semaphore(Semaphore(wanted.name, wanted.limit))
        result = self._ask(command, owner, key, claims)
        for wanted in command.permits:
            state.drop_if_idle(state.semaphores[wanted.name])
        return result

    def _ask(
        self, command: AcquireSeveral, owner: OwnerName, key: RequestKey | None, claims: Claims
    ) -> Result:
        """Grant, queue or refuse what is well formed, for which there is room."""
        state = self._state
        if self._are_all_free(command.permits, claims):
            rare = asked_of_hold(command.uncommon, permits=command.permits)
            return self._begin(self._record(Hold, command, owner, key, rare), command, claims)
        rare = asked_of_hold(command.uncommon, permits=command.permits, rates=command.rates)
        ticket = self._record(Ticket, command, owner, key, rare)
        ticket.order = state.next_order  # the order it would get: it is judged as if it waited
        if can_go(state, ticket, claims):
            # Only those are in the way that come after it, by their priorities.
            return waiting.check_passing(state, ticket) or self._begin(
                hold_of(ticket, state.now_ms), command, claims
            )
        if command.wait_ms == 0:
            return in_the_way(state, claims, permits_in(ticket))
        return waiting.wait(self._effects, ticket, claims, command.wait_ms)

    def _begin(self, hold: Hold, command: AcquireSeveral, claims: Claims) -> Result:
        """Grant it if the rate limits have places in time."""
        taken = grants.take_rates(self._state, hold, command.rates, command.wait_ms)
        if isinstance(taken, Refused):
            return taken
        return grants.begin_several(self._effects, hold, claims, taken, 0)

    def _are_all_free(self, permits: Sequence[WantedPermits], claims: Claims) -> bool:
        """Whether a newcomer can have all of it at once: nobody has any of it, and nobody waits for it."""
        if not is_free(self._state, claims):
            return False
        names = tuple([(one.name, one.permits) for one in permits])
        if self._state.freezes and freeze_of(self._state.freezes, (), names) is not None:
            return False
        semaphores = [(self._state.semaphores[one.name], one.permits) for one in permits]
        return all(not one.queue and one.used + count <= one.limit for one, count in semaphores)

    def _check_limits(self, permits: Sequence[WantedPermits]) -> Refused | None:
        """Refuse more permits than a semaphore has, and new semaphores without a limit or without room."""
        state = self._state
        known = [state.semaphores.get(one.name) for one in permits]
        for wanted, semaphore in zip(permits, known, strict=True):
            limit = semaphore.limit if semaphore is not None else wanted.limit
            refused = refuse_limit(limit, wanted.permits)
            if refused is not None:
                return refused
        new_count = known.count(None)
        if not new_count:
            return None
        count = len(state.semaphores) + len(state.permit_delays)
        others = new_count - 1  # there must be room for the last one behind them
        return limits.check_count(count, limits.SEMAPHORES_COUNT_MAX - others, "semaphores")

    def _record(
        self,
        make: type[HoldOrTicket],
        command: AcquireSeveral,
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
            "",
            command.mode,
            owner,
            command.session_id,
            self._state.now_ms,
            attempt_of(command.hold_id, command.attempt_id),
            key,
            command.scope,
            command.locks,
            permits=len(command.permits) + len(command.rates),
            rare=rare,
        )


def _claims(command: AcquireSeveral) -> Claims:
    """Return the claims of the locks that are asked for, if any."""
    return claims_of("", command.mode, command.scope, command.locks) if command.locks else ()


def check_several(command: AcquireSeveral) -> Refused | None:
    """Return what is wrong with the command itself, or None."""
    asked = command.uncommon
    if asked is not None and asked != Uncommon(asked.lock_delay_ms, asked.note):
        return invalid("value, priority, no_deadline, ask_after_ms: not for several kinds at once")
    return check_things(command) or check_attempt(command) or check_lease(command)


def check_things(command: AcquireSeveral) -> Refused | None:
    """Return why these things cannot be asked for together, or None."""
    locks, permits, rates = command.locks, command.permits, command.rates
    if command.name:
        return invalid("name: use locks, permits and rate_limits instead")
    if not (permits or rates):
        return invalid("permits, rate_limits: one of the two is required; locks alone are acquired as locks")
    if not (locks or permits):
        return invalid("locks, permits: one of the two is required beside rate_limits")
    if len(locks) + len(permits) + len(rates) == 1:
        return invalid("permits: a request for several kinds needs two things at least")
    if locks and (refused := check_locks(command)) is not None:
        return refused
    return check_permits(permits) or check_rates(rates)


def check_permits(permits: Sequence[WantedPermits]) -> Refused | None:
    """Return why these permits cannot be asked for together, or None."""
    if len(permits) > limits.PERMITS_COUNT_MAX:
        return invalid(f"permits: {len(permits)}; at most {limits.PERMITS_COUNT_MAX} are allowed")
    for one in permits:
        refused = limits.check_name(one.name) or check_limit(
            limits.SEMAPHORE_LIMIT_MAX if one.limit == 0 else one.limit, one.permits
        )
        if refused is not None:
            return refused
    if len({one.name for one in permits}) < len(permits):
        return invalid("permits: a name is given twice")
    return None


def check_rates(rates: Sequence[WantedRate]) -> Refused | None:
    """Return why these places of rate limits cannot be asked for together, or None."""
    if len(rates) > limits.RATES_COUNT_MAX:
        return invalid(f"rate_limits: {len(rates)}; at most {limits.RATES_COUNT_MAX} are allowed")
    for one in rates:
        refused = check_wanted(one)
        if refused is not None:
            return refused
    if len({one.name for one in rates}) < len(rates):
        return invalid("rate_limits: a name is given twice")
    return None
