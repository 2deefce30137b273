"""What can be acquired: a lock, several locks, permits, an election. Each acquire gives a hold of its own."""

import asyncio
import logging
import sys
from abc import abstractmethod
from collections.abc import Callable, Coroutine, Generator, Iterable, Mapping
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, Generic, Literal, NoReturn, TypeVar, overload

from holdfast import wire
from holdfast.client.hold import Claim, Hold, Session, claim_of_locks
from holdfast.operations import hold_operations, primitive_operations
from holdfast.operations.hold_operations import Grant, Opened
from holdfast.operations.operation import Operation
from holdfast.operations.terms import WORDS_OF_ACQUIRE, Owner, Terms, Wait, check_owner, refuse_unknown
from holdfast.operations.wanted import HoldRequest
from holdfast.transport.blocks import Acquired, Block, Blocks, Entered, Key, Keyed
from holdfast.transport.transport import Transport
from holdfast.values.durations import to_ms
from holdfast.values.errors import (
    LeaseExpired,
    LeaseLost,
    LockHeld,
    LockTimeout,
    OutcomeUnknown,
    Refused,
    SessionExpired,
    Unavailable,
)
from holdfast.values.lease import RELEASED
from holdfast.values.metrics import Reporter
from holdfast.values.other_words import EnteredOneWay, MadeByClient, Suggesting
from holdfast.values.words import COMPATIBLE, Mode, Scope

H = TypeVar("H", bound=Hold)
S = TypeVar("S", bound=Session)
T = TypeVar("T")

_log = logging.getLogger("holdfast")


async def grant(
    transport: Transport, operation: Callable[[HoldRequest], Operation[Grant]], terms: Terms
) -> Grant:
    """Ask until it is granted or the time is up. Raises LockTimeout, and whatever refuses it."""
    if terms.session is not None:
        terms.session.refuse_forked()
    deadline_s = None if terms.wait_s is None else transport.clock.now_s() + terms.wait_s
    while True:
        wait_ms = None
        if deadline_s is not None:
            wait_ms = min(to_ms(max(0.0, deadline_s - transport.clock.now_s()), "wait"), wire.WAIT_MS_MAX)
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
    """Restart the lease of a late grant: counted from before a long wait, it would be over by now.

    If it cannot be renewed, it is released. Raises LeaseLost when it was lost before we heard of it, and
    OutcomeUnknown when that is not known: a renewal that was not applied says nothing about the grant.
    """
    if hold.has_ended:  # its session was lost or closed while the grant was on its way
        raise hold.loss(hold.reason)
    if hold.clock.now_s() < min(hold.lease.renew_at_s, hold.reliable.renew_at_s):
        return
    is_confirmed = False
    try:
        await hold.restart_lease(None)
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


class Acquiring(Suggesting, Coroutine[Any, Any, T]):
    """An acquire under way: `await` it for the hold, or use it as the context, `async with x.acquire()`."""

    def __init__(self, work: Coroutine[Any, Any, T]) -> None:
        self._work = work
        self._hold: Any = None

    def __await__(self) -> Generator[Any, Any, T]:
        return self._work.__await__()

    def send(self, value: Any, /) -> Any:
        """Go on, as a coroutine does."""
        return self._work.send(value)

    def throw(self, *error: Any) -> Any:
        """Go on with an error, as a coroutine does."""
        return self._work.throw(*error)

    def close(self) -> None:
        """End it, as a coroutine does."""
        self._work.close()

    def __aenter__(self) -> Coroutine[Any, Any, T]:
        return self._enter(sys._getframe(1))  # noqa: SLF001 - see blocks.py

    async def _enter(self, frame: FrameType) -> T:
        self._hold = hold = await self._work
        # It does not wait for anything: nothing comes between the grant and the block.
        self._hold.begin_block(frame)
        return hold

    def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> Coroutine[Any, Any, None]:
        self._hold.forget_block(sys._getframe(1))  # noqa: SLF001 - see blocks.py
        ending: Coroutine[Any, Any, None] = self._hold.end_block(exc)
        return ending


class Acquirable(MadeByClient, Generic[H]):
    """Something to acquire, again and again, by any number of tasks: each gets a hold of its own.

    `async with` waits for it, renews the hold while the block runs, and releases it. When the hold is lost,
    because the cluster says so or because its time has passed by our own clock without an answer, the block
    is cancelled and the `async with` raises LeaseLost.

    A block may be left in another task than it was entered in; it ends the hold of its own entry. If the
    blocks of one object cannot be told apart (see `blocks.py`), use `async with x.acquire() as hold`.
    """

    kind: str
    mode: Mode = "exclusive"

    def __init__(self, transport: Transport, names: tuple[str, ...], terms: Terms) -> None:
        self._transport = transport
        self._names = names
        self.keys: tuple[Key, ...] = tuple([(self.kind, name) for name in names])
        """What of it can be held in one mode only: the kind with each name."""
        self._terms = terms
        self._blocks: Blocks[H] = Blocks(transport.entered)
        self._acquired: Acquired[H] = Acquired()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {', '.join(self._names)!r}>"

    @property
    def name(self) -> str:
        """Its name; of several, all of them."""
        return ", ".join(self._names)

    @property
    def holds(self) -> tuple[H, ...]:
        """The live holds that this object has acquired. They are renewed while this object lives."""
        return self._acquired.live

    @property
    def entered(self) -> Entered:
        """The open blocks of its client."""
        return self._transport.entered

    @property
    def terms(self) -> Terms:
        """How it is to be acquired."""
        return self._terms

    @property
    def session(self) -> Any:
        """The session that it is acquired in, if there is one."""
        return self._terms.session

    @abstractmethod
    def _operation(self, wanted: HoldRequest) -> Operation[Grant]:
        """Return the request."""

    @abstractmethod
    def _hold(self, granted: Grant, session: Session | None) -> H:
        """Return the hold."""

    @abstractmethod
    async def locked(self) -> bool:
        """Ask the cluster whether anybody has it, so that it could not be acquired at once."""

    @property
    def claim(self) -> Claim | None:
        """What a session can have once only; None if it gets another hold each time that it asks."""
        return None

    @overload
    def acquire(self, blocking: Literal[True] = ..., *, wait: Wait = ...) -> Acquiring[H]: ...

    @overload
    def acquire(self, blocking: bool, *, wait: Wait = ...) -> Acquiring[H | None]: ...  # noqa: FBT001 - as below

    def acquire(self, blocking: bool = True, *, wait: Wait = ..., **unknown: Any) -> Acquiring[Any]:  # noqa: FBT001, FBT002 - as locks of threads have it
        """Wait for it, up to `wait` (by default the lock's), and return a hold that is renewed.

        It is renewed until it is released, lost, or no longer referred to; any task may use and release it.
        Raises LockTimeout when others still have the lock; with `blocking=False` it returns None.
        """
        refuse_unknown("acquire", unknown, WORDS_OF_ACQUIRE)
        return Acquiring(
            self._acquire_or_none(0 if not blocking and wait is ... else wait, is_none=not blocking)
        )

    async def try_acquire(self) -> H | None:
        """Return a hold that is renewed, or None when somebody else has it."""
        return await self._acquire_or_none(0, is_none=True)

    async def _acquire_or_none(self, wait: Wait, *, is_none: bool) -> H | None:
        terms = self._terms.waiting(wait)
        if (again := self.counted_again(terms, sys._getframe())) is not None:  # noqa: SLF001 - see blocks.py
            hold: H = again
            return hold
        try:
            hold = await self.granted(terms)
        except LockHeld:
            if is_none:
                return None
            raise
        self.remember(hold)
        return hold

    def remember(self, hold: H) -> None:
        """Keep a hold from being collected as long as this object is there: `release` gives it back."""
        self._acquired.add(hold)

    async def release(self) -> None:
        """Release the hold that this object has acquired. Raises RuntimeError unless there is exactly one."""
        await self._acquired.only(self).release()

    def owned(self) -> bool:
        """Whether this object has a hold that can be relied on. Asks nobody."""
        return any(hold.is_valid for hold in self.holds)

    def counted_again(self, terms: Terms, frame: FrameType | None, by: Block[Any] | None = None) -> Any:
        """Return what a block around `frame` holds, if it is to be counted; see `held_around`."""
        return held_around(self, self._transport.entered, terms, frame, by)

    async def granted(self, terms: Terms) -> H:
        """Return a new hold that is kept as its terms say. Nothing refers to it but the caller."""
        reporter = self._transport.reporter
        hold = await (
            self._acquire_once(terms) if reporter is None else self._acquire_and_report(terms, reporter)
        )
        # Nothing is awaited from here on: a cancellation finds either no hold or one that its caller has.
        hold.keys = self.keys
        is_kept = terms.is_renewed and hold.session is None and not hold.lease.is_endless
        if is_kept:
            hold.keep(max_hold_s=terms.max_hold_s, tied_to=terms.tied_to)
        elif hold.session is not None or hold.lease.is_endless:
            hold.let_go_with_client()
        else:
            hold.end_with_lease()
        if terms.max_hold_s is not None and not is_kept:
            hold.end_after(terms.max_hold_s)
        if terms.is_pushed and hold.session is None:
            hold.hear_losses()
        if terms.on_lost is not None:
            tell_loss(hold, terms.on_lost)
        return hold

    async def _acquire_and_report(self, terms: Terms, reporter: Reporter) -> H:
        """Acquire it; tell the metrics how that went, and later how long it was held."""
        clock, kind, names = self._transport.clock, self.kind, self._names
        began_s, outcome = clock.now_s(), "failed"
        try:
            hold = await self._acquire_once(terms)
            outcome = "granted"
        except LockHeld:
            outcome = "held"
            raise
        except asyncio.CancelledError:
            outcome = "cancelled"
            raise
        finally:
            reporter.waited(kind, names, clock.now_s() - began_s, outcome)
        granted_s = clock.now_s()
        hold.when_ended(lambda ended: reporter.held(kind, names, clock.now_s() - granted_s, ended.reason))
        return hold

    def _acquire_once(self, terms: Terms) -> Coroutine[Any, Any, H]:
        """Acquire it, unless its session has it already, or is about to: that would get the same hold."""
        session: Session | None = terms.session
        if session is None or terms.is_counted or (claim := self.claim) is None:
            return self._acquire(terms)
        return self._acquire_claimed(terms, session, claim)

    async def _acquire_claimed(self, terms: Terms, session: Session, claim: Claim) -> H:
        """Acquire it as what its session can have once only."""
        session.begin_claim(claim)
        try:
            hold = await self._acquire(terms)
        except BaseException:
            session.end_claim(claim)
            raise
        hold.when_ended(lambda _: session.end_claim(claim))
        return hold

    async def _acquire(self, terms: Terms) -> H:
        """Return a new hold that can be relied on; nothing renews it yet."""
        granted = await grant(self._transport, self._operation, terms)
        hold = self._hold(granted, terms.session)
        await confirm(hold)
        return hold

    # -- as a context ---------------------------------------------------------------------------------------

    def __aenter__(self) -> Coroutine[Any, Any, H]:
        return self._enter(sys._getframe(1))  # noqa: SLF001 - see blocks.py

    async def _enter(self, frame: FrameType) -> H:
        # The blocks that this runs in, which `frame` need not: a task may enter for the one that made it.
        hold: H | None = self.counted_again(self._terms, sys._getframe())  # noqa: SLF001 - see blocks.py
        if hold is None:
            hold = await self.granted(self._terms)
            self.remember(hold)
        # Nothing waits for anything from here on: nothing can come between the grant and the block.
        hold.guard()
        return self._blocks.enter(Block(frame, hold, self))

    def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> Coroutine[Any, Any, None]:
        ended: list[Block[H]] = []
        self._blocks.leave(sys._getframe(1), ended)  # noqa: SLF001 - see blocks.py
        return _leave_all(ended, exc)


async def _leave_all(ended: Iterable[Block[Any]], exc: BaseException | None) -> None:
    """End the holds of blocks that were left. Raises LeaseLost for those that were lost."""
    losses: list[LeaseLost] = []
    for block in ended:
        try:
            await block.held.end_block(exc)
        except LeaseLost as loss:
            losses.append(loss)
    raise_losses(losses)


def raise_losses(losses: list[LeaseLost]) -> None:
    """Raise what blocks that ended together have lost."""
    if len(losses) == 1:
        raise losses[0]
    if losses:
        raise ExceptionGroup("blocks that ended together were lost", losses)


def held_around(
    wanted: Keyed, entered: Entered, terms: Terms, frame: FrameType | None, by: Block[Any] | None = None
) -> Any:
    """Return what a block around `frame` holds, counted once more, if it is to be; None if no block holds it.

    It is counted by the block that is about to begin, if any, which has it already when an interrupt comes.
    Raises RuntimeError for a wait that could never end: that block ends only after this call.
    """
    for held, what in entered.around(frame, wanted.keys):
        if not any(key in what.keys and key[1] in held.names for key in wanted.keys):
            continue  # it has dropped them
        is_of_session = terms.session is not None and terms.session is what.session
        if held.mode in COMPATIBLE.get(wanted.mode, ()) or not held.is_valid or is_of_session:
            continue
        is_same = set(what.keys) == set(wanted.keys) and held.mode in (wanted.mode, "exclusive")
        if terms.is_counted and is_same:
            if by is not None:
                by.held = held
            held.count(by)
            return held
        if terms.wait_s != 0:
            hint = "" if terms.is_counted else "; if_held='count' makes it an RLock"
            raise RuntimeError(
                f"{wanted} is held by a block around this call: it would wait for itself{hint}"
            )
    return None


class Lock(Acquirable[Hold]):
    """A lock, or several that are granted all or none."""

    kind = "lock"

    def __init__(
        self, transport: Transport, names: tuple[str, ...], terms: Terms, *, mode: Mode, scope: Scope
    ) -> None:
        super().__init__(transport, names, terms)
        self.mode = mode
        self._scope = scope

    @property
    def claim(self) -> Claim:
        """A session that acquires again what it holds gets the same hold."""
        return claim_of_locks(self._names)

    async def locked(self) -> bool:
        """Ask the cluster whether anybody holds it, or one of several."""
        reads = [hold_operations.get_lock(name, is_stale=False) for name in self._names]
        return any([(await self._transport.call(read)).holders for read in reads])

    def _operation(self, wanted: HoldRequest) -> Operation[Grant]:
        return hold_operations.acquire(self._names, mode=self.mode, scope=self._scope, wanted=wanted)

    def _hold(self, granted: Grant, session: Session | None) -> Hold:
        return Hold(self._transport, granted, session)


class Semaphore(Acquirable[Hold]):
    """Permits of a semaphore with `limit` permits."""

    kind = "semaphore"

    def __init__(
        self,
        transport: Transport,
        name: str,
        terms: Terms,
        *,
        limit: int | None,
        permits: int,
        strict: bool,
    ) -> None:
        super().__init__(transport, (name,), terms)
        self.keys = ()  # there may be permits left for a block within a block
        self._limit = limit
        self._permits = permits
        self._is_strict = strict

    async def locked(self) -> bool:
        """Ask the cluster whether there are too few permits to acquire it at once."""
        (name,) = self._names
        info = await self._transport.call(primitive_operations.get_semaphore(name, is_stale=False))
        return info.limit > 0 and info.available < self._permits

    def _operation(self, wanted: HoldRequest) -> Operation[Grant]:
        (name,) = self._names
        return primitive_operations.acquire_permits(
            name, limit=self._limit, permits=self._permits, is_strict=self._is_strict, wanted=wanted
        )

    def _hold(self, granted: Grant, session: Session | None) -> Hold:
        return Hold(self._transport, granted, session)


class Openable(EnteredOneWay, Generic[S]):
    """A session to open: `async with` keeps it alive while its block runs, and then closes it.

    Any number of blocks may be open at once: each has a session of its own, see `Acquirable`.
    """

    def __init__(
        self,
        transport: Transport,
        ttl_ms: int,
        labels: Mapping[str, str],
        *,
        is_renewed: bool = True,
        tied_to: Owner | None = None,
    ) -> None:
        self._transport = transport
        self._ttl_ms = ttl_ms
        self._labels = labels
        self._is_renewed = is_renewed
        check_owner(tied_to)
        self._tied_to = tied_to
        self._blocks: Blocks[S] = Blocks(transport.entered)

    @abstractmethod
    def _opened(self, opened: Opened) -> S:
        """Return the session."""

    def open(self) -> Acquiring[S]:
        """Open a session that is kept alive until it is closed, lost, or no longer referred to."""
        return Acquiring(self.opened())

    if not TYPE_CHECKING:  # a type checker finds the mistake only in what cannot be awaited

        def __await__(self) -> NoReturn:
            raise TypeError(
                "a session is not awaited: use `async with client.session(...)`,"
                " or `await client.session(...).open()`"
            )

    async def opened(self) -> S:
        """Open one that is kept alive, if it is to be."""
        opening = hold_operations.open_session(self._ttl_ms, self._labels)
        session = self._opened(await self._transport.call(opening))
        if self._is_renewed:
            session.keep(tied_to=self._tied_to)
        else:
            session.end_with_lease()
        return session

    def __aenter__(self) -> Coroutine[Any, Any, S]:
        return self._enter(sys._getframe(1))  # noqa: SLF001 - see blocks.py

    async def _enter(self, frame: FrameType) -> S:
        session = await self.opened()
        session.guard()
        return self._blocks.enter(Block(frame, session, None))

    def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> Coroutine[Any, Any, None]:
        ended: list[Block[S]] = []
        self._blocks.leave(sys._getframe(1), ended)  # noqa: SLF001 - see blocks.py
        return _leave_all(ended, exc)


class SessionContext(Openable[Session]):
    """A session to open. If it `is_pushed`, it hears of its losses at once."""

    def __init__(
        self,
        transport: Transport,
        ttl_ms: int,
        labels: Mapping[str, str],
        *,
        is_renewed: bool = True,
        tied_to: Owner | None = None,
        is_pushed: bool = False,
    ) -> None:
        super().__init__(transport, ttl_ms, labels, is_renewed=is_renewed, tied_to=tied_to)
        self._is_pushed = is_pushed

    def _opened(self, opened: Opened) -> Session:
        return Session(self._transport, opened)

    async def opened(self) -> Session:
        """Open one that is kept alive, if it is to be, and hears of its losses, if it is to."""
        session = await super().opened()
        if self._is_pushed:
            session.hear_losses()
        return session


def tell_loss(hold: Hold, on_lost: Callable[[Any], object]) -> None:
    """Call `on_lost` with the hold when it is lost; what it returns may be awaitable."""

    def hear(ended: Hold) -> None:
        if ended.reason == RELEASED:
            return
        try:
            told = on_lost(ended)
        except Exception:  # noqa: BLE001 - what users do here must not keep others from hearing of it
            _log.exception("on_lost has failed: %s", ended)
            return
        if asyncio.iscoroutine(told):
            ended.run_aside(told)

    hold.when_ended(hear)
