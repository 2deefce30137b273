"""Which Python measures: one built with optimizations, where this machine has one that can.

    python -m lab.measuring.interpreters MODULE ARGUMENTS

becomes `python -m MODULE ARGUMENTS`, with such an interpreter if this one is slower than it could be. It must
be of the same version, because it uses the packages that are installed here. HOLDFAST_PYTHON, by which users
choose an interpreter, has the last word.
"""

import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterable
from typing import Final

SYSTEM_PREFIX: Final = "/usr"
"""Where distributions put the Python of the system."""
CHOSEN: Final = "HOLDFAST_PYTHON"
FOLDERS: Final = ("/usr/bin", "/usr/local/bin")
"""Searched before the PATH, on which the slower one comes first."""
START_S: Final = 20.0
_ASKED: Final = (
    "import aiohttp, msgspec, uvloop, sys, sysconfig;"
    "print(sys.implementation.cache_tag, sys.base_prefix, sysconfig.get_config_var('CONFIG_ARGS'))"
)


def is_optimized(flags: str | None, base_prefix: str) -> bool:
    """Whether an interpreter that was configured with `flags` is as quick as it could be.

    Those of Linux distributions and of Docker's images are built with optimizations; those that tools compile
    on the machine itself often are not, and a node takes a tenth to a quarter more time with them. The one of
    the system is taken for optimized: Debian's flags are those of a shared library that it builds beside it.
    """
    return "--enable-optimizations" in (flags or "") or base_prefix == SYSTEM_PREFIX


def is_this_optimized() -> bool:
    """Whether the interpreter of this process is."""
    return is_optimized(sysconfig.get_config_var("CONFIG_ARGS"), sys.base_prefix)


def packages() -> str:
    """Return the folder of the packages that are installed for this interpreter."""
    return sysconfig.get_path("purelib")


def optimized(folders: Iterable[str]) -> str | None:
    """Return the first interpreter of this version in `folders` that is optimized and has what we need."""
    name = f"python{sys.version_info.major}.{sys.version_info.minor}"
    for program in filter(None, (shutil.which(name, path=folder) for folder in folders)):
        told = subprocess.run(
            [program, "-P", "-c", _ASKED],
            env={**os.environ, "PYTHONPATH": packages()},
            capture_output=True,
            text=True,
            check=False,
            timeout=START_S,
        )
        tag, _, rest = told.stdout.partition(" ")
        prefix, _, flags = rest.partition(" ")
        if told.returncode == 0 and tag == sys.implementation.cache_tag and is_optimized(flags, prefix):
            return program
    return None


def main(words: list[str]) -> None:
    """Become the module that `words` begins with; its arguments follow."""
    environment = dict(os.environ)
    program = None
    if not is_this_optimized() and not environment.get(CHOSEN):
        program = optimized([*FOLDERS, *os.get_exec_path()])
    if program is not None:
        path = [environment.get("PYTHONPATH", ""), packages()]
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, path))
    program = program or sys.executable
    os.execve(program, [program, "-P", "-m", *words], environment)  # noqa: S606 - no shell is meant


if __name__ == "__main__":
    main(sys.argv[1:])
