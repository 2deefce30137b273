"""The backup of a cluster, for either client: fetched from any node, and checked before it is relied on."""

import asyncio
import contextlib
import errno
import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, Final

from holdfast import wire
from holdfast.operations import exchange
from holdfast.operations.sending import NoAnswer, NoTrust
from holdfast.transport.transport import UNAUTHENTICATED, Transport
from holdfast.values.errors import TlsRefused, Unavailable, refusal
from holdfast.values.whole_file import UNFINISHED, written
from holdfast.wire.backup import MEDIA_TYPE, BackupDamaged, BackupInfo, BackupReader

SILENCE_S: Final = 600.0
"""Seconds without a byte after which a node is given up. It sends nothing before all is written."""
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
    # For this user only: whoever reads the ids of holds can end them.
    with written(path) as file:
        info = await _fetch(transport, file.write)
        file.flush()
        await asyncio.to_thread(os.fsync, file.fileno())  # else the whole file would be synced in the loop
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
