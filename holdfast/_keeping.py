"""What keeps a right alive while it is used, and stops its user when it is lost."""

import asyncio
import contextlib
import logging
import math
import random
from abc import abstractmethod
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Final, Self

from holdfast._errors import LeaseExpired, LeaseLost, LockError, OutcomeUnknown, SessionExpired, Unavailable
from holdfast._lease import (
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
from holdfast._transport import Transport

_log = logging.getLogger("holdfast")

RENEW_JITTER: Final = 0.1
"""Part of the time until a renewal by which it may come earlier: many holds are not renewed all at once."""
AGAIN_S_MIN: Final = 0.5
"""Seconds between two renewals that nodes refuse because of a quota, at least."""
QUOTA_EXCEEDED: Final = "quota-exceeded"
"""The code of such a refusal."""


class Kept(Leased):
    """A right that can be renewed in the background, and guards the body of an `async with`.

    When it is lost, the body is cancelled and the `async with` raises LeaseLost. `lost` is set as soon as it
    cannot be relied on, unless it was released.
    """

    kind: str

    def __init__(self, transport: Transport, lease: Lease) -> None:
        super().__init__(lease, transport.clock)
        self._transport = transport
        self._guard: _Guard | None = None
        self._task: asyncio.Task[None] | None = None
        self.lost = asyncio.Event()
        self.when_ended(self._tell_loss)

    def _tell_loss(self) -> None:
        if self.reason != RELEASED:
            self.lost.set()

    @abstractmethod
    async def extend(self, timeout_s: float | None) -> None:
        """Start the lease anew. Ends it, and raises LeaseExpired or SessionExpired, when it is over."""

    @abstractmethod
    async def let_go(self, timeout_s: float | None) -> Any:
        """Give it back to the cluster; to the end, also if the caller is cancelled meanwhile."""

    def keep(self, *, max_hold_s: float | None, is_alive: Callable[[], bool]) -> None:
        """Renew it from now on, on the running loop, while its owner is alive."""
        now_s = self.clock.now_s()
        ends_at_s = math.inf if max_hold_s is None else now_s + max_hold_s
        delay_s = max(0.0, min(_renew_at_s(self.lease), ends_at_s) - now_s)
        self._transport.renewals.later(self, delay_s, lambda: self._begin_keeping(ends_at_s, is_alive))
        self.when_ended(self._cancel_keeping)

    def _begin_keeping(self, ends_at_s: float, is_alive: Callable[[], bool]) -> None:
        """Go on in a task: it is the first time that there is something to do."""
        task = asyncio.create_task(self._keep(ends_at_s, is_alive))
        task.add_done_callback(self._kept_no_longer)
        self._task = task

    def _cancel_keeping(self) -> None:
        if self._task is None:
            self._transport.renewals.forget(self)
        else:
            self._task.cancel()
            self._task = None

    async def _keep(self, ends_at_s: float, is_alive: Callable[[], bool]) -> None:
        while True:
            wake_at_s = min(_renew_at_s(self.lease), ends_at_s)
            await self.clock.sleep(max(0.0, wake_at_s - self.clock.now_s()))
            if self.clock.now_s() >= ends_at_s:
                return self.end(MAX_HOLD)
            if not is_alive():
                _log.warning("not released, expires by itself: its task or thread has ended: %s", self)
                return self.end(OWNER_GONE)
            began_s = self.clock.now_s()
            remaining_s = self.lease.remaining_s(began_s)
            outcome = "failed"
            try:
                # The exchange repeats on its own; the outer timeout also ends an attempt under way in time.
                async with self.clock.timeout(remaining_s):
                    await self._extend_despite_quota(began_s + remaining_s)
                outcome = "renewed"
            except (LockError, TimeoutError) as error:
                outcome = "over" if isinstance(error, LeaseExpired | SessionExpired) else outcome
                return self.end(EXPIRED, error)  # an answer that comes later does not count
            finally:
                self._transport.reporter.renewed(self.kind, self.clock.now_s() - began_s, outcome)

    async def _extend_despite_quota(self, until_s: float) -> None:
        """Start the lease anew. When all nodes have had enough requests of ours, ask again while it lasts.

        They may say that they take the next one only after that, and take one before.
        """
        while True:
            try:
                return await self.extend(until_s - self.clock.now_s())
            except Unavailable as error:
                if error.code != QUOTA_EXCEEDED:
                    raise
            left_s = until_s - self.clock.now_s()
            await self.clock.sleep(max(AGAIN_S_MIN, left_s / RENEW_DIVISOR))

    def _kept_no_longer(self, task: "asyncio.Task[None]") -> None:
        """End it, whatever broke the task: without renewals it cannot be relied on."""
        if not self.has_ended:
            self.end(NOT_RENEWED, None if task.cancelled() else task.exception())

    def end_after(self, max_hold_s: float) -> None:
        """End it after so long, though something else keeps it alive."""
        timer = self.clock.call_later(max_hold_s, lambda: self.end(MAX_HOLD))
        self.when_ended(timer.cancel)

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

    def guard(self) -> None:
        """Cancel the task that runs now when this is lost, until `__aexit__`."""
        if self._guard is not None:
            raise RuntimeError(f"{self} guards another block already")
        self._guard = _Guard(self)

    async def __aenter__(self) -> Self:
        self.guard()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        guard, self._guard = self._guard, None
        assert guard is not None
        # Nothing comes between the end of the body and this verdict.
        reason = self.reason
        guard.leave()
        if reason in ("", RELEASED):
            await self.leave()
            return
        self._end_late(reason)
        if not guard.was_only_canceller():
            if isinstance(exc, asyncio.CancelledError):
                return  # somebody else has cancelled the task, too: that takes precedence
        elif not isinstance(exc, asyncio.CancelledError):
            await guard.take_back()
        raise self.loss(reason) from (self.cause or exc)

    async def leave(self) -> None:
        """Release it at the end of a block, unless the block has done so. Raises LeaseLost if it was lost."""
        reason = self.reason
        if reason == RELEASED:
            return
        if reason:
            self._end_late(reason)
            raise self.loss(reason)
        lease = self.lease
        remaining_s = None if lease.is_endless else lease.remaining_s(self.clock.now_s())
        self.end(RELEASED)
        # The body has ended in time, so an unreachable cluster does not make it fail.
        await self._release_quietly(remaining_s)

    def _end_late(self, reason: str) -> None:
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

    def __init__(self, kept: Kept) -> None:
        body = asyncio.current_task()
        assert body is not None
        self._kept = kept
        self._body = body
        self._cancels_before = body.cancelling()
        self._has_cancelled = False
        kept.when_ended(self._cancel_body)

    def _cancel_body(self) -> None:
        if self._kept.reason != RELEASED:
            self._has_cancelled = True
            self._body.cancel()

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


def current_task_alive() -> Callable[[], bool]:
    """Return what says whether the task that runs now is still running."""
    task = asyncio.current_task()
    return lambda: task is None or not task.done()
