"""What a client has been given, Hold and Session, and the clock by which it can be relied on."""

import time

import msgspec

from holdfast._errors import LeaseLost

ROUNDING_MS = 1
"""Milliseconds taken off a lease: the cluster counts whole ones, and may have cut off almost one."""
CLOCK_RATE_DIVISOR = 500
"""Part of a lease that is taken off: one in 500 covers two bad crystals that are being slewed apart."""
RENEW_DIVISOR = 3
"""A lease is renewed after this part of it: two more renewals may fail before it is over."""

_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def now_s() -> float:
    """Read this machine's monotonic clock, in seconds.

    On Linux it is the one that goes on while the machine is suspended: the cluster did not stop meanwhile.
    """
    return time.clock_gettime(_CLOCK)


class Lease(msgspec.Struct, frozen=True):
    """How long a right can be relied on, by the client's own monotonic clock.

    `asked_at_s` was read before the request left, so the cluster began to count later than we do.
    """

    asked_at_s: float
    expires_in_ms: int

    @property
    def valid_until_s(self) -> float:
        """When to stop, at the latest: always before the cluster gives the right to somebody else."""
        allowance_ms = ROUNDING_MS + -(-self.expires_in_ms // CLOCK_RATE_DIVISOR)
        return self.asked_at_s + max(0, self.expires_in_ms - allowance_ms) / 1000

    @property
    def renew_at_s(self) -> float:
        """When to renew."""
        return self.asked_at_s + self.expires_in_ms / (1000 * RENEW_DIVISOR)

    def remaining_s(self, now_s: float) -> float:
        """Return how long the right can still be relied on; 0 when it cannot."""
        return max(0.0, self.valid_until_s - now_s)


class _Leased:
    """Something that lasts as long as its lease. The client replaces `lease` with each renewal."""

    def __init__(self, lease: Lease) -> None:
        self.lease = lease

    @property
    def remaining_ms(self) -> int:
        """How long it can still be relied on, by our own clock; 0 when it cannot."""
        return int(self.lease.remaining_s(now_s()) * 1000)

    @property
    def is_valid(self) -> bool:
        """Whether it can still be relied on, by our own clock. The cluster may know worse, never better."""
        return self.lease.remaining_s(now_s()) > 0


class Session(_Leased):
    """An open session. `session_id` is a secret: whoever knows it may use it."""

    def __init__(self, session_id: str, lease: Lease) -> None:
        super().__init__(lease)
        self.session_id = session_id

    def __repr__(self) -> str:
        return f"<Session remaining_ms={self.remaining_ms}>"


class Hold(_Leased):
    """One granted lock. `token` is for the resource; `hold_id` is a secret: whoever knows it may release."""

    def __init__(self, *, hold_id: str, token: int, name: str, mode: str, lease: Lease) -> None:
        super().__init__(lease)
        self.hold_id = hold_id
        self.token = token
        self.name = name
        self.mode = mode

    def __repr__(self) -> str:
        return f"<Hold name={self.name!r} token={self.token} remaining_ms={self.remaining_ms}>"

    def ensure_valid(self) -> None:
        """Raise LeaseLost when the lease is over by our own clock. Call it before each protected step."""
        if not self.is_valid:
            raise LeaseLost(f"the lease of {self.name!r} is over (token {self.token})")
