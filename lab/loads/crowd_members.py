"""What clients in the background of a benchmark do: ask, cycle deep locks, keep sessions alive, watch."""

import asyncio
from typing import Any, Final

import msgspec

from holdfast import wire
from lab.loads.lean_http import OK, LeanHttp, get, head
from lab.loads.load import PAUSE_S, Tally, Worker

DEEP_LOCKS: Final = 64
DEEP_PARTS: Final = 30
"""Parts of each name. With as many as this, 64 of them have nearly as many claims as one acquire may have."""
KEEPALIVES_PER_TTL: Final = 3
LAST_BYTES: Final = 80
"""Of what a watch that ended has got, so much is shown."""
CREATED: Final = b"201"
_EVENT: Final = b"\nevent: "
_END_OF_HEAD: Final = b"\r\n\r\n"


class Count:
    """What a crowd has done so far."""

    def __init__(self) -> None:
        self.done = 0


class Asker(LeanHttp):
    """Asks for one path, again as soon as it is answered."""

    def __init__(self, tally: Tally, count: Count, host: str, path: str) -> None:
        super().__init__()
        self._tally, self._count = tally, count
        self._request = get(host, path)

    def begin(self) -> None:
        """Ask, or end when told so."""
        if self._tally.is_stopping or self.ended.done():
            self.end()
        else:
            self.send_whole(self._request)

    def answered(self, status: bytes, body: bytes) -> None:
        """Ask again."""
        if status == OK:
            self._count.done += 1
            self.begin()
        else:
            self._tally.error(f"{status.decode()} {body[:300].decode(errors='replace')}")
            asyncio.get_running_loop().call_later(PAUSE_S, self.begin)

    def lost(self, text: str) -> None:
        """Count an error."""
        self._tally.error(text)


class DeepWorker(Worker):
    """Acquires DEEP_LOCKS locks at once, whose names have DEEP_PARTS parts, and releases them."""

    def wanted(self, name: str) -> str:
        """Return locks below a name, which have only that in common."""
        parts = "/".join("p" * (DEEP_PARTS - len(name.split("/")) - 1))
        locks = ",".join(f'{{"name":"{name}/{number}/{parts}"}}' for number in range(DEEP_LOCKS))
        return f'"locks":[{locks}]'


class Keeper(LeanHttp):
    """Opens sessions over one connection, keeps them alive evenly over time, and closes them at the end.

    `opened` is done when all are open, `ended` when all are closed. One that is over before was lost: that is
    an error.
    """

    def __init__(
        self, tally: Tally, count: Count, host: str, sessions: int, *, ttl_ms: int, phase: float
    ) -> None:
        """`phase`, from 0 to 1, is where among all keepers this one comes: so keepalives are even."""
        super().__init__()
        self.opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._tally, self._count, self._host = tally, count, host
        self._wanted, self._ttl_ms = sessions, ttl_ms
        self._ids: list[str] = []
        self._next = 0
        self._is_asking = False
        self._is_closing = False
        self._period_s = ttl_ms / 1000 / KEEPALIVES_PER_TTL / max(sessions, 1)
        self._phase = phase
        self._due_s = 0.0

    def begin(self) -> None:
        """Open the first session."""
        self._open()

    def close_all(self) -> None:
        """Close all sessions, then end."""
        self._is_closing = True
        if not self._is_asking:
            self._close()

    def answered(self, status: bytes, body: bytes) -> None:
        """Do what comes next."""
        self._is_asking = False
        if status not in (OK, CREATED):
            self._tally.error(f"{status.decode()} {body[:300].decode(errors='replace')}")
            asyncio.get_running_loop().call_later(PAUSE_S, self._go_on)
            return
        if status == CREATED:
            self._ids.append(msgspec.json.decode(body)["session_id"])
        else:
            self._count.done += 1
        self._go_on()

    def lost(self, text: str) -> None:
        """Count an error; nobody has to wait for this connection."""
        self._tally.error(text)
        if not self.opened.done():
            self.opened.set_result(None)

    def _go_on(self) -> None:
        if self._is_asking:
            return  # it was closed meanwhile
        if self._is_closing:
            self._close()
        elif len(self._ids) < self._wanted and not self.opened.done():
            self._open()
        else:
            if not self.opened.done():
                self.opened.set_result(None)
                self._due_s = asyncio.get_running_loop().time() + (self._phase - 1) * self._period_s
            self._due_s += self._period_s
            asyncio.get_running_loop().call_at(self._due_s, self._keep)

    def _open(self) -> None:
        self._send(head(self._host, wire.SESSIONS), b'{"ttl_ms":%d}' % self._ttl_ms)

    def _keep(self) -> None:
        """Keep the next session alive. One that is behind catches up: no time is left out."""
        if self._is_closing or self.ended.done():
            return
        session_id = self._ids[self._next % len(self._ids)]
        self._next += 1
        self._send(head(self._host, wire.SESSION_KEEPALIVE.format(session_id=session_id)), b"{}")

    def _close(self) -> None:
        if not self._ids:
            self.end()
            return
        path = wire.SESSION.format(session_id=self._ids.pop())
        self._send(head(self._host, path, "DELETE"), b"")

    def _send(self, head: bytes, body: bytes) -> None:
        if not self.ended.done():
            self._is_asking = True
            self.send(head, body)


class Watcher(asyncio.Protocol):
    """Watches a prefix, and counts the events."""

    def __init__(self, tally: Tally, count: Count, host: str, prefix: str) -> None:
        self.begun: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.is_watching = False
        self._tally, self._count = tally, count
        self._request = get(host, f"{wire.WATCH}?prefix={prefix}")
        self._rest = self._last = b""
        self._transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ask for the events."""
        self._transport = transport
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        """Count events, also one whose beginning came in two pieces."""
        data = self._rest + data
        if not self.begun.done():
            head, end, data = data.partition(_END_OF_HEAD)
            if not end:
                self._rest = head
                return
            if b" 200 " not in head.split(b"\r\n", 1)[0]:
                self._tally.error((head + data)[:300].decode(errors="replace"))
                self._transport.abort()
                return
            self.is_watching = True
            self.begun.set_result(None)
        self._count.done += data.count(_EVENT)
        self._rest = data[1 - len(_EVENT) :]
        self._last = data[-LAST_BYTES:]

    def connection_lost(self, exc: Exception | None) -> None:
        """Remember the end, and the last event: it says why."""
        if self.is_watching and not self._tally.is_stopping:
            last = self._last.decode(errors="replace").strip()
            self._tally.error(f"a watch ended: {exc or 'closed by the node'}; the last that came: {last!r}")
        self.is_watching = False
        if not self.begun.done():
            self.begun.set_result(None)

    def close(self) -> None:
        """Watch no more."""
        self._transport.close()
