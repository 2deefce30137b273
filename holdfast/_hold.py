"""What a client has been given, Hold and Session, and the clock by which it can be relied on."""

import os
import time
from typing import Final

import msgspec

from holdfast._errors import LeaseLost

ROUNDING_MS = 1
"""Milliseconds taken off a lease: the cluster counts whole ones, and may have cut off almost one."""
CLOCK_RATE_DIVISOR = 500
"""Part of a lease that is taken off: one in 500 covers two bad crystals that are being slewed apart."""
RENEW_DIVISOR = 3
"""A lease is renewed after this part of it: two more renewals may fail before it is over."""

RELEASED: Final = "released"
"""The reason of a hold whose release, or of a session whose close, was asked for."""
FORKED: Final = "forked"
"""The reason in a forked child: what the parent holds, only the parent holds."""
EXPIRED: Final = "expired"
"""The reason when the lease is over by our own clock."""

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
    """Something that lasts as long as its lease. The client replaces `lease` with each renewal.

    Once ended it stays ended: the answer to a renewal that comes later does not bring it back.
    """

    def __init__(self, lease: Lease) -> None:
        self.lease = lease
        self._ended_by = ""
        self._pid = os.getpid()

    @property
    def reason(self) -> str:
        """Why it cannot be relied on any longer; empty while it can.

        `released`, `forked` (this process is a child of the one that has it), `expired` (by our own clock),
        or the code with which the cluster said that it is over: `lease-expired`, `session-expired`.
        """
        if self._pid != os.getpid():
            return FORKED
        if self._ended_by:
            return self._ended_by
        return "" if self.lease.remaining_s(now_s()) > 0 else EXPIRED

    @property
    def remaining_ms(self) -> int:
        """How long it can still be relied on, by our own clock; 0 when it cannot."""
        return 0 if self.reason else int(self.lease.remaining_s(now_s()) * 1000)

    @property
    def is_valid(self) -> bool:
        """Whether it can still be relied on: not ended, as far as we know, nor over by our own clock."""
        return not self.reason

    @property
    def has_ended(self) -> bool:
        """Whether something else than its time has ended it."""
        return self.reason not in ("", EXPIRED)

    def end(self, reason: str) -> None:
        """Make it invalid for good. The first reason stays."""
        self._ended_by = self._ended_by or reason


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
        self.session: Session | None = None

    @property
    def reason(self) -> str:
        """Why it cannot be relied on any longer, as of a session; it ends with the session that has it."""
        if self.session is not None and self.session.has_ended:
            return self.session.reason
        return super().reason

    def __repr__(self) -> str:
        return f"<Hold name={self.name!r} token={self.token} remaining_ms={self.remaining_ms}>"

    def ensure_valid(self) -> None:
        """Raise LeaseLost when the lock cannot be relied on. Call it before each protected step."""
        if reason := self.reason:
            raise self.lost(reason)

    def lost(self, reason: str) -> LeaseLost:
        """Return the error that says why this hold cannot be relied on."""
        return LeaseLost(f"the lock {self.name!r} (token {self.token}) cannot be relied on: {reason}", reason)
