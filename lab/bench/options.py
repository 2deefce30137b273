"""Options that several benchmarks have, each worded once."""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

DISK: Final = Path("/var/tmp")  # noqa: S108 - folders are made with mkdtemp; unlike /tmp it is a real disk


def add_number(
    parser: argparse.ArgumentParser,
    flag: str,
    default: float,
    what: str,
    *,
    read: Callable[[str], Any] = int,
    metavar: str = "N",
    more: str = "",
) -> None:
    """Add an option with a number; its help says the default, and `more` behind it."""
    text = f"{what} (default: {default:.12g}{more})"
    parser.add_argument(flag, type=read, default=default, metavar=metavar, help=text)


def add_seconds(
    parser: argparse.ArgumentParser, default: float = 5.0, what: str = "length of a step"
) -> None:
    """Add how long to measure."""
    add_number(parser, "--seconds", default, what, read=float, metavar="S")


def add_disk(parser: argparse.ArgumentParser, what: str) -> None:
    """Add where data lie meanwhile."""
    parser.add_argument(
        "--disk", type=Path, default=DISK, metavar="DIR", help=f"where {what} (default: {DISK})"
    )


def add_json(parser: argparse.ArgumentParser) -> None:
    """Add the option that prints JSON in the place of a table."""
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
