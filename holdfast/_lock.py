"""The lock as a context manager: renewed while the body runs, released after it; losing it is an error."""

import asyncio
import logging
from types import TracebackType
from typing import Protocol

from holdfast._errors import LeaseExpired, LeaseLost, LockError, OutcomeUnknown, Unavailable
from holdfast._hold import EXPIRED, RELEASED, Hold, now_s

_log = logging.getLogger("holdfast")


class LockCalls(Protocol):
    """What a lock needs of the client that made it."""

    async def acquire(
        self, name: str, *, ttl_ms: int, wait_ms: int | None, mode: str, lock_delay_ms: int, note: str
    ) -> Hold:
        """Acquire a lock. Raises LockError."""
        ...

    async def renew(self, hold: Hold, *, timeout_s: float) -> None:
        """Renew the lease of a hold. Raises LockError."""
        ...

    async def release(self, hold: Hold, *, timeout_s: float) -> None:
        """Release a hold. Raises LockError."""
        ...


class Lock:
    """A lock for `async with`. It may be entered again and again, by one task at a time.

    When the lease is lost, because the cluster says so or because its time has passed by our own clock with
    no answer from the cluster, the body is cancelled and the `async with` raises LeaseLost.
    """

    def __init__(
        self,
        locks: LockCalls,
        name: str,
        *,
        ttl_ms: int,
        wait_ms: int | None,
        mode: str,
        lock_delay_ms: int,
        note: str,
    ) -> None:
        self._locks = locks
        self._name = name
        self._ttl_ms = ttl_ms
        self._wait_ms = wait_ms
        self._mode = mode
        self._lock_delay_ms = lock_delay_ms
        self._note = note
        self._is_entered = False
        self._keeper: _Keeper | None = None

    async def __aenter__(self) -> Hold:
        if self._is_entered:
            raise RuntimeError(f"this Lock of {self._name!r} is in use; make one for each task")
        self._is_entered = True
        try:
            hold = await self._locks.acquire(
                self._name,
                ttl_ms=self._ttl_ms,
                wait_ms=self._wait_ms,
                mode=self._mode,
                lock_delay_ms=self._lock_delay_ms,
                note=self._note,
            )
        except BaseException:
            self._is_entered = False
            raise
        self._keeper = _Keeper(self._locks, hold)
        return hold

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        keeper = self._keeper
        assert keeper is not None
        self._keeper = None
        self._is_entered = False
        lost = keeper.stop()
        if lost is not None:
            if not keeper.was_only_canceller() and isinstance(exc, asyncio.CancelledError):
                return  # somebody else has cancelled the task, too: that takes precedence
            raise lost from (lost.__cause__ or exc)
        if keeper.hold.reason != RELEASED:  # the body may have done so itself
            await self._release(keeper.hold)

    async def _release(self, hold: Hold) -> None:
        """Release the hold. The body has ended in time, so an unreachable cluster does not make it fail."""
        remaining_s = hold.lease.remaining_s(now_s())
        try:
            await self._locks.release(hold, timeout_s=remaining_s)
        except LeaseExpired as error:
            lost = f"{hold.name!r} was lost before the protected work ended"
            raise LeaseLost(lost, error.code) from error
        except (Unavailable, OutcomeUnknown) as error:
            _log.warning(
                "not released, expires by itself: name=%s token=%d error=%s", hold.name, hold.token, error
            )


class _Keeper:
    """Renews one hold from a task of its own and cancels the body's task when the hold is lost."""

    def __init__(self, locks: LockCalls, hold: Hold) -> None:
        body = asyncio.current_task()
        assert body is not None
        self.hold = hold
        self._locks = locks
        self._body = body
        self._cancels_before = body.cancelling()
        self._has_cancelled = False
        self._task = asyncio.create_task(self._keep())
        self._task.add_done_callback(self._cancel_body)

    async def _keep(self) -> None:
        """Renew until cancelled, or until the body itself has released the hold. Raises LeaseLost."""
        hold = self.hold
        while True:
            await asyncio.sleep(max(0.0, hold.lease.renew_at_s - now_s()))
            if hold.reason == RELEASED:
                return
            remaining_s = hold.lease.remaining_s(now_s())
            try:
                # The client repeats on its own; the outer timeout also ends an attempt under way in time.
                async with asyncio.timeout(remaining_s):
                    await self._locks.renew(hold, timeout_s=remaining_s)
            except (LockError, TimeoutError) as error:
                if hold.reason == RELEASED:
                    return
                hold.end(EXPIRED)  # an answer that comes later does not count
                detail = str(error) or "no answer in time"
                lost = f"the lock {hold.name!r} (token {hold.token}) is lost: {detail}"
                raise LeaseLost(lost, hold.reason) from error

    def _cancel_body(self, task: asyncio.Task[None]) -> None:
        """Cancel the body, whatever broke the task: without renewals the lock cannot be relied on."""
        if not task.cancelled() and task.exception() is not None:
            self._has_cancelled = True
            self._body.cancel()

    def stop(self) -> LeaseLost | None:
        """End the renewals; return why the hold is lost, or None while it can be relied on.

        It does not wait, so that nothing comes between the end of the body and this verdict.
        """
        self._task.remove_done_callback(self._cancel_body)
        reason = self.hold.reason
        error: BaseException | None = None
        if not self._task.done():
            self._task.cancel()
        elif self._task.cancelled():
            error = asyncio.CancelledError("somebody has cancelled the renewals")
        else:
            error = self._task.exception()
        if isinstance(error, LeaseLost):
            return error
        if error is None and reason in ("", RELEASED):
            return None
        # Either the body kept the event loop busy for so long that it could not be cancelled, or we broke.
        lost = self.hold.lost(reason or "its renewal broke")
        lost.__cause__ = error
        return lost

    def was_only_canceller(self) -> bool:
        """Take back our own cancellation of the body; return whether nobody else has cancelled it."""
        cancels = self._body.uncancel() if self._has_cancelled else self._body.cancelling()
        return cancels <= self._cancels_before
