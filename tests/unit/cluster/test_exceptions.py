"""Memory that runs out between any two lines of a node: it stops, and what it told its clients stays true."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random

import pytest

from cluster.commands.outbox import Answer
from cluster.errors import ClusterError, NodeFailed
from cluster.storage.forked_child import Child
from lockstate.machine import LockMachine
from lockstate.words.commands.entries import Command
from lockstate.words.commands.holds import Acquire, Release
from lockstate.words.commands.sessions import OpenSession
from lockstate.words.ids import AttemptId, HoldId, SessionId
from lockstate.words.modes import Mode
from lockstate.words.results import Granted, Released, SessionOpened
from tests.support.planted import Planted, raised_at_line
from tests.unit.cluster.one_group import ALONE, DEADLINE_S, Node, made, until

CODE = (
    "cluster/group.py",
    "cluster/outgoing.py",
    "cluster/assembly.py",
    "cluster/upkeep.py",
    "cluster/peers/leader_watch.py",
    "cluster/rare_proposals.py",
    "cluster/loop.py",
    "cluster/commands/outbox.py",
    "cluster/commands/batcher.py",
    "cluster/commands/waiters.py",
    "cluster/commands/client_requests.py",
    "cluster/commands/expiry.py",
    "cluster/observing/event_log.py",
    "cluster/storage/journal.py",
    "cluster/storage/segment_writer.py",
    "lockstate/machine.py",
    "lockstate/tables/state.py",
    "lockstate/tables/holds.py",
    "lockstate/tables/tickets.py",
    "lockstate/rules/holds/ends.py",
    "lockstate/rules/holds/grants.py",
    "lockstate/rules/holds/waiting.py",
    "lockstate/rules/sessions.py",
    "lockstate/tables/requests.py",
)
LIVES_COUNT = 60
"""How many lines are tried: evenly spread over the life, and others for each of the exceptions."""


class Told:
    """What clients were told, and what they still wait for."""

    def __init__(self) -> None:
        self.opened: set[str] = set()
        self.granted: set[str] = set()
        self.asked_back: set[str] = set()
        self.released: set[str] = set()
        self.not_begun: set[str] = set()
        self.not_released: set[str] = set()
        self.tasks: list[asyncio.Task[None]] = []

    async def ask(self, node: Node, command: Command, subject: str) -> None:
        """Ask for a command, and write down what was answered; anything but an answer is a failure."""
        try:
            answer = await _asked(node, command)
        except ClusterError as error:
            if error.outcome == "not-applied":
                (self.not_released if isinstance(command, Release) else self.not_begun).add(subject)
            return
        match answer.result:
            case SessionOpened():
                self.opened.add(subject)
            case Granted():
                self.granted.add(subject)
            case Released():
                self.released.add(subject)

    def check(self, machine: LockMachine) -> None:
        """Check that all of it is true in the state that came back."""
        state = machine.state
        assert self.opened <= set(state.sessions)
        assert self.granted - self.asked_back <= set(state.holds)
        assert not self.released & set(state.holds)
        assert not self.not_begun & (set(state.sessions) | set(state.holds) | set(state.tickets))
        assert self.not_released & self.granted <= set(state.holds)


async def _asked(node: Node, command: Command) -> Answer:
    requests = node.parts.requests
    if isinstance(command, Acquire):
        return await requests.acquire(command, DEADLINE_S)
    return await requests.submit(command, DEADLINE_S)


async def live(node: Node, told: Told) -> None:
    """Open sessions, acquire, wait, release, read: several clients at once."""

    def ask(command: Command, subject: str) -> None:
        told.tasks.append(asyncio.ensure_future(told.ask(node, command, subject)))

    for number in range(3):
        ask(OpenSession(SessionId(f"s{number}"), 60_000, request_id=f"r{number}"), f"s{number}")
    await asyncio.sleep(0.002)
    for number in range(4):
        hold_id = HoldId(f"h{number}")
        attempt_id = AttemptId(f"a{number}")
        session_id = SessionId(f"s{number % 3}")
        acquire = Acquire(
            f"lock/{number % 2}",
            Mode.EXCLUSIVE,
            hold_id,
            attempt_id,
            session_id,
            wait_ms=60_000 * (number > 1),
        )
        ask(acquire, hold_id)
    await asyncio.sleep(0.002)
    for number in range(2):
        told.asked_back.add(f"h{number}")
        ask(Release(HoldId(f"h{number}")), f"h{number}")
    told.tasks.append(asyncio.ensure_future(_read(node, told)))
    await asyncio.sleep(0.004)


async def _read(node: Node, told: Told) -> None:
    with contextlib.suppress(ClusterError):
        seen = await node.parts.requests.read(lambda machine: set(machine.state.sessions), DEADLINE_S)
        assert told.opened <= seen


@contextlib.asynccontextmanager
async def begun(directory: Path) -> AsyncIterator[Node]:
    """Run a group of one node that leads."""
    async with made(directory, *ALONE) as node:
        node.parts.loop.start()
        await until(lambda: node.parts.replica.may_propose)
        yield node


async def struck(
    directory: Path, number: int, error: type[BaseException], told: Told
) -> tuple[Planted, bool]:
    """Live with an exception at a line; return where it was, and whether the node had failed by then."""
    loop = asyncio.get_running_loop()
    uncaught: list[object] = []
    loop.set_exception_handler(lambda _, context: uncaught.append(context))
    try:
        with contextlib.suppress(NodeFailed, error):
            async with begun(directory) as node:
                with contextlib.suppress(error), raised_at_line(number, CODE, error) as planted:
                    await live(node, told)
                has_failed = not node.parts.is_open
                if not has_failed:
                    # It was raised where a client called, and that client was told.
                    node.parts.loop.fail(NodeFailed("the test ends it"))
                done, pending = await asyncio.wait(told.tasks, timeout=DEADLINE_S)
                assert not pending, f"{planted.where}: a client waits for a node that stopped"
                for task in done:
                    raised = task.exception()
                    assert raised is None or isinstance(raised, error), raised
    finally:
        loop.set_exception_handler(None)
    return planted, has_failed


@pytest.mark.parametrize("error", [MemoryError, ValueError])
async def test_a_node_tells_nothing_untrue_when_memory_runs_out(
    tmp_path: Path,
    error: type[BaseException],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Wherever it happens: nobody waits for ever; a start finds all that was granted, nothing denied."""
    monkeypatch.setattr(Child, "start", lambda *_: pytest.fail("no snapshot is due"))
    caplog.set_level(logging.CRITICAL + 1, "cluster")
    whole, _ = await struck(tmp_path / "whole", 10**9, error, Told())
    assert whole.lines_count > 1000
    random = Random(f"{error}")
    failed = 0
    for life in range(LIVES_COUNT):
        number = int((life + random.random()) * whole.lines_count / LIVES_COUNT) + 1
        told = Told()
        directory = tmp_path / str(life)
        planted, has_failed = await struck(directory, number, error, told)
        failed += has_failed and bool(planted.where)
        async with begun(directory) as node:
            told.check(node.parts.machine)
    assert failed > LIVES_COUNT / 2
