"""What stands between clients and nodes: calls and answers that travel, get lost, and find nobody."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final

from cluster.errors import NoLeader, OutcomeUnknown, Overloaded
from cluster.node import Node
from tests.simulation.checks.all_checkers import Checkers
from tests.simulation.checks.turns import Kind
from tests.simulation.world.event_loop import NodeLoop
from tests.simulation.world.machine import Machine, Process
from tests.simulation.world.network import Network

COUNTED_S: Final = 1.0
"""Calls that have less time may fail because they are many."""
Work = Callable[[Node], Coroutine[Any, Any, Any]]
"""What a call does in the process of its node."""


class NotReachedError(Exception):
    """Nobody listens there: the call had no effect."""


class ConnectionLostError(Exception):
    """The connection broke while the answer was awaited."""


class Channel:
    """A connection: calls over it arrive in the order in which they leave."""

    def __init__(self) -> None:
        self.arrives_us = 0


class PendingCall:
    """One call under way. `future` is the client's: it gets the answer, an exception, or nothing ever."""

    def __init__(self, client: NodeLoop, node_id: str, work: Work, kind: Kind, allowed_s: float) -> None:
        self.client = client
        self.node_id = node_id
        self.work = work
        self.kind = kind
        self.allowed_s = allowed_s
        self.waits_for = ""
        self.channel: Channel | None = None
        self.future: asyncio.Future[Any] = client.create_future()
        self.task: asyncio.Task[Any] | None = None
        self.process: Process | None = None
        self.is_cancelled = False


class CallTransport:
    """Carries calls between clients and the processes of nodes."""

    def __init__(self, network: Network, machines: dict[str, Machine], checkers: Checkers) -> None:
        self._network = network
        self._machines = machines
        self._turns, self._liveness, self._told = checkers.turns, checkers.liveness, checkers.told
        self._counts_from_us: int | None = None
        self._total = self._unknown = 0
        self._under_way: dict[int, PendingCall] = {}
        self._count = 0

    def ask(
        self,
        client: NodeLoop,
        node_id: str,
        work: Work,
        allowed_s: float,
        kind: Kind = "other",
        *,
        waits_for: str = "",
        channel: Channel | None = None,
    ) -> PendingCall:
        """Call a node, which is to end the call within `allowed_s`, and may wait for this there.

        Calls without a `channel` may arrive in any order.
        """
        asked = PendingCall(client, node_id, work, kind, allowed_s)
        asked.waits_for = waits_for
        asked.channel = channel
        self._to_node(asked, self._arrive)
        return asked

    def cancel(self, asked: PendingCall) -> None:
        """Hang up: the node notices a little later, if it can."""
        asked.is_cancelled = True
        self._to_node(asked, self._hung_up)

    def _to_node(self, asked: PendingCall, then: Callable[[PendingCall], None]) -> None:
        """Let something happen at the node, if anything gets there."""
        network, client = self._network, asked.client
        if not network.path(client.name, asked.node_id).is_cut:
            when_us = network.scheduler.now_us + network.delay(client.name, asked.node_id)
            if asked.channel is not None:
                when_us = asked.channel.arrives_us = max(when_us, asked.channel.arrives_us)
            network.scheduler.at(when_us, then, asked)

    def _hung_up(self, asked: PendingCall) -> None:
        process = asked.process
        if process is not None and asked.task is not None and not process.loop.is_dead:
            process.loop.call_soon(asked.task.cancel)

    def _arrive(self, asked: PendingCall) -> None:
        process = self._machines[asked.node_id].process
        if asked.node_id in self._network.down:
            return
        if process is None or not process.is_serving:
            self._answer(asked, self._network.scheduler.now_us, error=NotReachedError(asked.node_id))
            return
        asked.process = process
        self._count += 1
        self._under_way[self._count] = asked
        process.loop.call_soon(self._begin, process, asked, self._count)

    def _begin(self, process: Process, asked: PendingCall, number: int) -> None:
        """Start to work on it, in the node's process."""
        task = asked.task = process.serve(asked.work)
        began_us = process.loop.now_us
        self._liveness.begun(number, process.name, int(asked.allowed_s * 1_000_000), began_us)

        def done(task: "asyncio.Task[Any]") -> None:
            self._under_way.pop(number, None)
            self._liveness.ended(number)
            self._look_at_time(process, asked, number, began_us)
            if task.cancelled() and asked.kind == "other" and asked.waits_for and not process.loop.is_dead:
                # The client of a stream has listened in vain.
                self._told.failed(asked.node_id, asked.waits_for, process.loop.now_us)
            if not task.cancelled() and not process.loop.is_dead:
                error = task.exception()
                self._take_turn(process, asked, number, began_us, error)
                self._count_outcome(asked, began_us, error)
                if asked.kind == "wait" and isinstance(error, OutcomeUnknown) and asked.waits_for:
                    self._told.failed(asked.node_id, asked.waits_for, process.loop.now_us)
                result = task.result() if error is None else None
                self._answer(asked, process.loop.now_us, result=result, error=error)

        task.add_done_callback(done)
        if asked.is_cancelled:
            task.cancel()

    def _look_at_time(self, process: Process, asked: PendingCall, number: int, began_us: int) -> None:
        """Compare when a command ended, however it did, with the time that it was given."""
        if asked.kind == "command" and process.loop.stood_us < began_us and not process.loop.is_dead:
            late_us = process.loop.now_us - began_us - int(asked.allowed_s * 1_000_000)
            self._liveness.ended_late(number, process.name, late_us)

    def begin_count(self, from_us: int) -> None:
        """Count calls that begin from then on, and how many of them have no certain outcome."""
        self._counts_from_us, self._total, self._unknown = from_us, 0, 0

    def end_count(self) -> tuple[int, int]:
        """Return how many had none, and of how many."""
        self._counts_from_us = None
        return self._unknown, self._total

    def _count_outcome(self, asked: PendingCall, began_us: int, error: BaseException | None) -> None:
        is_counted = self._counts_from_us is not None and began_us >= self._counts_from_us
        if is_counted and asked.kind in ("command", "read") and asked.allowed_s >= COUNTED_S:
            self._total += 1
            self._unknown += isinstance(error, NoLeader | OutcomeUnknown)

    def _take_turn(
        self, process: Process, asked: PendingCall, number: int, began_us: int, error: BaseException | None
    ) -> None:
        """Tell whether a call came into effect. `number` says when it began."""
        now_us = process.loop.now_us
        is_over = now_us - began_us >= int(asked.allowed_s * 1_000_000)
        if error is None:
            self._turns.answered(process.name, number, asked.kind, now_us)
        elif isinstance(error, NoLeader | OutcomeUnknown) or (isinstance(error, Overloaded) and is_over):
            self._turns.failed(process.name, number, asked.kind, now_us)

    def _answer(
        self, asked: PendingCall, at_us: int, *, result: Any = None, error: BaseException | None = None
    ) -> None:
        network, client = self._network, asked.client
        if not network.path(asked.node_id, client.name).is_cut:
            when_us = at_us + network.delay(asked.node_id, client.name)
            network.scheduler.at(when_us, client.call_soon, _settle, asked.future, result, error)

    def process_ended(self, machine: Machine, *, is_silent: bool) -> None:
        """Break the calls that a process had not answered; after a loss of power nobody tells the clients."""
        self._turns.ended(machine.process_name)
        for number, asked in list(self._under_way.items()):
            if asked.node_id == machine.node_id and asked.process is not machine.process:
                del self._under_way[number]
                self._liveness.ended(number)
                if not is_silent:
                    now_us = self._network.scheduler.now_us
                    self._answer(asked, now_us, error=ConnectionLostError(asked.node_id))


def _settle(future: "asyncio.Future[Any]", result: Any, error: BaseException | None) -> None:
    if future.done():
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(result)
