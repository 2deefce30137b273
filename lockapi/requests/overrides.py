"""Requests of operators about what others have: the reason of each is kept in the audit. And one answer.

Force on holds is in `locks`, with what is particular to it.
"""

from lockapi.requests.fields import (
    GRACE_MS,
    UNSET,
    FreezeTime,
    Grace,
    HeldToken,
    HoldIdText,
    Maybe,
    Name,
    Reason,
    Removal,
    Write,
    check,
    check_between,
    check_prefix_or_all,
    check_reason,
)
from lockstate.words import limits
from lockstate.words.commands import holds, overrides
from lockstate.words.kinds import HoldKind


class ForceCloseSessionRequest(Write, kw_only=True):
    """End a session, known by its public name."""

    session_name: Name
    reason: Reason

    def command(self) -> overrides.ForceCloseSession:
        """Return the command. Raises ProblemError."""
        check(limits.check_id("session_name", self.session_name))
        check_reason(self.reason)
        return overrides.ForceCloseSession(self.session_name, self.reason, self.checked_id())


class LiftDelayRequest(Write, kw_only=True):
    """End the lock-delays of a name before their time."""

    name: Name
    reason: Reason

    def command(self, kind: HoldKind) -> overrides.LiftDelay:
        """Return the command for a lock or a semaphore. Raises ProblemError."""
        check(limits.check_name(self.name))
        check_reason(self.reason)
        return overrides.LiftDelay(self.name, self.reason, kind, self.checked_id())


class ForgetFenceRequest(Write, kw_only=True):
    """Forget the highest token that a resource has seen."""

    name: Name
    reason: Reason

    def command(self) -> overrides.ForgetFence:
        """Return the command. Raises ProblemError."""
        check(limits.check_name(self.name))
        check_reason(self.reason)
        return overrides.ForgetFence(self.name, self.reason, self.checked_id())


class ForgetRatesRequest(Removal, kw_only=True):
    """Forget rate limits: they are as new."""

    def command(self, name: str, reason: str) -> overrides.ForgetRates:
        """Return the command for those of one name. Raises ProblemError."""
        check(limits.check_name(name))
        check_reason(reason)
        return overrides.ForgetRates(name, reason, request_id=self.checked_id())

    def command_below(self, prefix: str, reason: str, *, is_all: bool) -> overrides.ForgetRates:
        """Return the command for those whose names begin with a prefix, or for all. Raises ProblemError."""
        check_prefix_or_all(prefix, is_all=is_all, what="rate limits")
        check(limits.check_text("prefix", prefix, limits.NAME_BYTES_MAX))
        check_reason(reason)
        return overrides.ForgetRates(prefix, reason, is_prefix=True, request_id=self.checked_id())


class ForceWaitsRequest(Write, kw_only=True):
    """End the waits for a name, or the one that has number `ticket`."""

    name: Name
    reason: Reason
    kind: HoldKind = HoldKind.LOCK
    ticket: HeldToken | Maybe = UNSET

    def command(self) -> overrides.ForceWaits:
        """Return the command. Raises ProblemError."""
        check(limits.check_name(self.name))
        check_reason(self.reason)
        ticket = _number("ticket", self.ticket)
        return overrides.ForceWaits(self.name, self.reason, self.kind, ticket, self.checked_id())


class FreezeRequest(Write, kw_only=True):
    """Grant nothing new at and below a prefix, for `for_ms` or until it is thawed."""

    reason: Reason
    for_ms: FreezeTime | Maybe = UNSET

    def command(self, prefix: str) -> overrides.Freeze:
        """Return the command. Raises ProblemError."""
        check(limits.check_prefix(prefix))
        check_reason(self.reason)
        for_ms = 0
        if self.for_ms is not UNSET:
            for_ms = self.for_ms
            check_between("for_ms", for_ms, 1, limits.FREEZE_MS_MAX)
        return overrides.Freeze(prefix, self.reason, for_ms, self.checked_id())


class ThawRequest(Removal, kw_only=True):
    """End the freeze of a prefix."""

    def command(self, prefix: str, reason: str) -> overrides.Thaw:
        """Return the command. Raises ProblemError."""
        check(limits.check_prefix(prefix))
        check_reason(reason)
        return overrides.Thaw(prefix, reason, self.checked_id())


class RevokeRequest(Write, kw_only=True):
    """Ask all holders of a name, or the one that has `token`, to give up within `grace_ms`."""

    name: Name
    reason: Reason
    grace_ms: Grace = GRACE_MS
    token: HeldToken | Maybe = UNSET
    ticket: HeldToken | Maybe = UNSET

    def command(self, kind: HoldKind) -> overrides.Revoke:
        """Return the command for holders of this kind. Raises ProblemError."""
        check(limits.check_name(self.name))
        check_reason(self.reason)
        check(limits.check_range("grace_ms", self.grace_ms, limits.GRACE_MS_MAX))
        token, ticket = (_number(field, getattr(self, field)) for field in ("token", "ticket"))
        return overrides.Revoke(self.name, self.reason, self.grace_ms, kind, token, ticket, self.checked_id())


class WithdrawRevocationRequest(Write, kw_only=True):
    """Take back what all holders of a name were asked, or the one that has `token`."""

    name: Name
    reason: Reason
    token: HeldToken | Maybe = UNSET
    ticket: HeldToken | Maybe = UNSET

    def command(self, kind: HoldKind) -> overrides.WithdrawRevocation:
        """Return the command for holders of this kind. Raises ProblemError."""
        check(limits.check_name(self.name))
        check_reason(self.reason)
        token, ticket = (_number(field, getattr(self, field)) for field in ("token", "ticket"))
        return overrides.WithdrawRevocation(self.name, self.reason, kind, token, ticket, self.checked_id())


def _number(field: str, value: int | Maybe) -> int:
    """Return a token or a ticket, 0 if none is given. Raises ProblemError."""
    if value is UNSET:
        return 0
    check_between(field, value, 1, limits.TOKEN_MAX)
    return value


class PutOffRequest(Write, kw_only=True):
    """Answer a revocation with "not yet"."""

    hold_id: HoldIdText

    def command(self, kind: HoldKind) -> holds.PutOff:
        """Return the command for a hold of this kind. Raises ProblemError."""
        check(limits.check_id("hold_id", self.hold_id))
        return holds.PutOff(self.hold_id, kind, self.checked_id())
