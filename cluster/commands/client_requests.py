"""Commands and reads of this node's clients: submitted, waited for, and undone when a client goes away."""

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Callable
from typing import Final, TypeVar

import msgspec

from cluster.commands.encoded_command import EncodedCommand, encode
from cluster.commands.kept_waits import KeptWaits
from cluster.commands.log_space import deciding
from cluster.commands.outbox import Answer, Outbox, Pending
from cluster.commands.traces import Traces
from cluster.errors import ClusterError, OutcomeUnknown, ShuttingDown, WaitCutOff
from lockstate.machine import LockMachine
from lockstate.rules import attempts
from lockstate.words import codec
from lockstate.words.commands.entries import Barrier, Cancel, Command, MayBeCancelled
from lockstate.words.commands.holds import Acquire, Change, MayWait
from lockstate.words.commands.primitives import TakeRate
from lockstate.words.commands.sessions import CloseSession
from lockstate.words.commands.streams import Numbered
from lockstate.words.ids import NO_HOLD, AttemptId, HoldId
from lockstate.words.kinds import IfHeld
from lockstate.words.results import Granted, Queued, RateTaken, Result

T = TypeVar("T")

CANCEL_S: Final = 5.0
"""The time, in seconds, for which the cancel of an abandoned request is tried at once."""
RETRY_S = 1.0
"""The pause, in seconds, before it is tried again."""

_NOT: Final = contextlib.nullcontext()
"""Where nothing is recorded."""

logger = logging.getLogger(__name__)


class ClientRequests:
    """What the faces of a node ask for. One thread."""

    def __init__(
        self,
        outbox: Outbox,
        failures: Counter[str],
        request_flush: Callable[[], None],
        is_open: Callable[[], bool],
        check_log_space: Callable[[type[Command]], None],
        *,
        answered: Callable[[Result], None],
        machine: Callable[[], LockMachine],
        traces: Traces | None = None,
    ) -> None:
        """Ask through `outbox`.

        `failures` counts requests without a result, by their codes. `request_flush` sends what the outbox
        holds. `is_open` tells whether it takes new work. `check_log_space` raises Overloaded for commands
        that the leader's log has no space for. `answered` counts a result that was not in the log. `machine`
        returns the present state. `traces` records what is asked for, if anything is recorded.
        """
        self._outbox = outbox
        self._failures = failures
        self._request_flush = request_flush
        self._is_open = is_open
        self._check_log_space = check_log_space
        self._answered = answered
        self._machine = machine
        self._traces = traces
        self._cancels: set[asyncio.Task[None]] = set()
        self._kept = KeptWaits(self._undo)

    async def submit(self, command: Command, timeout_s: float, principal: str = "") -> Answer:
        """Replicate one command and return its result and revision.

        `principal` is who asks, "" if that is not known. Only a command that clients ask for has one.

        Raises:
            NoLeader, Overloaded, ShuttingDown: not applied.
            OutcomeUnknown: sent, and no outcome within `timeout_s`.
        """
        refused, left_s = await self._refused_for_room(command, timeout_s, principal)
        return refused or await self._submit(command, left_s, principal).future

    async def _refused_for_room(
        self, command: Command, timeout_s: float, principal: str
    ) -> tuple[Answer | None, float]:
        """Answer a command for which there is no room, and that need not be in the log to be refused.

        If it is not refused, return None and what is left of `timeout_s`. Raises as `read`: nothing was
        submitted then.

        What this node has applied may be out of date. So it only decides whether to look once more, as a read
        does that is shared by all that ask now: where that looks, the command would be refused, too.
        """
        if self._machine().no_room_for(command, principal) is None:
            return None, timeout_s
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + timeout_s
        refused, revision = await self.read(
            lambda machine: (machine.no_room_for(command, principal), machine.revision), timeout_s
        )
        left_s = deadline_s - loop.time()
        if refused is None:
            return None, left_s
        self._answered(refused)
        return Answer(refused, revision), left_s

    def begin(
        self, command: Command, timeout_s: float, principal: str = "", lane: str = ""
    ) -> "asyncio.Future[Answer]":
        """Replicate one command that does not wait in a queue; return the future of its answer.

        What is begun in one lane is applied in this order; a stream has one of its own. Raises as `submit`,
        at once or through the future.
        """
        return self._submit(command, timeout_s, principal, lane).future

    def abandon(self, command: Command, begun: "asyncio.Future[Answer]", principal: str = "") -> None:
        """Leave what was begun for a client that went away, as `acquire` does when it is cancelled."""
        if isinstance(command, MayBeCancelled):
            self._leave_when_known(command, principal, begun)

    async def acquire(
        self, command: MayWait, timeout_s: float, principal: str = "", poll_s: float | None = None
    ) -> Answer:
        """Replicate a request that may wait in a queue, and wait there: the result is Granted or Refused.

        After `poll_s` it is Queued if the wait goes on; then, and when the calling task is cancelled (the
        client's connection ended), the request keeps its place for a grace if it has a `request_id`
        (`kept_waits`). One without is undone in the cluster at once, unless this node is shutting down.
        Of a conversion only the wait is undone: one that came through stays, as the hold does.
        Takes at most `wait_ms` + 2 * `timeout_s`. Raises as `submit`.
        """
        self.check_open()
        kept = self._kept.take(command, principal)
        if kept is not None and await self._goes_on(*kept, timeout_s, principal):
            command, answer = kept
            answer = msgspec.structs.replace(answer, is_repeated=True)
            return await self._wait(command, answer, timeout_s, principal, poll_s)
        refused, left_s = await self._refused_for_room(command, timeout_s, principal)
        if refused is not None:
            return refused
        pending = self._submit(command, left_s, principal)
        try:
            answer = await asyncio.shield(pending.future)
        except asyncio.CancelledError:
            self._leave_when_known(command, principal, pending.future)
            raise
        return await self._wait(command, answer, timeout_s, principal, poll_s)

    async def _goes_on(self, command: MayWait, answer: Answer, timeout_s: float, principal: str) -> bool:
        """Look behind a barrier whether a kept wait still goes on. If not, it is kept again.

        A grant that is in the log by now is older than the attempt from which the client now counts its
        lease. The state machine answers that attempt with what is left.
        """
        goes_on = False
        try:
            await self.read(lambda _: None, timeout_s)
            goes_on = answer.wait is not None and not answer.wait.done()
        finally:
            if not goes_on:
                self._leave(command, principal, answer)
        return goes_on

    async def _wait(
        self, command: MayWait, answer: Answer, timeout_s: float, principal: str, poll_s: float | None
    ) -> Answer:
        """Wait for the end of a wait, as `acquire` says."""
        if answer.wait is None:
            return answer
        with _NOT if self._traces is None else self._traces.tracer.within("wait in queue"):
            return await self._wait_in_queue(command, answer, timeout_s, principal, poll_s)

    async def _wait_in_queue(
        self, command: MayWait, answer: Answer, timeout_s: float, principal: str, poll_s: float | None
    ) -> Answer:
        wait = answer.wait
        assert wait is not None, "it waits"
        longest_s = command.wait_ms / 1000 + timeout_s
        is_slice = poll_s is not None and poll_s < longest_s
        try:
            async with asyncio.timeout(poll_s if is_slice else longest_s):
                ended = await asyncio.shield(wait)
        except TimeoutError:
            if wait.done():
                ended = wait.result()
            elif is_slice:
                self._leave(command, principal, answer)
                return answer
            else:
                wait.cancel()
                await self._end_unknown(command, answer, is_known=True)
                raise OutcomeUnknown(
                    "the wait did not end in time; repeat with the same request_id"
                ) from None
        except asyncio.CancelledError:
            self._leave(command, principal, answer)
            raise
        except OutcomeUnknown as error:
            await self._end_unknown(command, answer, is_known=isinstance(error, WaitCutOff))
            raise
        return msgspec.structs.replace(ended, is_repeated=True) if answer.is_repeated else ended

    async def _end_unknown(self, command: MayWait, answer: Answer, *, is_known: bool) -> None:
        """Count a wait without an outcome; take back a ticket that nobody can ask for, without `request_id`.

        One that this node may know no more has ended, unless the node stops: then it is left behind.
        """
        self._failures[OutcomeUnknown.code] += 1
        if command.request_id:
            return
        if is_known:
            self._undo(command, answer)
        elif not self._is_open():
            await self._cancel(command, answer)

    async def withdraw(self, scope: str, request_id: str, timeout_s: float, principal: str = "") -> bool:
        """Take back all attempts at a request, on whatever node: its wait, or what it was granted.

        `scope` is what its ids count within (`request_key`). Returns whether there was anything to take back.
        Raises as `submit`.
        """
        hold_id, attempt_ids = await self.read(
            lambda machine: attempts.of_request(machine.state, principal, scope, request_id), timeout_s
        )
        cancels = [
            self._outbox.submit(_cancel_of(hold_id, attempt_id), timeout_s) for attempt_id in attempt_ids
        ]
        self._request_flush()
        for pending in cancels:
            await pending.future
        return bool(cancels)

    async def read(self, query: Callable[[LockMachine], T], timeout_s: float) -> T:
        """Answer from a state at least as new as every answer given before this call, anywhere.

        Raises NoLeader, Overloaded, ShuttingDown.
        """
        self._check_taken(Barrier)
        future = self._outbox.read(query, timeout_s)
        self._request_flush()
        if self._traces is None:
            return await future
        with self._traces.tracer.within("read"):
            self._traces.watch(self._outbox.barrier, "barrier")
            return await future

    def check_open(self) -> None:
        """Raise ShuttingDown if this node takes no new work."""
        if not self._is_open():
            self._failures[ShuttingDown.code] += 1
            raise ShuttingDown("this node is stopping; ask another")

    def _check_taken(self, command: type[Command]) -> None:
        """Raise ShuttingDown, or Overloaded if the leader has no room for such a command."""
        self.check_open()
        try:
            self._check_log_space(command)
        except ClusterError as error:
            self._failures[error.code] += 1
            raise

    def _submit(self, command: Command, timeout_s: float, principal: str, lane: str = "") -> Pending:
        self._check_taken(deciding(command))
        try:
            encoded = encode(command, self._machine(), principal)
            pending = self._outbox.submit(encoded, timeout_s, *self._turn_of(command, principal, lane))
        except ClusterError as error:
            self._failures[error.code] += 1
            raise
        if self._traces is not None:
            self._traces.watch(pending, f"replicate {type(command).__name__}")
        self._request_flush()
        return pending

    def _turn_of(self, command: Command, principal: str, lane: str) -> tuple[str, str]:
        """Return the lane of a command, "" if it has none, and who shares in what has load (`QueueTurn`).

        What a stream numbers keeps its order, and the end of its session comes behind that; so does what a
        client of Redis sends without waiting for answers. Nothing else needs it, as over HTTP a connection
        asks for one thing at a time; and a keepalive must not wait.
        """
        if not isinstance(command, Numbered | CloseSession):
            return lane, principal
        # Of a frame nobody says who asks, if that is whose session it is.
        return command.session_id, principal or self._machine().owner_of(command.session_id)

    # -- clients that went away -----------------------------------------------------------------------------

    def _leave_when_known(
        self, command: MayBeCancelled, principal: str, begun: "asyncio.Future[Answer]"
    ) -> None:
        """Leave a request whose client went before it was known whether it waits or holds."""

        def on_outcome(future: asyncio.Future[Answer]) -> None:
            if not future.cancelled() and future.exception() is None:
                self._leave(command, principal, future.result())

        begun.add_done_callback(on_outcome)

    def _leave(self, command: MayBeCancelled, principal: str, answer: Answer) -> None:
        """Keep what a client may ask for again, undo what it cannot or would not: what need not wait."""
        if command.request_id and command.wait_ms and self._to_undo(command, answer):
            self._kept.keep(command, principal, answer)
        else:
            self._undo(command, answer)

    def _to_undo(self, command: MayBeCancelled, answer: Answer) -> HoldId:
        """Return what a client left behind, as `to_undo` does; also a grant that an earlier attempt got.

        It belongs to both (`lockstate.rules.attempts`), and stays until the last of them is taken back.
        """
        result = answer.result
        is_of_both = answer.is_repeated and not isinstance(command, Change)
        if is_of_both and isinstance(result, Granted) and not result.depth:
            return result.hold_id
        return to_undo(command, result)

    def _undo(self, command: MayBeCancelled, answer: Answer) -> None:
        """Cancel in the background."""
        if answer.wait is not None:
            answer.wait.cancel()
        if self._is_open():
            task = asyncio.get_running_loop().create_task(self._cancel(command, answer))
            self._cancels.add(task)
            task.add_done_callback(self._cancels.discard)

    async def _cancel(self, command: MayBeCancelled, answer: Answer) -> None:
        """Take back a wait, or a grant. It is tried until there is an outcome, or this node stops.

        A ticket whose client was told that its wait is over may get a lock that a session then keeps as long
        as it lives, and the cluster may be without a leader for longer than one try lasts. To cancel twice
        does no harm: ids are used once.
        """
        undone = self._to_undo(command, answer)
        if not undone:
            return
        cancel = _cancel_of(undone, command.attempt_id)
        is_told = False
        while True:
            try:
                pending = self._outbox.submit(cancel, CANCEL_S)
                self._request_flush()
                await pending.future
            except ClusterError as error:
                if not is_told:
                    is_told = True
                    name = "" if isinstance(command, Change) else command.name
                    logger.warning("event=cancel-failed code=%s name=%r", error.code, name)
            else:
                return
            if not self._is_open():
                return
            await asyncio.sleep(RETRY_S)


def _cancel_of(hold_id: HoldId, attempt_id: AttemptId) -> EncodedCommand:
    """Return the command that takes back an attempt."""
    return EncodedCommand(codec.encode_command(Cancel(hold_id, attempt_id)))


def to_undo(command: MayBeCancelled, result: Result) -> HoldId:
    """Return the id of the ticket or hold that a client left behind, empty if there is none.

    A hold that the session had before, or that an earlier attempt got, is not this one's to undo; only what
    this one counted is. Nor is the hold that was changed. A place of a rate limit is known by the attempt.
    """
    match result:
        case Queued():
            return result.hold_id
        case RateTaken() if isinstance(command, TakeRate):
            return HoldId(command.attempt_id) if result.allowed else NO_HOLD
        case Granted() if not isinstance(command, Change | TakeRate) and result.hold_id == command.hold_id:
            return result.hold_id
        case Granted() if result.depth and isinstance(command, Acquire) and command.if_held is IfHeld.COUNT:
            return result.hold_id
    return NO_HOLD
