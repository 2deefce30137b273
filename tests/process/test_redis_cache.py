"""docs/examples/redis_cache.py on a real Redis: one computes, the others wait, or take the stale value."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import redis

import holdfast
from docs.examples import redis_cache
from docs.examples.redis_cache import cached
from scripts.lib import ports
from scripts.local_cluster import LocalCluster
from tests.process.cache_reader import COUNTER, KEY
from tests.process.nodes import urls
from tests.support import servers
from tests.support.processes import wait_until
from tests.unit.holdfast.cli.test_run import stat_of

pytestmark = pytest.mark.process

ROOT = Path(__file__).resolve().parents[2]
PROCESSES_COUNT = 4
READERS_COUNT = 20
SOON_S = 3.5
"""Seconds within which a client says that Redis is down: one attempt of a second, on a loaded machine."""


@pytest.fixture(scope="module")
def server() -> Iterator[servers.Server]:
    """Run a Redis for these tests."""
    with servers.redis_server() as server:
        yield server


@pytest.fixture
def store(server: servers.Server) -> Iterator[redis.Redis]:
    """Return an empty Redis."""
    with redis_cache.connect(server.url) as store:
        store.flushall()
        yield store


@pytest.fixture
def client(cluster: LocalCluster) -> Iterator[holdfast.SyncClient]:
    """Return a client of three nodes."""
    with holdfast.SyncClient(urls(cluster)) as client:
        yield client


@contextlib.contextmanager
def reader(
    cluster: LocalCluster, server: servers.Server, threads: int, how_long: str
) -> Iterator[subprocess.Popen[str]]:
    """Run a process that reads when it gets a line; it is ready for that."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.process.cache_reader", str(threads), how_long],
        cwd=ROOT,
        env=os.environ | {"HOLDFAST_NODES": ",".join(urls(cluster)), "REDIS_URL": server.url},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process
    finally:
        process.kill()
        process.communicate()


def begin(process: subprocess.Popen[str]) -> None:
    """Let a process read."""
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def never() -> str:
    """Compute where nobody should."""
    raise AssertionError("this was there, or somebody else's to compute")


def test_twenty_readers_in_four_processes_compute_once(
    cluster: LocalCluster, server: servers.Server, store: redis.Redis
) -> None:
    """Of all that miss the same value at once one computes, and all get what it has computed."""
    threads = READERS_COUNT // PROCESSES_COUNT
    with contextlib.ExitStack() as stack:
        readers = [stack.enter_context(reader(cluster, server, threads, "1")) for _ in range(PROCESSES_COUNT)]
        for process in readers:
            begin(process)
        printed = [line for process in readers for line in process.communicate(timeout=60)[0].splitlines()]
    values = [line for line in printed if line != "computing"]
    assert (len(values), len(set(values))) == (READERS_COUNT, 1)
    assert store.get(COUNTER) == "1"


def test_another_computes_when_the_first_is_killed(
    cluster: LocalCluster, server: servers.Server, store: redis.Redis, client: holdfast.SyncClient
) -> None:
    """A process that is killed while it computes is replaced, when its lease ends, by one that waits."""
    with reader(cluster, server, 1, "600") as computing, ThreadPoolExecutor() as pool:
        begin(computing)
        assert computing.stdout is not None
        assert computing.stdout.readline() == "computing\n"
        computed: list[str] = []

        def compute() -> str:
            computed.append("mine")
            return computed[-1]

        waiting = [pool.submit(cached, client, store, KEY, compute) for _ in range(3)]
        wait_until(lambda: len(client.inspect(("cache", KEY)).queue) == 3, "three wait")
        assert computed == []
        computing.kill()
        assert [each.result(60) for each in waiting] == ["mine"] * 3
    assert computed == ["mine"]
    assert store.get(COUNTER) == "1"


def test_a_paused_computation_does_not_overwrite_a_newer_one(
    cluster: LocalCluster, server: servers.Server, store: redis.Redis, client: holdfast.SyncClient
) -> None:
    """What a process computed that slept through its lease is its own answer, but is not stored."""
    with reader(cluster, server, 1, "pause") as paused:
        begin(paused)
        wait_until(lambda: stat_of(paused.pid)[:1] == ["T"], "the first is paused while it computes")
        assert cached(client, store, KEY, lambda: "newer") == "newer"
        os.kill(paused.pid, signal.SIGCONT)
        printed, _ = paused.communicate(timeout=60)
        assert printed.splitlines()[-1] == f"by {paused.pid}"
    assert cached(client, store, KEY, never) == "newer"


def test_the_stale_value_is_served_while_one_computes(
    store: redis.Redis, client: holdfast.SyncClient
) -> None:
    """Whoever finds a stale value that somebody computes anew gets it at once; then the new one is there."""
    assert cached(client, store, KEY, lambda: "old", 0) == "old"
    begun, go_on = threading.Event(), threading.Event()

    def compute() -> str:
        begun.set()
        assert go_on.wait(60)
        return "new"

    with ThreadPoolExecutor() as pool:
        computing = pool.submit(cached, client, store, KEY, compute, 0)
        assert begun.wait(60)
        assert [cached(client, store, KEY, never, 0) for _ in range(3)] == ["old"] * 3
        go_on.set()
        assert computing.result(60) == "new"
    assert cached(client, store, KEY, never) == "new"


def test_a_restart_of_redis_costs_one_computation(
    server: servers.Server, store: redis.Redis, client: holdfast.SyncClient
) -> None:
    """A cache that lost its values with its server works on, over the client that it had."""
    assert cached(client, store, KEY, lambda: "before") == "before"
    server.restart(signal.SIGKILL)
    assert cached(client, store, KEY, lambda: "after") == "after"
    assert cached(client, store, KEY, never) == "after"


def test_an_empty_value_is_a_value(store: redis.Redis, client: holdfast.SyncClient) -> None:
    """A text without characters is kept as any other."""
    assert [cached(client, store, KEY, lambda: ""), cached(client, store, KEY, never)] == ["", ""]


def test_a_failed_computation_is_anothers_turn(store: redis.Redis, client: holdfast.SyncClient) -> None:
    """The error of a computation comes to whoever asked; the lock is free for the next one at once."""
    with pytest.raises(AssertionError, match="somebody else's"):
        cached(client, store, KEY, never)
    assert client.inspect(("cache", KEY)).state == "free"
    assert cached(client, store, KEY, lambda: "well") == "well"


def test_redis_that_is_down_is_said_at_once(client: holdfast.SyncClient) -> None:
    """Without a server nothing is computed, and the error names its address."""
    (port,) = ports.reserve(1)
    with redis_cache.connect(f"redis://{ports.HOST}:{port}/0") as store:
        began_s = time.monotonic()
        with pytest.raises(redis.ConnectionError, match=f"{ports.HOST}:{port}"):
            cached(client, store, KEY, never)
        assert time.monotonic() - began_s < SOON_S


def test_redis_that_hangs_is_said_soon(
    server: servers.Server, store: redis.Redis, client: holdfast.SyncClient
) -> None:
    """A server that does not answer is not waited for."""
    os.kill(server.pid, signal.SIGSTOP)
    try:
        began_s = time.monotonic()
        with pytest.raises(redis.TimeoutError):
            cached(client, store, KEY, never)
        assert time.monotonic() - began_s < SOON_S
    finally:
        os.kill(server.pid, signal.SIGCONT)


def test_redis_that_dies_meanwhile_leaves_no_lock(
    server: servers.Server, store: redis.Redis, client: holdfast.SyncClient
) -> None:
    """When the computed value cannot be stored that is an error, and the lock is free again."""

    def compute() -> str:
        server.end(signal.SIGKILL)
        return "lost"

    try:
        with pytest.raises(redis.ConnectionError):
            cached(client, store, KEY, compute)
    finally:
        server.start()
    assert client.inspect(("cache", KEY)).state == "free"


def test_the_program_says_that_redis_is_down(cluster: LocalCluster) -> None:
    """The example ends with a sentence that names the address, and no traceback."""
    (port,) = ports.reserve(1)
    done = subprocess.run(
        [sys.executable, "-m", "docs.examples.redis_cache"],
        cwd=ROOT,
        env=os.environ
        | {
            "HOLDFAST_NODES": ",".join(urls(cluster)),
            "REDIS_URL": f"redis://{ports.HOST}:{port}/0",
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout.startswith("Redis does not answer: ")
    assert f"{ports.HOST}:{port}" in done.stdout
