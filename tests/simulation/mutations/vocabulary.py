"""Defects of the rules of the whole vocabulary, one at least for each rule."""

from collections import OrderedDict
from typing import Final

import msgspec

import lockstate.rules.additions
import lockstate.rules.conversions
import lockstate.rules.elections
import lockstate.rules.fences
import lockstate.rules.locks
from cluster.commands.abandoned_waits import AbandonedWaits
from lockstate.rules import deadlocks, hand_overs
from lockstate.rules.effects import Effects
from lockstate.rules.holds import changes, ends, reentry, waiting
from lockstate.rules.locks import Locks
from lockstate.rules.semaphores import Semaphores
from lockstate.rules.sessions import Sessions
from lockstate.rules.waits import Waits
from lockstate.tables.claim_table import ClaimTable, Freed
from lockstate.tables.holds import claim_more, reclaim
from lockstate.tables.owners import shown_owner
from lockstate.tables.queues import is_free
from lockstate.tables.rate_algorithms import FixedWindow, Gcra, SlidingWindow
from lockstate.tables.records import Hold, RequestKey, Ticket, each_lock
from lockstate.tables.state import State
from lockstate.tables.tickets import add_ticket, remove_ticket
from lockstate.tables.wait_graph import Cycle
from lockstate.words.claims import Claims, claims_of, shown_name
from lockstate.words.commands.entries import Cancel
from lockstate.words.commands.holds import AcquirePermits, Release, Renew
from lockstate.words.commands.primitives import AdvanceFence, ResizeSemaphore
from lockstate.words.events import EventKind
from lockstate.words.modes import Counts, Mode, is_intent, is_tree
from lockstate.words.refusals import CycleView
from lockstate.words.results import FenceAdvanced, Released, Result
from lockstate.words.wanted import Wanted
from tests.simulation.mutations.mutation import Mutation, Surroundings, replaced, together
from tests.simulation.mutations.states import beside

_TREE: Final = ("n0", "n0/n1", "n0/n2", "n0/n1/n3")
_VARIED: Final = Surroundings(minutes=1, client_settings={"vocabulary_share": 0.8, "names": _TREE})
_PARTS: Final = Surroundings(
    minutes=2, client_settings={"vocabulary_share": 0.9, "think_s": 0.15, "names": _TREE}
)
_RATES: Final = Surroundings(minutes=2, client_settings={"vocabulary_share": 0.9, "think_s": 0.15})


def _always(*_what: object) -> bool:
    return True


def _is_free_above(state: State, claims: Claims) -> bool:
    """Do not look at what lies below."""
    return is_free(state, tuple([(name, claim - 3 if is_tree(claim) else claim) for name, claim in claims]))


def _held_but_for_intents(state: State, name: str) -> Counts:
    """Do not look at what lies below, either, when somebody waits."""
    lock = state.locks.get(name)
    return 0 if lock is None else lock.held


def _is_free_but_for_the_last(state: State, claims: Claims) -> bool:
    """Do not look whether the last of several locks is free."""
    own = [at for at, (_, claim) in enumerate(claims) if not is_intent(claim)]
    return is_free(state, claims[: own[-1]] if len(own) > 1 else claims)


_acquire_permits, _resize = Semaphores.acquire, Semaphores.resize


def _overtake(semaphores: Semaphores, command: AcquirePermits, *key: RequestKey | None) -> Result:
    """Grant what fits, whoever waits."""
    semaphore = semaphores._state.semaphores.get(command.name)
    if semaphore is None or semaphore.used + command.permits > semaphore.limit:
        return _acquire_permits(semaphores, command, *key)
    queue, semaphore.queue = semaphore.queue, OrderedDict()
    try:
        return _acquire_permits(semaphores, command, *key)
    finally:
        semaphore.queue = queue


def _resize_and_take(semaphores: Semaphores, command: ResizeSemaphore) -> Result:
    """Take permits away from the newest holder."""
    result = _resize(semaphores, command)
    semaphore = semaphores._state.semaphores.get(command.name)
    while semaphore is not None and semaphore.holders and semaphore.used > semaphore.limit:
        last = list(semaphore.holders.values())[-1]
        waiting.serve(semaphores._effects, ends.end(semaphores._effects, last, EventKind.FORCED))
    return result


def _convert_with_old_token(
    effects: Effects, hold: Hold, mode: Mode, locks: tuple[Wanted, ...], claims: Claims, *, ticket: int = 0
) -> Freed:
    """Let an exclusive hold have the token of the shared one that it was."""
    freed = reclaim(effects.state, hold, claims, hold.token)
    hold.mode, hold.locks = mode, locks
    effects.tell(EventKind.CONVERTED, hold, effects.state.now_ms - hold.since_ms, ticket=ticket)
    return freed


def _add_with_old_token(
    effects: Effects, hold: Hold, more: tuple[Wanted, ...], waited_ms: int = 0, ticket: int = 0
) -> None:
    """Let a hold keep the token that is lower than that of whoever had before what is added."""
    locks = (*each_lock(hold), *more)
    state = effects.state
    claim_more(state, hold, claims_of("", hold.mode, hold.scope, locks), hold.token)
    state.ledger.change(hold)
    hold.name, hold.locks = "", locks
    effects.tell(EventKind.GRANTED, hold, waited_ms, locks=more, ticket=ticket)


def _release_all(locks: Locks, hold: Hold, _names: tuple[str, ...], _depth: int) -> Result:
    """End the whole hold."""
    waiting.serve(locks._effects, ends.end(locks._effects, hold, EventKind.RELEASED))
    return Released()


def _share_nothing(_effects: Effects, _hold: Hold, _claims: Claims) -> None:
    """Let a session wait for what it has."""


def _is_never_busy(_search: object, _ticket: Ticket) -> bool:
    """Assume that a waiter that gets a lock gives it back, wherever else it waits."""
    return False


def _look_away(_waits: AbandonedWaits) -> None:
    """Let waiters at a node that is gone wait."""


_cancel = Waits.cancel


def _cancel_with_hold(waits: Waits, command: Cancel) -> Result:
    """End the hold, too, whose conversion was not waited for."""
    ticket = waits._state.tickets.get(command.hold_id)
    hold = waits._state.holds.get(ticket.changes) if ticket is not None else None
    result = _cancel(waits, command)
    if hold is not None and hold.hold_id in waits._state.holds:
        waiting.serve(waits._effects, ends.end(waits._effects, hold, EventKind.RELEASED))
    return result


def _without_last(claims: Claims) -> Claims:
    own = [at for at, (_, claim) in enumerate(claims) if not is_intent(claim)]
    return claims[: own[-1]] if len(own) > 1 else claims


def _enter_all_queues_but_one(state: State, ticket: Ticket, claims: Claims) -> None:
    add_ticket(state, ticket, _without_last(claims))


def _leave_all_queues_but_one(state: State, ticket: Ticket, claims: Claims) -> Freed:
    return remove_ticket(state, ticket, _without_last(claims))


_find = deadlocks.find


def _find_always(_state: State, ticket: Ticket) -> Cycle | None:
    """Take every session that waits for one that waits for itself."""
    step = CycleView(shown_owner(ticket.owner, ticket.hold_id), ticket.name, ticket.kind)
    return Cycle((step,), is_of_conversions=False) if ticket.session_id else None


def _find_never(_state: State, _ticket: Ticket) -> Cycle | None:
    return None


def _find_elsewhere(state: State, ticket: Ticket) -> Cycle | None:
    """Name another lock in a real deadlock."""
    cycle = _find(state, ticket)
    if cycle is None:
        return None
    steps = tuple([msgspec.structs.replace(step, name=f"{shown_name(step.name)}/x") for step in cycle.steps])
    return msgspec.structs.replace(cycle, steps=steps)


def _release_of_any_kind(locks: Locks, command: Release) -> Result:
    """Take every hold for one of the kind that is named."""
    return _release(locks, msgspec.structs.replace(command, kind=None))


def _renew_of_any_kind(sessions: Sessions, command: Renew) -> Result:
    """Take every hold for one of the kind that is named."""
    return _renew(sessions, msgspec.structs.replace(command, kind=None))


_release, _renew = Locks.release, Sessions.renew


def _advance_anywhere(state: State, command: AdvanceFence) -> Result:
    """Accept the token of a former holder."""
    state.fences[command.name] = command.token
    return FenceAdvanced(command.token)


_sliding_earliest_ms, _gcra_admit = SlidingWindow.earliest_ms, Gcra.admit


def _a_millisecond_early(limiter: SlidingWindow, now_ms: int, limit: int, cost: int) -> int:
    """Take a window for a millisecond shorter than it is."""
    return max(now_ms, _sliding_earliest_ms(limiter, now_ms, limit, cost) - 1)


def _one_more(limiter: FixedWindow, now_ms: int, limit: int, cost: int) -> int:
    """Admit one more than the limit."""
    return _fixed_earliest_ms(limiter, now_ms, limit + 1, cost)


_fixed_earliest_ms = FixedWindow.earliest_ms


def _leak_twice(limiter: Gcra, at_ms: int, limit: int, cost: int) -> None:
    """Let the bucket leak twice as fast."""
    _gcra_admit(limiter, at_ms, 2 * limit, cost)


_LETTING_GO: Final = (waiting, ends, reentry, hand_overs)
"""The rules by which tickets leave their queues."""

VOCABULARY: Final = (
    Mutation(
        name="conversion-ignores-holders",
        sentence="A hold gets another mode although others hold the lock.",
        found_by=("holds-exclude", "delay-kept", "exclusion"),
        apply=replaced(lockstate.rules.conversions, "can_go", _always),
        surroundings=_VARIED,
    ),
    Mutation(
        name="conversion-keeps-token",
        sentence="A hold that becomes exclusive keeps its token.",
        found_by=("token-drawn", "tokens-once"),
        apply=replaced(changes, "convert", _convert_with_old_token),
        surroundings=_VARIED,
    ),
    Mutation(
        name="addition-ignores-holders",
        sentence="A hold gets more locks although others hold them.",
        found_by=("holds-exclude", "delay-kept", "exclusion"),
        apply=replaced(lockstate.rules.additions, "is_free", _always),
        surroundings=_VARIED,
    ),
    Mutation(
        name="addition-keeps-token",
        sentence="A hold that gets more locks keeps its token.",
        found_by=("token-drawn", "tokens-once", "model-events", "reply"),
        apply=replaced(changes, "add", _add_with_old_token),
        surroundings=_VARIED,
    ),
    Mutation(
        name="addition-overtakes",
        sentence="A waiting addition to a hold goes ahead of all others, as a conversion does.",
        found_by=("first-come", "model-state", "model-events", "reply"),
        apply=replaced(Ticket, "is_addition", property(lambda _: False)),
        surroundings=_VARIED,
    ),
    Mutation(
        name="cancelled-conversion-ends-hold",
        sentence="A client that stops waiting for a conversion loses the hold.",
        found_by=("model-state", "model-events", "reply"),
        apply=replaced(Waits, "cancel", _cancel_with_hold),
        surroundings=msgspec.structs.replace(_VARIED, minutes=3),
    ),
    Mutation(
        name="waits-not-shared",
        sentence="A session that asked twice for the same waits for what it has already.",
        found_by=("model-state", "model-events", "reply", "equal-digest"),
        apply=replaced(reentry, "share", _share_nothing),
        surroundings=_VARIED,
    ),
    Mutation(
        name="deadlock-ahead-unseen",
        sentence="What a waiter will get is taken to be given back, though its session waits elsewhere.",
        found_by=("reply", "model-state", "model-events"),
        apply=replaced(deadlocks._Search, "_is_busy", _is_never_busy),
        surroundings=msgspec.structs.replace(_VARIED, minutes=2),
    ),
    Mutation(
        name="waits-of-lost-nodes-left",
        sentence="The waits of a lost node do not end.",
        found_by=("wait-left",),
        apply=replaced(AbandonedWaits, "look", _look_away),
        surroundings=Surroundings(
            minutes=2, rates={"kill": 10.0}, client_settings={"wait_ms": (10_000, 20_000)}
        ),
    ),
    Mutation(
        name="update-beside-update",
        sentence="Two may hold a lock for an update at a time.",
        found_by=("holds-exclude", "delay-kept", "exclusion"),
        apply=beside(Mode.UPDATE, Mode.UPDATE),
        surroundings=_VARIED,
    ),
    Mutation(
        name="subtree-ignores-descendants",
        sentence="A subtree is granted although somebody holds a name in it.",
        found_by=("holds-exclude", "delay-kept", "exclusion", "model-state"),
        apply=replaced(lockstate.rules.locks, "is_free", _is_free_above),
        surroundings=_VARIED,
    ),
    Mutation(
        name="waiter-for-subtree-ignores-descendants",
        sentence="A waiter for a subtree is granted although somebody holds a name in it.",
        found_by=("reply", "holds-exclude", "delay-kept", "exclusion", "model-state", "model-events"),
        apply=replaced(ClaimTable, "held_on", _held_but_for_intents),
        surroundings=_VARIED,
    ),
    Mutation(
        name="several-unchecked",
        sentence="The last of several locks is granted although others hold it.",
        found_by=("holds-exclude", "delay-kept", "exclusion", "model-state"),
        apply=replaced(lockstate.rules.locks, "is_free", _is_free_but_for_the_last),
        surroundings=_VARIED,
    ),
    Mutation(
        name="several-ticket-forgets-queue",
        sentence="A waiter for several locks stands in all their queues but the last.",
        found_by=("model-events", "model-state", "reply", "read-view", "first-come"),
        apply=together(
            replaced(waiting, "add_ticket", _enter_all_queues_but_one),
            *[replaced(module, "remove_ticket", _leave_all_queues_but_one) for module in _LETTING_GO],
        ),
        surroundings=_VARIED,
    ),
    Mutation(
        name="partial-release-ends-all",
        sentence="Giving back one of several locks gives back all of them.",
        found_by=("model-state", "model-events", "reply"),
        apply=replaced(Locks, "_release_part", _release_all),
        surroundings=_PARTS,
    ),
    Mutation(
        name="semaphore-overtaken",
        sentence="Permits go to newcomers, and not to waiters.",
        found_by=("first-come", "model-events", "model-state", "reply"),
        apply=replaced(Semaphores, "acquire", _overtake),
        surroundings=_VARIED,
    ),
    Mutation(
        name="resize-takes-permits-away",
        sentence="A smaller limit ends holds.",
        found_by=("model-events", "model-state", "reply"),
        apply=replaced(Semaphores, "resize", _resize_and_take),
        surroundings=_VARIED,
    ),
    Mutation(
        name="two-leaders",
        sentence="Every candidate leads at once.",
        found_by=("one-leader", "exclusion"),
        apply=replaced(lockstate.rules.elections, "is_free", _always),
        surroundings=_VARIED,
    ),
    Mutation(
        name="deadlock-that-is-none",
        sentence="Every session that would have to wait is refused for a deadlock.",
        found_by=("model-events", "model-state", "reply"),
        apply=replaced(deadlocks, "find", _find_always),
        surroundings=_VARIED,
    ),
    Mutation(
        name="deadlock-unnoticed",
        sentence="A command that closes a deadlock waits for ever.",
        found_by=("model-events", "model-state", "reply"),
        apply=replaced(deadlocks, "find", _find_never),
        surroundings=_VARIED,
    ),
    Mutation(
        name="deadlock-elsewhere",
        sentence="A deadlock is told of locks that have nothing to do with it.",
        found_by=("deadlock-real",),
        apply=replaced(deadlocks, "find", _find_elsewhere),
        surroundings=_VARIED,
    ),
    Mutation(
        name="wrong-kind-untold",
        sentence="A call for one kind of hold does its work on another.",
        found_by=("reply", "model-state", "model-events"),
        apply=together(
            replaced(Locks, "release", _release_of_any_kind), replaced(Sessions, "renew", _renew_of_any_kind)
        ),
        surroundings=_VARIED,
    ),
    Mutation(
        name="fence-accepts-stale",
        sentence="A resource accepts the token of a former holder.",
        found_by=("fence-rises",),
        apply=replaced(lockstate.rules.fences, "advance", _advance_anywhere),
        surroundings=_VARIED,
    ),
    Mutation(
        name="fixed-window-admits-one-more",
        sentence="A fixed window admits one more than its limit.",
        found_by=("rate-promise", "reply"),
        apply=replaced(FixedWindow, "earliest_ms", _one_more),
        surroundings=_RATES,
    ),
    Mutation(
        name="sliding-window-off-by-one",
        sentence="A sliding window is a millisecond too short.",
        found_by=("rate-promise", "rate-outside", "reply"),
        apply=replaced(SlidingWindow, "earliest_ms", _a_millisecond_early),
        surroundings=_RATES,
    ),
    Mutation(
        name="bucket-leaks-twice",
        sentence="The bucket of a rate limit leaks twice as fast as it should.",
        found_by=("rate-promise", "rate-outside", "reply"),
        apply=replaced(Gcra, "admit", _leak_twice),
        surroundings=_RATES,
    ),
)
