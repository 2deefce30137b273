"""The commands that look: `get`, `list`, `session`, `watch`. They change nothing."""

import argparse
from collections.abc import Mapping

import msgspec

from holdfast import wire
from holdfast.cli import tables
from holdfast.cli.freezes import freeze_lines, freezes_of
from holdfast.cli.inspector import ITEMS, LISTINGS, InspectedPage, Inspector
from holdfast.cli.parsing import CommandParser, count, duration_ms
from holdfast.cli.printing import (
    TABLE,
    Row,
    event_line,
    print_next,
    print_one,
    print_rows,
    say,
    table,
)
from holdfast.operations.operation import path_to
from holdfast.values.errors import Refused


def add_parser(commands: CommandParser) -> None:
    """Describe the commands."""
    get = commands.command("get", "show who holds a lock and who waits for it", _get)
    get.add_argument("name", metavar="NAME")
    get.add_argument("--kind", choices=list(ITEMS), default="lock", help="what it is (default: lock)")
    get.add_output()

    listing = commands.command("list", "list locks, or another kind of thing, by prefix", _list)
    listing.add_argument(
        "prefix", metavar="PREFIX", nargs="?", default="", help="only names with this prefix"
    )
    listing.add_argument("--kind", choices=list(LISTINGS), default="locks", help="what (default: locks)")
    listing.add_argument("--owner", metavar="NAME", default="", help="only this owner's (holds, sessions)")
    listing.add_argument(
        "--label", metavar="NAME:VALUE", default="", help="only sessions with this label, and their holds"
    )
    listing.add_argument(
        "--principal", metavar="NAME", default="", help="only this principal's (holds, sessions)"
    )
    listing.add_argument(
        "--longer-than",
        metavar="TIME",
        type=duration_ms,
        default=0,
        help="only what has been held for longer (locks, holds)",
    )
    _add_paging(listing)

    session = commands.command("session", "list sessions, or show what one holds and waits for")
    sessions = session.command("list", "list sessions, the oldest first", _sessions)
    sessions.add_argument("--owner", metavar="NAME", default="", help="only this owner's")
    sessions.add_argument("--label", metavar="NAME:VALUE", default="", help="only those with this label")
    sessions.add_argument("--principal", metavar="NAME", default="", help="only this principal's")
    _add_paging(sessions)
    show = session.command("show", "show what one session holds and waits for", _session)
    show.add_argument("name", metavar="SESSION_NAME", help="its public name, such as s-17")
    show.add_output()

    watch = commands.command("watch", "print events, until interrupted", _watch)
    watch.add_argument("prefix", metavar="PREFIX", nargs="?", default="", help="only names with this prefix")
    watch.add_argument("--since", metavar="ID", help="continue after this id, which -o jsonl has shown")
    watch.add_output()


def _add_paging(parser: CommandParser) -> None:
    parser.add_argument("--limit", metavar="N", type=count, help="at most this many (default: all)")
    parser.add_argument("--after", metavar="CURSOR", default="", help="continue where --limit has stopped")
    parser.add_argument(
        "--stale", action="store_true", help="read from one node without contacting the leader"
    )
    parser.add_output()


async def _get(client: Inspector, arguments: argparse.Namespace) -> int:
    """Print one lock, or another thing that has a name."""
    row = await client.read(path_to(ITEMS[arguments.kind], arguments.name), {})
    text = table(tables.LISTED[f"{arguments.kind}s"], [row])
    frozen_by = [] if arguments.kind == "fence" else await freezes_of(client, arguments.name)
    text += freeze_lines(frozen_by)
    holders = row.get("holders") or []
    asked = [holder for holder in holders if holder.get("revocation")]
    for columns, rows in (
        (tables.HOLDERS, holders),
        (tables.ASKED, asked),
        (tables.WAITERS, row.get("queue")),
    ):
        if rows:
            text += ["", *table(columns, rows)]
    print_one(row | {"frozen_by": frozen_by} if frozen_by else row, text, arguments.output)
    return 0


async def _list(client: Inspector, arguments: argparse.Namespace) -> int:
    """Print what there is of a kind."""
    query = {"prefix": arguments.prefix, **_whose(arguments)}
    if arguments.longer_than:
        query["held_longer_than_ms"] = str(arguments.longer_than)
    return await _page(client, arguments.kind, query, arguments)


async def _sessions(client: Inspector, arguments: argparse.Namespace) -> int:
    """Print sessions."""
    return await _page(client, "sessions", _whose(arguments), arguments)


def _whose(arguments: argparse.Namespace) -> dict[str, str]:
    return {name: getattr(arguments, name) for name in ("owner", "label", "principal")}


async def _page(client: Inspector, kind: str, query: Mapping[str, str], arguments: argparse.Namespace) -> int:
    query = {**query, "consistency": wire.STALE if arguments.stale else ""}
    page = InspectedPage(arguments.after)
    rows = [row async for row in client.rows(kind, query, limit=arguments.limit, page=page)]
    print_rows(rows, tables.LISTED[kind], arguments.output)
    if page.next is not None:
        say(f"there is more; continue with --after '{page.next}'")
    return 0


async def _session(client: Inspector, arguments: argparse.Namespace) -> int:
    """Print one session."""
    async for row in client.rows("sessions", {}):
        if row.get("session_name") == arguments.name:
            break
    else:
        raise Refused("session-expired", f"there is no session {arguments.name!r}; it may have ended")
    held = await client.read(wire.HOLDS, {"session_name": arguments.name})
    holds, waits = held.get("holds", []), held.get("tickets", [])
    text = table(tables.LISTED["sessions"], [row])
    if holds or waits:
        items = [{**item, "state": "holds"} for item in holds] + [
            {**item, "state": "waits"} for item in waits
        ]
        text += ["", *table(tables.OF_SESSION, items)]
    print_one({**row, "holds": holds, "tickets": waits}, text, arguments.output)
    return 0


async def _watch(client: Inspector, arguments: argparse.Namespace) -> int:
    """Print events until interrupted."""
    async with client.watch(arguments.prefix, since=arguments.since) as watching:
        async for event in watching:
            print_event(msgspec.to_builtins(event), arguments.output)
    return 0


def print_event(event: Row, output: str) -> None:
    """Print what a watch tells, in JSON without what is empty."""
    if output != TABLE:
        event = {key: value for key, value in event.items() if value not in ("", 0) or key == "revision"}
    print_next(event, event_line(event), output)
