"""The request for several kinds at once."""

from typing import Annotated

import msgspec

from lockapi.requests.fields import (
    UNSET,
    Maybe,
    Name,
    PermitsLimit,
    Request,
    check,
    check_name,
    invalid,
)
from lockapi.requests.ids import new_hold_ids
from lockapi.requests.locks import AcquiringRequest, WantedLock
from lockapi.requests.primitives import Permits, WantedRateJson, wanted_rate
from lockstate.rules.several import check_permits, check_rates, check_things
from lockstate.words import limits
from lockstate.words.commands import holds
from lockstate.words.modes import Mode
from lockstate.words.refusals import Refused
from lockstate.words.wanted import Wanted, WantedPermits


class WantedPermitsJson(Request, kw_only=True):
    """Permits of one semaphore. The limit may be left out if somebody uses it already."""

    name: Name
    limit: PermitsLimit | Maybe = UNSET
    permits: Permits = 1


class AcquireSeveralRequest(AcquiringRequest, kw_only=True):
    """Acquire locks, permits and places of rate limits: all of them, or none.

    There are two things at least, and a lock or a permit among them.
    """

    locks: Annotated[
        list[WantedLock], msgspec.Meta(extra_json_schema={"maxItems": limits.LOCKS_COUNT_MAX})
    ] = []
    permits: Annotated[
        list[WantedPermitsJson], msgspec.Meta(extra_json_schema={"maxItems": limits.PERMITS_COUNT_MAX})
    ] = []
    rate_limits: Annotated[
        list[WantedRateJson], msgspec.Meta(extra_json_schema={"maxItems": limits.RATES_COUNT_MAX})
    ] = []

    def command(self) -> holds.Acquire:
        """Return the command, with new ids for the hold and the attempt. Raises ProblemError."""
        for field in ("locks", "permits", "rate_limits"):
            for index, one in enumerate(getattr(self, field)):
                check_name(f"{field}[{index}].name", one.name)
        permits = tuple([_permits_of(index, one) for index, one in enumerate(self.permits)])
        rates = tuple(
            [wanted_rate(one, f"rate_limits[{index}].") for index, one in enumerate(self.rate_limits)]
        )
        _check_in("permits", check_permits(permits))
        _check_in("rate_limits", check_rates(rates))
        session_id, ttl_ms = self.checked_lease()
        hold_id, attempt_id = new_hold_ids()
        command = holds.AcquireSeveral(
            "",
            Mode.EXCLUSIVE,
            hold_id,
            attempt_id,
            session_id,
            ttl_ms,
            self.owner,
            self.wait_ms,
            self.checked_id(),
            uncommon=self.uncommon(),
            locks=tuple([Wanted(lock.name, lock.mode, lock.scope) for lock in self.locks]),
            permits=permits,
            rates=rates,
        )
        check(check_things(command))
        return command


def _permits_of(index: int, one: WantedPermitsJson) -> WantedPermits:
    """Return what is wanted of a semaphore. The command says 0 for any limit, which a request does not."""
    if one.limit is UNSET:
        return WantedPermits(one.name, 0, one.permits)
    if one.limit == 0:
        raise invalid(f"permits[{index}].limit: 0; must be 1 to {limits.SEMAPHORE_LIMIT_MAX}")
    return WantedPermits(one.name, one.limit, one.permits)


def _check_in(field: str, refused: Refused | None) -> None:
    """Raise ProblemError, whose detail begins with the field, if a check refused something in it."""
    if refused is not None:
        detail = refused.detail if refused.detail.startswith(f"{field}: ") else f"{field}: {refused.detail}"
        raise invalid(detail)
