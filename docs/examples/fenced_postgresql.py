"""Let PostgreSQL refuse a writer that lost its lock: the row that is written compares fencing tokens.

The same as fenced_resource.py, with SQLAlchemy Core: any database of SQLAlchemy will do. Run it with the
address of a database in DATABASE_URL, in which it makes, and drops, the table `holdfast_example_account`.
"""

import asyncio
import os
import sys

import sqlalchemy as sa

import holdfast

LOCK = "examples/account"
DATABASE_URL = os.environ.get("DATABASE_URL", "postgresql+psycopg:///postgres")

METADATA = sa.MetaData()
ACCOUNT = sa.Table(
    "holdfast_example_account",
    METADATA,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("balance", sa.BigInteger, nullable=False),
    sa.Column("highest_token", sa.BigInteger, nullable=False),  # tokens outgrow the 32 bits of an INTEGER
)


def connect(url: str) -> sa.Engine:
    """Return the database; a connection that broke, as by a restart of the server, is replaced."""
    return sa.create_engine(url, pool_pre_ping=True)


def create(database: sa.Engine) -> None:
    """Make an account that remembers the highest token it was written with."""
    METADATA.drop_all(database)
    METADATA.create_all(database)
    with database.begin() as connection:
        connection.execute(sa.insert(ACCOUNT).values(id=1, balance=100, highest_token=0))


def write(database: sa.Engine, balance: int, token: int) -> None:
    """Set the balance in the same statement that compares the token. Raises StaleToken."""
    with database.begin() as connection:
        changed = connection.execute(
            sa.update(ACCOUNT)
            .where(ACCOUNT.c.id == 1, ACCOUNT.c.highest_token <= token)
            .values(balance=balance, highest_token=token)
        ).rowcount
        highest_token = connection.execute(
            sa.select(ACCOUNT.c.highest_token).where(ACCOUNT.c.id == 1)
        ).scalar_one()
    if not changed:
        raise holdfast.StaleToken(token, highest_token)


def read(database: sa.Engine) -> int:
    """Return the balance."""
    with database.connect() as connection:
        balance: int = connection.execute(sa.select(ACCOUNT.c.balance)).scalar_one()
    return balance


async def main() -> int:
    """Let two writers meet; return 0 if the late one was refused."""
    database = connect(DATABASE_URL)
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
    print(f"the balance is {read(database)}")
    METADATA.drop_all(database)
    database.dispose()
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
