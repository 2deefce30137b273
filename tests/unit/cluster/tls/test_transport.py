"""TLS beneath a connection whose other side does what no library does."""

import asyncio
import ssl
from pathlib import Path
from typing import NamedTuple, cast

import pytest

from cluster.tls import files
from cluster.tls.files import TlsFile
from cluster.tls.transport import TlsTransport
from tests.support.certificates import Certificates
from tests.support.tls_records import HANDSHAKE, KEY_UPDATE, Records


class Socket:
    """A transport that keeps what is written."""

    def __init__(self) -> None:
        self.is_over = False
        self.written = b""

    def write(self, data: bytes) -> None:
        """Keep it."""
        self.written += data

    def abort(self) -> None:
        """Be over."""
        self.is_over = True

    close = abort

    def is_closing(self) -> bool:
        """Whether it is over."""
        return self.is_over


class Above(asyncio.Protocol):
    """Keeps what comes."""

    def __init__(self) -> None:
        self.came = b""

    def data_received(self, data: bytes) -> None:
        """Keep it."""
        self.came += data


class Parts(NamedTuple):
    """A connection behind its handshake, and how its client seals."""

    socket: Socket
    opened: TlsTransport
    above: Above
    records: Records


def shaken(tmp_path: Path) -> Parts:
    """Make a handshake."""
    pair, key_log = Certificates(tmp_path).node(), tmp_path / "keys"
    server, client = files.new_context(is_server=True), files.new_context(is_server=False)
    files.show(server, TlsFile("cert", pair.cert), TlsFile("key", pair.key))
    client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
    client.keylog_filename = str(key_log)
    socket, above = Socket(), Above()
    opened = TlsTransport(cast("asyncio.Transport", socket), server, asyncio.get_running_loop())
    opened.set_protocol(above)
    came, goes = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = client.wrap_bio(came, goes)
    with pytest.raises(ssl.SSLWantReadError):
        tls.do_handshake()
    assert not opened.shake(goes.read())
    came.write(socket.written)
    tls.do_handshake()
    assert opened.shake(goes.read())
    socket.written = b""
    return Parts(socket, opened, above, Records(tls, key_log))


async def test_half_a_change_of_keys_ends_the_connection_and_raises_nothing(tmp_path: Path) -> None:
    """OpenSSL cannot write then; whoever writes to many would fail for all of them."""
    socket, opened, above, records = shaken(tmp_path)
    opened.take(records.sealed(b"hello") + records.sealed(KEY_UPDATE[:4], HANDSHAKE))
    assert above.came == b"hello"
    assert not socket.is_closing()
    opened.write(b"news")
    assert socket.is_closing()
    assert not socket.written
    opened.write(b"more")


async def test_a_whole_change_of_keys_is_answered_and_the_connection_goes_on(tmp_path: Path) -> None:
    """That is what RFC 8446 asks for."""
    socket, opened, above, records = shaken(tmp_path)
    opened.take(records.key_update() + records.sealed(b"behind"))
    assert above.came == b"behind"
    opened.write(b"news")
    sealed_bytes = 5 + 1 + 16  # the head of a record, its type and its tag
    assert len(socket.written) == len(KEY_UPDATE) + len(b"news") + 2 * sealed_bytes
    assert not socket.is_closing()


def fed(opened: TlsTransport, sealed: bytes, size: int) -> None:
    """Give what a client has sealed in pieces of one size, as the socket may."""
    for start in range(0, len(sealed), size):
        opened.take(sealed[start : start + size])


@pytest.mark.parametrize("between", [b"", b"x"])
@pytest.mark.parametrize("size", [1_000, 16 * 1024, 256 * 1024])
async def test_one_that_says_little_but_changes_of_keys_is_cut(
    tmp_path: Path, between: bytes, size: int
) -> None:
    """Each costs more of the loop than what it says is worth. Data in between them does not help."""
    _, opened, _, records = shaken(tmp_path)
    flood = b""
    while len(flood) < 64 * 1024:
        flood += b"".join([records.key_update() for _ in range(100)])
        flood += records.sealed(between) if between else b""
    with pytest.raises(ssl.SSLError, match="changes of keys"):
        fed(opened, flood, size)


async def test_data_has_no_bound_whatever_the_size_of_its_records(tmp_path: Path) -> None:
    """Ten thousand of one byte, large ones, some changes of keys between, and pieces that end anywhere."""
    _, opened, above, records = shaken(tmp_path)
    said = [b"x"] * 10_000 + [b"y" * 16_000] * 70
    sealed = b"".join(
        [
            (records.key_update() if number % 500 == 0 else b"") + records.sealed(content)
            for number, content in enumerate(said)
        ]
    )
    start, size = 0, 1
    while start < len(sealed):
        opened.take(sealed[start : start + size])
        start, size = start + size, size % 70_001 * 3 + 1
    assert above.came == b"".join(said)
