"""What `run`, `acquire` and `elect` say on standard error while they wait."""

import asyncio
import os
import pty

import holdfast
from tests.unit.holdfast.cli.test_commands import DEADLINE_S, start, until
from tests.unit.holdfast.conftest import a_node

CLEAR = "\r\x1b[K"


async def test_on_a_terminal_one_line_is_updated_and_cleared() -> None:
    """It says who holds the lock and our place; when the command begins, nothing of it is left."""
    async with a_node() as (_, url), holdfast.Client(url, owner="ann") as client:
        hold = await client.lock("x").acquire()
        ours, theirs = pty.openpty()
        os.set_blocking(ours, False)
        running = await start(
            url, "run", "x", "--wait", "1m", "--", "echo", "begun", stderr=theirs, stdout=theirs
        )
        os.close(theirs)
        drawn = ""

        def has_drawn(text: str) -> bool:
            nonlocal drawn
            try:
                drawn += os.read(ours, 65536).decode()
            except (BlockingIOError, OSError):
                """Nothing is there now; or never again, once nobody has the other side."""
            return text in drawn

        await until(
            lambda: has_drawn(f"{CLEAR}holdfast: waiting for 'x': held by ann, 1st in the queue, 2 s")
        )
        await hold.release()
        await until(lambda: has_drawn("begun"))
        assert drawn.split("\n", maxsplit=1)[0].endswith(f"{CLEAR}begun\r")
        assert drawn.count("\n") == 1
        async with asyncio.timeout(DEADLINE_S):
            assert await running.wait() == 0
        os.close(ours)


async def test_elsewhere_nothing_is_said_unless_it_is_asked_for() -> None:
    """With -v there is a line for each change; a log stays clean without it."""
    async with a_node() as (served, url), holdfast.Client(url, owner="ann") as client:
        hold = await client.election("x").acquire()
        told = await start(url, "-v", "elect", "x", "--owner", "bob", "--", "true")
        silent = await start(url, "elect", "x", "--owner", "eve", "--", "true")
        assert told.stderr is not None
        async with asyncio.timeout(DEADLINE_S):
            first = (await told.stderr.readline()).decode()
            assert first.startswith("holdfast: waiting for 'x': held by ann, ")
            await until(lambda: len(served.node.machine.state.tickets) == 2)
            await hold.release()
            _, err = await silent.communicate()
            assert (silent.returncode, err) == (0, b"")
            await told.communicate()
        assert told.returncode == 0
