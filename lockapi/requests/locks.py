"""Requests about locks, and what all requests that acquire have in common."""

from typing import Annotated

import msgspec

from lockapi.requests.fields import (
    GRACE_MS,
    UNSET,
    Grace,
    HeldToken,
    HoldIdText,
    HoldValue,
    LockDelay,
    Maybe,
    Name,
    NewHoldIdText,
    Priority,
    Request,
    RequestId,
    SessionIdText,
    Ttl,
    Wait,
    WaitingRequest,
    Write,
    check,
    check_between,
    check_name,
    check_new_id,
    check_reason,
    check_value,
    invalid,
)
from lockapi.requests.ids import new_hold_ids
from lockstate.rules import checks
from lockstate.words import limits
from lockstate.words.commands import holds, overrides
from lockstate.words.ids import NO_HOLD, NO_OWNER, NO_SESSION, HoldId, OwnerName, SessionId
from lockstate.words.kinds import HoldKind, IfHeld
from lockstate.words.modes import Mode, Scope
from lockstate.words.wanted import PRIORITY_DEFAULT, Asking, Uncommon, Wanted

ModeOrNot = Annotated[Mode | Maybe, msgspec.Meta(extra_json_schema={"default": Mode.EXCLUSIVE})]
IfHeldOrNot = IfHeld | Maybe
GraceOrNot = Annotated[Grace | Maybe, msgspec.Meta(extra_json_schema={"default": GRACE_MS})]
ScopeOrNot = Annotated[Scope | Maybe, msgspec.Meta(extra_json_schema={"default": Scope.NODE})]


class AcquiringRequest(WaitingRequest, kw_only=True):
    """Base of the requests that acquire. Exactly one of `session_id` and `ttl_ms` is given."""

    session_id: SessionIdText | Maybe = UNSET
    ttl_ms: Ttl | Maybe = UNSET
    owner: OwnerName = NO_OWNER
    lock_delay_ms: LockDelay = 0
    note: str = ""

    def checked_lease(self) -> tuple[SessionId, int]:
        """Check the fields of this class; return session id and ttl, of which one is given."""
        if self.owner:
            check(limits.check_text("owner", self.owner, limits.OWNER_BYTES_MAX))
        self.checked_wait_ms()
        if self.lock_delay_ms:
            check(limits.check_range("lock_delay_ms", self.lock_delay_ms, limits.LOCK_DELAY_MS_MAX))
        if self.note:
            check(limits.check_text("note", self.note, limits.NOTE_BYTES_MAX))
        return self._checked_lease()

    def uncommon(self) -> Uncommon | None:
        """Return what only few holds have, as the command has it; None if nothing of it is asked."""
        return Uncommon(self.lock_delay_ms, self.note) if self.lock_delay_ms or self.note else None

    def _checked_lease(self) -> tuple[SessionId, int]:
        if self.session_id is UNSET:
            if self.ttl_ms is UNSET:
                raise invalid("session_id or ttl_ms: one of the two is required")
            check(limits.check_ttl(self.ttl_ms))
            return NO_SESSION, self.ttl_ms
        if self.ttl_ms is not UNSET:
            raise invalid("session_id and ttl_ms: only one of the two is allowed")
        check(limits.check_id("session_id", self.session_id))
        return self.session_id, 0


class AcquiringAs(AcquiringRequest, kw_only=True):
    """Base of those that may ask for what only few have. `no_deadline` may stand in the place of a lease."""

    value: HoldValue | Maybe = UNSET
    value_secret: bool = False
    no_deadline: bool = False
    priority: Priority = PRIORITY_DEFAULT
    ask_after_ms: Wait | Maybe = UNSET
    grace_ms: GraceOrNot = UNSET

    def uncommon(self) -> Uncommon | None:
        """Check what only few holds have; return it as the command has it, None if nothing of it is asked."""
        if self.priority != PRIORITY_DEFAULT:
            check(limits.check_range("priority", self.priority, limits.PRIORITY_MAX))
        if self.value is not UNSET:
            check_value(self.value)
        elif self.value_secret:
            raise invalid("value_secret: needs a value")
        asks = self._checked_asking()
        is_common = self.value is UNSET and self.priority == PRIORITY_DEFAULT
        if is_common and not self.no_deadline and asks is None:
            return super().uncommon()
        value = "" if self.value is UNSET else self.value
        said = self.lock_delay_ms, self.note, value, self.value_secret, self.priority, self.no_deadline
        return Uncommon(*said, asks=asks)

    def _checked_asking(self) -> Asking | None:
        """Return when the wait asks by itself, None if it does not. Raises ProblemError."""
        if self.ask_after_ms is UNSET:
            if self.grace_ms is not UNSET:
                raise invalid("grace_ms: needs ask_after_ms")
            return None
        grace_ms = GRACE_MS if self.grace_ms is UNSET else self.grace_ms
        asks = Asking(self.ask_after_ms, grace_ms)
        check(checks.check_asking(asks, self.wait_ms))
        return asks

    def _checked_lease(self) -> tuple[SessionId, int]:
        if not self.no_deadline:
            return super()._checked_lease()
        for field in ("session_id", "ttl_ms"):
            if getattr(self, field) is not UNSET:
                raise invalid(f"no_deadline and {field}: only one of the two is allowed")
        return NO_SESSION, 0


class WantedLock(Request, kw_only=True):
    """One of several locks."""

    name: Name
    mode: Mode = Mode.EXCLUSIVE
    scope: Scope = Scope.NODE


def checked_locks(locks: list[WantedLock]) -> tuple[Wanted, ...]:
    """Check that there are locks, and their names; return them as a command has them."""
    if not locks:
        raise invalid("locks: must not be empty")
    for index, lock in enumerate(locks):
        check_name(f"locks[{index}].name", lock.name)
    return tuple([Wanted(lock.name, lock.mode, lock.scope) for lock in locks])


class AcquireRequest(AcquiringAs, kw_only=True):
    """Acquire a lock, or several at once: all that `locks` lists, or none of them."""

    name: Name | Maybe = UNSET
    locks: (
        Annotated[
            list[WantedLock],
            msgspec.Meta(extra_json_schema={"minItems": 1, "maxItems": limits.LOCKS_COUNT_MAX}),
        ]
        | Maybe
    ) = UNSET
    mode: ModeOrNot = UNSET
    scope: ScopeOrNot = UNSET
    if_held: IfHeldOrNot = UNSET

    def command(self) -> holds.Acquire:
        """Return the command, with new ids for the hold and the attempt."""
        if self.locks is not UNSET:
            return self._several(self.locks)
        if self.name is UNSET:
            raise invalid("name or locks: one of the two is required")
        check(limits.check_name(self.name))
        session_id, ttl_ms = self.checked_lease()
        hold_id, attempt_id = new_hold_ids()
        return holds.Acquire(
            self.name,
            Mode.EXCLUSIVE if self.mode is UNSET else self.mode,
            hold_id,
            attempt_id,
            session_id,
            ttl_ms,
            self.owner,
            self.wait_ms,
            self.checked_id(),
            Scope.NODE if self.scope is UNSET else self.scope,
            (),
            self._checked_if_held(),
            self.uncommon(),
        )

    def _several(self, locks: list[WantedLock]) -> holds.Acquire:
        for field in ("name", "mode", "scope"):
            if getattr(self, field) is not UNSET:
                raise invalid(f"{field} and locks: only one of the two is allowed")
        several = checked_locks(locks)
        session_id, ttl_ms = self.checked_lease()
        hold_id, attempt_id = new_hold_ids()
        command = holds.Acquire(
            "",
            Mode.EXCLUSIVE,
            hold_id,
            attempt_id,
            session_id,
            ttl_ms,
            self.owner,
            self.wait_ms,
            self.checked_id(),
            Scope.NODE,
            several,
            self._checked_if_held(),
            self.uncommon(),
        )
        check(checks.check_locks(command))
        return command

    def _checked_if_held(self) -> IfHeld | None:
        if self.if_held is UNSET:
            return None
        check_if_held(self.if_held, "" if self.session_id is UNSET else self.session_id)
        return self.if_held


def check_if_held(if_held: IfHeld | None, session_id: str) -> None:
    """Raise ProblemError if a request that no session makes says what counts if it holds already."""
    if if_held and not session_id:
        raise invalid("if_held: needs a session_id: without one, no two requests count as one client")


class OfHold(Write, kw_only=True):
    """Base of the requests about a hold: known by its id, or by its name and its value."""

    hold_id: HoldIdText | Maybe = UNSET
    name: Name | Maybe = UNSET
    value: HoldValue | Maybe = UNSET

    def meant(self) -> tuple[HoldId, str, str]:
        """Return the id, "" if it is not known by that, and the name and the value. Raises ProblemError."""
        if self.hold_id is not UNSET:
            for field in ("name", "value"):
                if getattr(self, field) is not UNSET:
                    raise invalid(f"{field} and hold_id: only one of the two is allowed")
            check(limits.check_id("hold_id", self.hold_id))
            return self.hold_id, "", ""
        if self.value is UNSET:
            raise invalid("hold_id or value: one of the two is required")
        if self.name is UNSET:
            raise invalid("name: must be given with value")
        check(limits.check_name(self.name))
        check_value(self.value)
        return NO_HOLD, self.name, self.value


class RenewRequest(OfHold, kw_only=True):
    """Renew the lease of a hold. If `exact`, it ends after `ttl_ms` even if it was to last longer."""

    ttl_ms: Ttl | Maybe = UNSET
    exact: bool = False

    def command(self, kind: HoldKind) -> holds.Renew | holds.RenewByValue:
        """Return the command for a hold of this kind."""
        hold_id, name, value = self.meant()
        ttl_ms = 0
        if self.ttl_ms is not UNSET:
            check(limits.check_ttl(self.ttl_ms))
            ttl_ms = self.ttl_ms
        elif self.exact:
            raise invalid("exact: needs a ttl_ms")
        if not hold_id:
            return holds.RenewByValue(name, value, ttl_ms, kind, self.checked_id(), self.exact)
        return holds.Renew(hold_id, ttl_ms, self.checked_id(), kind, self.exact)


ByValue = holds.ReleaseByValue | holds.RenewByValue
"""What is done with the hold of a lock that is known by its value."""


def taking(name: str, value: str, owner: OwnerName, ttl_ms: int | None) -> holds.Acquire:
    """Return the command that takes a lock with a value: for so long, for None without a deadline.

    The name has been checked, here and below. Raises ProblemError.
    """
    check(limits.check_text("owner", owner, limits.OWNER_BYTES_MAX))
    if ttl_ms is not None:
        check(limits.check_ttl(ttl_ms))
    check_value(value)
    hold_id, attempt_id = new_hold_ids()
    said = Uncommon(value=value, is_endless=ttl_ms is None)
    of = hold_id, attempt_id, NO_SESSION, ttl_ms or 0, owner
    return holds.Acquire(name, Mode.EXCLUSIVE, *of, uncommon=said)


def lasting(name: str, value: str, ttl_ms: int) -> holds.RenewByValue:
    """Return the command that lets the lease of a lock with a value end so long from now on.

    Raises ProblemError.
    """
    check(limits.check_ttl(ttl_ms))
    check_value(value)
    return holds.RenewByValue(name, value, ttl_ms, HoldKind.LOCK, exact=True)


def addition(name: str, value: str, ttl_ms: int) -> holds.RenewByValue:
    """Return the command that gives the lease of a lock with a value so much more than is left of it.

    The sum has the limits of any lease. Raises ProblemError.
    """
    check_value(value)
    return holds.RenewByValue(name, value, ttl_ms, exact=True, adds=True)


def ending(name: str, value: str) -> holds.ReleaseByValue:
    """Return the command that ends the hold of a lock with a value. Raises ProblemError."""
    check_value(value)
    return holds.ReleaseByValue(name, value, HoldKind.LOCK)


class ReleaseHoldRequest(Write, kw_only=True):
    """Release a hold as a whole."""

    hold_id: HoldIdText

    def command(self, kind: HoldKind) -> holds.Release:
        """Return the command for a hold of this kind."""
        check(limits.check_id("hold_id", self.hold_id))
        return holds.Release(self.hold_id, self.checked_id(), (), kind)


class ReleasePermitsRequest(OfHold, kw_only=True):
    """Release permits."""

    def command(self, kind: HoldKind) -> holds.Release | holds.ReleaseByValue:
        """Return the command for a hold of this kind."""
        hold_id, name, value = self.meant()
        if not hold_id:
            return holds.ReleaseByValue(name, value, kind, self.checked_id())
        return holds.Release(hold_id, self.checked_id(), (), kind)


class ReleaseRequest(OfHold, kw_only=True):
    """Release a hold or, of a hold of several locks, only those that `names` lists."""

    names: (
        Annotated[
            tuple[Name, ...],
            msgspec.Meta(extra_json_schema={"minItems": 1, "maxItems": limits.LOCKS_COUNT_MAX}),
        ]
        | Maybe
    ) = UNSET

    def command(self) -> holds.Release | holds.ReleaseByValue:
        """Return the command."""
        hold_id, name, value = self.meant()
        if not hold_id:
            if self.names is not UNSET:
                raise invalid("names: needs a hold_id")
            return holds.ReleaseByValue(name, value, HoldKind.LOCK, self.checked_id())
        names = () if self.names is UNSET else checked_names(self.names)
        return holds.Release(hold_id, self.checked_id(), names, HoldKind.LOCK)


def checked_names(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names of locks that are to be given back. Raises ProblemError."""
    if not 1 <= len(names) <= limits.LOCKS_COUNT_MAX:
        raise invalid(f"names: {len(names)}; must be 1 to {limits.LOCKS_COUNT_MAX}")
    for index, name in enumerate(names):
        check_name(f"names[{index}]", name)
    if len(set(names)) < len(names):
        raise invalid("names: a name is given twice")
    return names


class HandOverRequest(Write, kw_only=True):
    """Give the hold of a lock to a waiter or to a session. Exactly one of the two is given.

    A session gets it under `new_hold_id`, which the client makes.
    """

    hold_id: HoldIdText
    to_ticket: HeldToken | Maybe = UNSET
    to_session: Name | Maybe = UNSET
    new_hold_id: NewHoldIdText | Maybe = UNSET

    def command(self) -> holds.HandOver:
        """Return the command. Raises ProblemError."""
        check(limits.check_id("hold_id", self.hold_id))
        ticket, session_name, new_hold_id = 0, "", NO_HOLD
        if self.to_ticket is not UNSET:
            check_between("to_ticket", self.to_ticket, 1, limits.TOKEN_MAX)
            ticket = self.to_ticket
        if self.to_session is not UNSET:
            check(limits.check_id("to_session", self.to_session))
            session_name = self.to_session
        if self.new_hold_id is not UNSET:
            check_new_id("new_hold_id", self.new_hold_id)
            new_hold_id = self.new_hold_id
        if bool(ticket) == bool(session_name):
            raise invalid("to_ticket, to_session: give exactly one of the two")
        if bool(new_hold_id) != bool(session_name):
            raise invalid("new_hold_id: give it with to_session, and only then")
        return holds.HandOver(self.hold_id, ticket, session_name, new_hold_id, self.checked_id())


class AddRequest(WaitingRequest, kw_only=True):
    """Add locks to a hold, all or none."""

    hold_id: HoldIdText
    locks: Annotated[
        list[WantedLock],
        msgspec.Meta(extra_json_schema={"minItems": 1, "maxItems": limits.LOCKS_COUNT_MAX}),
    ]

    def command(self) -> holds.AddLocks:
        """Return the command, with new ids for the ticket and the attempt."""
        check(limits.check_id("hold_id", self.hold_id))
        self.checked_wait_ms()
        locks = checked_locks(self.locks)
        check(checks.check_together(locks))
        ticket_id, attempt_id = new_hold_ids()
        return holds.AddLocks(self.hold_id, locks, ticket_id, attempt_id, self.wait_ms, self.checked_id())


class ConvertRequest(WaitingRequest, kw_only=True):
    """Change the mode of a hold."""

    hold_id: HoldIdText
    mode: Mode

    def command(self) -> holds.Convert:
        """Return the command, with new ids for the ticket and the attempt."""
        check(limits.check_id("hold_id", self.hold_id))
        self.checked_wait_ms()
        ticket_id, attempt_id = new_hold_ids()
        return holds.Convert(self.hold_id, self.mode, ticket_id, attempt_id, self.wait_ms, self.checked_id())


class WithdrawRequest(Request, kw_only=True):
    """Take back a request that may wait, on whatever node it was asked.

    With the `request_id` comes what it counts within, as the request had it: its session, its owner, or the
    hold that it was to change; none of them if it had none.
    """

    request_id: RequestId
    session_id: SessionIdText | Maybe = UNSET
    owner: OwnerName | Maybe = UNSET
    hold_id: HoldIdText | Maybe = UNSET

    def scope(self) -> str:
        """Return what the id counts within. Raises ProblemError."""
        check(limits.check_id("request_id", self.request_id))
        given = [
            (field, text)
            for field in ("session_id", "hold_id", "owner")
            if (text := getattr(self, field)) is not UNSET
        ]
        if len(given) > 1 and {field for field, _ in given} != {"session_id", "owner"}:
            raise invalid("hold_id: cannot be combined with session_id or owner")
        for field, text in given:
            check(limits.check_text(field, text, limits.OWNER_BYTES_MAX))
        return next((text for _, text in given), "")


class ForcingRequest(Write, kw_only=True):
    """Base of the requests that end holds by force. The reason is kept in the audit."""

    name: Name
    reason: str
    token: HeldToken | Maybe = UNSET

    @property
    def delay_ms(self) -> int:
        """How long nobody gets what was freed."""
        return 0

    def command(self, kind: HoldKind) -> overrides.ForceRelease:
        """Return the command that ends holds of this kind. Raises ProblemError."""
        check(limits.check_name(self.name))
        check_reason(self.reason)
        check(limits.check_range("lock_delay_ms", self.delay_ms, limits.LOCK_DELAY_MS_MAX))
        token = 0
        if self.token is not UNSET:
            check_between("token", self.token, 1, limits.TOKEN_MAX)
            token = self.token
        return overrides.ForceRelease(self.name, self.reason, self.delay_ms, self.checked_id(), kind, token)


class ForceReleaseRequest(ForcingRequest, kw_only=True):
    """End every hold of a lock or a semaphore, or the one that has `token`."""

    lock_delay_ms: LockDelay = 0

    @property
    def delay_ms(self) -> int:
        """How long nobody gets what was freed."""
        return self.lock_delay_ms


class DeposeRequest(ForcingRequest, kw_only=True):
    """End the leadership of an election: whoever leads, or only the leader that has `token`."""
