"""The lab's side of shim.c: builds the library, and says at run time what it is to do."""

import mmap
import shutil
import struct
import subprocess
import time
from pathlib import Path
from typing import Final

SOURCE: Final = Path(__file__).with_name("shim.c")
COMPILERS: Final = ("cc", "gcc", "clang")
VARIABLE: Final = "LAB_SHIM_CONTROL"
BUILD_S: Final = 60.0

_SEQUENCE: Final = struct.Struct("=Q")
_SETTINGS: Final = struct.Struct("=7q")
_FIELDS: Final = (
    "sync_delay_us",
    "sync_errno",
    "grow_errno",
    "real_base_ns",
    "own_base_ns",
    "rate_ppb",
    "wall_step_ns",
)


class ShimFailure(Exception):
    """The library cannot be built. The message says what is missing."""


def build(directory: Path) -> Path:
    """Compile the library into `directory`; return its path. Raises ShimFailure."""
    compiler = next((path for name in COMPILERS if (path := shutil.which(name))), None)
    if compiler is None:
        raise ShimFailure(f"no C compiler ({', '.join(COMPILERS)}) to build {SOURCE.name} with")
    library = directory / "shim.so"
    argv = [compiler, "-O2", "-Wall", "-Werror", "-shared", "-fPIC", "-o", str(library), str(SOURCE), "-ldl"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=BUILD_S)
    if done.returncode != 0:
        raise ShimFailure(f"{SOURCE.name} cannot be compiled: {done.stderr.strip()}")
    return library


class ShimControl:
    """What one process's shim does. One thread; the process may start before or after."""

    def __init__(self, path: Path) -> None:
        """Make the file at `path`, in which nothing is to happen."""
        self.path = path
        path.write_bytes(bytes(_SEQUENCE.size + _SETTINGS.size))
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), 0)
        self._values = dict.fromkeys(_FIELDS, 0)
        self._sequence = 0

    def environment(self, library: Path) -> dict[str, str]:
        """Return the variables with which the process is started."""
        return {"LD_PRELOAD": str(library), VARIABLE: str(self.path)}

    def disk(self, *, delay_s: float = 0.0, sync_errno: int = 0, grow_errno: int = 0) -> None:
        """Let every sync take longer, or fail; let nothing grow."""
        self._set(sync_delay_us=round(delay_s * 1_000_000), sync_errno=sync_errno, grow_errno=grow_errno)

    def clock(self, *, rate_ppm: float = 0.0, step_s: float = 0.0, wall_step_s: float = 0.0) -> None:
        """Let the monotonic clock run faster from now on, after a step forward; set the wall clock ahead."""
        now_ns = time.monotonic_ns()
        self._set(
            own_base_ns=self.own_ns(now_ns) + round(step_s * 1e9),
            real_base_ns=now_ns,
            rate_ppb=round(rate_ppm * 1000),
            wall_step_ns=round(wall_step_s * 1e9),
        )

    def own_ns(self, real_ns: int) -> int:
        """Return what the process's monotonic clock shows when ours shows `real_ns`."""
        values = self._values
        if not values["real_base_ns"]:
            return real_ns
        passed_ns = real_ns - values["real_base_ns"]
        return values["own_base_ns"] + passed_ns + passed_ns * values["rate_ppb"] // 1_000_000_000

    def close(self) -> None:
        """Let go of the file; what it says stays in force."""
        self._map.close()

    def _set(self, **values: int) -> None:
        """Change some values, so that the process sees all of them or none."""
        self._values |= values
        self._write_sequence()
        settings = _SETTINGS.pack(*(self._values[name] for name in _FIELDS))
        self._map[_SEQUENCE.size :] = settings
        self._write_sequence()

    def _write_sequence(self) -> None:
        self._sequence += 1
        self._map[: _SEQUENCE.size] = _SEQUENCE.pack(self._sequence)
