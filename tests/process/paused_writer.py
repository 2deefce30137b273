"""A process that takes money under a lock, and is paused between its last check and its write.

    python -m tests.process.paused_writer fenced|unfenced

It stops itself with SIGSTOP. Continued, it writes, and prints what becomes of that: "written" or "refused".
"""

import contextlib
import os
import signal
import sys

import sqlalchemy as sa

import holdfast
from docs.examples import fenced_postgresql

TTL_S = 2.0
TAKEN = 30


def main(kind: str) -> None:
    """Read, check that the lock is held, be paused, write."""
    database = fenced_postgresql.connect(fenced_postgresql.DATABASE_URL)
    with (
        holdfast.SyncClient(owner="paused") as client,
        contextlib.suppress(holdfast.LeaseLost),  # the block's end tells it too: too late for the write
        client.lock(fenced_postgresql.LOCK, ttl=TTL_S) as hold,
    ):
        balance = fenced_postgresql.read(database) - TAKEN
        hold.ensure_valid()
        os.kill(os.getpid(), signal.SIGSTOP)
        try:
            if kind == "fenced":
                fenced_postgresql.write(database, balance, hold.token)
            else:
                with database.begin() as connection:
                    connection.execute(sa.update(fenced_postgresql.ACCOUNT).values(balance=balance))
            print("written", flush=True)
        except holdfast.StaleToken:
            print("refused", flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
