"""The command `namespace`: the rules for the names at and below a prefix, and how much there is."""

import argparse
from collections.abc import Callable
from typing import Final

from holdfast.cli.inspector import Inspector
from holdfast.cli.parsing import ALGORITHMS, CommandParser, duration_ms, limit_and_s
from holdfast.cli.printing import Columns, Row, field, of, print_one, print_rows, table
from holdfast.operations import namespace_operations
from holdfast.values.durations import to_ms
from holdfast.wire.operators import NamespaceSettings, RateSettings

_TIMES: Final = (
    ("ttl_ms_min", "--ttl-min", "the shortest lease of a hold without a session"),
    ("ttl_ms_max", "--ttl-max", "the longest lease of a hold without a session"),
    (
        "lock_delay_ms_min",
        "--lock-delay-min",
        "the shortest lock-delay after a hold expires or is ended by force",
    ),
    (
        "ask_after_ms_min",
        "--ask-after-min",
        "let waits ask holders to give up, after this time or later",
    ),
    ("grace_ms_min", "--grace-min", "the shortest grace with which waits may ask"),
    (
        "held_ms_max",
        "--held-max",
        "how long one hold may be held, from its grant, however often it is renewed",
    ),
)
_FLAGS: Final = (
    ("no_deadline", "--no-deadline", "whether holds without a deadline are allowed"),
    ("priority", "--priority", "whether priorities are allowed"),
)
_WORDS: Final = ("renew", "refuse")
_COUNTS: Final = (
    ("holds", "names held, waited for or kept by a lock-delay"),
    ("waits", "waits at a time; each wait for a hold counts as one, too"),
    ("cells", "cells at a time"),
    ("fences", "fences at a time"),
    ("rate_limits", "rate limits in use at a time"),
    ("bytes", "bytes of names, cells, and notes and values of holds"),
)
_YES_OR_NO: Final = {"yes": True, "no": False}


def add_parser(commands: CommandParser) -> None:
    """Describe the command."""
    namespace = commands.command(
        "namespace",
        "show and set the rules for the names at and below a prefix",
        description="Show and set the rules for the names at and below a prefix, in the whole cluster. What"
        " is not given is not limited. Needs the right admin, for the prefix or for everything.",
    )
    shown = namespace.command("list", "show the rules, what is used, and the limits", _list)
    shown.add_argument("prefix", metavar="PREFIX", nargs="?", default="", help="only those with this prefix")
    ruled = namespace.command("set", "set all rules of a prefix, in place of the earlier ones", _set)
    for what, flag, text in _TIMES:
        ruled.add_argument(flag, dest=what, metavar="TIME", type=duration_ms, help=text)
    for what, flag, text in _FLAGS:
        ruled.add_argument(flag, dest=what, choices=tuple(_YES_OR_NO), help=text)
    text = "what an acquire without if_held does if its session holds the lock already"
    ruled.add_argument("--if-held", choices=_WORDS, help=text)
    text = "what each rate limit is, such as 100/minute: clients may then leave it out"
    ruled.add_argument("--rate", metavar="RATE", type=limit_and_s, help=text)
    text = f"how rate limits count (default: {ALGORITHMS[0]})"
    ruled.add_argument("--rate-algorithm", choices=ALGORITHMS, default=ALGORITHMS[0], help=text)
    for what, text in _COUNTS:
        ruled.add_argument(f"--{what.replace('_', '-')}", metavar="N", type=int, help=f"at most N {text}")
    end = namespace.command("remove", "remove the rules of a prefix; holds and cells stay", _remove)
    for parser in (ruled, end):
        parser.add_argument("prefix", metavar="PREFIX")
        parser.add_reason()
    for parser in (shown, ruled, end):
        parser.add_output()


async def _list(client: Inspector, arguments: argparse.Namespace) -> int:
    """Print namespaces, and what there is in each."""
    rows = [row async for row in client.rows("namespaces", {"prefix": arguments.prefix})]
    print_rows(rows, _LISTED, arguments.output)
    return 0


async def _set(client: Inspector, arguments: argparse.Namespace) -> int:
    """Set rules, and print what they are from now on."""
    given = {what: getattr(arguments, what) for what in NamespaceSettings.__struct_fields__}
    given |= {what: _YES_OR_NO[given[what]] for what, _, _ in _FLAGS if given[what] is not None}
    if arguments.rate is not None:
        limit, per_s = arguments.rate
        given["rate"] = RateSettings(limit, to_ms(per_s, "rate"), arguments.rate_algorithm)
    settings = NamespaceSettings(**given)
    answer = await client.told(
        namespace_operations.set_namespace(arguments.prefix, settings, arguments.reason)
    )
    print_one(answer, table(_RULED, [answer]), arguments.output)
    return 0


async def _remove(client: Inspector, arguments: argparse.Namespace) -> int:
    """Remove rules."""
    answer = await client.told(namespace_operations.remove_namespace(arguments.prefix, arguments.reason))
    print_one(answer, [f"{arguments.prefix} has no rules of its own"], arguments.output)
    return 0


def _setting(row: Row, what: str) -> object:
    settings: Row = row.get("settings") or {}
    return settings.get(what)


def _used(what: str) -> Callable[[Row], str]:
    return lambda row: of((row.get("used") or {}).get(what, 0), _setting(row, what))


def _bound(what: str) -> Callable[[Row], object]:
    return lambda row: "-" if _setting(row, what) is None else _setting(row, what)


def _rules(row: Row) -> str:
    """Return what a namespace says besides its quotas."""
    words = [
        f"{what}={'yes' if value is True else 'no' if value is False else value}"
        for what, *_ in (*_TIMES, *_FLAGS, ("if_held",))
        if (value := _setting(row, what)) is not None
    ]
    rate = _setting(row, "rate")
    if isinstance(rate, dict):
        words.append(f"rate={rate['limit']}/{rate['window_ms']}ms,{rate['algorithm']}")
    return " ".join(words) or "-"


_LISTED: Final[Columns] = {
    "PREFIX": field("prefix"),
    **{what.upper(): _used(what) for what, _ in _COUNTS},
    "RULES": _rules,
}
_RULED: Final[Columns] = {
    "PREFIX": field("prefix"),
    **{what.upper(): _bound(what) for what, _ in _COUNTS},
    "RULES": _rules,
}
