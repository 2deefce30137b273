"""A process that reads from the cache of docs/examples/redis_cache.py, and says what it got.

    python -m tests.process.cache_reader THREADS SECONDS|pause

It prints "ready", waits for a line, and then reads once in each thread. To compute, a thread counts that in
Redis, prints "computing", and takes `SECONDS`, or pauses the process. The values are printed last.
"""

import os
import signal
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import holdfast
from docs.examples import redis_cache

KEY = "report/7"
COUNTER = "computed"


def main(threads: int, how_long: str) -> None:
    """Read."""
    store = redis_cache.connect(redis_cache.REDIS_URL)

    def compute() -> str:
        store.incr(COUNTER)
        print("computing", flush=True)
        if how_long == "pause":
            # To this thread: of a signal to the process another one may hear first, and this one works on.
            signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)
        else:
            time.sleep(float(how_long))
        return f"by {os.getpid()}"

    with holdfast.SyncClient() as client, ThreadPoolExecutor(threads) as pool:
        print("ready", flush=True)
        sys.stdin.readline()
        for value in list(
            pool.map(lambda _: redis_cache.cached(client, store, KEY, compute), range(threads))
        ):
            print(value, flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
