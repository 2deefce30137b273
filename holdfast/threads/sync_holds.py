"""What threads hold and acquire: the twins of `hold.py` and `acquiring.py` for `SyncClient`.

Each stands on its asyncio twin, which lives on the loop of `portal.py`: there it is renewed, whatever its
thread does. A thread cannot be cancelled: it looks at `lost`, calls `ensure`, or hears of it at the end.
"""

import sys
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from types import FrameType, TracebackType
from typing import Any, Generic, Literal, Self, TypeVar, overload

from holdfast.client import portal
from holdfast.client.acquiring import Acquirable, Openable, SessionContext, raise_losses
from holdfast.client.election import Election
from holdfast.client.hold import Hold, Leadership, Session
from holdfast.client.keeping import KeptAlive
from holdfast.client.portal import Call, Ending
from holdfast.client.sync_watch import SyncWatch
from holdfast.client.twins import ForThreads, waiting
from holdfast.operations.terms import WORDS_OF_ACQUIRE, Terms, Wait, refuse_unknown
from holdfast.transport.blocks import Acquired, Around, Block, Blocks, Entered
from holdfast.values.durations import Seconds
from holdfast.values.errors import LeaseLost, LockHeld
from holdfast.values.lease import RELEASED
from holdfast.values.other_words import EnteredOneWay, MadeByClient
from holdfast.values.process import OfOneProcess
from holdfast.values.words import HoldState, Reason
from holdfast.wire.held import Leader, Revocation

K = TypeVar("K", bound=KeptAlive)
H = TypeVar("H", bound=Hold)
S = TypeVar("S", bound="SyncHold")
T = TypeVar("T", bound="SyncSession")


class SyncKept(OfOneProcess, ForThreads[K], MadeByClient):
    """A right that is renewed in the background. As a context it ends with the block.

    `lost` is set as soon as it cannot be relied on, unless it was released. Any thread may use it, release
    it, and leave its block.
    """

    def __init__(self, kept: K) -> None:
        super().__init__(kept)
        self.lost = lost = threading.Event()
        kept.when_ended(lambda ended: lost.set() if ended.reason != RELEASED else None)

    @property
    def twin(self) -> K:
        """What it stands on, for the loop that keeps it."""
        return self._twin

    @property
    def reason(self) -> Reason:
        """Why it cannot be relied on any longer; empty while it can. See `Hold.reason`."""
        return self._twin.reason

    @property
    def state(self) -> HoldState:
        """`held`, `at-risk` (its renewal is overdue), `lost`, or `released` (also by a hand-over)."""
        return self._twin.state

    @property
    def remaining(self) -> float:
        """For how many seconds it can still be relied on, by our own clock; 0 when it cannot."""
        return self._twin.remaining

    @property
    def is_valid(self) -> bool:
        """Whether it can still be relied on."""
        return self._twin.is_valid

    @property
    def has_ended(self) -> bool:
        """Whether something else than its time has ended it."""
        return self._twin.has_ended

    def ensure(self, seconds: Seconds = 0) -> None:
        """Raise LeaseLost unless it can be relied on for this long. Call it before each protected step."""
        self._twin.ensure(seconds)

    def ensure_valid(self) -> None:
        """Raise LeaseLost when it cannot be relied on: `ensure(0)`."""
        self._twin.ensure()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        _leave([Block(sys._getframe(1), self, None)], exc)  # noqa: SLF001 - see blocks.py


class SyncHold(SyncKept[Hold]):
    """One grant: a lock, several locks, permits of a semaphore. `token` is for the protected resource.

    `hold_id` is a secret: anybody that knows it may release the hold. As a context it is released at the end
    of the block.
    """

    _around: Around | None = None

    def __repr__(self) -> str:
        return f"<Sync{repr(self._twin)[1:]}"

    def __enter__(self) -> Self:
        if self._around is None:
            self._around = Around(self._twin.entered)
        self._around.enter(sys._getframe(1), self, self._twin)  # noqa: SLF001 - see blocks.py
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            if self._around is not None:
                self._around.leave(sys._getframe(1))  # noqa: SLF001 - see blocks.py
        finally:
            super().__exit__(exc_type, exc, traceback)

    @property
    def hold_id(self) -> str:
        """The secret that renews and releases it."""
        return self._twin.hold_id

    @property
    def token(self) -> int:
        """The fencing token."""
        return self._twin.token

    @property
    def name(self) -> str:
        """The name of the lock; of several, all of them."""
        return self._twin.name

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the locks."""
        return self._twin.names

    @property
    def mode(self) -> str:
        """The mode of a lock."""
        return self._twin.mode

    renew = waiting(Hold.renew)

    @property
    def revocation(self) -> Revocation | None:
        """A request to give it up, or None. See `Hold.revocation`."""
        return self._twin.revocation

    @property
    def revocations(self) -> tuple[Revocation, ...]:
        """Requests to give up names of it. See `Hold.revocations`."""
        return self._twin.revocations

    put_off = waiting(Hold.put_off)

    hand_over = waiting(Hold.hand_over)

    def release(self) -> None:
        """Give it back. Raises LeaseExpired when it was over before."""
        Ending(self._twin.release).run()

    def count(self, by: object = None) -> None:
        """Require one more release, because the holder has acquired it again."""
        self._twin.count(by)

    convert = waiting(Hold.convert)

    add = waiting(Hold.add)

    drop = waiting(Hold.drop)


class SyncLeadership(SyncHold):
    """An election that was won. It leads as long as its session lives."""

    def proclaim(self, value: str) -> None:
        """Publish another value. Raises LeaseExpired when it no longer leads."""
        assert isinstance(self._twin, Leadership)
        leadership = self._twin
        Call(lambda: leadership.proclaim(value)).run()


class SyncSession(SyncKept[Session]):
    """An open session; its holds live with it. `session_id` is a secret: anybody that knows it may use it."""

    @property
    def session_id(self) -> str:
        """The secret that keeps it alive."""
        return self._twin.session_id

    keepalive = waiting(Session.keepalive)

    public_name = waiting(Session.public_name)

    def watch(self, *, since: str | int | None = None) -> SyncWatch:
        """Return an iterator of the events of its holds and waits. It ends with the session."""
        return SyncWatch(self._twin.watch(since=since))

    def close(self) -> tuple[str, ...]:
        """End it, release what it holds, and return the names of those locks."""
        return Ending(self._twin.close).run() or ()


class SyncOpenable(EnteredOneWay, Generic[T]):
    """A session to open: `with` keeps it alive while its block runs, and then closes it.

    Any number of blocks may be open at once: each has a session of its own, see `SyncAcquirable`.
    """

    def __init__(self, twin: Openable[Any], kind: Callable[[Any], T]) -> None:
        self._twin = twin
        self._kind = kind
        self._blocks: Blocks[T] = Blocks(Entered())

    def open(self) -> T:
        """Open a session that is kept alive until it is closed, lost, or no longer referred to."""
        return self._opening().run()

    def _opening(self) -> Call[T]:
        async def work() -> T:
            return self._kind(await self._twin.opened())

        return Call(work, lambda session: session.twin.give_up())

    def __enter__(self) -> T:
        call, block = self._opening(), None
        try:
            block = Block(sys._getframe(1), call.run(), None)  # noqa: SLF001 - see blocks.py
            return self._blocks.enter(block)
        except BaseException:
            call.abandon()
            self._blocks.withdraw(block)
            raise

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        _leave([], exc, self._blocks, sys._getframe(1))  # noqa: SLF001 - see blocks.py


class SyncSessionContext(SyncOpenable[SyncSession]):
    """A session to open, for whatever its user acquires in it."""

    def __init__(self, twin: SessionContext) -> None:
        super().__init__(twin, SyncSession)


class SyncAcquirable(MadeByClient, Generic[S]):
    """Something to acquire, again and again, by any number of threads: each gets a hold of its own.

    `with` waits for it, renews the hold while the block runs, and releases it. When the hold was lost
    meanwhile, the `with` raises LeaseLost at its end; `hold.lost` is set and `on_lost` called at once.

    A block may be left in another thread than it was entered in; it ends the hold of its own entry. Where
    blocks of one object cannot be told apart (see `blocks.py`), `with x.acquire() as hold` always can.
    """

    def __init__(
        self, twin: Acquirable[Any], kind: type[S], on_lost: Callable[[S], object] | None = None
    ) -> None:
        self._twin = twin
        self._kind = kind
        self._on_lost = on_lost
        self._blocks: Blocks[S] = Blocks(twin.entered)
        self._acquired: Acquired[S] = Acquired()

    def __repr__(self) -> str:
        return f"<Sync{repr(self._twin)[1:]}"

    @property
    def name(self) -> str:
        """Its name; of several, all of them."""
        return self._twin.name

    @property
    def holds(self) -> tuple[S, ...]:
        """The live holds that this object has acquired. They are renewed while this object lives."""
        return self._acquired.live

    @overload
    def acquire(self, blocking: Literal[True] = ..., *, wait: Wait = ...) -> S: ...

    @overload
    def acquire(self, blocking: bool, *, wait: Wait = ...) -> S | None: ...  # noqa: FBT001 - as threading.Lock

    def acquire(self, blocking: bool = True, *, wait: Wait = ..., **unknown: Any) -> S | None:  # noqa: FBT001, FBT002 - as threading.Lock
        """Wait for it, up to `wait` (by default that of the lock), and return a hold that is renewed.

        It is renewed until it is released, lost, or nobody refers to it any more: any thread may use and
        release it. Raises LockTimeout when others still have it then; with `blocking=False` it returns None.
        """
        refuse_unknown("acquire", unknown, WORDS_OF_ACQUIRE)
        terms = self._twin.terms.waiting(0 if not blocking and wait is ... else wait)
        frame = sys._getframe(1)  # noqa: SLF001 - see blocks.py
        counted: Block[Any] = Block(frame, None, None)
        try:
            again: S | None = self._twin.counted_again(terms, frame, counted)
            return again or self._call(terms).run()
        except LockHeld:
            if blocking:
                raise
            return None
        except BaseException:
            _withdraw_count(counted)
            raise

    def try_acquire(self) -> S | None:
        """Return a hold that is renewed, or None when somebody else has it."""
        return self.acquire(blocking=False)

    def release(self) -> None:
        """Give back what was acquired by this object. Raises RuntimeError unless that is one hold."""
        self._acquired.only(self).release()

    def owned(self) -> bool:
        """Whether this object has a hold that can be relied on. Asks nobody."""
        return any(hold.is_valid for hold in self.holds)

    def locked(self) -> bool:
        """Ask the cluster whether anybody has it, so that it could not be acquired at once."""
        return Call(self._twin.locked).run()

    def _call(self, terms: Terms) -> Call[S]:
        async def work() -> S:
            hold = self._kind(await self._twin.granted(terms))
            if self._on_lost is not None:
                _tell_loss(hold, self._on_lost)
            self._acquired.add(hold)
            return hold

        return Call(work, lambda hold: hold.twin.give_up())

    def __enter__(self) -> S:
        frame, terms = sys._getframe(1), self._twin.terms  # noqa: SLF001 - see blocks.py
        block: Block[Any] = Block(frame, None, self._twin)
        call = self._call(terms)
        try:
            block.held = self._twin.counted_again(terms, frame, block) or call.run()
            return self._blocks.enter(block)
        except BaseException:
            # Also when the interrupt came after the grant: the block that would release it never begins.
            call.abandon()
            self._blocks.withdraw(block)
            _withdraw_count(block)
            raise

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        _leave([], exc, self._blocks, sys._getframe(1))  # noqa: SLF001 - see blocks.py


def _withdraw_count(block: Block[Any]) -> None:
    """Count no longer what an interrupt kept from beginning."""
    if block.held is not None:
        block.held.twin.withdraw_count(block)


def _leave(
    ended: list[Block[Any]],
    exc: BaseException | None,
    blocks: Blocks[Any] | None = None,
    frame: FrameType | None = None,
) -> None:
    """End what these blocks hold, and that of `blocks` which is left from `frame`; once, though interrupted.

    Raises LeaseLost for what was lost.
    """
    endings: list[Ending] = []
    try:
        if blocks is not None and frame is not None:
            blocks.leave(frame, ended)
        # Not a comprehension: from Python 3.12 on an interrupt at its end would not be seen by this `try`.
        endings.extend(_ending(block.held, exc) for block in ended)
        _run_all(endings)
    except BaseException as error:
        if not isinstance(error, Exception):
            _leave_alone(ended, endings, blocks, frame)
        raise


def _ending(held: SyncKept[Any], exc: BaseException | None) -> Ending:
    """Return what ends it at the end of a block that raises this; an interrupt goes before a loss."""
    is_interrupted = exc is not None and not isinstance(exc, Exception)
    return Ending(held.twin.leave_interrupted if is_interrupted else held.twin.leave)


def _leave_alone(
    ended: list[Block[Any]], endings: list[Ending], blocks: Blocks[Any] | None, frame: FrameType | None
) -> None:
    """Do the rest of it without this thread, which was interrupted."""
    if blocks is not None and frame is not None:
        if not ended:
            blocks.leave(frame, ended)
        for block in ended:
            blocks.withdraw(block)
    for ending in endings or [_ending(block.held, KeyboardInterrupt()) for block in ended]:
        ending.abandon()


def _run_all(endings: Iterable[Ending]) -> None:
    losses: list[LeaseLost] = []
    for ending in endings:
        try:
            ending.run()
        except LeaseLost as loss:
            losses.append(loss)
    raise_losses(losses)


class SyncLock(SyncAcquirable[SyncHold]):
    """A lock, or several that are granted all or none."""


class SyncSemaphore(SyncAcquirable[SyncHold]):
    """Permits of a semaphore."""


class SyncTogether(SyncAcquirable[SyncHold]):
    """Locks, permits and places of rate limits that are granted all or none."""


class SyncElection(SyncAcquirable[SyncLeadership]):
    """An election. `with` campaigns, and leads while the block runs; anybody may observe."""

    def leader(self) -> Leader | None:
        """Return the present leader, None if nobody leads."""
        return Call(self._election.leader).run()

    def observe(self) -> Iterator[Leader | None]:
        """Yield the leader, None while nobody leads: at once, and again with every change."""
        observing = self._election.observe()

        async def step() -> Leader | None:
            return await anext(observing)

        try:
            while True:
                yield Call(step).run()
        finally:
            portal.begin(observing.aclose)

    @property
    def _election(self) -> Election:
        assert isinstance(self._twin, Election)
        return self._twin


def _tell_loss(hold: S, on_lost: Callable[[S], object]) -> None:
    """Call `on_lost` in a thread of its own when the hold is lost: it may wait, and call the client."""
    this = weakref.ref(hold)

    def hear(ended: KeptAlive) -> None:
        found = this()
        if found is not None and ended.reason != RELEASED:
            portal.start_thread(on_lost, found, name="holdfast-on-lost")

    hold.twin.when_ended(hear)
