"""A lean client of ZooKeeper: a session, nodes and watches, in ZooKeeper's own serialisation (jute)."""

import struct
from typing import Final

from lab.peers.closed_loop import Worker
from lab.peers.connection import Answered, Connection

_SESSION_MS: Final = 30_000
"""Every request keeps a session alive, and no worker waits that long: there are no pings."""
_CREATE, _DELETE, _EXISTS, _CHILDREN = 1, 2, 3, 8
_PERSISTENT, _EPHEMERAL, _EPHEMERAL_SEQUENTIAL = 0, 1, 3
_ANY_VERSION: Final = -1
_OK, _NO_NODE, _NODE_EXISTS = 0, -101, -110
_WATCH_EVENT: Final = -1
"""In the place of a request's number."""
_REPLY: Final = struct.Struct("!iqi")
"""Number of the request, number of the transaction, error."""
_LENGTH: Final = struct.Struct("!i")


def _text(data: bytes) -> bytes:
    """Return a string or buffer as jute writes it."""
    return _LENGTH.pack(len(data)) + data


_EVERYBODY: Final = struct.pack("!ii", 1, 31) + _text(b"world") + _text(b"anyone")
"""A list of one right: everybody may do everything."""


class Session(Connection):
    """A connection and its session. `answered` gets an error code, as four bytes, and what follows it."""

    def __init__(self) -> None:
        super().__init__()
        self._number = 0

    def greet(self) -> None:
        """Ask for a session."""
        self.put(_text(struct.pack("!iqiq", 0, 0, _SESSION_MS, 0) + _text(bytes(16))))

    def ask(self, worker: Worker, kind: int, body: bytes, answered: Answered) -> None:
        """Send a request."""
        self._number += 1
        self.due.append((worker, answered))
        self.put(_text(struct.pack("!ii", self._number, kind) + body))

    def take(self, data: bytes) -> int:
        """Read whole answers."""
        used = 0
        while len(data) >= used + _LENGTH.size:
            begin = used + _LENGTH.size
            end = begin + _LENGTH.unpack_from(data, used)[0]
            if len(data) < end:
                break
            used = end
            if not self.ready.done():
                self.ready.set_result(None)  # what it says of the session is of no use without reconnecting
            elif _REPLY.unpack_from(data, begin)[0] == _WATCH_EVENT:
                self.event()
            else:
                worker, answered = self.due.popleft()
                answered(worker, data[begin + _REPLY.size - _LENGTH.size : end])
        return used

    def event(self) -> None:
        """Hear that a watched node has changed."""
        raise AssertionError("nothing is watched")

    def create(self, worker: Worker, path: bytes, flags: int, answered: Answered) -> None:
        """Create a node without data."""
        body = _text(path) + _text(b"") + _EVERYBODY + _LENGTH.pack(flags)
        self.ask(worker, _CREATE, body, answered)

    def release(self, worker: Worker, held: bytes) -> None:
        """Delete the node."""
        self.ask(worker, _DELETE, _text(held) + _LENGTH.pack(_ANY_VERSION), _deleted)


class OwnLocks(Session):
    """Ephemeral nodes."""

    def acquire(self, worker: Worker) -> None:
        """Create the node; that fails if there is one."""
        self.create(worker, b"/" + worker.name.encode(), _EPHEMERAL, _made)


class Queue(Session):
    """The recipe for a lock: acquire waits. A session for each worker."""

    def __init__(self) -> None:
        super().__init__()
        self._worker: Worker | None = None
        self._path = b""

    def acquire(self, worker: Worker) -> None:
        """Join the queue. The node above it is made by whoever finds none."""
        self._worker = worker
        path = b"/" + worker.name.encode()

        def joined(worker: Worker, answer: bytes) -> None:
            code = error(answer)
            if code == _NO_NODE:
                self.create(worker, path, _PERSISTENT, lambda worker, _: self.acquire(worker))
            elif code != _OK:
                worker.failed(f"not queued: error {code}")
            else:
                self._path = text(answer)
                self._look()

        self.create(worker, path + b"/queue-", _EPHEMERAL_SEQUENTIAL, joined)

    def _look(self) -> None:
        """See who is before us."""
        assert self._worker, "acquire comes first"
        parent, _, own = self._path.rpartition(b"/")

        def seen(worker: Worker, answer: bytes) -> None:
            code = error(answer)
            if code != _OK:
                worker.failed(f"the queue is not seen: error {code}")
                return
            before = max((child for child in children(answer) if child < own), default=None)
            if before is None:
                worker.acquired(self._path)
            else:
                self.ask(worker, _EXISTS, _text(parent + b"/" + before) + b"\1", self._watched)

        self.ask(self._worker, _CHILDREN, _text(parent) + b"\0", seen)

    def _watched(self, worker: Worker, answer: bytes) -> None:
        """Wait for the event, unless the node has gone meanwhile."""
        code = error(answer)
        if code == _NO_NODE:
            self._look()
        elif code != _OK:
            worker.failed(f"not watched: error {code}")

    def event(self) -> None:
        """Look again: the one before us has gone, which need not mean that it is our turn.

        A watch on a node that was not there fires when somebody makes it: sequence numbers never come again.
        """
        self._look()

    def waiting(self) -> list[Worker]:
        """Return the worker: also while it waits for an event, no answer is due."""
        return [self._worker] if self._worker else []


def _made(worker: Worker, answer: bytes) -> None:
    code = error(answer)
    if code == _OK:
        worker.acquired(text(answer))
    else:
        worker.failed("held already" if code == _NODE_EXISTS else f"not made: error {code}")


def _deleted(worker: Worker, answer: bytes) -> None:
    code = error(answer)
    if code == _OK:
        worker.released()
    else:
        worker.failed(f"not deleted: error {code}")


def error(answer: bytes) -> int:
    """Return the error code of an answer; 0 means that there was none."""
    return int(_LENGTH.unpack_from(answer)[0])


def text(answer: bytes) -> bytes:
    """Return the string that an answer consists of, behind its error code."""
    return answer[2 * _LENGTH.size :]


def children(answer: bytes) -> list[bytes]:
    """Return the strings of a list that an answer consists of, behind its error code."""
    found = []
    at = 2 * _LENGTH.size
    for _ in range(_LENGTH.unpack_from(answer, _LENGTH.size)[0]):
        begin = at + _LENGTH.size
        at = begin + _LENGTH.unpack_from(answer, at)[0]
        found.append(answer[begin:at])
    return found
