"""Green threads: gevent may patch Python's threads before or after the client is imported."""

import asyncio
import importlib.util
import subprocess
import sys

import pytest

from tests.unit.holdfast.conftest import a_node

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("gevent") is None, reason="needs gevent: pip install gevent"
)
END_S = 60.0

PATCH = "from gevent import monkey\nmonkey.patch_all()\n"
IMPORT = "import sys, holdfast\nclient = holdfast.SyncClient(sys.argv[1])\n"
WORK = """
import gevent, time
inside = most = ticks = 0

def work(number):
    global inside, most
    with client.lock("a"):
        inside += 1
        most = max(most, inside)
        time.sleep(0.01)
        inside -= 1
    return number

def tick():
    global ticks
    while True:
        ticks += 1
        time.sleep(0.001)

gevent.spawn(tick)
working = [gevent.spawn(work, number) for number in range(20)]
gevent.joinall(working, timeout=30, raise_error=True)
assert [each.value for each in working] == list(range(20))
assert most == 1
assert ticks > 20
left = client.lock("left").acquire()
"""


@pytest.mark.parametrize("begin", [IMPORT + PATCH, PATCH + IMPORT], ids=["after", "before"])
async def test_green_threads_share_a_client(begin: str) -> None:
    """Many wait for one lock, which one has at a time; the others run on, and the end releases all."""
    async with a_node() as (served, url):
        done = await asyncio.to_thread(run, begin + WORK, url)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
        assert not served.node.machine.state.holds


def run(script: str, url: str) -> subprocess.CompletedProcess[str]:
    """Run a program to its end, with warnings shown, but for gevent's own."""
    return subprocess.run(
        [sys.executable, "-W", "default", "-W", "ignore:Monkey-patching", "-c", script, url],
        capture_output=True,
        text=True,
        timeout=END_S,
        check=False,
    )
