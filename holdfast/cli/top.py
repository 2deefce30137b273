"""The command `top`: who holds and who waits, again and again, in a terminal."""

import argparse
import asyncio
import shutil
import signal
import sys
from collections.abc import Callable
from typing import Final

from holdfast import wire
from holdfast._errors import LockError
from holdfast._values import ClusterInfo
from holdfast.cli import exit_codes
from holdfast.cli.inspector import Inspector
from holdfast.cli.printing import RED, Row, colored, length, print_line, printable, table
from holdfast.cli.reading import count, owners

LOOKED_AT: Final = 10_000
"""How many locks one look goes through: a cluster with more is not slowed down by those who look."""
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


def add_parser(
    commands: "argparse._SubParsersAction[argparse.ArgumentParser]", duration_ms: Callable[[str], int]
) -> None:
    """Describe the command."""
    top = commands.add_parser(
        "top",
        help="show the locks that are waited for and held longest, again and again",
        description="Show who holds and who waits: first the longest queues, then what is held longest. Looks"
        f" at the first {LOOKED_AT} names, and at the node's own view. Control-C ends it.",
    )
    top.add_argument("prefix", metavar="PREFIX", nargs="?", default="", help="only names that begin so")
    top.add_argument(
        "--interval",
        metavar="TIME",
        type=duration_ms,
        default=2000,
        help="time between two looks (default: 2s)",
    )
    top.add_argument("--rows", metavar="N", type=count, help="how many (default: as many as fit)")
    top.add_argument("--once", action="store_true", help="look once; so it is where there is no terminal")
    top.add_argument("--json", action="store_true", help="one JSON document in each line, one for each look")


async def run(client: Inspector, arguments: argparse.Namespace) -> int:
    """Show it, once or until it is interrupted. Raises LockError if the first look fails."""
    is_live = not arguments.once and (arguments.json or sys.stdout.isatty())
    look = await _look(client, arguments.prefix)
    if not is_live or arguments.json:
        _show_once(*look, arguments)
        while is_live:
            await asyncio.sleep(max(arguments.interval / 1000, 0.1))
            _show_once(*await _look(client, arguments.prefix), arguments)
        return 0
    return await _live(client, look, arguments)


async def _live(client: Inspector, look: tuple[ClusterInfo, list[Row]], arguments: argparse.Namespace) -> int:
    """Show it on a screen of its own until it is interrupted; the terminal is as before afterwards."""
    task = asyncio.current_task()
    assert task is not None
    ended: list[int] = []

    def end(number: int) -> None:
        ended.append(number)
        task.cancel()

    for number in (signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, end, number)
    print(_ENTER, end="", flush=True)
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
        print(_LEAVE, end="", flush=True)


async def _look(client: Inspector, prefix: str) -> tuple[ClusterInfo, list[Row]]:
    """Return the cluster, and its locks: those with the longest queue first, then those held longest."""
    query = {"prefix": prefix, "consistency": wire.STALE}
    locks = [row async for row in client.rows("locks", query, limit=LOOKED_AT)]
    return await client.cluster(), sorted(locks, key=_rank)


def _rank(lock: Row) -> tuple[int, int, str]:
    return -len(lock.get("queue", ())), -_held_ms(lock), str(lock.get("name"))


def _held_ms(lock: Row) -> int:
    return max((holder.get("since_ms", 0) for holder in lock.get("holders", ())), default=0)


def _show_once(info: ClusterInfo, locks: list[Row], arguments: argparse.Namespace) -> None:
    if arguments.json:
        shown = locks[: arguments.rows]
        print_line({"leader": info.leader, "revision": info.revision, "count": len(locks), "locks": shown})
        return
    for line in _lines(info, locks, arguments.rows or ROWS):
        print(line)


def _lines(info: ClusterInfo, locks: list[Row], rows: int) -> list[str]:
    """Return what is shown: a line about the cluster, and a table."""
    waiting = sum(len(lock.get("queue", ())) for lock in locks)
    head = f"leader {info.leader or 'none'}  revision {info.revision}  locks {len(locks)}  waiting {waiting}"
    troubles = [colored(printable(f"{item.kind}: {item.detail}"), RED) for item in info.obstacles[:1]]
    titles = ("NAME", "STATE", "HOLDER", "HELD", "WAITING", "LONGEST")
    cells = [
        (
            str(lock.get("name")),
            str(lock.get("state")),
            owners(lock),
            length(_held_ms(lock)) if lock.get("holders") else "-",
            str(len(lock.get("queue", ()))),
            length(max((waiter.get("waited_ms", 0) for waiter in lock.get("queue", ())), default=None)),
        )
        for lock in locks[: max(rows, 1)]
    ]
    return [head, *troubles, *table(titles, cells)]


def _draw(lines: list[str]) -> None:
    """Show these lines in place of the last ones. What is too long for the terminal is cut off."""
    size = shutil.get_terminal_size()
    shown = [_cut(line, size.columns) + _REST_OF_LINE for line in lines[: size.lines - 1]]
    print(_HOME + "\r\n".join(shown) + _REST_OF_SCREEN, end="", flush=True)


def _cut(line: str, columns: int) -> str:
    if line.startswith("\x1b["):  # in colour, from its first character to its last
        start, _, rest = line.partition("m")
        return f"{start}m{rest.removesuffix(chr(27) + '[0m')[:columns]}\x1b[0m"
    return line[:columns]
