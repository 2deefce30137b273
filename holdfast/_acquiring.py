"""What can be acquired: a lock, several locks, permits, an election. Each acquire gives a hold of its own."""

import asyncio
import logging
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import EllipsisType, TracebackType
from typing import Any, Generic, TypeAlias, TypeVar

from holdfast import _operations, _primitive_operations, wire
from holdfast._durations import Seconds, to_ms, to_s
from holdfast._errors import (
    LeaseExpired,
    LeaseLost,
    LockHeld,
    LockTimeout,
    OutcomeUnknown,
    Refused,
    SessionExpired,
    Unavailable,
)
from holdfast._hold import Claim, Hold, Session, claim_of_locks
from holdfast._keeping import Kept, current_task_alive
from holdfast._lease import RELEASED
from holdfast._operation import Operation
from holdfast._operations import Grant, Opened
from holdfast._transport import Transport
from holdfast._wanted import DEFAULT_PRIORITY, Wanted

H = TypeVar("H", bound=Hold)
S = TypeVar("S", bound=Session)

Timeout: TypeAlias = Seconds | EllipsisType | None
"""How long to wait: seconds, None for as long as it takes, `...` for what was said before."""

_log = logging.getLogger("holdfast")

DEFAULT_TTL_S = 30.0
"""Seconds of a lease when the caller does not say: others wait so long after a crash, and a failover of the
cluster takes less than its third."""
DEFAULT_SESSION_TTL_S = 15.0
"""Seconds of a session when the caller does not say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """How something is to be acquired and kept. `timeout_s` None waits for as long as it takes."""

    owner: str
    ttl_ms: int | None = None
    session: Session | None = None
    timeout_s: float | None = None
    lock_delay_ms: int = 0
    note: str = ""
    value: str = ""
    is_value_secret: bool = False
    has_no_deadline: bool = False
    priority: int = DEFAULT_PRIORITY
    is_pushed: bool = False
    max_hold_s: float | None = None
    on_lost: Callable[[Any], object] | None = None

    @staticmethod
    def of(
        owner: str,
        *,
        ttl: Seconds | None,
        session: Session | None,
        timeout: Seconds | None,
        lock_delay: Seconds = 0,
        note: str = "",
        value: str = "",
        value_secret: bool = False,
        no_deadline: bool = False,
        priority: int = DEFAULT_PRIORITY,
        push: bool = False,
        max_hold: Seconds | None = None,
        on_lost: Callable[[Any], object] | None = None,
    ) -> "Terms":
        """Make terms of what callers say. Raises ValueError."""
        if ttl is not None and session is not None:
            raise ValueError("give either ttl or session, not both")
        if no_deadline and (ttl is not None or session is not None):
            raise ValueError("give either no_deadline, or ttl or session")
        if push and session is not None:
            raise ValueError("give push to the session: it hears of what it loses as a whole")
        if ttl is None and session is None and not no_deadline:
            ttl = DEFAULT_TTL_S
        return Terms(
            owner=owner,
            ttl_ms=None if ttl is None else to_ms(ttl, "ttl"),
            session=session,
            timeout_s=None if timeout is None else to_s(timeout, "timeout"),
            lock_delay_ms=to_ms(lock_delay, "lock_delay"),
            note=note,
            value=value,
            is_value_secret=value_secret,
            has_no_deadline=no_deadline,
            priority=priority,
            is_pushed=push,
            max_hold_s=None if max_hold is None else to_s(max_hold, "max_hold"),
            on_lost=on_lost,
        )

    def wanted(self, wait_ms: int | None) -> Wanted:
        """Return what one request says of them."""
        return Wanted(
            owner=self.owner,
            ttl_ms=self.ttl_ms,
            session_id="" if self.session is None else self.session.session_id,
            wait_ms=wait_ms,
            lock_delay_ms=self.lock_delay_ms,
            note=self.note,
            value=self.value,
            is_value_secret=self.is_value_secret,
            has_no_deadline=self.has_no_deadline,
            priority=self.priority,
        )


async def grant(transport: Transport, operation: Callable[[Wanted], Operation[Grant]], terms: Terms) -> Grant:
    """Ask until it is granted or the time is up. Raises LockTimeout, and whatever refuses it."""
    if terms.session is not None:
        terms.session.refuse_forked()
    deadline_s = None if terms.timeout_s is None else transport.clock.now_s() + terms.timeout_s
    while True:
        wait_ms = None
        if deadline_s is not None:
            wait_ms = min(to_ms(max(0.0, deadline_s - transport.clock.now_s()), "timeout"), wire.WAIT_MS_MAX)
        asked_s = transport.clock.now_s()
        try:
            return await transport.call(operation(terms.wanted(wait_ms)))
        except LockHeld as error:
            # The longest wait that the cluster allows may be over, which is not that of the caller.
            has_waited_longest = transport.clock.now_s() - asked_s >= wire.WAIT_MS_MAX / 1000
            if has_waited_longest and (deadline_s is None or transport.clock.now_s() < deadline_s):
                continue
            if deadline_s is None:
                raise
            raise LockTimeout(error.code, error.detail, error.problem) from error


async def confirm(hold: Hold) -> None:
    """Start the lease of a late grant anew: counted from before a long wait, it would be over by now.

    One that cannot be started anew is released. Raises LeaseLost when it was lost before we heard of it, and
    OutcomeUnknown when nobody can say: that the renewal was not applied says nothing of the grant.
    """
    if hold.has_ended:  # its session was lost or closed while the grant was on its way
        raise hold.loss(hold.reason)
    if hold.clock.now_s() < hold.lease.renew_at_s:
        return
    is_confirmed = False
    try:
        await hold.extend(None)
        is_confirmed = hold.is_valid
        hold.ensure()
    except (LeaseExpired, SessionExpired) as error:
        is_confirmed = True  # there is nothing left to release
        lost = f"{hold.name!r} was granted and lost before we heard of it"
        raise LeaseLost(lost, error.code) from error
    except (Refused, Unavailable) as error:
        late = f"{hold.name!r} was granted too late to be relied on, and not renewed"
        raise OutcomeUnknown(f"{late}; last: {error}") from error
    finally:
        if not is_confirmed:
            await hold.give_up()


class Acquirable(Generic[H]):
    """Something to acquire, again and again, by any number of tasks: each gets a hold of its own.

    `async with` waits for it, renews the hold while the block runs, and releases it. When the hold is lost,
    because the cluster says so or because its time has passed by our own clock without an answer, the block
    is cancelled and the `async with` raises LeaseLost.
    """

    kind: str

    def __init__(self, transport: Transport, kept: set[Kept], names: tuple[str, ...], terms: Terms) -> None:
        self._transport = transport
        self._kept = kept
        self._names = names
        self._terms = terms
        self._entered: dict[asyncio.Task[Any] | None, H] = {}
        self._entering: set[asyncio.Task[Any] | None] = set()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {', '.join(self._names)!r}>"

    @abstractmethod
    def _operation(self, wanted: Wanted) -> Operation[Grant]:
        """Return the request."""

    @abstractmethod
    def _hold(self, granted: Grant, session: Session | None) -> H:
        """Return the hold."""

    @property
    def claim(self) -> Claim | None:
        """What a session can have once only; None if it gets another hold each time that it asks."""
        return None

    async def acquire(self, *, timeout: Timeout = ...) -> H:  # noqa: ASYNC109 - sent
        """Wait for it, up to `timeout` (by default that of the lock), and return a hold that is renewed.

        It is renewed until it is released, lost, or the task that acquired it has ended. Raises LockTimeout
        when others still have it then.
        """
        return await self.acquire_for(current_task_alive(), timeout)

    async def try_acquire(self) -> H | None:
        """Return a hold that is renewed, or None when somebody else has it."""
        try:
            return await self.acquire(timeout=0)
        except LockHeld:
            return None

    async def acquire_for(self, is_alive: Callable[[], bool], timeout: Timeout = ...) -> H:  # noqa: ASYNC109 - sent
        """Acquire it for an owner: once that is not alive, nobody renews the hold any longer."""
        terms = self._terms
        if timeout is not ...:
            terms = replace(terms, timeout_s=None if timeout is None else to_s(timeout, "timeout"))
        hold = await self._acquire_and_report(terms, is_alive)
        # Nothing is awaited from here on: a cancellation finds either no hold or one that its caller has.
        if hold.session is None and not hold.lease.is_endless:
            hold.keep(max_hold_s=terms.max_hold_s, is_alive=is_alive)
        elif terms.max_hold_s is not None:
            hold.end_after(terms.max_hold_s)
        if terms.is_pushed and hold.session is None:
            hold.hear_losses()
        register(self._kept, hold)
        if terms.on_lost is not None:
            tell_loss(hold, terms.on_lost)
        return hold

    async def _acquire_and_report(self, terms: Terms, is_alive: Callable[[], bool]) -> H:
        """Acquire it; tell the metrics how that went, and later how long it was held."""
        clock, reporter = self._transport.clock, self._transport.reporter
        began_s, outcome = clock.now_s(), "failed"
        try:
            hold = await self._acquire_once(terms, is_alive)
            outcome = "granted"
        except LockHeld:
            outcome = "held"
            raise
        except asyncio.CancelledError:
            outcome = "cancelled"
            raise
        finally:
            reporter.waited(self.kind, self._names, clock.now_s() - began_s, outcome)
        granted_s = clock.now_s()
        hold.when_ended(lambda: reporter.held(self.kind, self._names, clock.now_s() - granted_s, hold.reason))
        return hold

    async def _acquire_once(self, terms: Terms, is_alive: Callable[[], bool]) -> H:
        """Acquire it, unless its session has it already, or is about to: that would get the same hold."""
        session, claim = terms.session, self.claim
        if session is None or claim is None:
            return await self._acquire(terms, is_alive)
        session.begin_claim(claim)
        try:
            hold = await self._acquire(terms, is_alive)
        except BaseException:
            session.end_claim(claim)
            raise
        hold.when_ended(lambda: session.end_claim(claim))
        return hold

    async def _acquire(self, terms: Terms, is_alive: Callable[[], bool]) -> H:
        """Return a new hold that can be relied on; nothing renews it yet."""
        del is_alive  # of use to those that keep a session meanwhile
        granted = await grant(self._transport, self._operation, terms)
        hold = self._hold(granted, terms.session)
        await confirm(hold)
        return hold

    # -- as a context ---------------------------------------------------------------------------------------

    async def __aenter__(self) -> H:
        task = asyncio.current_task()
        if task in self._entering:
            raise RuntimeError(f"{self} is in use by this task, which would wait for itself")
        self._entering.add(task)
        try:
            hold = await self.acquire()
        except BaseException:
            self._entering.discard(task)
            raise
        self._entered[task] = hold
        # Without an await of its own: nothing can come between the grant and the block.
        hold.guard()
        return hold

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        task = asyncio.current_task()
        hold = self._entered.pop(task)
        self._entering.discard(task)
        await hold.__aexit__(exc_type, exc, traceback)


class Lock(Acquirable[Hold]):
    """A lock, or several that are granted all or none."""

    kind = "lock"

    def __init__(
        self,
        transport: Transport,
        kept: set[Kept],
        names: tuple[str, ...],
        terms: Terms,
        *,
        mode: str,
        scope: str,
    ) -> None:
        super().__init__(transport, kept, names, terms)
        self._mode = mode
        self._scope = scope

    @property
    def claim(self) -> Claim:
        """A session that acquires again what it holds gets the same hold."""
        return claim_of_locks(self._names)

    def _operation(self, wanted: Wanted) -> Operation[Grant]:
        return _operations.acquire(self._names, mode=self._mode, scope=self._scope, wanted=wanted)

    def _hold(self, granted: Grant, session: Session | None) -> Hold:
        return Hold(self._transport, granted, session)


class Semaphore(Acquirable[Hold]):
    """Permits of a semaphore that has `limit` of them."""

    kind = "semaphore"

    def __init__(
        self,
        transport: Transport,
        kept: set[Kept],
        name: str,
        terms: Terms,
        *,
        limit: int | None,
        permits: int,
        strict: bool,
    ) -> None:
        super().__init__(transport, kept, (name,), terms)
        self._limit = limit
        self._permits = permits
        self._is_strict = strict

    def _operation(self, wanted: Wanted) -> Operation[Grant]:
        (name,) = self._names
        return _primitive_operations.acquire_permits(
            name, limit=self._limit, permits=self._permits, is_strict=self._is_strict, wanted=wanted
        )

    def _hold(self, granted: Grant, session: Session | None) -> Hold:
        return Hold(self._transport, granted, session)


class Openable(Generic[S]):
    """A session to open: `async with` keeps it alive while its block runs, and then closes it."""

    def __init__(self, transport: Transport, kept: set[Kept], ttl_ms: int, labels: Mapping[str, str]) -> None:
        self._transport = transport
        self._kept = kept
        self._ttl_ms = ttl_ms
        self._labels = labels
        self._session: S | None = None

    @abstractmethod
    def _opened(self, opened: Opened) -> S:
        """Return the session."""

    async def open(self) -> S:
        """Open one that is kept alive until it is closed or lost, or the task that opened it has ended."""
        return await self.open_for(current_task_alive())

    async def open_for(self, is_alive: Callable[[], bool]) -> S:
        """Open one for an owner: once that is not alive, nobody keeps it alive any longer."""
        session = self._opened(
            await self._transport.call(_operations.open_session(self._ttl_ms, self._labels))
        )
        session.keep(max_hold_s=None, is_alive=is_alive)
        register(self._kept, session)
        return session

    async def __aenter__(self) -> S:
        if self._session is not None:
            raise RuntimeError("this session is in use; make one for each block")
        self._session = await self.open()
        self._session.guard()
        return self._session

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        session, self._session = self._session, None
        assert session is not None
        await session.__aexit__(exc_type, exc, traceback)


class SessionContext(Openable[Session]):
    """A session to open, for whatever its user acquires in it. One that `is_pushed` is told of its losses."""

    def __init__(
        self,
        transport: Transport,
        kept: set[Kept],
        ttl_ms: int,
        labels: Mapping[str, str],
        *,
        is_pushed: bool = False,
    ) -> None:
        super().__init__(transport, kept, ttl_ms, labels)
        self._is_pushed = is_pushed

    def _opened(self, opened: Opened) -> Session:
        return Session(self._transport, opened)

    async def open_for(self, is_alive: Callable[[], bool]) -> Session:
        """Open one for an owner: once that is not alive, nobody keeps it alive any longer."""
        session = await super().open_for(is_alive)
        if self._is_pushed:
            session.hear_losses()
        return session


def register(kept: set[Kept], item: Kept) -> None:
    """Remember what the client keeps, so that closing it can let go of it."""
    kept.add(item)
    item.when_ended(lambda: kept.discard(item))


def tell_loss(hold: Hold, on_lost: Callable[[Any], object]) -> None:
    """Call `on_lost` with the hold when it is lost; what it returns may be awaitable."""

    def hear() -> None:
        if hold.reason == RELEASED:
            return
        try:
            told = on_lost(hold)
        except Exception:  # noqa: BLE001 - what users do here must not keep others from hearing of it
            _log.exception("on_lost has failed: %s", hold)
            return
        if asyncio.iscoroutine(told):
            hold.run_aside(told)

    hold.when_ended(hear)
