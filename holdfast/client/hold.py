"""What a client has been given: Hold and Session."""

import weakref
from collections.abc import Coroutine, Iterable
from types import FrameType
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

import msgspec

from holdfast.client import pushed
from holdfast.client.keeping import KeptAlive
from holdfast.client.watch import SessionWatch, Watch
from holdfast.operations import hold_operations, primitive_operations
from holdfast.operations.hold_operations import Grant, Opened
from holdfast.operations.operation import Operation
from holdfast.operations.terms import wait_s
from holdfast.transport.blocks import Around, Entered, Key
from holdfast.transport.transport import Transport
from holdfast.values.durations import Seconds, to_ms
from holdfast.values.errors import (
    AlreadyHeld,
    LeaseExpired,
    LockError,
    LockHeld,
    LockTimeout,
    Refused,
    SessionExpired,
    Unavailable,
)
from holdfast.values.lease import EXPIRED, LEASE_EXPIRED, RELEASED, SESSION_EXPIRED, Lease
from holdfast.values.names import Name, to_name
from holdfast.values.words import HoldKind, Mode, Reason, Scope
from holdfast.wire.held import Revocation

T = TypeVar("T")

OVER_COUNT_MAX: Final = 1000
"""Tokens of losses that a session remembers: the answer with such a token may still be on its way."""

Claim: TypeAlias = tuple[str, ...]
"""What a session can hold once only: the kind and the names."""


def claim_of_locks(names: Iterable[str]) -> Claim:
    """Return what a session can have once only of these locks, in whatever order they are named.

    And in whatever mode: a hold may be converted.
    """
    return ("lock", *sorted(set(names)))


class Session(KeptAlive):
    """An open session; its holds live with it. `session_id` is a secret: anybody that knows it may use it.

    As a context it closes at the end of the block, and cancels the block when it is lost.
    """

    kind = "session"
    over: Reason = SESSION_EXPIRED

    def __init__(self, transport: Transport, opened: Opened) -> None:
        super().__init__(transport, opened.lease)
        self.session_id = opened.session_id
        self._revision = opened.revision
        self._claims: set[Claim] = set()
        self._owned: weakref.WeakSet[Hold] = weakref.WeakSet()
        self._over: dict[int, LockError] = {}

    def __repr__(self) -> str:
        return f"<Session remaining={self.remaining:.3f}>"

    @property
    def described(self) -> str:
        """A description for people."""
        return "the session"

    @property
    def unreleased(self) -> str:
        """The warning if it was collected without a release."""
        held = sorted({f"{kind} {', '.join(names)!r}" for kind, *names in self._claims})
        return f"a session{' with the ' + ', the '.join(held) if held else ''} was never closed"

    def _after_end(self) -> None:
        super()._after_end()
        for hold in list(self._owned):
            hold.end(self.reason, self.cause)

    def begin_claim(self, claim: Claim) -> None:
        """Record an acquire in it. Raises AlreadyHeld: the cluster would give the same hold again."""
        if claim in self._claims:
            kind, *names = claim
            what = f"{kind} {', '.join(names)!r}"
            raise AlreadyHeld("already-held", f"{self.described} has the {what}, or is about to get it")
        self._claims.add(claim)

    def end_claim(self, claim: Claim) -> None:
        """Note that it is not held any longer, as far as we know."""
        self._claims.discard(claim)

    def add_hold(self, hold: "Hold") -> None:
        """Record one of its holds, until that ends."""
        self._owned.add(hold)
        self.add_token(hold, hold.token)
        if self._ended_by:  # it was lost or closed while the grant was on its way
            hold.end(self.reason, self.cause)

    def add_token(self, hold: "Hold", token: int) -> None:
        """Record the token of one of its holds, whose end may have been reported before the grant."""
        if token in self._over:
            hold.end(LEASE_EXPIRED, self._over[token])

    def end_hold(self, token: int, cause: LockError) -> None:
        """End the hold that has this token, if it is one of this client's: now, or as soon as it is known."""
        self._over[token] = cause
        if len(self._over) > OVER_COUNT_MAX:
            del self._over[next(iter(self._over))]
        for hold in [hold for hold in list(self._owned) if hold.has_had(token)]:
            hold.end(LEASE_EXPIRED, cause)

    async def look(self) -> None:
        """End the holds that the cluster no longer shows. Raises LockError."""
        known = [
            (hold, hold.names) for hold in list(self._owned)
        ]  # what is granted meanwhile may not be shown
        held = await self._transport.call(hold_operations.holdings(self.session_id))
        for hold, names in known:
            if any((hold.kind, name) not in held for name in names):
                hold.end(LEASE_EXPIRED)

    async def public_name(self) -> str:
        """Ask for the name by which others know it: it gives no right, and may be told to anybody."""
        self.refuse_forked()
        return await self._transport.call(hold_operations.session_name(self.session_id))

    def hear_losses(self) -> None:
        """Let the cluster report its losses as they happen, over a connection of its own, from now on."""
        pushed.begin(self, self._revision)

    def watch(self, *, since: str | int | None = None) -> Watch:
        """Return an iterator of the events of its holds and waits. It ends with the session."""
        return SessionWatch(self._transport, self.session_id, since)

    async def restart_lease(self, timeout_s: float | None, ttl_ms: int | None = None) -> None:
        """Start its ttl anew. Raises SessionExpired when it is over, with all that it held."""
        self.refuse_forked()
        try:
            operation = hold_operations.keepalive(self.session_id, ttl_ms)
            self.own_lease = await self._transport.call(operation, timeout_s)
        except SessionExpired as error:
            self.end(SESSION_EXPIRED, error)
            raise

    async def let_go(self, timeout_s: float | None) -> tuple[str, ...]:
        """Close it in the cluster; return the names of the locks that it held."""
        return await self._transport.complete(hold_operations.close_session(self.session_id), timeout_s)

    async def keepalive(self, *, ttl: Seconds | None = None) -> None:
        """Start its ttl anew, or from now on another one; not needed for a session that is kept alive."""
        await self.restart_lease(None, None if ttl is None else to_ms(ttl, "ttl"))

    async def close(self) -> tuple[str, ...]:
        """End it, release its holds, and return the names of those locks.

        From here on neither the session nor its holds are valid, whatever the answer.
        """
        if self.is_let_go:
            return ()
        self.refuse_forked()
        self.end(RELEASED)
        return await self.let_go(None)


class _Got(NamedTuple):
    """The newest grant of a hold: when it was heard of, how long it may last, and its names."""

    at_s: float
    lease: Lease
    names: tuple[str, ...]


class Hold(KeptAlive):
    """One grant: a lock, several locks, permits of a semaphore. `token` is for the protected resource.

    `hold_id` is a secret: anybody that knows it may release the hold. As a context it is released at the end
    of the block, and cancels the block when it is lost. It does not belong to a task, and is renewed while
    something refers to it.
    """

    kind: HoldKind
    over: Reason = LEASE_EXPIRED
    ends_by_itself = False
    """Whether giving it back leaves it to its lease, which then ends by itself: nobody gets it before."""

    def __init__(self, transport: Transport, grant: Grant, session: Session | None) -> None:
        super().__init__(transport, grant.lease)
        self.kind = grant.kind
        self.hold_id = grant.hold_id
        self.token = grant.token
        self.names = grant.names
        self.mode = grant.mode
        self.session = session
        self._put_off: Lease | None = None
        self._leaving_count = 0
        """Calls of `hand_over` that have no outcome yet."""
        self._put_aside: tuple[Reason, BaseException | None] | None = None
        """The first loss that was found during a hand-over."""
        self._got: _Got | None = _Got(self.clock.now_s(), grant.lease, grant.names)
        self._tokens = {grant.token}
        self._added: set[Claim] = set()
        self.keys: tuple[Key, ...] = ()
        """What of it can be held in one mode only."""
        self._around: Around | None = None
        self._counts: list[object] = []
        if session is not None:
            session.add_hold(self)

    @property
    def name(self) -> str:
        """The name of the lock; of several, all of them."""
        return ", ".join(self.names)

    @property
    def described(self) -> str:
        """A description for people."""
        return f"the {self.kind} {self.name!r} (token {self.token})"

    @property
    def unreleased(self) -> str:
        """The warning if it was collected without a release."""
        return f"hold {self.name!r} (token {self.token}) was never released"

    @property
    def lease(self) -> Lease:
        """How long it can be relied on, if nothing ends it before: as long as its session, if it has one."""
        return self.own_lease if self.session is None else self.session.lease

    def __repr__(self) -> str:
        return f"<{type(self).__name__} name={self.name!r} token={self.token} remaining={self.remaining:.3f}>"

    async def restart_lease(
        self, timeout_s: float | None, ttl_ms: int | None = None, *, exact: bool = False
    ) -> None:
        """Restart its lease, or its session's. Raises LeaseExpired or SessionExpired."""
        self.refuse_forked()
        got = self._got
        if self.session is not None:
            await self.session.restart_lease(timeout_s)
        else:
            try:
                operation = hold_operations.renew(self.kind, self.hold_id, ttl_ms, exact=exact)
                self.own_lease = await self._transport.call(operation, timeout_s)
            except LeaseExpired as error:
                self.end(LEASE_EXPIRED, error)
                raise
            self._has_token(self.own_lease.token)
        if self._got is got:
            self._got = None

    def hear_losses(self) -> None:
        """Let the cluster report its end as it happens, over a connection of its own, from now on."""
        pushed.begin(self, None)

    def watch(self, *, since: str | int | None = None) -> Watch:
        """Return an iterator of its events, if it has no session. It ends with the hold."""
        return SessionWatch(self._transport, self.hold_id, since)

    async def look(self) -> None:
        """Find nothing: the cluster begins to tell of a hold only while it is held."""

    def end_hold(self, token: int, cause: LockError) -> None:
        """End it: what is told of a hold by its id has one of its tokens."""
        del token
        self.end(LEASE_EXPIRED, cause)

    def has_had(self, token: int) -> bool:
        """Whether this is its token, or was before a conversion."""
        return token in self._tokens

    def _has_token(self, token: int) -> None:
        """Note a token that the cluster told; that of an earlier answer, which came late, is lower."""
        self._tokens.add(token)
        self.token = max(self._tokens)
        if self.session is not None:
            self.session.add_token(self, token)

    async def let_go(self, timeout_s: float | None) -> None:
        """Release it in the cluster."""
        if self.ends_by_itself:
            return
        await self._transport.complete(hold_operations.release(self.kind, self.hold_id), timeout_s)

    async def renew(self, *, ttl: Seconds | None = None, exact: bool = False) -> None:
        """Start its lease anew, with another `ttl` if given; not needed for one that is kept.

        A shorter `ttl` counts from the next renewal on; an `exact` one at once, so that the lease may end
        earlier than it was to. That is for holds that nothing renews in the background (`renew=False`).

        Raises LeaseExpired when it is over: stop the protected work.
        """
        if exact and ttl is None:
            raise ValueError("exact: needs a ttl")
        if exact and self._renewing is not None:
            raise ValueError("exact: this hold is renewed in the background: acquire it with renew=False")
        await self.restart_lease(None, None if ttl is None else to_ms(ttl, "ttl"), exact=exact)
        if exact:
            self.end_with_lease()

    @property
    def revocation(self) -> Revocation | None:
        """The first of the `revocations` to end, or None. The whole hold is forced when its grace is over."""
        return min(self.revocations, key=lambda one: one.ends_in_ms, default=None)

    @property
    def revocations(self) -> tuple[Revocation, ...]:
        """Requests to give up names that it still has, as of the last renewal."""
        known = self.lease.revocations
        # The token may be another one since then, and no two holds ever have the same.
        asked = [one for token in self._tokens for one in known.get(token, ())] if known else ()
        return tuple([one for one in asked if one.name in self.names])

    @property
    def asked_because(self) -> str:
        """The reason of its `revocation`; empty if there is none."""
        return "" if self.revocation is None else self.revocation.reason

    @property
    def reliable(self) -> Lease:
        """Its lease, or the time until it is forced, if it was asked to give up and that is less.

        What was granted may end before the lease that it has with others; a renewal that is asked for after
        the grant tells of that.
        """
        lease, put_off, got = self.lease, self._put_off, self._got
        if (
            got is not None
            and lease.asked_at_s <= got.at_s
            and got.lease.valid_until_s < lease.valid_until_s
            and any(name in self.names for name in got.names)
        ):
            lease = msgspec.structs.replace(got.lease, revocations=lease.revocations)
        if not lease.revocations and put_off is None:
            return lease
        revocation = self.revocation
        end = None if revocation is None else Lease(lease.asked_at_s, revocation.ends_in_ms)
        if put_off is not None and put_off.asked_at_s > lease.asked_at_s:
            end = put_off
        return lease if end is None or end.valid_until_s >= lease.valid_until_s else end

    async def put_off(self) -> float:
        """Say "not yet" to all `revocations`; return the seconds until it is forced. Once for each name.

        Raises Refused (`not-revoked`) when nobody has asked, or it was put off before; LeaseExpired when it
        is over.
        """
        self.refuse_forked()
        try:
            self._put_off = await self._transport.call(hold_operations.put_off(self.kind, self.hold_id))
        except LeaseExpired as error:
            self.end(LEASE_EXPIRED, error)
            raise
        return self._put_off.expires_in_ms / 1000

    async def hand_over(self, *, to_ticket: int | None = None, to_session: str | None = None) -> int:
        """Give the lock to a waiter or a session, ahead of all that wait; return the token that it has there.

        Give exactly one of the two: the `ticket` of a waiter for this lock, or the public name of a session,
        which has the lock as soon as it acquires it again. The hold is not valid from here on, because the
        receiver may have the lock before the answer arrives. Nor is it lost, unless this raises LeaseExpired.

        It is valid again, if its lease still runs, when this raises Unavailable, or Refused for another
        reason: `ticket-ended` if nobody waits with that number, SessionExpired (of the receiver), LockHeld
        (by others, beside this hold), Deadlock. After OutcomeUnknown or a cancellation it never is: it is
        then released in the background, if it was not handed over.
        """
        self.refuse_forked()
        operation = hold_operations.hand_over(self.hold_id, to_ticket=to_ticket, to_session=to_session)
        self._leaving_count += 1
        try:
            token = await self._transport.call(operation)
            self.end(RELEASED)
        except LeaseExpired as error:
            self.end(LEASE_EXPIRED, error)
            raise
        except (Refused, Unavailable):
            raise  # nothing was changed
        except BaseException:  # OutcomeUnknown, a cancellation, an answer that cannot be read
            self.end(RELEASED)
            self.run_aside(self.give_up())
            raise
        finally:
            # It ends before it stops leaving: another thread must not see it valid in between.
            if self._put_aside is not None and self._leaving_count == 1:
                super().end(*self._put_aside)
            self._leaving_count -= 1
        return token

    def end(self, reason: Reason, cause: BaseException | None = None) -> None:
        """Make it invalid for good. A loss that is found during a hand-over counts when that has failed.

        The hand-over itself may be what looks like a loss.
        """
        if not self._leaving_count or reason == RELEASED:
            super().end(reason, cause)
        elif self._put_aside is None:
            self._put_aside = (reason, cause)

    @property
    def reason(self) -> Reason:
        """As for whatever is kept; `released` while it is being handed over, even if its time runs out."""
        # In this order: another thread may look while the hand-over ends.
        is_leaving, reason = self._leaving_count > 0, super().reason
        is_running = not reason or (reason == EXPIRED and not self._ended_by)
        return RELEASED if is_leaving and is_running else reason

    @property
    def has_ended(self) -> bool:
        """Whether something else than its time has ended it, or will when its hand-over has failed."""
        return self._put_aside is not None or super().has_ended

    async def leave(self) -> None:
        """End it at the end of a block, as KeptAlive does; if it is being handed over, it is not lost."""
        if not self._leaving_count:
            await super().leave()
        elif not self.counts_down():
            await self.give_up()

    @property
    def is_counted(self) -> bool:
        """Whether it was acquired more often than released."""
        return bool(self._counts)

    def count(self, by: object = None) -> None:
        """Require one more release, because the holder has acquired it again."""
        self._counts.append(by)

    def withdraw_count(self, by: object) -> None:
        """Need one release less, if it was counted by this."""
        if by in self._counts:
            self._counts.remove(by)

    def counts_down(self) -> bool:
        """Take one release off; return whether it is held on, because others are to come."""
        if self._counts:
            self._counts.pop()
            return True
        return False

    async def release(self) -> None:
        """Give it back, from any task. Raises LeaseExpired when it was over before.

        From here on it is not valid, whatever the answer: the cluster may have released it.
        """
        if self.is_let_go:
            return
        self.refuse_forked()
        if self.counts_down():
            return
        self.end(RELEASED)
        await self.let_go(None)

    def guard(self) -> None:
        """Cancel the task that runs now when this is lost; of blocks that count it, that of the first."""
        if not (self.is_counted and self.is_guarding):
            super().guard()

    @property
    def entered(self) -> Entered:
        """The open blocks of its client."""
        return self._transport.entered

    def begin_block(self, frame: FrameType) -> None:
        """Guard a block that is entered from `frame`, and let what is acquired in it know."""
        super().begin_block(frame)
        if self._around is None:
            self._around = Around(self.entered)
        self._around.enter(frame, self, self)

    def forget_block(self, frame: FrameType) -> None:
        """Forget a block that is left from `frame`."""
        if self._around is not None:
            self._around.leave(frame)

    def end_block(self, exc: BaseException | None) -> Coroutine[Any, Any, None]:
        """End it at the end of a block that raises `exc`, unless others count it. Raises LeaseLost."""
        return self.leave() if self.is_counted else super().end_block(exc)

    async def convert(self, mode: Mode, *, wait: Seconds | None = None) -> None:
        """Give a lock another mode, ahead of all that wait for it; the token may change.

        Waits until no other holder is in the way, up to `wait`, and then raises LockTimeout; 0 tries once.
        The hold stays as it is unless this succeeds. Raises Deadlock when two holders would wait for each
        other, LeaseExpired when the hold is over.
        """
        wait_ms = _wait_ms(wait)
        operation = hold_operations.convert(self.hold_id, mode, wait_ms)
        self._has_token(await self._change(operation, is_limited=wait_ms is not None))
        self.mode = mode

    async def add(
        self,
        *names: Name,
        mode: Mode = "exclusive",
        scope: Scope = "node",
        wait: Seconds | None = None,
    ) -> None:
        """Add locks to it, all or none, and keep those it has; it gets a new token.

        Waits in their queues, in order of arrival, up to `wait`, then raises LockTimeout; 0 tries once.
        The hold stays as it is unless this succeeds. Raises Deadlock when the holders of the new locks wait
        for this hold, LeaseExpired when the hold is over, AlreadyHeld when its session has just these locks
        by another hold. After a cancellation or OutcomeUnknown it is not known whether the hold has more
        locks and another token: repeat the call to find out.
        """
        if not names:
            raise ValueError("names: name at least one lock")
        texts = tuple(to_name(name) for name in names)
        wait_ms = _wait_ms(wait)
        self._claim_more(texts)
        operation = hold_operations.add(self.hold_id, texts, mode, scope, wait_ms)
        lease = await self._change(operation, is_limited=wait_ms is not None)
        self._has_token(lease.token)
        new = tuple(name for name in texts if name not in self.names)
        self.names += new
        self._got = _Got(self.clock.now_s(), lease, new)
        if self.clock.now_s() >= self.reliable.renew_at_s:
            await self.restart_lease(None)  # counted from before a long wait, it would soon be over

    async def drop(self, *names: Name) -> None:
        """Release some of its locks, and keep the others under the same token.

        Raises ValueError for all of them, which `release` does; Refused (`not-holder`) for one that it does
        not have; LeaseExpired when the hold is over.
        """
        texts = tuple(to_name(name) for name in names)
        if not texts or set(texts) >= set(self.names):
            raise ValueError("names: name some of the locks, not all; release() gives back the hold")
        self.refuse_forked()
        try:
            await self._transport.call(hold_operations.release_some(self.hold_id, texts))
        except LeaseExpired as error:
            self.end(LEASE_EXPIRED, error)
            raise
        self.names = tuple(name for name in self.names if name not in texts)

    def _claim_more(self, names: tuple[str, ...]) -> None:
        """Note in its session what it is about to be, until it ends. Raises AlreadyHeld.

        Whoever acquired just that in the session would be given this hold, and release it.
        """
        claim = claim_of_locks((*self.names, *names))
        if self.session is None or claim in self._added or claim == claim_of_locks(self.names):
            return
        session = self.session
        session.begin_claim(claim)
        self._added.add(claim)
        self.when_ended(lambda _: session.end_claim(claim))

    async def _change(self, operation: Operation[T], *, is_limited: bool) -> T:
        """Change it in the cluster; return the answer."""
        self.refuse_forked()
        try:
            return await self._transport.call(operation)
        except LeaseExpired as error:
            self.end(LEASE_EXPIRED, error)
            raise
        except LockHeld as error:
            if not is_limited:
                raise
            raise LockTimeout(error.code, error.detail, error.problem) from error


class Leadership(Hold):
    """An election that was won. It leads as long as its session lives."""

    owns_session = False
    """Whether its session was opened for it, and ends with it."""

    def own(self, session: Session) -> None:
        """End this session, which was opened for it, with it: also when it was deposed."""
        self.owns_session = True

        def end_session(leadership: Hold) -> None:
            if leadership.reason == LEASE_EXPIRED and not session.has_ended:
                session.run_aside(session.give_up())

        self.when_ended(end_session)

    async def let_go(self, timeout_s: float | None) -> None:
        """Resign in the cluster."""
        if self.session is None or not self.owns_session:
            await super().let_go(timeout_s)
            return
        self.session.end(RELEASED)
        await self.session.let_go(timeout_s)

    async def proclaim(self, value: str) -> None:
        """Publish another value. Raises LeaseExpired when it no longer leads."""
        self.refuse_forked()
        try:
            await self._transport.call(primitive_operations.proclaim(self.hold_id, value))
        except LeaseExpired as error:
            self.end(LEASE_EXPIRED, error)
            raise


def _wait_ms(wait: Seconds | None) -> int | None:
    seconds = wait_s(wait)
    return None if seconds is None else to_ms(seconds, "wait")
