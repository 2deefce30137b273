"""Several kinds at once: locks, permits and places of rate limits, acquired as one hold, all or none."""

from collections.abc import Sequence

import msgspec

from holdfast import wire
from holdfast.client.acquiring import Acquirable
from holdfast.client.hold import Hold, Session
from holdfast.operations import hold_operations, primitive_operations
from holdfast.operations.hold_operations import Grant
from holdfast.operations.operation import Operation, TimedAnswer, decode, write
from holdfast.operations.terms import Terms
from holdfast.operations.wanted import HoldRequest
from holdfast.transport.transport import Transport
from holdfast.values.durations import Seconds, to_ms
from holdfast.values.errors import RateLimited, Refused
from holdfast.values.names import Name, to_name
from holdfast.values.words import Algorithm, Mode, Scope
from holdfast.wire.answers import HoldGiven


class WantedPermits(msgspec.Struct, frozen=True):
    """Permits of one semaphore. The limit may be left out while somebody uses it."""

    name: Name
    permits: int = 1
    limit: int | None = None

    def fields(self) -> dict[str, object]:
        """Return what a request says of it."""
        return {"name": to_name(self.name), "permits": self.permits} | _given("limit", self.limit)


class WantedRate(msgspec.Struct, frozen=True):
    """A place of one rate limit: `cost` of its `limit` in each `per` seconds.

    What is left out is what the namespace of the name sets.
    """

    name: Name
    limit: int | None = None
    per: Seconds | None = None
    algorithm: Algorithm | None = None
    cost: int = 1

    def fields(self) -> dict[str, object]:
        """Return what a request says of it."""
        return (
            {"name": to_name(self.name), "cost": self.cost}
            | _given("limit", self.limit)
            | _given("window_ms", None if self.per is None else to_ms(self.per, "per"))
            | _given("algorithm", self.algorithm)
        )


def _given(field: str, value: object) -> dict[str, object]:
    return {} if value is None else {field: value}


class Together(Acquirable[Hold]):
    """Locks, permits and places of rate limits that are granted all or none, as one hold of locks."""

    kind = "lock"

    def __init__(
        self,
        transport: Transport,
        locks: tuple[str, ...],
        terms: Terms,
        *,
        permits: Sequence[WantedPermits],
        rate_limits: Sequence[WantedRate],
        mode: Mode,
        scope: Scope,
    ) -> None:
        super().__init__(transport, (*locks, *[to_name(one.name) for one in permits]), terms)
        self.keys = self.keys[: len(locks)]  # of permits there may be more
        self.mode = mode
        self._locks = locks
        self._permits = tuple(permits)
        self._fields: dict[str, object] = {
            "locks": [{"name": name, "mode": mode, "scope": scope} for name in locks],
            "permits": [one.fields() for one in permits],
            "rate_limits": [one.fields() for one in rate_limits],
        }
        self._limited_names = ", ".join([to_name(one.name) for one in rate_limits])

    async def locked(self) -> bool:
        """Ask the cluster whether a lock of it is held, or a semaphore of it has too few permits."""
        locks = [hold_operations.get_lock(name, is_stale=False) for name in self._locks]
        permits = [
            (primitive_operations.get_semaphore(to_name(one.name), is_stale=False), one.permits)
            for one in self._permits
        ]
        if any([(await self._transport.call(read)).holders for read in locks]):
            return True
        shown = [(await self._transport.call(read), wanted) for read, wanted in permits]
        return any(info.limit > 0 and info.available < wanted for info, wanted in shown)

    def _operation(self, wanted: HoldRequest) -> Operation[Grant]:
        return write(
            wire.ACQUIRE,
            self._fields | wanted.fields(),
            self._granted,
            wait_ms=wanted.longest_wait_ms,
            waits_for_ever=wanted.wait_ms is None,
            undo=lambda grant: hold_operations.release("lock", grant.hold_id),
            names=self._names,
        )

    def _granted(self, answer: TimedAnswer) -> Grant:
        granted = decode(answer, HoldGiven)
        return hold_operations.grant_of("lock", granted, answer.asked_at_s, self._names, self.mode)

    def _hold(self, granted: Grant, session: Session | None) -> Hold:
        return Hold(self._transport, granted, session)

    async def _acquire(self, terms: Terms) -> Hold:
        try:
            return await super()._acquire(terms)
        except Refused as error:
            if error.code != "rate-limited":
                raise
            retry_after_ms = error.problem.get("retry_after_ms")
            retry_after_s = retry_after_ms / 1000 if isinstance(retry_after_ms, int) else 0.0
            raise RateLimited(self._limited_names, retry_after_s) from error
