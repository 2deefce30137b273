"""docs/examples/fenced_postgresql.py on a real PostgreSQL: no late holder undoes another's write."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import sqlalchemy as sa

import holdfast
from docs.examples import fenced_postgresql
from docs.examples.fenced_postgresql import ACCOUNT, LOCK
from scripts.local_cluster import LocalCluster
from tests.process.nodes import urls
from tests.support import servers
from tests.support.processes import wait_until
from tests.unit.holdfast.cli.test_run import stat_of

pytestmark = pytest.mark.process

ROOT = Path(__file__).resolve().parents[2]
DEPOSITS_COUNT = 20
WAITING = sa.text("SELECT count(*) FROM pg_locks WHERE NOT granted")


@pytest.fixture(scope="module")
def server() -> Iterator[servers.Server]:
    """Run a PostgreSQL for these tests."""
    with servers.postgresql() as server:
        yield server


@pytest.fixture
def database(server: servers.Server) -> Iterator[sa.Engine]:
    """Return a database with an account of 100 that nobody has written yet."""
    engine = fenced_postgresql.connect(server.url)
    fenced_postgresql.create(engine)
    yield engine
    engine.dispose()


def state(database: sa.Engine) -> tuple[int, int]:
    """Return the balance, and the token that it was written with."""
    with database.connect() as connection:
        return tuple(connection.execute(sa.select(ACCOUNT.c.balance, ACCOUNT.c.highest_token)).one())


def overtake(
    cluster: LocalCluster, server: servers.Server, database: sa.Engine, kind: str, *, crash: bool = False
) -> str:
    """Let a process be paused before its write, take 50 meanwhile, and return what became of its write."""
    paused = subprocess.Popen(
        [sys.executable, "-m", "tests.process.paused_writer", kind],
        cwd=ROOT,
        env=os.environ | {"HOLDFAST_NODES": ",".join(urls(cluster)), "DATABASE_URL": server.url},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        wait_until(lambda: stat_of(paused.pid)[:1] == ["T"], "the first is paused before its write")
        with (
            holdfast.SyncClient(urls(cluster), owner="second") as client,
            client.lock(LOCK, wait=30) as hold,
        ):
            fenced_postgresql.write(database, fenced_postgresql.read(database) - 50, hold.token)
        if crash:
            server.restart(signal.SIGQUIT)
        os.kill(paused.pid, signal.SIGCONT)
        printed, _ = paused.communicate(timeout=60)
        assert paused.returncode == 0
        return printed.strip()
    finally:
        paused.kill()
        paused.communicate()


def test_a_paused_holder_is_refused(
    cluster: LocalCluster, server: servers.Server, database: sa.Engine
) -> None:
    """The write of a process that slept through its lease is refused, and the other's write stays."""
    assert overtake(cluster, server, database, "fenced") == "refused"
    assert state(database)[0] == 50


def test_without_the_token_an_update_is_lost(
    cluster: LocalCluster, server: servers.Server, database: sa.Engine
) -> None:
    """The same process without the condition undoes the other's write: the 50 are there again."""
    assert overtake(cluster, server, database, "unfenced") == "written"
    assert state(database)[0] == 70


def test_a_crash_of_the_server_forgets_no_token(
    cluster: LocalCluster, server: servers.Server, database: sa.Engine
) -> None:
    """The late write is refused also by a server that has crashed and was started again in between."""
    pid = server.pid
    assert overtake(cluster, server, database, "fenced", crash=True) == "refused"
    assert server.pid != pid
    assert state(database)[0] == 50  # the connection from before the crash is replaced


def test_two_writers_lose_nothing(cluster: LocalCluster, server: servers.Server, database: sa.Engine) -> None:
    """Two writers, each with a client and a database connection of its own, add up all that they pay in."""
    tokens = []

    def deposit(owner: str) -> None:
        engine = fenced_postgresql.connect(server.url)
        with holdfast.SyncClient(urls(cluster), owner=owner) as client:
            for _ in range(DEPOSITS_COUNT):
                with client.lock(LOCK) as hold:
                    fenced_postgresql.write(engine, fenced_postgresql.read(engine) + 1, hold.token)
                    tokens.append(hold.token)
        engine.dispose()

    with ThreadPoolExecutor() as writers:
        list(writers.map(deposit, ["ann", "bob"]))
    assert state(database) == (100 + 2 * DEPOSITS_COUNT, max(tokens))
    assert tokens == sorted(set(tokens))


@pytest.mark.parametrize("is_committed", [True, False])
def test_a_write_that_waits_for_the_row_compares_again(database: sa.Engine, *, is_committed: bool) -> None:
    """A write that met a newer one before its end waits for it, and is refused if that one was committed."""
    newer = sa.update(ACCOUNT).values(balance=50, highest_token=8)
    refused = threading.Event()

    def write_older() -> None:
        try:
            fenced_postgresql.write(database, 70, 7)
        except holdfast.StaleToken:
            refused.set()

    older = threading.Thread(target=write_older)
    with database.connect() as first, database.connect() as onlooker:
        first.execute(newer)
        older.start()
        wait_until(lambda: onlooker.execute(WAITING).scalar_one() == 1, "the older write waits for the row")
        (first.commit if is_committed else first.rollback)()
        older.join(30)
    assert refused.is_set() == is_committed
    assert state(database) == ((50, 8) if is_committed else (70, 7))


def test_a_stricter_isolation_refuses_as_well(database: sa.Engine) -> None:
    """Above READ COMMITTED a write that met a newer one fails, and is refused when it is tried again."""
    strict = database.execution_options(isolation_level="REPEATABLE READ")
    newer = sa.update(ACCOUNT).values(balance=50, highest_token=8)
    with ThreadPoolExecutor() as pool, database.connect() as first, database.connect() as onlooker:
        first.execute(newer)
        older = pool.submit(fenced_postgresql.write, strict, 70, 7)
        wait_until(lambda: onlooker.execute(WAITING).scalar_one() == 1, "the older write waits for the row")
        first.commit()
        with pytest.raises(sa.exc.OperationalError, match="could not serialize"):
            older.result(30)
    with pytest.raises(holdfast.StaleToken):
        fenced_postgresql.write(strict, 70, 7)
    assert state(database) == (50, 8)


def test_tokens_of_more_than_32_bits_are_compared(database: sa.Engine) -> None:
    """Tokens may be as large as they get, and the writer of the newest one may write again."""
    token = 1 << 62
    fenced_postgresql.write(database, 60, token)
    fenced_postgresql.write(database, 50, token)
    with pytest.raises(holdfast.StaleToken) as refusal:
        fenced_postgresql.write(database, 70, token - 1)
    assert (refusal.value.highest_token, state(database)) == (token, (50, token))


def test_an_account_that_is_not_there_is_no_stale_token(database: sa.Engine) -> None:
    """A write to a row that was deleted says that, and not that somebody else was faster."""
    with database.begin() as connection:
        connection.execute(sa.delete(ACCOUNT))
    with pytest.raises(sa.exc.NoResultFound):
        fenced_postgresql.write(database, 50, 1)


def test_the_same_statement_fences_in_sqlite() -> None:
    """The program is for any database of SQLAlchemy: SQLite refuses as well."""
    engine = fenced_postgresql.connect("sqlite://")
    fenced_postgresql.create(engine)
    fenced_postgresql.write(engine, 50, 8)
    with pytest.raises(holdfast.StaleToken):
        fenced_postgresql.write(engine, 70, 7)
    assert state(engine) == (50, 8)
    engine.dispose()
