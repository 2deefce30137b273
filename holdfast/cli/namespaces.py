"""The command `namespace`: what holds for the names at and below a prefix, and how much there is."""

import argparse
from collections.abc import Callable
from typing import Final

import msgspec

from holdfast._values import NamespaceInfo, NamespaceSettings
from holdfast.cli.inspector import Inspector
from holdfast.cli.printing import print_line, print_table

_TIMES: Final = (
    ("ttl_ms_min", "--ttl-min", "the shortest lease that does not live with a session"),
    ("ttl_ms_max", "--ttl-max", "the longest lease that does not live with a session"),
    ("lock_delay_ms_min", "--lock-delay-min", "how long nobody gets what expired or was forced, at least"),
)
_FLAGS: Final = (
    ("no_deadline", "--no-deadline", "whether holds without a deadline are allowed"),
    ("priority", "--priority", "whether priorities are allowed"),
)
_WORDS: Final = ("renew", "refuse")
_COUNTS: Final = (
    ("holds", "holds at a time, with what is waited for"),
    ("waits", "waits at a time, of which each counts as a hold, too"),
    ("cells", "cells at a time"),
    ("fences", "fences at a time"),
    ("bytes", "bytes of keys and values of cells, and of notes and values of holds"),
)
_YES_OR_NO: Final = {"yes": True, "no": False}


def add_parser(
    commands: "argparse._SubParsersAction[argparse.ArgumentParser]", duration_ms: Callable[[str], int]
) -> None:
    """Describe the command."""
    namespace = commands.add_parser(
        "namespace",
        help="show and set what holds for the names at and below a prefix",
        description="Show and set what holds for the names at and below a prefix, in the whole cluster."
        " What is left out is left open. Needs the right admin, for the prefix or for everything.",
    )
    actions = namespace.add_subparsers(dest="action", required=True, metavar="ACTION")
    shown = actions.add_parser("list", help="show what there is, of how much")
    shown.add_argument("prefix", metavar="PREFIX", nargs="?", default="", help="only those that begin so")
    shown.add_argument("--json", action="store_true", help="one JSON document in each line")
    said = actions.add_parser("set", help="say what holds for a prefix, in the place of what was said")
    for what, flag, text in _TIMES:
        said.add_argument(flag, dest=what, metavar="TIME", type=duration_ms, help=text)
    for what, flag, text in _FLAGS:
        said.add_argument(flag, dest=what, choices=tuple(_YES_OR_NO), help=text)
    text = "what an acquire means that does not say it, if its session holds just that lock already"
    said.add_argument("--if-held", choices=_WORDS, help=text)
    for what, text in _COUNTS:
        said.add_argument(f"--{what}", metavar="N", type=int, help=f"so many {text}")
    end = actions.add_parser("remove", help="remove a namespace; what is there stays")
    for parser in (said, end):
        parser.add_argument("prefix", metavar="PREFIX")


async def run(client: Inspector, arguments: argparse.Namespace) -> int:
    """Do it, and print what came of it."""
    prefix = arguments.prefix
    match arguments.action:
        case "list":
            _print(await client.admin.namespaces(prefix), as_json=arguments.json)
        case "set":
            said = {what: getattr(arguments, what) for what in NamespaceSettings.__struct_fields__}
            said |= {what: _YES_OR_NO[said[what]] for what, _, _ in _FLAGS if said[what] is not None}
            _say(prefix, await client.admin.set_namespace(prefix, NamespaceSettings(**said)))
        case _:
            await client.admin.remove_namespace(prefix)
            _say(prefix, None)
    return 0


def _say(prefix: str, settings: NamespaceSettings | None) -> None:
    print_line({"prefix": prefix, "settings": msgspec.to_builtins(settings)})


def _print(rows: tuple[NamespaceInfo, ...], *, as_json: bool) -> None:
    if as_json:
        for row in rows:
            print_line(msgspec.to_builtins(row))
        return
    print_table(
        ("PREFIX", *[what.upper() for what, _ in _COUNTS], "SAYS"),
        [(row.prefix, *[_of(row, what) for what, _ in _COUNTS], _rules_of(row.settings)) for row in rows],
    )


def _of(row: NamespaceInfo, what: str) -> str:
    used, limit = getattr(row.used, what), getattr(row.settings, what)
    return str(used) if limit is None else f"{used} of {limit}"


def _rules_of(settings: NamespaceSettings) -> str:
    """Return what a namespace says besides its quotas."""
    words = [
        f"{what}={'yes' if value is True else 'no' if value is False else value}"
        for what, *_ in (*_TIMES, *_FLAGS, ("if_held",))
        if (value := getattr(settings, what)) is not None
    ]
    return " ".join(words) or "-"
