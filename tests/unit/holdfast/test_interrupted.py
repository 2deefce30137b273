"""Whatever interrupts a client, and wherever: nothing stays held, and nobody stays in a queue."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
import types
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

import holdfast
from holdfast import wire
from holdfast.client import portal
from holdfast.threads import sync_holds
from holdfast.transport import transport
from tests.support.both_clients import WAYS, take
from tests.unit.holdfast.conftest import a_node, sessions_of
from tests.unit.holdfast.scripted import ScriptedNode, answer, granted, problem, released, reset, silence
from tests.unit.holdfast.test_loops_and_forks import exit_code
from tests.unit.http_api.serving import Served

DEADLINE_S = 120
ROOT = Path(__file__).resolve().parents[3]


async def _nothing_left(served: Served) -> None:
    """Wait until nothing is held or waited for, and no session is open."""
    state = served.node.machine.state
    async with asyncio.timeout(DEADLINE_S):
        while state.holds or state.tickets or sessions_of(served):  # noqa: ASYNC110 - no event to await
            await asyncio.sleep(0.002)


async def _block(client: holdfast.Client) -> None:
    async with client.lock("a"):
        await asyncio.sleep(0)


async def _short_block(client: holdfast.Client) -> None:
    async with client.lock("a", ttl=5):
        await asyncio.sleep(0)


async def _plain(client: holdfast.Client) -> None:
    hold = await client.acquire("a", wait=None, renew=False)
    await hold.release()


async def _permits(client: holdfast.Client) -> None:
    async with client.semaphore("a", limit=1):
        await asyncio.sleep(0)


async def _session(client: holdfast.Client) -> None:
    async with client.session() as session, client.locks("a", "b", session=session):
        await asyncio.sleep(0)


async def _election(client: holdfast.Client) -> None:
    async with client.election("a"):
        await asyncio.sleep(0)


async def _transaction(client: holdfast.Client) -> None:
    async with client.transaction() as transaction:
        await transaction.acquire("a")
        await transaction.acquire("b", "c")
        await transaction.write(holdfast.CellPut("a", "1"))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("work", [_block, _plain, _permits, _session, _election, _transaction])
async def test_a_cancellation_at_any_point_leaves_nothing_held(
    work: Callable[[holdfast.Client], Coroutine[Any, Any, None]], way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task is cancelled after each number of turns of the loop, until it ends before that."""
    monkeypatch.setattr(transport, "ANSWER_S", 30.0)  # all is granted at once, on a slow machine, too
    async with a_node() as (served, url), holdfast.Client(url) as client:
        await take(client, way)
        await work(client)
        turns = 0
        while True:
            task = asyncio.create_task(work(client))
            for _ in range(turns):
                await asyncio.sleep(0)
            if task.done():
                break
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await _nothing_left(served)
            turns += 1
        await task
        assert turns > 5


@pytest.mark.parametrize("way", WAYS)
async def test_a_cancelled_wait_leaves_the_queue(way: str) -> None:
    """A task that waits for a lock is cancelled at any point before, while and after the lock gets free."""
    async with a_node() as (served, url), holdfast.Client(url) as first, holdfast.Client(url) as second:
        await take(second, way)
        for turns in range(80):
            hold = await first.acquire("a")
            waiting = asyncio.create_task(_short_block(second))
            releasing = asyncio.create_task(hold.release())
            for _ in range(turns):
                await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.wait({waiting})
            await releasing
            await _nothing_left(served)


async def test_a_lost_answer_is_looked_for_when_the_caller_is_gone() -> None:
    """An acquire that may have been applied is asked for again after a cancellation, and released."""
    again = asyncio.Event()

    async def second(request: web.Request) -> web.StreamResponse:
        await again.wait()
        return await granted()(request)

    async with ScriptedNode(reset, second, released) as node, holdfast.Client(node.url) as client:
        waiting = asyncio.create_task(client.acquire("a/b", wait=0, renew=False))
        async with asyncio.timeout(DEADLINE_S):
            while not node.seen:  # noqa: ASYNC110 - no event to await
                await asyncio.sleep(0.002)
            waiting.cancel()
            again.set()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            await client.close()
        assert node.seen[-1].path == "/v1/locks/release"
        assert node.seen[0].body == node.seen[1].body


@pytest.mark.parametrize("is_known", [True, False])
async def test_a_wait_is_withdrawn_when_the_caller_is_gone(*, is_known: bool) -> None:
    """Also one that had not arrived when it was withdrawn for the first time; then its answer is let go."""
    told = [answer(withdrawn=True, revision=1)]
    if not is_known:
        told.insert(0, answer(withdrawn=False, revision=1))
    async with ScriptedNode(silence, *told) as node, holdfast.Client(node.url, owner="me") as client:
        waiting = asyncio.create_task(client.acquire("a/b", wait=None, renew=False))
        async with asyncio.timeout(DEADLINE_S):
            while not node.seen:  # noqa: ASYNC110 - no event to await
                await asyncio.sleep(0.002)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
        asked, *withdrawn = node.seen
        assert [request.path for request in withdrawn] == [wire.WAITS_WITHDRAW] * len(told)
        assert withdrawn[0].fields == {"request_id": asked.fields["request_id"], "owner": "me"}


async def test_a_grant_that_comes_too_late_is_released() -> None:
    """When a late grant cannot be renewed it is given back, and the caller gets no hold."""

    async def late(request: web.Request) -> web.StreamResponse:
        await asyncio.sleep(0.1)
        return await granted(expires_in_ms=60)(request)

    script = (late, problem("internal"), released)
    async with ScriptedNode(*script) as node, holdfast.Client(node.url) as client:
        with pytest.raises(holdfast.OutcomeUnknown):
            await client.acquire("a/b", ttl=0.06, wait=5, renew=False)
        assert [request.path for request in node.seen] == [
            "/v1/locks/acquire",
            "/v1/locks/renew",
            "/v1/locks/release",
        ]


async def test_a_hold_that_is_tied_to_a_task_is_not_renewed_behind_its_end() -> None:
    """Nobody works under it any longer: it is lost at the next renewal, and expires."""
    async with a_node() as (served, url), holdfast.Client(url) as client:
        work = asyncio.create_task(asyncio.sleep(0))
        hold = await client.lock("a", ttl=6, tied_to=work).acquire()
        async with asyncio.timeout(DEADLINE_S):
            await hold.lost.wait()
        assert hold.reason in {"owner-gone", "expired"}
        await _nothing_left(served)


# -- threads ----------------------------------------------------------------------------------------------

TRACED = {portal.__file__, sync_holds.__file__}
"""Where a thread may be interrupted: what runs in the thread of the caller."""


class Interrupter:
    """Raises KeyboardInterrupt before the n-th line that a thread runs of the traced files."""

    def __init__(self, at: int) -> None:
        self._left = at
        self.has_raised = False

    def __call__(self, frame: types.FrameType, event: str, _: object) -> Any:
        """Trace: count lines, and raise once."""
        if frame.f_code.co_filename not in TRACED:
            return None
        if event == "line" and not self.has_raised:
            self._left -= 1
            if self._left < 0:
                self.has_raised = True
                raise KeyboardInterrupt
        return self


@pytest.mark.parametrize("way", WAYS)
async def test_an_interrupt_at_any_line_leaves_nothing_held(way: str) -> None:
    """A thread that enters a lock is interrupted before each line that it runs for it."""
    async with a_node() as (served, url):
        loop = asyncio.get_running_loop()
        client = holdfast.SyncClient(url)
        await asyncio.to_thread(client.inspect, "a")  # the thread of the loop runs from here on
        await asyncio.to_thread(portal.Call(lambda: take(client._twin, way)).run)

        def enter(interrupter: Interrupter) -> None:
            lock = client.lock("a")
            sys.settrace(interrupter)
            try:
                lock.__enter__()
            finally:
                sys.settrace(None)
            lock.__exit__(None, None, None)

        with ThreadPoolExecutor(max_workers=1) as thread:
            for at in range(1000):
                interrupter = Interrupter(at)
                try:
                    await loop.run_in_executor(thread, enter, interrupter)
                except KeyboardInterrupt:
                    await _nothing_left(served)
                if not interrupter.has_raised:
                    break
            assert at > 10
            await _nothing_left(served)
            await loop.run_in_executor(thread, client.close)


async def test_a_real_interrupt_ends_a_wait() -> None:
    """Ctrl-C while a program waits for a lock takes it out of the queue, and out of its sleep."""
    script = (
        "import holdfast, sys\n"
        "with holdfast.SyncClient({url!r}) as client:\n"
        "    try:\n"
        "        client.lock('a').acquire()\n"
        "    except KeyboardInterrupt:\n"
        "        print('interrupted')\n"
    )
    async with a_node() as (served, url), holdfast.Client(url) as holder:
        hold = await holder.acquire("a")
        process = _python(script.format(url=url))
        state = served.node.machine.state
        async with asyncio.timeout(DEADLINE_S):
            while not state.tickets:  # noqa: ASYNC110 - no event to await
                await asyncio.sleep(0.01)
            process.send_signal(signal.SIGINT)
            out, _ = await asyncio.to_thread(process.communicate)
        assert (process.returncode, out) == (0, "interrupted\n")
        await hold.release()
        await _nothing_left(served)


async def test_the_end_of_a_process_releases_what_it_kept() -> None:
    """A program that ends, with its renewals running, gives back what it did not release."""
    script = (
        "import holdfast\n"
        "client = holdfast.SyncClient({url!r})\n"
        "hold = client.lock('a').acquire()\n"
        "session = client.session().open()\n"
        "print(hold.is_valid)\n"
    )
    async with a_node() as (served, url):
        process = _python(script.format(url=url))
        async with asyncio.timeout(DEADLINE_S):
            out, err = await asyncio.to_thread(process.communicate)
        assert (process.returncode, out) == (0, "True\n")
        assert "Traceback" not in err
        await _nothing_left(served)


def _python(script: str) -> "subprocess.Popen[str]":
    """Start a program."""
    return subprocess.Popen(
        [sys.executable, "-c", script],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )


async def test_a_hold_that_is_tied_to_a_thread_is_not_renewed_behind_its_end() -> None:
    """Nobody works under it any longer: it is lost at the next renewal, and expires."""
    async with a_node() as (served, url):
        client = holdfast.SyncClient(url)
        work = threading.Thread(target=len, args=("",))
        work.start()
        hold = await asyncio.to_thread(client.acquire, "a", ttl=6, tied_to=work)
        assert await asyncio.to_thread(hold.lost.wait, DEADLINE_S)
        assert hold.reason in {"owner-gone", "expired"}
        await _nothing_left(served)
        await asyncio.to_thread(client.close)


async def test_a_call_from_its_own_loop_is_refused() -> None:
    """What runs on the loop of the clients cannot wait for it: it is told so, and does not hang."""
    client = holdfast.SyncClient("127.0.0.1:1")
    refused: list[BaseException] = []

    async def wait() -> None:
        try:
            client.cluster()
        except RuntimeError as error:
            refused.append(error)

    await asyncio.to_thread(portal.Call(wait).run)
    assert "wait for itself" in str(refused[0])


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
async def test_a_forked_child_works_on_without_its_parents_holds() -> None:
    """In the child the hold is not valid and cannot be released; the client goes on with its own loop."""
    async with a_node() as (served, url):
        client = holdfast.SyncClient(url)
        hold = await asyncio.to_thread(client.acquire, "a", wait=0)
        parents = hold.token

        def check() -> None:
            assert (hold.is_valid, hold.reason) == (False, "forked")
            with pytest.raises(holdfast.LeaseLost):
                hold.release()
            hold.__exit__(SystemExit, SystemExit(), None)  # a child that ends within the block
            with client.lock("b") as own:
                assert own.token > parents
            client.close()

        assert await exit_code(check) == 0
        assert hold.is_valid
        assert [holder.token for holder in (await asyncio.to_thread(client.inspect, "a")).holders] == [
            parents
        ]
        await asyncio.to_thread(client.close)
        await _nothing_left(served)


async def test_what_fails_before_it_begins_is_told_to_its_thread() -> None:
    """A call whose coroutine cannot even be made raises, and its thread does not wait for ever."""

    def fail() -> Coroutine[Any, Any, None]:
        raise TypeError("made of nothing")

    async with asyncio.timeout(DEADLINE_S):
        with pytest.raises(TypeError, match="made of nothing"):
            await asyncio.to_thread(portal.Call(fail).run)
