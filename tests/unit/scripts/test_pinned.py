"""The files of pinned versions, read: a line has a version and hashes, and counts where its marker says."""

import hashlib
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.lib import pinned

ROOT = Path(__file__).resolve().parents[3]
ONE, TWO = "1" * 64, "2" * 64


def write(tmp_path: Path, text: str) -> Path:
    """Write a file of pinned versions."""
    path = tmp_path / "some.txt"
    path.write_text(text)
    return path


def test_lines_are_read(tmp_path: Path) -> None:
    """A version goes on over lines and ends with its hashes; comments say nothing."""
    path = write(
        tmp_path,
        f"# made\nSome.Thing==1.0 ; python_full_version < '3.13' \\\n    --hash=sha256:{ONE} \\\n"
        f"    --hash=sha256:{TWO}\n    # via another\nanother==2.1.post1 \\\n    --hash=sha256:{ONE}\n",
    )
    thing, another = pinned.read(path)
    assert str(thing) == f"some-thing==1.0 --hash=sha256:{ONE} --hash=sha256:{TWO}"
    assert str(another) == f"another==2.1.post1 --hash=sha256:{ONE}"
    assert thing.counts_for(pinned.linux("3.12.7", "x86_64"))
    assert not thing.counts_for(pinned.linux("3.13.0", "x86_64"))
    assert another.counts_for(pinned.linux("3.13.0", "aarch64"))


@pytest.mark.parametrize(
    "line",
    [
        "thing==1.0",
        f"thing>=1.0 --hash=sha256:{ONE}",
        f"thing --hash=sha256:{ONE}",
        f"thing==1.0 --hash=sha256:{ONE[:-1]}",
        f"thing==1.0 --hash=md5:{ONE[:32]}",
        f"thing==1.0 --hash=sha256:{ONE} --pre",
        f"thing @ https://example.com/thing.whl --hash=sha256:{ONE}",
        "--index-url https://example.com/simple",
        "-r other.txt",
    ],
)
def test_what_leaves_something_open_is_an_error(tmp_path: Path, line: str) -> None:
    """No version, no hash, a hash of another kind, or a place to get files from."""
    with pytest.raises(ValueError, match="not a version with its hashes"):
        pinned.read(write(tmp_path, line + "\n"))


def test_a_wheel_takes_the_place_of_what_is_published(tmp_path: Path) -> None:
    """Only it is taken then; one that nobody asked for, or in another version, is an error."""
    path = write(tmp_path, f"a==1.0 --hash=sha256:{ONE}\nb==1.0 --hash=sha256:{ONE}\n")
    wheel = tmp_path / "a-1.0-py3-none-any.whl"
    wheel.write_bytes(b"wheel")
    a, b = pinned.with_wheels(pinned.read(path), [wheel])
    assert a.hashes == (hashlib.sha256(b"wheel").hexdigest(),)
    assert b.hashes == (ONE,)
    for name in ("a-1.1-py3-none-any.whl", "c-1.0-py3-none-any.whl"):
        other = tmp_path / name
        other.write_bytes(b"wheel")
        with pytest.raises(ValueError, match="not pinned in these versions"):
            pinned.with_wheels(pinned.read(path), [other])


def test_the_command_prints_what_counts(tmp_path: Path) -> None:
    """One line each, for the Python and machine that it is told."""
    path = write(
        tmp_path,
        f"a==1.0 ; python_full_version < '3.13' --hash=sha256:{ONE}\n"
        f"b==1.0 ; platform_machine == 'aarch64' --hash=sha256:{ONE}\nc==1.0 --hash=sha256:{TWO}\n",
    )

    def printed(*target: str) -> str:
        command = (sys.executable, "-m", "scripts.lib.pinned", str(path), *target)
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout

    a, b, c = (f"{name}==1.0 --hash=sha256:{text}\n" for name, text in (("a", ONE), ("b", ONE), ("c", TWO)))
    assert printed("--python", "3.11.9", "--machine", "x86_64") == a + c
    assert printed("--python", "3.14.0", "--machine", "aarch64") == b + c
    wheel = tmp_path / "c-1.0-py3-none-any.whl"
    wheel.write_bytes(b"wheel")
    made = f"c==1.0 --hash=sha256:{hashlib.sha256(b'wheel').hexdigest()}\n"
    assert printed("--python", "3.13.0", "--machine", "x86_64", "--wheel", str(wheel)) == made
