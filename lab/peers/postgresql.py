"""PostgreSQL: one server that syncs every commit, and has no copy.

A lock is a row: inserted if there is none or its time is over, deleted if it is still ours; each is a
transaction of its own. (Advisory locks are faster and something else: they are in memory, and end with it.)
"""

import os
import secrets
import signal
import struct
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from lab.peers.closed_loop import Lean, Worker
from lab.peers.connection import Answered, Connection
from lab.peers.system import Running, Way, find_program, free_addresses, programs
from scripts.lib import ports
from scripts.local_cluster import ClusterFailure

FOLDER: Final = "usr/lib/postgresql/*/bin"
USER: Final = "postgres"
"""Whose server it is: PostgreSQL refuses to run as root."""
_TABLE: Final = (
    "CREATE TABLE locks (name text PRIMARY KEY, owner text NOT NULL, expires_at timestamptz NOT NULL)"
)
_ACQUIRE: Final = (
    b"INSERT INTO locks VALUES ($1, $2, now() + interval '30 s') ON CONFLICT (name) DO UPDATE"
    b" SET owner = excluded.owner, expires_at = excluded.expires_at WHERE locks.expires_at < now()"
)
_RELEASE: Final = b"DELETE FROM locks WHERE name = $1 AND owner = $2"
_HEAD: Final = struct.Struct("!ci")
"""Of a message: its kind, and its length with the length itself."""
_PROTOCOL: Final = 3 << 16
_EXECUTE_AND_SYNC: Final = b"E\0\0\0\x09\0\0\0\0\0" + b"S\0\0\0\4"


def message(kind: bytes, body: bytes) -> bytes:
    """Return a message."""
    return kind + struct.pack("!i", len(body) + 4) + body


class Rows(Connection):
    """A connection with two prepared statements, `a` and `r`. `answered` gets what was done, or an error."""

    def __init__(self) -> None:
        super().__init__()
        self._owner = secrets.token_hex(16).encode()
        self._said = b""
        self._greetings_due = 2
        """How often it says that it is ready before it has the statements: after the login, and with them."""

    def greet(self) -> None:
        """Say who we are, and prepare the statements."""
        body = struct.pack("!i", _PROTOCOL) + b"user\0%b\0database\0postgres\0\0" % USER.encode()
        self.put(
            message(b"", body)
            + message(b"P", b"a\0" + _ACQUIRE + b"\0\0\0")
            + message(b"P", b"r\0" + _RELEASE + b"\0\0\0")
            + message(b"S", b"")
        )

    def acquire(self, worker: Worker) -> None:
        """Insert the row."""
        self._ask(worker, b"a", self._inserted)

    @staticmethod
    def _inserted(worker: Worker, said: bytes) -> None:
        if said == b"INSERT 0 1\0":
            worker.acquired(b"")
        else:
            worker.failed(f"not acquired: {said.decode(errors='replace')}")

    def release(self, worker: Worker, held: bytes) -> None:
        """Delete the row."""
        del held
        self._ask(worker, b"r", self._deleted)

    @staticmethod
    def _deleted(worker: Worker, said: bytes) -> None:
        if said == b"DELETE 1\0":
            worker.released()
        else:
            worker.failed(f"not released: {said.decode(errors='replace')}")

    def _ask(self, worker: Worker, statement: bytes, answered: Answered) -> None:
        """Run a statement with the name and the owner as its parameters."""
        name = worker.name.encode()
        parameters = struct.pack("!hhi", 0, 2, len(name)) + name
        parameters += struct.pack("!i", len(self._owner)) + self._owner + b"\0\0"
        self.due.append((worker, answered))
        self.put(message(b"B", b"\0" + statement + b"\0" + parameters) + _EXECUTE_AND_SYNC)

    def take(self, data: bytes) -> int:
        """Read whole messages; an answer is over when the server is ready for the next request."""
        used = 0
        while len(data) >= used + _HEAD.size:
            kind, size = _HEAD.unpack_from(data, used)
            begin, end = used + _HEAD.size, used + 1 + size
            if len(data) < end:
                break
            used = end
            if kind in (b"C", b"E"):  # what was done, or an error
                self._said = data[begin:end]
            elif kind == b"Z":
                self._is_ready()
        return used

    def _is_ready(self) -> None:
        said, self._said = self._said, b""
        if self.ready.done():
            worker, answered = self.due.popleft()
            answered(worker, said)
        elif said:
            self.ready.set_exception(ConnectionError(said.decode(errors="replace")))
        else:
            self._greetings_due -= 1
            if not self._greetings_due:
                self.ready.set_result(None)


class PostgreSql:
    """PostgreSQL, one server."""

    name: Final = "postgresql"
    nodes: Final = 1

    def missing(self) -> list[str]:
        """Return the package of PostgreSQL unless it is there."""
        return [] if find_program("initdb", FOLDER) and find_program("postgres", FOLDER) else ["postgresql"]

    @contextmanager
    def running(self, directory: Path, workers: int) -> Iterator[Running]:
        """Make a database, and start its server."""
        data = directory / "data"
        data.mkdir(mode=0o700)
        as_user = _as_user(data)
        _run([*as_user, _program("initdb"), "-D", str(data), "-U", USER, "-A", "trust", "--locale=C"])
        (address,) = free_addresses(1)
        options = {
            "listen_addresses": ports.HOST,
            "port": str(address.port),
            "unix_socket_directories": "",
            "max_connections": str(workers + 10),
            "dynamic_shared_memory_type": "mmap",  # files that go with the folder, also after kill -9
            "fsync": "on",
            "synchronous_commit": "on",
        }
        argv = [*as_user, _program("postgres"), "-D", str(data)]
        argv += [word for key, value in options.items() for word in ("-c", f"{key}={value}")]
        url = f"host={address.host} port={address.port} user={USER} dbname=postgres"

        async def own(workers: int) -> Sequence[Lean]:
            return [await Rows.open(address) for _ in range(workers)]

        with programs(self.name, stop=signal.SIGINT) as started:  # by SIGTERM it would wait for its clients
            started.start(argv, directory / "log")
            ready = [_program("pg_isready"), "--quiet", "--dbname", url]
            started.wait(lambda: subprocess.run(ready, check=False).returncode == 0)
            _run([_program("psql"), "--quiet", "--no-psqlrc", "--dbname", url, "--command", _TABLE])
            yield Running(started.pids, [Way("postgresql", "PostgreSQL, a row", own)])


def _program(name: str) -> str:
    path = find_program(name, FOLDER)
    assert path, "asked before: missing()"
    return path


def _as_user(data: Path) -> list[str]:
    """Return what to put before a command so that it may run; the data folder becomes that user's."""
    if os.geteuid() != 0:
        return []
    subprocess.run(["chown", USER, str(data)], check=True)
    return ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups", "--"]


def _run(argv: Sequence[str]) -> None:
    done = subprocess.run(argv, capture_output=True, text=True, check=False, cwd="/")
    if done.returncode != 0:
        raise ClusterFailure(f"{Path(argv[0]).name} failed:\n{done.stdout}{done.stderr}")
