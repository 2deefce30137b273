"""The program: start, be ready, serve, stop when told; or refuse with the exit code that says why."""

import contextlib
import json
import os
import re
import resource
import signal
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]
DEADLINE_S = 30

pytestmark = pytest.mark.process


def _start(*arguments: str) -> subprocess.Popen[str]:
    environ = {key: value for key, value in os.environ.items() if not key.startswith("HOLDFAST_")}
    command = [sys.executable, "-m", "http_api", *arguments]
    return subprocess.Popen(
        command, cwd=ROOT, env=environ, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


class Program:
    """A running node and the lines it has logged."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.lines: list[str] = []

    def wait_ready(self) -> str:
        """Return the URL of the ready line."""
        return self.wait_line(r"event=ready .* http=(\S+)")

    def wait_line(self, pattern: str) -> str:
        """Return what the last group of the pattern matches in the next line that has it."""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append(line)
            if found := re.search(pattern, line):
                return found.group(found.re.groups)
        raise AssertionError("".join(self.lines))

    def stop(self, number: signal.Signals) -> int:
        """Send a signal and return the exit code."""
        self.process.send_signal(number)
        _, rest = self.process.communicate(timeout=DEADLINE_S)
        self.lines.append(rest)
        return self.process.returncode


@contextlib.contextmanager
def _running(tmp_path: Path, *arguments: str) -> Iterator[Program]:
    """Run a node of its own on free ports; its address for clients is the given one, if there is any."""
    free = ["--peer", "127.0.0.1:0", "--data-dir", str(tmp_path / "data")]
    if all(word.startswith("unix:") for flag, word in pairwise(arguments) if flag == "--http"):
        free += ["--http", "127.0.0.1:0"]
    with _start(*free, *arguments) as process:
        watchdog = threading.Timer(2 * DEADLINE_S, process.kill)
        watchdog.start()
        try:
            yield Program(process)
        finally:
            watchdog.cancel()
            process.kill()


def _post(url: str, body: dict[str, Any]) -> tuple[int, Any]:
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=DEADLINE_S) as response:
            return response.status, json.load(response)
    except urllib.error.HTTPError as problem:
        with problem:
            return problem.code, json.load(problem)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_node_serves_until_it_is_told_to_stop(tmp_path: Path, number: signal.Signals) -> None:
    """A node logs where it is ready, grants a lock, and ends with 0 when asked to."""
    with _running(tmp_path) as program:
        url = program.wait_ready()
        status, hold = _post(f"{url}/v1/locks/acquire", {"name": "a", "ttl_ms": 60_000})
        assert (status, hold["token"]) == (200, 1)
        assert program.stop(number) == 0
    assert "event=stopped" in "".join(program.lines)


def test_a_node_leaves_no_core_file(tmp_path: Path) -> None:
    """One would hold all secrets."""
    with _running(tmp_path) as program:
        program.wait_ready()
        assert resource.prlimit(program.process.pid, resource.RLIMIT_CORE) == (0, 0)


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2])
def test_other_signals_do_not_end_a_node(tmp_path: Path, number: signal.Signals) -> None:
    """They are logged, and the node serves on; a supervisor may send any of them."""
    with _running(tmp_path) as program:
        url = program.wait_ready()
        program.process.send_signal(number)
        said = program.wait_line(r"event=(signal-ignored|secret-not-read) (.*)")
        assert number.name in said or number == signal.SIGHUP
        assert _post(f"{url}/v1/locks/acquire", {"name": "a", "ttl_ms": 60_000})[0] == 200
        assert program.stop(signal.SIGTERM) == 0
    assert "event=stopped" in "".join(program.lines)


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2])
def test_signals_at_the_start_do_not_end_a_node(number: signal.Signals) -> None:
    """Before there is a loop to handle them, they are ignored."""
    program = f"""
import os, signal, sys
from http_api import __main__, signals

def load(*_):
    os.kill(os.getpid(), {int(number)})
    raise __main__.StartupError("as far as this test goes")

__main__.load = load
sys.exit(__main__.main([]))
"""
    ended = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, timeout=DEADLINE_S, check=False
    )
    assert ended.returncode == 1, ended.stderr


def test_a_node_without_a_leader_listens_and_is_not_ready(tmp_path: Path) -> None:
    """The line `ready` waits for what /readyz waits for."""
    peers = "n1=127.0.0.1:1,n2=127.0.0.1:2,n3=127.0.0.1:3"
    with _running(tmp_path, "--peers", peers, "--secret", "the secret of this test") as program:
        url = program.wait_line(r"event=listening .* http=(\S+)")
        with pytest.raises(urllib.error.HTTPError, match="503") as refused:
            urllib.request.urlopen(f"{url}/readyz", timeout=DEADLINE_S)
        refused.value.close()
        with urllib.request.urlopen(f"{url}/v1/cluster", timeout=DEADLINE_S) as response:
            view = json.load(response)
        assert (view["ready"], view["leader"], view["lag_ms"]) == (False, None, None)
        assert program.stop(signal.SIGTERM) == 0
    assert "event=ready" not in "".join(program.lines)


def test_idle_connections_are_closed_at_once(tmp_path: Path) -> None:
    """A client that keeps its connection open does not delay the stop."""
    with _running(tmp_path) as program:
        host, _, port = program.wait_ready().removeprefix("http://").partition(":")
        with socket.create_connection((host, int(port)), DEADLINE_S) as idle:
            idle.sendall(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
            assert idle.recv(4096).startswith(b"HTTP/1.1 200 OK\r\n")
            assert program.stop(signal.SIGTERM) == 0
            assert idle.recv(4096) == b""


def test_a_lock_survives_a_restart(tmp_path: Path) -> None:
    """What was granted before a stop is still held after the next start."""
    with _running(tmp_path) as program:
        _post(f"{program.wait_ready()}/v1/locks/acquire", {"name": "a", "ttl_ms": 60_000, "owner": "one"})
        assert program.stop(signal.SIGTERM) == 0
    with _running(tmp_path) as program:
        status, problem = _post(f"{program.wait_ready()}/v1/locks/acquire", {"name": "a", "ttl_ms": 1000})
        assert (status, problem["code"]) == (409, "lock-held")
        assert problem["holders"][0]["owner"] == "one"


def test_a_waiter_hears_that_the_node_stops(tmp_path: Path) -> None:
    """A stop does not wait for waiters, nor leave them without an answer."""
    with _running(tmp_path, "--log-level", "debug") as program:
        assert _stop_with_waiter(program) == 0


def test_a_disk_that_fails_while_a_node_stops(tmp_path: Path) -> None:
    """A node that cannot write what is left to do has not ended as asked; clients hear the same."""
    with _running(tmp_path) as program:
        assert _stop_with_waiter(program, file_bytes_max=1) == 70
    assert "event=stopped" not in "".join(program.lines)


def _stop_with_waiter(program: Program, file_bytes_max: int = resource.RLIM_INFINITY) -> int:
    """Stop a node at which a client waits, and return the exit code; the waiter has to get an answer.

    The node takes the wait back, for nobody can ask for its outcome again: it has to write that.
    """
    url = program.wait_ready()
    body = {"name": "a", "ttl_ms": 60_000}
    _post(f"{url}/v1/locks/acquire", body)
    answers: list[tuple[int, Any]] = []
    waiter = threading.Thread(
        target=lambda: answers.append(_post(f"{url}/v1/locks/acquire", {**body, "wait_ms": 60_000}))
    )
    waiter.start()
    with contextlib.ExitStack() as stack:
        stack.callback(waiter.join, DEADLINE_S)
        _until_queued(url)
        resource.prlimit(program.process.pid, resource.RLIMIT_FSIZE, (file_bytes_max, resource.RLIM_INFINITY))
        code = program.stop(signal.SIGTERM)
    ((status, problem),) = answers
    assert status in (503, 504)
    assert problem["code"] in ("shutting-down", "outcome-unknown")
    return code


def _until_queued(url: str) -> None:
    """Wait until somebody is in the queue: each read takes a turn of the log, so this does not spin."""
    queue: list[Any] = []
    while not queue:
        with urllib.request.urlopen(f"{url}/v1/locks/a", timeout=DEADLINE_S) as response:
            queue = json.load(response)["queue"]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--http", "nonsense"], 2, "http: 'nonsense' (flag --http): must be HOST:PORT"),
        (["--unknown"], 2, "unrecognized arguments: --unknown"),
        (["--peers", "n1=127.0.0.1:1,n2=127.0.0.1:2"], 2, "secret: '' (default): "),
    ],
)
def test_wrong_configuration_ends_with_2(arguments: list[str], code: int, message: str) -> None:
    """A wrong setting is one clear line on standard error, without a traceback."""
    with _start(*arguments) as process:
        _, said = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == code
    assert said.startswith(f"holdfast-node: {message}")
    assert said.count("\n") == 1


def test_an_address_in_use_ends_with_1(tmp_path: Path) -> None:
    """A taken port is named, before the data directory is touched."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with _start("--http", address, "--data-dir", str(tmp_path / "data")) as process:
            _, said = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 1
    assert f"http: {address}: cannot listen" in said
    assert "`ss -ltnp` shows it" in said
    assert not (tmp_path / "data").exists()


def test_a_node_that_is_started_twice_ends_with_3(tmp_path: Path) -> None:
    """As by hand beside systemd: it is told so, not that its address is taken, and not started again."""
    with _running(tmp_path) as program:
        address = str(program.wait_ready()).removeprefix("http://")
        with _start("--http", address, "--data-dir", str(tmp_path / "data")) as second:
            _, said = second.communicate(timeout=DEADLINE_S)
    assert second.returncode == 3
    assert f"{tmp_path / 'data'}: the data directory is in use by another process" in said


def test_a_data_directory_in_use_ends_with_3(tmp_path: Path) -> None:
    """A second node on the same directory refuses to start."""
    with _running(tmp_path) as program:
        program.wait_ready()
        with _start(
            "--http", "127.0.0.1:0", "--peer", "127.0.0.1:0", "--data-dir", str(tmp_path / "data")
        ) as second:
            _, said = second.communicate(timeout=DEADLINE_S)
        assert second.returncode == 3
        assert str(tmp_path / "data") in said


def test_help_and_version_end_with_0() -> None:
    """Help shows every source of settings and an example; the version is one line."""
    for flag, text in (("--help", "holdfast-node --config"), ("--version", "holdfast-node ")):
        with _start(flag) as process:
            said, _ = process.communicate(timeout=DEADLINE_S)
        assert process.returncode == 0
        assert text in said


@pytest.mark.parametrize("place", ["Node.start", "Loop._on_timer", "PeerLinks.ping"])
def test_memory_that_runs_out_ends_the_node_with_70(tmp_path: Path, place: str) -> None:
    """At the start, in a tick, or where nobody catches it: never with the exit code of a wrong setting."""
    program = f"""
import sys
from cluster.loop import Loop
from cluster.node import Node
from cluster.peers.links import PeerLinks
from http_api.__main__ import main

def run_out(*_):
    raise MemoryError

{place} = run_out
sys.exit(main(sys.argv[1:]))
"""
    free = ("--http", "127.0.0.1:0", "--peer", "127.0.0.1:0", "--data-dir", str(tmp_path / "data"))
    ended = subprocess.run(
        [sys.executable, "-c", program, *free],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert ended.returncode == 70
    assert "MemoryError" in ended.stderr
