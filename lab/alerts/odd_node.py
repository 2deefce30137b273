"""Runs a node that can be made odd while it runs: by files in a directory, which the lab makes and removes.

    python -m lab.alerts.odd_node DIRECTORY [WORDS ...] http_api [ARGUMENTS ...]

What stands before `http_api` is left out, so that the whole command of a node may follow. Nothing of it is in
the product. While there is no file, the node is as any other, but for the number of files that it may open.
"""

import os
import resource
import sys
import time
from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import Any, Final

import cluster.group
from cluster.consensus.divergence import Divergence
from cluster.storage import snapshot_store
from http_api import __main__ as http_api
from lab.chaos.defective_node import UNKNOWN, node_arguments

OPEN_FILES: Final = 600
APPLY_S: Final = 0.4
FREE_BYTES: Final = 500_000_000

SLOW_APPLY: Final = "slow-apply"
"""Each entry takes `APPLY_S` longer to apply: a machine without processors."""
SMALL_DISK: Final = "small-disk"
"""The disk says that `FREE_BYTES` are left."""
NO_SNAPSHOTS: Final = "no-snapshots"
"""Snapshots cannot be written: their place is gone."""
OTHER_STATE: Final = "other-state"
"""The fingerprint of the state is another one than that of the peers, and the node does not stop for it."""


def make_odd(switches: Path) -> None:
    """Put everything in place; it acts while a file of its name is there."""

    def is_on(name: str) -> bool:
        return (switches / name).exists()

    def slow_apply(apply_entry: Any, *arguments: Any) -> Any:
        if is_on(SLOW_APPLY):
            time.sleep(APPLY_S)
        return apply_entry(*arguments)

    def small_disk(statvfs: Any, path: Any) -> os.statvfs_result:
        found: os.statvfs_result = statvfs(path)
        free_blocks = FREE_BYTES // found.f_frsize
        small = os.statvfs_result([*found[:4], free_blocks, *found[5:], found.f_fsid])
        return small if is_on(SMALL_DISK) else found

    def no_place(written_path: Any, directory: Path, pid: int) -> Any:
        return written_path(directory / "gone" if is_on(NO_SNAPSHOTS) else directory, pid)

    def other_state(own: Any, divergence: Divergence, revision: int) -> Any:
        found = own(divergence, revision)
        return found ^ 1 if found is not None and is_on(OTHER_STATE) else found

    def not_judged(judge: Any, divergence: Divergence) -> None:
        if not is_on(OTHER_STATE):
            judge(divergence)

    _wrap(cluster.group, "apply_entry", slow_apply)
    _wrap(os, "statvfs", small_disk)
    _wrap(snapshot_store, "_written_path", no_place)
    _wrap(Divergence, "_own", other_state)
    _wrap(Divergence, "_judge", not_judged)


def _wrap(owner: Any, name: str, around: Callable[..., Any]) -> None:
    """Put a function around another one, which it is handed first."""
    inner = getattr(owner, name)

    @wraps(inner)
    def outer(*arguments: Any) -> Any:
        return around(inner, *arguments)

    setattr(owner, name, outer)


def main(words: Sequence[str]) -> int:
    """Run the node; return its exit code."""
    try:
        directory, *command = words
        arguments = node_arguments(command)
    except ValueError:
        print(__doc__, file=sys.stderr)
        return UNKNOWN
    resource.setrlimit(resource.RLIMIT_NOFILE, (OPEN_FILES, OPEN_FILES))
    make_odd(Path(directory))
    return http_api.main(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
