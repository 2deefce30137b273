"""Shares of a processor: control groups that hold each node to the same, whatever runs in it.

Version 1 of control groups and version 2 are known, by the files that the kernel shows. A group is made below
the root of its hierarchy, where version 2 has no rule against it, and is gone when the block is left; if this
program is killed, its guard removes it.
"""

import contextlib
import secrets
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final

from scripts.lib import guardian, processes

PERIOD_US: Final = 100_000
"""Length in microseconds of a period, in each of which a node may run for its share: the kernel's and
containers' own. A node that has used its share stands still until the next one."""
REMOVE_S: Final = 10.0
"""Seconds for the last process of a group to leave it."""
POLL_S: Final = 0.05
CONTROLLERS: Final = "cgroup.controllers"
"""A file that groups of version 2 have and others do not: what can be limited in them."""
MOUNTS: Final = Path("/proc/self/mounts")
Hold = Callable[[Iterable[int]], None]
"""Puts each of these processes, with all that it has started and will start, into a group of its own."""


class NoGroupsError(OSError):
    """This machine lets nobody hold processes to a share, or not this user."""


def hierarchy(mounts: Path = MOUNTS) -> Path:
    """Return where groups that limit processors are made. Raises NoGroupsError."""
    for line in mounts.read_text().splitlines():
        _, where, kind, options, *_ = line.split()
        path = Path(where)
        if kind == "cgroup" and "cpu" in options.split(","):
            return path
        if kind == "cgroup2" and "cpu" in (path / CONTROLLERS).read_text().split():
            return path
    raise NoGroupsError("--share: no control groups for processors are mounted, of version 1 or 2")


def make_group(path: Path, share: float) -> None:
    """Make a group whose processes together have this share of a processor. Raises NoGroupsError."""
    quota_us = round(share * PERIOD_US)
    is_version_2 = (path.parent / CONTROLLERS).exists()
    try:
        handed_down = path.parent / "cgroup.subtree_control"
        if is_version_2 and "cpu" not in handed_down.read_text().split():
            handed_down.write_text("+cpu")
        path.mkdir()
        if is_version_2:
            (path / "cpu.max").write_text(f"{quota_us} {PERIOD_US}")
        else:
            (path / "cpu.cfs_period_us").write_text(f"{PERIOD_US}")
            (path / "cpu.cfs_quota_us").write_text(f"{quota_us}")
    except OSError as error:
        raise NoGroupsError(
            f"--share: {path} cannot be made or written ({error.strerror}): run as root"
        ) from error


def try_out(share: float) -> None:
    """Make a group and remove it again, before anything is started. Raises NoGroupsError."""
    group = _new_group(hierarchy())
    make_group(group, share)
    group.rmdir()


def _new_group(place: Path) -> Path:
    """Name a group that the guard removes."""
    group = place / f"holdfast-bench-{secrets.token_hex(4)}"
    guardian.run_if_killed(["rmdir", str(group)])
    return group


@contextlib.contextmanager
def held(share: float | None, root: Path | None = None) -> Iterator[Hold]:
    """Give what holds processes to a share; None holds nothing. To be called inside `guardian.guarded()`.

    The processes must have ended when the block is left, so start them inside it. Raises NoGroupsError.
    """
    made: list[Path] = []

    def hold(pids: Iterable[int]) -> None:
        if share is None:
            return
        place = root or hierarchy()
        for pid in pids:
            group = _new_group(place)
            made.append(group)
            make_group(group, share)
            _move(pid, group / "cgroup.procs")

    try:
        yield hold
    finally:
        for group in made:
            _remove(group)


def _move(pid: int, procs: Path) -> None:
    """Move a process and all that it has started; what these start later is in their group from its start."""
    moved: set[int] = set()
    # Parents may have started others before they were moved: until there are no new ones.
    while new := processes.family([pid]) - moved:
        for each in sorted(new, key=lambda each: each != pid):
            with contextlib.suppress(ProcessLookupError):  # it has ended since
                procs.write_text(f"{each}")
        moved |= new


def _remove(group: Path) -> None:
    """Remove a group when its last process has left it."""
    deadline_s = time.monotonic() + REMOVE_S
    while group.exists():
        try:
            group.rmdir()
        except OSError:
            if time.monotonic() > deadline_s:
                raise
            time.sleep(POLL_S)
