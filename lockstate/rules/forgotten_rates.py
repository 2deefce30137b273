"""Rate limits that an operator has forgotten: they are as new.

So nobody has to wait, for as long as a window is, until a limit that was filled is whole, or a state that is
full of limits has room.
"""

from lockstate.rules.effects import Effects
from lockstate.words import limits
from lockstate.words.commands.overrides import ForgetRates
from lockstate.words.results import RatesForgotten, Result


def forget(effects: Effects, command: ForgetRates) -> Result:
    """Forget the rate limits of a name, or a limited number of those whose names begin with it, in order.

    Clients that wait for a place were told its moment: they go on then, and what they took does not count.
    """
    name, rates = command.name, effects.state.rates
    refused = (
        limits.check_text("prefix", name, limits.NAME_BYTES_MAX)
        if command.is_prefix
        else limits.check_name(name)
    ) or limits.check_text("reason", command.reason, limits.REASON_BYTES_MAX)
    if refused is not None:
        return refused
    meant, left = [], limits.RATES_FORGOTTEN_MAX
    for limiter in rates.named(name, is_prefix=command.is_prefix):
        if left <= 0:
            break
        meant.append(limiter)
        left -= 1 + len(rates.places_of(limiter))
    for limiter in meant:
        rates.forget(limiter)
        effects.tell_rate_forgotten(limiter, command.reason)
    is_more = next(rates.named(name, is_prefix=command.is_prefix), None) is not None
    return RatesForgotten(len(meant), is_more)
