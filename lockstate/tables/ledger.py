"""The ledger: which records have changed since the sums of their marks were last made up (see `marks`).

Whoever adds, changes or removes a record says so here, before a change. The record's mark is made when
somebody asks for the sum, and not at each change: a record that changed many times is encoded once, and a
hold that has come and gone in between not at all. The sum is the same whenever it is asked for.

How much is noted from one entry to the next is bounded: `LockMachine.apply` sees to that, and named values do
so themselves.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, Generic, TypeVar

from lockstate.tables import marks
from lockstate.tables.deadlines import Timed
from lockstate.tables.rate_algorithms import FixedWindow, Gcra, SlidingWindow
from lockstate.tables.records import Session, Stream

NOTED_MAX: Final = 2048
"""Changed records that may be noted from one entry to the next: some milliseconds of work."""
NO_ROOM: Final = -1
"""The room of a ledger that has to be looked at in the next entry in any case."""
_LABEL_BYTES: Final = 50
"""What a session's label is counted as having beside its texts: two strings and a place in a table."""

_Value = TypeVar("_Value")


def mark_of_session(session: Session) -> int:
    """Return the mark of a session, which has what it holds and wants in tables, but for its deadline."""
    content = (session.order, session.ttl_ms, session.session_id, session.owner, session.labels)
    return marks.of_content(content) + marks.of_length(_LABEL_BYTES * len(session.labels))


def mark_of_limiter(limiter: FixedWindow | SlidingWindow | Gcra) -> int:
    """Return the mark of a rate limit, but for its deadline."""
    return marks.of_content(limiter.told())


def mark_of_stream(stream: Stream) -> int:
    """Return the mark of a stream with all that it keeps."""
    return marks.of_content((stream.session_id, stream.epoch, stream.last, stream.kept))


_SPECIAL: Final[Mapping[type, Callable[[Any], int]]] = {
    Session: mark_of_session,
    Stream: mark_of_stream,
    FixedWindow: mark_of_limiter,
    SlidingWindow: mark_of_limiter,
    Gcra: mark_of_limiter,
}
_special: Final = _SPECIAL.get
_of_record: Final = marks.of_record


class Ledger:
    """The sum of the marks of records, and those whose marks are not in it yet.

    `noted` has for each of these the mark that the sum has of it: 0 if it is new. `settled_sum` goes without
    what is noted, and may be added to by who has a mark at hand. With more than `room` noted records, or
    another settled sum than `counted_sum`, the bytes of the state have to be counted (see `budget`).
    """

    __slots__ = ("counted_sum", "noted", "room", "settled_sum")

    def __init__(self) -> None:
        self.noted: dict[Timed | Stream, int] = {}
        self.settled_sum = 0
        self.counted_sum = 0
        self.room = NO_ROOM

    def change(self, record: Timed | Stream) -> None:
        """Note that `record` is about to change."""
        if record not in self.noted:
            self.noted[record] = _special(record.__class__, _of_record)(record)

    def remove(self, record: Timed | Stream) -> None:
        """Take out a record, which must be as it was when it was last noted."""
        old = self.noted.pop(record, None)
        self.settled_sum -= _special(record.__class__, _of_record)(record) if old is None else old

    def settle(self) -> None:
        """Make up the sum."""
        if self.noted:
            self.settled_sum += sum(
                [_special(record.__class__, _of_record)(record) - old for record, old in self.noted.items()]
            )
            self.noted.clear()

    @property
    def sum(self) -> int:
        """The sum of the marks of all records as they are now."""
        self.settle()
        return self.settled_sum


class NamedValues(Generic[_Value]):
    """The sum of the marks of values that a table has by name, each a number by a weight of its name.

    `noted` has the numbers of the names that may have changed, as the sum has them: 0 for one that was not
    there.
    """

    __slots__ = ("_number", "_settled_sum", "_table", "noted")

    def __init__(self, table: Mapping[str, _Value], number: Callable[[_Value], int]) -> None:
        self._table = table
        self._number = number
        self._settled_sum = 0
        self.noted: dict[str, int] = {}

    def change(self, name: str) -> None:
        """Note that the value of `name` is about to come, to change or to go."""
        if name not in self.noted:
            if len(self.noted) >= NOTED_MAX:
                self.settle()
            self.noted[name] = self._number_of(name)

    def settle(self) -> None:
        """Make up the sum."""
        if self.noted:
            self._settled_sum += sum(
                [marks.of_name(name) * (self._number_of(name) - old) for name, old in self.noted.items()]
            )
            self.noted.clear()

    @property
    def sum(self) -> int:
        """The sum of the marks of all values as they are now."""
        self.settle()
        return self._settled_sum

    def _number_of(self, name: str) -> int:
        value = self._table.get(name)
        return 0 if value is None else self._number(value)
