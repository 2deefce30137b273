"""What a client has been given, Hold and Session, and the clock by which it may be relied on."""

import time

from holdfast._errors import LeaseLost
from holdfast._protocol import Lease

_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def now_s() -> float:
    """Read this machine's monotonic clock, in seconds.

    On Linux it is the one that runs on while the machine is suspended: the cluster did not stop meanwhile.
    """
    return time.clock_gettime(_CLOCK)


class _Leased:
    """Something that lasts as long as its lease. The client sets `lease` anew with each renewal."""

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
    """An open session. `session_id` is a secret: who knows it may use it."""

    def __init__(self, session_id: str, lease: Lease) -> None:
        super().__init__(lease)
        self.session_id = session_id

    def __repr__(self) -> str:
        return f"<Session remaining_ms={self.remaining_ms}>"


class Hold(_Leased):
    """One granted lock. `token` is for the resource; `hold_id` is a secret: who knows it may release."""

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
