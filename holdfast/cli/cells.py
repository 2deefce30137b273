"""The commands `cell` and `take`: small values beside the locks, and rate limits."""

import argparse
import sys
from collections.abc import Callable
from typing import Any, Final

from holdfast._cell_values import Cell
from holdfast._errors import RateLimited, Refused
from holdfast.cli import exit_codes
from holdfast.cli.inspector import Inspector
from holdfast.cli.printing import length, print_json, print_line, print_table, printable
from holdfast.cli.reading import count

STDIN: Final = "-"
ALGORITHMS: Final = ("fixed-window", "sliding-window", "gcra")


def add_parser(
    commands: "argparse._SubParsersAction[argparse.ArgumentParser]", duration_ms: Callable[[str], int]
) -> None:
    """Describe the commands."""
    cell = commands.add_parser("cell", help="read and write small values that the cluster keeps")
    actions = cell.add_subparsers(dest="action", required=True, metavar="ACTION")
    get = actions.add_parser("get", help="print a value; a newline follows on a terminal only")
    get.add_argument("key", metavar="KEY")
    put = actions.add_parser("put", help="write a value")
    put.add_argument("key", metavar="KEY")
    put.add_argument("value", metavar="VALUE", help="the value; - reads it from standard input")
    put.add_argument("--ttl", metavar="TIME", type=duration_ms, help="it ends so long after its last write")
    delete = actions.add_parser("delete", help="delete a cell, or all with a prefix")
    delete.add_argument("key", metavar="KEY", nargs="?")
    delete.add_argument("--prefix", metavar="PREFIX", help="delete all cells whose keys begin so")
    for parser in (put, delete):
        parser.add_argument(
            "--if-version",
            metavar="N",
            type=_version,
            help="only while it has this version; 0: there is none",
        )
    listing = actions.add_parser("list", help="list the cells whose keys begin with a prefix")
    watch = actions.add_parser("watch", help="print cells, and each change, until it is interrupted")
    for parser in (listing, watch):
        parser.add_argument("prefix", metavar="PREFIX", nargs="?", default="")
    for parser in (get, put, delete, listing, watch):
        parser.add_argument("--json", action="store_true", help="as JSON; a list in one line for each")

    take = commands.add_parser(
        "take",
        help="take from a rate limit; exit 0 when that is allowed",
        description="Take from a rate limit.",
    )
    take.add_argument("name", metavar="NAME")
    take.add_argument("--limit", metavar="N", type=count, required=True, help="how much is allowed")
    take.add_argument(
        "--per", metavar="TIME", type=duration_ms, required=True, help="in a time of this length"
    )
    take.add_argument("--cost", metavar="N", type=count, default=1, help="how much to take (default: 1)")
    take.add_argument("--algorithm", choices=ALGORITHMS, default=ALGORITHMS[0])
    take.add_argument(
        "--wait", metavar="TIME", type=duration_ms, default=0, help="wait for a place this long (default: 0s)"
    )
    take.add_argument(
        "--conflict-exit-code",
        metavar="CODE",
        type=int,
        choices=range(256),
        default=exit_codes.CONFLICT,
        help=f"exit so when it is not allowed (default: {exit_codes.CONFLICT})",
    )
    take.add_argument("--json", action="store_true", help="print what the rate limit says")


def _version(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise argparse.ArgumentTypeError(f"{text!r} is not a version")
    return int(text)


async def cell(client: Inspector, arguments: argparse.Namespace) -> int:
    """Run one of the commands for cells. Raises LockError and ValueError."""
    match arguments.action:
        case "get":
            await _get(client, arguments)
        case "put":
            written = await client.cells.put(
                arguments.key,
                sys.stdin.buffer.read() if arguments.value == STDIN else arguments.value,
                ttl=None if arguments.ttl is None else arguments.ttl / 1000,
                if_version=arguments.if_version,
            )
            if arguments.json:
                print_json(written)
            else:
                print(f"version {written.version}")
        case "delete":
            await _delete(client, arguments)
        case "list":
            cells = [cell async for cell in client.cells.list(arguments.prefix)]
            if arguments.json:
                for found in cells:
                    print_line(_as_json(found))
            else:
                titles = ("KEY", "VERSION", "ENDS IN", "VALUE")
                print_table(titles, [_as_row(found) for found in cells])
        case _:
            await _watch(client, arguments)
    return 0


async def _get(client: Inspector, arguments: argparse.Namespace) -> None:
    found = await client.cells.get(arguments.key)
    if found is None:
        raise Refused("cell-not-found", f"there is no cell {arguments.key!r}")
    if arguments.json:
        print_json(_as_json(found))
        return
    sys.stdout.buffer.write(found.value + (b"\n" if sys.stdout.isatty() else b""))
    sys.stdout.buffer.flush()


async def _delete(client: Inspector, arguments: argparse.Namespace) -> None:
    if (arguments.key is None) == (arguments.prefix is None):
        raise ValueError("name either a key or a --prefix")
    if arguments.prefix is None:
        deleted = int(await client.cells.delete(arguments.key, if_version=arguments.if_version))
    elif arguments.if_version is not None:
        raise ValueError("--if-version is for one key")
    else:
        deleted = await client.cells.delete_prefix(arguments.prefix)
    if arguments.json:
        print_json({"deleted": deleted})
    else:
        print(f"{deleted} deleted")


async def _watch(client: Inspector, arguments: argparse.Namespace) -> None:
    """Print the cells that there are, and then what becomes of them."""
    async with client.watch(arguments.prefix) as watching:
        await watching.begin()  # before the look: nothing changes unseen in between
        seen: dict[str, int] = {}
        async for found in client.cells.list(arguments.prefix):
            seen[found.key] = found.mod_revision
            _print_change("cell-put", found.key, found, as_json=arguments.json)
        async for event in watching:
            if not event.event.startswith("cell-"):
                continue
            now = await client.cells.get(event.name) if event.event == "cell-put" else None
            if now is not None and seen.get(now.key, 0) >= now.mod_revision:
                continue  # it was printed with the change before
            seen[event.name] = 0 if now is None else now.mod_revision
            _print_change(
                "cell-deleted" if now is None else event.event, event.name, now, as_json=arguments.json
            )


def _print_change(what: str, key: str, found: Cell | None, *, as_json: bool) -> None:
    if as_json:
        print_line({"event": what, "key": key} | ({} if found is None else _as_json(found)))
    else:
        value = "" if found is None else f" {_text(found)}"
        print(printable(f"{what.removeprefix('cell-'):<8} {key}{value}"), flush=True)


def _as_json(found: Cell) -> dict[str, Any]:
    """Return a cell as nodes show it."""
    value: dict[str, Any] = {"value_base64": found.value}  # bytes become Base64
    try:
        value = {"value": found.text}
    except UnicodeDecodeError:
        """It is not text."""
    numbers = {
        name: getattr(found, name) for name in ("create_revision", "mod_revision", "version", "expires_in_ms")
    }
    return {"key": found.key.encode(errors="replace").decode(), **value, **numbers, "owner": found.owner}


def _as_row(found: Cell) -> tuple[str, ...]:
    return found.key, str(found.version), length(found.expires_in_ms), _text(found)


def _text(found: Cell) -> str:
    return found.value.decode(errors="replace")


async def take(client: Inspector, arguments: argparse.Namespace) -> int:
    """Take from a rate limit. Raises LockError."""
    limiter = client.rate_limiter(
        arguments.name, limit=arguments.limit, per=arguments.per / 1000, algorithm=arguments.algorithm
    )
    try:
        taken = await limiter.take(arguments.cost, timeout=arguments.wait / 1000)
    except RateLimited as error:
        if arguments.json:
            print_json({"allowed": False, "retry_after_ms": round(error.retry_after * 1000)})
        raise
    if arguments.json:
        print_json(taken)
    else:
        print(f"allowed; {taken.remaining} left")
    return 0
