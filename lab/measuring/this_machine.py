"""What figures were measured on, and how busy it was."""

import os
import platform
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any, Final

SYSTEM_PREFIX: Final = "/usr"
"""Where distributions put the Python of the system."""


def describe(directory: Path) -> dict[str, Any]:
    """Say what this machine is; `directory` is on the disk that counts."""
    command = ["stat", "--file-system", "--format=%T", str(directory)]
    disk = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    return {"cpus": os.cpu_count(), "python": _interpreter(), "disk": disk}


def _interpreter() -> str:
    """Return the version of Python, and whether it is slower than it could be.

    Those of Linux distributions and of Docker's images are built with optimizations; those that tools compile
    on the machine itself often are not, and a node takes a tenth to a quarter more time with them. That of
    the system is taken for optimized: Debian's flags are those of a shared library that it builds beside it.
    """
    flags = sysconfig.get_config_var("CONFIG_ARGS") or ""
    is_optimized = "--enable-optimizations" in flags or sys.base_prefix == SYSTEM_PREFIX
    built = "" if is_optimized else ", built without optimizations"
    return platform.python_version() + built


def load() -> float:
    """Return how many processes wanted to run, on the average of the last minute."""
    return round(os.getloadavg()[0], 2)
