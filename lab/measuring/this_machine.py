"""What figures were measured on, and how busy it was."""

import os
import platform
import subprocess
from pathlib import Path
from typing import Any

from lab.measuring import interpreters


def describe(directory: Path) -> dict[str, Any]:
    """Say what this machine is; `directory` is on the disk that counts."""
    command = ["stat", "--file-system", "--format=%T", str(directory)]
    disk = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    return {"cpus": os.cpu_count(), "python": _interpreter(), "disk": disk}


def _interpreter() -> str:
    """Return the version of Python, and whether it is slower than it could be."""
    how = "with" if interpreters.is_this_optimized() else "without"
    return f"{platform.python_version()}, built {how} optimizations"


def load() -> float:
    """Return how many processes wanted to run, on the average of the last minute."""
    return round(os.getloadavg()[0], 2)
