"""Django's `migrate` under a lock: however many start it at once, each migration runs once.

Copy `Command` to `management/commands/migrate_once.py` of an app, and deploy with `manage.py migrate_once`.
Run this with the nodes in HOLDFAST_NODES: it makes a project, and a database in SQLite, in a temporary
folder, and migrates it from three processes at once.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from django.core.management import CommandError
from django.core.management.commands import migrate

import holdfast

LOCK = ("migration", "shop")  # one for each project; the name of the database comes behind it
LEASE_S = 30.0
"""Seconds after which another one migrates if the process that did so has died."""
WAIT_S = 600.0
"""For so long others wait: for longer than LEASE_S, and than migrating takes."""
ANSWER_S = 10.0
"""For so long Holdfast may take to answer, as while it elects a leader; then nothing is migrated."""
PROCESSES_COUNT = 3


class Command(migrate.Command):
    """`migrate` with all its options, under a lock; the second process finds nothing left to do."""

    help = "Migrates as `migrate` does, but waits while another machine migrates."

    def execute(self, *args: Any, **options: Any) -> str | None:
        """Check and migrate under the lock; do not connect to the database before. Raises CommandError."""
        lock = (*LOCK, options["database"])
        try:
            with holdfast.SyncClient(timeout=ANSWER_S) as client:
                client.inspect(lock)  # without an answer this fails now, and not after WAIT_S
                with client.lock(lock, ttl=LEASE_S, wait=WAIT_S) as self.hold:
                    return super().execute(*args, **options)
        except holdfast.LockError as error:
            raise CommandError(f"the lock of the migration: {error}") from error

    def migration_progress_callback(self, action: str, *args: Any, **kwargs: Any) -> None:
        """Begin no migration without the lock. Raises LeaseLost."""
        if action in ("apply_start", "unapply_start"):
            self.hold.ensure_valid()
        super().migration_progress_callback(action, *args, **kwargs)


SETTINGS = """
from pathlib import Path

DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": Path(__file__).parent / "shop.db"}}
INSTALLED_APPS = ["shop"]
"""
MIGRATION = """
from django.db import migrations, models


def tell(apps, schema_editor):
    print("creating the table", flush=True)


class Migration(migrations.Migration):
    operations = [
        migrations.RunPython(tell),
        migrations.CreateModel("Order", [("id", models.AutoField(primary_key=True))]),
    ]
"""
FILES = {
    "settings.py": SETTINGS,
    "shop/__init__.py": "",
    "shop/management/commands/migrate_once.py": "from django_migrate import Command",
    "shop/migrations/__init__.py": "",
    "shop/migrations/0001_initial.py": MIGRATION,
}


def make_project(folder: Path) -> dict[str, str]:
    """Write a project with one app, and return the environment that it runs in."""
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    path = os.pathsep.join([str(folder), str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    return {**os.environ, "PYTHONPATH": path, "DJANGO_SETTINGS_MODULE": "settings"}


def main() -> int:
    """Migrate from several processes at once; return 0 if all of them went well."""
    with tempfile.TemporaryDirectory() as folder:
        environment = make_project(Path(folder))
        processes = [
            subprocess.Popen(
                [sys.executable, "-m", "django", "migrate_once"],
                env=environment,
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
