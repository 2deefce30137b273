"""The command `backup`: the whole cluster in one file, saved once or at intervals, and looked at."""

import argparse
import asyncio
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final

from holdfast.cli import exit_codes
from holdfast.cli.inspector import Inspector
from holdfast.cli.parsing import CommandParser, count, duration_ms, taken
from holdfast.cli.printing import moment, print_one, say
from holdfast.values.clock import now_s
from holdfast.values.errors import LockError
from holdfast.wire.backup import BackupDamaged, BackupInfo, check

KEEP: Final = 24
RETRY_S: Final = 60.0
"""Seconds after which a save that failed is tried again, if the next one is not due sooner."""
_PIECE_BYTES: Final = 1 << 20
_NAME: Final = re.compile(r"holdfast-\d{8}T\d{6}Z-r\d+\.backup")
"""What this command calls its files in a directory. It removes no others."""
_SAVING: Final = "holdfast-saving"


def add_parser(commands: CommandParser) -> None:
    """Describe the commands."""
    backup = commands.command(
        "backup",
        "save the whole cluster to a file, and look at one; `holdfast-node restore` makes a cluster of it",
    )
    save = backup.command("save", "save a backup; the file is complete, or not there", _save)
    save.add_argument("file", metavar="FILE", help="- is standard output; with --every a directory")
    save.add_argument(
        "--every", metavar="TIME", type=duration_ms, help="go on until interrupted, a save after each TIME"
    )
    save.add_argument(
        "--keep",
        metavar="N",
        type=count,
        help=f"with --every: keep the newest N files, and remove older ones (default: {KEEP})",
    )
    save.add_force()
    status = backup.command("status", "check a backup and show what is in it; asks no node", alone=_status)
    status.add_argument("file", metavar="FILE", help="- is standard input")
    for parser in (save, status):
        parser.add_output()


async def _save(client: Inspector, arguments: argparse.Namespace) -> int:
    """Save once, or at intervals."""
    if arguments.every is not None:
        if not arguments.every:
            raise ValueError("--every: must be above 0")
        if arguments.force:
            raise ValueError("--force: not with --every, which names the files itself and replaces none")
        return await _save_often(client, arguments)
    if arguments.keep is not None:
        raise ValueError("--keep: only with --every, which names the files itself")
    if arguments.file == "-":
        info = await client.admin.backup(sys.stdout.buffer)
        sys.stdout.buffer.flush()
        say(_summary(info))
        return 0
    path = Path(arguments.file)
    if path.is_file() and not arguments.force:  # noqa: ASYNC240 - at the beginning
        raise taken(path)
    try:
        info = await client.admin.backup(path)
    except OSError as error:
        say(f"{arguments.file}: {error.strerror}", "nothing was saved; put that right and repeat the command")
        return exit_codes.REFUSED
    print_one(info, [f"saved {arguments.file}: {_summary(info)}"], arguments.output)
    return 0


async def _save_often(client: Inspector, arguments: argparse.Namespace) -> int:
    """Save into a directory for ever; what fails is said, and tried again."""
    directory, every_s = Path(arguments.file), arguments.every / 1000
    if not directory.is_dir():  # noqa: ASYNC240 - at the beginning
        raise ValueError(f"{directory}: with --every, give a directory that exists")
    due_s = now_s()
    while True:
        due_s += every_s
        try:
            saving = directory / _SAVING
            info = await client.admin.backup(saving)
            path = directory / _name(info)
            saving.rename(path)
            _rotate(directory, path, arguments.keep or KEEP)
            print_one(info, [f"saved {path}: {_summary(info)}"], arguments.output)
            sys.stdout.flush()
        except (LockError, OSError) as error:
            if isinstance(error, BrokenPipeError):
                raise
            retry_s = min(every_s, RETRY_S)
            say(f"not saved: {error}", f"trying again in {retry_s:g} s")
            due_s = now_s() + retry_s
        # A save that took longer than the interval is followed by the next one at once.
        await asyncio.sleep(max(0.0, due_s - now_s()))


def _name(info: BackupInfo) -> str:
    at = re.sub(r"[-:]", "", moment(info.created_ms, "seconds"))
    return f"holdfast-{at}-r{info.revision}.backup"


def _rotate(directory: Path, saved: Path, keep: int) -> None:
    """Remove all but the newest files of this command, of which `saved` is the last.

    Their names do not tell which are new: each has the time of the node that wrote it, whose clock may be
    wrong.
    """
    found = [path for path in directory.iterdir() if _NAME.fullmatch(path.name) and path != saved]
    found.sort(key=lambda path: path.stat().st_mtime_ns)
    for path in [*found, saved][:-keep]:
        path.unlink()


def _status(arguments: argparse.Namespace) -> int:
    """Print what is in a file, if it is whole."""
    try:
        info = _checked(arguments.file)
    except BackupDamaged as damage:
        say(f"{arguments.file}: not usable: {damage}", "nothing can be restored from it; take another file")
        return exit_codes.REFUSED
    except OSError as error:
        say(f"{arguments.file}: {error.strerror}", "nothing was checked; name a backup that you can read")
        return exit_codes.REFUSED
    members = ", ".join(f"{node_id} at {peer}" for node_id, peer in info.members.items())
    print_one(
        info,
        [
            f"complete: {_summary(info)}",
            f"cluster {info.cluster_id}: {members}",
            f"written by version {info.version}, rules {info.rules}",
        ],
        arguments.output,
    )
    return 0


def _checked(file: str) -> BackupInfo:
    """Return what is in a file. Raises BackupDamaged, OSError."""
    if file == "-":
        return check(_pieces(sys.stdin.buffer))
    with Path(file).open("rb") as opened:
        return check(_pieces(opened))


def _pieces(file: BinaryIO) -> Iterator[bytes]:
    while piece := file.read(_PIECE_BYTES):
        yield piece


def _summary(info: BackupInfo) -> str:
    return (
        f"revision {info.revision} of {moment(info.created_ms, 'seconds')}, highest token"
        f" {info.highest_token}, {info.state_bytes} bytes of state"
    )
