"""The checker of lost answers of the Redis face objects to what docs/faces.md forbids, and nothing else."""

from types import SimpleNamespace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from lockstate.words.commands.holds import Acquire, Release
from lockstate.words.ids import AttemptId, HoldId, OwnerName
from lockstate.words.modes import Mode
from lockstate.words.results import Granted, Released
from tests.simulation.checks.model_replay import Answer, Step
from tests.simulation.checks.redis_repeats import OK, SPACE, WITHIN_US, RedisRepeats
from tests.simulation.checks.report import Report
from tests.simulation.checks.scripted_cluster import objects
from tests.support.redis_words import Reader, sent

LONG = b"0123456789abcdef"
SHORT = b"1"
FREE: Any = SimpleNamespace(holders=lambda _name: ())


def held(token: int, value: bytes = LONG) -> Any:
    """Return the state of a node in which there is a hold with this token."""
    return SimpleNamespace(holders=lambda _name: [SimpleNamespace(token=token, value=value.decode())])


class Script:
    """Facts in order, each a microsecond behind the one before."""

    def __init__(self) -> None:
        self.checker = RedisRepeats(Report())
        self.now_us = 0

    def pass_time(self, microseconds: int = 1) -> int:
        """Let time pass; return the moment."""
        self.now_us += microseconds
        return self.now_us

    def asks(self, number: int, value: bytes = LONG, process: str = "n1.1") -> None:
        """Let a new connection take `k`."""
        name = b"c%d" % number
        self.checker.asked(process, number, [b"CLIENT", b"SETNAME", name], self.pass_time())
        self.checker.answered(process, number, OK, FREE, self.pass_time())
        self.checker.asked(process, number, [b"SET", b"k", value, b"NX", b"PX", b"500"], self.pass_time())

    def granted(self, number: int, token: int, value: bytes = LONG) -> None:
        """Let the log grant it to a connection."""
        hold_id = HoldId(f"h{token}")
        owner = OwnerName(f"c{number}@host")
        command = Acquire(SPACE + "k", Mode.EXCLUSIVE, hold_id, AttemptId("a"), owner=owner)
        granted = Granted(hold_id, token, SPACE + "k", Mode.EXCLUSIVE, 500, value=value.decode())
        self.checker.applied(Step(1, 0, answers=[Answer("n1", command, granted)]))
        self.checker.known("n1.1", hold_id, self.pass_time(), is_unknown=False)

    def given_back(self, token: int) -> None:
        """Let a node release a hold by its id."""
        self.checker.applied(Step(2, 0, answers=[Answer("n1", Release(HoldId(f"h{token}")), Released())]))

    def lost(self, number: int, process: str = "n1.1") -> None:
        """Let a node hear of the end of a connection."""
        self.checker.lost(process, number, self.pass_time(), self.now_us)

    def told(self, number: int, reply: str | int | None, machine: Any = FREE, process: str = "n1.1") -> None:
        """Let a node answer."""
        self.checker.answered(process, number, reply, machine, self.pass_time())

    def left(self, value: bytes = LONG) -> None:
        """Let a connection take the lock, and end without its answer."""
        self.asks(1, value)
        self.granted(1, 7, value)
        self.lost(1)


def test_what_was_left_is_adopted() -> None:
    """The same value on the same node gets the hold; it is counted."""
    script = Script()
    script.left()
    script.asks(2)
    script.told(2, OK, held(7))
    assert script.checker.counts == {"redis-adopted": 1}


def test_a_ghost() -> None:
    """Nil for what was left is an objection: of one connection, and of several, one after the other."""
    script = Script()
    script.left()
    script.asks(2)
    with objects("redis-ghost"):
        script.told(2, None, held(7))
    script.lost(2)
    script.asks(3)
    with objects("redis-ghost"):
        script.told(3, None, held(7))


def test_what_remains_is_counted() -> None:
    """A nil for which the manual has a reason passes, and is counted by that reason."""
    script = Script()
    script.left(SHORT)
    script.asks(2, SHORT)
    script.told(2, None, held(7, SHORT))
    assert script.checker.counts == {"redis-nil-short-value": 1}

    script = Script()
    script.left()
    script.asks(2, process="n2.1")
    script.told(2, None, held(7), process="n2.1")
    script.checker.process_ended("n1.1")
    script.asks(3, process="n1.2")
    script.told(3, None, held(7), process="n1.2")
    assert script.checker.counts == {"redis-nil-other-node": 1, "redis-nil-node-ended": 1}

    script = Script()
    script.asks(1)
    script.granted(1, 7)
    script.asks(2)
    script.lost(1)
    script.told(2, None, held(7))
    assert script.checker.counts == {"redis-nil-end-not-known": 1}

    script = Script()
    script.left()
    script.pass_time(WITHIN_US)
    script.asks(2)
    script.told(2, None, held(7))
    assert script.checker.counts == {"redis-nil-too-late": 1}

    script = Script()
    script.left()
    script.checker.known("n1.1", "h7", script.pass_time(), is_unknown=True)
    script.asks(2)
    script.told(2, None, held(7))
    assert script.checker.counts == {"redis-nil-outcome-unknown": 1}


def test_adoptions_that_prove_nothing() -> None:
    """Short values, living connections, other processes, and answers that were given are found."""
    script = Script()
    script.left(SHORT)
    script.asks(2, SHORT)
    with objects("redis-short"):
        script.told(2, OK, held(7, SHORT))

    script = Script()
    script.asks(1)
    script.granted(1, 7)
    script.asks(2)
    with objects("redis-alive"):
        script.told(2, OK, held(7))

    script = Script()
    script.left()
    script.asks(2, process="n2.1")
    with objects("redis-alive"):
        script.told(2, OK, held(7), process="n2.1")

    script = Script()
    script.asks(1)
    script.granted(1, 7)
    script.told(1, OK, held(7))
    script.lost(1)
    script.asks(2)
    with objects("redis-alive"):
        script.told(2, OK, held(7))


def test_one_hold_is_told_once() -> None:
    """Two repetitions that are both told of one hold are found, and a token that is not its own."""
    script = Script()
    script.left()
    script.asks(2)
    script.asks(3)
    script.told(2, OK, held(7))
    with objects("redis-told-twice"):
        script.told(3, OK, held(7))

    script = Script()
    script.asks(1)
    script.granted(1, 7)
    with objects("redis-token"):
        script.told(1, 8, held(7))

    script = Script()
    script.asks(1)
    with objects("redis-unheld"):
        script.told(1, OK)


def test_what_is_given_back_is_nobodys() -> None:
    """A hold that a client was told of is not given back, and none is told of one that was."""
    script = Script()
    script.asks(1)
    script.granted(1, 7)
    script.told(1, OK, held(7))
    with objects("redis-given-back"):
        script.given_back(7)

    script = Script()
    script.left()
    script.given_back(7)
    script.asks(2)
    with objects("redis-given-back"):
        script.told(2, OK)


def test_two_holders() -> None:
    """Two clients that believe in one lock at one time are found; one after the other may."""
    script = Script()
    script.asks(1)
    script.granted(1, 7)
    script.told(1, OK, held(7))
    script.checker.believes("one", "c1", SPACE + "k", script.pass_time(), 1_000)
    script.asks(2)
    script.granted(2, 8)
    script.told(2, OK, held(8))
    with objects("redis-two-holders"):
        script.checker.believes("two", "c2", SPACE + "k", script.pass_time(), 2_000)
    script.checker.believes("two", "c2", SPACE + "k", 1_000, 2_000)
    script.checker.stopped_believing("two", SPACE + "k")
    script.checker.believes("one", "c1", SPACE + "k", 1_500, 2_000)


def test_what_is_kept() -> None:
    """What was left is gone some seconds later, in healthy times."""
    script = Script()
    script.left()
    script.checker.healthy(0, 3_000_000)
    with objects("redis-kept"):
        script.checker.healthy(0, 9_000_000)
    script.asks(2)
    script.checker.healthy(0, 9_000_000)


@given(st.lists(st.lists(st.binary(max_size=9), min_size=1, max_size=4), max_size=4), st.data())
def test_words_come_in_any_pieces(commands: list[list[bytes]], data: st.DataObject) -> None:
    """However bytes are cut, the same words are read."""
    whole, reader = b"".join(map(sent, commands)) + b"+OK\r\n$-1\r\n:-7\r\n", Reader()
    while whole:
        count = data.draw(st.integers(1, len(whole)))
        reader.feed(whole[:count])
        whole = whole[count:]
    assert list(reader.values) == [*commands, OK, None, -7]
