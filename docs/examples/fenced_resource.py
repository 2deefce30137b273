"""Let a database refuse a writer that lost its lock: it compares fencing tokens where the data is written.

The first writer takes a lock and then sleeps through its lease, as a paused process would. The second one
gets the lock and writes. The late write of the first comes with a smaller token: the database refuses it.
"""

import asyncio
import sqlite3
import sys

import holdfast

LOCK = "examples/account"


def create(database: sqlite3.Connection) -> None:
    """Make an account that remembers the highest token it was written with."""
    database.execute("CREATE TABLE account (balance INTEGER, highest_token INTEGER)")
    database.execute("INSERT INTO account VALUES (100, 0)")


def write(database: sqlite3.Connection, balance: int, token: int) -> None:
    """Set the balance in the same statement that compares the token. Raises StaleToken."""
    with database:
        changed = database.execute(
            "UPDATE account SET balance = ?, highest_token = ? WHERE highest_token <= ?",
            (balance, token, token),
        ).rowcount
        (highest_token,) = database.execute("SELECT highest_token FROM account").fetchone()
    if not changed:
        raise holdfast.StaleToken(token, highest_token)


async def main() -> int:
    """Let two writers meet; return 0 if the late one was refused."""
    database = sqlite3.connect(":memory:")
    create(database)
    async with (
        holdfast.Client(owner="first") as first,
        holdfast.Client(owner="second") as second,
    ):
        early = await first.acquire(LOCK, ttl=1, renew=False)  # as if its process had been paused
        late = await second.acquire(LOCK, ttl=10, wait=10)  # waits for the lease to end
        write(database, 50, late.token)
        print(f"second wrote 50; its token is larger: {late.token > early.token}")
        print(f"first knows by its own clock that its lease is over: {not early.is_valid}")
        try:
            write(database, 200, early.token)
        except holdfast.StaleToken:
            print("first was refused by the database all the same")
        else:
            return 1
        await late.release()
    (balance,) = database.execute("SELECT balance FROM account").fetchone()
    print(f"the balance is {balance}")
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
