"""The commands that look: `list`, `session`, `watch`. They change nothing."""

import argparse
import sys
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from holdfast import wire
from holdfast._errors import Refused
from holdfast.cli.inspector import LISTINGS, Inspector, Page
from holdfast.cli.printing import Row, event_line, length, print_json, print_line, print_table


def add_parser(
    commands: "argparse._SubParsersAction[argparse.ArgumentParser]", duration_ms: Callable[[str], int]
) -> None:
    """Describe the commands."""
    listing = commands.add_parser(
        "list", help="list locks, or what else there is, by the beginnings of names"
    )
    listing.add_argument("prefix", metavar="PREFIX", nargs="?", default="", help="only names that begin so")
    listing.add_argument("--kind", choices=list(LISTINGS), default="locks", help="what (default: locks)")
    listing.add_argument(
        "--owner", metavar="NAME", default="", help="only those of this owner (holds, sessions)"
    )
    listing.add_argument(
        "--label", metavar="NAME:VALUE", default="", help="only sessions with this label, and their holds"
    )
    listing.add_argument(
        "--longer-than",
        metavar="TIME",
        type=duration_ms,
        default=0,
        help="only what somebody has held for longer (locks, holds)",
    )
    _add_paging(listing)
    session = commands.add_parser("session", help="list sessions, or show what one holds and waits for")
    kinds = session.add_subparsers(dest="action", required=True, metavar="ACTION")
    sessions = kinds.add_parser("list", help="list sessions, the oldest first")
    sessions.add_argument("--owner", metavar="NAME", default="", help="only those of this owner")
    sessions.add_argument("--label", metavar="NAME:VALUE", default="", help="only those with this label")
    _add_paging(sessions)
    show = kinds.add_parser("show", help="show one session")
    show.add_argument("name", metavar="SESSION_NAME", help="its public name, such as s-17")
    show.add_argument("--json", action="store_true", help="as one JSON document")

    watch = commands.add_parser("watch", help="print what happens, until it is interrupted")
    watch.add_argument("prefix", metavar="PREFIX", nargs="?", default="", help="only names that begin so")
    watch.add_argument("--since", metavar="ID", help="go on behind this id, which --json has shown")
    watch.add_argument("--json", action="store_true", help="one JSON document in each line")


def _add_paging(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--limit", type=count, help="this many at most (default: all)")
    parser.add_argument("--after", metavar="CURSOR", default="", help="go on where --limit has stopped")
    parser.add_argument("--stale", action="store_true", help="what the asked node has, without a leader, too")
    parser.add_argument("--json", action="store_true", help="one JSON document in each line")


def count(text: str) -> int:
    """Read a number of things, at least one."""
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of at least 1")
    return int(text)


async def list_(client: Inspector, arguments: argparse.Namespace) -> int:
    """Print what there is of a kind."""
    query = {"prefix": arguments.prefix, "owner": arguments.owner, "label": arguments.label}
    if arguments.longer_than:
        query["held_longer_than_ms"] = str(arguments.longer_than)
    return await _list(client, arguments.kind, query, arguments)


async def session(client: Inspector, arguments: argparse.Namespace) -> int:
    """List sessions, or show one."""
    if arguments.action == "list":
        query = {"owner": arguments.owner, "label": arguments.label}
        return await _list(client, "sessions", query, arguments)
    async for row in client.rows("sessions", {}):
        if row.get("session_name") == arguments.name:
            break
    else:
        raise Refused("session-expired", f"there is no session {arguments.name!r}, or there is no more")
    held = await client.read(wire.HOLDS, {"session_name": arguments.name})
    if arguments.json:
        print_json({**row, "holds": held.get("holds", []), "tickets": held.get("tickets", [])})
        return 0
    print_table(*_shown("sessions", [row]))
    holds = [{**item, "state": "holds"} for item in held.get("holds", [])]
    waits = [{**item, "state": "waits"} for item in held.get("tickets", [])]
    if holds or waits:
        print()
        print_table(
            ("STATE", "KIND", "NAME", "TOKEN", "SINCE"),
            [
                (
                    str(item["state"]),
                    str(item.get("kind", "")),
                    str(item.get("name", "")),
                    str(item.get("token", "-")),
                    length(item.get("since_ms", item.get("waited_ms"))),
                )
                for item in holds + waits
            ],
        )
    return 0


async def _list(client: Inspector, kind: str, query: Mapping[str, str], arguments: argparse.Namespace) -> int:
    query = {**query, "consistency": wire.STALE if arguments.stale else ""}
    page = Page(arguments.after)
    found = []
    async for row in client.rows(kind, query, limit=arguments.limit, page=page):
        if arguments.json:
            print_line(row)
        else:
            found.append(row)
    if not arguments.json:
        print_table(*_shown(kind, found))
    if page.next is not None:
        print(f"holdfast: there is more; go on with --after '{page.next}'", file=sys.stderr)
    return 0


def _shown(kind: str, rows: list[Row]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return the titles and the cells of a table of a kind."""
    columns = _COLUMNS[kind]
    return tuple(columns), [tuple(str(show(row)) for show in columns.values()) for row in rows]


def owners(row: Row) -> str:
    """Return who holds something, a few of them by name."""
    holders = row.get("holders", ())
    more = max(len(holders), row.get("holders_count", 0)) - 1
    if not holders:
        return "-"
    return f"{holders[0].get('owner')}" + (f" +{more}" if more else "")


def _labels(row: Row) -> str:
    return ",".join(f"{name}:{value}" for name, value in row.get("labels", {}).items()) or "-"


def _value(row: Row) -> str:
    return str(row["value"]) if "value" in row else f"base64:{row.get('value_base64', '')}"


_COLUMNS: Final[Mapping[str, Mapping[str, Callable[[Row], object]]]] = {
    "locks": {
        "NAME": lambda row: row.get("name"),
        "STATE": lambda row: row.get("state"),
        "HOLDER": owners,
        "MODE": lambda row: next((holder.get("mode") for holder in row.get("holders", ())), "-"),
        "WAITING": lambda row: len(row.get("queue", ())),
    },
    "semaphores": {
        "NAME": lambda row: row.get("name"),
        "LIMIT": lambda row: row.get("limit"),
        "LEFT": lambda row: row.get("available"),
        "HOLDER": owners,
        "WAITING": lambda row: row.get("queue_length"),
    },
    "elections": {
        "NAME": lambda row: row.get("name"),
        "LEADER": lambda row: (row.get("leader") or {}).get("owner", "-"),
        "VALUE": lambda row: (row.get("leader") or {}).get("value", "-"),
        "WAITING": lambda row: row.get("queue_length"),
    },
    "rate-limits": {
        "NAME": lambda row: row.get("name"),
        "ALGORITHM": lambda row: row.get("algorithm"),
        "WINDOW": lambda row: length(row.get("window_ms")),
        "WHOLE IN": lambda row: length(row.get("reset_in_ms")),
    },
    "fences": {"RESOURCE": lambda row: row.get("resource"), "TOKEN": lambda row: row.get("highest_token")},
    "cells": {
        "KEY": lambda row: row.get("key", row.get("key_base64")),
        "VERSION": lambda row: row.get("version"),
        "ENDS IN": lambda row: length(row.get("expires_in_ms")),
        "VALUE": _value,
    },
    "sessions": {
        "NAME": lambda row: row.get("session_name"),
        "OWNER": lambda row: row.get("owner"),
        "LABELS": _labels,
        "ENDS IN": lambda row: length(row.get("expires_in_ms")),
        "HOLDS": lambda row: row.get("holds_count"),
        "WAITS": lambda row: row.get("tickets_count"),
    },
    "holds": {
        "KIND": lambda row: row.get("kind"),
        "NAME": lambda row: row.get("name"),
        "OWNER": lambda row: row.get("owner"),
        "SESSION": lambda row: row.get("session_name", "-"),
        "TOKEN": lambda row: row.get("token"),
        "HELD": lambda row: length(row.get("since_ms")),
        "ENDS IN": lambda row: length(row.get("expires_in_ms")),
    },
}
"""The columns of each kind, and how to get them out of a row."""


# -- what happens -----------------------------------------------------------------------------------------


async def watch(client: Inspector, arguments: argparse.Namespace) -> int:
    """Print events until somebody interrupts it."""
    async with client.watch(arguments.prefix, since=arguments.since) as watching:
        async for event in watching:
            print_event(msgspec.to_builtins(event), as_json=arguments.json)
    return 0


def print_event(event: Row, *, as_json: bool) -> None:
    """Print what a watch tells, without what is empty."""
    if as_json:
        print_line({key: value for key, value in event.items() if value not in ("", 0) or key == "revision"})
    else:
        print(event_line(event), flush=True)
