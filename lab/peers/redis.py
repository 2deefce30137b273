"""Redis: one node that syncs every command before it answers (appendfsync always), and has no copy.

A lock is the recipe of Redis's own documentation: SET NX PX with a random value, released by a script that
deletes the key if it still has that value. Redis has no queue for a lock, so there is nothing to hand on.
"""

import hashlib
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from lab.loads.load import TTL_MS
from lab.peers.closed_loop import Lean, Worker
from lab.peers.connection import Address, Answered, Connection
from lab.peers.system import Running, Way, ask_line, find_program, free_addresses, programs

_RELEASE: Final = (
    b"if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('del',KEYS[1]) else return 0 end"
)
_RELEASE_HASH: Final = hashlib.sha1(_RELEASE, usedforsecurity=False).hexdigest().encode()
_LOADED: Final = b"$40\r\n" + _RELEASE_HASH + b"\r\n"
_END: Final = b"\r\n"


def command(*words: bytes) -> bytes:
    """Return a command as Redis wants it (RESP)."""
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in words)


class Locks(Connection):
    """A connection. The answers that come are lines."""

    def greet(self) -> None:
        """Bring the script."""
        self.put(command(b"SCRIPT", b"LOAD", _RELEASE))

    def acquire(self, worker: Worker) -> None:
        """Set the key, if there is none."""
        value = secrets.token_hex(16).encode()

        def answered(worker: Worker, line: bytes) -> None:
            if line == b"+OK":
                worker.acquired(value)
            else:
                worker.failed(f"not acquired: {line.decode(errors='replace')}")

        words = (b"SET", worker.name.encode(), value, b"NX", b"PX", b"%d" % TTL_MS)
        self._ask(worker, command(*words), answered)

    def release(self, worker: Worker, held: bytes) -> None:
        """Delete the key, if it has our value."""
        words = (b"EVALSHA", _RELEASE_HASH, b"1", worker.name.encode(), held)
        self._ask(worker, command(*words), self._released)

    @staticmethod
    def _released(worker: Worker, line: bytes) -> None:
        if line == b":1":
            worker.released()
        else:
            worker.failed(f"not released: {line.decode(errors='replace')}")

    def _ask(self, worker: Worker, data: bytes, answered: Answered) -> None:
        self.due.append((worker, answered))
        self.put(data)

    def take(self, data: bytes) -> int:
        """Read whole lines."""
        if not self.ready.done():
            if len(data) < len(_LOADED) and not data.startswith(b"-"):
                return 0
            if data == _LOADED:
                self.ready.set_result(None)
            else:
                self.ready.set_exception(ConnectionError(f"no script: {data!r}"))
            return len(data)
        used = 0
        while (end := data.find(_END, used)) >= 0:
            worker, answered = self.due.popleft()
            line = data[used:end]
            used = end + len(_END)
            answered(worker, line)
        return used


def ways(key: str, title: str, addresses: Sequence[Address]) -> list[Way]:
    """Return the ways of asking whoever speaks the protocol of Redis at these addresses."""

    async def own(workers: int) -> Sequence[Lean]:
        return [await Locks.open(addresses[number % len(addresses)]) for number in range(workers)]

    async def shared(_: int) -> Sequence[Lean]:
        return [await Locks.open(addresses[0])]

    return [
        Way(key, f"{title}, a connection each", own),
        Way(f"{key}-shared", f"{title}, one connection", shared),
    ]


class Redis:
    """Redis, one node."""

    name: Final = "redis"
    nodes: Final = 1

    def missing(self) -> list[str]:
        """Return the package of Redis unless it is there."""
        return [] if find_program("redis-server") else ["redis-server"]

    @contextmanager
    def running(self, directory: Path, workers: int) -> Iterator[Running]:
        """Start the node."""
        path = find_program("redis-server")
        assert path, "asked before: missing()"
        (address,) = free_addresses(1)
        options = {
            "bind": address.host,
            "port": str(address.port),
            "dir": str(directory),
            "appendonly": "yes",
            "appendfsync": "always",
            "save": "",
            "set-proc-title": "no",  # it would be written over the environment, by which a guard knows it
            "maxclients": str(workers + 100),
        }
        argv = [path, *(word for key, value in options.items() for word in (f"--{key}", value))]

        with programs(self.name) as started:
            started.start(argv, directory / "log")
            started.wait(lambda: _answers(address))
            yield Running(started.pids, ways("redis", "Redis", [address]))


def _answers(address: Address) -> bool:
    """Whether the node takes commands."""
    return ask_line(address, b"PING\r\nQUIT\r\n").startswith(b"+PONG")
