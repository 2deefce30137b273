"""The program at addresses that others reach: it refuses to start there, unless that was asked for."""

import re
import signal
import socket
from pathlib import Path

import pytest

from cluster import exposure
from cluster.config import Address
from http_api import listeners
from tests.support.certificates import Certificates
from tests.unit.http_api.serving import token_line
from tests.unit.http_api.test_main import DEADLINE_S, _running, _start

pytestmark = pytest.mark.process

EVERYWHERE = "0.0.0.0:0"
SECRET = ("--secret", "s" * 16)


def _refused(*arguments: str) -> str:
    """Return the line with which a node ends that does not start, as with a wrong configuration."""
    with _start(*arguments) as process:
        try:
            _, said = process.communicate(timeout=DEADLINE_S)
        finally:
            process.kill()
    assert process.returncode == 2, said
    (line,) = [line for line in said.splitlines() if line.startswith("holdfast-node: ")]
    return line


def test_clients_of_everywhere_are_refused(tmp_path: Path) -> None:
    """By name of the setting, with both ways out, before the data directory is touched."""
    data = tmp_path / "data"
    line = _refused("--data-dir", str(data), "--http", EVERYWHERE)
    assert re.match(r"holdfast-node: http: 0\.0\.0\.0:[1-9]\d*: other machines can reach", line)
    assert "--tokens or --tls-client-ca" in line
    assert "--insecure-http" in line
    assert not data.exists()


def test_what_is_advertised_does_not_matter(tmp_path: Path) -> None:
    """Neither way: what is bound decides."""
    data = ("--data-dir", str(tmp_path / "data"))
    _refused(*data, "--http", EVERYWHERE, "--advertise-http", "http://127.0.0.1:7700")
    with _running(tmp_path, "--advertise-http", "http://n1.example:7700") as program:
        program.wait_ready()
        assert program.stop(signal.SIGTERM) == 0
    assert "insecure-address" not in "".join(program.lines)


def test_tokens_alone_are_not_enough_and_with_tls_they_are(
    tmp_path: Path,
) -> None:
    """A token that is sent without TLS is everybody's."""
    tokens = tmp_path / "tokens"
    tokens.write_bytes(token_line("worker", "g" * 40, "read"))
    files = Certificates(tmp_path / "tls").files(wants_clients=False)
    open_ = ("--http", EVERYWHERE, "--tokens", str(tokens))
    tls = ("--tls-cert", str(files.cert), "--tls-key", str(files.key))
    assert "can read tokens" in _refused("--data-dir", str(tmp_path / "data"), *open_)
    with _running(tmp_path, *open_, *tls) as program:
        program.wait_ready()
        assert program.stop(signal.SIGTERM) == 0
    assert "insecure-address" not in "".join(program.lines)


def test_nodes_of_everywhere_are_refused(tmp_path: Path) -> None:
    """What they say can be read on the way, whatever clients need."""
    flags = ("--data-dir", str(tmp_path / "data"), "--http", "127.0.0.1:0", *SECRET)
    line = _refused(*flags, "--peer", f"0.0.0.0:{_free_port()}")
    assert re.match(r"holdfast-node: peer: 0\.0\.0\.0:\d+: .*no TLS between nodes.*--insecure-peers", line)


def test_nodes_that_require_tls_of_each_other_may_be_reached(tmp_path: Path) -> None:
    """By everybody; in the steps before that it has to be asked for."""
    files = Certificates(tmp_path / "tls").peer_files("n1")
    tls = ("--peer-cert", str(files.cert), "--peer-key", str(files.key), "--peer-ca", str(files.ca))
    flags = ("--http", "127.0.0.1:0", *SECRET, "--peer", f"0.0.0.0:{_free_port()}", *tls)
    refused = _refused("--data-dir", str(tmp_path / "data"), *flags, "--peer-tls", "dial")
    assert "--peer-cert, --peer-key and --peer-ca" in refused
    with _running(tmp_path, *flags) as program:
        program.wait_ready()
        assert program.stop(signal.SIGTERM) == 0
    assert "insecure-address" not in "".join(program.lines)


def test_a_node_that_takes_no_peers_opens_nothing(tmp_path: Path) -> None:
    """Without a secret it does not listen for any, whatever is configured."""
    with _running(tmp_path, "--peer", EVERYWHERE) as program:
        program.wait_ready()
        assert program.stop(signal.SIGTERM) == 0
    assert "insecure-address" not in "".join(program.lines)


def test_clients_of_redis_of_everywhere_are_refused(tmp_path: Path) -> None:
    """As those of HTTP are, each address by its own setting."""
    flags = ("--data-dir", str(tmp_path / "data"), "--http", EVERYWHERE, "--insecure-http")
    line = _refused(*flags, "--redis", EVERYWHERE)
    assert re.match(
        r"holdfast-node: redis: 0\.0\.0\.0:[1-9]\d*: other machines can reach .*--insecure-redis", line
    )
    with _running(tmp_path, "--redis", EVERYWHERE, "--insecure-redis") as program:
        program.wait_ready()
        assert program.stop(signal.SIGTERM) == 0
    said = "".join(program.lines)
    assert "event=insecure-address detail='redis: 0.0.0.0:" in said
    assert re.search(r"event=listening .* redis=0\.0\.0\.0:[1-9]", said)


def test_what_is_asked_for_is_open_and_warned_of(tmp_path: Path) -> None:
    """With one warning for each address."""
    flags = ("--http", EVERYWHERE, "--peer", f"0.0.0.0:{_free_port()}", *SECRET)
    with _running(tmp_path, *flags, "--insecure-http", "--insecure-peers") as program:
        program.wait_ready()
        assert program.stop(signal.SIGTERM) == 0
    said = re.findall(r"level=warning .*event=insecure-address detail=.(\w+): 0\.0", "".join(program.lines))
    assert said == ["http", "peer"]


def test_a_flag_where_nothing_is_open_changes_nothing(tmp_path: Path) -> None:
    """It may be set before it is needed, and stay when it is not any more."""
    with _running(tmp_path, *SECRET, "--insecure-http", "--insecure-peers") as program:
        program.wait_ready()
        assert program.stop(signal.SIGTERM) == 0
    assert "insecure-address" not in "".join(program.lines)


@pytest.mark.parametrize("address", ["localhost:0", "127.1:0", "[::1]:0"])
def test_what_stands_for_loopback_is_loopback(tmp_path: Path, address: str) -> None:
    """Names and old spellings lead where the system says."""
    with _running(tmp_path, "--http", address) as program:
        program.wait_ready()
        assert program.stop(signal.SIGTERM) == 0
    assert "insecure-address" not in "".join(program.lines)


@pytest.mark.parametrize("address", ["0:0", "[::]:0"])
def test_what_stands_for_everywhere_is_refused(tmp_path: Path, address: str) -> None:
    """However it is written."""
    assert "--insecure-http" in _refused("--data-dir", str(tmp_path / "data"), "--http", address)


def test_a_name_is_what_it_stands_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the addresses of a name, the one counts that is bound."""
    address = Address("n1.example", 0)
    for host in ("127.0.0.1", "0.0.0.0"):  # noqa: S104 - the value under test
        info = (socket.AF_INET, socket.SOCK_STREAM, 0, "", (host, 0))
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, info=info, **__: [info])
        with listeners.bind_tcp(address) as listener:
            assert listener.getsockname()[0] == host
            assert exposure.is_open(listener.getsockname()[0]) == (host != "127.0.0.1")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
