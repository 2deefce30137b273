"""One operation over HTTP with all its attempts, and what becomes of it when nobody waits any longer.

`_exchange.py` decides over the attempts; `_transport.py` makes each.
"""

import asyncio
import random
from typing import Generic, Protocol, TypeVar

from holdfast._clock import Clock
from holdfast._exchange import Answered, Attempt, Exchange, Retry
from holdfast._operation import Operation
from holdfast._sending import NoAnswer, NoTrust, Sending

T = TypeVar("T")

ANSWER_S = 0.05
"""Seconds that an answer has to arrive before a request that nobody waits for is withdrawn: most are granted
at once, and a grant is better released than lost on its way."""
WITHDRAW_AFTER_S = 0.5
"""Seconds after which a repeated attempt that nobody waits for is withdrawn."""


class Carrier(Protocol):
    """What makes attempts."""

    nodes: tuple[str, ...]
    node: int
    clock: Clock

    async def attempt(self, attempt: Attempt, sending: Sending) -> tuple[int, bytes]:
        """Make one attempt. Raises NoAnswer."""
        ...


class Withdrawn(Exception):
    """The node has taken back a request that nobody waits for."""


class Attempts(Generic[T]):
    """One operation with all its attempts. Abandoned, it only finds out what there is to undo."""

    def __init__(self, carrier: Carrier, operation: Operation[T], timeout_s: float) -> None:
        self._carrier = carrier
        self._clock = carrier.clock
        self._operation = operation
        self._exchange = Exchange(
            operation,
            nodes_count=len(carrier.nodes),
            node=carrier.node,
            now_s=carrier.clock.now_s(),
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

    def stop(self) -> None:
        """Let nothing be sent of what was not: what is about to send it may run before a cancellation."""
        self._sending.is_stopped = True

    async def run(self) -> T:
        """Send it until it has an outcome. Raises LockError, and Withdrawn once it is abandoned."""
        while True:
            step = await self._try()
            if isinstance(step, Answered):
                self._carrier.node = step.node
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
            status, body = await self._carrier.attempt(attempt, sending)
        except NoAnswer as error:
            if sending.is_withdrawn:
                raise Withdrawn from error
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
