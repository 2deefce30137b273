"""Lock-delays: what keeps everybody from a name, or from permits, for a while after an end."""

from operator import attrgetter
from typing import Final

from lockstate.tables.claim_table import Freed
from lockstate.tables.records import Delay
from lockstate.tables.state import State
from lockstate.words.claims import claims_of, permits_of
from lockstate.words.kinds import HoldKind
from lockstate.words.modes import Mode, Scope

_LOCK: Final = HoldKind.LOCK
_SEMAPHORE: Final = HoldKind.SEMAPHORE


def set_delay(state: State, name: str, scope: Scope, delay_ms: int, principal: str) -> None:
    """Keep everybody from what a lock covers for `delay_ms`; a longer delay that already runs stays.

    A delay counts for the principal whose hold it follows: of several, for the one that makes it longest.
    """
    until_ms = state.now_ms + delay_ms
    delay = state.delays.get((name, scope))
    if delay is None:
        order = state.take_order()
        enter_delay(
            state, Delay(order=order, expires_at_ms=until_ms, name=name, scope=scope, principal=principal)
        )
    elif until_ms > delay.expires_at_ms:
        state.deadlines.move(delay, until_ms)
        if principal != delay.principal:
            _hand_over(state, delay, principal)


def _hand_over(state: State, delay: Delay, principal: str) -> None:
    """Let a delay count for another principal."""
    state.ledger.change(delay)
    state.principals.count(delay.principal, "holds", delay.name, -1)
    delay.principal = principal
    state.principals.count(principal, "holds", delay.name, 1)


def withhold_permits(state: State, name: str, permits: int, delay_ms: int, principal: str) -> None:
    """Withhold permits of a semaphore from everybody for `delay_ms`."""
    enter_delay(
        state,
        Delay(
            order=state.take_order(),
            expires_at_ms=state.now_ms + delay_ms,
            name=name,
            kind=HoldKind.SEMAPHORE,
            permits=permits,
            principal=principal,
        ),
    )


def enter_delay(state: State, delay: Delay) -> None:
    """Add a delay with what it claims or withholds, and its deadline."""
    state.deadlines.add(delay)
    state.ledger.noted[delay] = 0
    _count_delay(state, delay, 1)
    if delay.kind is _SEMAPHORE:
        state.permit_delays[delay.order] = delay
        semaphore = state.semaphores[delay.name]
        semaphore.delays[delay.order] = delay
        semaphore.used += delay.permits
    else:
        state.delays[delay.name, delay.scope] = delay
        state.claimed.add(claims_of(delay.name, Mode.EXCLUSIVE, delay.scope), None)


def delays_of(state: State, kind: HoldKind, name: str) -> list[Delay]:
    """Return the delays of this very name, in order of creation."""
    if kind is _SEMAPHORE:
        semaphore = state.semaphores.get(name)
        return list(semaphore.delays.values()) if semaphore is not None else []
    found = [state.delays[name, scope] for scope in Scope if (name, scope) in state.delays]
    return sorted(found, key=attrgetter("order")) if kind is _LOCK else []


def end_delay(state: State, delay: Delay) -> Freed:
    """Take a delay out; return what became free."""
    state.deadlines.remove(delay)
    state.ledger.remove(delay)
    _count_delay(state, delay, -1)
    if delay.kind is _SEMAPHORE:
        del state.permit_delays[delay.order]
        semaphore = state.semaphores[delay.name]
        del semaphore.delays[delay.order]
        semaphore.used -= delay.permits
        return [permits_of(delay.name)]
    del state.delays[delay.name, delay.scope]
    return state.claimed.remove(claims_of(delay.name, Mode.EXCLUSIVE, delay.scope), None)


def _count_delay(state: State, delay: Delay, by: int) -> None:
    """Count a delay that comes (1) or goes (-1) as what it was before: a name that is held."""
    state.principals.count(delay.principal, "holds", delay.name, by)
    state.namespaces.count("holds", delay.name, delay.order, by)
