"""Requests about namespaces: what holds for the names at and below a prefix."""

from typing import Any

from lockapi.requests.fields import (
    UNSET,
    Grace,
    HeldTime,
    IfHeldUncounted,
    LockDelay,
    Maybe,
    RateLimit,
    Reason,
    Removal,
    Request,
    Ttl,
    Wait,
    Window,
    Write,
    check,
    check_reason,
    invalid,
)
from lockapi.requests.quotas import Amount
from lockstate.rules import namespace_rules
from lockstate.words import limits
from lockstate.words.commands.admin import SetNamespace
from lockstate.words.kinds import Algorithm
from lockstate.words.settings import NamespaceSettings, RateSettings


class RateSettingsRequest(Request, kw_only=True):
    """What each rate limit of a namespace is, each by its name."""

    limit: RateLimit
    window_ms: Window
    algorithm: Algorithm = Algorithm.FIXED_WINDOW


class SetNamespaceRequest(Write, kw_only=True):
    """Say what holds for names at and below a prefix; what is left out is left open."""

    reason: Reason
    ttl_ms_min: Ttl | Maybe = UNSET
    ttl_ms_max: Ttl | Maybe = UNSET
    lock_delay_ms_min: LockDelay | Maybe = UNSET
    no_deadline: bool | Maybe = UNSET
    priority: bool | Maybe = UNSET
    holds: Amount | Maybe = UNSET
    waits: Amount | Maybe = UNSET
    cells: Amount | Maybe = UNSET
    fences: Amount | Maybe = UNSET
    rate_limits: Amount | Maybe = UNSET
    bytes: Amount | Maybe = UNSET
    if_held: IfHeldUncounted | Maybe = UNSET
    rate: RateSettingsRequest | Maybe = UNSET
    ask_after_ms_min: Wait | Maybe = UNSET
    grace_ms_min: Grace | Maybe = UNSET
    held_ms_max: HeldTime | Maybe = UNSET

    def command(self, prefix: str, reason: str) -> SetNamespace:
        """Return the command. Raises ProblemError."""
        said: dict[str, Any] = {
            what: getattr(self, what)
            for what in NamespaceSettings.__struct_fields__
            if getattr(self, what) is not UNSET
        }
        if not said:
            every = ", ".join(NamespaceSettings.__struct_fields__)
            raise invalid(f"{every}: one of them is required; DELETE removes a namespace")
        if self.rate is not UNSET:
            said["rate"] = RateSettings(self.rate.limit, self.rate.window_ms, self.rate.algorithm)
        settings = NamespaceSettings(**said)
        check(limits.check_prefix(prefix))
        check(namespace_rules.check_settings(settings))
        check_reason(reason)
        return SetNamespace(prefix, settings, self.checked_id(), reason)


class RemoveNamespaceRequest(Removal, kw_only=True):
    """Remove a namespace. What is there stays."""

    def command(self, prefix: str, reason: str) -> SetNamespace:
        """Return the command. Raises ProblemError."""
        check(limits.check_prefix(prefix))
        check_reason(reason)
        return SetNamespace(prefix, None, self.checked_id(), reason)
