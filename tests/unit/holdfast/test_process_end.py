"""The end of a process: it comes soon and in silence, whatever still refers to a client, and leaves no hold.

What is finalised late (`__del__`, generators, hooks that were registered before the import) finds everything
released, and must neither start a thread nor wait.
"""

import asyncio
import contextlib
import sys
import time

import pytest

from tests.unit.holdfast.conftest import a_node

END_S = 20.0
"""Seconds that a process may take, with the start of Python on a busy machine: a hang is longer."""

RELEASES: dict[str, str] = {
    "__del__ releases": """
class Job:
    def __init__(self):
        self.hold = client.lock("a").acquire()
    def __del__(self):
        self.hold.release()
job = Job()
""",
    "__del__ of a cycle releases": """
class Job:
    def __init__(self):
        self.hold = client.lock("a").acquire()
        self.myself = self
    def __del__(self):
        self.hold.release()
job = Job()
import json
json.job = job  # a module that is cleared late
""",
    "__del__ closes the client": """
class Repository:
    def __init__(self):
        self.client = holdfast.SyncClient(url)
        self.hold = self.client.lock("a").acquire()
    def __del__(self):
        self.client.close()
repository = Repository()
""",
    "__del__ closes a client that was never used": """
class Repository:
    def __init__(self):
        self.client = holdfast.SyncClient(url)
    def __del__(self):
        self.client.close()
repository = Repository()
""",
    "__del__ closes a session": """
class Worker:
    def __init__(self):
        self.session = client.session().open()
        self.hold = client.lock("a", session=self.session).acquire()
    def __del__(self):
        self.session.close()
worker = Worker()
""",
    "a generator in a lock": """
def guarded():
    with client.lock("a") as hold:
        yield hold
generator = guarded()
next(generator)
""",
    "a generator in a session": """
def guarded():
    with client.session() as session, client.lock("a", session=session) as hold:
        yield hold
generator = guarded()
next(generator)
""",
    "a generator in a transaction": """
def guarded():
    with client.transaction() as transaction:
        yield transaction.acquire("a")
generator = guarded()
next(generator)
""",
    "a generator that leads": """
def guarded():
    with client.election("a") as leadership:
        yield leadership
generator = guarded()
next(generator)
""",
    "an exit stack": """
import contextlib
stack = contextlib.ExitStack()
stack.enter_context(client)
stack.enter_context(client.lock("a"))
""",
    "weakref.finalize": """
import weakref
class Job: pass
job = Job()
hold = client.lock("a").acquire()
weakref.finalize(job, hold.release)
""",
    "weakref.finalize before the import": """
hold = client.lock("a").acquire()
early.append(hold.release)
""",
    "a log handler": """
hold = client.lock("a").acquire()
class Handler(logging.Handler):
    def close(self):
        client.close()
        super().close()
logging.getLogger("job").addHandler(Handler())
""",
    "a hook that closes what was never used": """
import atexit
atexit.register(client.close)
early.append(client.close)
""",
    "a forked worker": """
import multiprocessing
def work():
    global worker, hold
    worker = holdfast.SyncClient(url)
    hold = worker.lock("a").acquire()
process = multiprocessing.get_context("fork").Process(target=work)
process.start()
process.join()
assert process.exitcode == 0
""",
    "observe": """
iterator = client.election("a").observe()
assert next(iterator) is None
""",
    "list": """
hold, other = client.lock("a").acquire(), client.lock("b").acquire()
iterator = client.list()
assert next(iterator).name == "a"
""",
    "cells": """
client.cells.put("a", "1")
client.cells.put("b", "1")
iterator = client.cells.list()
assert next(iterator).key == "a"
""",
    "watch": """
watch = client.watch()
watch.begin()
""",
    "threads that wait": """
import threading
hold = client.lock("a").acquire()
ready = threading.Barrier(3)
def wait():
    ready.wait()
    client.lock("a").acquire()
def watch():
    watching = client.watch()
    watching.begin()
    ready.wait()
    for event in watching: pass
for each in (wait, watch):
    threading.Thread(target=each, daemon=True).start()
ready.wait()
""",
    "a thread that is at work": """
import threading
ready = threading.Event()
def work():
    while True:
        with client.lock("a"):
            ready.set()
threading.Thread(target=work, daemon=True).start()
ready.wait()
""",
}
"""What a program does before it ends, with an unfinished business in each."""

BEGIN = """
import logging, sys, atexit  # logging's own hook is registered before ours, and so it runs behind
early = []
@atexit.register
def run_early():
    for call in early:
        call()
import holdfast
url = sys.argv[1]
client = holdfast.SyncClient(url)
"""


@pytest.mark.parametrize("what", RELEASES)
async def test_a_process_ends_in_silence(what: str) -> None:
    """It ends by itself with code 0, says nothing, and what it held is free at once."""
    async with a_node() as (served, url):
        code, out, err = await run(BEGIN + RELEASES[what] + "\nprint('end', flush=True)", url)
        assert (code, out, err) == (0, "end\n", "")
        assert not served.node.machine.state.holds


async def test_a_node_is_found_by_its_name_until_the_end() -> None:
    """What has to be released over a new connection, to a node known by its name, is released."""
    script = """
from holdfast.client import portal
client = holdfast.SyncClient(url.replace("127.0.0.1", "localhost"))
hold = client.lock("a").acquire()
async def leave_alone_for_long():
    connector = client._twin._transport.connections._pools[""].http.connector
    connector.clear_dns_cache()
    for idle in connector._conns.values():
        for protocol, _ in idle:
            protocol.close()
    connector._conns.clear()
portal.Call(leave_alone_for_long).run()
"""
    async with a_node() as (served, url):
        assert await run(BEGIN + script, url) == (0, "", "")
        assert not served.node.machine.state.holds


LATE: dict[str, tuple[str, str]] = {
    "a call": ("client.inspect('a')", "this client is closed"),
    "an acquire": ("client.lock('a').acquire()", "this client is closed"),
    "a renewal": ("hold.renew()", "this client is closed"),
    "a new client": ("holdfast.SyncClient(url)", "it is too late to make a client"),
    "a watch": ("next(watch)", "this client is closed"),
}


@pytest.mark.parametrize("what", LATE)
async def test_what_comes_too_late_is_told(what: str) -> None:
    """A call after all was released raises RuntimeError with a reason, and waits for nothing."""
    call, reason = LATE[what]
    script = f"""
hold, watch = client.lock("b").acquire(), client.watch()
@early.append
def late():
    try:
        {call}
    except RuntimeError as error:
        print(error)
"""
    async with a_node() as (served, url):
        code, out, err = await run(BEGIN + script, url)
        assert (code, err) == (0, "")
        assert reason in out
        assert not served.node.machine.state.holds


async def test_a_process_ends_without_its_cluster() -> None:
    """What cannot be released any more is left to its lease: one line says so, and the process ends."""
    script = """
hold = client.lock("a").acquire()
print("held", flush=True)
sys.stdin.readline()
early.append(hold.release)
"""
    async with contextlib.AsyncExitStack() as node:
        _, url = await node.enter_async_context(a_node())
        process = await start(BEGIN + script, url)
        assert process.stdin is not None
        assert process.stdout is not None
        assert await process.stdout.readline() == b"held\n"
        await node.aclose()
        began_s = time.monotonic()
        _, err = await asyncio.wait_for(process.communicate(b"\n"), END_S)
        assert time.monotonic() - began_s < END_S / 2
        assert process.returncode == 0
        assert err.count(b"\n") == 1
        assert b"not all is released, the rest expires by itself" in err


async def run(script: str, url: str) -> tuple[int | None, str, str]:
    """Run a program to its end; return its exit code and what it has said."""
    process = await start(script, url)
    try:
        out, err = await asyncio.wait_for(process.communicate(), END_S)
    finally:
        if process.returncode is None:
            process.kill()
    return process.returncode, out.decode(), err.decode()


async def start(script: str, url: str) -> asyncio.subprocess.Process:
    """Start a program, with warnings shown."""
    pipe = asyncio.subprocess.PIPE
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-W", "always", "-c", script, url), stdin=pipe, stdout=pipe, stderr=pipe
    )
