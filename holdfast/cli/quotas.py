"""The command `quota`: how much each principal may have at a time, and how much it has."""

import argparse
from typing import Final

import msgspec

from holdfast._values import PrincipalInfo, Quota
from holdfast.cli.inspector import Inspector
from holdfast.cli.printing import print_line, print_table

_WHAT: Final = (
    ("sessions", "sessions at a time"),
    ("holds", "holds at a time, with what it waits for"),
    ("waits", "waits at a time, of which each counts as a hold, too"),
    ("cells", "cells at a time"),
    ("fences", "fences at a time"),
    ("bytes", "bytes of cells, notes, values and labels at a time"),
)


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Describe the command."""
    quota = commands.add_parser(
        "quota",
        help="show and set how much each principal may have at a time",
        description="Show and set how much a principal may have at a time, in the whole cluster."
        " '*' is each principal without a quota of its own. Needs the right admin.",
    )
    actions = quota.add_subparsers(dest="action", required=True, metavar="ACTION")
    shown = actions.add_parser("list", help="show who has how much, of how much")
    shown.add_argument("--json", action="store_true", help="one JSON document in each line")
    bound = actions.add_parser("set", help="bound what a principal may have, or with '*' all others")
    for what, text in _WHAT:
        bound.add_argument(f"--{what}", metavar="N", type=int, help=f"so many {text}")
    end = actions.add_parser("remove", help="end the quota of a principal")
    for parser in (bound, end):
        parser.add_argument("principal", metavar="PRINCIPAL")


async def run(client: Inspector, arguments: argparse.Namespace) -> int:
    """Do it, and print what came of it."""
    match arguments.action:
        case "list":
            _print(await client.admin.quotas(), as_json=arguments.json)
        case "set":
            numbers = {what: getattr(arguments, what) for what, _ in _WHAT}
            _say(arguments.principal, await client.admin.set_quota(arguments.principal, **numbers))
        case _:
            await client.admin.remove_quota(arguments.principal)
            _say(arguments.principal, None)
    return 0


def _say(principal: str, quota: Quota | None) -> None:
    print_line({"principal": principal, "quota": msgspec.to_builtins(quota)})


def _print(rows: tuple[PrincipalInfo, ...], *, as_json: bool) -> None:
    if as_json:
        for row in rows:
            print_line(msgspec.to_builtins(row))
        return
    quotas = [(row, row.quota or Quota()) for row in rows]
    print_table(
        ("PRINCIPAL", *[what.upper() for what, _ in _WHAT]),
        [
            (row.principal, *[_of(getattr(row.used, what), getattr(quota, what)) for what, _ in _WHAT])
            for row, quota in quotas
        ],
    )


def _of(used: int, limit: int | None) -> str:
    return str(used) if limit is None else f"{used} of {limit}"
