"""Whether records of the audit are all there, and as the cluster wrote them. No I/O, and nothing of a node.

Each record has its number, the hash of the record before it, and a hash of all that it shows: the SHA-256 of
its JSON without the hash, without spaces, its fields in alphabetical order. A record that was told before the
cluster had linked it has its number alone: its hash follows from the record before it, and a later record
that has one tells whether it is right.
"""

from collections.abc import Iterator, Sequence
from hashlib import sha256
from typing import Annotated, Any, Final, TypeAlias

import msgspec

Row: TypeAlias = dict[str, Any]
Number: TypeAlias = Annotated[int, msgspec.Meta(ge=1)]

_canonical = msgspec.json.Encoder(order="sorted")


class NumberedRecord(msgspec.Struct):
    """What a record has that is not linked yet."""

    number: Number


class Record(NumberedRecord):
    """What ties a record to the one before."""

    chain: Number
    previous: str
    hash: str


_TIES: Final = frozenset(Record.__struct_fields__)


class ChainCheck:
    """Looks at one record after the other, in the order in which they were shipped."""

    def __init__(self) -> None:
        self.count = 0
        self.first_number = 0
        self.last_number = 0
        self.last: Record | None = None
        """The last one that has a hash."""
        self._covered_count = 0
        self._unlinked: list[Row] = []
        """What follows each other without a hash, up to the last one."""
        self._is_tied = False
        """Whether nothing is missing between the last one with a hash and those."""

    @property
    def uncovered_count(self) -> int:
        """How many records are in no hash of those that were looked at."""
        return self.count - self._covered_count

    def look(self, row: Row) -> Iterator[str]:
        """Yield what is wrong with a record, or between the one before and this one."""
        ties = {field: value for field, value in row.items() if field in _TIES}
        try:
            kind = NumberedRecord if ties.keys() == {"number"} else Record
            record: NumberedRecord = msgspec.convert(ties, kind)
        except msgspec.ValidationError:
            place = f"record {self.last_number}" if self.count else "the beginning"
            yield f"after {place}: a record without number, chain, previous and hash"
            return
        yield from self._place(record.number)
        if isinstance(record, Record):
            yield from _alone(row, record)
            yield from self._tie(record)
            self.last, self._unlinked, self._is_tied = record, [], True
            self._covered_count += 1
        else:
            self._unlinked.append(row)

    def _place(self, number: int) -> Iterator[str]:
        """Count a record, and yield which are missing before it."""
        last = self.last_number
        if self.count and number != last + 1:
            self._unlinked, self._is_tied = [], False
            if number <= last:
                yield f"record {number} comes after record {last}"
            elif number == last + 2:
                yield f"record {last + 1} is missing"
            else:
                yield f"records {last + 1} to {number - 1} are missing"
        self.count += 1
        self.first_number = self.first_number or number
        self.last_number = number

    def _tie(self, record: Record) -> Iterator[str]:
        """Yield what is wrong between a record and those before it."""
        last, between = self.last, self._unlinked
        if last is not None and record.chain == last.chain:
            if not self._is_tied:
                return
            previous = last.hash
        else:
            begins = [row["number"] for row in between]
            if last is not None and record.chain - 1 not in begins:
                yield f"record {record.number} is of a chain that begins anew with record {record.chain}"
                return
            if record.chain not in begins:
                return
            between, previous = between[begins.index(record.chain) :], ""
        self._covered_count += len(between)
        if _hash_behind(between, record.chain, previous) != record.previous:
            yield _replaced(record.number, [row["number"] for row in between])


def _alone(row: Row, record: Record) -> Iterator[str]:
    """Yield what is wrong with a record, whatever is before it."""
    number = record.number
    if _hash({field: value for field, value in row.items() if field != "hash"}) != record.hash:
        yield f"record {number} was changed: its hash is that of another content"
    if record.chain > number or (record.chain == number) != (record.previous == ""):
        yield f"record {number} is of no chain: only the first one of its chain has none before it"


def _hash(content: Row) -> str:
    return sha256(_canonical.encode(content)).hexdigest()


def _hash_behind(rows: Sequence[Row], chain: int, previous: str) -> str:
    """Return the hash of the last of some records that follow each other, as the cluster makes it."""
    for row in rows:
        previous = _hash(row | {"chain": chain, "previous": previous})
    return previous


def _replaced(number: int, between: Sequence[int]) -> str:
    """Say that a record does not fit to those without a hash, or to the one before it."""
    if len(between) > 1:
        return f"record {number} does not follow records {between[0]} to {between[-1]}: one was changed"
    return f"record {number} does not follow record {number - 1}: one of them was replaced"
