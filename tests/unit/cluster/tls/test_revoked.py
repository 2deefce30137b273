"""The list of certificates that count no longer: what its lines look like, and what is said of wrong ones."""

import shutil
import subprocess
from pathlib import Path

import pytest

from cluster.tls import revoked
from cluster.tls.files import TlsFile, TlsUnusable
from tests.support.certificates import Certificates


def listed(tmp_path: Path, content: bytes) -> frozenset[int]:
    """Return what a file with this content lists."""
    path = tmp_path / "revoked"
    path.write_bytes(content)
    return revoked.read(TlsFile("tls_revoked", path))


def test_a_serial_number_is_written_in_many_ways(tmp_path: Path) -> None:
    """In capitals or not, with colons, zeros in front, and what openssl puts before it: all are one."""
    lines = (b"0AB1", b"ab1", b"serial=0AB1", b"0a:b1", b"A:b1", b"0x0ab1", b"  AB1  # worker-7", b"AB1\r")
    for line in lines:
        assert listed(tmp_path, b"# those that were lost\n\n" + line + b"\n") == {0xAB1}
    assert listed(tmp_path, b"\xef\xbb\xbf0AB1\r\n") == {0xAB1}, "some editors begin a file with a mark"
    assert listed(tmp_path, b"1\n2\nserial=" + b"F" * 40 + b"\n") == {1, 2, (1 << 160) - 1}


def test_nothing_may_be_listed(tmp_path: Path) -> None:
    """As long as nothing is revoked."""
    assert listed(tmp_path, b"") == frozenset()
    assert listed(tmp_path, b"\n  \n# none\n") == frozenset()


@pytest.mark.parametrize(
    "line",
    [
        b"worker-7",
        b"0x",
        b"serial=",
        b"12 34",
        b"-1",
        b"\xff\xfe",
        b"1" * 65,
        b"AB::12",
        b"-----BEGIN X509 CRL-----",
    ],
)
def test_a_wrong_line_is_named(tmp_path: Path, line: bytes) -> None:
    """The whole file does not count then: half a list would let somebody in."""
    with pytest.raises(TlsUnusable, match=r"^tls_revoked: '.*revoked': line 2: .* is not a serial number"):
        listed(tmp_path, b"AB1\n" + line + b"\n")


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    """Not there, or so large that a node would not serve while it reads it."""
    with pytest.raises(TlsUnusable, match=r"cannot be read: No such file or directory; .*empty, if nothing"):
        revoked.read(TlsFile("tls_revoked", tmp_path / "nowhere"))
    with pytest.raises(TlsUnusable, match="has more than 1 MiB"):
        listed(tmp_path, b"AB1\n" * (revoked.BYTES_MAX // 4 + 1))


@pytest.mark.skipif(shutil.which("openssl") is None, reason="there is no openssl program")
def test_what_openssl_prints_is_taken(tmp_path: Path) -> None:
    """The line for a certificate lists its number."""
    certificates = Certificates(tmp_path / "tls")
    for name in ("one", "two", "three"):
        pair = certificates.client(name)
        command = ["openssl", "x509", "-noout", "-serial", "-in", str(pair.cert)]
        line = subprocess.run(command, capture_output=True, check=True).stdout
        assert listed(tmp_path, line) == {pair.serial}
    assert revoked.serial_of({}) == -1


@pytest.mark.parametrize("content", [b"1\n2", b"# none\n1", b"AB1"])
def test_a_file_that_was_cut_is_no_list(tmp_path: Path, content: bytes) -> None:
    """A last line without an end may be half of one, and more may be missing: the list before it counts."""
    with pytest.raises(TlsUnusable, match="half written"):
        listed(tmp_path, content)
