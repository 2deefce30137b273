"""Locks of unmodified clients of Redis on three nodes: taken, waited for, extended, lost and given back."""

import asyncio
import concurrent.futures
import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest
import redis
import redis.asyncio
from redis.backoff import NoBackoff
from redis.exceptions import LockError, LockNotOwnedError, RedisError
from redis.retry import Retry

from scripts.lib import ports
from tests.process.nodes import bring_all_back
from tests.process.redis_nodes import RedisCluster
from tests.support.processes import wait_until

pytestmark = pytest.mark.process
MANUAL: Final = Path(__file__).parents[2] / "docs" / "faces.md"


def token_of(client: redis.Redis, name: str, value: str | bytes) -> int | None:
    """Return the fencing token of a lock that has this value."""
    ask: Any = client.execute_command
    token: int | None = ask("HF.TOKEN", name, value)
    return token


@pytest.mark.parametrize("protocol", [2, 3])
def test_the_lock_of_redis_py(nodes: RedisCluster, protocol: int) -> None:
    """Every method of it, through one node, and what others see of it through another one."""
    with nodes.client("n1", protocol=protocol) as one, nodes.client("n2", protocol=protocol) as two:
        name = f"report-{protocol}"
        lock, other = one.lock(name, timeout=30), two.lock(name, timeout=30)
        assert lock.acquire()
        assert (lock.locked(), lock.owned(), other.locked(), other.owned()) == (True, True, True, False)
        assert not other.acquire(blocking=False)
        assert not other.acquire(blocking_timeout=0.2)
        assert lock.extend(10)
        assert 35_000 < one.pttl(name) <= 40_000
        assert lock.extend(5, replace_ttl=True)
        assert one.pttl(name) <= 5_000
        assert lock.reacquire()
        assert 25_000 < two.pttl(name) <= 30_000
        assert token_of(two, name, lock.local.token)
        lock.release()
        assert other.acquire(blocking=False)
        with pytest.raises(LockError):
            lock.release()
        other.release()


def placed(text: str, nodes: RedisCluster) -> str:
    """Return a program of the manual with the addresses of these nodes."""
    for node_id in ("n1", "n2", "n3"):
        text = text.replace(f'"{node_id}.example.com", 6379', f'"{ports.HOST}", {nodes.port(node_id)}')
    return text.replace("locks.example.com", ports.HOST).replace("6379", str(nodes.port("n1")))


def test_the_programs_of_the_manual(nodes: RedisCluster) -> None:
    """They work as they stand there, with the address of a node."""
    programs = re.findall(r"^```python\n(.*?)^```$", MANUAL.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    assert len(programs) == 9
    with nodes.client("n1") as client:
        names: dict[str, Any] = {"redis": redis, "client": client}
        for program in programs:
            exec(placed(program, nodes), names)  # noqa: S102 - it is ours
        assert names["token"] > 0
        assert redis.from_url(names["CACHES"]["locks"]["LOCATION"]).ping()
        assert names["allowed"] == 1
        assert client.get("report") is None
        assert (names["taken"], names["length"]) == (True, 1)


def test_a_pipeline_is_one_step(nodes: RedisCluster) -> None:
    """With MULTI, which is redis-py's default: locks, strings and lists together; without, one by one."""
    with nodes.client("n1") as client, nodes.client("n3") as other:
        piped = client.pipeline().set("piped", "v", nx=True, px=30_000).incr("count").rpush("list", "a")
        assert piped.execute() == [True, 1, 1]
        assert token_of(other, "piped", "v")
        assert other.get("count") == b"1"
        with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
            client.pipeline().incr("count").incr("list").execute()
        assert other.get("count") == b"2", "as in Redis: an error of one command is one answer"
        piped = client.pipeline(transaction=False).delete("piped", "list").get("count")
        assert piped.execute() == [2, b"2"]


@pytest.mark.parametrize("protocol", [2, 3])
def test_a_watched_key_that_changed(nodes: RedisCluster, protocol: int) -> None:
    """`transaction` of redis-py tries again until nobody came between, whatever node others use."""
    with nodes.client("n1", protocol=protocol) as one, nodes.client("n2", protocol=protocol) as two:
        one.set("watched", "0")
        turns: list[int] = []

        def double_and_add(pipe: Any) -> None:
            number = int(pipe.get("watched"))
            if not turns:
                two.incr("watched")
            turns.append(number)
            pipe.multi()
            pipe.set("watched", number * 2 + 5)

        assert one.transaction(double_and_add, "watched") == [True]
        assert turns == [0, 1]
        assert two.get("watched") == b"7"
        with one.pipeline() as pipe:
            pipe.watch("watched")
            two.delete("watched")
            pipe.multi()
            pipe.set("watched", "late")
            with pytest.raises(redis.WatchError):
                pipe.execute()
        assert two.get("watched") is None


def test_counters_lose_nothing(nodes: RedisCluster) -> None:
    """Many clients on all nodes add to one number at a time, which keeps its time to live."""
    with nodes.client("n1") as client:
        client.set("counter", "0", ex=600)

        def add(number: int) -> None:
            with nodes.client(f"n{number % 3 + 1}") as one:
                for _ in range(20):
                    one.incr("counter")

        began_s = time.monotonic()
        with ThreadPoolExecutor(9) as pool:
            list(pool.map(add, range(9)))
        print("seconds for 180 INCR by 9 clients:", round(time.monotonic() - began_s, 2))
        assert client.get("counter") == b"180"
        assert client.ttl("counter") <= 600 - int(time.monotonic() - began_s)


def test_workers_of_a_queue(nodes: RedisCluster) -> None:
    """Each element of a list is taken once, by clients that wait for it on any node."""
    taken: list[bytes] = []

    def work(node_id: str) -> None:
        with nodes.client(node_id) as client:
            while (found := client.blpop(["first", "jobs"], timeout=30)) and found[1] != b"end":
                taken.append(found[1])

    with ThreadPoolExecutor(3) as pool, nodes.client("n2") as client:
        working = [pool.submit(work, node_id) for node_id in ("n1", "n2", "n3")]
        for number in range(30):
            client.rpush("jobs", f"job-{number}")
        for _ in working:
            client.rpush("jobs", "end")
        for each in working:
            each.result()
        assert sorted(taken) == sorted([b"job-%d" % number for number in range(30)])
        assert client.blpop("jobs", timeout=0.1) is None


def test_keys_are_listed(nodes: RedisCluster) -> None:
    """`scan_iter` finds cells and locks, each once, and what has another prefix is not among them."""
    with nodes.client("n1", db=3) as client:
        for number in range(25):
            client.set(f"s:{number}", "v")
            assert client.set(f"l:{number}", "v", nx=True, px=60_000)
        assert sorted(client.scan_iter(count=7)) == sorted(client.keys())
        assert len(client.keys("l:*")) == len(set(client.scan_iter("s:?", count=3))) + 15 == 25
        assert list(client.scan_iter(_type="list")) == []
        client.delete(*client.keys())
        assert client.keys() == []


def test_a_lost_lock_is_told(nodes: RedisCluster) -> None:
    """Whoever comes too late, or was robbed, hears that the lock is not its own; also with a new holder."""
    with nodes.client("n3") as one, nodes.client("n1") as two:
        lock = one.lock("short", timeout=0.2)
        assert lock.acquire()
        successor = two.lock("short", timeout=30)
        assert successor.acquire(blocking_timeout=10)
        token = lock.local.token
        for late in (lambda: lock.extend(1), lock.reacquire, lock.release):
            lock.local.token = token
            with pytest.raises(LockNotOwnedError):
                late()
        assert two.delete("short") == 1
        with pytest.raises(LockNotOwnedError):
            successor.release()


async def test_the_lock_of_redis_asyncio(nodes: RedisCluster) -> None:
    """Tasks that wait for each other get it one after the other."""
    client = redis.asyncio.Redis(host=ports.HOST, port=nodes.port("n2"))
    inside = done = 0

    async def work() -> None:
        nonlocal inside, done
        async with client.lock("tasks", timeout=30, sleep=0.01) as lock:
            inside += 1
            assert inside == 1
            assert await lock.owned()
            assert await lock.extend(5, replace_ttl=True)
            inside -= 1
            done += 1

    await asyncio.gather(*[work() for _ in range(10)])
    await client.aclose()
    assert done == 10


def test_a_lock_without_a_time(nodes: RedisCluster) -> None:
    """Only where holds may have no deadline."""
    with nodes.client("n1", db=9) as allowed, nodes.client("n1") as refused:
        with allowed.lock("for-ever"):
            assert allowed.ttl("for-ever") == -1
        with pytest.raises(redis.ResponseError, match="give it a time: PX, or lock"):
            refused.lock("for-ever").acquire()


def test_redlock_py_with_one_server(nodes: RedisCluster) -> None:
    """Its algorithm, whose server is the whole cluster."""
    redlock = pytest.importorskip(
        "redlock", reason="needs redlock-py, which has no wheel: pip install redlock-py"
    )
    first = redlock.Redlock([{"host": ports.HOST, "port": nodes.port("n1")}])
    second = redlock.Redlock([{"host": ports.HOST, "port": nodes.port("n2")}], retry_count=1)
    held = first.lock("redlock-py", 10_000)
    assert held
    assert not second.lock("redlock-py", 10_000)
    first.unlock(held)
    assert second.lock("redlock-py", 10_000)


UNLOCK = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end"
"""What Redlock runs at each of its servers that it asked, whether or not it got the lock there."""


def test_a_redlock_over_the_nodes_gets_no_majority(nodes: RedisCluster) -> None:
    """The nodes are one server: the others say at once that it is held, and log why, once.

    Redlock then unlocks at all of them, and leaves nothing.
    """
    with nodes.client("n1") as one, nodes.client("n2") as two, nodes.client("n3") as three:
        clients, value = (one, two, three), "0123456789abcdef"
        for _ in range(2):
            granted = [client.set("redlock", value, nx=True, px=600_000) for client in clients]
            assert granted == [True, None, None]
            assert [client.eval(UNLOCK, 1, "redlock", value) for client in clients] == [1, 0, 0]
            assert not three.exists("redlock")
    told = [nodes.log(node_id).read_text().count("event=redis-same-value") for node_id in ("n1", "n2", "n3")]
    assert told == [0, 1, 1]


def test_the_redlock_of_pottery(nodes: RedisCluster) -> None:
    """Acquire, extend, look and release."""
    pottery = pytest.importorskip("pottery", reason="needs pottery: scripts/test --all installs it")
    with nodes.client("n2") as one, nodes.client("n3") as two:
        lock = pottery.Redlock(key="printer", masters={one}, auto_release_time=10)
        other = pottery.Redlock(key="printer", masters={two}, auto_release_time=10)
        assert lock.acquire()
        assert 5 < lock.locked() <= 10
        assert not other.acquire(blocking=False)
        lock.extend()
        lock.release()
        assert not lock.locked()
        with other:
            assert other.locked()


def test_the_lock_of_python_redis_lock(nodes: RedisCluster) -> None:
    """Acquire, wait for the signal of a release, extend, release."""
    redis_lock = pytest.importorskip(
        "redis_lock", reason="needs python-redis-lock: scripts/test --all installs it"
    )
    with nodes.client("n1") as one, nodes.client("n2") as two:
        lock = redis_lock.Lock(one, "job", expire=20)
        other = redis_lock.Lock(two, "job", expire=20)
        assert lock.acquire(blocking=False)
        assert lock.get_owner_id() == lock.id
        assert not other.acquire(blocking=False)
        assert not other.acquire(timeout=1)
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(other.acquire, timeout=20)
            assert not concurrent.futures.wait([waiting], timeout=0.5).done
            began_s = time.monotonic()
            lock.release()
            assert waiting.result()
            print("seconds from the release to the next holder:", round(time.monotonic() - began_s, 3))
            assert time.monotonic() - began_s < 5.0, "the signal woke it, and not the end of its wait"
        other.release()
        assert lock.acquire(blocking=False)
        lock.extend(expire=5)
        assert one.ttl("lock:job") <= 5
        lock.release()
        with pytest.raises(redis_lock.NotAcquired):
            lock.release()
        with pytest.raises(redis_lock.NotAcquired):
            lock.extend()


# -- nodes that fail -----------------------------------------------------------------------------------------

RUN_S = 30.0
KILL_EVERY_S = 5.0
LEASE_S = 3.0
WORKERS_COUNT = 6


@dataclass
class Record:
    """What the workers did: which tokens were held, by which, and from when to when."""

    tokens: list[tuple[int, int]] = field(default_factory=list)
    """A token and the worker that had it, in the order in which they were told."""
    lock: threading.Lock = field(default_factory=threading.Lock)
    errors: list[str] = field(default_factory=list)
    grants_count: int = 0
    pipelines_count: int = 0


def test_while_the_leader_is_killed_every_five_seconds(nodes: RedisCluster) -> None:
    """No token has two holders, tokens rise, pipelines keep their order, and no lock is stuck."""
    record, is_over = Record(), threading.Event()
    with ThreadPoolExecutor(WORKERS_COUNT + 1) as pool:
        working = [pool.submit(work, nodes, number, record, is_over) for number in range(WORKERS_COUNT)]
        working.append(pool.submit(pipe, nodes, record, is_over))
        try:
            ends_at_s = time.monotonic() + RUN_S
            while time.monotonic() < ends_at_s:
                is_over.wait(KILL_EVERY_S)
                leader = nodes.leader()
                nodes.kill(leader)
                nodes.restart(leader)
        finally:
            is_over.set()
        for each in working:
            each.result()
    assert record.pipelines_count > 20
    owners = dict(record.tokens)
    assert len(owners) == len(record.tokens), "a token was told to two holders"
    assert record.grants_count > 20
    print("grants:", record.grants_count, "errors:", len(record.errors))
    bring_all_back(nodes)
    with nodes.client("n1") as client:
        asked_s = time.monotonic()
        wait_until(
            lambda: client.set("chaos", "after the storm, me", nx=True, px=10_000),
            "the lock is free within its lease",
            LEASE_S + 2.0,
        )
        print("free after s:", round(time.monotonic() - asked_s, 2))
        assert (token_of(client, "chaos", "after the storm, me") or 0) > max(owners)


def work(nodes: RedisCluster, number: int, record: Record, is_over: threading.Event) -> None:
    """Take the lock again and again, through any node, and note the token of each time."""
    clients = [nodes.client(node_id, socket_timeout=10) for node_id in ("n1", "n2", "n3")]
    turn = number
    while not is_over.is_set():
        client = clients[turn % len(clients)]
        turn += 1
        lock = client.lock("chaos", timeout=LEASE_S, sleep=0.01)
        try:
            if not lock.acquire(blocking_timeout=2):
                continue
            token = token_of(client, "chaos", lock.local.token)
            if token is not None:
                with record.lock:
                    record.tokens.append((token, number))
                    record.grants_count += 1
            lock.release()
        except (RedisError, OSError) as error:
            record.errors.append(repr(error))
    for client in clients:
        client.close()


def pipe(nodes: RedisCluster, record: Record, is_over: threading.Event) -> None:
    """Send commands on one key together, which are begun together, too: each meets what those before did."""
    release = "if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('del',KEYS[1]) else return 0 end"
    options: dict[str, Any] = {"socket_timeout": 10, "retry": Retry(NoBackoff(), 0)}
    clients = [nodes.client(node_id, **options) for node_id in ("n1", "n2", "n3")]
    turn = 0
    while not is_over.is_set():
        turn += 1
        key, one, two = f"piped-{turn}", f"one-{turn:016}", f"two-{turn:016}"
        pipeline = clients[turn % len(clients)].pipeline(transaction=False)
        for taken, ended in ((one, two), (two, one)) * 10:
            pipeline.set(key, taken, nx=True, px=30_000)
            pipeline.eval(release, 1, key, ended)
            pipeline.eval(release, 1, key, taken)
        try:
            assert pipeline.execute() == [True, 0, 1] * 20
        except (RedisError, OSError) as error:
            record.errors.append(repr(error))
        else:
            record.pipelines_count += 1
    for client in clients:
        client.close()
