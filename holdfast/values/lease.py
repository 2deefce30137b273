"""How long something that was granted can be relied on, by the client's own clock."""

import math
import os
from collections.abc import Callable
from typing import Any, Final

import msgspec

from holdfast.values.clock import REAL, Clock
from holdfast.values.durations import Seconds, to_s
from holdfast.values.errors import LeaseLost
from holdfast.values.words import HoldState, Reason
from holdfast.wire.held import Revocation

ROUNDING_MS = 1
"""Milliseconds taken off a lease: the cluster counts whole ones, and may have cut off almost one."""
CLOCK_RATE_DIVISOR = 500
"""Part of a lease that is taken off: one in 500 covers two bad crystals that are being slewed apart."""
RENEW_DIVISOR = 3
"""A lease is renewed after this part of it: two more renewals may fail before it is over."""
_ASKED_MS_MIN: Final = 1500
"""Milliseconds: the nearest end of a revocation by which renewals are timed: one in half a second."""

RELEASED: Final = "released"
"""The reason of a hold whose release, or of a session whose close, was asked for."""
FORKED: Final = "forked"
"""The reason in a forked child: what the parent holds, only the parent holds."""
EXPIRED: Final = "expired"
"""The reason when the lease is over by our own clock."""
MAX_HOLD: Final = "max-hold"
"""The reason when a lock was held for as long as its user allowed."""
OWNER_GONE: Final = "owner-gone"
"""The reason when the task or thread that it was tied to has ended without a release."""
NOT_RENEWED: Final = "not-renewed"
"""The reason when something else than the cluster ended the renewals, such as the end of the event loop."""
LEASE_EXPIRED: Final = "lease-expired"
"""The reason when the cluster said that a hold is over."""
SESSION_EXPIRED: Final = "session-expired"
"""The reason when the cluster said that a session is over."""
AT_RISK: Final = "at-risk"
"""The reason when less time is left than the caller needs."""


class Lease(msgspec.Struct, frozen=True):
    """How long a right can be relied on, by the client's own monotonic clock.

    `asked_at_s` was read before the request left, so the cluster began to count later than we do.
    `revocations` are what of holds is to be given up, by token, as the cluster told it with the lease.
    What `is_endless` has no lease, and needs no renewal. `token` is that of the one hold that was renewed, 0
    if the answer was not about one.
    """

    asked_at_s: float
    expires_in_ms: int
    revocations: dict[int, tuple[Revocation, ...]] = {}
    is_endless: bool = False
    token: int = 0

    @property
    def valid_until_s(self) -> float:
        """When to stop, at the latest: always before the cluster gives the right to somebody else."""
        if self.is_endless:
            return math.inf
        allowance_ms = ROUNDING_MS + -(-self.expires_in_ms // CLOCK_RATE_DIVISOR)
        return self.asked_at_s + max(0, self.expires_in_ms - allowance_ms) / 1000

    @property
    def renew_at_s(self) -> float:
        """When to renew, at the latest. What is to be given up sooner may have been taken back by then."""
        if self.is_endless:
            return math.inf
        asked = [one.ends_in_ms for of_hold in self.revocations.values() for one in of_hold]
        ends_in_ms = min(
            [self.expires_in_ms, max(min(asked), _ASKED_MS_MIN)] if asked else [self.expires_in_ms]
        )
        return self.asked_at_s + ends_in_ms / (1000 * RENEW_DIVISOR)

    @property
    def at_risk_at_s(self) -> float:
        """When a renewal is overdue: two thirds of the lease are over."""
        if self.is_endless:
            return math.inf
        return self.asked_at_s + 2 * self.expires_in_ms / (1000 * RENEW_DIVISOR)

    def remaining_s(self, now_s: float) -> float:
        """Return how long the right can still be relied on; 0 when it cannot."""
        return max(0.0, self.valid_until_s - now_s)


class Leased:
    """Something that lasts as long as its lease. The client replaces `lease` with each renewal.

    Once ended it stays ended: the answer to a renewal that comes later does not bring it back. What hears of
    the end (`when_ended`) is called once, in the thread that ends it, and with what has ended: so it need not
    refer to it, which would keep it from being collected.
    """

    def __init__(self, lease: Lease, clock: Clock = REAL) -> None:
        self.own_lease = lease
        self.clock = clock
        self.cause: BaseException | None = None
        self._ended_by: Reason = ""
        self._pid = os.getpid()
        self._hearers: list[Callable[[Any], object]] = []

    @property
    def described(self) -> str:
        """What it is, in words for people."""
        return "the lease"

    @property
    def lease(self) -> Lease:
        """How long it can be relied on, if nothing ends it before."""
        return self.own_lease

    @property
    def reliable(self) -> Lease:
        """How long it can be relied on with all that is known: the lease, unless it is to end before."""
        return self.lease

    @property
    def asked_because(self) -> str:
        """Why its holder was asked to give it up; empty if nobody asks."""
        return ""

    @property
    def reason(self) -> Reason:
        """Why it cannot be relied on any longer; empty while it can.

        `released`, `forked` (this process is a child of the one that has it), `expired` (by our own clock),
        `max-hold`, `owner-gone` (the task or thread that it was tied to ended without a release),
        `not-renewed` (somebody else has ended the renewals), or the code with which the cluster said that it
        is over: `lease-expired`, `session-expired`.
        """
        if self._pid != os.getpid():
            return FORKED
        if self._ended_by:
            return self._ended_by
        return "" if self.clock.now_s() < self.reliable.valid_until_s else EXPIRED

    @property
    def state(self) -> HoldState:
        """`held`, `at-risk` (its renewal is overdue), `lost`, or `released` (also by a hand-over)."""
        if reason := self.reason:
            return "released" if reason == RELEASED else "lost"
        return "at-risk" if self.clock.now_s() >= self.lease.at_risk_at_s else "held"

    @property
    def remaining(self) -> float:
        """For how many seconds it can still be relied on, by our own clock; 0 when it cannot."""
        return 0.0 if self.reason else self.reliable.remaining_s(self.clock.now_s())

    @property
    def is_valid(self) -> bool:
        """Whether it can still be relied on: not ended, as far as we know, nor over by our own clock."""
        return not self.reason

    @property
    def has_ended(self) -> bool:
        """Whether something else than its time has ended it."""
        return self._ended_by not in ("", EXPIRED) or self._pid != os.getpid()

    def ensure(self, seconds: Seconds = 0) -> None:
        """Raise LeaseLost unless it can be relied on for this long. Call it before each protected step."""
        if reason := self.reason:
            raise self.loss(reason)
        if self.remaining < (needed_s := to_s(seconds, "seconds")):
            raise LeaseLost(f"{self.described} cannot be relied on for {needed_s:g} s", AT_RISK)

    def ensure_valid(self) -> None:
        """Raise LeaseLost when it cannot be relied on: `ensure(0)`."""
        self.ensure()

    def refuse_forked(self) -> None:
        """Raise LeaseLost for what the parent of this process holds: the child must not end or keep it."""
        if self.reason == FORKED:
            raise LeaseLost("this belongs to the process that this one was forked from", FORKED)

    def end(self, reason: Reason, cause: BaseException | None = None) -> None:
        """Make it invalid for good. The first reason stays."""
        if self._ended_by:
            return
        self._ended_by, self.cause = reason, cause
        self._after_end()
        hearers, self._hearers = self._hearers, []
        for hear in hearers:
            hear(self)

    def _after_end(self) -> None:
        """Do what its kind does at its end, before others hear of it."""

    def when_ended(self, hear: Callable[[Any], object]) -> None:
        """Call this with it when it ends; at once if it has."""
        if self._ended_by:
            hear(self)
        else:
            self._hearers.append(hear)

    def forget_hearer(self, hear: Callable[[Any], object]) -> None:
        """Do not call this any more."""
        if hear in self._hearers:
            self._hearers.remove(hear)

    def loss(self, reason: Reason) -> LeaseLost:
        """Return the error that says why this cannot be relied on."""
        verdict = "cannot be relied on" if reason == RELEASED else "is lost"
        why = (str(self.cause) if self.cause is not None else "") or reason  # a TimeoutError says nothing
        asked = self.asked_because
        if reason in (EXPIRED, LEASE_EXPIRED) and asked and not why.endswith(f": {asked}"):
            why = f"{why}; its holder had been asked to give it up: {asked}"
        error = LeaseLost(f"{self.described} {verdict}: {why}", reason)
        error.__cause__ = self.cause
        return error
