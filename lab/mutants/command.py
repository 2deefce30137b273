"""The command line of scripts/mutants: random defects of lockstate/, and how many its tests notice."""

import argparse
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, NamedTuple

from lab.mutants.mutations import Mutant, mutants

ROOT: Final = Path(__file__).resolve().parents[2]
PACKAGE: Final = "lockstate"
SUITES: Final = ("tests/scenarios", "tests/unit/lockstate", "tests/property")
"""The quickest first: a mutant is over when one notices it."""
HANGS_S: Final = 900.0
"""Seconds after which a suite is taken to hang, which is noticed, too."""
_NOT_COPIED: Final = shutil.ignore_patterns(".*", "__pycache__", "build", "node_modules")
_NOTHING_COLLECTED: Final = 5


class Place(NamedTuple):
    """A mutant, and the file it is of."""

    path: str
    mutant: Mutant

    def __str__(self) -> str:
        """Say on one line what was changed where."""
        before, after = (" ".join(text.split()) for text in (self.mutant.before, self.mutant.after))
        return f"{self.path}:{self.mutant.line}: {before}  ->  {after}"


def build_parser() -> argparse.ArgumentParser:
    """Describe the command line."""
    parser = argparse.ArgumentParser(
        prog="scripts/mutants",
        description="Change lockstate/ at random, in a copy of this checkout, run its tests on each change,"
        " and say which suite notices it. Of what is not noticed, some makes no difference; the rest lacks a"
        " test.",
    )
    parser.add_argument("--count", type=int, default=20, metavar="N", help="how many changes (default: 20)")
    parser.add_argument("--seed", type=int, default=1, help="what they are drawn from (default: 1)")
    parser.add_argument("--jobs", type=int, default=1, metavar="J", help="as many at a time (default: 1)")
    parser.add_argument(
        "--only", default="", metavar="TEXT", help="in files with this in their names (default: all)"
    )
    parser.add_argument(
        "--suites", nargs="+", default=SUITES, metavar="PATH", help=f"tests (default: {' '.join(SUITES)})"
    )
    return parser


def draw(root: Path, package: str, count: int, seed: int, only: str = "") -> list[Place]:
    """Return some of all mutants of a package: the same ones for one seed and one source."""
    places = [
        Place(path.relative_to(root).as_posix(), mutant)
        for path in sorted((root / package).rglob("*.py"))
        if only in path.name
        for mutant in mutants(path.read_text("utf-8"))
    ]
    return random.Random(seed).sample(places, min(count, len(places)))


def noticed_by(copy: Path, suites: Sequence[str]) -> str | None:
    """Return the first suite that fails in this copy; None if all pass."""
    pytest = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider"]
    for suite in suites:
        try:
            done = subprocess.run(
                [*pytest, suite], cwd=copy, capture_output=True, timeout=HANGS_S, check=False
            )
        except subprocess.TimeoutExpired:
            return f"{suite}, which hangs"
        if done.returncode not in (0, _NOTHING_COLLECTED):
            return suite
    return None


def try_out(copy: Path, place: Place, suites: Sequence[str]) -> str | None:
    """Run the suites on one mutant in a copy of the checkout, which is as before afterwards."""
    path = copy / place.path
    sound = path.read_text("utf-8")
    path.write_text(place.mutant.of(sound), "utf-8")
    try:
        return noticed_by(copy, suites)
    finally:
        path.write_text(sound, "utf-8")


def survivors(root: Path, places: Sequence[Place], suites: Sequence[str], jobs: int) -> list[Place]:
    """Try all mutants, some at a time, and print what becomes of each; return those that nobody noticed."""
    with tempfile.TemporaryDirectory(prefix="mutants-") as scratch:
        copies = [Path(scratch) / str(number) for number in range(jobs)]
        for copy in copies:
            shutil.copytree(root, copy, ignore=_NOT_COPIED)
        if (suite := noticed_by(copies[0], suites)) is not None:
            raise SystemExit(f"scripts/mutants: {suite} fails without any change")
        left = iter(places)
        unnoticed: list[Place] = []

        def work(copy: Path) -> None:
            for place in left:
                suite = try_out(copy, place, suites)
                print(f"{suite or 'NOT NOTICED'}: {place}", flush=True)
                if suite is None:
                    unnoticed.append(place)

        with ThreadPoolExecutor(jobs) as pool:
            for done in [pool.submit(work, copy) for copy in copies]:
                done.result()
        return unnoticed


def main() -> int:
    """Say how many of some random defects the tests notice."""
    options = build_parser().parse_args()
    places = draw(ROOT, PACKAGE, options.count, options.seed, options.only)
    unnoticed = survivors(ROOT, places, options.suites, options.jobs)
    print(f"noticed: {len(places) - len(unnoticed)} of {len(places)} (seed {options.seed})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
