"""Control groups that hold nodes to a share of a processor, in folders that look like the kernel's."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lab.peers import shares
from scripts.lib import guardian


def mounts(tmp_path: Path, *lines: str) -> Path:
    """Return a table of mounts."""
    path = tmp_path / "mounts"
    path.write_text("".join(f"{line}\n" for line in ["proc /proc proc rw 0 0", *lines]))
    return path


def version_2(path: Path, controllers: str, handed_down: str = "") -> Path:
    """Make what a hierarchy of version 2 shows."""
    path.mkdir()
    (path / "cgroup.controllers").write_text(f"{controllers}\n")
    (path / "cgroup.subtree_control").write_text(f"{handed_down}\n")
    return path


def test_the_hierarchy_that_limits_processors_is_found(tmp_path: Path) -> None:
    """It is version 1's with `cpu`, alone or beside others, or version 2's where that one has `cpu`."""
    of_two = version_2(tmp_path / "two", "cpuset cpu memory")
    without = version_2(tmp_path / "without", "hugetlb")
    memory = "cgroup /sys/fs/cgroup/memory cgroup rw,memory 0 0"
    both = "cgroup /sys/fs/cgroup/cpu,cpuacct cgroup rw,cpu,cpuacct 0 0"
    lines = [f"cgroup2 {without} cgroup2 rw 0 0", "cgroup /a cgroup rw,cpuacct 0 0", memory]
    assert shares.hierarchy(mounts(tmp_path, *lines, both)) == Path("/sys/fs/cgroup/cpu,cpuacct")
    assert shares.hierarchy(mounts(tmp_path, f"cgroup2 {of_two} cgroup2 rw 0 0")) == of_two
    with pytest.raises(shares.NoGroupsError, match="no control groups for processors"):
        shares.hierarchy(mounts(tmp_path, *lines))


def test_a_group_of_version_1_has_period_and_quota(tmp_path: Path) -> None:
    """A third of a processor are 30 ms of every 100."""
    shares.make_group(tmp_path / "group", 0.3)
    assert {file.name: file.read_text() for file in (tmp_path / "group").iterdir()} == {
        "cpu.cfs_period_us": "100000",
        "cpu.cfs_quota_us": "30000",
    }


@pytest.mark.parametrize(("handed_down", "after"), [("", "+cpu"), ("memory cpu", "memory cpu\n")])
def test_a_group_of_version_2_has_one_file(tmp_path: Path, handed_down: str, after: str) -> None:
    """Its parent hands the limit down first, unless it does so already."""
    root = version_2(tmp_path / "root", "cpu memory", handed_down)
    shares.make_group(root / "group", 1.5)
    assert {file.name: file.read_text() for file in (root / "group").iterdir()} == {
        "cpu.max": "150000 100000"
    }
    assert (root / "cgroup.subtree_control").read_text() == after


def test_what_cannot_be_written_is_told(tmp_path: Path) -> None:
    """The message names the place, the reason, and what to do."""
    (tmp_path / "file").touch()
    with pytest.raises(shares.NoGroupsError, match=r"file/group cannot be .*Not a directory.*: run as root"):
        shares.make_group(tmp_path / "file" / "group", 0.3)


def test_no_share_holds_nothing(tmp_path: Path) -> None:
    """Without the option no group is made."""
    with shares.held(None, tmp_path) as hold:
        hold([os.getpid()])
    assert list(tmp_path.iterdir()) == []


def test_each_process_has_a_group_with_its_children(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A group is made for each, what it has started is moved as well, and all groups are removed."""
    moved: dict[str, list[int]] = {}

    def write(path: Path, text: str) -> None:
        if path.name == "cgroup.procs":
            moved.setdefault(path.parent.name, []).append(int(text))

    script = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'print(0, flush=True); input()'])"
    with guardian.guarded():
        child = subprocess.Popen(
            [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert child.stdin
        assert child.stdout
        child.stdout.readline()  # the grandchild runs
        monkeypatch.setattr(Path, "write_text", write)
        try:
            with shares.held(0.5, tmp_path) as hold:
                hold([child.pid, os.getpid()])
                assert {path.name for path in tmp_path.iterdir()} == set(moved)
        finally:
            child.stdin.close()
            child.stdout.close()
            child.wait()
    first, second = moved.values()
    assert first[0] == child.pid
    assert len(first) == 2
    assert second[0] == os.getpid()
    assert set(first) < set(second)
    assert list(tmp_path.iterdir()) == []


def test_a_group_that_is_not_left_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a while the error of the kernel is raised, so that nobody believes the group to be gone."""
    monkeypatch.setattr(shares, "REMOVE_S", 0.0)
    with guardian.guarded(), pytest.raises(OSError, match="not empty"), shares.held(0.5, tmp_path) as hold:
        hold([0])  # no process: nothing is moved, and the files of the limit stay
