"""Rate limits: what is taken from them, at once or for a moment to come. How they count is in tables.

A client that got a moment to come may go on then, and its node answers it then. If it has gone before, what
it took is given back (`waits`), and so are the places of a hold of several kinds that ends before its moment.
"""

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from lockstate.tables import budget
from lockstate.tables.rate_algorithms import AnyLimiter
from lockstate.tables.rates import RateKey, Taker
from lockstate.tables.records import RequestKey
from lockstate.tables.state import State
from lockstate.words import limits
from lockstate.words.commands.primitives import TakeRate
from lockstate.words.kinds import Algorithm
from lockstate.words.refusals import Reason, Refused, RefusedInNamespace
from lockstate.words.results import RateTaken, RateUsed, Result
from lockstate.words.settings import RateSettings
from lockstate.words.wanted import WantedRate

Taken: TypeAlias = tuple[int, tuple[RateUsed, ...]]
"""The moment for which rate limits were taken from, and what each answered."""


def take(state: State, command: TakeRate, request: RequestKey | None = None) -> Result:
    """Admit a request at the first moment at which it fits, if that is within its `wait_ms`.

    If it is admitted, the client may go on when cluster time is `at_ms`; what it takes is counted there, and
    nobody gets an earlier place any more. If it is not admitted, nothing changes and `at_ms` is 0.

    `remaining`: the largest cost that would be admitted now without a wait, with the same limit.
    `retry_after_ms`: 0 if admitted. Otherwise the time after which the same request, with its `wait_ms`,
    will be admitted if nothing else is admitted meanwhile; not a millisecond earlier.
    `reset_in_ms`: the time until the limit is whole and all reservations are used, if nothing else is
    admitted.
    """
    asked = resolved(state, command) if 0 <= command.wait_ms <= limits.WAIT_MS_MAX else _wait_of(command)
    if isinstance(asked, Refused):
        return asked
    rates, now_ms = state.rates, state.now_ms
    key = _known(state, asked)
    limiter, at_ms = rates.get(key), now_ms
    if limiter is not None:
        at_ms = limiter.earliest_ms(now_ms, asked.limit, asked.cost)
        retry_after_ms = at_ms - now_ms - command.wait_ms
        if retry_after_ms > 0:
            left = limiter.remaining(now_ms, asked.limit)
            reset_in_ms = rates.whole_ms(key) - now_ms
            return RateTaken(False, asked.limit, left, retry_after_ms, reset_in_ms, 0, asked.window_ms)
    ids = (command.attempt_id,) if command.attempt_id else ()
    by = Taker(ids, request, state.principals.asking)
    refused = _check_room(state, (key,), at_ms, by) or (
        _check_waits(state, asked.name) if at_ms > now_ms else None
    )
    if refused is not None:
        return refused
    rates.admit(key, at_ms, now_ms, asked.limit, asked.cost, by)
    used = _used(state, key, asked.limit)
    return RateTaken(True, asked.limit, used.remaining, 0, used.reset_in_ms, at_ms, asked.window_ms)


def peek(state: State, command: TakeRate) -> RateTaken | Refused:
    """Return what `take` would answer now, but for want of room; nothing changes.

    An allowed answer has what there is before the request takes its cost.
    """
    asked = resolved(state, command)
    if isinstance(asked, Refused):
        return asked
    now_ms, limit = state.now_ms, asked.limit
    limiter, whole_ms = _as_seen(state, asked)
    if limiter is None:
        return RateTaken(True, limit, limit, 0, 0, now_ms, asked.window_ms)
    at_ms = limiter.earliest_ms(now_ms, limit, asked.cost)
    retry_after_ms = max(at_ms - now_ms - command.wait_ms, 0)
    return RateTaken(
        not retry_after_ms,
        limit,
        limiter.remaining(now_ms, limit),
        retry_after_ms,
        max(whole_ms - now_ms, 0),
        0 if retry_after_ms else at_ms,
        asked.window_ms,
    )


def take_together(state: State, wanted: Sequence[WantedRate], wait_ms: int, by: Taker) -> Taken | Refused:
    """Admit all of `wanted` at the first moment at which each fits, if that is within `wait_ms`, or none.

    It is one moment for all: a place that is counted earlier than it is used would let the limit be exceeded.
    """
    rates, now_ms = state.rates, state.now_ms
    asked: list[Asked] = []
    for each in wanted:
        found = resolved(state, each)
        if isinstance(found, Refused):
            return found
        asked.append(found)
    keys = tuple([_known(state, one) for one in asked])
    at_ms, last = now_ms, None
    for one, key in zip(asked, keys, strict=True):
        limiter = rates.get(key)
        earliest_ms = now_ms if limiter is None else limiter.earliest_ms(now_ms, one.limit, one.cost)
        if limiter is not None and earliest_ms > at_ms:
            at_ms, last = earliest_ms, (one, limiter)
    if last is not None and at_ms - now_ms > wait_ms:
        one, limiter = last
        detail = f"the rate limit {one.name!r} has no free place in time"
        facts = {"limit": one.limit, "remaining": limiter.remaining(now_ms, one.limit)}
        return Refused(Reason.RATE_LIMITED, detail, (), 0, at_ms - now_ms - wait_ms, (), facts)
    refused = _check_room(state, keys, at_ms, by)
    if refused is not None:
        return refused
    for one, key in zip(asked, keys, strict=True):
        rates.admit(key, at_ms, now_ms, one.limit, one.cost, by)
    return at_ms, tuple([_used(state, key, one.limit) for one, key in zip(asked, keys, strict=True)])


def _used(state: State, key: RateKey, limit: int) -> RateUsed:
    """Return what a rate limit says after something was taken from it."""
    limiter = state.rates.get(key)
    assert limiter is not None, "something was taken from it"
    return RateUsed(key[0], limiter.remaining(state.now_ms, limit), state.rates.whole_ms(key) - state.now_ms)


# -- which rate limit it is ----------------------------------------------------------------------------------


class Asked(NamedTuple):
    """What is asked of a rate limit, all of it known."""

    name: str
    limit: int
    window_ms: int
    algorithm: Algorithm
    cost: int
    is_set: bool
    """Whether a namespace says what it is."""


def resolved(state: State, asked: TakeRate | WantedRate) -> Asked | Refused:
    """Return what is asked, with what its namespace sets; or the refusal of anything that cannot be asked."""
    refused = limits.check_name(asked.name)
    if refused is not None:
        return refused
    namespace = state.namespaces.innermost(asked.name) if state.spaces else None
    rate = None if namespace is None else namespace.settings.rate
    if rate is None:
        refused = _check_said(asked)
        algorithm = asked.algorithm or Algorithm.FIXED_WINDOW
        found = Asked(asked.name, asked.limit, asked.window_ms, algorithm, asked.cost, is_set=False)
    else:
        assert namespace is not None, "it sets the rate"
        refused = _check_equal(asked, rate, namespace.prefix)
        found = Asked(asked.name, rate.limit, rate.window_ms, rate.algorithm, asked.cost, is_set=True)
    return refused or _check_between("cost", asked.cost, 1, found.limit) or found


def _wait_of(command: TakeRate) -> Refused:
    return limits.out_of_range("wait_ms", command.wait_ms, limits.WAIT_MS_MAX)


def _known(state: State, asked: Asked) -> RateKey:
    """Return the key of a rate limit.

    One that is counted as its namespace says goes on with the count that it had before that was set.
    """
    key = (asked.name, asked.algorithm, asked.window_ms)
    source = state.rates.other(key) if asked.is_set else None
    if source is not None:
        state.rates.turn(source, key, asked.limit, state.now_ms)
    return key


def _as_seen(state: State, asked: Asked) -> tuple[AnyLimiter | None, int]:
    """Return the limiter that a take would find, and when it will be whole; nothing changes."""
    rates, key = state.rates, (asked.name, asked.algorithm, asked.window_ms)
    source = rates.other(key) if asked.is_set else None
    if source is None:
        limiter = rates.get(key)
        return limiter, 0 if limiter is None else rates.whole_ms(key)
    limiter = rates.turned(source, key, asked.limit, state.now_ms)
    for place in rates.places_of(source):
        limiter.admit(place.expires_at_ms, asked.limit, place.cost)
    return limiter, limiter.whole_ms()


# -- what may be asked for -----------------------------------------------------------------------------------


def refuse_wanted(state: State, wanted: Sequence[WantedRate]) -> Refused | None:
    """Refuse rate limits that are not what their namespaces set, before anybody waits for them."""
    return next((found for one in wanted if isinstance(found := resolved(state, one), Refused)), None)


def check_wanted(rate: WantedRate) -> Refused | None:
    """Return why no place of this rate limit can be asked for, whatever its namespace sets, or None."""
    limit, window_ms = rate.limit or limits.RATE_LIMIT_MAX, rate.window_ms or limits.RATE_WINDOW_MS_MAX
    return (
        limits.check_name(rate.name)
        or check_rate(limit, window_ms)
        or _check_between("cost", rate.cost, 1, limit)
    )


def check_rate(limit: int, window_ms: int, where: str = "") -> Refused | None:
    """Return why there can be no rate limit of so much in a window of this length, or None."""
    return _check_between(f"{where}limit", limit, 1, limits.RATE_LIMIT_MAX) or _check_between(
        f"{where}window_ms", window_ms, limits.RATE_WINDOW_MS_MIN, limits.RATE_WINDOW_MS_MAX
    )


def _check_said(asked: TakeRate | WantedRate) -> Refused | None:
    """Refuse a request that does not say what no namespace sets. One condition lets nearly all pass."""
    if (
        1 <= asked.limit <= limits.RATE_LIMIT_MAX
        and limits.RATE_WINDOW_MS_MIN <= asked.window_ms <= limits.RATE_WINDOW_MS_MAX
    ):
        return None
    if not asked.limit or not asked.window_ms:
        detail = f"limit, window_ms: are required, because no namespace sets the rate of {asked.name!r}"
        return Refused(Reason.LIMIT_MISMATCH, detail)
    return check_rate(asked.limit, asked.window_ms)


def _check_equal(asked: TakeRate | WantedRate, rate: RateSettings, prefix: str) -> Refused | None:
    """Refuse a request that says something else than its namespace."""
    for field in ("limit", "window_ms", "algorithm"):
        said, known = getattr(asked, field), getattr(rate, field)
        if said and said != known:
            whole = f"{rate.limit} in {rate.window_ms} ms ({rate.algorithm})"
            detail = f"{field}: {said}; the namespace {prefix!r} sets {known}: {whole}; it may be left out"
            facts = {"limit": rate.limit, "window_ms": rate.window_ms}
            return RefusedInNamespace(Reason.LIMIT_MISMATCH, detail, facts=facts, namespace=prefix)
    return None


def _check_between(field: str, value: int, smallest: int, largest: int) -> Refused | None:
    if smallest <= value <= largest:
        return None
    return Refused(Reason.INVALID_REQUEST, f"{field}: {value}; must be {smallest} to {largest}")


def _check_room(state: State, keys: Sequence[RateKey], at_ms: int, by: Taker) -> Refused | None:
    """Refuse what there is no room for: rate limits that are new to the state, their rows and places."""
    rates = state.rates
    new = [key[0] for key in keys if rates.get(key) is None]
    refused = _check_new(state, new, by.principal) if new else None
    if refused is not None:
        return refused
    is_sliding = any(algorithm is Algorithm.SLIDING_WINDOW for _, algorithm, _ in keys)
    if is_sliding:
        what = "rows in the logs of sliding windows"
        refused = limits.check_count(rates.rows_count, limits.RATE_ROWS_COUNT_MAX, what)
    if refused is not None or at_ms <= state.now_ms:
        return refused
    queue_length = max([rates.places_count(key) for key in keys])
    if queue_length >= limits.RATE_PLACES_MAX:
        detail = f"{queue_length} wait already; no more are allowed"
        return Refused(Reason.QUEUE_FULL, detail, (), queue_length, limits.RETRY_MS)
    return budget.check_room(state) if state.is_tight else None


def _check_new(state: State, names: Sequence[str], principal: str) -> Refused | None:
    """Refuse rate limits of these names, which are not in the state yet, to who takes from them.

    That need not be who asks: what a release lets through was waited for by somebody else.
    """
    others = len(names) - 1  # there must be room for the last one behind them
    return (
        limits.check_count(len(state.rates), limits.RATE_LIMITERS_COUNT_MAX - others, "rate limits in use")
        or (budget.check_room(state) if state.is_tight else None)
        or state.principals.check_named("rate_limits", names, of=principal)
        or state.namespaces.check_named("rate_limits", names)
    )


def _check_waits(state: State, name: str) -> Refused | None:
    """Refuse another place to come of who asks. That of a hold is bounded by the quotas of holds."""
    return state.principals.check("waits") or (
        state.namespaces.check("waits", (name,)) if state.spaces else None
    )
