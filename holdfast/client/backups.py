"""The backup of a cluster, for either client: fetched from any node, and checked before it is relied on."""

import asyncio
import contextlib
import errno
import os
import re
import secrets
import time
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, Final

from holdfast import wire
from holdfast.operations import exchange
from holdfast.operations.sending import NoAnswer, NoTrust
from holdfast.transport.transport import UNAUTHENTICATED, Transport
from holdfast.values.errors import TlsRefused, Unavailable, refusal
from holdfast.wire.backup import MEDIA_TYPE, BackupDamaged, BackupInfo, BackupReader

SILENCE_S: Final = 600.0
"""Seconds without a byte after which a node is given up. It sends nothing before all is written."""
UNFINISHED: Final = ".part"
"""The end of the name of a file that is not whole yet."""
_OK: Final = 200


class _TurnsAway(Exception):
    """This node gives no backup; another one may."""


async def save(transport: Transport, to: str | os.PathLike[str] | BinaryIO) -> BackupInfo:
    """Save a backup to a file, which is whole or not there at all; or write it to an open one, as it comes.

    Raises LockError and OSError.
    """
    if not isinstance(to, str | os.PathLike):
        return await _fetch(transport, to.write)
    path = _place(Path(to))
    _remove_left(path)
    # A name of its own: two saves to one file must not take each other's for finished.
    unfinished = path.with_name(f"{path.name}.{secrets.token_hex(4)}{UNFINISHED}")
    try:
        # For this user only: whoever reads the ids of holds can end them.
        fd = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with open(fd, "wb") as file:  # noqa: ASYNC230, PTH123 - to the page cache; the sync is in a thread
            info = await _fetch(transport, file.write)
            file.flush()
            await asyncio.to_thread(os.fsync, fd)
        unfinished.replace(path)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise
    _sync_directory(path.parent)
    return info


def _place(to: Path) -> Path:
    """Return which file is to be replaced: that to which a link leads. Raises FileExistsError for no file."""
    if to.exists() and not to.is_file():
        raise FileExistsError(errno.EEXIST, "is there, and no file that a backup could replace", str(to))
    return to.resolve()


def _remove_left(path: Path) -> None:
    """Remove what saves to the same file have left that were killed: nothing was written to it for long."""
    name = re.compile(re.escape(path.name) + r"\.[0-9a-f]{8}" + re.escape(UNFINISHED))
    for left in path.parent.iterdir():
        with contextlib.suppress(FileNotFoundError):
            if name.fullmatch(left.name) and time.time() - left.stat().st_mtime > 2 * SILENCE_S:
                left.unlink()


def _sync_directory(directory: Path) -> None:
    """Make a new name durable, where directories can be synced."""
    with contextlib.suppress(OSError):
        fd = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


async def _fetch(transport: Transport, write: Callable[[bytes], object]) -> BackupInfo:
    """Write a backup, piece by piece. Raises LockError, also if what was written is not all of one."""
    why: dict[str, str] = {}
    for step in range(len(transport.nodes)):
        reader = BackupReader()
        node = (transport.node + step) % len(transport.nodes)
        try:
            await _read(transport, node, reader, write)
        except _TurnsAway as turned_away:
            told = str(turned_away)
            url = transport.nodes[node]
            why[url] = told if told.startswith(url) else f"{url}: {told}"
            continue
        try:
            return reader.finish()
        except BackupDamaged as damage:
            raise Unavailable(f"{transport.nodes[node]}: the backup broke off: {damage}") from damage
    raise Unavailable(
        "no node gives a backup: " + "; ".join(why[url] for url in transport.nodes if url in why)
    )


async def _read(
    transport: Transport, node: int, reader: BackupReader, write: Callable[[bytes], object]
) -> None:
    """Take what a node sends. Raises _TurnsAway if another one is to be asked, Refused if none need be."""
    status, refused = await _answer(transport, node, reader, write)
    if status == UNAUTHENTICATED and transport.reads_token_again():
        status, refused = await _answer(transport, node, reader, write)
    if status == _OK:
        return
    code, detail, is_final, document = exchange.judge(status, refused)
    if is_final:
        raise refusal(code, detail, document)
    raise _TurnsAway(detail)


async def _answer(
    transport: Transport, node: int, reader: BackupReader, write: Callable[[bytes], object]
) -> tuple[int, bytes]:
    """Ask a node once; return its status, and the body of a refusal."""
    timeout_ms = min(max(int(transport.timeout_s * 1000), wire.TIMEOUT_MS_MIN), wire.TIMEOUT_MS_MAX)
    headers = {"Accept": MEDIA_TYPE, wire.HEADER_TIMEOUT_MS: str(timeout_ms)}
    is_begun, status, refused = False, _OK, b""
    try:
        stream = transport.stream(node, wire.CLUSTER_BACKUP, headers, SILENCE_S)
        async with contextlib.aclosing(stream):
            async for status, piece in stream:
                if status != _OK:
                    refused += piece
                elif piece:
                    is_begun = True
                    reader.feed(piece)
                    write(piece)
    except NoTrust as error:
        raise TlsRefused(str(error)) from error
    except (NoAnswer, BackupDamaged) as error:
        if is_begun:
            raise Unavailable(f"the backup broke off: {error}") from error
        raise _TurnsAway(str(error)) from error
    return status, refused
