"""The stream of a client without I/O: numbers without gaps, each command once, whatever a node answers."""

from collections.abc import Sequence
from typing import Any

import msgspec
from hypothesis import example, given
from hypothesis import strategies as st

from holdfast.stream.stream_messages import Told
from holdfast.stream.stream_numbers import Asked, Encoded, StreamNumbers
from holdfast.wire.results import Result, StreamDone, StreamQueued
from holdfast.wire.stream import Declined, Results, StreamHello, Welcome

BYTES_MAX = 1000


def _asked(text: str = "x") -> Asked:
    return Asked(msgspec.msgpack.encode([7, text]))


def _welcomed(numbers: StreamNumbers, last: int = 0, window: int = 4) -> list[Encoded]:
    """Connect to a node that has applied everything up to `last`."""
    return numbers.welcomed(Welcome("s", last, window, BYTES_MAX, "n1", "", 9), 1.0, 3000)


def _new(*commands: Asked, window: int = 4) -> StreamNumbers:
    numbers = StreamNumbers()
    assert _welcomed(numbers, window=window) == []
    for asked in commands:
        numbers.ask(asked)
    return numbers


def _texts(message: Encoded | None) -> tuple[int, list[str]]:
    """Return the first number of a message of commands, and what they say."""
    assert message is not None
    return message.first, [msgspec.msgpack.decode(raw)[1] for raw in message.commands]


def _results(first: int, *results: Result) -> Told:
    return Results(first, 9, results)


def _queued(text: str) -> StreamQueued:
    """Return a result that can be told from others."""
    return StreamQueued(text, 1)


def _not_taken(number: int, code: str = "overloaded") -> Declined:
    return Declined(number, code, "why", 0, "not-applied")


def test_a_session_begins_and_is_resumed() -> None:
    """The first hello asks for a session with a ttl; those that follow name it."""
    numbers = StreamNumbers()
    assert numbers.hello(500, {"a": "b"}) == StreamHello(1, "", 500, {"a": "b"})
    _welcomed(numbers)
    assert numbers.hello(500, {"a": "b"}) == StreamHello(1, "s", 500, {"a": "b"})


def test_what_was_asked_together_goes_in_one_message() -> None:
    """Numbers follow one another from 1, and answered ones are acknowledged with the next message."""
    a, b, c = _asked("a"), _asked("b"), _asked("c")
    numbers = _new(a, b)
    first = numbers.commands(2.0, 3000)
    assert first is not None
    assert (first.first, first.acked, first.timeout_ms) == (1, (), 3000)
    assert _texts(first) == (1, ["a", "b"])
    assert numbers.commands(2.0, 3000) is None
    numbers.ask(c)
    assert numbers.answered(_results(1, StreamDone())) == [(a, StreamDone())]
    second = numbers.commands(2.0, 3000)
    assert second is not None
    assert (second.first, second.acked) == (3, ((1, 1),))
    assert numbers.answered(_results(2, StreamDone(), _queued("x"))) == [(b, StreamDone()), (c, _queued("x"))]
    assert numbers.is_idle


def test_no_more_is_on_its_way_than_the_window_allows() -> None:
    """What has no room waits for answers; a message is no longer than the node takes."""
    numbers = _new(*[_asked(str(number)) for number in range(6)])
    assert _texts(numbers.commands(2.0, 0)) == (1, ["0", "1", "2", "3"])
    assert numbers.commands(2.0, 0) is None
    numbers.answered(_results(1, StreamDone()))
    assert _texts(numbers.commands(2.0, 0)) == (5, ["4"])
    long = _new(_asked("a" * 600), _asked("b" * 600))
    assert _texts(long.commands(2.0, 0)) == (1, ["a" * 600])
    assert _texts(long.commands(2.0, 0)) == (2, ["b" * 600])


def test_what_was_withdrawn_before_it_was_sent_is_not_sent() -> None:
    """It leaves no gap in the numbers."""
    a, b = _asked("a"), _asked("b")
    numbers = _new(a, b)
    a.is_wanted = False
    assert _texts(numbers.commands(2.0, 0)) == (1, ["b"])


def test_a_new_connection_tells_what_was_applied() -> None:
    """Applied numbers are asked again as they were; the others are free, and go first with new numbers."""
    a, b, c, d = (_asked(text) for text in "abcd")
    numbers = _new(a, b, c)
    numbers.commands(2.0, 0)
    numbers.ask(d)
    again = _welcomed(numbers, last=2)
    assert [_texts(message) for message in again] == [(1, ["a", "b"])]
    assert (a.was_applied, b.was_applied, c.was_applied) == (True, True, False)
    assert _texts(numbers.commands(3.0, 0)) == (3, ["c", "d"])
    assert numbers.answered(_results(1, _queued("1"), _queued("2"))) == [(a, _queued("1")), (b, _queued("2"))]
    assert numbers.answered(_results(3, _queued("3"), _queued("4"))) == [(c, _queued("3")), (d, _queued("4"))]


def test_answered_numbers_are_not_asked_again() -> None:
    """Between two that lack an answer may lie one that has it: it was acknowledged, perhaps."""
    a, b, c = (_asked(text) for text in "abc")
    numbers = _new(a, b, c)
    numbers.commands(2.0, 0)
    numbers.answered(_results(2, StreamDone()))
    assert [_texts(message) for message in _welcomed(numbers, last=3)] == [(1, ["a"]), (3, ["c"])]


def test_what_is_not_wanted_and_was_not_applied_is_dropped() -> None:
    """Its number is given to the next one."""
    a, b = _asked("a"), _asked("b")
    numbers = _new(a, b)
    numbers.commands(2.0, 0)
    a.is_wanted = False
    assert _welcomed(numbers, last=0) == []
    assert _texts(numbers.commands(3.0, 0)) == (1, ["b"])


def test_what_was_not_taken_leaves_its_numbers() -> None:
    """The rest of its message is not taken either; what follows meets a gap and is sent again behind it."""
    a, b, c, d = (_asked(text) for text in "abcd")
    numbers = _new(a, b)
    numbers.commands(2.0, 0)
    numbers.ask(c)
    numbers.commands(2.0, 0)
    assert numbers.answered(_results(1, StreamDone())) == [(a, StreamDone())]
    assert numbers.refused(_not_taken(2)) == [b]
    numbers.ask(d)
    assert numbers.commands(3.0, 0) is None
    assert numbers.refused(_not_taken(3, "gap")) == []
    assert _texts(numbers.commands(3.0, 0)) == (2, ["c", "d"])


def test_a_connection_may_be_lost_while_numbers_are_free() -> None:
    """What was sent behind those that were not taken is sent again in their place."""
    a, b = _asked("a"), _asked("b")
    numbers = _new(a)
    numbers.commands(2.0, 0)
    numbers.ask(b)
    numbers.commands(2.0, 0)
    assert numbers.refused(_not_taken(1)) == [a]
    assert _welcomed(numbers, last=0) == []
    message = numbers.commands(3.0, 0)
    assert message is not None
    assert (_texts(message), message.acked) == ((1, ["b"]), ())


def test_a_question_that_is_refused_is_no_answer() -> None:
    """What was applied before is never said to have been refused: a new connection asks again."""
    a = _asked("a")
    numbers = _new(a)
    numbers.commands(2.0, 0)
    _welcomed(numbers, last=1)
    assert numbers.refused(_not_taken(1)) is None
    assert [_texts(message) for message in _welcomed(numbers, last=1)] == [(1, ["a"])]
    assert numbers.answered(_results(1, StreamDone())) == [(a, StreamDone())]


def test_messages_about_unknown_numbers_change_nothing() -> None:
    """They may be of a connection before."""
    numbers = _new(_asked())
    numbers.commands(2.0, 0)
    assert numbers.refused(_not_taken(77)) == []
    assert numbers.answered(_results(77, StreamDone())) == []
    assert len(list(numbers.unanswered)) == 1


class _Node:
    """A naive node: it applies numbers in order, keeps results until they are acknowledged, and forgets."""

    def __init__(self) -> None:
        self.last = 0
        self.kept: dict[int, Any] = {}
        self.applied: list[str] = []

    def take(self, message: Encoded) -> Told | Declined:
        """Apply a message; refuse one behind a gap."""
        first = message.first
        if first > self.last + 1:
            return _not_taken(first, "gap")
        seen = 0
        for low, high in message.acked:
            assert seen < low <= high <= self.last
            seen = high
            for number in range(low, high + 1):
                self.kept.pop(number, None)
        results: list[Result] = []
        for number, raw in enumerate(message.commands, first):
            text = msgspec.msgpack.decode(raw)[1]
            if number > self.last:
                self.last = number
                self.applied.append(text)
                self.kept[number] = text
            assert self.kept[number] == text, "a number was given to two commands, or asked after its end"
            results.append(_queued(text))
        return _results(first, *results)


class _Path:
    """A client and a node, what is on its way between them, and what the client was told."""

    def __init__(self) -> None:
        self.numbers, self.node = StreamNumbers(), _Node()
        self.way = _welcomed(self.numbers)
        self.told: dict[str, list[str]] = {}
        self.asked_count = 0

    def ask(self) -> None:
        """Ask another command."""
        self.numbers.ask(_asked(f"c{self.asked_count}"))
        self.asked_count += 1

    def send(self) -> None:
        """Send what there is to send."""
        if (message := self.numbers.commands(2.0, 0)) is not None:
            self.way.append(message)

    def hear(self) -> None:
        """Let the oldest message arrive, and be answered."""
        if self.way:
            self._hear(self.node.take(self.way.pop(0)))

    def refuse(self) -> None:
        """Let the oldest message be refused before it is looked at."""
        if self.way:
            self._hear(_not_taken(self.way.pop(0).first))

    def cut(self) -> None:
        """Break the connection: what was sent arrives, and its answers are lost."""
        while self.way:
            self.node.take(self.way.pop(0))
        self.lose()

    def lose(self) -> None:
        """Break the connection, and lose what was sent."""
        self.way = _welcomed(self.numbers, self.node.last)

    def _hear(self, answer: Told | Declined) -> None:
        if isinstance(answer, Results):
            for asked, result in self.numbers.answered(answer):
                assert isinstance(result, StreamQueued)
                assert msgspec.msgpack.decode(asked.command)[1] == result.hold_id
                self.told.setdefault(result.hold_id, []).append("applied")
            return
        not_taken = self.numbers.refused(answer)
        if not_taken is None:
            self.lose()
        for asked in not_taken or ():
            self.told.setdefault(msgspec.msgpack.decode(asked.command)[1], []).append("not taken")


@given(st.lists(st.sampled_from(["ask", "send", "hear", "refuse", "cut", "lose"]), max_size=60))
@example(["ask", "send", "ask", "send", "refuse", "cut"])
def test_every_command_is_applied_once_or_was_not_taken(steps: Sequence[str]) -> None:
    """Whatever is asked, refused and lost, and wherever it breaks: each is told the truth, once."""
    path = _Path()
    for step in [*steps, "cut", *["send", "hear"] * (len(steps) + 2)]:
        getattr(path, step)()
    assert path.numbers.is_idle
    assert len(path.node.applied) == len(set(path.node.applied))
    assert sorted(path.told) == sorted(f"c{number}" for number in range(path.asked_count))
    for text, outcomes in path.told.items():
        assert outcomes == ["applied" if text in path.node.applied else "not taken"]
