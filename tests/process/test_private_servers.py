"""The servers that tests start for themselves: nobody else gets in, and nothing of them stays behind."""

import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from scripts.lib import ports
from tests.support import servers
from tests.support.processes import wait_until
from tests.unit.holdfast.cli.test_run import has_ended

pytestmark = pytest.mark.process

each_server = pytest.mark.parametrize("run", [servers.postgresql, servers.redis_server])
Run = Callable[[], AbstractContextManager[servers.Server]]

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = """
import sys
from scripts.lib import guardian
from tests.support import servers
with guardian.guarded(), getattr(servers, sys.argv[1])() as server:
    print(server.pid, server.port, server.folder, flush=True)
    sys.stdin.read()
"""


def listens(port: int) -> bool:
    """Whether somebody listens on a port."""
    with socket.socket() as probe:
        return probe.connect_ex((ports.HOST, port)) == 0


@each_server
def test_nothing_stays_behind(run: Run) -> None:
    """After the block, also one that fails, process and folder are gone, and the port is free."""
    with pytest.raises(ZeroDivisionError), run() as server:  # noqa: PT012 - a block is what is tested
        assert listens(server.port)
        assert server.folder.exists()
        raise ZeroDivisionError
    assert has_ended(server.pid)
    assert not listens(server.port)
    assert not server.folder.exists()


@each_server
def test_a_killed_run_leaves_no_server(run: Run) -> None:
    """When the program that started a server is killed, all of the same holds soon after."""
    with run():
        pass  # the test is skipped here when there is no such server
    program = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, run.__name__],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert program.stdout is not None
        pid, port, folder = program.stdout.readline().split()
        assert listens(int(port))
    finally:
        program.kill()
        program.communicate()
    wait_until(lambda: has_ended(int(pid)), "the server has ended")
    wait_until(lambda: not listens(int(port)), "the port is free")
    wait_until(lambda: not Path(folder).exists(), "the folder is gone")


@each_server
def test_the_password_is_asked_for(run: Run) -> None:
    """Another user of the machine, who does not know the password, does not get in."""
    with run() as server:
        password = server.url.partition("@")[0].rpartition(":")[2]
        assert server.answers(server.url)
        assert not server.answers(server.url.replace(password, "guessed"))


def test_the_last_words_are_shown(tmp_path: Path) -> None:
    """A server that ends instead of answering fails the test with what it printed."""
    argv = [sys.executable, "-c", "raise SystemExit('the port is in use')"]
    with pytest.raises(AssertionError, match="the port is in use"):
        servers.Server(argv, tmp_path, 1, "", lambda _: False).start()
