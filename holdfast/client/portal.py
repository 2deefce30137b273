"""An event loop in a thread of its own, for threads that wait: what `SyncClient` stands on.

All of a process share one. It starts with the first call, is not inherited by a forked child, and at the end
of the process lets clients release what they hold. After that nothing is waited for any more: calls that come
late, as from `__del__`, do only what is possible at once, so that the process ends.
"""

import asyncio
import atexit
import contextvars
import logging
import sys
import threading
import warnings
import weakref
from collections import deque
from collections.abc import Callable, Coroutine
from types import FrameType
from typing import Any, Final, Generic, Protocol, TypeVar

from holdfast.values.process import after_fork

T = TypeVar("T")

_log = logging.getLogger("holdfast")

EXIT_S: Final = 3.0
"""Seconds that the end of a process waits at most for holds to be released."""


class Closing(Protocol):
    """What wants to be closed before the process ends."""

    async def close(self) -> None:
        """Release what is held."""
        ...


class Call(Generic[T]):
    """One coroutine that a thread waits for. Nothing happens before `run`.

    Whatever interrupts the waiting thread, such as KeyboardInterrupt, `abandon` takes the call back: it is
    cancelled, and what it has given already is given back by `undo`.
    """

    def __init__(
        self,
        work: Callable[[], Coroutine[Any, Any, T]],
        undo: Callable[[T], Coroutine[Any, Any, object]] | None = None,
    ) -> None:
        self._work = work
        self._undo = undo
        self._inbox: _Inbox | None = None
        self._context = contextvars.copy_context()
        self._task: asyncio.Task[T] | None = None
        self._is_abandoned = False
        # A lock that its thread waits for: an Event is made of one, and of much else.
        self._done = threading.Lock()
        self._done.acquire()

    def run(self) -> T:
        """Run it and wait for its end; return or raise what it does. Interrupted, it is abandoned.

        Raises RuntimeError where nothing may be waited for: on the loop itself, at the end of the process.
        """
        if _portal.has_ended:
            self._end_thread()
            return self.run_at_once()
        if _portal.is_own_thread():
            return self._run_on_loop()
        _warn_of_loop()
        try:
            self._inbox = _portal.inbox()
            self._inbox.put(self._start)
            self._done.acquire()
            self._end_thread()
            return self._result()
        except BaseException:
            self.abandon()
            self._end_thread()
            raise

    def _end_thread(self) -> None:
        """End a daemon that waits, or wants to, while the process ends: silently, and out of all its blocks.

        It might have what others need in order to end, such as the lock of a log handler. What it works with
        is kept until its client has let go of it.
        """
        if _portal.has_ended and threading.current_thread() is not threading.main_thread():
            _ended.append(self)
            raise SystemExit

    def _result(self) -> T:
        if self._task is None:
            raise RuntimeError("the thread of the clients could not be started")
        return self._task.result()

    def _run_on_loop(self) -> T:
        """Do what `run` does on the loop itself."""
        raise RuntimeError("this would wait for itself: call it from a thread of your own")

    def abandon(self) -> None:
        """Take it back, as far as it got. Does nothing to one that has failed."""
        if self._inbox is not None and not (_portal.has_ended or self._inbox.loop.is_closed()):
            self._inbox.put(self._take_back)

    def run_at_once(self) -> T:
        """Run it without the loop. Raises RuntimeError if it waits for anything."""
        coroutine = self._work()
        try:
            coroutine.send(None)
        except StopIteration as end:
            result: T = end.value
            return result
        finally:
            coroutine.close()
        raise RuntimeError("the process ends, and its clients are closed")

    def _start(self) -> None:
        if self._is_abandoned or self._task is not None:
            return
        assert self._inbox is not None, "it was put there"
        if _portal.has_ended or self._inbox.loop.is_closed():
            self._done.release()
            return
        self._task = asyncio.get_running_loop().create_task(self._begun(), context=self._context)
        _portal.calls.add(self._task)
        self._task.add_done_callback(self._tell_thread)

    async def _begun(self) -> T:
        """Make the coroutine within its task, so that a failure to make it is told like any other."""
        return await self._work()

    def _tell_thread(self, task: "asyncio.Task[T]") -> None:
        """Wake the thread that waits."""
        _portal.calls.discard(task)
        if _portal.has_ended and not task.cancelled():
            task.exception()  # seen: its thread ends, and asks for nothing any more
        self._done.release()

    def _take_back(self) -> None:
        if self._is_abandoned:
            return
        self._is_abandoned = True
        if self._task is not None:
            self._task.cancel()
            self._task.add_done_callback(self._give_back)

    def _give_back(self, task: "asyncio.Task[T]") -> None:
        """Undo what was given to a thread that does not want it any longer."""
        if self._undo is not None and not task.cancelled() and task.exception() is None:
            _portal.run_aside(self._undo(task.result()))


class Ending(Call[Any]):
    """A call that gives something back. Nothing takes it back: once it was asked for, it is done.

    An interrupt of the thread that waits for it leaves it running. On the loop itself, where whatever is
    collected may end, it runs aside, and `run` returns None.
    """

    def _run_on_loop(self) -> None:
        self.abandon()

    def abandon(self) -> None:
        """Let it be done without this thread: begin it, unless it has begun."""
        if not _portal.has_ended:
            self._is_alone = True
            self._inbox = _portal.inbox()
            self._inbox.put(self._start)

    _is_alone = False

    def _tell_thread(self, task: "asyncio.Task[Any]") -> None:
        super()._tell_thread(task)
        if self._is_alone and not task.cancelled():
            task.exception()  # seen: nobody waits for it any more


class _Inbox:
    """What threads want to be called on a loop. What comes while it is busy wakes it only once."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._calls: deque[Callable[[], None]] = deque()
        self._is_waking = False

    def put(self, call: Callable[[], None]) -> None:
        """Call this soon, on the loop. From any thread. Raises RuntimeError when the loop is closed."""
        self._calls.append(call)
        # Who finds it waking has put the call before, and it is still to be looked for. Two may both wake it.
        if self._is_waking:
            return
        try:
            self._is_waking = True
            self.loop.call_soon_threadsafe(self.call_all)
        except BaseException:  # also when its thread is interrupted just here
            self._is_waking = False
            raise

    def call_all(self) -> None:
        """Call all that was put. On the loop, or where that is closed."""
        self._is_waking = False
        try:
            while self._calls:
                self._calls.popleft()()
        finally:
            if self._calls:  # one of them has failed: that is told, and the others are called
                self.loop.call_soon(self.call_all)


class _Portal:
    """The thread with its loop, and the clients that use it."""

    def __init__(self) -> None:
        self._starting = threading.Lock()
        self._inbox: _Inbox | None = None
        self._thread: threading.Thread | None = None
        self._aside: set[asyncio.Task[Any]] = set()
        self._is_over = False
        self.calls: set[asyncio.Task[Any]] = set()
        """What threads wait for."""
        self.clients: weakref.WeakSet[Closing] = weakref.WeakSet()

    @property
    def has_ended(self) -> bool:
        """Whether the process ends: no thread is started and nothing waited for any more."""
        return self._is_over or sys.is_finalizing()

    @property
    def is_running(self) -> bool:
        """Whether the loop was started, in this process."""
        return self._inbox is not None

    def inbox(self) -> _Inbox:
        """Return the way to the loop, which is started if it does not run."""
        running = self._inbox
        if running is not None:
            return running
        with self._starting:
            if self._inbox is not None:
                return self._inbox
            loop = asyncio.new_event_loop()
            self._inbox = inbox = _Inbox(loop)
            # A daemon: waiting for a lock must not keep a process from its end.
            self._thread = thread = threading.Thread(target=_run, args=(loop,), name="holdfast", daemon=True)
        try:
            # Without the lock: if gevent has patched threads since the import, this lets others run, and
            # whoever of them waited for a lock of before would stop them all.
            thread.start()
        except RuntimeError:  # the process ends, or has too many threads
            self._inbox = self._thread = None
            loop.close()
            inbox.call_all()
            raise
        _stop_with_multiprocessing()
        return inbox

    def is_loop(self, loop: asyncio.AbstractEventLoop) -> bool:
        """Whether this is the loop."""
        return self._inbox is not None and self._inbox.loop is loop

    def is_own_thread(self) -> bool:
        """Whether the caller runs on the loop, where waiting for it would never end."""
        return threading.current_thread() is self._thread

    def run_aside(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        """Run something on the loop that nobody waits for but the end of the process."""
        task = asyncio.get_running_loop().create_task(coroutine)
        self._aside.add(task)
        task.add_done_callback(self._aside.discard)

    def stop(self) -> None:
        """Let all clients release what they hold, and end the thread."""
        with self._starting:
            inbox, thread = self._inbox, self._thread
            self._is_over = True
        if inbox is None or thread is None or not thread.is_alive():
            return
        loop = inbox.loop
        closing = asyncio.run_coroutine_threadsafe(self._close_all(), loop)
        try:
            closing.result(EXIT_S + 1)
        except TimeoutError:
            _log.warning("not all is released, the rest expires by itself: the event loop is stuck")
        loop.call_soon_threadsafe(loop.stop)
        thread.join(EXIT_S)

    async def _close_all(self) -> None:
        """Take back what daemon threads wait for, close all clients, and wait for what runs aside."""
        for call in list(self.calls):
            call.cancel()
        while self._aside:
            _, late = await asyncio.wait(self._aside, timeout=EXIT_S)
            if late:
                break
        closing = [asyncio.ensure_future(client.close()) for client in list(self.clients)]
        if closing:
            done, late = await asyncio.wait(closing, timeout=EXIT_S)
            failures = [error for task in done if not task.cancelled() and (error := task.exception())]
            if late or failures:
                why = failures[0] if failures else "no node answers"
                _log.warning("not all is released, the rest expires by itself: %s", why)
            for task in late:
                task.cancel()

    def after_fork(self) -> None:
        """Leave the loop and its thread to the parent; the child keeps a copy that it never touches."""
        if self._inbox is not None:
            _of_parents.append((self._inbox, self._aside, self.calls))
        self._starting = threading.Lock()
        self._inbox = self._thread = None
        self._aside, self.calls = set(), set()


def _run(loop: asyncio.AbstractEventLoop) -> None:
    """Run the loop until it is stopped, and close what is left of it."""
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
    finally:
        tasks = asyncio.all_tasks(loop)
        for task in tasks:
            task.cancel()
        loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()


def _stop_with_multiprocessing() -> None:
    """Stop at the end of a child of multiprocessing: one that was forked ends without atexit hooks.

    Threads that this end waits for may still work under locks; then it is left to the leases.
    """
    process = sys.modules.get("multiprocessing.process")
    if process is None or process.parent_process() is None:
        return
    from multiprocessing.util import Finalize  # noqa: PLC0415 - it is there, and elsewhere it is not needed

    def stop() -> None:
        if all(thread.daemon for thread in threading.enumerate() if thread is not threading.main_thread()):
            _portal.stop()

    Finalize(None, stop, exitpriority=0)


_portal: Final = _Portal()
_ended: list[object] = []
"""Calls of daemons that have ended with the process."""
_of_parents: list[object] = []
"""Kept, so that a child does not collect a loop whose descriptors it shares with its parent."""


def register(client: Closing) -> None:
    """Close this client at the end of the process, if it still exists. Raises RuntimeError after that."""
    if _portal.has_ended:
        raise RuntimeError("the process ends: it is too late to make a client")
    _portal.clients.add(client)


def close(client: Closing) -> None:
    """Close a client: on the loop or, where none runs, as one that has nothing open."""
    call = Call(client.close)
    if _portal.is_running:
        call.run()
    else:
        call.run_at_once()


def begin(work: Callable[[], Coroutine[Any, Any, object]]) -> None:
    """Let something run without waiting for it; at the end of the process nothing."""
    if not _portal.has_ended:
        _portal.inbox().put(lambda: _portal.run_aside(work()))


def start_thread(call: Callable[..., object], *args: Any, name: str) -> None:
    """Start a thread that must not keep the process from its end; at that end none."""
    if not _portal.has_ended:
        threading.Thread(target=call, args=args, name=name, daemon=True).start()


_warned: Final[set[str]] = set()
"""Calls of which their users were warned."""


def _warn_of_loop() -> None:
    """Warn, once for each call, whoever waits in a thread that runs an event loop: the loop waits as well."""
    running = asyncio._get_running_loop()  # noqa: SLF001 - it is public, and the other one raises
    if running is None or _portal.is_loop(running):  # green threads share theirs with the portal
        return
    name, depth = "", 2
    caller: FrameType | None = sys._getframe(1)  # noqa: SLF001 - the only way to the caller
    while caller is not None and str(caller.f_globals.get("__name__")).startswith("holdfast."):
        name = _name_of_call(caller) or name
        caller, depth = caller.f_back, depth + 1
    if caller is None or not name or name in _warned:  # the library itself has called, or it is known
        return
    _warned.add(name)
    text = f"{name} blocks the event loop; use AsyncClient or asyncio.to_thread"
    warnings.warn(text, RuntimeWarning, stacklevel=depth)


def _name_of_call(frame: FrameType) -> str:
    """Return the name of a public call of the clients for threads; empty if it is not one."""
    kinds = type(frame.f_locals.get("self")).__mro__
    public = next((kind.__name__ for kind in kinds if kind.__name__.startswith("Sync")), "")
    name = frame.f_code.co_name
    is_public = name.startswith("__") or not name.startswith("_")
    return f"{public}.{name}" if public and is_public else ""


after_fork(_portal.after_fork)
atexit.register(_portal.stop)
