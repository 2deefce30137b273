"""A cache in Redis without a stampede: one computes, the others wait for it or take the stale value.

Run it with the nodes in HOLDFAST_NODES, and with the address of a Redis in REDIS_URL, in which it writes, and
deletes, the key `holdfast-example/report`.
"""

import os
import sys
import threading
import time
from collections.abc import Callable

import redis

import holdfast

REDIS_URL = os.environ.get("REDIS_URL", "redis://127.0.0.1:6379/0")
KEY = "holdfast-example/report"
READERS_COUNT = 20
LEASE_S = 5.0
"""Seconds after which another one computes if the process that did so has died."""
WAIT_S = 30.0
"""Whoever finds no value waits for another's: for longer than LEASE_S, and than computing takes."""
KEEP_S = 3600
"""Until then a stale value is better than to wait. All need the same: ages are counted from it."""


def connect(url: str) -> redis.Redis:
    """Return a client that says within seconds that Redis is down, and survives a restart of it."""
    return redis.Redis.from_url(url, decode_responses=True, socket_connect_timeout=1, socket_timeout=1)


def cached(
    client: holdfast.SyncClient,
    store: redis.Redis,
    key: str,
    compute: Callable[[], str],
    fresh_s: float = 60,
) -> str:
    """Return a value that is fresh, or a stale one while somebody else computes, on whatever machine.

    Raises redis.ConnectionError or redis.TimeoutError when Redis does not answer.
    """
    value, age_s = look(store, key)
    if value is not None and age_s < fresh_s:
        return value
    try:
        # A reader with a stale value does not wait for a fresh one; a reader without any does.
        wait = WAIT_S if value is None else 0
        with client.lock(("cache", key), ttl=LEASE_S, wait=wait) as hold:
            found, age_s = look(store, key)
            if found is not None and age_s < fresh_s:
                return found  # somebody else was faster
            value = compute()
            hold.ensure_valid()  # after a pause, another process may have stored a newer value
            store.set(key, value, px=KEEP_S * 1000)
            return value
    except (holdfast.LockTimeout, holdfast.LeaseLost):
        return compute() if value is None else value  # late is better than never


def look(store: redis.Redis, key: str) -> tuple[str | None, float]:
    """Return the stored value, and its age by the clock of Redis: no other clock counts."""
    value, left_ms = store.pipeline().get(key).pttl(key).execute()
    return value, KEEP_S - left_ms / 1000


def main() -> int:
    """Let many read at once, then let one compute while another reads; return 0 if Redis answers."""
    computed: list[str] = []
    begun, go_on = threading.Event(), threading.Event()

    def compute() -> str:
        computed.append(f"report {len(computed) + 1}")
        time.sleep(0.2)
        return computed[-1]

    def compute_slowly() -> str:
        begun.set()
        go_on.wait(30)
        return compute()

    store = connect(REDIS_URL)
    try:
        store.delete(KEY)
    except redis.RedisError as error:
        print(f"Redis does not answer: {error}")
        return 1
    with holdfast.SyncClient() as client:
        got: list[str] = []
        readers = [
            threading.Thread(target=lambda: got.append(cached(client, store, KEY, compute)))
            for _ in range(READERS_COUNT)
        ]
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join()
        print(f"{len(got)} readers got {set(got)}, computed {len(computed)} times")

        one = threading.Thread(target=cached, args=(client, store, KEY, compute_slowly, 0))
        one.start()
        begun.wait(30)
        print(f"while another one computes: {cached(client, store, KEY, compute, 0)}")
        go_on.set()
        one.join()
        print(f"afterwards: {cached(client, store, KEY, compute)}")
    store.delete(KEY)
    store.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
