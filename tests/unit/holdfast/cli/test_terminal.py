"""`holdfast run` on a terminal: the command reads it, and what is typed reaches the command."""

import asyncio
import contextlib
import fcntl
import os
import pty
import signal
import sys
import termios
from collections.abc import AsyncIterator

from tests.support.processes import processes_with, wait_until
from tests.unit.holdfast.cli.test_run import stat_of
from tests.unit.holdfast.scripted import ScriptedNode, granted, released

DEADLINE_S = 30
HOLDFAST = f"{sys.executable} -m holdfast run a/b --"


class Screen:
    """A terminal whose shell is a script: what it shows, and a keyboard."""

    def __init__(self, descriptor: int, process: asyncio.subprocess.Process) -> None:
        self._descriptor = descriptor
        self._process = process
        self._shown = asyncio.Event()
        self.text = ""
        asyncio.get_running_loop().add_reader(descriptor, self._read)

    def _read(self) -> None:
        try:
            self.text += os.read(self._descriptor, 4096).decode()
        except OSError:  # nobody has the other side open any more
            asyncio.get_running_loop().remove_reader(self._descriptor)
        self._shown.set()

    def type(self, text: str) -> None:
        """Type on the keyboard."""
        os.write(self._descriptor, text.encode())

    async def shows(self, text: str, times: int = 1) -> None:
        """Wait until a text has been shown this often."""
        try:
            async with asyncio.timeout(DEADLINE_S):
                while self.text.count(text) < times:
                    await self._shown.wait()
                    self._shown.clear()
        except TimeoutError:
            raise AssertionError(f"{text!r} was not shown in {self.text!r}") from None

    async def ends(self) -> int:
        """Wait for the end of the script and return its exit code."""
        async with asyncio.timeout(DEADLINE_S):
            return await self._process.wait()

    def foreground(self) -> int:
        """Return the group in the foreground."""
        return os.tcgetpgrp(self._descriptor)


@contextlib.asynccontextmanager
async def terminal(script: str) -> AsyncIterator[tuple[Screen, ScriptedNode]]:
    """Run a script of bash, with job control as at a prompt, on a terminal of its own, next to a node."""
    ours, theirs = pty.openpty()

    def take_terminal() -> None:
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    async with ScriptedNode(granted(), released) as node:
        process = await asyncio.create_subprocess_exec(
            "bash",
            "--norc",
            "-mc",
            script,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
            preexec_fn=take_terminal,
            env=os.environ | {"HOLDFAST_NODES": node.url},
        )
        os.close(theirs)
        screen = Screen(ours, process)
        try:
            yield screen, node
        finally:
            asyncio.get_running_loop().remove_reader(ours)
            os.close(ours)  # hangs up: every process of the terminal gets SIGHUP
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()


async def test_the_command_reads_the_terminal() -> None:
    """What is typed arrives, the command ends as it wants, and the shell has its terminal again."""
    command = (
        f"{HOLDFAST} sh -c 'echo ready; read line; echo got:$line; exit 3'; echo code:$?; read l; echo l:$l"
    )
    async with terminal(command) as (screen, node):
        await screen.shows("ready")
        screen.type("hello\n")
        await screen.shows("got:hello")
        await screen.shows("code:3")
        screen.type("again\n")
        await screen.shows("l:again")
        assert await screen.ends() == 0
        assert node.seen[-1].path == "/v1/locks/release"


async def test_the_command_reads_the_terminal_though_its_input_is_another() -> None:
    """A password is asked for on /dev/tty, wherever the input comes from and the output goes to."""
    inner = "echo ready >/dev/tty; read line </dev/tty; echo got:$line"
    async with terminal(f"{HOLDFAST} sh -c '{inner}' </dev/null | cat") as (screen, _):
        await screen.shows("ready")
        screen.type("secret\n")
        await screen.shows("got:secret")
        assert await screen.ends() == 0


async def test_interrupting_ends_the_command() -> None:
    """Control-C is the command's: it ends by SIGINT, and the lock is released."""
    # Not a shell: one that is about to start its last command may lose the signal.
    command = "import signal; signal.signal(2, signal.SIG_DFL); print('ready', flush=True); signal.pause()"
    async with terminal(f'{HOLDFAST} {sys.executable} -c "{command}"; echo code:$?') as (screen, node):
        await screen.shows("ready")
        screen.type("\x03")
        await screen.shows("code:130")
        assert node.seen[-1].path == "/v1/locks/release"


async def test_suspending_is_refused() -> None:
    """Control-Z does not stop a command that has the lock, nor the holdfast that renews it."""
    async with terminal(f"{HOLDFAST} sh -c 'echo ready; read line; echo got:$line'") as (screen, _):
        await screen.shows("ready")
        screen.type("\x1a")
        await screen.shows("cannot be suspended")
        screen.type("hello\n")
        await screen.shows("got:hello")
        assert await screen.ends() == 0


async def test_a_command_in_the_background_waits_for_the_terminal() -> None:
    """It is stopped when it reads, and goes on when the shell brings it to the foreground."""
    script = f"{HOLDFAST} sh -c 'echo pid:$$:; read line; echo got:$line' & read l; fg; echo code:$?"
    async with terminal(script) as (screen, _):
        await screen.shows("waits for the terminal")
        pid = int(screen.text.partition("pid:")[2].partition(":")[0])
        assert stat_of(pid)[0] == "T"
        screen.type("bring it here\n")
        async with asyncio.timeout(DEADLINE_S):
            while screen.foreground() != int(stat_of(pid)[2]):  # noqa: ASYNC110 - no event to await
                await asyncio.sleep(0.01)
        screen.type("hello\n")
        await screen.shows("got:hello")
        await screen.shows("code:0")


async def test_a_killed_holdfast_ends_a_command_with_the_terminal() -> None:
    """Kill -9 of holdfast ends the command that has the terminal, and the shell goes on."""
    command = f"{HOLDFAST} sh -c 'echo pids:$PPID:$$:; read line'; echo code:$?; read l; echo l:$l"
    async with terminal(command) as (screen, _):
        await screen.shows(":", times=3)
        holdfast, reader = (int(pid) for pid in screen.text.partition("pids:")[2].split(":")[:2])
        os.kill(holdfast, signal.SIGKILL)
        await screen.shows("code:137")
        wait_until(lambda: reader not in processes_with("read line"), "the command has ended")
        screen.type("again\n")
        await screen.shows("l:again")
        assert await screen.ends() == 0
