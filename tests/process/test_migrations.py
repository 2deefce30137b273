"""docs/examples/alembic_migration.py and django_migrate.py: a migration is killed, paused, or cannot begin.

That each migration runs once, however many start it, is what the examples show themselves: test_docs.py.
"""

import contextlib
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
import sqlalchemy as sa

import holdfast
from docs.examples import alembic_migration, django_migrate
from scripts.lib import ports
from scripts.local_cluster import LocalCluster
from tests.process.nodes import urls
from tests.support import servers
from tests.support.processes import wait_until
from tests.unit.holdfast.cli.test_run import stat_of

pytestmark = pytest.mark.process

DEADLINE_S = 60.0
SHORT_LEASE_S = "3"
"""Of a process that is to lose it."""
LONG_LEASE_S = "60"

# What the second migration of either project does, after what it did to the database or before it.
DISTURBED = """
import os
import signal
import threading
import time


def be_disturbed(how):
    if os.environ["DISTURBED"] != how:
        return
    print("disturbed", flush=True)
    if how == "hangs":
        time.sleep(600)
    # To this thread: of a signal to the process another one may hear first, and this one works on.
    signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)
"""
ALEMBIC_ENV = """
import os

import sqlalchemy as sa

import alembic_migration
import holdfast

alembic_migration.LEASE_S = float(os.environ["LEASE_S"])
with holdfast.SyncClient(timeout=float(os.environ["ANSWER_S"])) as client:
    alembic_migration.run_migrations(client, sa.create_engine(os.environ["DATABASE_URL"]))
"""
ALEMBIC_SECOND = """
import sqlalchemy as sa
from alembic import op

from disturbed import be_disturbed

revision, down_revision = "0002", "0001"


def upgrade() -> None:
    print("second", flush=True)
    op.create_table("lines", sa.Column("id", sa.Integer, primary_key=True))
    be_disturbed("hangs")
    be_disturbed("is paused")
"""
DJANGO_COMMAND = """
import os

import django_migrate
from django_migrate import Command

for name in ("LEASE_S", "WAIT_S", "ANSWER_S"):
    setattr(django_migrate, name, float(os.environ[name]))
"""
DJANGO_SECOND = """
from django.db import migrations

from disturbed import be_disturbed


def second(apps, schema_editor):
    print("second", flush=True)
    be_disturbed("is paused")
    apps.get_model("shop", "Order").objects.create()
    be_disturbed("hangs")


class Migration(migrations.Migration):
    dependencies = [("shop", "0001_initial")]
    operations = [migrations.RunPython(second)]
"""
DJANGO_THIRD = """
from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("shop", "0002_second")]
    operations = [migrations.RunPython(lambda *_: print("third", flush=True))]
"""


class Project:
    """A project whose migrations are started as processes."""

    def __init__(
        self, argv: list[str], lock: tuple[str, ...], folder: Path, environment: Mapping[str, str]
    ) -> None:
        self.lock = lock
        self._argv = argv
        self._folder = folder
        self._environment = {"ANSWER_S": "30", "WAIT_S": "60", **environment}
        (folder / "disturbed.py").write_text(DISTURBED)

    @contextlib.contextmanager
    def migrating(
        self, lease_s: str = LONG_LEASE_S, disturbed: str = "", **environment: str
    ) -> Iterator[subprocess.Popen[str]]:
        """Run the migrations in a process, which is gone afterwards."""
        process = subprocess.Popen(
            [sys.executable, "-m", *self._argv],
            cwd=self._folder,
            env={**self._environment, "LEASE_S": lease_s, "DISTURBED": disturbed, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            yield process
        finally:
            process.kill()
            process.communicate()


def nodes_of(cluster: LocalCluster) -> dict[str, str]:
    """Return the variable that says where the nodes are."""
    return {"HOLDFAST_NODES": ",".join(urls(cluster))}


@pytest.fixture(scope="module")
def server() -> Iterator[servers.Server]:
    """Run a PostgreSQL for these tests."""
    with servers.postgresql() as server:
        yield server


@pytest.fixture
def database(server: servers.Server) -> Iterator[sa.Engine]:
    """Return an empty database."""
    engine = sa.create_engine(server.url)
    with engine.begin() as connection:
        connection.execute(sa.text("DROP TABLE IF EXISTS orders, lines, alembic_version"))
    yield engine
    engine.dispose()


@pytest.fixture
def with_alembic(
    cluster: LocalCluster, server: servers.Server, database: sa.Engine, tmp_path: Path
) -> Project:
    """Two migrations of Alembic, for a database that is empty."""
    assert not sa.inspect(database).get_table_names()
    alembic_migration.make_project(tmp_path)
    (tmp_path / "env.py").write_text(ALEMBIC_ENV)
    (tmp_path / "versions" / "0002_lines.py").write_text(ALEMBIC_SECOND)
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    environment = os.environ | nodes_of(cluster) | {"DATABASE_URL": server.url, "PYTHONPATH": path}
    return Project(["alembic", "upgrade", "head"], alembic_migration.LOCK, tmp_path, environment)


@pytest.fixture
def with_django(cluster: LocalCluster, tmp_path: Path) -> Project:
    """Three migrations of Django, with a database in SQLite."""
    environment = django_migrate.make_project(tmp_path)
    shop = tmp_path / "shop"
    (shop / "management" / "commands" / "migrate_once.py").write_text(DJANGO_COMMAND)
    (shop / "migrations" / "0002_second.py").write_text(DJANGO_SECOND)
    (shop / "migrations" / "0003_third.py").write_text(DJANGO_THIRD)
    lock = (*django_migrate.LOCK, "default")
    return Project(
        ["django", "migrate_once", "--verbosity=0"], lock, tmp_path, environment | nodes_of(cluster)
    )


@pytest.fixture
def client(cluster: LocalCluster) -> Iterator[holdfast.SyncClient]:
    """Return a client of three nodes."""
    with holdfast.SyncClient(urls(cluster)) as client:
        yield client


def is_paused(process: subprocess.Popen[str]) -> Callable[[], bool]:
    """Return whether a process is paused, to be waited for."""
    return lambda: stat_of(process.pid)[:1] == ["T"]


def wait_disturbed(process: subprocess.Popen[str]) -> str:
    """Wait until the second migration is under way, and return what was printed before."""
    assert process.stdout is not None
    printed = ""
    while not printed.endswith("disturbed\n"):
        line = process.stdout.readline()
        assert line, process.communicate()
        printed += line
    return printed


def version(database: sa.Engine) -> str:
    """Return what the database is migrated to."""
    with database.connect() as connection:
        return str(connection.execute(sa.text("SELECT version_num FROM alembic_version")).scalar_one())


def orders(folder: Path) -> int:
    """Return how many orders the second migration of Django has made."""
    with contextlib.closing(sqlite3.connect(folder / "shop.db")) as connection:
        return int(connection.execute("SELECT count(*) FROM shop_order").fetchone()[0])


def migrate_after_a_killed_one(project: Project) -> str:
    """Kill a process in the second migration, and return what the next one prints."""
    with project.migrating(SHORT_LEASE_S, "hangs") as killed:
        assert wait_disturbed(killed) == "creating the table\nsecond\ndisturbed\n"
    with project.migrating() as following:
        printed, errors = following.communicate(timeout=DEADLINE_S)
    assert following.returncode == 0, errors
    return printed


def test_alembic_goes_on_after_a_killed_process(with_alembic: Project, database: sa.Engine) -> None:
    """What a killed process had done stays, what it was doing is done by the next, when the lease ends."""
    assert migrate_after_a_killed_one(with_alembic) == "second\n"
    assert version(database) == "0002"


def test_django_goes_on_after_a_killed_process(with_django: Project, tmp_path: Path) -> None:
    """What a killed process had done stays, what it was doing is done by the next, when the lease ends."""
    assert migrate_after_a_killed_one(with_django) == "second\nthird\n"
    assert orders(tmp_path) == 1


def test_alembic_rolls_back_what_was_done_without_the_lock(
    with_alembic: Project, database: sa.Engine
) -> None:
    """A process that slept through its lease, amid a migration, commits nothing; the one after it does."""
    waiting = sa.text("SELECT count(*) FROM pg_locks WHERE NOT granted")

    def waits() -> bool:
        with database.connect() as connection:
            return bool(connection.execute(waiting).scalar_one())

    with with_alembic.migrating(SHORT_LEASE_S, "is paused") as late:
        wait_disturbed(late)
        wait_until(is_paused(late), "the first is paused in its transaction")
        with with_alembic.migrating() as following:
            wait_until(waits, "the next has the lock, and waits for the transaction")
            late.send_signal(signal.SIGCONT)
            printed, errors = late.communicate(timeout=DEADLINE_S)
            assert late.returncode not in (0, None), errors
            assert "FAILED: the lock of the migration: " in printed
            printed, errors = following.communicate(timeout=DEADLINE_S)
            assert (following.returncode, printed) == (0, "second\n"), errors
    assert version(database) == "0002"


def test_django_begins_no_migration_without_the_lock(with_django: Project, tmp_path: Path) -> None:
    """A process that slept through its lease ends the migration that it is in, and begins no other one."""
    with with_django.migrating(SHORT_LEASE_S, "is paused") as late:
        wait_disturbed(late)
        wait_until(is_paused(late), "the first is paused in the second migration")
        with with_django.migrating() as following:
            printed, errors = following.communicate(timeout=DEADLINE_S)
            assert (following.returncode, printed) == (0, "second\nthird\n"), errors
        late.send_signal(signal.SIGCONT)
        printed, errors = late.communicate(timeout=DEADLINE_S)
    assert (late.returncode, printed) == (1, "")
    assert errors.startswith("CommandError: the lock of the migration: ")
    assert orders(tmp_path) == 2  # both have done the one that it was in


def test_without_holdfast_alembic_does_nothing(with_alembic: Project, database: sa.Engine) -> None:
    """When no node answers that is said in one sentence, and the database is as it was."""
    (port,) = ports.reserve(1)
    with with_alembic.migrating(HOLDFAST_NODES=f"{ports.HOST}:{port}", ANSWER_S="0.5") as alone:
        printed, errors = alone.communicate(timeout=DEADLINE_S)
    assert alone.returncode not in (0, None), errors
    assert printed.strip().startswith("FAILED: the lock of the migration: ")
    assert sa.inspect(database).get_table_names() == []


def test_without_holdfast_django_does_nothing(with_django: Project, tmp_path: Path) -> None:
    """When no node answers that is said in one sentence, and no database is made."""
    (port,) = ports.reserve(1)
    with with_django.migrating(HOLDFAST_NODES=f"{ports.HOST}:{port}", ANSWER_S="0.5") as alone:
        printed, errors = alone.communicate(timeout=DEADLINE_S)
    assert (alone.returncode, printed) == (1, "")
    assert errors.startswith("CommandError: the lock of the migration: ")
    assert not (tmp_path / "shop.db").exists()


def test_django_does_not_wait_for_ever(
    with_django: Project, client: holdfast.SyncClient, tmp_path: Path
) -> None:
    """While another one migrates for longer than WAIT_S, the command fails, and says who it is."""
    with client.lock(with_django.lock), with_django.migrating(WAIT_S="0.1") as second:
        printed, errors = second.communicate(timeout=DEADLINE_S)
    assert (second.returncode, printed) == (1, "")
    assert errors.startswith("CommandError: the lock of the migration: ")
    assert not (tmp_path / "shop.db").exists()
