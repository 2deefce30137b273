"""The command `audit`: what happened, shipped record by record, and whether what was shipped is whole."""

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple, NoReturn

import msgspec

from holdfast import wire
from holdfast.cli import exit_codes
from holdfast.cli.audit_chain import ChainCheck
from holdfast.cli.inspector import Inspector
from holdfast.cli.parsing import CommandParser, count, number
from holdfast.cli.printing import (
    EVENT_WIDTH,
    TABLE,
    Row,
    event_line,
    moment,
    print_lines,
    print_next,
    print_one,
    print_rows,
    say,
)
from holdfast.values.errors import Unavailable

_HEAD: Final = f"{'UTC, AT THE LATEST':<20}  {'EVENT':<{EVENT_WIDTH}} {'KIND':<9} NAME"
_NO_TIME: Final = "-" * 20
COUNT: Final = 100
PAGE: Final = 1000
"""The most records that a node tells of at a time."""
LOOK_S: Final = 0.5
"""Seconds between two requests for records while records are shipped."""


def add_parser(commands: CommandParser) -> None:
    """Describe the command."""
    audit = commands.command(
        "audit",
        "print the latest records, and new ones as they come",
        run,
        description="Print the latest records, the oldest first. Times are UTC by the clock of this machine,"
        " counted back from cluster time, which stands still while there is no leader: a record may be older"
        " than its time says. JSON has the records as the cluster keeps them, with cluster time alone.",
    )
    audit.add_argument("name", metavar="NAME", nargs="?", default="", help="only this name")
    audit.add_argument(
        "--limit", metavar="N", type=count, default=COUNT, help=f"at most N, up to {PAGE} (default: {COUNT})"
    )
    audit.add_argument(
        "--behind", metavar="NUMBER", type=number, help="continue after this record, which -o jsonl has shown"
    )
    audit.add_argument(
        "--by-operators", action="store_true", help="only what operators did to others, or set"
    )
    audit.add_argument("--follow", action="store_true", help="go on until interrupted")
    audit.add_argument(
        "--verify",
        metavar="FILE",
        help="ask no node: say which record is missing or changed in what -o jsonl has printed; - is stdin",
    )
    audit.add_output()


async def run(client: Inspector, arguments: argparse.Namespace) -> int:
    """Print what happened, the oldest first, and what happens after it; or look at what was printed."""
    if arguments.verify is not None:
        return _verify(arguments.verify, arguments.output)
    if arguments.behind and not await _is_there(client, arguments.behind):
        return exit_codes.REFUSED
    behind = "" if arguments.behind is None else str(arguments.behind)
    query = {
        "name": arguments.name,
        "limit": str(arguments.limit),
        "behind": behind,
        "by_operators": "true" if arguments.by_operators else "",
    }
    if not arguments.follow:
        records = await _records(client, query)
        if arguments.output == TABLE:
            print_lines([_HEAD, *(_line(record) for record in records)])
        else:
            # As they are: the hash of each covers all that it shows.
            print_rows([record.row for record in records], {}, arguments.output)
        return 0
    if arguments.output == TABLE:
        print_next(None, _HEAD, TABLE)
    return await _ship(client, query, arguments.output)


async def _is_there(client: Inspector, behind: int) -> bool:
    """Whether the cluster has come as far as a record; if it has not, say so.

    A cluster that was founded anew counts from 1 again: it would be silent until it has as many records.
    """
    answer = await client.read(wire.AUDIT, {"limit": "1"})
    newest = max((record.get("number", 0) for record in answer.get("events", [])), default=0)
    if newest >= behind or answer.get("hidden"):  # a caller that may not read all cannot tell
        return True
    say(
        f"there is no record {behind}: the newest is {newest}. If the cluster was founded anew, begin another"
        " file, with --behind 0"
    )
    return False


class _Record(NamedTuple):
    """A record as the cluster has told it, and when it was at the latest, in ms of the wall clock."""

    row: Row
    unix_ms: float | None


async def _records(client: Inspector, query: Mapping[str, str]) -> list[_Record]:
    """Return the newest records, or the first ones behind another, the oldest first."""
    answer = await client.read(wire.AUDIT, query)
    rows: list[Row] = answer.get("events", [])
    if not query["behind"]:
        rows.reverse()
    # By our own clock: those of nodes are not told, and may differ.
    base_ms = time.time() * 1000 - answer["now_ms"] if "now_ms" in answer else None
    return [_Record(row, None if base_ms is None else base_ms + row.get("at_ms", 0)) for row in rows]


def _line(record: _Record) -> str:
    """Return a record in one line for people."""
    at = _NO_TIME if record.unix_ms is None else moment(record.unix_ms, "seconds")
    return f"{at:<{len(_NO_TIME)}}  {event_line(record.row)}"


def _print(records: Iterable[_Record], output: str) -> None:
    for record in records:
        print_next(record.row, _line(record), output)


async def _ship(client: Inspector, query: dict[str, str], output: str) -> NoReturn:
    """Print records, and every one behind those, for ever; what no node can tell now is told later."""
    records = await _records(client, query)
    # Nothing is missed if a node that is behind is asked, and no node has to ask the others.
    query = query | {"limit": str(PAGE), "consistency": wire.STALE}
    while True:
        _print(records, output)
        if records:
            query["behind"] = str(records[-1].row["number"])
        if len(records) < PAGE:
            await asyncio.sleep(LOOK_S)
        try:
            records = await _records(client, query)
        except Unavailable as error:
            say(f"{error}; continues after record {query['behind'] or 0}")
            records = []


def _verify(file: str, output: str) -> int:
    """Look at the records in a file. Raises ValueError if it cannot be read."""
    if file == "-":
        return _say_what_is_wrong(sys.stdin.buffer, output)
    try:
        with Path(file).open("rb") as lines:
            return _say_what_is_wrong(lines, output)
    except OSError as error:
        raise ValueError(f"--verify: {error}") from error


def _say_what_is_wrong(lines: Iterable[bytes], output: str) -> int:
    """Print what is wrong with records, each in a line of its own, and what there is."""
    check = ChainCheck()
    wrong = [
        {"line": number, "wrong": text}
        for number, line in enumerate(lines, 1)
        if line.strip()
        for text in _wrong(check, line)
    ]
    is_whole = bool(check.count) and not wrong
    found: Row = {"whole": is_whole, "count": check.count, "wrong": wrong}
    text = [f"line {each['line']}: {each['wrong']}" for each in wrong]
    if check.count:
        found |= {"first": check.first_number, "last": check.last_number, "in_no_hash": check.uncovered_count}
        judged = _whole(check) if is_whole else ""
        text.append(f"{check.count} records, {check.first_number} to {check.last_number}{judged}")
    else:
        text.append("no records")
    if check.last is not None:
        found |= {"hash_of": check.last.number, "hash": check.last.hash, "chain": check.last.chain}
        since = f", and stands for those from {check.last.chain} on" * (check.last.chain > check.first_number)
        text.append(f"the hash of record {check.last.number} is {check.last.hash}{since}")
    print_one(found, text, output)
    return 0 if is_whole else exit_codes.REFUSED


def _wrong(check: ChainCheck, line: bytes) -> list[str]:
    """Return what is wrong with a record."""
    try:
        row = msgspec.json.decode(line, type=Row)
        json.loads(line, object_pairs_hook=_once)
        return [*check.look(row)]
    except _TwiceError as error:
        return [f"it has {error} twice"]
    except (msgspec.DecodeError, ValueError, RecursionError):
        return ["not a JSON object"]


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
