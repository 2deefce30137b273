"""How a client asks: one node or one after the other, with deadlines, and every word in the history."""

import asyncio
from random import Random
from typing import Any, Final
from zlib import crc32

from cluster.errors import ClusterError
from cluster.node import Answer, Node
from lockstate.words.commands.entries import Command
from lockstate.words.commands.holds import MayWait
from lockstate.words.commands.sessions import KeepAlive
from lockstate.words.commands.streams import Numbered
from lockstate.words.ids import AttemptId, HoldId
from lockstate.words.results import Result
from lockstate.words.settings import NamespaceSettings
from tests.simulation.checks.turns import Kind
from tests.simulation.workload.call_transport import (
    CallTransport,
    Channel,
    ConnectionLostError,
    NotReachedError,
    PendingCall,
)
from tests.simulation.workload.history import Call, History, Query
from tests.simulation.workload.owned import Owned
from tests.simulation.world.event_loop import NodeLoop
from tests.support.vocabulary import another_attempt

BACK_OFF_S: Final = (0.02, 0.5)
SLACK_S: Final = 0.2
"""How long a client waits beyond the time that it gave the node."""
USUAL_CHANCE: Final = 0.5
"""How many calls give a node the longest time."""
REQUESTS_CHANCE: Final = 0.8
"""How many commands carry a request id."""
PRINCIPALS: Final = ("", "ann", "bob", "eve")
"""Who clients are: "" is somebody whom the nodes do not know."""
HURRY_CHANCE: Final = 0.15
"""How many requests that may wait are soon asked again elsewhere, while a node still works on them."""
HURRY_S: Final = (0.05, 1.5)
WAIT_ALLOWED_S: Final = 3_600.0
"""A node keeps the wait of a stream until its client has left."""


class Caller:
    """Asks for one client. `timeout_s` is what it gives a node, from and to."""

    def __init__(
        self,
        loop: NodeLoop,
        transport: CallTransport,
        node_ids: list[str],
        history: History,
        *,
        timeout_s: tuple[float, float],
        random: Random,
    ) -> None:
        self.node_ids = node_ids
        self._loop = loop
        self._transport = transport
        self._history = history
        self._timeout_range_s = timeout_s
        self._random = random
        self.principal = PRINCIPALS[crc32(loop.name.encode()) % len(PRINCIPALS)]
        """Who the client is, as far as the nodes know it; "" if they do not."""
        self._ids = 0

    @property
    def namespaces(self) -> dict[str, NamespaceSettings]:
        """Return what all clients know of namespaces, which may have changed."""
        return self._history.namespaces

    @property
    def owned(self) -> Owned:
        """Return what all clients know to belong to somebody."""
        return self._history.owned

    async def insist(self, command: Command, patience_s: float = 10.0) -> tuple[int, Result | None]:
        """Ask node after node until there is an outcome; return when the answered attempt left, and it."""
        deadline_s = self._loop.time() + patience_s
        may_repeat = bool(getattr(command, "request_id", "")) or isinstance(command, KeepAlive)
        back_off_s = BACK_OFF_S[0]
        while True:
            listens_s = self._random.uniform(*HURRY_S) if self._hurries(command) else None
            asked_us, result = await self.attempt(self._random.choice(self.node_ids), command, listens_s)
            if result is not None or self._loop.time() > deadline_s or not may_repeat:
                return asked_us, result
            await asyncio.sleep(back_off_s * (0.5 + self._random.random()))
            back_off_s = min(2 * back_off_s, BACK_OFF_S[1])
            if isinstance(command, MayWait):
                command = self.again(command)

    def _hurries(self, command: Command) -> bool:
        is_repeatable = isinstance(command, MayWait) and command.request_id
        return bool(is_repeatable) and self._random.random() < HURRY_CHANCE

    async def attempt(
        self, node_id: str, command: Command, listens_s: float | None = None
    ) -> tuple[int, Result | None]:
        """Ask one node once; None if there is no outcome, or none within `listens_s`."""
        timeout_s = self._timeout_s()

        async def work(node: Node) -> Any:
            if isinstance(command, MayWait):
                return await node.acquire(command, timeout_s, self.principal)
            return await node.submit(command, timeout_s, self.principal)

        wait_s = command.wait_ms / 1000 if isinstance(command, MayWait) else 0.0
        asked_us = self._loop.local_us()
        number = self._history.call(self._loop.name, node_id, command, self._loop.now_us, self.principal)
        kind: Kind = "wait" if isinstance(command, MayWait) else "command"
        is_waiting = isinstance(command, MayWait)
        allowed_s = wait_s + 2 * timeout_s if is_waiting else timeout_s
        waits_for = getattr(command, "ticket_id", "") or getattr(command, "hold_id", "") if is_waiting else ""
        asked = self._transport.ask(self._loop, node_id, work, allowed_s, kind, waits_for=waits_for)
        answer = await self._answer(number, asked, listens_s or wait_s + 2 * timeout_s + SLACK_S)
        if answer is None:
            return asked_us, None
        self._history.reply(number, self._loop.now_us, answer.result, answer.revision)
        if self.principal:
            self._history.owned.note(self.principal, command, answer.result)
        return asked_us, answer.result

    async def attempt_frame(
        self, node_id: str, frame: Numbered, channel: Channel
    ) -> tuple[int, Call, Answer | None]:
        """Send one frame over a connection; return when it left, what was asked, and the node's answer.

        Waits of its numbers are futures of the node's process: only that may look at them.
        """
        timeout_s = self._timeout_s()

        async def work(node: Node) -> Answer:
            # As the gateway does: of a frame whose session is theirs nobody says who asks.
            is_theirs = self.principal and node.machine.belongs_to(frame.session_id, self.principal)
            answer = await node.submit(frame, timeout_s, "" if is_theirs else self.principal)
            for wait in (answer.waits or {}).values():
                wait.add_done_callback(_look_at)
            return answer

        asked_us = self._loop.local_us()
        number = self._history.call(self._loop.name, node_id, frame, self._loop.now_us, self.principal)
        call = self._history.calls[number]
        asked = self._transport.ask(self._loop, node_id, work, timeout_s, "command", channel=channel)
        answer = await self._answer(number, asked, timeout_s + SLACK_S)
        if answer is not None:
            self._history.reply(number, self._loop.now_us, answer.result, answer.revision)
        return asked_us, call, answer

    async def end_of_wait(
        self, call: Call, number: int, waits_for: HoldId, wait: "asyncio.Future[Answer]", within_s: float
    ) -> Result | None:
        """Return how the wait of a number ended that its node told to be queued; None if that got lost."""

        async def work(_node: Node) -> Answer:
            if wait.get_loop() is not asyncio.get_running_loop():
                raise ConnectionLostError(call.node_id)
            return await wait

        asked = self._transport.ask(self._loop, call.node_id, work, WAIT_ALLOWED_S, waits_for=waits_for)
        try:
            async with asyncio.timeout(within_s):
                ended = await asked.future
        except (ClusterError, NotReachedError, ConnectionLostError):
            return None
        except TimeoutError:
            self._transport.cancel(asked)
            return None
        self._history.ended(call, number, ended.result, ended.revision, self._loop.now_us)
        result: Result = ended.result
        return result

    async def _answer(self, number: int, asked: PendingCall, within_s: float) -> Answer | None:
        """Return the answer to a call, None if there is none: the history is told why."""
        try:
            async with asyncio.timeout(within_s):
                answer: Answer = await asked.future
        except ClusterError as error:
            outcome: Any = error.outcome
            self._history.failed(number, self._loop.now_us, error.code, outcome)
        except NotReachedError:
            self._history.failed(number, self._loop.now_us, "refused", "not-applied")
        except ConnectionLostError:
            self._history.failed(number, self._loop.now_us, "connection-lost", "unknown")
        except (TimeoutError, asyncio.CancelledError) as error:
            self._hang_up(number, asked)
            if isinstance(error, asyncio.CancelledError):
                raise
        else:
            return answer
        return None

    def _hang_up(self, number: int, asked: PendingCall) -> None:
        self._history.gone(number, self._loop.now_us)
        self._transport.cancel(asked)

    async def read(self, query: Query, node_id: str = "") -> Any:
        """Ask a node, any if none is named, for a linearizable read; return what it shows, or None."""
        node_id, timeout_s = node_id or self._random.choice(self.node_ids), self._timeout_s()

        async def work(node: Node) -> Any:
            return await node.read(lambda machine: (query.ask(machine), machine.revision), timeout_s)

        number = self._history.call_read(self._loop.name, node_id, query, self._loop.now_us)
        asked = self._transport.ask(self._loop, node_id, work, timeout_s, "read")
        try:
            async with asyncio.timeout(timeout_s + SLACK_S):
                value, revision = await asked.future
        except ClusterError as error:
            self._history.end_read(number, self._loop.now_us, error.code)
        except (TimeoutError, NotReachedError, ConnectionLostError):
            self._history.end_read(number, self._loop.now_us)
            self._transport.cancel(asked)
        else:
            self._history.reply_read(number, self._loop.now_us, value, revision)
            return value
        return None

    def again(self, command: MayWait) -> MayWait:
        """Return another attempt of the same request, as each call of the API makes one."""
        return another_attempt(command, lambda _field: self.new_id())

    def new_id(self) -> str:
        """Return an id that nobody else makes."""
        self._ids += 1
        return f"{self._loop.name}-{self._ids}"

    def new_hold_id(self) -> HoldId:
        """Return an id for a new hold, or for the ticket of a conversion."""
        return HoldId(self.new_id())

    def new_attempt_id(self) -> AttemptId:
        """Return an id for a new attempt."""
        return AttemptId(self.new_id())

    def request_id(self) -> str:
        """Return a request id, or none."""
        return self.new_id() if self._random.random() < REQUESTS_CHANCE else ""

    def _timeout_s(self) -> float:
        # Most programs always give the same time: their reads may share a barrier.
        low_s, high_s = self._timeout_range_s
        return high_s if self._random.random() < USUAL_CHANCE else self._random.uniform(low_s, high_s)


def _look_at(wait: "asyncio.Future[Answer]") -> None:
    """Look at a failure: the client may have gone."""
    if not wait.cancelled():
        wait.exception()
