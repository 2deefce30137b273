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
    assert memory.state_bytes_max(cgroup=tmp_path) == 2 * GIB - 24 * MIB
    monkeypatch.setattr(memory, "_physical_bytes", lambda: 64 * GIB)
    assert memory.state_bytes_max(cgroup=tmp_path) == limits.STATE_BYTES_MAX
    monkeypatch.setattr(memory, "_physical_bytes", lambda: 20 * MIB)
    assert memory.state_bytes_max(cgroup=tmp_path) == limits.STATE_BYTES_LEAST


@pytest.mark.parametrize("name", ["memory.max", "memory/memory.limit_in_bytes"])
def test_a_quarter_of_the_container(tmp_path: Path, name: str) -> None:
    """A container has a limit of its own, or says that it has none."""
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text(f"{1 * GIB}\n")
    assert memory.state_bytes_max(cgroup=tmp_path) == 232 * MIB
    (tmp_path / name).write_text("max\n")
    assert memory.state_bytes_max(cgroup=tmp_path) == 2 * GIB - 24 * MIB


def test_a_quarter_of_what_a_limited_process_may_still_map(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the program has mapped counts against its limit, and what its threads will map."""
    monkeypatch.setattr(resource, "getrlimit", lambda _: (888 * MIB, 888 * MIB))
    status = tmp_path / "status"
    status.write_text(f"Name:\tpython\nVmPeak:\t999 kB\nVmSize:\t  {200 * 1024} kB\n")
    assert memory.state_bytes_max(status, tmp_path) == 100 * MIB


def test_the_setting_has_the_bounds_of_the_state() -> None:
    """The configuration knows nothing of the state machine, and says the same."""
    assert config.STATE_BYTES_LEAST == limits.STATE_BYTES_LEAST
