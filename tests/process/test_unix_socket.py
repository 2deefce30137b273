"""A node with a Unix socket: who gets in, what clients it serves, and what becomes of the file."""

import contextlib
import json
import os
import re
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import holdfast
from holdfast import wire
from tests.support.both_clients import KINDS, WAYS, client_of
from tests.support.certificates import Certificates
from tests.unit.http_api.serving import token_line
from tests.unit.http_api.test_main import DEADLINE_S, ROOT, Program, _running, _start

pytestmark = pytest.mark.process

TOKEN = "token-of-ann".ljust(40, "x")
ENDED_WITH_2 = re.compile(r"^holdfast-node: http: unix:(\S+): (.*)$", re.MULTILINE)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the socket is to be."""
    return tmp_path / "node.sock"


@contextlib.contextmanager
def _alone(tmp_path: Path, path: Path, *arguments: str) -> Iterator[Program]:
    """Run a node that listens at a Unix socket alone."""
    flags = ("--http", f"unix:{path}", "--peer", "127.0.0.1:0", "--data-dir", str(tmp_path / "data"))
    with _start(*flags, *arguments) as process:
        try:
            yield Program(process)
        finally:
            process.kill()


def _curl(path: Path, what: str, *arguments: str) -> tuple[int, bytes]:
    """Ask with curl, as the manual says; return status and body."""
    command = ["curl", "--silent", "--write-out", "\n%{http_code}", "--unix-socket", str(path), *arguments]
    said = subprocess.run(
        [*command, f"http://localhost{what}"], capture_output=True, timeout=DEADLINE_S, check=True
    ).stdout
    body, _, status = said.rpartition(b"\n")
    return int(status), body


def _refused(*arguments: str) -> str:
    """Return why a node does not start; that is a wrong setting."""
    with _start(*arguments) as process:
        _, said = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 2, said
    found = ENDED_WITH_2.search(said)
    assert found is not None, said
    return found[2]


def test_a_socket_beside_an_address(tmp_path: Path, path: Path) -> None:
    """It has no TLS, but asks for tokens; what it refuses comes from `unix`. It goes with the node."""
    tokens = tmp_path / "tokens"
    tokens.write_bytes(token_line("ann", TOKEN, "read,acquire,admin"))
    files = Certificates(tmp_path / "tls").files(wants_clients=True)
    tls = (
        "--tls-cert",
        str(files.cert),
        "--tls-key",
        str(files.key),
        "--tls-client-ca",
        str(files.client_ca),
    )
    bearer = ("--header", f"{wire.HEADER_AUTHORIZATION}: {wire.BEARER} {TOKEN}")
    with _running(tmp_path, "--http", f"unix:{path}", "--tokens", str(tokens), *tls) as program:
        assert re.fullmatch(rf"https://127\.0\.0\.1:\d+,unix:{re.escape(str(path))}", program.wait_ready())
        assert stat.S_IMODE(path.stat().st_mode) == 0o660
        assert _curl(path, wire.LIVEZ)[0] == 200
        assert _curl(path, wire.LOCKS)[0] == 401
        assert _curl(path, wire.LOCKS, *bearer)[0] == 200
        status, body = _curl(path, wire.REFUSALS, *bearer)
        assert status == 200
        assert [row["address"] for row in json.loads(body)["refusals"]] == ["unix"]
        assert program.stop(signal.SIGTERM) == 0
    assert not [*tmp_path.glob("node.sock*")]
    assert "insecure-address" not in "".join(program.lines)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", KINDS)
async def test_both_clients_use_a_socket(tmp_path: Path, path: Path, kind: str, way: str) -> None:
    """Over HTTP and over a stream, with waits and watches; a node that has no other door is one, too."""
    with _alone(tmp_path, path) as program:
        url = program.wait_ready()
        assert url == f"unix:{path}"
        async with (
            client_of(kind, url, way=way) as client,
            client_of(kind, [url], way=way) as other,
            other.watch("a") as watch,
        ):
            await watch.begin()
            async with client.lock("a", wait=10) as hold:
                assert await other.lock("a").try_acquire() is None
            async with other.lock("a", wait=10) as later:
                assert later.token > hold.token
            assert (await anext(watch)).token == hold.token
            (node,) = (await client.cluster()).nodes
            assert node.http == url
        assert program.stop(signal.SIGTERM) == 0


def test_the_command_uses_a_socket(tmp_path: Path, path: Path) -> None:
    """Named by a flag or by the environment; without anybody there it says which socket it is."""
    command = [sys.executable, "-m", "holdfast"]
    environ = {key: value for key, value in os.environ.items() if not key.startswith("HOLDFAST_")}

    def line(*words: str, nodes: str = "") -> tuple[int, str]:
        ended = subprocess.run(
            [*command, *words],
            cwd=ROOT,
            env=environ | {"HOLDFAST_NODES": nodes},
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )
        return ended.returncode, ended.stdout + ended.stderr

    with _alone(tmp_path, path) as program:
        url = program.wait_ready()
        assert line("--nodes", url, "run", "a", "--", "true") == (0, "")
        assert line("status", nodes=url)[0] == 0
        assert program.stop(signal.SIGTERM) == 0
    code, said = line("--timeout", "1s", "list", nodes=url)
    assert code != 0
    assert f"{url}: no connection: No such file or directory" in said


def test_a_socket_of_the_dead_is_replaced_and_that_of_the_living_is_not(tmp_path: Path, path: Path) -> None:
    """The one that is there goes on serving; the one that comes says why it does not, with code 2."""
    with _alone(tmp_path, path) as program:
        program.wait_ready()
        program.process.kill()
        program.process.wait(DEADLINE_S)
    assert path.is_socket()
    with _alone(tmp_path, path) as program:
        program.wait_ready()
        other = ("--data-dir", str(tmp_path / "other"), "--peer", "127.0.0.1:0")
        why = _refused("--http", f"unix:{path}", *other)
        assert why == "another process listens at this socket: stop it, or choose another path"
        assert not (tmp_path / "other").exists()
        assert _curl(path, wire.READYZ)[0] == 200
        assert program.stop(signal.SIGTERM) == 0
    assert not path.exists()


def test_what_a_socket_needs(tmp_path: Path, path: Path) -> None:
    """A folder, and nothing of somebody else's in its place."""
    assert "there is no folder" in _refused("--http", f"unix:{tmp_path}/none/s")
    path.write_text("mine")
    assert "is not a socket" in _refused("--http", f"unix:{path}")
    assert path.read_text() == "mine"
    path.unlink()
    with socket.socket(socket.AF_UNIX) as foreign:
        foreign.bind(str(path))
        foreign.listen()
        assert "another process listens" in _refused("--http", f"unix:{path}")
    assert not (tmp_path / "holdfast-data").exists()


async def test_a_client_goes_from_a_socket_to_an_address(tmp_path: Path, path: Path) -> None:
    """Both stand in one list: what one does not serve, the other does."""
    with _running(tmp_path, "--http", f"unix:{path}") as program:
        urls = program.wait_ready().split(",")
        for nodes in (["unix:/nobody.sock", urls[0]], ["http://127.0.0.1:1", urls[1]]):
            async with holdfast.Client(nodes) as client, client.lock("a") as hold:
                assert hold.is_valid
        assert program.stop(signal.SIGTERM) == 0
