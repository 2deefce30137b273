"""GET /v1/cluster/backup: the whole state as a file, sent in pieces while the node does everything else."""

import asyncio
import weakref
from typing import Final

from aiohttp import web
from aiohttp.abc import AbstractStreamWriter

from holdfast.wire import backup
from http_api.server.call import UNDRAINED_BYTES_MAX, Call, Reply, until_read
from lockapi.gateway import Gateway
from lockapi.node import BackupBytes

PIECE_BYTES: Final = 256 * 1024
"""Bytes that are read, in a thread, and sent at a time."""
_HEADERS: Final = "Cache-Control: no-store\r\n"


async def get_backup(gateway: Gateway, call: Call) -> Reply:
    """Send a backup that is not older than the call."""
    return _BackupReply(await gateway.backup(call.timeout_s))


class _BackupReply(Reply):
    """The answer: head, then the file."""

    def __init__(self, content: BackupBytes) -> None:
        super().__init__(b"", content_type=backup.MEDIA_TYPE, headers=_HEADERS)
        self._content = content
        weakref.finalize(self, content.close)  # also if the client is gone before anything is sent

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter | None:
        """Send all of it, no faster than the client reads."""
        assert isinstance(request, Call)
        transport = request.transport
        if transport is None:
            raise ConnectionResetError("the client is gone")
        self.force_close()
        self._eof_sent = True
        lines = f"Content-Length: {self._content.size}\r\nConnection: close\r\n"
        transport.write(self._head_bytes(request, lines))
        try:
            while request.method != "HEAD":
                piece = await asyncio.to_thread(self._content.read, PIECE_BYTES)
                if not piece:
                    break
                if transport.is_closing():
                    raise ConnectionResetError("the client is gone")
                transport.write(piece)
                if transport.get_write_buffer_size() > UNDRAINED_BYTES_MAX:
                    await until_read(request.writer, request.place)
        finally:
            self._content.close()
        return None
