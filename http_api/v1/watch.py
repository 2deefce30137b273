"""GET /v1/watch: what happens to locks, semaphores, elections and sessions, as Server-Sent Events.

GET /v1/sessions/{session_id}/watch is the same for what belongs to one session, and ends with it.

The stream begins with an `id:` of its own, and every heartbeat carries one: by the HTML standard a block
without data sets the last event id and is not an event. So a client can always resume, on any node, and close
to the present, even if nothing that it watches ever happens.
"""

import asyncio
import logging
import re
import time
from typing import Final

from aiohttp import web
from aiohttp.abc import AbstractStreamWriter

from cluster.errors import Overloaded, ShuttingDown
from cluster.observing.event_log import EventLog, EventsCompacted, Position, WatchCut
from http_api.server.access_log import line_of
from http_api.server.call import Call, Reply
from http_api.server.routes import Handler
from http_api.v1 import schema
from http_api.v1.event_feeds import (
    FED_COUNT_MAX,
    PAUSE_FACTOR,
    WATCHERS_COUNT_MAX,
    EventFeeds,
)
from http_api.v1.event_text import OfSession, Topic, render
from lockapi import cursors, needs, problems
from lockapi.gateway import Gateway
from lockapi.node import NodeState
from lockapi.problems import ProblemError
from lockstate.words import limits
from lockstate.words.ids import SessionId

logger = logging.getLogger("http_api.watch")

EVENT_STREAM: Final = "text/event-stream"
HEADER_LAST_EVENT_ID: Final = "Last-Event-ID"
HEADER_REVISION: Final = "Holdfast-Revision"

HEARTBEAT_S: Final = 10.0
"""Seconds after which a stream without news shows that it lives. Proxies close silent ones in a minute."""
STALLED_S: Final = 10.0
"""Seconds in which a client has to read some of what waits for it, or it is cut."""
BUFFERED_BYTES_MAX: Final = 64 * 1024
"""Bytes that a client may have left to read and still be fed; with more, it goes on from the log later."""
CLOSING_S: Final = 2.0
"""Seconds that a stream that is cut has to send its last event."""
_RETRY_MS: Final = 1_000
"""Milliseconds after which a browser is asked to connect again."""
_END: Final = re.compile(rb"^event: session-(?:expired|forced)$", re.MULTILINE)
"""The end of a session that its client did not close. Within data, lines do not begin: it is JSON."""
SESSION_NEED: Final = needs.ACQUIRE
"""What the watch of a session needs, at its beginning and as long as it lasts."""
_HEADERS: Final = "Cache-Control: no-store\r\nX-Accel-Buffering: no\r\nConnection: close\r\n"
"""The end of the connection is the end of the stream. Proxies must pass on every event at once."""


def watch_handlers() -> tuple[Handler, Handler]:
    """Return the handlers of /v1/watch and of that of a session, whose streams share one set of feeds."""
    feeds: EventFeeds | None = None

    async def watch(gateway: Gateway, call: Call) -> Reply:
        """Stream what happens, from a place in the history on or from now on."""
        prefix = _prefix(call)
        gateway.check_watch(prefix)
        node, fed, position, caller = await begin(gateway, call)
        return EventStream(node, fed, prefix, position, caller)

    async def watch_session(gateway: Gateway, call: Call) -> Reply:
        """Stream what happens to what a session holds and waits for, until it is over."""
        session_id = schema.session_id(call)
        if not await gateway.read_own(
            lambda machine: machine.lives(session_id), session_id, nothing=False, timeout_s=call.timeout_s
        ):
            raise ProblemError("session-expired", "the session has expired or never existed")
        node, fed, position, caller = await begin(gateway, call)
        return SessionStream(node, fed, OfSession(session_id), position, caller)

    async def begin(gateway: Gateway, call: Call) -> tuple[NodeState, EventFeeds, Position, str]:
        """Return what a stream is made of, if this node has room for it and all that it is to tell."""
        nonlocal feeds
        node = gateway.node
        position = await _start(gateway, call)
        feeds = feeds or EventFeeds(node.events)
        if node.is_shutting_down:
            raise ShuttingDown("this node is stopping; ask another")
        caller = gateway.principal.name
        if feeds.is_full_for(caller):
            raise Overloaded(
                f"{WATCHERS_COUNT_MAX} clients watch on this node, or half as many of this caller;"
                " try another one"
            )
        try:
            node.events.check(position)
        except EventsCompacted as gone:
            raise _compacted(
                f"the events behind {cursors.of_position(position)} are no longer all there", gone.oldest
            ) from None
        return node, feeds, position, caller

    return watch, watch_session


def _prefix(call: Call) -> str:
    """Return the prefix of the names to watch, "" for all. Raises ProblemError."""
    prefix = call.query_values.get("prefix", "")
    if len(prefix.encode()) > limits.NAME_BYTES_MAX:
        raise ProblemError("invalid-request", f"prefix: more than {limits.NAME_BYTES_MAX} bytes")
    return prefix


async def _start(gateway: Gateway, call: Call) -> Position:
    """Return where the stream begins. Raises ProblemError, ClusterError.

    A client that another node has told of more than this node has applied waits until this one has applied
    it, too. Without a place of its own, it begins behind every answer that was given before.
    """
    node, asked = gateway.node, _asked(call)
    if asked is not None and asked.known_revision <= node.machine.revision:
        return asked
    revision = await gateway.read(lambda machine: machine.revision, call.timeout_s)
    if asked is not None and asked.known_revision > revision:
        detail = (
            f"{cursors.of_position(asked)} has not happened in this cluster, which is at revision {revision}"
        )
        raise _compacted(detail, node.events.oldest)
    return asked or Position.behind(revision)


def _asked(call: Call) -> Position | None:
    """Return the place that the client names, None if it names none. Raises ProblemError.

    The header, which reconnecting clients send, takes precedence.
    """
    source, text = HEADER_LAST_EVENT_ID, call.headers.get(HEADER_LAST_EVENT_ID, "")
    if not text:
        source, text = "since", call.query_values.get("since", "")
    if not text and source not in call.query_values:
        return None
    position = cursors.position_of(text)
    if position is None:
        raise ProblemError("invalid-request", f"{source}: {text!r}; must be a revision or the id of an event")
    return position


def _compacted(detail: str, oldest: int) -> ProblemError:
    """Return the problem for a client that has to read the present state and watch from there."""
    return problems.compacted(f"{detail}; read the present state, and watch from there", oldest)


class EventStream(Reply):
    """The answer to a watch. It lasts until the client leaves, the node stops, or the client is too slow."""

    def __init__(
        self, node: NodeState, feeds: EventFeeds, topic: Topic, position: Position, caller: str
    ) -> None:
        """Make a stream of what happens to `topic` behind `position`, for a caller."""
        super().__init__(b"", content_type=EVENT_STREAM, headers=_HEADERS)
        self.force_close()
        self.topic, self.position, self.caller = topic, position, caller
        self._node, self._feeds = node, feeds
        self._log: EventLog = node.events
        self._news = asyncio.Event()
        self._is_fed = self._was_unready = False
        self._cut_reason: WatchCut | None = None

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter | None:
        """Send the stream, from its head to its end."""
        assert isinstance(request, Call)
        transport = request.transport
        if transport is None:
            raise ConnectionResetError("the client is gone")
        self._eof_sent = True
        self._call, self._transport = request, transport
        transport.write(self._head_bytes(request, f"{HEADER_REVISION}: {self.position.known_revision}\r\n"))
        if request.method == "HEAD":
            return None
        transport.write(f"retry: {_RETRY_MS}\nid: {cursors.of_position(self.position)}\n\n".encode())
        self._feeds.add(self)
        try:
            await self._run()
        finally:
            self._feeds.remove(self)
        await self._close()
        return None

    # -- event_feeds.Watcher --------------------------------------------------------------------------------

    def feed(self, text: bytes) -> bool:
        """Send news, without waiting; return whether it can take more."""
        self._write(text)
        self._is_fed = self._can_take_more()
        if not self._is_fed:
            self._news.set()
        return self._is_fed

    def _can_take_more(self) -> bool:
        return self._transport.get_write_buffer_size() <= BUFFERED_BYTES_MAX

    def look(self) -> None:
        """Do nothing: names are always there."""

    def cut(self, reason: WatchCut) -> None:
        """End the stream, for `reason`."""
        self._cut_reason = self._cut_reason or reason
        self._news.set()

    # -- its task -------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        """Catch up, be fed, fall back, until it is cut. Cancelled when the client goes away."""
        while not self._cut_reason:
            if not self._is_fed:
                if not self._is_allowed():
                    self.cut(WatchCut.FORBIDDEN)
                    continue
                await self._catch_up()
                continue
            try:
                async with asyncio.timeout(HEARTBEAT_S):
                    await self._news.wait()
            except TimeoutError:
                self._beat()
            self._news.clear()

    def _is_allowed(self) -> bool:
        """Whether the client may still watch: rights and tokens can end before its stream does."""
        try:
            self._check(self._call.admit_again())
        except ProblemError:
            return False
        return True

    def _check(self, gateway: Gateway) -> None:
        """Refuse what the principal of `gateway` may not watch. Raises ProblemError."""
        assert isinstance(self.topic, str), "names are watched by their prefix"
        gateway.check_watch(self.topic)

    async def _catch_up(self) -> None:
        """Read the log for a while, no faster than the client reads; be fed when nothing is left to read."""
        if not await self._has_room():
            self.cut(WatchCut.SLOW_READER)
            return
        async with self._feeds.turn:
            began_s = time.perf_counter()
            if not self._feeds.is_up_to_date(self):
                try:
                    blocks = self._log.read(self.position, FED_COUNT_MAX)
                except EventsCompacted:
                    self.cut(WatchCut.SLOW_READER)
                    return
                text = render(blocks, self.topic, self.position)
                self.position = Position.behind(blocks[-1][0].revision)
                self._write(text)
            # At once: where much happens, and many catch up in turns, it would be too late in the next turn.
            if self._feeds.is_up_to_date(self) and self._can_take_more():
                self._feeds.start_feeding(self)
                self._is_fed = True
                self.look()
            await asyncio.sleep(PAUSE_FACTOR * (time.perf_counter() - began_s))

    async def _has_room(self) -> bool:
        """Wait until the client has read most of what was sent; return False if it does not read at all."""
        while True:
            unread_bytes = self._transport.get_write_buffer_size()
            try:
                async with asyncio.timeout(STALLED_S):
                    await self._call.writer.drain()
            except TimeoutError:
                if self._transport.get_write_buffer_size() >= unread_bytes:
                    return False
            else:
                return True

    def _beat(self) -> None:
        """Show that the stream lives, and up to where it is complete.

        A node that was not ready at two heartbeats in a row ends it: other nodes may know more.
        """
        if not self._is_allowed():
            self.cut(WatchCut.FORBIDDEN)
            return
        is_ready = self._node.status().ready
        if not is_ready and self._was_unready:
            self.cut(WatchCut.NO_LEADER)
        self._was_unready = not is_ready
        self._write(f": heartbeat\nid: {cursors.of_position(self._feeds.reached(self))}\n\n".encode())

    def _write(self, text: bytes) -> None:
        """Hand bytes to the connection, which buffers what the client does not take yet."""
        if text and not self._transport.is_closing():
            self._transport.write(text)

    async def _close(self) -> None:
        """Say why the stream ends, if the client reads on; what it does not take in time is dropped."""
        assert self._cut_reason is not None
        self._log.cuts[self._cut_reason] += 1
        line, trace = line_of("event=watch-cut request_id=%s reason=%s", self._call)
        logger.info(line, self._call.id_text, self._cut_reason, *trace)
        self._write(self._last_words(self._cut_reason))
        self._transport.set_write_buffer_limits(0)
        try:
            async with asyncio.timeout(CLOSING_S):
                await self._call.writer.drain()
        except TimeoutError:
            self._transport.abort()

    def _last_words(self, reason: WatchCut) -> bytes:
        """Return the last event of the stream."""
        return f'event: cut\ndata: {{"reason":"{reason}"}}\n\n'.encode()


class SessionStream(EventStream):
    """The answer to the watch of a session. It ends when the session is over, and all of that is told."""

    def __init__(
        self, node: NodeState, feeds: EventFeeds, topic: OfSession, position: Position, caller: str
    ) -> None:
        """Make a stream of what belongs to the session of `topic` behind `position`, for a caller."""
        super().__init__(node, feeds, topic, position, caller)
        self._lease_id = SessionId(topic.lease_id)
        self._last: Position | None = None
        """The place behind everything that the session did, once it is over."""
        self._is_end_told = False

    def feed(self, text: bytes) -> bool:
        """Send news, of which the last may be that the session is over."""
        can_take_more = super().feed(text)
        self.look()
        return can_take_more

    def look(self) -> None:
        """End the stream if the session is over and its client has been told of all that it did."""
        if self._last is None and not self._node.machine.lives(self._lease_id):
            self._last = self._log.newest
        reached = self._feeds.reached(self) if self._is_fed else self.position
        if self._is_end_told or (self._last is not None and reached >= self._last):
            self.cut(WatchCut.SESSION_CLOSED)

    def _check(self, gateway: Gateway) -> None:
        SESSION_NEED.check(gateway.rights)
        if not self._node.machine.is_of(self._lease_id, gateway.principal.name):
            raise ProblemError("session-expired", "the session has expired or never existed")

    def _write(self, text: bytes) -> None:
        self._is_end_told = self._is_end_told or _END.search(text) is not None
        super()._write(text)

    def _last_words(self, reason: WatchCut) -> bytes:
        """Return the last event: nothing, if the end of the session was one."""
        return b"" if self._is_end_told else super()._last_words(reason)
