"""Rate limits in the model: what is taken from them, and what of it is given back."""

from collections.abc import Sequence
from math import ceil
from typing import NamedTuple

from lockstate.words import limits
from lockstate.words.commands.primitives import TakeRate
from lockstate.words.kinds import Algorithm
from lockstate.words.refusals import Reason, Refused, RefusedInNamespace
from lockstate.words.results import RateTaken, RateUsed, Result
from lockstate.words.wanted import WantedRate
from tests.property.model_namespaces import innermost, refuse_more_in, refuse_named_in
from tests.property.model_principals import refuse_more, refuse_named
from tests.property.model_rates import Admission
from tests.property.model_records import Key, ModelState, Place, Rate


class Asked(NamedTuple):
    """What is asked of a rate limit, all of it known."""

    name: str
    limit: int
    window_ms: int
    algorithm: Algorithm
    cost: int

    @property
    def key(self) -> tuple[str, Algorithm, int]:
        """What the rate limit is known by."""
        return (self.name, self.algorithm, self.window_ms)


BAD = Refused(Reason.INVALID_REQUEST, "")


def refuse_bad_rate(rate: WantedRate | TakeRate) -> list[Refused | None]:
    """Return what is wrong with what is asked of a rate limit, whatever its namespace sets."""
    limit, window_ms = rate.limit or limits.RATE_LIMIT_MAX, rate.window_ms or limits.RATE_WINDOW_MS_MAX
    is_good = (
        1 <= rate.cost <= limit <= limits.RATE_LIMIT_MAX
        and limits.RATE_WINDOW_MS_MIN <= window_ms <= limits.RATE_WINDOW_MS_MAX
    )
    return [limits.check_name(rate.name), None if is_good else BAD]


def resolved(state: ModelState, asked: WantedRate | TakeRate) -> Asked | Refused:
    """Return what is asked, with what the namespace sets; or the refusal of something else."""
    prefix, settings = innermost(state, asked.name)
    rate = settings.rate
    if rate is None:
        if not (asked.limit and asked.window_ms):
            return Refused(Reason.LIMIT_MISMATCH, "")
        algorithm = asked.algorithm or Algorithm.FIXED_WINDOW
        return Asked(asked.name, asked.limit, asked.window_ms, algorithm, asked.cost)
    said = (asked.limit, asked.window_ms, asked.algorithm)
    known = (rate.limit, rate.window_ms, rate.algorithm)
    if any(one and one != other for one, other in zip(said, known, strict=True)):
        facts = {"limit": rate.limit, "window_ms": rate.window_ms}
        return RefusedInNamespace(Reason.LIMIT_MISMATCH, "", facts=facts, namespace=prefix)
    if asked.cost > rate.limit:
        return BAD
    return Asked(asked.name, rate.limit, rate.window_ms, rate.algorithm, asked.cost)


def _go_on(state: ModelState, asked: Asked) -> None:
    """Let what a namespace sets go on with the count of the rate limit of this name that is whole last."""
    of_name = [rate for rate in state.rates if rate.key[0] == asked.name]
    if (
        innermost(state, asked.name)[1].rate is None
        or not of_name
        or asked.key in [rate.key for rate in of_name]
    ):
        return
    rate = max(of_name, key=lambda one: (one.whole_ms, one.created))
    admissions, now_ms = rate.taken.admissions, state.now_ms
    places = [place.admission for place in rate.places]
    had = rate.taken
    had.admissions = [one for one in admissions if not any(one is other for other in places)]
    taken = state.rate_model(asked.algorithm, asked.window_ms)
    if had.algorithm is Algorithm.SLIDING_WINDOW:
        counted = [one for one in had.admissions if one.at_ms > now_ms - had.window_ms]
        taken.admissions = [Admission(one.at_ms, one.cost, asked.limit) for one in counted]
    elif had.admissions and (used := ceil(had.used(max(now_ms, had.admissions[-1].at_ms)))):
        taken.admissions = [Admission(now_ms, used, asked.limit)]
    for place in rate.places:
        assert place.admission is not None
        place.admission = Admission(place.at_ms, place.admission.cost, asked.limit)
        taken.admissions.append(place.admission)
    rate.key, rate.taken = asked.key, taken
    rate.whole_ms = taken.whole_ms(now_ms)


def take(state: ModelState, command: TakeRate, request: Key | None) -> Result:
    """Take from a rate limit at the first moment at which there is something left, if that is in time."""
    asked = resolved(state, command)
    if isinstance(asked, Refused):
        return asked
    _go_on(state, asked)
    rate, now_ms = _rate_of(state, asked), state.now_ms
    at_ms = rate.taken.earliest_ms(now_ms, asked.limit, asked.cost)
    late_ms = at_ms - now_ms - command.wait_ms
    if late_ms > 0:
        left = rate.taken.remaining(now_ms, asked.limit)
        return RateTaken(False, asked.limit, left, late_ms, rate.whole_ms - now_ms, 0, asked.window_ms)
    refused = refuse_new(state, [asked], state.principal) or (
        (refuse_more(state, "waits") or refuse_more_in(state, "waits", [asked.name]))
        if at_ms > now_ms
        else None
    )
    if refused is not None:
        return refused
    ids: list[str] = [command.attempt_id] if command.attempt_id else []
    used = admit(state, asked, at_ms, Place(at_ms, 0, ids, request, state.principal))
    return RateTaken(True, asked.limit, used.remaining, 0, used.reset_in_ms, at_ms, asked.window_ms)


def refuse_wanted(state: ModelState, wanted: Sequence[WantedRate]) -> Refused | None:
    """Return the refusal of rate limits that are not what their namespaces set."""
    found = [resolved(state, one) for one in wanted]
    return next((one for one in found if isinstance(one, Refused)), None)


def take_together(
    state: ModelState, wanted: Sequence[WantedRate], wait_ms: int, hold_id: str, principal: str
) -> tuple[int, tuple[RateUsed, ...]] | Refused:
    """Take from all rate limits at the first moment at which each has a place, or from none."""
    asked: list[Asked] = []
    for each in wanted:
        found = resolved(state, each)
        if isinstance(found, Refused):
            return found
        asked.append(found)
    for one in asked:
        _go_on(state, one)
    pairs = [(one, _rate_of(state, one)) for one in asked]
    moments = [rate.taken.earliest_ms(state.now_ms, one.limit, one.cost) for one, rate in pairs]
    at_ms = max(moments, default=state.now_ms)
    if at_ms > state.now_ms + wait_ms:
        one, rate = pairs[moments.index(at_ms)]
        facts = {"limit": one.limit, "remaining": rate.taken.remaining(state.now_ms, one.limit)}
        left_ms = at_ms - state.now_ms - wait_ms
        return Refused(Reason.RATE_LIMITED, "", retry_after_ms=left_ms, facts=facts)
    refused = refuse_new(state, asked, principal)
    if refused is not None:
        return refused
    for one in asked:
        admit(state, one, at_ms, Place(at_ms, 0, [hold_id], None, principal))
    return at_ms, tuple([_used(state, one) for one in asked])


def refuse_new(state: ModelState, wanted: Sequence[Asked], principal: str) -> Refused | None:
    """Return the refusal of rate limits that are not there yet, and for which a quota has no room."""
    new = [one.name for one in wanted if _rate_of(state, one) not in state.rates]
    return refuse_named(state, "rate_limits", new, by=principal) or refuse_named_in(state, "rate_limits", new)


def admit(state: ModelState, asked: Asked, at_ms: int, place: Place) -> RateUsed:
    """Take it: for a moment to come as a place, and so behind another place."""
    rate = _rate_of(state, asked)
    if rate not in state.rates:
        rate.created, rate.principal = state.next_created(), place.principal
        state.rates.append(rate)
    admission = Admission(at_ms, asked.cost, asked.limit)
    rate.taken.admissions.append(admission)
    if at_ms > state.now_ms or rate.places:
        place.created, place.admission = state.next_created(), admission
        if place.request in [one.request for _, one in state.places()]:
            place.request = None
        rate.places.append(place)
    rate.last_principal = place.principal
    rate.whole_ms = rate.taken.whole_ms(state.now_ms)
    return _used(state, asked)


def _used(state: ModelState, asked: Asked) -> RateUsed:
    rate, now_ms = _rate_of(state, asked), state.now_ms
    return RateUsed(asked.name, rate.taken.remaining(now_ms, asked.limit), rate.whole_ms - now_ms)


def _rate_of(state: ModelState, asked: Asked) -> Rate:
    """Return the rate limit that is asked for: a new one if it is whole."""
    known = next((rate for rate in state.rates if rate.key == asked.key), None)
    return known or Rate(asked.key, state.rate_model(asked.algorithm, asked.window_ms), 0, 0)


def give_back(state: ModelState, hold_id: str) -> None:
    """Give back the places of a hold whose moment is to come."""
    for rate, place in state.places():
        if hold_id in place.ids and place.at_ms > state.now_ms:
            _give_back(state, rate, place)


def leave(state: ModelState, attempt_id: str) -> Place | None:
    """Take an attempt back. Return the place that was given back, if nobody else waits for it."""
    for rate, place in sorted(state.places(), key=lambda pair: pair[1].created):
        if attempt_id and attempt_id in place.ids:
            if place.at_ms <= state.now_ms:
                return None
            place.ids = [one for one in place.ids if one != attempt_id]
            if place.ids:
                return None
            _give_back(state, rate, place)
            return place
    return None


def _give_back(state: ModelState, rate: Rate, place: Place) -> None:
    state.given_back += 1
    rate.places.remove(place)
    rate.taken.admissions = [one for one in rate.taken.admissions if one is not place.admission]
    rate.whole_ms = rate.taken.whole_ms(state.now_ms)


def join(state: ModelState, request: Key, attempt_id: str) -> None:
    """Let another attempt wait for the place of a request."""
    for _, place in state.places():
        if place.request == request and place.ids and attempt_id not in place.ids:
            place.ids.append(attempt_id)
            if len(place.ids) > limits.ATTEMPTS_COUNT_MAX:
                place.ids = ["", *place.ids[2:]]
