"""One operation over HTTP with all its attempts.

`_exchange.py` decides over the attempts; `_transport.py` makes each.
"""

import logging
import math
import random
from typing import Generic, Protocol, TypeVar

from holdfast import _exchange
from holdfast._clock import REAL, Clock
from holdfast._exchange import Answered, Attempt, Exchange, Retry
from holdfast._operation import Operation
from holdfast._sending import NoAnswer, NoTrust, Sending

T = TypeVar("T")

_log = logging.getLogger("holdfast")


class Carrier(Protocol):
    """What makes attempts."""

    nodes: tuple[str, ...]
    node: int
    clock: Clock

    async def attempt(self, attempt: Attempt, sending: Sending) -> tuple[int, bytes]:
        """Make one attempt. Raises NoAnswer."""
        ...


class Attempts(Generic[T]):
    """One operation with all its attempts."""

    def __init__(self, carrier: Carrier, operation: Operation[T], timeout_s: float) -> None:
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
            slice_s=_exchange.SLICE_S if carrier.clock is REAL else math.inf,
        )
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
        while True:
            step = await self._try()
            if isinstance(step, Answered):
                self._note_node(step.node)
                return step.value
            self._exchange.skip(await self._clock.pause(step.delay_s))

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
        attempt = self._exchange.attempt(self._clock.now_s())
        jitter = random.random()  # noqa: S311 - spreads load, not a secret
        sending = self._sending = Sending()
        try:
            status, body = await self._carrier.attempt(attempt, sending)
        except NoAnswer as error:
            if isinstance(error, NoTrust):
                was_sent = sending.sent_count > error.was_sent
                return self._exchange.on_no_trust(
                    str(error), was_sent=was_sent, now_s=self._clock.now_s(), jitter=jitter
                )
            return self._exchange.on_silence(
                str(error), was_sent=sending.was_sent, now_s=self._clock.now_s(), jitter=jitter
            )
        return self._exchange.on_answer(status, body, now_s=self._clock.now_s(), jitter=jitter)
