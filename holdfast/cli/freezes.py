"""The command `freeze`: nothing new is granted at and below a prefix, as before maintenance."""

import argparse
from collections.abc import Sequence
from typing import Final

from holdfast.cli.inspector import Inspector
from holdfast.cli.parsing import CommandParser, duration_ms
from holdfast.cli.printing import (
    Columns,
    Row,
    field,
    length,
    length_of,
    print_one,
    print_rows,
    printable,
    say,
    table,
)
from holdfast.operations import freeze_operations
from holdfast.values.errors import AccessDenied, LockError


def add_parser(commands: CommandParser) -> None:
    """Describe the command."""
    freeze = commands.command(
        "freeze",
        "grant nothing new at and below a prefix",
        description="Grant nothing new at and below a prefix, in the whole cluster: what is held goes on, and"
        " who waits keeps its place. Needs the right force for the prefix and all below it.",
    )
    begin = freeze.command("set", "freeze a prefix, or give its freeze another end and reason", _set)
    begin.add_argument(
        "--for", dest="for_ms", metavar="TIME", type=duration_ms, help="until it is thawed, if left out"
    )
    end = freeze.command("end", "thaw a prefix, and grant what waits", _end)
    for parser in (begin, end):
        parser.add_argument("prefix", metavar="PREFIX")
        parser.add_argument("--reason", metavar="TEXT", required=True, help="why; the audit keeps it")
    shown = freeze.command(
        "show",
        "show whether a prefix is frozen, itself or by one above, and what is still held below it",
        _show,
    )
    shown.add_argument("prefix", metavar="PREFIX")
    listed = freeze.command("list", "show the frozen prefixes", _list)
    listed.add_argument("prefix", metavar="PREFIX", nargs="?", default="", help="only those with this prefix")
    for parser in (begin, end, shown, listed):
        parser.add_output()


async def _set(client: Inspector, arguments: argparse.Namespace) -> int:
    """Freeze, and print what is still held."""
    answer = await client.told(freeze_operations.freeze(arguments.prefix, arguments.reason, arguments.for_ms))
    print_one(answer, [f"{arguments.prefix} is frozen; {_left(answer)}"], arguments.output)
    return 0


async def _end(client: Inspector, arguments: argparse.Namespace) -> int:
    """Thaw, and say so; there may be nothing to thaw, for time may have done it."""
    answer = await client.told(freeze_operations.thaw(arguments.prefix, arguments.reason))
    said = "is thawed" if answer.get("thawed") else "was not frozen"
    print_one(answer, [f"{arguments.prefix} {said}"], arguments.output)
    return 0


async def _show(client: Inspector, arguments: argparse.Namespace) -> int:
    """Print a prefix, with what is still held, and what freezes it from above."""
    answer = await client.told(freeze_operations.frozen(arguments.prefix, is_stale=False))
    above = [row for row in await freezes_of(client, arguments.prefix) if row["prefix"] != arguments.prefix]
    told = answer | {"frozen_by": above} if above else answer
    print_one(told, [*table(_SHOWN, [answer]), *freeze_lines(above)], arguments.output)
    return 0


async def _list(client: Inspector, arguments: argparse.Namespace) -> int:
    """Print frozen prefixes."""
    rows = [row async for row in client.rows("freezes", {"prefix": arguments.prefix})]
    print_rows(rows, _LISTED, arguments.output)
    return 0


async def freezes_of(client: Inspector, name: str) -> list[Row]:
    """Return the freezes of a name and of prefixes above it, as far as the caller may see them."""
    try:
        rows = [row async for row in client.rows("freezes", {"prefix": name.split("/", maxsplit=1)[0]})]
    except AccessDenied:
        return []
    except LockError as error:
        say(f"it may be frozen, which was not told: {error}")
        return []
    return [row for row in rows if f"{name}/".startswith(f"{row['prefix']}/")]


def freeze_lines(rows: Sequence[Row]) -> list[str]:
    """Say by what something is frozen, a line for each freeze."""
    lines = []
    for row in rows:
        end = f"for another {length(row['ends_in_ms'])}" if "ends_in_ms" in row else "until it is thawed"
        since = length(row.get("frozen_ms"))
        lines.append(printable(f"frozen: {row['prefix']!r}, since {since} ago, {end}: {row.get('reason')}"))
    return lines


def _left(row: Row) -> str:
    left: Row = row.get("left") or {}
    least = "at least " if left.get("more") else ""
    return f"{least}{left.get('holds', 0)} held, {left.get('waits', 0)} waiting"


def _ends(row: Row) -> str:
    if not row.get("frozen"):
        return "-"
    return length_of("ends_in_ms")(row) if "ends_in_ms" in row else "when thawed"


_LISTED: Final[Columns] = {
    "PREFIX": field("prefix"),
    "FROZEN": lambda row: length_of("frozen_ms")(row) if row.get("frozen") else "no",
    "ENDS": _ends,
    "REASON": lambda row: row.get("reason") or "-",
}
_SHOWN: Final[Columns] = {**_LISTED, "LEFT": _left}
