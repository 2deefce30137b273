"""A file that is written whole, or not at all."""

import os
import stat
from pathlib import Path

import pytest

from holdfast.values.whole_file import written


def test_a_file_takes_its_place_at_the_end(tmp_path: Path) -> None:
    """Until then whoever reads it finds the one before; nobody else can read what is unfinished."""
    path = tmp_path / "file"
    path.write_bytes(b"before")
    with written(path, 0o640) as file:
        file.write(b"after")
        file.flush()
        (unfinished,) = set(tmp_path.iterdir()) - {path}
        assert stat.S_IMODE(unfinished.stat().st_mode) == 0o600
        assert path.read_bytes() == b"before"
    assert (path.read_bytes(), stat.S_IMODE(path.stat().st_mode)) == (b"after", 0o640)
    assert list(tmp_path.iterdir()) == [path]


def test_what_is_not_finished_leaves_nothing(tmp_path: Path) -> None:
    """The file before stays, and there is no other."""
    path = tmp_path / "file"
    path.write_bytes(b"before")

    def broken() -> None:
        with written(path) as file:
            file.write(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        broken()
    assert (path.read_bytes(), list(tmp_path.iterdir())) == (b"before", [path])


def test_two_at_once_do_not_mix(tmp_path: Path) -> None:
    """Each is whole; the one that ends last stays."""
    path = tmp_path / "file"
    with written(path) as one, written(path) as other:
        one.write(b"one")
        other.write(b"other")
    assert path.read_bytes() == b"one"


def test_a_file_that_comes_meanwhile_is_not_replaced(tmp_path: Path) -> None:
    """Of two that must not replace anything, one hears that it was late."""
    path = tmp_path / "file"

    def late() -> None:
        with written(path, replaces=False) as file:
            file.write(b"late")
            path.write_bytes(b"first")

    with pytest.raises(FileExistsError) as told:
        late()
    assert told.value.filename2 == str(path)
    assert (path.read_bytes(), list(tmp_path.iterdir())) == (b"first", [path])


def test_a_link_stays(tmp_path: Path) -> None:
    """What it leads to is replaced, on the disk where that is, whether it is there yet or not."""
    (disk := tmp_path / "disk").mkdir()
    link = tmp_path / "file"
    link.symlink_to("disk/file")
    for content in (b"first", b"second"):
        with written(link) as file:
            file.write(content)
        assert link.is_symlink()
        assert (disk / "file").read_bytes() == content
    assert list(disk.iterdir()) == [disk / "file"]


def test_a_link_of_somebody_else_is_not_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else anybody could let root write over a file of root's, by a link in a folder that all may write."""
    (victim := tmp_path / "victim").write_bytes(b"precious")
    (link := tmp_path / "link").symlink_to(victim)
    monkeypatch.setattr(Path, "lstat", lambda _: os.stat_result((0, 0, 0, 0, 7700, 0, 0, 0, 0, 0)))
    with written(link) as file:
        file.write(b"new")
    monkeypatch.undo()
    assert (victim.read_bytes(), link.read_bytes()) == (b"precious", b"new")


def test_what_is_not_a_file_is_not_replaced(tmp_path: Path) -> None:
    """A backup that goes to /dev/null must not make a file of it."""
    (link := tmp_path / "null").symlink_to(os.devnull)
    with pytest.raises(FileExistsError, match="not a file"), written(link) as file:
        file.write(b"x")
    assert stat.S_ISCHR(Path(os.devnull).stat().st_mode)
