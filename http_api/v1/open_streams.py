"""The open streams of a node: which is the newest of its session, and where their leader is.

One timer looks after all of them, as most streams are idle.
"""

import asyncio
from typing import Final, Protocol

from lockapi.node import NodeState
from lockstate.words.ids import SessionId
from lockstate.words.results import StreamFault

LOOK_S: Final = 1.0
"""Seconds between two looks at who leads, and at streams that went on over other nodes."""


SLICE_COUNT: Final = 500
"""Streams that are looked at in one turn of the loop: all 20,000 of a node at once would be a pause."""


class OpenStream(Protocol):
    """A stream that has been welcomed. Its `session_id` is "" if it has no session."""

    session_id: SessionId
    epoch: int

    def hint(self, leader_url: str) -> None:
        """Hear that another node leads."""

    def end(self, fault: StreamFault) -> None:
        """End for this reason, as soon as the client has been told."""

    def drop(self) -> None:
        """End at once."""


class OpenStreams:
    """The streams of one node."""

    def __init__(self) -> None:
        self._url, self._next_look_s = "", 0.0
        self._heard = ""
        """The leader's URL that streams were told last."""
        self._streams: set[OpenStream] = set()
        self._newest: dict[SessionId, OpenStream] = {}
        self._replaced: dict[SessionId, OpenStream] = {}
        """Of each session, the stream that is being ended for a newer one: never more than one."""
        self._timer: asyncio.TimerHandle | None = None

    def leader_url(self, node: NodeState) -> str:
        """Return it as it was within the last second, "" if that is not known."""
        now_s = asyncio.get_running_loop().time()
        if now_s >= self._next_look_s:
            self._next_look_s = now_s + LOOK_S
            status = node.status()
            self._url = next((peer.http for peer in status.nodes if peer.id == status.leader), "")
        return self._url

    def enter(self, node: NodeState, stream: OpenStream) -> None:
        """Look after a stream from now on, and end the one that it replaces."""
        self._streams.add(stream)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(LOOK_S, self._look, node)
        session_id = stream.session_id
        if not session_id:
            return
        older = self._newest.get(session_id)
        if older is not None and older.epoch > stream.epoch:
            stream, older = older, stream
        self._newest[session_id] = stream
        if older is not None:
            if session_id in self._replaced:
                self._replaced[session_id].drop()
            self._replaced[session_id] = older
            older.end(StreamFault.REPLACED)

    def leave(self, stream: OpenStream) -> None:
        """Look after it no more."""
        self._streams.discard(stream)
        for streams in (self._newest, self._replaced):
            if streams.get(stream.session_id) is stream:
                del streams[stream.session_id]
        if self._timer is not None and not self._streams:
            self._timer.cancel()
            self._timer = None

    def _look(self, node: NodeState) -> None:
        self._timer = asyncio.get_running_loop().call_later(LOOK_S, self._look, node)
        before, url = self._heard, self.leader_url(node)
        if url != before:
            self._heard = url
            for stream in tuple(self._streams):
                stream.hint(url)
        self._look_at(node, tuple(self._newest.values()))

    def _look_at(self, node: NodeState, streams: tuple[OpenStream, ...]) -> None:
        """End the streams that are not those of their sessions any more."""
        for stream in streams[:SLICE_COUNT]:
            known = node.machine.stream(stream.session_id)
            if known is None:
                stream.end(StreamFault.GONE)
            elif known.epoch > stream.epoch:
                stream.end(StreamFault.REPLACED)
        if len(streams) > SLICE_COUNT:
            asyncio.get_running_loop().call_soon(self._look_at, node, streams[SLICE_COUNT:])
