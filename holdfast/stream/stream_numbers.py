"""The stream of a client, without I/O: which number a command has, what to send, what is answered.

It knows docs/stream.md: numbers without gaps, a window, what a new connection is told, what was not taken.
`stream_link.py` has the connection, and decides when there is a new one.
"""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, TypeAlias

import msgspec

from holdfast.stream.stream_messages import Told
from holdfast.values.errors import OutcomeUnknown
from holdfast.wire.results import Result
from holdfast.wire.stream import GAP, VERSION, Commands, Declined, StreamHello, Welcome

_HEAD_BYTES: Final = 64
"""Bytes that a message has around its commands, at the most."""

Encoded: TypeAlias = Commands[msgspec.Raw]
"""A message of commands that were encoded before."""


class Asked:
    """One command on its way. `number` is 0 until it was sent; then `last` is the last number sent with it.

    What `is_wanted` no longer is not sent, or not again if it is sure that it was not applied. What
    `was_applied` on an earlier connection only lacks its answer.
    """

    __slots__ = ("command", "is_wanted", "last", "number", "sent_at_s", "was_applied")

    def __init__(self, command: bytes) -> None:
        self.command = command
        self.number = self.last = 0
        self.sent_at_s = 0.0
        self.is_wanted = True
        self.was_applied = False


class StreamNumbers:
    """The commands of one session, in their order. Times are seconds of any one clock."""

    def __init__(self) -> None:
        self.session_id = ""
        self._next = 1
        self._waiting: deque[Asked] = deque()
        self._sent: dict[int, Asked] = {}
        self._window = self._bytes_max = 0
        self._is_held_back = False
        """Whether numbers that were sent are known to be free: nothing is sent until all have an answer."""

    @property
    def is_idle(self) -> bool:
        """Whether nothing is on its way."""
        return not self._sent and not self._waiting

    @property
    def unanswered(self) -> Iterable[Asked]:
        """What was sent and has no answer, in its order."""
        return self._sent.values()

    @property
    def unsent(self) -> Iterable[Asked]:
        """What was not sent yet."""
        return self._waiting

    def ask(self, asked: Asked) -> None:
        """Let a command be sent with the next message."""
        self._waiting.append(asked)

    def take_unsent(self) -> list[Asked]:
        """Give up what was not sent."""
        waiting = [asked for asked in self._waiting if asked.is_wanted]
        self._waiting.clear()
        return waiting

    def take_unanswered(self) -> list[Asked]:
        """Give up what was sent and has no answer: the session is over."""
        sent = list(self._sent.values())
        self._sent.clear()
        return sent

    @property
    def _seen(self) -> int:
        """The number up to which all have been answered. What is free again may lie below what was sent."""
        return min(next(iter(self._sent), self._next), self._next) - 1

    # -- what is said ---------------------------------------------------------------------------------------

    def hello(self, ttl_ms: int, labels: Mapping[str, str]) -> StreamHello:
        """Return the first message of a connection."""
        return StreamHello(VERSION, self.session_id, ttl_ms, dict(labels))

    def commands(self, now_s: float, timeout_ms: int) -> Encoded | None:
        """Return the next message of commands that were not sent yet; None if there is nothing to send."""
        if self._is_held_back:
            return None
        first, room, size = self._next, self._window - len(self._sent), _HEAD_BYTES
        taken: list[Asked] = []
        while self._waiting and len(taken) < room:
            asked = self._waiting[0]
            size += len(asked.command)
            if asked.is_wanted:
                if taken and size > self._bytes_max:
                    break
                taken.append(asked)
            self._waiting.popleft()
        if not taken:
            return None
        seen = self._seen
        for number, asked in enumerate(taken, first):
            asked.number, asked.sent_at_s = number, now_s
            self._sent[number] = asked
        self._next = first + len(taken)
        return self._message(taken, ((1, seen),) if seen else (), timeout_ms)

    @staticmethod
    def _message(taken: Sequence[Asked], acked: tuple[tuple[int, int], ...], timeout_ms: int) -> Encoded:
        first, last = taken[0].number, taken[-1].number
        for asked in taken:
            asked.last = last
        commands = tuple([msgspec.Raw(asked.command) for asked in taken])
        return Commands(first, acked, timeout_ms, commands)

    # -- what is heard --------------------------------------------------------------------------------------

    def welcomed(self, message: Welcome, now_s: float, timeout_ms: int) -> list[Encoded]:
        """Begin with a connection; return what is to be sent at once.

        What was applied already is asked again, and has its first result. What was not can never be: it
        waits to be sent again with new numbers, before all that is newer. Raises ValueError for the welcome
        of somebody who does not know our numbers, or would take none.
        """
        session_id, last = message.session_id, message.last
        self._window, self._bytes_max = message.window, message.bytes_max
        sent = list(self._sent.values())
        seen, given = self._seen, max(self._next - 1, next(reversed(self._sent), 0))
        if session_id != (self.session_id or session_id or None) or not seen <= last <= given:
            raise ValueError(f"a welcome that is not of our session: {message}")
        if min(self._window, self._bytes_max) < 1:
            raise ValueError(f"a welcome without room: {message}")
        self.session_id = session_id
        applied = [asked for asked in sent if asked.number <= last]
        free = [asked for asked in sent if asked.number > last]
        self._sent = {asked.number: asked for asked in applied}
        self._put_back(free)
        self._next = last + 1
        self._is_held_back = False
        for asked in applied:
            asked.sent_at_s = now_s
            asked.was_applied = True
        return [self._message(run, (), timeout_ms) for run in self._runs(applied)]

    def _runs(self, applied: Iterable[Asked]) -> list[list[Asked]]:
        """Return commands in groups whose numbers follow one another, none too long for a message."""
        runs: list[list[Asked]] = []
        size = 0
        for asked in applied:
            size += len(asked.command)
            if not runs or runs[-1][-1].number + 1 != asked.number or size > self._bytes_max:
                runs.append([])
                size = _HEAD_BYTES + len(asked.command)
            runs[-1].append(asked)
        return runs

    def answered(self, message: Told) -> list[tuple[Asked, Result | OutcomeUnknown]]:
        """Return what was answered, each with its result."""
        answered = []
        for number, result in enumerate(message.results, message.first):
            asked = self._sent.pop(number, None)
            if asked is not None:
                answered.append((asked, result))
        self._go_on()
        return answered

    def refused(self, message: Declined) -> list[Asked] | None:
        """Return what was not taken, and is to be done in another way.

        What came behind it meets a gap, and is sent again once nothing is on its way any longer. None: what
        was not taken is only the question what became of it; a new connection asks again.
        """
        number = message.number
        refused = self._sent.get(number)
        if refused is None:
            return []
        if refused.was_applied:
            return None
        not_taken = [self._sent.pop(each) for each in range(number, refused.last + 1) if each in self._sent]
        self._next = min(self._next, number)
        self._is_held_back = True
        if message.code == GAP:
            self._put_back(not_taken)
            not_taken = []
        self._go_on()
        return not_taken

    def _put_back(self, free: Sequence[Asked]) -> None:
        """Let commands wait again in their old order, before all others."""
        for asked in reversed(free):
            asked.number = asked.last = 0
            if asked.is_wanted:
                self._waiting.appendleft(asked)

    def _go_on(self) -> None:
        if not self._sent:
            self._is_held_back = False
