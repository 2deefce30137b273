"""Folders of a benchmark that are gone when it ends, however it ends."""

import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from scripts.lib import guardian


@contextlib.contextmanager
def scratch_directory(disk: Path, prefix: str = "holdfast-bench-") -> Iterator[Path]:
    """Give a new folder on `disk`. It goes with the block; where there is a guard, also if we are killed."""
    directory = Path(tempfile.mkdtemp(prefix=prefix, dir=disk))
    if guardian.is_guarded():
        guardian.run_if_killed(["rm", "-rf", str(directory)])
    try:
        yield directory
    finally:
        shutil.rmtree(directory)
