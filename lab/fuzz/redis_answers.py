"""What two servers answer to the clients of a random program, and whether it is the same."""

import asyncio
import contextlib
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from lab.fuzz.redis_steps import Words

ANSWER_S: Final = 20.0
SLACK_MS: Final = 5_000
"""Milliseconds by which times that are left may differ: the two are not asked at the same moment."""
BARRIER: Final = b"all that was said before"
_SHAPES: Final = (
    "TIME",
    "DBSIZE",
    "INFO",
    "HELLO",
    "ROLE",
    "COMMAND",
    "CONFIG",
    "WAIT",
    "CLIENT ID",
    "CLIENT INFO",
    "RESET",
)
"""Commands that tell of their server: only the kind of the answer is compared."""
_TIMES: Final = ("PTTL", "TTL", "PEXPIRETIME", "EXPIRETIME", "EVAL", "EVAL_RO", "EXEC", "time of")
"""Commands whose answers may be times that are left."""
_TIME_MS_MIN: Final = 10_000
"""From here on a number that such a command answers is a time in milliseconds."""
_LISTED: Final = {
    "ERR unknown command": "a command that is not there",
    "NOPERM ": "the lease of a lock is that of its connection",
    "ERR ttl-out-of-range": "times that a lease cannot have",
    "ERR EXPIRE of a lock without a deadline": "the lease of a lock stays",
    "ERR PERSIST is not supported": "the lease of a lock stays",
    "ERR invalid-request: ttl_ms: this hold has no deadline": "the lease of a lock stays",
    "BUSY ": "a script of more than 50 ms",
}
"""Refusals that docs/faces.md lists, and why: behind one of them the two servers differ."""


class Simple(bytes):
    """A simple string, which is not the same as a string."""


class Error(str):
    """An error."""

    __slots__ = ()


class Nothing(NamedTuple):
    """Nothing, as it was said."""

    how: bytes


class Push(list[Any]):
    """What a client is told without asking."""


class Ended(Exception):
    """A server closed a connection, or did not answer in time."""


class Listed(Exception):
    """The two answered differently, for a reason that is documented."""


class Session:
    """A connection to one of the servers."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    def send(self, batch: Sequence[Words]) -> None:
        """Send commands together."""
        self._writer.write(b"".join(map(_sent, batch)))

    async def ask(self, batch: Sequence[Words]) -> list[Any]:
        """Send commands together, and return their answers. Raises Ended."""
        self.send(batch)
        return [await self.read() for _ in batch]

    async def told(self) -> list[Any]:
        """Return all that comes before a PING is answered. Raises Ended."""
        self.send([("PING", BARRIER)])
        found = []
        while (one := await self.read()) not in (BARRIER, [b"pong", BARRIER]):
            found.append(one)
        return found

    async def read(self) -> Any:
        """Return the next answer. Raises Ended."""
        try:
            async with asyncio.timeout(ANSWER_S):
                return await self._read()
        except (OSError, EOFError, TimeoutError) as error:
            raise Ended(f"{type(error).__name__}: {error}") from error

    async def _read(self) -> Any:
        line = (await self._reader.readuntil(b"\r\n"))[:-2]
        kind, text = line[:1], line[1:]
        if kind in b"*~>%":
            if text == b"-1":
                return Nothing(line)
            count = int(text) * (2 if kind == b"%" else 1)
            parts = [await self._read() for _ in range(count)]
            return (
                {"map": parts}
                if kind == b"%"
                else {"set": parts}
                if kind == b"~"
                else (Push(parts) if kind == b">" else parts)
            )
        if kind in b"$=" and text != b"-1":
            data = (await self._reader.readexactly(int(text) + 2))[:-2]
            return data if kind == b"$" else (kind, data)
        match kind:
            case b"+":
                return Simple(text)
            case b":":
                return int(text)
            case b"-":
                return Error(text.decode(errors="replace"))
            case b"_" | b"$":
                return Nothing(line)
            case _:
                return kind, text

    async def close(self) -> None:
        """Close the connection."""
        self._writer.close()
        with contextlib.suppress(ConnectionError):
            await self._writer.wait_closed()


def _sent(words: Words) -> bytes:
    raw = [word if isinstance(word, bytes) else str(word).encode() for word in words]
    return b"*%d\r\n" % len(raw) + b"".join([b"$%d\r\n%b\r\n" % (len(word), word) for word in raw])


# -- what is the same ----------------------------------------------------------------------------------------


def label_of(words: Words) -> str:
    """Return the name of a command, with its subcommand if it has some."""
    return f"{words[0]} {words[1]}" if words[0] in ("CLIENT", "SCRIPT", "PUBSUB") else str(words[0])


def check(words: Words, ours: Any, theirs: Any) -> bool:
    """Whether two answers are the same. Raises Listed if they may differ, and what follows may, too."""
    for said in _errors(ours):
        reason = next((why for begin, why in _LISTED.items() if said.startswith(begin)), None)
        if reason is not None and said != next(iter(_errors(theirs)), ""):
            raise Listed(reason)
    name = str(words[0])
    if name == "EXEC" and type(ours) is list and isinstance(theirs, Nothing):
        raise Listed("WATCH does not see that a key was changed and changed back")
    if label_of(words) in _SHAPES or name in _SHAPES:
        return isinstance(ours, Error) == isinstance(theirs, Error)
    if name == "KEYS":
        return bool(in_any_order(ours) == in_any_order(theirs))
    if name == "SCAN" and isinstance(ours, list) and isinstance(theirs, list):
        return bool(ours[0] == theirs[0] and in_any_order(ours[1]) == in_any_order(theirs[1]))
    return _same(ours, theirs, may_be_times=name in _TIMES)


def in_any_order(found: Any) -> Any:
    """Return an answer whose order means nothing in one that can be compared."""
    return sorted(found) if isinstance(found, list) else found


def _errors(found: Any) -> Iterator[str]:
    if isinstance(found, Error):
        yield found
    elif isinstance(found, list):
        for one in found:
            yield from _errors(one)


def _same(ours: Any, theirs: Any, *, may_be_times: bool) -> bool:
    if type(ours) is not type(theirs):
        return False
    if isinstance(ours, list):
        return len(ours) == len(theirs) and all(
            _same(*pair, may_be_times=may_be_times) for pair in zip(ours, theirs, strict=True)
        )
    if isinstance(ours, Error):
        return str(ours) in (theirs.rstrip(), theirs.partition(" script: ")[0])
    if may_be_times and isinstance(ours, int) and min(ours, theirs) > _TIME_MS_MIN // 1000:
        return bool(abs(ours - theirs) <= (SLACK_MS if ours > _TIME_MS_MIN else SLACK_MS // 1000))
    return bool(ours == theirs)
