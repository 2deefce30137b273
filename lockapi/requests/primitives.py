"""Requests about semaphores, rate limits, fences and elections."""

from typing import Annotated

import msgspec
from msgspec.structs import replace

from lockapi.requests.fields import (
    UNSET,
    HoldIdText,
    IfHeldUncounted,
    Maybe,
    Name,
    PermitsLimit,
    RateLimit,
    Reason,
    Request,
    SessionIdText,
    Token,
    Value,
    WaitingRequest,
    Window,
    Write,
    check,
    check_name,
    check_reason,
    invalid,
)
from lockapi.requests.ids import new_hold_ids
from lockapi.requests.locks import AcquiringAs
from lockstate.rules import checks, elections, rates
from lockstate.words import limits
from lockstate.words.commands import holds, primitives
from lockstate.words.ids import NO_ATTEMPT, NO_OWNER, OwnerName
from lockstate.words.kinds import Algorithm, HoldKind
from lockstate.words.wanted import WantedRate

Permits = Annotated[int, msgspec.Meta(extra_json_schema={"minimum": 1, "description": "At most the limit."})]


class AcquirePermitsRequest(AcquiringAs, kw_only=True):
    """Acquire permits of a semaphore, for a session or with a lease of their own."""

    name: Name
    limit: PermitsLimit | Maybe = UNSET
    permits: Permits = 1
    strict: bool = False

    def command(self) -> holds.AcquirePermits:
        """Return the command, with new ids for the hold and the attempt."""
        check(limits.check_name(self.name))
        limit = self._checked_limit()
        session_id, ttl_ms = self.checked_lease()
        hold_id, attempt_id = new_hold_ids()
        return holds.AcquirePermits(
            self.name,
            limit,
            self.permits,
            hold_id,
            attempt_id,
            session_id,
            ttl_ms,
            self.owner,
            self.wait_ms,
            self.checked_id(),
            self.strict,
            self.uncommon(),
        )

    def _checked_limit(self) -> int:
        """Return the limit, 0 if none is given. Raises ProblemError."""
        if self.limit is not UNSET:
            check(checks.check_limit(self.limit, self.permits))
            return self.limit
        if self.strict:
            raise invalid("limit: must be given with strict")
        check(checks.check_limit(limits.SEMAPHORE_LIMIT_MAX, self.permits))
        return 0


class ResizeRequest(Write, kw_only=True):
    """Give a semaphore another limit."""

    name: Name
    limit: PermitsLimit
    reason: Reason

    def command(self) -> primitives.ResizeSemaphore:
        """Return the command."""
        check(limits.check_name(self.name))
        check(checks.check_limit(self.limit))
        check_reason(self.reason)
        return primitives.ResizeSemaphore(self.name, self.limit, self.checked_id(), self.reason)


class TakeRateRequest(WaitingRequest, kw_only=True):
    """Take `cost` from a rate limit, at once or within `wait_ms`.

    What its namespace sets of `limit`, `window_ms` and `algorithm` may be left out.
    """

    name: Name
    limit: RateLimit | Maybe = UNSET
    window_ms: Window | Maybe = UNSET
    algorithm: Algorithm | Maybe = UNSET
    cost: Permits = 1

    def command(self) -> primitives.TakeRate:
        """Return the command."""
        return replace(
            taking(wanted_rate(self)),
            wait_ms=self.checked_wait_ms(),
            request_id=self.checked_id(),
            attempt_id=new_hold_ids()[1] if self.wait_ms else NO_ATTEMPT,
        )


class PeekRateRequest(Request, kw_only=True):
    """Ask what a rate limit would answer, without taking anything from it."""

    name: Name
    limit: RateLimit | Maybe = UNSET
    window_ms: Window | Maybe = UNSET
    algorithm: Algorithm | Maybe = UNSET
    cost: Permits = 1

    def command(self) -> primitives.TakeRate:
        """Return the command that would take it."""
        return taking(wanted_rate(self))


class WantedRateJson(Request, kw_only=True):
    """A place of one rate limit, asked for together with other things."""

    name: Name
    limit: RateLimit | Maybe = UNSET
    window_ms: Window | Maybe = UNSET
    algorithm: Algorithm | Maybe = UNSET
    cost: Permits = 1


def taking(wanted: WantedRate) -> primitives.TakeRate:
    """Return the command that takes just this. Raises ProblemError."""
    check(rates.check_wanted(wanted))
    return primitives.TakeRate(wanted.name, wanted.limit, wanted.window_ms, wanted.algorithm, wanted.cost)


def even_rate(name: str, limit: int, window_ms: int, cost: int) -> primitives.TakeRate:
    """Return the command that takes this by the generic cell rate algorithm. Raises ProblemError."""
    return taking(WantedRate(name, limit, window_ms, Algorithm.GCRA, cost))


def wanted_rate(asked: TakeRateRequest | PeekRateRequest | WantedRateJson, where: str = "") -> WantedRate:
    """Return what is asked of a rate limit. The command says 0 for what is left out. Raises ProblemError.

    `where` stands before the field that is wrong.
    """
    limit, window_ms = asked.limit, asked.window_ms
    check(
        rates.check_rate(
            1 if limit is UNSET else limit,
            limits.RATE_WINDOW_MS_MIN if window_ms is UNSET else window_ms,
            where,
        )
    )
    return WantedRate(
        asked.name,
        0 if limit is UNSET else limit,
        0 if window_ms is UNSET else window_ms,
        None if asked.algorithm is UNSET else asked.algorithm,
        asked.cost,
    )


class CheckFenceRequest(Request, kw_only=True):
    """Ask whether a token is that of a present hold: of one kind, or of any."""

    name: Name
    token: Token
    kind: HoldKind | Maybe = UNSET

    def checked(self) -> tuple[str, int, HoldKind | None]:
        """Return name, token and kind."""
        check(limits.check_name(self.name))
        check(limits.check_range("token", self.token, limits.TOKEN_MAX))
        return self.name, self.token, None if self.kind is UNSET else self.kind


class AdvanceFenceRequest(Write, kw_only=True):
    """Make a resource accept this token and higher ones only."""

    name: Name
    token: Token

    def command(self) -> primitives.AdvanceFence:
        """Return the command."""
        check_name("name", self.name)
        check(limits.check_range("token", self.token, limits.TOKEN_MAX))
        return primitives.AdvanceFence(self.name, self.token, self.checked_id())


class CampaignRequest(WaitingRequest, kw_only=True):
    """Ask to lead an election, for a session."""

    name: Name
    session_id: SessionIdText
    value: Value
    owner: OwnerName = NO_OWNER
    if_held: IfHeldUncounted | Maybe = UNSET

    def command(self) -> holds.Campaign:
        """Return the command, with new ids for the hold and the attempt."""
        check(limits.check_name(self.name))
        check(limits.check_id("session_id", self.session_id))
        check(limits.check_text("value", self.value, limits.VALUE_BYTES_MAX))
        check(limits.check_text("owner", self.owner, limits.OWNER_BYTES_MAX))
        self.checked_wait_ms()
        if_held = None if self.if_held is UNSET else self.if_held
        check(elections.check_uncounted(if_held))
        hold_id, attempt_id = new_hold_ids()
        return holds.Campaign(
            self.name,
            self.session_id,
            self.value,
            hold_id,
            attempt_id,
            self.owner,
            self.wait_ms,
            self.checked_id(),
            if_held,
        )


class ProclaimRequest(Write, kw_only=True):
    """Change the value of an election, as its leader."""

    hold_id: HoldIdText
    value: Value

    def command(self) -> holds.Proclaim:
        """Return the command."""
        check(limits.check_id("hold_id", self.hold_id))
        check(limits.check_text("value", self.value, limits.VALUE_BYTES_MAX))
        return holds.Proclaim(self.hold_id, self.value, self.checked_id())
