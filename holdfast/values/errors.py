"""What can go wrong, as exceptions. Each says whether it happened.

LockError
 +-- Refused           no        the cluster decided against it; `.code` says why
 |    +-- InvalidRequest         the call is wrong: correct it
 |    +-- AccessDenied           the caller is not known (its token is wrong), or has no right for this
 |    +-- LockHeld               somebody else has the lock or the permits, or it is frozen
 |    |    +-- LockTimeout       and still has it when the wait is over; a TimeoutError, too
 |    +-- AlreadyHeld            this session has it already, or is about to get it
 |    +-- RateLimited            the rate limit allows it later; a TimeoutError, too
 |    +-- Deadlock               the wait would never end: release what you hold, start over
 |    +-- SessionExpired         the session is over, and with it all that it held
 |    +-- LeaseExpired           the hold is over: it expired, was released, or was forced
 |    +-- StaleToken             a fenced resource has already seen a newer token
 |    +-- CellChanged            a cell is not as it was read: read it again
 |    +-- Compacted              the events asked for are gone: look at the present, watch from now on
 |    +-- MemberChangeRefused    the members of the cluster stay as they are
 +-- Unavailable       no        no node could do it before the deadline; surely not applied
 |    +-- TlsRefused             TLS fails with all nodes, and will: it is not tried for long
 +-- OutcomeUnknown    perhaps   it was sent, and no answer came before the deadline, or none about it
 +-- LeaseLost         it did,   but the lock cannot be relied on any longer: stop the protected work
"""

from collections.abc import Callable, Mapping
from typing import TypeVar

from holdfast.values.held_text import held_text

E = TypeVar("E", bound="LockError")


class LockError(Exception):
    """Base of all errors of this package. They can be pickled and copied with all their attributes."""

    def __reduce__(self) -> tuple[Callable[..., "LockError"], tuple[object, ...]]:
        """Keep all attributes when pickled or copied."""
        return _made_again, (type(self), self.args, self.__dict__)


class Refused(LockError):
    """The cluster decided against the request, which had no effect.

    `code` is the public problem code; `problem` the whole problem document, as decoded JSON.
    """

    def __init__(self, code: str, detail: str, problem: Mapping[str, object] | None = None) -> None:
        super().__init__(f"{code}: {detail}" if detail else code)
        self.code = code
        self.detail = detail
        self.problem: Mapping[str, object] = problem or {}


class InvalidRequest(Refused):
    """The call is wrong, and stays wrong when repeated."""


class AccessDenied(Refused):
    """The caller is not known (`code` is `unauthenticated`), or has no right for this (`forbidden`)."""


class LockHeld(Refused):
    """Another client has the lock, the permits or the election. `problem["holders"]` lists the holders.

    Or nothing is granted there for now: then `code` is `frozen`, and `detail` says why.

    After a wait, `problem` has `waited_ms`, and the `position` in the queue at which it was given up.
    """

    def __str__(self) -> str:
        return held_text(super().__str__(), self.problem)


class LockTimeout(LockHeld, TimeoutError):
    """Somebody else still has it when the time that the caller gave it is over."""


class AlreadyHeld(Refused):
    """The session has it already, or another task or thread is about to acquire it in the same session."""


class QuotaExceeded(Refused):
    """The principal has as much as it may have: `problem` has the `quota`, its `limit` and what is `used`."""


class RateLimited(Refused, TimeoutError):
    """The rate limit allows it later: in `retry_after` seconds."""

    def __init__(self, name: str, retry_after: float) -> None:
        super().__init__("rate-limited", f"{name!r} allows it in {retry_after:g} s")
        self.retry_after = retry_after


class Deadlock(Refused):
    """The wait would never end. `problem["cycle"]` lists each owner, and the name it waits for."""


class CellChanged(Refused):
    """A cell is not as it was read. `problem` has its present `version` and `mod_revision`; 0: it is gone."""


class Compacted(Refused):
    """The events asked for are gone. Look at the present state, and watch from now on."""


class SessionExpired(Refused):
    """The session is over, or was never known."""


class LeaseExpired(Refused):
    """The hold is over: it expired, was released, or was ended by force."""


class MemberChangeRefused(Refused):
    """The members of the cluster stay as they are; `code` and `detail` say why."""


class StaleToken(Refused):
    """A fenced resource has already seen `highest_token`, which is newer than the token shown."""

    def __init__(self, token: int, highest_token: int) -> None:
        super().__init__("stale-token", f"token {token} is older than {highest_token}, which was seen before")
        self.token = token
        self.highest_token = highest_token


class Unavailable(LockError):
    """No node could do it before the deadline, and it was surely not applied. `code` is the last reason."""

    def __init__(self, detail: str, code: str = "unavailable") -> None:
        super().__init__(detail)
        self.code = code


class TlsRefused(Unavailable):
    """TLS fails with every node: a certificate is wrong, missing or too old, or a URL has a wrong scheme."""

    def __init__(self, detail: str) -> None:
        super().__init__(detail, "tls-refused")


class OutcomeUnknown(LockError):
    """It may or may not have been applied. Repeat it with the same `request_id` to find out.

    Requests over a stream have no `request_id`: the client has asked for their number until the end.
    """

    def __init__(self, detail: str, request_id: str = "") -> None:
        super().__init__(detail)
        self.request_id = request_id


class LeaseLost(LockError):
    """The lock cannot be relied on any longer: another client may hold it now. Stop the protected work.

    `reason` is the hold's: `expired`, `lease-expired`, `session-expired`, `released`, `forked`, `max-hold` or
    `owner-gone`; or `at-risk`, when less time is left than `ensure` was asked for.
    """

    def __init__(self, detail: str, reason: str = "") -> None:
        super().__init__(detail)
        self.reason = reason


def _made_again(kind: type[E], args: tuple[object, ...], attributes: Mapping[str, object]) -> E:
    """Return an error that was pickled or copied. Its `__init__` takes other arguments than `args` has."""
    error = kind.__new__(kind)
    error.args = args
    error.__dict__.update(attributes)
    return error


_REFUSALS: dict[str, type[Refused]] = {
    "unauthenticated": AccessDenied,
    "forbidden": AccessDenied,
    "lock-held": LockHeld,
    "no-permits": LockHeld,
    "frozen": LockHeld,
    "already-held": AlreadyHeld,
    "quota-exceeded": QuotaExceeded,
    "deadlock": Deadlock,
    "conversion-deadlock": Deadlock,
    "cell-changed": CellChanged,
    "compacted": Compacted,
    "session-expired": SessionExpired,
    "lease-expired": LeaseExpired,
    "member-change-refused": MemberChangeRefused,
    "member-change-pending": MemberChangeRefused,
    "member-not-found": MemberChangeRefused,
    "invalid-request": InvalidRequest,
    "name-too-long": InvalidRequest,
    "wrong-kind": InvalidRequest,
    "ttl-out-of-range": InvalidRequest,
    "payload-too-large": InvalidRequest,
    "unsupported-encoding": InvalidRequest,
    "expectation-failed": InvalidRequest,
}


def refusal(code: str, detail: str, problem: Mapping[str, object]) -> Refused:
    """Return the exception for a refusal: the subclass of its code, or `Refused` for a code of the future."""
    return _REFUSALS.get(code, Refused)(code, detail, problem)
