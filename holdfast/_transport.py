"""Sends operations where and as often as `_exchange.py` says, and undoes what nobody waits for."""

import asyncio
import logging
import random
from collections.abc import AsyncGenerator, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from holdfast import _exchange
from holdfast._access import Access
from holdfast._clock import REAL, Clock
from holdfast._errors import LockError
from holdfast._exchange import Answered, Attempt, Exchange, Retry
from holdfast._metrics import Metrics, Reporter
from holdfast._operation import Operation
from holdfast._sending import NoAnswer, NoTrust, Sending
from holdfast._tls import Tls, Trust

if TYPE_CHECKING:
    from holdfast._http import Connections

T = TypeVar("T")

UNAUTHENTICATED = 401
"""The status of an answer to somebody whom a node does not know."""

_log = logging.getLogger("holdfast")

PATIENCE_S = 2.0
"""Seconds that a cancelled task takes at most to undo what it had begun; then that goes on without it."""
ANSWER_S = 0.05
"""Seconds that an answer has to arrive before a request that nobody waits for is withdrawn: most are granted
at once, and a grant is better released than lost on its way."""
WITHDRAW_AFTER_S = 0.5
"""Seconds after which a repeated attempt that nobody waits for is withdrawn."""


class Transport:
    """Carries out operations on the nodes of a cluster, over the connections of the running loop."""

    def __init__(
        self,
        nodes: Sequence[str],
        timeout_s: float,
        *,
        trust: Trust | None = None,
        access: Access | None = None,
        clock: Clock = REAL,
        connections: "Connections | None" = None,
        metrics: Metrics | None = None,
    ) -> None:
        """Send to these nodes, over `connections` (made with the first request if there are none).

        `trust` is for nodes whose URLs are https://; without it they are judged as this machine does.
        `access` is for nodes that want to know who calls.
        """
        if trust is None and any(node.startswith("https://") for node in nodes):
            trust = Trust(Tls())
        self.trust = trust
        self.access = access
        self.nodes = tuple(nodes)
        self.timeout_s = timeout_s
        self.clock = clock
        self.reporter = Reporter(metrics)
        # Clients spread over the nodes by chance; each then stays with the node that answers.
        self.node = random.randrange(len(self.nodes))  # noqa: S311 - load spreading, not a secret
        self._connections = connections
        self._finishing: set[asyncio.Task[Any]] = set()

    @property
    def connections(self) -> "Connections":
        """The connections. They are the first that needs aiohttp, which takes long to import."""
        if self._connections is None:
            from holdfast._http import Connections  # noqa: PLC0415 - see above

            self._connections = Connections(trust=self.trust, access=self.access)
        return self._connections

    async def close(self) -> None:
        """Finish what is being undone, and close the connections of the running loop."""
        loop = asyncio.get_running_loop()
        finishing = {task for task in self._finishing if task.get_loop() is loop and not task.done()}
        if finishing:
            await asyncio.wait(finishing, timeout=self.timeout_s)
        if self._connections is not None:
            await self._connections.close()

    async def call(self, operation: Operation[T], timeout_s: float | None = None) -> T:
        """Send one operation, and again until it has an outcome or the deadline has passed. Raises LockError.

        If the caller is cancelled, what the operation has given, or still will give, is undone.
        """
        _ = self.connections  # imported before the time of the operation begins to count
        work = _Work(self, operation, self.timeout_s if timeout_s is None else timeout_s)
        if operation.undo is None:
            return await work.run()
        task = asyncio.create_task(work.run())
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            await self.finish(self._undo(operation, work, task))
            raise

    def begin(self, coroutine: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        """Let something run by itself; closing waits for it."""
        task = asyncio.create_task(coroutine)
        self._finishing.add(task)
        task.add_done_callback(self._finishing.discard)
        return task

    async def finish(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run something to its end, also if the caller is cancelled meanwhile: that comes afterwards."""
        task = self.begin(coroutine)
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            await asyncio.wait({task}, timeout=PATIENCE_S)
            task.add_done_callback(_hear)
            raise
        return task.result()

    async def _undo(self, operation: Operation[T], work: "_Work[T]", task: "asyncio.Task[T]") -> None:
        """Take back an operation whose caller went away, whatever has become of it."""
        assert operation.undo is not None
        work.abandon()
        if not (work.is_doubtful or task.done()):
            task.cancel()  # nothing was sent
        try:
            given = await task
        except _Withdrawn:
            return
        except LockError as error:
            if work.is_doubtful:
                _log.warning("not undone, ends by itself: path=%s error=%s", operation.path, error)
            return
        except asyncio.CancelledError:
            return
        try:
            await self.call(operation.undo(given))
        except LockError as error:
            _log.warning("not undone, ends by itself: path=%s error=%s", operation.path, error)

    async def attempt(self, attempt: Attempt, sending: Sending) -> tuple[int, bytes]:
        """Make one attempt. Raises NoAnswer.

        A node that does not know the token is asked once more if the token's file has another one meanwhile.
        """
        send = self._send_probed if attempt.is_probed else self._send
        status, body = await send(attempt, sending)
        if status == UNAUTHENTICATED and not sending.is_withdrawn and self.reads_token_again():
            return await send(attempt, sending)
        return status, body

    def reads_token_again(self) -> bool:
        """Read the token again that a node does not know; return whether there is another one."""
        return self.access is not None and self.access.read_again()

    async def _send(self, attempt: Attempt, sending: Sending) -> tuple[int, bytes]:
        return await self.connections.send(self.nodes[attempt.node], attempt, sending)

    async def _send_probed(self, attempt: Attempt, sending: Sending) -> tuple[int, bytes]:
        """Make a long attempt, and give it up when its node stops answering probes."""
        answering = asyncio.create_task(self._send(attempt, sending))
        tasks: set[asyncio.Task[Any]] = {answering}
        try:
            # Most are answered long before the first probe, which is not even prepared for them.
            await asyncio.wait(tasks, timeout=_exchange.PROBE_S)
            if not answering.done():
                tasks.add(asyncio.create_task(self._until_hung(attempt.node)))
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if not answering.done():
                raise NoAnswer(f"{self.nodes[attempt.node]}: the node hangs")
            return answering.result()
        finally:
            for late in [task for task in tasks if not task.done()]:
                late.cancel()
                await asyncio.wait({late})

    async def _until_hung(self, node: int) -> None:
        """Return when a node has failed to say, several times in a row, that it is alive."""
        failures = 0
        while True:
            try:
                await self._send(_exchange.probe(node), Sending())
                failures = 0
            except NoAnswer:
                failures += 1
            if failures == _exchange.PROBE_FAILURES_MAX:
                return
            await asyncio.sleep(_exchange.PROBE_S)

    def stream(
        self, node: int, path: str, headers: dict[str, str], silence_s: float
    ) -> AsyncGenerator[tuple[int, bytes]]:
        """Ask a node for a stream; yield its status with each piece of its body. Raises NoAnswer."""
        return self.connections.stream(self.nodes[node] + path, headers, silence_s)


class _Withdrawn(Exception):
    """The node has taken back a request that nobody waits for."""


class _Work(Generic[T]):
    """One operation with all its attempts. Abandoned, it only finds out what there is to undo."""

    def __init__(self, transport: Transport, operation: Operation[T], timeout_s: float) -> None:
        self._transport = transport
        self._clock = transport.clock
        self._operation = operation
        self._exchange = Exchange(
            operation,
            nodes_count=len(transport.nodes),
            node=transport.node,
            now_s=transport.clock.now_s(),
            timeout_s=timeout_s,
        )
        self._sending = Sending()
        self._is_abandoned = False

    @property
    def is_doubtful(self) -> bool:
        """Whether it may have had an effect that we do not know."""
        return self._sending.was_sent or self._exchange.may_be_applied

    def abandon(self) -> None:
        """Nobody waits for it any longer: withdraw what waits in a queue, and whatever follows, soon.

        What does not wait is answered soon: nodes take back waits, and not what they have done already.
        """
        self._is_abandoned = True
        if self._sending.was_sent and self._operation.wait_ms:
            asyncio.get_running_loop().call_later(ANSWER_S, self._sending.withdraw)

    async def run(self) -> T:
        """Send it until it has an outcome. Raises LockError, and _Withdrawn once it is abandoned."""
        while True:
            step = await self._try()
            if isinstance(step, Answered):
                self._transport.node = step.node
                return step.value
            self._exchange.skip(await self._clock.pause(step.delay_s))

    async def _try(self) -> Answered[T] | Retry:
        """Make one attempt and tell the exchange how it went."""
        attempt = self._exchange.attempt(self._clock.now_s())
        jitter = random.random()  # noqa: S311 - spreads load, not a secret
        sending = self._sending = Sending()
        withdrawing = None
        if self._is_abandoned and self._operation.wait_ms:
            withdrawing = asyncio.get_running_loop().call_later(WITHDRAW_AFTER_S, sending.withdraw)
        try:
            status, body = await self._transport.attempt(attempt, sending)
        except NoAnswer as error:
            if sending.is_withdrawn:
                raise _Withdrawn from error
            if isinstance(error, NoTrust):
                was_sent = sending.sent_count > error.was_sent
                return self._exchange.on_no_trust(
                    str(error), was_sent=was_sent, now_s=self._clock.now_s(), jitter=jitter
                )
            return self._exchange.on_silence(
                str(error), was_sent=sending.was_sent, now_s=self._clock.now_s(), jitter=jitter
            )
        finally:
            if withdrawing is not None:
                withdrawing.cancel()
        return self._exchange.on_answer(status, body, now_s=self._clock.now_s(), jitter=jitter)


def _hear(task: "asyncio.Task[Any]") -> None:
    """Log what came of something that nobody waits for any longer."""
    if not task.cancelled() and (error := task.exception()) is not None:
        _log.warning("not finished, ends by itself: error=%s", error)
