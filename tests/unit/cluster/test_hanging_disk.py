"""A whole node on a disk that hangs: everything goes on but what was to be stored."""

import asyncio
import threading
import time
from pathlib import Path

from cluster.config import load
from cluster.errors import ClusterError
from cluster.node import Node
from cluster.storage.files import Files
from lockstate.words.commands.sessions import OpenSession
from lockstate.words.ids import SessionId
from lockstate.words.results import SessionOpened

HANG_S = 2.0
GAP_S_MAX = 0.5
"""The longest time, in seconds, for which the event loop may stand still: a heartbeat is late, no more."""
DEADLINE_S = 20.0


class HangingFiles(Files):
    """A real disk whose syncs hang while it is told to."""

    def __init__(self) -> None:
        self.is_free = threading.Event()
        self.is_hanging = False
        self.is_free.set()

    def fdatasync(self, fd: int) -> None:
        """Hang, then sync."""
        self.is_hanging = not self.is_free.is_set()
        assert self.is_free.wait(DEADLINE_S)
        super().fdatasync(fd)

    def hang(self, seconds: float) -> None:
        """Hang for so long from now on."""
        self.is_free.clear()
        threading.Timer(seconds, self.is_free.set).start()


async def longest_gap_s(until: asyncio.Event) -> float:
    """Return for how long the event loop stood still at most, until something has happened."""
    longest_s, last_s = 0.0, time.monotonic()
    while not until.is_set():
        await asyncio.sleep(0.01)
        now_s = time.monotonic()
        longest_s, last_s = max(longest_s, now_s - last_s), now_s
    return longest_s


async def turn() -> None:
    """Let every task that was made have its first turn."""
    for _ in range(10):
        await asyncio.sleep(0)


async def leads(node: Node) -> None:
    """Wait until a node leads and takes commands."""
    async with asyncio.timeout(DEADLINE_S):
        while True:
            try:
                await node.read(lambda machine: machine.revision, 5.0)
            except ClusterError:
                await asyncio.sleep(0.01)
            else:
                return


async def test_a_node_goes_on_while_its_disk_hangs(tmp_path: Path) -> None:
    """A command waits for the disk; the event loop, the node's status and its health do not."""
    files = HangingFiles()
    config = load(["--data-dir", str(tmp_path / "data"), "--http", "127.0.0.1:0"], {})
    node = Node(config, files=files)
    await node.start()
    try:
        await leads(node)
        is_over = asyncio.Event()
        gap = asyncio.create_task(longest_gap_s(is_over))
        await turn()
        files.hang(HANG_S)
        began_s = time.monotonic()
        command = OpenSession(SessionId("session-of-a-test-01"), 60_000)
        task: asyncio.Task[object] = asyncio.create_task(node.submit(command, DEADLINE_S))
        async with asyncio.timeout(DEADLINE_S):
            while not files.is_hanging:  # noqa: ASYNC110 - told by another thread
                await asyncio.sleep(0.01)
        assert node.status().leader == "n1"
        assert not task.done(), "nobody is told what is not stored"
        answer = await task
        is_over.set()
        assert time.monotonic() - began_s > HANG_S * 0.9
        assert await gap < GAP_S_MAX
        assert isinstance(getattr(answer, "result", None), SessionOpened)
    finally:
        await node.stop()
