"""The command `top`: who holds and who waits, again and again, in a terminal."""

import argparse
import asyncio
import shutil
import signal
import sys
from typing import Final

from holdfast import wire
from holdfast.cli import exit_codes
from holdfast.cli.inspector import Inspector
from holdfast.cli.parsing import CommandParser, count, duration_ms
from holdfast.cli.printing import (
    RED,
    TABLE,
    Columns,
    Row,
    colored,
    field,
    length,
    print_on_screen,
    print_one,
    printable,
    table,
)
from holdfast.cli.tables import owners
from holdfast.values.answers import ClusterInfo
from holdfast.values.errors import LockError

LOOKED_AT: Final = 10_000
"""How many locks one look goes through, so that looking does not slow a large cluster down."""
ROWS: Final = 20
"""How many rows are shown where there is no terminal that says how many fit."""
_HEAD: Final = 4
"""Lines above and below the rows."""

_ENTER: Final = "\x1b[?1049h\x1b[?25l"
"""Another screen, without a cursor."""
_LEAVE: Final = "\x1b[?25h\x1b[?1049l"
_HOME: Final = "\x1b[H"
_REST_OF_LINE: Final = "\x1b[K"
_REST_OF_SCREEN: Final = "\x1b[J"


def add_parser(commands: CommandParser) -> None:
    """Describe the command."""
    top = commands.command(
        "top",
        "show the locks with the longest queues and holds, again and again",
        run,
        description="Show who holds and who waits: the longest queues first, then the longest holds. Looks at"
        f" the first {LOOKED_AT} names, as one node sees them. Control-C ends it.",
    )
    top.add_argument("prefix", metavar="PREFIX", nargs="?", default="", help="only names with this prefix")
    top.add_argument(
        "--interval", metavar="TIME", type=duration_ms, default=2000, help="how often to look (default: 2s)"
    )
    top.add_argument("--rows", metavar="N", type=count, help="how many rows (default: as many as fit)")
    top.add_argument(
        "--once", action="store_true", help="print one snapshot, as without a terminal, and exit"
    )
    top.add_output()


async def run(client: Inspector, arguments: argparse.Namespace) -> int:
    """Show it, once or until it is interrupted. Raises LockError if the first look fails."""
    is_table = arguments.output == TABLE
    is_live = not arguments.once and (not is_table or sys.stdout.isatty())
    look = await _look(client, arguments.prefix)
    if is_live and is_table:
        return await _live(client, look, arguments)
    _show(*look, arguments)
    while is_live:
        await asyncio.sleep(max(arguments.interval / 1000, 0.1))
        _show(*await _look(client, arguments.prefix), arguments)
    return 0


async def _live(client: Inspector, look: tuple[ClusterInfo, list[Row]], arguments: argparse.Namespace) -> int:
    """Show it on a screen of its own until it is interrupted; the terminal is as before afterwards."""
    task = asyncio.current_task()
    assert task is not None
    ended: list[int] = []

    def end(number: int) -> None:
        ended.append(number)
        task.cancel()

    if hasattr(signal, "SIGHUP"):  # Windows has neither it nor handlers on an event loop
        for number in (signal.SIGTERM, signal.SIGHUP):
            asyncio.get_running_loop().add_signal_handler(number, end, number)
    print_on_screen(_ENTER)
    try:
        while True:
            _draw(_lines(*look, arguments.rows or shutil.get_terminal_size().lines - _HEAD))
            await asyncio.sleep(max(arguments.interval / 1000, 0.1))
            try:
                look = await _look(client, arguments.prefix)
            except LockError as error:
                _draw([colored(printable(str(error)), RED)])
    except asyncio.CancelledError:
        if not ended:
            raise
        task.uncancel()
        return exit_codes.SIGNAL_BASE + ended[0]
    finally:
        print_on_screen(_LEAVE)


async def _look(client: Inspector, prefix: str) -> tuple[ClusterInfo, list[Row]]:
    """Return the cluster, and its locks: those with the longest queue first, then those held longest."""
    query = {"prefix": prefix, "consistency": wire.STALE}
    locks = [row async for row in client.rows("locks", query, limit=LOOKED_AT)]
    return await client.cluster(), sorted(locks, key=_rank)


def _rank(lock: Row) -> tuple[int, int, str]:
    return -len(lock.get("queue", ())), -_held_ms(lock), str(lock.get("name"))


def _held_ms(lock: Row) -> int:
    return max((holder.get("since_ms", 0) for holder in lock.get("holders", ())), default=0)


def _show(info: ClusterInfo, locks: list[Row], arguments: argparse.Namespace) -> None:
    shown = locks[: arguments.rows]
    row = {"leader": info.leader, "revision": info.revision, "count": len(locks), "locks": shown}
    print_one(row, _lines(info, locks, arguments.rows or ROWS), arguments.output)


def _lines(info: ClusterInfo, locks: list[Row], rows: int) -> list[str]:
    """Return what is shown: a line about the cluster, and a table."""
    waiting = sum(len(lock.get("queue", ())) for lock in locks)
    head = f"leader {info.leader or 'none'}  revision {info.revision}  locks {len(locks)}  waiting {waiting}"
    troubles = [colored(printable(f"{item.kind}: {item.detail}"), RED) for item in info.obstacles[:1]]
    return [head, *troubles, *table(_COLUMNS, locks[: max(rows, 1)])]


_COLUMNS: Final[Columns] = {
    "NAME": field("name"),
    "STATE": field("state"),
    "HOLDER": owners,
    "HELD": lambda lock: length(_held_ms(lock)) if lock.get("holders") else "-",
    "WAITING": lambda lock: len(lock.get("queue", ())),
    "LONGEST": lambda lock: length(
        max((waiter.get("waited_ms", 0) for waiter in lock.get("queue", ())), default=None)
    ),
}


def _draw(lines: list[str]) -> None:
    """Show these lines in place of the last ones. What is too long for the terminal is cut off."""
    size = shutil.get_terminal_size()
    shown = [_cut(line, size.columns) + _REST_OF_LINE for line in lines[: size.lines - 1]]
    print_on_screen(_HOME + "\r\n".join(shown) + _REST_OF_SCREEN)


def _cut(line: str, columns: int) -> str:
    if line.startswith("\x1b["):  # in colour, from its first character to its last
        start, _, rest = line.partition("m")
        return f"{start}m{rest.removesuffix(chr(27) + '[0m')[:columns]}\x1b[0m"
    return line[:columns]
