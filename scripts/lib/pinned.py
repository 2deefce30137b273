"""The files of pinned versions in requirements/, read; and what an image needs of one.

    python -m scripts.lib.pinned requirements/node.txt --python 3.11.9 --machine x86_64 [--wheel FILE]

prints the lines that count for that Python on Linux on that machine, for deploy/build-image. A wheel that was
made here, of a package that is published as source only, is told in the place of what is published.
"""

import argparse
import dataclasses
import hashlib
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from packaging.markers import Marker
from packaging.utils import NormalizedName, canonicalize_name, parse_wheel_filename

_LINE: Final = re.compile(
    r"(?P<name>[A-Za-z0-9._-]+)==(?P<version>[^\s;]+)(?: ; (?P<marker>[^\\]+?))?"
    r"(?P<hashes>(?: --hash=sha256:[0-9a-f]{64})+)"
)


@dataclasses.dataclass(frozen=True)
class Pinned:
    """One version of a package, where it is wanted, and the files of it that may be taken."""

    name: NormalizedName
    version: str
    marker: str  # such as "python_full_version < '3.13'"; empty: always
    hashes: tuple[str, ...]  # SHA-256 in hexadecimal; never none

    def counts_for(self, environment: Mapping[str, str]) -> bool:
        """Whether the package is wanted where the variables of markers have these values."""
        return not self.marker or Marker(self.marker).evaluate(dict(environment))

    def __str__(self) -> str:
        """Return it as pip reads it, on one line and without its marker."""
        return " ".join([f"{self.name}=={self.version}", *(f"--hash=sha256:{text}" for text in self.hashes)])


def read(path: Path) -> tuple[Pinned, ...]:
    """Return what a file pins. Raises ValueError for a line that leaves anything open."""
    kept = (line for line in path.read_text("utf-8").splitlines() if not line.lstrip().startswith("#"))
    lines = re.sub(r"\\\n\s*", "", "\n".join(kept)).splitlines()
    return tuple(_parsed(line) for line in lines)


def _parsed(line: str) -> Pinned:
    match = _LINE.fullmatch(line)
    if match is None:
        raise ValueError(f"not a version with its hashes: {line[:100]}")
    return Pinned(
        name=canonicalize_name(match["name"]),
        version=match["version"],
        marker=match["marker"] or "",
        hashes=tuple(re.findall("[0-9a-f]{64}", match["hashes"])),
    )


def linux(python: str, machine: str) -> dict[str, str]:
    """Return the variables of markers for a CPython ("3.11.9") on Linux on a machine ("x86_64")."""
    return {
        "implementation_name": "cpython",
        "implementation_version": python,
        "os_name": "posix",
        "platform_machine": machine,
        "platform_python_implementation": "CPython",
        "platform_system": "Linux",
        "python_full_version": python,
        "python_version": ".".join(python.split(".")[:2]),
        "sys_platform": "linux",
    }


def with_wheels(pinned: Iterable[Pinned], wheels: Iterable[Path]) -> tuple[Pinned, ...]:
    """Return the same, but only a wheel that is given may be taken of its package.

    Raises ValueError if a wheel is of no package and version that is pinned.
    """
    given = {}
    for wheel in wheels:
        name, version, _, _ = parse_wheel_filename(wheel.name)
        given[name, str(version)] = hashlib.sha256(wheel.read_bytes()).hexdigest()
    replaced = tuple(
        dataclasses.replace(one, hashes=(given.pop((one.name, one.version)),))
        if (one.name, one.version) in given
        else one
        for one in pinned
    )
    if given:
        raise ValueError(f"not pinned in these versions: {', '.join(map(str, given))}")
    return replaced


def main() -> None:
    """Print the lines for one Python on one machine."""
    parser = argparse.ArgumentParser(description="Print the pinned versions for one Python on one machine.")
    parser.add_argument("file", type=Path)
    parser.add_argument("--python", required=True, help="such as 3.11.9")
    parser.add_argument("--machine", required=True, help="such as x86_64")
    parser.add_argument(
        "--wheel", type=Path, action="append", default=[], help="taken instead of what is published"
    )
    asked = parser.parse_args()
    environment = linux(asked.python, asked.machine)
    wanted = [one for one in read(asked.file) if one.counts_for(environment)]
    for one in with_wheels(wanted, asked.wheel):
        print(one)


if __name__ == "__main__":
    main()
