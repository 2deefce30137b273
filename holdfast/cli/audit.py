"""The command `audit`: what happened, shipped record by record, and whether what was shipped is whole."""

import argparse
import asyncio
import json
import sys
from collections.abc import Container, Iterable
from itertools import takewhile
from pathlib import Path
from typing import Any, Final, TypeAlias

import msgspec

from holdfast import wire
from holdfast._errors import Unavailable
from holdfast._watch import Watch
from holdfast.cli import exit_codes
from holdfast.cli.audit_chain import ChainCheck
from holdfast.cli.inspector import Inspector
from holdfast.cli.printing import Row, event_line, print_line
from holdfast.cli.reading import count, print_event

AUDITED: Final = frozenset(
    {
        "granted",
        "released",
        "expired",
        "forced",
        "revoked",
        "put-off",
        "converted",
        "session-expired",
        "session-forced",
        "elected",
        "resigned",
        "delay-lifted",
        "fence-forgotten",
    }
)
"""The events that the audit has, of those that a watch tells."""
_Key: TypeAlias = tuple[object, ...]
COUNT: Final = 100
PAGE: Final = 1000
"""The most records that a node tells of at a time."""
LOOK_S: Final = 0.5
"""Seconds after which somebody who ships records asks for the next ones."""


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Describe the command."""
    audit = commands.add_parser("audit", help="print what happened last, and what happens from now on")
    audit.add_argument("name", metavar="NAME", nargs="?", default="", help="only this name")
    audit.add_argument(
        "--limit", type=count, default=COUNT, help=f"how many, at most {PAGE} (default: {COUNT})"
    )
    audit.add_argument(
        "--behind", metavar="NUMBER", type=_number, help="go on behind this record, which --json has shown"
    )
    audit.add_argument("--follow", action="store_true", help="go on until it is interrupted")
    audit.add_argument("--json", action="store_true", help="one JSON document in each line")
    audit.add_argument(
        "--verify",
        metavar="FILE",
        help="ask no node: say which record is missing or changed in what --json has printed; - is stdin",
    )


def _number(text: str) -> int:
    """Read the number of a record, or 0."""
    if not (text.isascii() and text.isdigit()):
        raise argparse.ArgumentTypeError(f"{text!r} is not the number of a record")
    return int(text)


async def run(client: Inspector, arguments: argparse.Namespace) -> int:
    """Print what happened, the oldest first, and what happens after it; or look at what was printed."""
    if arguments.verify is not None:
        return _verify(arguments.verify)
    if arguments.behind and not await _is_there(client, arguments.behind):
        return exit_codes.REFUSED
    query = {"limit": str(arguments.limit)}
    if not arguments.follow:
        await _records(client, arguments, query, arguments.behind)
        return 0
    told: set[_Key] = set()
    if arguments.json:
        told = {_key(record) for record in await _ship(client, arguments, query)}
        query = {"limit": str(PAGE)}  # what came since then
    watching = client.watch(arguments.name)
    try:
        await watching.begin()  # before the look at the past: nothing is missed in between
        past = await _records(client, arguments, query, arguments.behind, told)
        await _follow(watching, arguments, told | {_key(event) for event in past})
    finally:
        await watching.close()
    return 0


async def _is_there(client: Inspector, behind: int) -> bool:
    """Whether the cluster has come as far as a record; if it has not, say so.

    A cluster that was founded anew counts from 1 again: it would be silent until it has as many records.
    """
    answer = await client.read(wire.AUDIT, {"limit": "1"})
    newest = max((record.get("number", 0) for record in answer.get("events", [])), default=0)
    if newest >= behind or answer.get("hidden"):  # who may not read all cannot tell
        return True
    print(
        f"holdfast: there is no record {behind}: the newest is {newest}. If the cluster was founded anew,"
        " begin another file, with --behind 0",
        file=sys.stderr,
    )
    return False


async def _records(
    client: Inspector,
    arguments: argparse.Namespace,
    query: dict[str, str],
    behind: int | None,
    told: Container[_Key] = (),
) -> list[Row]:
    """Print the newest records, or the first ones behind another, and return them, the oldest first.

    Of the newest records it is those that came after the ones that were told.
    """
    query = query | {"name": arguments.name, "behind": "" if behind is None else str(behind)}
    found: list[Row] = (await client.read(wire.AUDIT, query)).get("events", [])
    if behind is None:
        found = [*takewhile(lambda record: _key(record) not in told, found)][::-1]
    for record in found:
        if arguments.json:
            print_line(record)  # as it is: its hash covers all that it shows
        else:
            print(event_line(record), flush=True)
    return found


async def _ship(client: Inspector, arguments: argparse.Namespace, query: dict[str, str]) -> list[Row]:
    """Print records, and every one behind those, for ever; what no node can tell now is told later.

    Returns records that have no numbers to go on by: those of a cluster that follows rules 8.
    """
    records = await _records(client, arguments, query, arguments.behind)
    # Nothing is missed if a node that is behind is asked, and no node has to ask the others.
    query = {"limit": str(PAGE), "consistency": wire.STALE}
    last = arguments.behind
    while True:
        if records:
            if "number" not in records[-1]:
                return records
            last = records[-1]["number"]
        if len(records) < PAGE:
            await asyncio.sleep(LOOK_S)
        try:
            records = await _records(client, arguments, query, last)
        except Unavailable as error:
            print(f"holdfast: {error}; it goes on behind record {last}", file=sys.stderr)
            records = []


async def _follow(watching: Watch, arguments: argparse.Namespace, told: set[_Key]) -> None:
    """Print what comes and was not told yet."""
    async for event in watching:
        row = msgspec.to_builtins(event)
        is_meant = not arguments.name or event.name == arguments.name
        if is_meant and event.event in AUDITED and _key(row) not in told:
            print_event(row, as_json=arguments.json)


def _key(event: Row) -> _Key:
    """Return what tells one event from all others."""
    return tuple(
        event.get(field) or None for field in ("revision", "event", "kind", "name", "owner", "token")
    )


def _verify(file: str) -> int:
    """Look at the records in a file. Raises ValueError if it cannot be read."""
    if file == "-":
        return _say_what_is_wrong(sys.stdin.buffer)
    try:
        with Path(file).open("rb") as lines:
            return _say_what_is_wrong(lines)
    except OSError as error:
        raise ValueError(f"--verify: {error}") from error


def _say_what_is_wrong(lines: Iterable[bytes]) -> int:
    """Print what is wrong with records, each in a line of its own, and what there is."""
    check, is_whole = ChainCheck(), True
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = msgspec.json.decode(line, type=Row)
            json.loads(line, object_pairs_hook=_once)
            wrong = [*check.look(row)]
        except _TwiceError as error:
            wrong = [f"it has {error} twice"]
        except (msgspec.DecodeError, ValueError, RecursionError):
            wrong = ["not a JSON object"]
        for text in wrong:
            print(f"line {number}: {text}")
            is_whole = False
    if not check.count:
        print("no records")
        return exit_codes.REFUSED
    print(f"{check.count} records, {check.first_number} to {check.last_number}{_whole(check) * is_whole}")
    if check.last is not None:
        since = f", and stands for those from {check.last.chain} on" * (check.last.chain > check.first_number)
        print(f"the hash of record {check.last.number} is {check.last.hash}{since}")
    return 0 if is_whole else exit_codes.REFUSED


def _whole(check: ChainCheck) -> str:
    """Say what is known of records with which nothing is wrong."""
    if not check.uncovered_count:
        return ", none missing or changed"
    return f", none missing; {check.uncovered_count} are in no hash, and none of the others was changed"


class _TwiceError(ValueError):
    """A field that stands twice: readers differ in which of them they take."""


def _once(pairs: list[tuple[str, Any]]) -> None:
    """Look at the fields of a JSON object. Raises _TwiceError."""
    names = set()
    for name, _ in pairs:
        if name in names:
            raise _TwiceError(name)
        names.add(name)
