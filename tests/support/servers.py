"""PostgreSQL, Redis and proxies for tests: each a process of its own, on a free port, in a folder of its own.

    with servers.postgresql() as server:
        ...  # server.url; server.restart()

A server that runs on this machine anyway is left alone. A test that asks for a program that is missing is
skipped. PostgreSQL refuses to run as root: then it runs as the user that its package has made. A server ends
with the block, and its folder is removed; when the test run is killed, the guard of the run sees to that.
"""

import contextlib
import os
import pwd
import re
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

import pytest

from scripts.lib import guardian, ports
from tests.support.processes import wait_until

START_S: Final = 60.0
STOP_S: Final = 30.0
COMMAND_S: Final = 120.0
USER: Final = "postgres"
"""Whom PostgreSQL runs as when the tests run as root."""
POSTGRESQL: Final = Path("/usr/lib/postgresql")
"""Where Debian keeps its programs, by version: they are not on PATH."""


class Server:
    """One server, for one thread. `url` is where clients reach it, with the password."""

    def __init__(
        self,
        argv: Sequence[str],
        folder: Path,
        port: int,
        url: str,
        answers: Callable[[str], bool],
    ) -> None:
        self.folder = folder
        self.port = port
        self.url = url
        self._argv = argv
        self.answers = answers
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """The process, which has been started."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start the process, and wait until it answers. Fails the test with its last words if it ends."""
        log = self.folder / "log"
        with log.open("ab") as output:
            self._process = process = subprocess.Popen(
                self._argv,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=self.folder,
                env=os.environ | {"LC_ALL": "C"},
            )
        wait_until(
            lambda: process.poll() is not None or self.answers(self.url), f"{self._argv[0]} answers", START_S
        )
        assert process.poll() is None, log.read_text(errors="replace")

    def end(self, number: signal.Signals) -> None:
        """End the process by a signal, or by SIGKILL if it stays; one that has ended is left alone."""
        process = self._process
        assert process is not None
        process.send_signal(number)
        try:
            process.wait(STOP_S)
        finally:
            process.kill()
            process.wait()

    def restart(self, number: signal.Signals) -> None:
        """End it by a signal, which decides how orderly that is, and start it again where it was."""
        self.end(number)
        self.start()


@contextlib.contextmanager
def postgresql() -> Iterator[Server]:
    """Run PostgreSQL; `url` is for SQLAlchemy. SIGINT ends it in order, SIGQUIT as a crash would."""
    # Its driver loads the libpq that the packages of PostgreSQL bring.
    psycopg = pytest.importorskip(
        "psycopg", reason="needs libpq: apt-get install libpq5", exc_type=ImportError
    )
    programs = _postgresql_programs()
    if programs is None:
        pytest.skip("needs PostgreSQL: apt-get install postgresql")
    user = _user_of_postgresql() if os.geteuid() == 0 else None
    as_user = (
        ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"] if user else []
    )
    with _folder("postgresql", user) as folder:
        password = secrets.token_hex(16)
        _write_for(user, folder / "password", password)
        initdb = [str(programs / "initdb"), "--pgdata=data", "--username=test", "--pwfile=password"]
        initdb += ["--auth=scram-sha-256", "--encoding=UTF8", "--locale=C", "--no-sync"]
        _run([*as_user, *initdb], folder)
        (port,) = ports.reserve(1)
        settings = {
            "listen_addresses": ports.HOST,
            "port": str(port),
            "unix_socket_directories": "",
            "fsync": "off",  # its processes crash here, never the machine
            "shared_buffers": "16MB",
            # A server that is killed leaves nothing outside of its folder.
            "shared_memory_type": "mmap",
            "dynamic_shared_memory_type": "mmap",
        }
        argv = [*as_user, str(programs / "postgres"), "-D", "data"]
        argv += [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]

        def answers(url: str) -> bool:
            try:
                psycopg.connect(url.replace("+psycopg", ""), connect_timeout=2).close()
            except psycopg.OperationalError:
                return False
            return True

        url = f"postgresql+psycopg://test:{password}@{ports.HOST}:{port}/postgres"
        server = Server(argv, folder, port, url, answers)
        with _running(server, signal.SIGINT):
            yield server


@contextlib.contextmanager
def redis_server() -> Iterator[Server]:
    """Run Redis, which writes nothing to disk. SIGTERM ends it."""
    redis = pytest.importorskip("redis", reason="needs redis: scripts/test --all installs it")
    program = shutil.which("redis-server")
    if program is None:
        pytest.skip("needs Redis: apt-get install redis-server")
    with _folder("redis", None) as folder:
        password = secrets.token_hex(16)
        (port,) = ports.reserve(1)
        # In a file: what stands in a command line can be read by all. And without a title of its own, which
        # would be written over the environment, by which the guard knows whom it has to end.
        (folder / "redis.conf").write_text(
            f"bind {ports.HOST}\nport {port}\nrequirepass {password}\n"
            'save ""\nappendonly no\nset-proc-title no\n'
        )

        def answers(url: str) -> bool:
            with redis.Redis.from_url(url, socket_timeout=2) as client:
                try:
                    client.ping()
                except (redis.ConnectionError, redis.TimeoutError):
                    return False
                return True

        url = f"redis://:{password}@{ports.HOST}:{port}/0"
        server = Server([program, str(folder / "redis.conf")], folder, port, url, answers)
        with _running(server, signal.SIGTERM):
            yield server


@contextlib.contextmanager
def nginx(http: str, port: int) -> Iterator[Server]:
    """Run nginx with this in its `http` block, which listens on `port`."""
    program = _program("nginx")
    with _folder("nginx", None) as folder:
        kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        paths = " ".join([f"{kind}_temp_path {folder / kind};" for kind in kinds])
        user = "user root;\n" if os.geteuid() == 0 else ""
        (folder / "nginx.conf").write_text(
            f"{user}daemon off;\npid {folder / 'pid'};\nerror_log stderr;\nevents {{}}\n"
            f"http {{ access_log off; {paths}\n{http}\n}}\n"
        )
        argv = [program, "-p", str(folder), "-c", str(folder / "nginx.conf"), "-e", "stderr"]
        server = Server(argv, folder, port, f"{ports.HOST}:{port}", _listens)
        with _running(server, signal.SIGTERM):
            yield server


@contextlib.contextmanager
def haproxy(config: str, port: int) -> Iterator[Server]:
    """Run HAProxy with this configuration, which listens on `port`."""
    program = _program("haproxy")
    with _folder("haproxy", None) as folder:
        (folder / "haproxy.cfg").write_text(config)
        argv = [program, "-db", "-f", str(folder / "haproxy.cfg")]
        server = Server(argv, folder, port, f"{ports.HOST}:{port}", _listens)
        with _running(server, signal.SIGTERM):
            yield server


def _program(name: str) -> str:
    """Return where a program is. Skips the test if it is missing."""
    found = shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if found is None:
        pytest.skip(f"needs {name}: apt-get install {name}")
    return found


def _listens(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=2).close()
    except OSError:
        return False
    return True


@contextlib.contextmanager
def _running(server: Server, stop: signal.Signals) -> Iterator[None]:
    """Let a server run inside this block; end it by `stop`."""
    try:
        server.start()
        yield
    finally:
        server.end(stop)


@contextlib.contextmanager
def _folder(name: str, user: pwd.struct_passwd | None) -> Iterator[Path]:
    """Make a folder for a server. It lies in no other test's, which a user of its own could not enter."""
    folder = Path(tempfile.mkdtemp(prefix=f"holdfast-{name}-"))
    guardian.run_if_killed(["rm", "-rf", str(folder)])
    try:
        if user is not None:
            os.chown(folder, user.pw_uid, user.pw_gid)
        yield folder
    finally:
        shutil.rmtree(folder)


def _write_for(user: pwd.struct_passwd | None, file: Path, text: str) -> None:
    """Write a file of `user`, into a folder that nobody else can enter."""
    file.write_text(text)
    if user is not None:
        os.chown(file, user.pw_uid, user.pw_gid)


def _run(argv: Sequence[str], folder: Path) -> None:
    """Run a command in a folder. Fails the test with what it printed."""
    done = subprocess.run(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=folder,
        timeout=COMMAND_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout


def _user_of_postgresql() -> pwd.struct_passwd:
    """Return the user that PostgreSQL's package has made. Skips the test if there is none."""
    try:
        return pwd.getpwnam(USER)
    except KeyError:
        pytest.skip(f"PostgreSQL does not run as root, and there is no user {USER} that it could run as")


def _postgresql_programs() -> Path | None:
    """Return the folder of PostgreSQL's programs: what is on PATH, or else Debian's newest."""
    if found := shutil.which("initdb"):
        return Path(found).resolve().parent
    versions = [path for path in POSTGRESQL.glob("*/bin") if (path / "postgres").exists()]
    return max(versions, key=lambda path: int(re.sub(r"\D", "", path.parent.name)), default=None)
