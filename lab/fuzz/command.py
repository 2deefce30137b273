"""The command line of scripts/fuzz: decoders of outside bytes, fed by a fuzzer that follows their branches.

Each target runs in a process of its own, because libFuzzer takes the whole process, and ends it at a finding.
"""

import argparse
import importlib
import importlib.util
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parents[2]
INSTRUMENTED: Final = ("lockstate", "cluster", "lockapi", "redis_api", "holdfast", "lab.fuzz.targets")
"""The packages whose branches the fuzzer sees."""
INPUT_BYTES_MAX: Final = 8192
FOUND: Final = 1
USAGE: Final = 2
INTERRUPTED: Final = 130
_NO_ATHERIS: Final = (
    "scripts/fuzz: the fuzzer is not installed: .venv/bin/pip install atheris"
    " (it has wheels for Linux and some versions of Python); --replay needs none"
)
_TAIL_LINES: Final = 30
"""Lines of a finding's report that are shown."""


class Figures(NamedTuple):
    """What a run of one target came to."""

    runs: int
    kept: int
    """Inputs that took a way which none before took."""
    is_clean: bool
    report: str


def build_parser() -> argparse.ArgumentParser:
    """Describe the command line."""
    parser = argparse.ArgumentParser(
        prog="scripts/fuzz",
        description="Feed the decoders of bytes from outside (peers, log, disks, streams, files) with"
        " what a coverage-guided fuzzer makes of good bytes. Whatever a decoder raises but its refusals is a"
        " finding: it is printed with the file that shows it, and the exit code is 1.",
    )
    parser.add_argument(
        "--target", type=_names, metavar="NAME,...", help="only these (default: all, in turn)"
    )
    parser.add_argument(
        "--minutes", type=float, default=1.0, metavar="M", help="for each target (default: 1)"
    )
    parser.add_argument(
        "--dir",
        type=Path,
        help="where inputs and findings are kept, and gone on from (default: a new folder)",
    )
    parser.add_argument("--replay", type=Path, metavar="FILE", help="feed one target with this file, and end")
    parser.add_argument("--list", action="store_true", help="print the targets, and end")
    parser.add_argument(
        "--redis",
        action="store_true",
        help="instead of all this, compare random programs on the Redis face with a real Redis",
    )
    parser.add_argument("--seed", type=int, default=0, help="the first program of --redis (default: 0)")
    parser.add_argument("--seconds", type=int, help=argparse.SUPPRESS)  # of the process of one target
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the targets one after the other; return the exit code."""
    parser = build_parser()
    arguments = parser.parse_args(argv)
    if arguments.seconds is not None:
        return _be_one(arguments.target[0], arguments.dir, arguments.seconds)
    if arguments.redis:
        from lab.fuzz import redis_programs  # noqa: PLC0415 - the other way needs nothing of it

        return redis_programs.main(arguments.seed, arguments.minutes)
    from lab.fuzz.targets import TARGETS  # noqa: PLC0415 - a process of one target instruments it first

    names = arguments.target or [*TARGETS]
    unknown = [name for name in names if name not in TARGETS]
    if unknown:
        parser.error(f"no target {', '.join(unknown)}; there are {', '.join(TARGETS)}")
    if arguments.list:
        print("\n".join(TARGETS))
        return 0
    if arguments.replay is not None:
        if len(names) != 1:
            parser.error("--replay needs the one --target that the file is for")
        print("taken" if TARGETS[names[0]].feed(arguments.replay.read_bytes()) else "refused")
        return 0
    if importlib.util.find_spec("atheris") is None:
        print(_NO_ATHERIS, file=sys.stderr)
        return USAGE
    where = arguments.dir or Path(tempfile.mkdtemp(prefix="holdfast-fuzz-"))
    print(f"inputs and findings are in {where}")
    print(f"{'TARGET':<18}{'RUNS':>12}{'KEPT':>8}  FOUND")
    is_clean = True
    for name in names:
        figures = _run(name, where / name, round(arguments.minutes * 60))
        print(
            f"{name:<18}{figures.runs:>12}{figures.kept:>8}  {'-' if figures.is_clean else 'yes'}", flush=True
        )
        if not figures.is_clean:
            is_clean = False
            print(figures.report)
    return 0 if is_clean else FOUND


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",")]


def _run(name: str, where: Path, seconds: int) -> Figures:
    """Fuzz one target in a process of its own."""
    done = subprocess.run(
        [
            sys.executable,
            "-P",
            "-m",
            "lab.fuzz.command",
            "--target",
            name,
            "--dir",
            where,
            "--seconds",
            str(seconds),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    said = done.stdout + done.stderr
    return Figures(
        _stat(said, "number_of_executed_units"),
        _stat(said, "new_units_added"),
        done.returncode == 0,
        "\n".join(said.splitlines()[-_TAIL_LINES:]),
    )


def _stat(said: str, name: str) -> int:
    """Return a figure out of the last words of libFuzzer; 0 if it did not get so far."""
    found = re.search(rf"stat::{name}:\s*(\d+)", said)
    return int(found[1]) if found else 0


def _be_one(name: str, where: Path, seconds: int) -> int:
    """Be the process of one target: returns only if libFuzzer does."""
    atheris: Any = importlib.import_module("atheris")
    with atheris.instrument_imports(include=[*INSTRUMENTED]):
        from lab.fuzz.targets import TARGETS  # noqa: PLC0415 - see above

    target = TARGETS[name]
    inputs = where / "inputs"
    inputs.mkdir(parents=True, exist_ok=True)
    for number, example in enumerate(target.examples()):
        (inputs / f"example-{number}").write_bytes(example)
    options = [
        f"-max_total_time={seconds}",
        f"-max_len={INPUT_BYTES_MAX}",
        f"-artifact_prefix={where}/",
        "-print_final_stats=1",
        "-timeout=20",
        "-rss_limit_mb=2048",
    ]

    def feed(data: bytes) -> None:
        target.feed(data)

    atheris.Setup([name, *options, str(inputs)], feed)
    atheris.Fuzz()
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
