"""Libraries that take locks in Redis, unmodified, on three nodes: take, wait, extend, lose and give back."""

import asyncio
import contextlib
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any, Final

import pytest
from redis.exceptions import LockNotOwnedError, ResponseError

from scripts.lib import ports
from tests.process.redis_nodes import RedisCluster

pytestmark = pytest.mark.process
WHY: Final = "needs the libraries of the group `faces`: scripts/test --all installs them"


def url(nodes: RedisCluster, node_id: str) -> str:
    """Return where a node serves clients of Redis."""
    return f"redis://{ports.HOST}:{nodes.port(node_id)}/0"


# -- each library ------------------------------------------------------------------------------------------


def django_lock(nodes: RedisCluster, node_id: str, key: str, ttl_s: float) -> Any:
    """Return a lock of django-redis: `cache.lock`."""
    caches = pytest.importorskip("django_redis.cache", reason=WHY)
    from django.conf import settings  # noqa: PLC0415 - not everybody has it

    if not settings.configured:
        settings.configure()
    return caches.RedisCache(url(nodes, node_id), {}).lock(key, timeout=ttl_s, sleep=0.01)


def beat_lock(nodes: RedisCluster, node_id: str, key: str, ttl_s: float) -> Any:
    """Return the lock of the scheduler of celery-redbeat, which its signal takes."""
    schedulers = pytest.importorskip("redbeat.schedulers", reason=WHY)
    lock = nodes.client(node_id).lock(key, timeout=ttl_s, sleep=0.01)
    lock.lua_extend = lock.redis.register_script(schedulers.LUA_EXTEND_TO_SCRIPT)
    return lock


@pytest.mark.parametrize("made", [django_lock, beat_lock])
def test_locks_of_redis_py_within_other_libraries(nodes: RedisCluster, made: Callable[..., Any]) -> None:
    """They are taken, waited for, extended, lost and given back on different nodes."""
    key = made.__name__
    one, two = made(nodes, "n1", key, 30), made(nodes, "n2", key, 30)
    assert one.acquire()
    assert not two.acquire(blocking=False)
    assert one.extend(20)
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(two.acquire, blocking_timeout=60)
        one.release()
        assert waiting.result(60)
    one.local.token = b"a token that it had before"
    with pytest.raises(LockNotOwnedError):
        one.release()
    short = made(nodes, "n3", f"{key}-short", 0.2)
    assert short.acquire()
    assert made(nodes, "n1", f"{key}-short", 30).acquire(blocking_timeout=10)
    with pytest.raises(LockNotOwnedError):
        short.extend(1)


def test_the_scheduler_of_celery_redbeat_takes_its_lock(nodes: RedisCluster) -> None:
    """By its own signal, which sets the script that extends it to a time."""
    schedulers = pytest.importorskip("redbeat.schedulers", reason=WHY)
    import celery  # noqa: PLC0415

    app = celery.Celery(broker=url(nodes, "n2"))
    app.conf.redbeat_redis_url = url(nodes, "n2")
    schedulers.ensure_conf(app)
    scheduler = SimpleNamespace(app=app, lock_key="redbeat::lock", lock_timeout=25, max_interval=1)
    schedulers.acquire_distributed_beat_lock(SimpleNamespace(scheduler=scheduler))
    lock: Any = scheduler.lock
    assert lock.owned()
    assert lock.extend(60)
    with nodes.client("n1") as client:
        assert 55_000 < client.pttl("redbeat::lock") <= 60_000
        lock.release()
        assert not client.exists("redbeat::lock")


def test_the_lock_of_dogpile_cache(nodes: RedisCluster) -> None:
    """Its mutex, with `distributed_lock`."""
    backends = pytest.importorskip("dogpile.cache.backends.redis", reason=WHY)

    def mutex(node_id: str, ttl_s: float = 30) -> Any:
        arguments = {"lock_timeout": ttl_s, "lock_sleep": 0.01, "thread_local_lock": False}
        own = {"host": ports.HOST, "port": nodes.port(node_id), "distributed_lock": True}
        return backends.RedisBackend(own | arguments).get_mutex("value")

    one, two = mutex("n1"), mutex("n2")
    assert one.acquire()
    assert two.locked()
    assert not two.acquire(wait=False)
    one.release()
    assert two.acquire()
    two.release()
    short = mutex("n3", 0.2)
    assert short.acquire()
    assert one.acquire(wait=True)
    with pytest.raises(LockNotOwnedError):
        short.release()


@pytest.mark.filterwarnings("ignore:Call to deprecated close:DeprecationWarning")  # its own
async def test_the_lock_of_cashews(nodes: RedisCluster) -> None:
    """Tasks at different nodes have it one after the other; one that would have to wait may say no."""
    cashews = pytest.importorskip("cashews", reason=WHY)
    caches = []
    for node_id in ("n1", "n2", "n3"):
        cache = cashews.Cache()
        cache.setup(url(nodes, node_id), suppress=False)
        caches.append(cache)
    inside = done = 0

    async def work(cache: Any) -> None:
        nonlocal inside, done
        async with cache.lock("job", expire=30, check_interval=0.01):
            inside += 1
            assert inside == 1
            await asyncio.sleep(0)
            inside -= 1
            done += 1

    await asyncio.gather(*[work(cache) for cache in caches * 3])
    assert done == 9
    async with caches[0].lock("job", expire=30):
        with pytest.raises(cashews.exceptions.LockedError):
            async with caches[1].lock("job", expire=30, wait=False):
                raise AssertionError("it is held")
    async with caches[0].lock("short", expire=0.1), caches[1].lock("short", expire=30, check_interval=0.01):
        pass
    for cache in caches:
        await cache.close()


def test_the_lock_of_celery_singleton(nodes: RedisCluster) -> None:
    """It is taken under the id of a task, and given back by DEL from wherever that runs, which is a force."""
    backends = pytest.importorskip("celery_singleton.backends.redis", reason=WHY)
    one, two = [backends.RedisBackend(url(nodes, node_id)) for node_id in ("n1", "n2")]
    assert one.lock("singleton", "task-1", expiry=30)
    assert not two.lock("singleton", "task-2", expiry=30)
    assert two.get("singleton") == "task-1"
    two.unlock("singleton")
    assert one.get("singleton") is None
    assert two.lock("singleton", "task-2", expiry=1)
    deadline_s = time.monotonic() + 10
    while not one.lock("singleton", "task-3", expiry=30):
        assert time.monotonic() < deadline_s, "it ends with its time"


def test_the_lock_of_celery_once(nodes: RedisCluster) -> None:
    """A task that is queued is not queued again, on any node, until it is over or its time is."""
    once = pytest.importorskip(
        "celery_once", reason="needs celery-once, which has no wheel: pip install celery-once"
    )
    module = pytest.importorskip("celery_once.backends.redis")
    backends = []
    for node_id in ("n1", "n2"):
        module.redis = None  # it keeps its first client for good
        backends.append(module.Redis({"url": url(nodes, node_id)}))
    one, two = backends
    one.raise_or_lock("qo_report", timeout=30)
    with pytest.raises(once.AlreadyQueued) as refused:
        two.raise_or_lock("qo_report", timeout=30)
    assert 25 < refused.value.countdown <= 30
    two.clear_lock("qo_report")
    one.raise_or_lock("qo_report", timeout=0.5)
    waiting = module.Redis({"url": "", "blocking": True, "blocking_timeout": 10})
    waiting.raise_or_lock("qo_report", timeout=30)


def cache_of(name: str, nodes: RedisCluster) -> Any:
    """Return a cache of Django, of its own library or of django-redis."""
    pytest.importorskip("django_redis.cache", reason=WHY)
    django = pytest.importorskip("django", reason=WHY)
    from django.conf import settings  # noqa: PLC0415 - not everybody has it

    if not settings.configured:
        settings.configure()
    django.setup()
    from django.utils.module_loading import import_string  # noqa: PLC0415 - as above

    return import_string(name)(url(nodes, "n2"), {})


@pytest.mark.parametrize(
    "name", ["django_redis.cache.RedisCache", "django.core.cache.backends.redis.RedisCache"]
)
def test_a_cache_of_django(nodes: RedisCluster, name: str) -> None:
    """Small values that last a day at most, or for ever; `clear` empties the database, also of locks."""
    cache = cache_of(name, nodes)
    cache.set_many({"a": [1], "b": 2}, timeout=60)
    assert cache.get_many(["a", "b", "none"]) == {"a": [1], "b": 2}
    assert cache.incr("b") == 3
    assert not cache.add("b", 4)
    assert cache.touch("b", 120)
    cache.set("c", "for ever", timeout=None)
    assert cache.get("c") == "for ever"
    cache.delete_many(["a", "b", "c"])
    assert not cache.has_key("a")
    with pytest.raises(ResponseError, match="ttl-out-of-range: 1209600000; must be 50 to 86400000 ms"):
        cache.set("session", "two weeks", timeout=1_209_600)
    with pytest.raises(ResponseError, match="for one key; at most 4096 are allowed"):
        cache.set("page", "x" * 5_000)
    with nodes.client("n3") as client:
        assert client.set("held", "0123456789abcdef", nx=True, px=60_000)
        cache.set("left", "over")
        cache.clear()
        assert client.dbsize() == 0


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        (["--scan", "--pattern", "cli-*"], "cli-list\ncli-string\n"),
        (["--bigkeys"], "Biggest   list found '\"cli-list\"' has 1 items"),
        (["client", "list"], "lib-name= lib-ver= user=default"),
        (["-3", "info", "stats"], "total_commands_processed:"),
        (["monitor"], "`holdfast watch` shows what happens to locks"),
        (["flushall"], "OK"),
    ],
)
def test_redis_cli(nodes: RedisCluster, options: list[str], shown: str) -> None:
    """What people type: its own ways to look, and refusals that say what to do."""
    program = shutil.which("redis-cli")
    if program is None:
        pytest.skip("needs redis-cli: Debian's redis-tools")
    with nodes.client("n3") as client:
        client.set("cli-string", "value!")
        client.delete("cli-list")
        client.rpush("cli-list", "x")
    command = [program, "-p", str(nodes.port("n1")), *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert shown in done.stdout


# -- nodes that fail -----------------------------------------------------------------------------------------

RUN_S: Final = 30.0
KILL_EVERY_S: Final = 5.0
LEASE_S: Final = 8.0
"""Longer than a holder below holds its lock, whatever happens to the node that it asks."""


@contextlib.contextmanager
def dogpile_lock(nodes: RedisCluster, node_id: str, key: str, ttl_s: float) -> Iterator[bool]:
    """Hold a lock of dogpile.cache, or not."""
    backends = pytest.importorskip("dogpile.cache.backends.redis", reason=WHY)
    arguments = {"lock_timeout": ttl_s, "lock_sleep": 0.01, "thread_local_lock": False}
    own = {"host": ports.HOST, "port": nodes.port(node_id), "distributed_lock": True}
    mutex = backends.RedisBackend(own | arguments).get_mutex(key)
    is_held = mutex.acquire(wait=False)
    try:
        yield is_held
    finally:
        if is_held:
            mutex.release()


@contextlib.contextmanager
def lock_of_django(nodes: RedisCluster, node_id: str, key: str, ttl_s: float) -> Iterator[bool]:
    """Hold a lock of django-redis, or not."""
    lock = django_lock(nodes, node_id, key, ttl_s)
    is_held = lock.acquire(blocking=False)
    try:
        yield is_held
    finally:
        if is_held:
            lock.release()


@contextlib.contextmanager
def lock_of_singleton(nodes: RedisCluster, node_id: str, key: str, ttl_s: float) -> Iterator[bool]:
    """Hold a lock of celery-singleton, or not."""
    backends = pytest.importorskip("celery_singleton.backends.redis", reason=WHY)
    backend = backends.RedisBackend(url(nodes, node_id))
    is_held = backend.lock(key, f"task-{time.monotonic_ns():020}", expiry=int(ttl_s))
    try:
        yield is_held
    finally:
        if is_held:
            backend.unlock(key)


@pytest.mark.slow
def test_while_the_leader_is_killed_every_five_seconds(nodes: RedisCluster) -> None:
    """Whatever the library, no lock has two holders while it lasts, and its work goes on."""
    is_over, guard = threading.Event(), threading.Lock()
    inside: dict[str, int] = {}
    counts: dict[str, int] = {}
    errors: list[str] = []

    def work(hold: Callable[..., Any], number: int) -> None:
        key, turn = hold.__name__, number
        while not is_over.is_set():
            turn += 1
            try:
                began_s = time.monotonic()
                with hold(nodes, f"n{turn % 3 + 1}", key, LEASE_S) as is_held:
                    is_sure = is_held and time.monotonic() < began_s + LEASE_S / 2
                    if is_sure:
                        with guard:
                            assert not inside.get(key), f"{key} has two holders"
                            inside[key], counts[key] = 1, counts.get(key, 0) + 1
                        with guard:
                            inside[key] = 0
            except AssertionError:
                raise
            except Exception as error:  # noqa: BLE001 - each library has its own
                errors.append(repr(error))
            is_over.wait(0.005)

    holders = (lock_of_django, dogpile_lock, lock_of_singleton)
    with ThreadPoolExecutor(2 * len(holders)) as pool:
        working = [pool.submit(work, hold, number) for hold in holders for number in range(2)]
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
    print("grants:", counts, "errors:", len(errors), errors[:3])
    assert all(counts.get(hold.__name__, 0) > 10 for hold in holders)
