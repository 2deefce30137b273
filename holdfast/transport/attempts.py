"""One operation with all its attempts: over HTTP or, of those that wait, over the connection of the waits.

`exchange.py` decides over the attempts; `transport.py` and `wait_link.py` make each.
"""

import asyncio
import logging
import math
import random
from typing import Generic, Protocol, TypeVar

from holdfast import wire
from holdfast.operations import exchange
from holdfast.operations.exchange import Answered, Attempt, Exchange, Retry
from holdfast.operations.operation import Operation
from holdfast.operations.sending import NoAnswer, NoTrust, Sending
from holdfast.stream.wait_link import LinkLost, WaitLink
from holdfast.stream.waits import SharedWaits, Turn
from holdfast.values.clock import REAL, Clock

T = TypeVar("T")

_log = logging.getLogger("holdfast")


class Carrier(Protocol):
    """What makes attempts."""

    nodes: tuple[str, ...]
    node: int
    clock: Clock
    waits: SharedWaits

    async def attempt(self, attempt: Attempt, sending: Sending) -> tuple[int, bytes]:
        """Make one attempt. Raises NoAnswer."""
        ...


class Attempts(Generic[T]):
    """One operation with all its attempts."""

    def __init__(
        self,
        carrier: Carrier,
        operation: Operation[T],
        timeout_s: float,
        turn: Turn | None = None,
        *,
        may_be_applied: bool = False,
    ) -> None:
        """Make them with `carrier`; what has a `turn` asks no earlier than those before it.

        It `may_be_applied` before, if it was asked over a stream.
        """
        self._carrier = carrier
        self._clock = carrier.clock
        self._operation = operation
        self._exchange = Exchange(
            operation,
            nodes_count=len(carrier.nodes),
            urls=carrier.nodes,
            node=carrier.node,
            now_s=carrier.clock.now_s(),
            timeout_s=timeout_s,
            slice_s=exchange.SLICE_S if carrier.clock is REAL else math.inf,
            may_be_applied=may_be_applied,
        )
        self._turn = turn
        self._sending = Sending()

    @property
    def is_doubtful(self) -> bool:
        """Whether it may have had an effect that we do not know."""
        return self._sending.was_sent or self._exchange.may_be_applied

    def stop(self) -> None:
        """Let nothing be sent of what was not: what is about to send it may run before a cancellation."""
        self._sending.is_stopped = True

    async def run(self) -> T:
        """Send it until it has an outcome. Raises LockError."""
        try:
            while True:
                step = await self._try()
                if isinstance(step, Answered):
                    self._note_node(step.node)
                    return step.value
                self._exchange.skip(await self._clock.pause(step.delay_s))
        finally:
            self._is_placed()

    def _note_node(self, node: int) -> None:
        """Ask this node first from now on, since it has answered."""
        carrier, left = self._carrier, self._carrier.node
        if node == left:
            return
        carrier.node = node
        if why := self._exchange.why_left(left):
            _log.info("asking %s from now on; %s", carrier.nodes[node], why)

    async def _try(self) -> Answered[T] | Retry:
        """Make one attempt and tell the exchange how it went."""
        sending = self._sending = Sending()
        waits = self._carrier.waits
        if not (self._operation.stands_in_queue or self._operation.path == wire.WAITS_WITHDRAW):
            return await self._try_over_http(sending, math.inf)
        if self._turn is None:
            link = waits.link(may_begin=self._operation.stands_in_queue)
            return await (
                self._try_on_link(link, sending) if link else self._try_over_http(sending, math.inf)
            )
        await waits.order.first(self._turn)
        link = waits.link()
        if link is not None:
            return await self._try_on_link(link, sending)
        first_slice_s = 0.0 if waits.order.has_others(self._turn) else exchange.FIRST_SLICE_S
        step = await self._try_over_http(sending, first_slice_s)
        if sending.was_sent:
            self._is_placed()
        return step

    def _is_placed(self) -> None:
        """Let requests go on that were asked later for the same: this one stands in its queue, or failed."""
        turn, self._turn = self._turn, None
        if turn is not None:
            self._carrier.waits.order.leave(turn)

    async def _try_on_link(self, link: WaitLink, sending: Sending) -> Answered[T] | Retry:
        """Make an attempt over the connection of the waits."""
        attempt = self._exchange.attempt_on_link(link.node, self._clock.now_s())
        future = link.begin(attempt, sending)
        self._is_placed()
        try:
            async with asyncio.timeout(attempt.give_up_s):
                status, body = await future
        except LinkLost as error:
            if error.silent_s is None and self._operation.names:
                self._turn = self._carrier.waits.order.enter(self._operation.names)
            return self._exchange.on_link_lost(
                str(error), error.silent_s, now_s=self._clock.now_s(), jitter=_jitter()
            )
        except TimeoutError:
            return self._exchange.on_silence(
                "no answer in time", was_sent=True, now_s=self._clock.now_s(), jitter=_jitter()
            )
        return self._exchange.on_answer(status, body, now_s=self._clock.now_s(), jitter=_jitter())

    async def _try_over_http(self, sending: Sending, longest_slice_s: float) -> Answered[T] | Retry:
        attempt = self._exchange.attempt(self._clock.now_s(), longest_slice_s)
        try:
            status, body = await self._carrier.attempt(attempt, sending)
        except NoTrust as error:
            was_sent = sending.sent_count > error.was_sent
            return self._exchange.on_no_trust(
                str(error), was_sent=was_sent, now_s=self._clock.now_s(), jitter=_jitter()
            )
        except NoAnswer as error:
            return self._exchange.on_silence(
                str(error), was_sent=sending.was_sent, now_s=self._clock.now_s(), jitter=_jitter()
            )
        return self._exchange.on_answer(status, body, now_s=self._clock.now_s(), jitter=_jitter())


def _jitter() -> float:
    return random.random()  # noqa: S311 - spreads load, not a secret
