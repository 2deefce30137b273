"""The command `quota`: how much each principal may have at a time, and how much it has."""

import argparse
from collections.abc import Callable
from typing import Final

from holdfast.cli.inspector import Inspector
from holdfast.cli.parsing import CommandParser
from holdfast.cli.printing import Columns, Row, field, of, print_one, print_rows, table
from holdfast.operations import quota_operations
from holdfast.wire.operators import Quota

_WHAT: Final = (
    ("sessions", "sessions at a time"),
    ("holds", "names held, waited for or kept by a lock-delay"),
    ("waits", "waits at a time; each wait for a hold counts as one, too"),
    ("cells", "cells at a time"),
    ("fences", "fences at a time"),
    ("rate_limits", "rate limits in use at a time"),
    ("bytes", "bytes of names, cells, notes, values and labels at a time"),
)


def add_parser(commands: CommandParser) -> None:
    """Describe the command."""
    quota = commands.command(
        "quota",
        "show and set how much each principal may have at a time",
        description="Show and set how much a principal may have at a time, in the whole cluster."
        " '*' is each principal without a quota of its own. Needs the right admin.",
    )
    shown = quota.command("list", "show what each principal has, and its quota", _list)
    bound = quota.command("set", "limit a principal, or with '*' every one without a quota of its own", _set)
    for what, text in _WHAT:
        bound.add_argument(f"--{what.replace('_', '-')}", metavar="N", type=int, help=f"at most N {text}")
    end = quota.command("remove", "remove the quota of a principal", _remove)
    for parser in (bound, end):
        parser.add_argument("principal", metavar="PRINCIPAL")
        parser.add_reason()
    for parser in (shown, bound, end):
        parser.add_output()


async def _list(client: Inspector, arguments: argparse.Namespace) -> int:
    """Print quotas, and what there is."""
    print_rows([row async for row in client.rows("quotas", {})], _LISTED, arguments.output)
    return 0


async def _set(client: Inspector, arguments: argparse.Namespace) -> int:
    """Set a quota, and print what it is from now on."""
    quota = Quota(**{what: getattr(arguments, what) for what, _ in _WHAT})
    answer = await client.told(quota_operations.set_quota(arguments.principal, quota, arguments.reason))
    print_one(answer, table(_SET, [answer]), arguments.output)
    return 0


async def _remove(client: Inspector, arguments: argparse.Namespace) -> int:
    """Remove a quota."""
    answer = await client.told(quota_operations.remove_quota(arguments.principal, arguments.reason))
    print_one(answer, [f"{arguments.principal} has no quota of its own"], arguments.output)
    return 0


def _limit(row: Row, what: str) -> int | None:
    quota: Row = row.get("quota") or {}
    return quota.get(what)


def _used(what: str) -> Callable[[Row], str]:
    return lambda row: of((row.get("used") or {}).get(what, 0), _limit(row, what))


def _bound(what: str) -> Callable[[Row], object]:
    return lambda row: "-" if _limit(row, what) is None else _limit(row, what)


_LISTED: Final[Columns] = {"PRINCIPAL": field("principal")} | {what.upper(): _used(what) for what, _ in _WHAT}
_SET: Final[Columns] = {"PRINCIPAL": field("principal")} | {what.upper(): _bound(what) for what, _ in _WHAT}
