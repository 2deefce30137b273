"""Several kinds at once in the model: what can be wrong with such a request."""

from lockstate.words import limits
from lockstate.words.commands.holds import AcquireSeveral
from lockstate.words.refusals import Reason, Refused
from tests.property.model_takes import refuse_bad_rate

_BAD = Refused(Reason.INVALID_REQUEST, "")


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
        checks += refuse_bad_rate(one)
    return checks
