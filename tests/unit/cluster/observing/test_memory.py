"""The bound on the state by default: a quarter of the memory that this process may take for it."""

import resource
from pathlib import Path

import pytest

from cluster import config
from cluster.observing import memory
from lockstate.words import limits

MIB = 1 << 20
GIB = 1 << 30


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run on a machine with 8 GiB and no limit."""
    monkeypatch.setattr(memory, "_physical_bytes", lambda: 8 * GIB)
    monkeypatch.setattr(resource, "getrlimit", lambda _: (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


def test_a_quarter_of_the_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not more than the default on a large one, nor less than the least on a small one."""
    assert memory.state_bytes_max(tmp_path, tmp_path) == 2 * GIB - 24 * MIB
    monkeypatch.setattr(memory, "_physical_bytes", lambda: 64 * GIB)
    assert memory.state_bytes_max(tmp_path, tmp_path) == limits.STATE_BYTES_MAX
    monkeypatch.setattr(memory, "_physical_bytes", lambda: 20 * MIB)
    assert memory.state_bytes_max(tmp_path, tmp_path) == limits.STATE_BYTES_LEAST


@pytest.mark.parametrize(
    ("own", "limit"),
    [
        ("0::/", "memory.max"),
        ("0::/", "unified/memory.max"),
        ("0::/system.slice/holdfast.service", "system.slice/holdfast.service/memory.max"),
        ("0::/system.slice/holdfast.service", "system.slice/memory.max"),
        ("0::/../elsewhere", "memory.max"),
        ("7:cpu:/\n4:hugetlb,memory:/docker/1f\n0::/", "memory/docker/1f/memory.limit_in_bytes"),
        ("4:memory:/docker/1f", "memory/memory.limit_in_bytes"),
    ],
)
def test_a_quarter_of_a_control_group(tmp_path: Path, own: str, limit: str) -> None:
    """A container, a service, or whatever that lies in, may have a limit, or say that it has none."""
    (tmp_path / "cgroup").write_text(f"{own}\n")
    (tmp_path / limit).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / limit).write_text(f"{1 * GIB}\n")
    assert memory.state_bytes_max(tmp_path, tmp_path) == 232 * MIB
    (tmp_path / limit).write_text("max\n")
    assert memory.state_bytes_max(tmp_path, tmp_path) == 2 * GIB - 24 * MIB


def test_the_least_of_all_groups_counts(tmp_path: Path) -> None:
    """Whatever is allowed above or below it."""
    (tmp_path / "cgroup").write_text("0::/a/b\n")
    (tmp_path / "a" / "b").mkdir(parents=True)
    for group, gib in ((".", 4), ("a", 1), ("a/b", 2)):
        (tmp_path / group / "memory.max").write_text(str(gib * GIB))
    assert memory.state_bytes_max(tmp_path, tmp_path) == 232 * MIB


def test_a_quarter_of_what_a_limited_process_may_still_map(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the program has mapped counts against its limit, and what its threads will map."""
    monkeypatch.setattr(resource, "getrlimit", lambda _: (888 * MIB, 888 * MIB))
    status = tmp_path / "status"
    status.write_text(f"Name:\tpython\nVmPeak:\t999 kB\nVmSize:\t  {200 * 1024} kB\n")
    assert memory.state_bytes_max(tmp_path, tmp_path) == 100 * MIB


def test_the_setting_has_the_bounds_of_the_state() -> None:
    """The configuration knows nothing of the state machine, and says the same."""
    assert config.STATE_BYTES_LEAST == limits.STATE_BYTES_LEAST
