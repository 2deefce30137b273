"""What keeps a right alive while it is used, and stops its user when it is lost.

A right is renewed as long as somebody refers to its object. So nothing here does while it sleeps: timers and
tasks have weak references. `__del__` says what was collected without a release.
"""

import asyncio
import contextlib
import logging
import math
import os
import random
import sys
import threading
import warnings
import weakref
from abc import abstractmethod
from collections.abc import Callable, Coroutine
from types import FrameType, TracebackType
from typing import Any, Final, Self

from holdfast.operations.exchange import TOO_MANY_REQUESTS
from holdfast.operations.terms import Owner
from holdfast.transport.transport import Transport
from holdfast.values.clock import Timer
from holdfast.values.errors import (
    LeaseExpired,
    LeaseLost,
    LockError,
    OutcomeUnknown,
    SessionExpired,
    Unavailable,
)
from holdfast.values.lease import (
    EXPIRED,
    FORKED,
    MAX_HOLD,
    NOT_RENEWED,
    OWNER_GONE,
    RELEASED,
    RENEW_DIVISOR,
    Lease,
    Leased,
)
from holdfast.values.other_words import MadeByClient
from holdfast.values.process import OfOneProcess
from holdfast.values.words import Reason

_log = logging.getLogger("holdfast")

RENEW_JITTER: Final = 0.1
"""Part of the time until a renewal by which it may come earlier: many holds are not renewed all at once."""
AGAIN_S_MIN: Final = 0.5
"""Seconds between two renewals that nodes refuse as too many requests, at least."""


class KeptAlive(OfOneProcess, Leased, MadeByClient):
    """A right that can be renewed in the background, and guards the body of an `async with`.

    When it is lost, the body is cancelled and the `async with` raises LeaseLost. `lost` is set as soon as it
    cannot be relied on, unless it was released. Any task may release it, or leave its block.
    """

    kind: str
    _renewing: Timer | asyncio.Task[None] | None = None
    """What renews it, or will; None if nothing does, also in an object that was never made to its end."""

    def __init__(self, transport: Transport, lease: Lease) -> None:
        super().__init__(lease, transport.clock)
        self._transport = transport
        self._guard: _Guard | None = None
        self.lost = asyncio.Event()

    def __del__(self, _warn: Callable[..., None] = warnings.warn) -> None:
        """Say that it was collected while it was renewed. Its lease ends by itself."""
        if self._renewing is not None and self._pid == os.getpid():
            text = f"{self.unreleased}: it is not renewed any longer, and ends with its lease"
            _log.warning("%s", text)
            _warn(text, ResourceWarning, source=self)

    def _after_end(self) -> None:
        self._transport.kept.discard(self)
        if self._ended_by != RELEASED:
            self.lost.set()
        if self._renewing is not None:
            self._renewing.cancel()
            self._renewing = None

    @property
    @abstractmethod
    def unreleased(self) -> str:
        """What is said when it was collected without a release."""

    @abstractmethod
    async def restart_lease(self, timeout_s: float | None) -> None:
        """Start the lease anew. Ends it, and raises LeaseExpired or SessionExpired, when it is over."""

    @abstractmethod
    async def let_go(self, timeout_s: float | None) -> Any:
        """Give it back to the cluster; to the end, also if the caller is cancelled meanwhile."""

    def keep(self, *, max_hold_s: float | None = None, tied_to: Owner | None = None) -> None:
        """Renew it from now on, on the running loop, while it is referred to and what it is tied to runs.

        Closing the client lets go of it.
        """
        self.let_go_with_client()
        now_s = self.clock.now_s()
        ends_at_s = math.inf if max_hold_s is None else now_s + max_hold_s
        delay_s = max(0.0, min(_renew_at_s(self.lease), ends_at_s) - now_s)

        def begin(kept: KeptAlive) -> None:
            """Go on in a task: it is the first time that there is something to do."""
            this = weakref.ref(kept)
            kept._renewing = task = asyncio.create_task(_renew_until_over(this, ends_at_s, _alive(tied_to)))
            task.add_done_callback(lambda ended: _renewed_no_longer(this(), ended))

        self._renewing = self._transport.renewals.later(self, delay_s, begin)

    def let_go_with_client(self) -> None:
        """Let closing the client, or the end of the process, let go of it."""
        self._transport.kept.add(self)

    def end_with_lease(self) -> None:
        """Renew it not at all: end it, and tell its loss, when its lease is over."""
        self._call_after(self.lease.remaining_s(self.clock.now_s()), KeptAlive._look_at_lease)

    def _look_at_lease(self) -> None:
        if self.lease.remaining_s(self.clock.now_s()) > 0:  # its user has renewed it
            self.end_with_lease()
        else:
            self.end(EXPIRED)

    def end_after(self, max_hold_s: float) -> None:
        """End it after so long, though something else keeps it alive."""
        self._call_after(max_hold_s, lambda kept: kept.end(MAX_HOLD))

    def _call_after(self, delay_s: float, call: "Callable[[KeptAlive], object]") -> None:
        """Call this with it after so long, unless it has ended or was collected before."""
        this = weakref.ref(self)

        def fire() -> None:
            kept = this()
            if kept is not None and not kept.has_ended:
                kept.forget_hearer(cancel)
                call(kept)

        def cancel(_: KeptAlive) -> None:
            timer.cancel()

        timer = self.clock.call_later(delay_s, fire)
        self.when_ended(cancel)

    async def renew_once(self) -> None:
        """Renew it in the background, and report how that went. Ends it when it cannot be relied on then."""
        began_s = self.clock.now_s()
        remaining_s = self.lease.remaining_s(began_s)
        outcome = "failed"
        try:
            # The exchange repeats on its own; the outer timeout also ends an attempt under way in time.
            async with self.clock.timeout(remaining_s):
                await self._restart_despite_bounds(began_s + remaining_s)
            outcome = "renewed"
        except (LockError, TimeoutError) as error:
            outcome = "over" if isinstance(error, LeaseExpired | SessionExpired) else outcome
            self.end(EXPIRED, error)  # an answer that comes later does not count
        finally:
            if (reporter := self._transport.reporter) is not None:
                reporter.renewed(self.kind, self.clock.now_s() - began_s, outcome)

    async def _restart_despite_bounds(self, until_s: float) -> None:
        """Start the lease anew. When all nodes have had enough requests of ours, ask again while it lasts.

        They may say that they take the next one only after that, and take one before.
        """
        while True:
            try:
                return await self.restart_lease(until_s - self.clock.now_s())
            except Unavailable as error:
                if error.code != TOO_MANY_REQUESTS:
                    raise
            left_s = until_s - self.clock.now_s()
            await self.clock.sleep(max(AGAIN_S_MIN, left_s / RENEW_DIVISOR))

    async def give_up(self) -> None:
        """Let go of it, whether or not it can be relied on, and whether or not the cluster answers."""
        if self.reason == FORKED or self.is_let_go:
            return
        self.end(RELEASED)
        with contextlib.suppress(LeaseLost):
            await self._transport.finish(self._release_quietly(self._undo_s))

    @property
    def is_let_go(self) -> bool:
        """Whether its client, or the end of the process, has let go of it: nothing is left to release."""
        return self.reason == RELEASED and self._transport.is_closed

    @property
    def _undo_s(self) -> float | None:
        """Seconds for letting go of what nobody wants; as the client has for all calls if no time ends it."""
        return None if self.lease.is_endless else self._transport.undo_s

    def run_aside(self, coroutine: Coroutine[Any, Any, object]) -> None:
        """Run something by itself; closing the client waits for it."""
        self._transport.begin(coroutine)

    # -- as a context ---------------------------------------------------------------------------------------

    @property
    def is_guarding(self) -> bool:
        """Whether a block relies on it."""
        return self._guard is not None

    def guard(self) -> None:
        """Cancel the task that runs now when this is lost, until `__aexit__`."""
        if self._guard is not None:
            raise RuntimeError(f"{self} guards another block already")
        self._guard = _Guard(self)

    def __aenter__(self) -> Coroutine[Any, Any, Self]:
        return self._enter(sys._getframe(1))  # noqa: SLF001 - see blocks.py

    async def _enter(self, frame: FrameType) -> Self:
        self.begin_block(frame)
        return self

    def begin_block(self, frame: FrameType) -> None:
        """Guard a block that is entered from `frame`."""
        del frame
        self.guard()

    def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> Coroutine[Any, Any, None]:
        self.forget_block(sys._getframe(1))  # noqa: SLF001 - see blocks.py
        return self.end_block(exc)

    def forget_block(self, frame: FrameType) -> None:
        """Forget a block that is left from `frame`."""

    async def end_block(self, exc: BaseException | None) -> None:
        """End it at the end of a block that raises `exc`. Raises LeaseLost if it was lost."""
        guard, self._guard = self._guard, None
        if guard is None:
            raise RuntimeError(f"the block of {self} was left already")
        # Nothing comes between the end of the body and this verdict.
        reason = self.reason
        guard.leave()
        if reason in ("", RELEASED):
            await self.leave()
            return
        self._end_late(reason)
        if guard.is_of_another_task:
            if isinstance(exc, asyncio.CancelledError):
                return  # somebody has cancelled this task, and not because of the loss
        elif not guard.was_only_canceller():
            if isinstance(exc, asyncio.CancelledError):
                return  # somebody else has cancelled the task, too: that takes precedence
        elif not isinstance(exc, asyncio.CancelledError):
            await guard.take_back()
        raise self.loss(reason) from (self.cause or exc)

    async def leave(self) -> None:
        """Release it at the end of a block, unless the block has done so. Raises LeaseLost if it was lost."""
        reason = self.reason
        if reason == RELEASED or self.counts_down():
            return
        if reason:
            self._end_late(reason)
            raise self.loss(reason)
        lease = self.lease
        remaining_s = None if lease.is_endless else lease.remaining_s(self.clock.now_s())
        self.end(RELEASED)
        # The body has ended in time, so an unreachable cluster does not make it fail.
        await self._release_quietly(remaining_s)

    async def leave_interrupted(self) -> None:
        """Release it at the end of a block that was interrupted, which takes precedence over a loss."""
        if not self.counts_down():
            await self.give_up()

    def counts_down(self) -> bool:
        """Take one release off, if there are more to come; return whether it is held on for that."""
        return False

    def _end_late(self, reason: Reason) -> None:
        """End what was lost before its block ended."""
        self.end(reason)
        if reason == MAX_HOLD:  # the cluster does not know that we want it no more
            self._transport.begin(self._release_quietly(self._undo_s))

    async def _release_quietly(self, timeout_s: float | None) -> None:
        """Release it if that is possible. Raises LeaseLost if it was over before."""
        try:
            await self.let_go(timeout_s)
        except (LeaseExpired, SessionExpired) as error:
            lost = f"{self.described} was lost before the protected work ended"
            raise LeaseLost(lost, error.code) from error
        except (Unavailable, OutcomeUnknown) as error:
            _log.warning("not released, expires by itself: %s error=%s", self, error)


def _renew_at_s(lease: Lease) -> float:
    """Return when to renew, by our clock."""
    jitter = RENEW_JITTER * random.random()  # noqa: S311 - spreads load, not a secret
    return lease.asked_at_s + (lease.renew_at_s - lease.asked_at_s) * (1 - jitter)


class _Guard:
    """Cancels the task that runs a body when what the body relies on is lost."""

    def __init__(self, kept: KeptAlive) -> None:
        body = asyncio.current_task()
        assert body is not None
        self._kept = kept
        self._body = body
        self._cancels_before = body.cancelling()
        self._has_cancelled = False
        kept.when_ended(self._cancel_body)

    def _cancel_body(self, kept: KeptAlive) -> None:
        if kept.reason != RELEASED and not self._body.done():
            self._has_cancelled = True
            self._body.cancel()

    @property
    def is_of_another_task(self) -> bool:
        """Whether the block is left in another task than the one that entered it, which it cancels."""
        return asyncio.current_task() is not self._body

    def leave(self) -> None:
        """Leave the body alone: it has ended."""
        self._kept.forget_hearer(self._cancel_body)

    def was_only_canceller(self) -> bool:
        """Take back our own cancellation of the body; return whether nobody else has cancelled it."""
        cancels = self._body.uncancel() if self._has_cancelled else self._body.cancelling()
        return cancels <= self._cancels_before

    async def take_back(self) -> None:
        """Let a cancellation of ours come that the body has not seen, and end it here.

        So it is when the body itself was told of the loss, and ended without another await.
        """
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            if self._body.cancelling() > self._cancels_before:
                raise  # somebody else's, which came at this moment


async def _renew_until_over(
    this: "weakref.ref[KeptAlive]", ends_at_s: float, is_alive: Callable[[], bool]
) -> None:
    """Renew it again and again, as long as somebody refers to it. While this sleeps, it does not."""
    while (kept := this()) is not None and not kept.has_ended:
        clock, wake_at_s = kept.clock, min(_renew_at_s(kept.lease), ends_at_s)
        del kept
        await clock.sleep(max(0.0, wake_at_s - clock.now_s()))
        if (kept := this()) is None:
            return
        if clock.now_s() >= ends_at_s:
            kept.end(MAX_HOLD)
        elif not is_alive():
            _log.warning("not released, expires by itself: what it was tied to has ended: %s", kept)
            kept.end(OWNER_GONE)
        else:
            await kept.renew_once()
        del kept


def _renewed_no_longer(kept: KeptAlive | None, task: "asyncio.Task[None]") -> None:
    """End it, whatever broke the task: without renewals it cannot be relied on."""
    cause = None if task.cancelled() else task.exception()
    if kept is not None and not kept.has_ended:
        kept.end(NOT_RENEWED, cause)


def _alive(owner: Owner | None) -> Callable[[], bool]:
    """Return what says whether a task or a thread still runs; whether nothing does, if there is none."""
    if isinstance(owner, threading.Thread):
        return owner.is_alive
    if owner is not None:
        return lambda: not owner.done()
    return lambda: True
