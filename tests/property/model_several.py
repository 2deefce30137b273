"""Several kinds at once in the model: what can be wrong with such a request, and what it takes from rates."""

from lockstate.words import limits
from lockstate.words.commands import AcquireSeveral, WantedRate
from lockstate.words.results import RateUsed, Reason, Refused
from tests.property.model_rates import Admission, RateModel
from tests.property.model_records import ModelState, Rate

_BAD = Refused(Reason.INVALID_REQUEST, "")


def take_rates(
    state: ModelState, wanted: list[WantedRate], wait_ms: int
) -> tuple[int, tuple[RateUsed, ...]] | Refused:
    """Take from all rate limits at the first moment at which each has a place, or from none."""
    known = {rate.key: rate for rate in state.rates}
    rates = [
        known.get(key) or Rate(key, RateModel(key[1], key[2]), 0, 0)
        for key in [(one.name, one.algorithm, one.window_ms) for one in wanted]
    ]
    pairs = list(zip(wanted, rates, strict=True))
    moments = [rate.taken.earliest_ms(state.now_ms, one.limit, one.cost) for one, rate in pairs]
    at_ms = max(moments, default=state.now_ms)
    if at_ms > state.now_ms + wait_ms:
        one, rate = pairs[moments.index(at_ms)]
        facts = {"limit": one.limit, "remaining": rate.taken.remaining(state.now_ms, one.limit)}
        left_ms = at_ms - state.now_ms - wait_ms
        return Refused(Reason.RATE_LIMITED, "", retry_after_ms=left_ms, facts=facts)
    used = []
    for one, rate in pairs:
        if rate not in state.rates:
            rate.created = state.next_created()
            state.rates.append(rate)
        rate.taken.admissions.append(Admission(at_ms, one.cost, one.limit))
        rate.whole_ms = rate.taken.whole_ms(state.now_ms)
        remaining = rate.taken.remaining(state.now_ms, one.limit)
        used.append(RateUsed(one.name, remaining, rate.whole_ms - state.now_ms))
    return at_ms, tuple(used)


def refuse_bad_several(command: AcquireSeveral) -> list[Refused | None]:
    """Return what is wrong with the things that are asked for together."""
    locks, permits, rates = command.locks, command.permits, command.rates
    several = [command.name, *[one.name for one in permits]]
    checks = [
        _BAD if command.name else None,
        _BAD if not (permits or rates) or not (locks or permits) else None,
        _BAD if len(locks) + len(permits) + len(rates) == 1 else None,
        _BAD if max(len(permits), len(rates)) > limits.PERMITS_COUNT_MAX else None,
        _BAD if len(set(several)) < len(several) else None,
        _BAD if len({one.name for one in rates}) < len(rates) else None,
    ]
    for wanted in permits:
        most = wanted.limit or limits.SEMAPHORE_LIMIT_MAX
        is_good = 1 <= wanted.permits <= most <= limits.SEMAPHORE_LIMIT_MAX
        checks += [limits.check_name(wanted.name), None if is_good else _BAD]
    for one in rates:
        is_good = (
            1 <= one.cost <= one.limit <= limits.RATE_LIMIT_MAX
            and limits.RATE_WINDOW_MS_MIN <= one.window_ms <= limits.RATE_WINDOW_MS_MAX
        )
        checks += [limits.check_name(one.name), None if is_good else _BAD]
    return checks
