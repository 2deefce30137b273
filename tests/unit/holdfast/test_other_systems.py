"""The client where Linux is missing: Windows has no fork, few signals, and clocks under other names.

A program that runs here is made to see such a system: what Windows does not have is taken away before the
client is imported, and after what of Python itself needs it on Linux.
"""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.holdfast.conftest import a_node

ROOT = Path(__file__).parents[3]
END_S = 120.0
"""Seconds that such a program may take on a busy machine."""

WITHOUT = """
import asyncio, concurrent.futures.thread, logging, os, signal, ssl, subprocess, sys, tempfile, time
MISSING = {
    os: "fork forkpty register_at_fork getpgrp setpgid killpg setsid getuid geteuid getppid tcgetpgrp waitid"
    " O_NOCTTY O_CLOEXEC WNOHANG",
    time: "clock_gettime clock_gettime_ns CLOCK_REALTIME CLOCK_MONOTONIC CLOCK_MONOTONIC_RAW CLOCK_BOOTTIME",
    signal: "SIGHUP SIGQUIT SIGUSR1 SIGUSR2 SIGALRM SIGPIPE SIGTSTP SIGTTIN SIGTTOU SIGCONT SIGKILL SIGCHLD"
    " SIGSTOP SIG_BLOCK SIG_UNBLOCK SIG_SETMASK pthread_sigmask sigwait sigwaitinfo setitimer alarm",
}
for module, names in MISSING.items():
    for name in names.split():
        if hasattr(module, name):
            delattr(module, name)
for name in "fcntl termios tty pty pwd grp resource".split():
    sys.modules[name] = None
os.environ["USERNAME"] = "worker"
"""

USES = """
import holdfast
url = sys.argv[1]
client = holdfast.SyncClient(url)
with client.lock("a") as hold:
    print(client.inspect("a").state, hold.remaining > 20)
events = client.watch()
events.begin()
for number in range(40):  # enough for a stream
    client.lock(f"b/{number}").acquire().release()
print(next(events).event)
left = client.lock("left").acquire()

async def main():
    async with holdfast.Client(url) as other:
        async with other.lock("c"), other.session():
            return (await other.inspect("c")).state
print(asyncio.run(main()))
"""


async def test_the_client_works() -> None:
    """Both clients take locks, watch and use a stream; at the end of the process all is released."""
    async with a_node() as (served, url):
        done = await asyncio.to_thread(run, WITHOUT + USES, url)
        assert (done.returncode, done.stdout, done.stderr) == (0, "held True\ngranted\nheld\n", "")
        assert not served.node.machine.state.holds


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["acquire", "a", "--ttl", "5"], 0, "TOKEN"),
        (["list"], 0, "NAME"),
        (["top", "--once"], 0, "waiting"),
        (["run", "a", "--", "true"], 1, "process group"),
    ],
)
async def test_the_command_line_works(words: list[str], code: int, told: str) -> None:
    """Commands do what they do elsewhere, but for those that run a command: they say why not."""
    async with a_node() as (_, url):
        script = WITHOUT + "\nfrom holdfast.cli.main import main\nmain(sys.argv[2:])"
        done = await asyncio.to_thread(run, script, url, *words)
        assert bool(done.returncode) == bool(code), done.stderr
        assert told in done.stdout + done.stderr


@pytest.mark.slow
def test_the_client_s_own_tests_pass() -> None:
    """Tests of locks, leases and closing, against nodes in the same process, pass there as well."""
    files = ("test_lock.py", "test_closing.py", "test_keeping.py", "test_hold.py", "test_transaction.py")
    # Nodes run on Linux only, and ask git once which build they are.
    node = "import sys, tests.unit.http_api.serving\nfrom cluster.build import this_build\nthis_build()\n"
    script = f"""{node}{WITHOUT}
import pytest
assert "holdfast.client.client" not in sys.modules
options = "-q", "--assert=plain", "-p", "no:cacheprovider", "-W", "ignore::pytest.PytestAssertRewriteWarning"
sys.exit(pytest.main([*options, *sys.argv[2:]]))
"""
    done = run(script, "", *(str(Path(__file__).with_name(name)) for name in files))
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr
    assert "passed" in done.stdout


def run(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a program to its end."""
    environment = {**os.environ, "HOLDFAST_NODES": arguments[0]}
    return subprocess.run(
        [sys.executable, "-c", script, *arguments],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=END_S,
        check=False,
    )
