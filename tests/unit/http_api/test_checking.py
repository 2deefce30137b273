"""A check of settings: each mistake is its finding, a start is what counts, and nothing is changed."""

import contextlib
import fcntl
import os
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cluster.storage.data_directory import DataDir
from holdfast.cli import certificates as made
from http_api import checking
from scripts.lib.ports import reserve
from tests.support.certificates import Certificates, Pair, authority
from tests.unit.cluster.storage.test_data_directory import BEFORE_1_0_0
from tests.unit.http_api.serving import token_line

SECRET = "s3cret-of-this-very-test"


class Checked:
    """What a check said, and how it ended."""

    def __init__(self, code: int, lines: list[str]) -> None:
        self.code, self.lines = code, lines

    def has(self, level: str, *words: str) -> bool:
        """Whether a finding of this level has these words."""
        return any(
            line.startswith(f"{level}: ") and all(word in line for word in words) for line in self.lines
        )

    @property
    def errors(self) -> list[str]:
        """The findings that keep the node from starting."""
        return [line for line in self.lines if line.startswith("error: ")]


Check = Callable[..., Checked]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Where the node would have its data."""
    return tmp_path / "data"


@pytest.fixture
def check(data: Path, tmp_path: Path) -> Check:
    """Check settings of a node alone on free ports, and that nothing has changed on the disk."""
    http, peer = reserve(2)

    def run(*flags: str) -> Checked:
        words = ["--check-config", "--data-dir", str(data), "--peer", f"127.0.0.1:{peer}", *flags]
        if "--http" not in flags:
            words += ["--http", f"127.0.0.1:{http}"]
        before, lines = _tree(tmp_path), list[str]()
        code = checking.run(words, {}, lines.append)
        assert _tree(tmp_path) == before
        assert SECRET not in "".join(lines)
        return Checked(code, lines)

    return run


def _tree(path: Path) -> dict[str, tuple[int, int, bytes]]:
    """Return all that a change would change."""
    return {
        str(file): (
            file.stat().st_mode,
            file.stat().st_mtime_ns,
            file.read_bytes() if file.is_file() else b"",
        )
        for file in sorted(path.rglob("*"))
    }


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    """Make an authority."""
    return Certificates(tmp_path / "tls")


def _secret(tmp_path: Path, mode: int = 0o600) -> list[str]:
    path = tmp_path / "secret"
    path.write_text(f"{SECRET}\n")
    path.chmod(mode)
    return ["--secret-file", str(path)]


def _tls(pair: Pair) -> list[str]:
    pair.key.chmod(0o600)
    return ["--tls-cert", str(pair.cert), "--tls-key", str(pair.key)]


def _peers(tmp_path: Path, certificates: Certificates) -> list[str]:
    files = certificates.peer_files("n1")
    files.key.chmod(0o600)
    return [
        *_secret(tmp_path),
        *("--peer-cert", str(files.cert), "--peer-key", str(files.key), "--peer-ca", str(files.ca)),
    ]


def test_all_is_well(check: Check, tmp_path: Path, certificates: Certificates) -> None:
    """Every part has its line, and the node could start."""
    tokens = tmp_path / "tokens"
    tokens.write_bytes(token_line("ops", "t" * 40, "read"))
    tokens.chmod(0o600)
    flags = [*_tls(certificates.node()), "--tokens", str(tokens), *_peers(tmp_path, certificates)]
    found = check(*flags)
    assert found.code == 0, found.lines
    assert not any(line.startswith(("warning", "error")) for line in found.lines)
    for about in (
        "settings: node n1",
        "secret_file",
        "tls_cert",
        "peer_cert",
        "peer_ca",
        "tokens",
        "data_dir",
    ):
        assert found.has("ok", about), about
    assert found.has("ok", "http: ", "can listen")
    assert found.has("ok", "peer: ", "can listen")
    assert found.lines[-1] == "this node could start"


def test_a_wrong_setting_names_its_origin(check: Check) -> None:
    """As at a start; nothing else can be looked at."""
    found = check("--heartbeat-ms", "fast")
    assert found.code == 2
    assert found.errors == ["error: heartbeat_ms: 'fast' (flag --heartbeat-ms): must be a whole number"]
    assert found.lines[-1] == "this node cannot start with these settings"


def test_what_is_hardly_meant_is_a_warning(check: Check, tmp_path: Path) -> None:
    """A start logs it."""
    found = check(*_secret(tmp_path), "--peers", "n1=127.0.0.1:1,n2=127.0.0.1:2", "--peer", "127.0.0.1:0")
    assert found.code == 0, found.lines
    assert found.has("warning", "2 nodes survive no more failures than 1")


@pytest.mark.parametrize(("mode", "who"), [(0o604, "other users"), (0o640, "users of its group")])
def test_a_secret_that_others_can_read(check: Check, tmp_path: Path, mode: int, who: str) -> None:
    """The warning says how to close it."""
    found = check(*_secret(tmp_path, mode))
    assert found.code == 0
    assert found.has("warning", "secret_file", who, "chmod 600")


def test_a_key_that_others_can_read(check: Check, certificates: Certificates) -> None:
    """As with the secret."""
    pair = certificates.node()
    flags = _tls(pair)
    pair.key.chmod(0o644)
    found = check(*flags)
    assert found.code == 0
    assert found.has("warning", "tls_key", "other users", "chmod 600")


def test_a_secret_that_is_not_there(check: Check, tmp_path: Path) -> None:
    """It is a wrong setting."""
    found = check("--secret-file", str(tmp_path / "nothing"))
    assert found.code == 2
    assert found.has("error", "secret_file", "cannot be read")


def test_a_key_of_another_certificate(check: Check, certificates: Certificates) -> None:
    """And the other parts are looked at all the same."""
    pair = Pair(certificates.node().cert, certificates.node("other").key)
    found = check(*_tls(pair))
    assert found.code == 2
    assert found.has("error", "tls_key", "is not the key of the certificate")
    assert found.has("ok", "data_dir")


def test_a_certificate_that_has_ended(check: Check, certificates: Certificates) -> None:
    """With what to do."""
    found = check(*_tls(certificates.expired_node()))
    assert found.code == 2
    assert found.has("error", "tls_cert", "has expired: make or order a new one")


def test_a_certificate_that_ends_soon(check: Check, certificates: Certificates) -> None:
    """It is good today, and the days are told."""
    found = check(*_tls(certificates.node(days=5.5)))
    assert found.code == 0
    assert found.has("warning", "tls_cert: 5 days left", "ends soon")


def test_a_certificate_without_the_advertised_name(check: Check, certificates: Certificates) -> None:
    """Clients would refuse it."""
    flags = [*_tls(certificates.node()), "--advertise-http", "https://n1.example.com:7700"]
    found = check(*flags)
    assert found.code == 0
    assert found.has("warning", "tls_cert", "names 127.0.0.1, localhost", "n1.example.com")
    wild = [*_tls(certificates.node("wild", "*.example.com")), *flags[-2:]]
    assert not check(*wild).has("warning", "tls_cert")


def test_a_certificate_for_another_node(check: Check, tmp_path: Path, certificates: Certificates) -> None:
    """Peers know nodes by it."""
    found = check(*_peers(tmp_path, certificates), "--node-id", "n9")
    assert found.code == 2
    assert found.has("error", "peer_cert", "holdfast://prod/n1", "this is node n9")


def test_a_certificate_of_another_authority(check: Check, tmp_path: Path, certificates: Certificates) -> None:
    """No peer would accept it."""
    flags = _peers(tmp_path, certificates)
    certificates.peer("n1", by="somebody else")
    found = check(*flags)
    assert found.code == 2
    assert found.has("error", "peer_cert", "is not signed by an authority in peer_ca")


def test_a_certificate_of_another_cluster(check: Check, tmp_path: Path, certificates: Certificates) -> None:
    """A new cluster has no id yet, so a certificate cannot have it."""
    flags = _peers(tmp_path, certificates)
    certificates.write("n1-peer", made.for_peer(authority("test authority"), "n1", ["0" * 32], days=30))
    found = check(*flags, "--peers", "n1=127.0.0.1:1,n2=127.0.0.1:2,n3=127.0.0.1:3", "--peer", "127.0.0.1:0")
    assert found.code == 2
    assert found.has("error", "peer_cert", "begin a new cluster")


def test_a_tokens_file_that_cannot_be_read(check: Check, tmp_path: Path) -> None:
    """Its lines are named."""
    path = tmp_path / "tokens"
    path.write_text("worker junk read\n")
    found = check("--tokens", str(path))
    assert found.code == 2
    assert found.has("error", "tokens", "line 1")


def test_what_a_tokens_file_hardly_means(check: Check, tmp_path: Path) -> None:
    """The warnings of a start and of `holdfast token check`."""
    path = tmp_path / "tokens"
    path.write_bytes(
        token_line("old", "o" * 40, "read until=2020-01-01") + token_line("idle", "i" * 40, "none@a read@b")
    )
    path.chmod(0o644)
    found = check("--tokens", str(path))
    assert found.code == 0
    assert found.has("warning", "tokens", "old expired")
    assert found.has("warning", "tokens", "idle with none@PREFIX")
    assert found.has("warning", "tokens", "other users can read", "chmod 600")


def test_a_directory_that_cannot_be_made(check: Check, data: Path) -> None:
    """Something else has its name."""
    data.write_text("a file")
    found = check()
    assert found.code == 2
    assert found.has("error", str(data), "Not a directory")


def test_a_directory_that_cannot_be_written(
    check: Check, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel is asked; root may write everywhere, so it is asked in another's name here."""
    data.mkdir()
    real = os.access

    def access(path: Path, mode: int, **how: bool) -> bool:
        return not (path == data and mode & os.W_OK) and real(path, mode, **how)

    monkeypatch.setattr(os, "access", access)
    found = check()
    assert found.code == 2
    assert found.has("error", str(data), "Permission denied")


def test_the_directory_of_another_node(check: Check, data: Path) -> None:
    """As when two nodes are given the same one."""
    DataDir.open(data, "n2").close()
    found = check()
    assert found.code == 2
    assert found.has("error", "belongs to node 'n2', not to 'n1'")


def test_the_directory_of_another_release(check: Check, data: Path) -> None:
    """It names what to do."""
    data.mkdir()
    (data / "identity.json").write_bytes(BEFORE_1_0_0)
    found = check()
    assert found.code == 2
    assert found.has("error", "was written before release 1.0.0", "empty directory")


def test_a_directory_that_lost_its_identity(check: Check, data: Path) -> None:
    """It is not taken for a new one."""
    DataDir.open(data, "n1").close()
    (data / "identity.json").rename(data / "peers.json")
    found = check()
    assert found.code == 2
    assert found.has("error", "identity.json is missing from a directory that was in use")


def test_the_directory_of_a_founder_is_not_to_join(check: Check, data: Path, tmp_path: Path) -> None:
    """The flag was left over, or the directory is the wrong one."""
    datadir = DataDir.open(data, "n1")
    datadir.remember("n2", "2" * 32)
    datadir.close()
    flags = [*_secret(tmp_path), "--join", "--peers", "n2=127.0.0.1:2", "--peer", "127.0.0.1:0"]
    found = check(*flags)
    assert found.code == 2
    assert found.has("error", "is that of a founder", "without --join")


def test_a_directory_in_use(check: Check, data: Path) -> None:
    """Its node runs, so it is to be stopped first; it keeps its lock, and another one can have it later."""
    datadir = DataDir.open(data, "n1")
    found = check()
    assert found.code == 0
    assert found.has("warning", "data_dir", "n1 runs in it now", "stop it")
    datadir.close()
    fd = os.open(data, os.O_RDONLY)
    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(fd)


@contextlib.contextmanager
def _listening() -> Iterator[str]:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield f"127.0.0.1:{listener.getsockname()[1]}"


def test_an_address_in_use(check: Check, data: Path, tmp_path: Path) -> None:
    """It is an error, unless the node itself runs, and most likely listens there."""
    with _listening() as http, _listening() as peer:
        flags = [*_secret(tmp_path), "--http", http, "--peer", peer]
        found = check(*flags)
        assert found.code == 2
        assert found.has("error", f"http: {http}", "in use", "Stop what listens")
        assert found.has("error", "peer: ", peer, "in use", "Stop what listens")
        with contextlib.closing(DataDir.open(data, "n1")):
            found = check(*flags)
        assert found.code == 0
        assert found.has("warning", f"http: {http}", "this node, which runs")
        assert found.has("warning", "peer: ", peer, "this node, which runs")


def test_an_address_of_another_machine(check: Check, tmp_path: Path) -> None:
    """Nobody can listen there."""
    found = check(*_secret(tmp_path), "--http", "192.0.2.1:7700", "--peer", "192.0.2.1:7800")
    assert found.code == 2
    assert found.has("error", "http: 192.0.2.1:7700", "cannot listen")
    assert found.has("error", "peer: ", "192.0.2.1:7800")


def test_a_unix_socket(check: Check, tmp_path: Path) -> None:
    """Its folder has to be there, and nobody to listen."""
    path = tmp_path / "s"
    assert check("--http", f"unix:{path}").has("ok", "http: unix:", "can listen")
    assert check("--http", f"unix:{path}/none/s").has("error", "there is no folder")
    path.write_text("a file")
    assert check("--http", f"unix:{path}").has("error", "is not a socket")
    path.unlink()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        assert check("--http", f"unix:{path}").code == 0
        listener.listen()
        found = check("--http", f"unix:{path}")
    assert found.code == 2
    assert found.has("error", "another process listens at this socket")


def test_addresses_that_others_can_reach(check: Check, tmp_path: Path) -> None:
    """A start would be refused, or warned if that was asked for."""
    found = check(*_secret(tmp_path), "--http", "0.0.0.0:0", "--peer", f"0.0.0.0:{reserve(1)[0]}")
    assert found.code == 2
    assert found.has("error", "http: 0.0.0.0", "no TLS and no login", "--insecure-http")
    assert found.has("error", "peer: 0.0.0.0", "no TLS between nodes", "--insecure-peers")
    flags = ["--http", "0.0.0.0:0", "--insecure-http", "--insecure-peers"]
    found = check(*_secret(tmp_path), *flags, "--peer", f"0.0.0.0:{reserve(1)[0]}")
    assert found.code == 0
    assert found.has("warning", "http: 0.0.0.0")
    assert found.has("warning", "peer: 0.0.0.0")


def test_more_state_than_the_machine_bears(check: Check) -> None:
    """The node would be killed some day."""
    found = check("--state-bytes-max", str(1 << 49))
    assert found.code == 0
    assert found.has("warning", "state_bytes_max", "may be killed")


def test_a_disk_without_room(check: Check, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the log of a running node says it."""
    monkeypatch.setattr(checking, "needed_bytes", lambda _: 1 << 60)
    found = check()
    assert found.code == 0
    assert found.has("warning", "bytes are free", "make room")


@contextlib.contextmanager
def _answering(answer: bytes) -> Iterator[str]:
    """Somebody that says this to all it hears, and hangs up."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()

        def serve() -> None:
            with contextlib.suppress(OSError):
                connection, _ = listener.accept()
                with connection:
                    connection.recv(4096)
                    connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        thread.join()


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "HTTP answers: is that its port for clients?"),
        (b"SSH-2.0-OpenSSH\r\n", "no Holdfast peer answers"),
        (b"\x00\x00\x00\x02{}", "is not a Holdfast node of this release"),
        (b"", "it hung up at the hello"),
    ],
)
def test_something_else_answers_in_the_place_of_a_peer(
    check: Check, tmp_path: Path, answer: bytes, said: str
) -> None:
    """It is told what; that keeps no node from starting."""
    with _answering(answer) as address:
        own = f"127.0.0.1:{reserve(1)[0]}"
        found = check(
            *_secret(tmp_path), "--dial", "--peers", f"n1={own},n2={address},n3=127.0.0.1:1", "--peer", own
        )
    assert found.code == 0
    assert found.has("warning", f"peers: n2: {address}", said)
    assert found.has("warning", "peers: n3: 127.0.0.1:1: Connection refused", "is the node running")


def test_a_name_that_leads_nowhere(check: Check, tmp_path: Path) -> None:
    """The address is wrong, or what resolves it."""
    own = f"127.0.0.1:{reserve(1)[0]}"
    flags = ["--dial", "--peers", f"n1={own},n2=no-such-host.invalid:7800,n3=127.0.0.1:1", "--peer", own]
    found = check(*_secret(tmp_path), *flags)
    assert found.code == 0
    assert found.has("warning", "peers: n2: no-such-host.invalid:7800")


def test_dial_needs_a_check() -> None:
    """Alone it would start a node."""
    lines: list[str] = []
    assert checking.is_asked(["--check-config"])
    assert not checking.is_asked(["--dial"])
    assert checking.run(["--dial"], {}, lines.append) == 2
    assert "goes with --check-config" in lines[0]
