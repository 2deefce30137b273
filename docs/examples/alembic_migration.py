"""Alembic under a lock: however many run `alembic upgrade head` at once, each migration runs once.

`env.py` calls `run_migrations`. Run this with the nodes in HOLDFAST_NODES: it makes a project, and a database
in SQLite, in a temporary folder, and upgrades it from three processes at once.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from alembic import context, util

import holdfast

LOCK = ("migration", "shop")  # each database has a name of its own, the same for all that migrate it
LEASE_S = 30.0
"""Seconds after which another one migrates if the process that did so has died."""
WAIT_S = 600.0
"""For so long others wait: for longer than LEASE_S, and than migrating takes."""
PROCESSES_COUNT = 3


def run_migrations(client: holdfast.SyncClient, database: sa.Engine, **options: Any) -> None:
    """Run Alembic's command under the lock; the second process finds that it is done.

    To be called by env.py; the options are those of `context.configure`. Raises CommandError.
    """
    try:
        client.inspect(LOCK)  # without an answer this fails now, and not after WAIT_S
        with client.lock(LOCK, ttl=LEASE_S, wait=WAIT_S) as hold, database.connect() as connection:
            context.configure(
                connection=connection,
                transaction_per_migration=True,  # what is done stays done if a later one fails
                # Before the commit of each: what was done without the lock is rolled back.
                on_version_apply=lambda **_: hold.ensure_valid(),
                **options,
            )
            with context.begin_transaction():
                context.run_migrations()
    except holdfast.LockError as error:
        raise util.CommandError(f"the lock of the migration: {error}") from error


ENV = """
import sqlalchemy as sa
from alembic import context

import holdfast
from alembic_migration import run_migrations

database = sa.create_engine(context.config.get_main_option("sqlalchemy.url"))
with holdfast.SyncClient() as client:
    run_migrations(client, database, target_metadata=None)
"""
MIGRATION = """
import sqlalchemy as sa
from alembic import op

revision, down_revision = "0001", None


def upgrade() -> None:
    print("creating the table", flush=True)
    op.create_table("orders", sa.Column("id", sa.Integer, primary_key=True))
"""


def make_project(folder: Path) -> None:
    """Write what `alembic init` would make, with a migration."""
    (folder / "alembic.ini").write_text(
        f"[alembic]\nscript_location = %(here)s\nprepend_sys_path = {Path(__file__).parent}\n"
        "path_separator = newline\nsqlalchemy.url = sqlite:///%(here)s/shop.db\n"
    )
    (folder / "env.py").write_text(ENV)
    (folder / "versions").mkdir()
    (folder / "versions" / "0001_orders.py").write_text(MIGRATION)


def main() -> int:
    """Migrate from several processes at once; return 0 if all of them went well."""
    with tempfile.TemporaryDirectory() as folder:
        make_project(Path(folder))
        processes = [
            subprocess.Popen(
                [sys.executable, "-m", "alembic", "upgrade", "head"],
                cwd=folder,
                env=os.environ,
                stdout=subprocess.PIPE,
                text=True,
            )
            for _ in range(PROCESSES_COUNT)
        ]
        printed = "".join(process.communicate()[0] for process in processes)
    print(f"{len(processes)} processes ended with {[process.returncode for process in processes]}")
    print(f"runs of the migration: {printed.count('creating')}")
    return max(process.returncode for process in processes)


if __name__ == "__main__":
    sys.exit(main())
