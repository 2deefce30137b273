"""The commands `cell` and `take`: small values beside the locks, and rate limits."""

import argparse
import base64
import sys
from typing import Any, Final

from holdfast.cli.inspector import Inspector
from holdfast.cli.parsing import (
    ALGORITHMS,
    CommandParser,
    add_conflict_exit_code,
    count,
    duration_ms,
    number,
    wait_s,
)
from holdfast.cli.printing import OUTPUTS, Row, print_next, print_one, print_rows, printable, table, to_row
from holdfast.cli.tables import LISTED
from holdfast.client.cell_watch import CellChange
from holdfast.values.cells import Cell
from holdfast.values.errors import RateLimited, Refused

STDIN: Final = "-"
VALUE: Final = "value"
"""The format of `cell get` that a script wants: the bytes of the value, and nothing else."""
MISSING: Final = "cell-not-found"
"""The code of a failure that nodes have, too: there is no such cell."""


def add_parser(commands: CommandParser) -> None:
    """Describe the commands."""
    cell = commands.command("cell", "read and write small values that the cluster keeps")
    get = cell.command("get", "print a value, with a newline on a terminal only", _get)
    get.add_argument("key", metavar="KEY")
    get.add_argument(
        "-o",
        "--output",
        choices=(VALUE, *OUTPUTS),
        default=VALUE,
        help="the bytes of the value, a table, one JSON document, or one in a line (default: value)",
    )
    put = cell.command("put", "write a value", _put)
    put.add_argument("key", metavar="KEY")
    put.add_argument("value", metavar="VALUE", help="the value; - reads it from standard input")
    put.add_argument(
        "--ttl", metavar="TIME", type=duration_ms, help="delete it this long after its last write"
    )
    delete = cell.command("delete", "delete a cell, those with a prefix, or all", _delete)
    delete.add_argument("key", metavar="KEY", nargs="?")
    delete.add_argument("--prefix", metavar="PREFIX", help="delete all cells with this prefix")
    delete.add_argument("--all", action="store_true", help="delete all cells")
    for parser in (put, delete):
        parser.add_argument(
            "--if-version",
            metavar="N",
            type=number,
            help="only while it has this version; 0: only while it does not exist",
        )
    listing = cell.command("list", "list the cells whose keys have a prefix", _list)
    watch = cell.command("watch", "print cells, and each change, until interrupted", _watch)
    for parser in (listing, watch):
        parser.add_argument("prefix", metavar="PREFIX", nargs="?", default="")
    for parser in (put, delete, listing, watch):
        parser.add_output()

    take = commands.command(
        "take",
        "take from a rate limit; exit 0 if it is allowed",
        _take,
        description="Take from a rate limit; exit 0 if it is allowed. Without --limit and --per it is what"
        " the namespace of the name sets.",
    )
    take.add_argument("name", metavar="NAME")
    take.add_argument("--limit", metavar="N", type=count, help="how much is allowed")
    take.add_argument("--per", metavar="TIME", type=duration_ms, help="length of the window")
    take.add_argument("--cost", metavar="N", type=count, default=1, help="how much to take (default: 1)")
    take.add_argument("--algorithm", choices=ALGORITHMS, help=f"how it counts (default: {ALGORITHMS[0]})")
    take.add_argument(
        "--wait", metavar="TIME", type=wait_s, default=0.0, help="how long to wait for it (default: 0s)"
    )
    add_conflict_exit_code(take, "it is not allowed")
    take.add_output()


async def _get(client: Inspector, arguments: argparse.Namespace) -> int:
    """Print a cell, by default the bytes of its value."""
    found = await client.cells.get(arguments.key)
    if found is None:
        raise Refused(MISSING, f"there is no cell {arguments.key!r}")
    if arguments.output == VALUE:
        sys.stdout.buffer.write(found.value + (b"\n" if sys.stdout.isatty() else b""))
        sys.stdout.buffer.flush()
    else:
        row = _as_row(found)
        print_one(row, table(LISTED["cells"], [row]), arguments.output)
    return 0


async def _put(client: Inspector, arguments: argparse.Namespace) -> int:
    """Write a cell, and print its version."""
    written = await client.cells.put(
        arguments.key,
        sys.stdin.buffer.read() if arguments.value == STDIN else arguments.value,
        ttl=None if arguments.ttl is None else arguments.ttl / 1000,
        if_version=arguments.if_version,
    )
    print_one(written, [f"version {written.version}"], arguments.output)
    return 0


async def _delete(client: Inspector, arguments: argparse.Namespace) -> int:
    """Delete cells, and print how many there were. Raises Refused if the one named does not exist."""
    if [arguments.key is not None, arguments.prefix is not None, arguments.all].count(True) != 1:
        raise ValueError("name a key, a --prefix, or --all")
    if arguments.key is None and arguments.if_version is not None:
        raise ValueError("--if-version is for one key")
    if arguments.prefix == "":
        raise ValueError("the --prefix is empty; --all deletes all cells")
    if arguments.all:
        deleted = await client.cells.delete_all()
    elif arguments.prefix is not None:
        deleted = await client.cells.delete_prefix(arguments.prefix)
    elif await client.cells.delete(arguments.key, if_version=arguments.if_version):
        deleted = 1
    else:
        raise Refused(MISSING, f"there is no cell {arguments.key!r}; nothing was deleted")
    print_one({"deleted": deleted}, [f"{deleted} deleted"], arguments.output)
    return 0


async def _list(client: Inspector, arguments: argparse.Namespace) -> int:
    """Print cells."""
    rows = [_as_row(found) async for found in client.cells.list(arguments.prefix)]
    print_rows(rows, LISTED["cells"], arguments.output)
    return 0


async def _watch(client: Inspector, arguments: argparse.Namespace) -> int:
    """Print the cells that there are, and then what becomes of them."""
    async with client.cells.watch(arguments.prefix) as changes:
        async for change in changes:
            _print_change(change, arguments.output)
    return 0


def _print_change(change: CellChange, output: str) -> None:
    found = change.cell
    row = {"event": change.event, "key": change.key} | ({} if found is None else _as_row(found))
    value = "" if found is None else f" {found.value.decode(errors='replace')}"
    print_next(row, printable(f"{change.event.removeprefix('cell-'):<8} {change.key}{value}"), output)


def _as_row(found: Cell) -> Row:
    """Return a cell as nodes show it."""
    value: dict[str, Any] = {"value_base64": base64.b64encode(found.value).decode()}
    try:
        value = {"value": found.text}
    except UnicodeDecodeError:
        """It is not text."""
    numbers = {
        name: getattr(found, name) for name in ("create_revision", "mod_revision", "version", "expires_in_ms")
    }
    return {"key": found.key.encode(errors="replace").decode(), **value, **numbers, "owner": found.owner}


async def _take(client: Inspector, arguments: argparse.Namespace) -> int:
    """Take from a rate limit, and print what is left."""
    limiter = client.rate_limiter(
        arguments.name,
        limit=arguments.limit,
        per=None if arguments.per is None else arguments.per / 1000,
        algorithm=arguments.algorithm,
    )
    try:
        taken = await limiter.take(arguments.cost, wait=arguments.wait)
    except RateLimited as error:
        refused = {"allowed": False, "retry_after_ms": round(error.retry_after * 1000)}
        print_one(refused, [], arguments.output)
        raise
    print_one(to_row(taken), [f"allowed; {taken.remaining} left"], arguments.output)
    return 0
