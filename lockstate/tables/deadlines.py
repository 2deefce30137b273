"""The deadlines of all records that end by themselves, in order of (deadline, creation)."""

import heapq
from collections.abc import Sequence
from itertools import groupby
from operator import mul
from typing import Final

import msgspec

_BUCKET_BITS: Final = 6
"""Bits of milliseconds that share a bucket, 64 ms: short enough that one bucket is sorted at once, long
enough that there are few."""
_ORDER_BITS: Final = 64
"""Bits for the order of creation in a key of a bucket; the deadline stands above them."""
_ORDER_MASK: Final = (1 << _ORDER_BITS) - 1
_SPREAD: Final = 0x9E3779B97F4A7C15
_WEIGHT_MASK: Final = (1 << 64) - 1
_FOLD_BITS: Final = 32
"""How a creation number becomes a weight: multiplied, cut to 64 bits (Knuth 6.4), and folded by so many.

Without the fold the weights of three neighbours would often be evenly spaced, and their deadlines could all
be wrong without a change of the sum."""
_EMPTY_MAX: Final = 1024
"""Keys without a record, or buckets without records, that are tolerated before they are cleared away."""


class Timed(msgspec.Struct, eq=False, gc=False, array_like=True):
    """Something that ends by itself when cluster time has passed `expires_at_ms`.

    `order` is its creation number, which breaks ties between equal deadlines.
    """

    order: int
    expires_at_ms: int


class Lease(Timed, eq=False, gc=False, array_like=True):
    """Something that ends when it is not renewed for `ttl_ms`."""

    ttl_ms: int


def _weight(record: Timed) -> int:
    """Return the weight of a record: the mark of its deadline is the time by this (see `marks`)."""
    weight = record.order * _SPREAD & _WEIGHT_MASK
    return weight ^ weight >> _FOLD_BITS


class _Bucket:
    """The records whose deadlines are close to each other, by order of creation.

    `keys` is a heap of (deadline, order), made when the first record is asked for. Keys of records that were
    removed stay in it until they come to the top, or are too many.
    """

    __slots__ = ("keys", "records")

    def __init__(self) -> None:
        self.records: dict[int, Timed] = {}
        self.keys: list[int] | None = None

    def first(self) -> Timed | None:
        """Return the record that ends first."""
        records = self.records
        if not records:
            return None
        if self.keys is None or len(self.keys) > 2 * len(records) + _EMPTY_MAX:
            self.keys = [record.expires_at_ms << _ORDER_BITS | order for order, record in records.items()]
            heapq.heapify(self.keys)
        while True:
            key = self.keys[0]
            record = records.get(key & _ORDER_MASK)
            if record is not None and record.expires_at_ms == key >> _ORDER_BITS:
                return record
            heapq.heappop(self.keys)


class Deadlines:
    """A calendar queue (Brown 1988): adding and removing cost the same however many records there are.

    What is removed before its deadline comes near, as nearly all leases are, is never sorted and leaves
    nothing behind.
    """

    def __init__(self) -> None:
        self._buckets: dict[int, _Bucket] = {}
        self._heap: list[int] = []
        self._count = 0
        self._settled_sum = 0
        self.noted: dict[Timed, int] = {}
        """Records whose deadlines are not in the sum yet, with those that the sum has of them: 0 if none."""

    def __len__(self) -> int:
        """Return how many records there are."""
        return self._count

    def add(self, record: Timed) -> None:
        """Add `record`, which must not be there yet."""
        number = record.expires_at_ms >> _BUCKET_BITS
        bucket = self._buckets.get(number)
        if bucket is None:
            bucket = self._add_bucket(number)
        bucket.records[record.order] = record
        if bucket.keys is not None:
            heapq.heappush(bucket.keys, record.expires_at_ms << _ORDER_BITS | record.order)
        self._count += 1
        self.noted[record] = 0

    def add_all(self, records: Sequence[Timed]) -> None:
        """Add many records as `add` does, each with its mark at once."""
        self._count += len(records)
        # Neighbours mostly end together.
        for number, run in groupby(records, lambda record: record.expires_at_ms >> _BUCKET_BITS):
            bucket = self._buckets.get(number) or self._add_bucket(number)
            bucket.records.update({record.order: record for record in run})
            bucket.keys = None
        # `_weight`, without the call.
        weights = [record.order * _SPREAD & _WEIGHT_MASK for record in records]
        ends = [record.expires_at_ms for record in records]
        self._settled_sum += sum(map(mul, [weight ^ weight >> _FOLD_BITS for weight in weights], ends))

    def remove(self, record: Timed) -> None:
        """Take out `record`, which must be there with the deadline that it had when it was added."""
        del self._buckets[record.expires_at_ms >> _BUCKET_BITS].records[record.order]
        self._count -= 1
        old_ms = self.noted.pop(record, record.expires_at_ms)
        if old_ms:
            self._settled_sum -= _weight(record) * old_ms

    def move(self, record: Timed, expires_at_ms: int) -> None:
        """Give a record that is there another deadline."""
        before_ms = record.expires_at_ms
        if before_ms == expires_at_ms:
            return
        if record not in self.noted:
            self.noted[record] = before_ms
        order, buckets = record.order, self._buckets
        del buckets[before_ms >> _BUCKET_BITS].records[order]
        record.expires_at_ms = expires_at_ms
        number = expires_at_ms >> _BUCKET_BITS
        bucket = buckets.get(number)
        if bucket is None:
            bucket = self._add_bucket(number)
        bucket.records[order] = record
        if bucket.keys is not None:
            heapq.heappush(bucket.keys, expires_at_ms << _ORDER_BITS | order)

    def settle(self) -> None:
        """Make up the sum of what was noted."""
        if self.noted:
            self._settled_sum += sum(
                [_weight(record) * (record.expires_at_ms - old_ms) for record, old_ms in self.noted.items()]
            )
            self.noted.clear()

    @property
    def sum(self) -> int:
        """The sum of the marks of all deadlines (see `marks`): each is its time by a weight of its record."""
        self.settle()
        return self._settled_sum

    def recomputed_sum(self) -> int:
        """Return what `sum` must be."""
        records = [record for bucket in self._buckets.values() for record in bucket.records.values()]
        return sum([_weight(record) * record.expires_at_ms for record in records])

    def due(self, now_ms: int) -> Timed | None:
        """Return the first record if `now_ms` has passed its deadline. The caller takes it out."""
        if not self._heap or self._heap[0] << _BUCKET_BITS >= now_ms:
            return None
        record = self._first()
        return record if record is not None and record.expires_at_ms < now_ms else None

    def next_ms(self) -> int | None:
        """Return the earliest deadline, or None when nothing will end by itself."""
        record = self._first()
        return record.expires_at_ms if record is not None else None

    def _first(self) -> Timed | None:
        while self._heap:
            record = self._buckets[self._heap[0]].first()
            if record is not None:
                return record
            del self._buckets[heapq.heappop(self._heap)]
        return None

    def _add_bucket(self, number: int) -> _Bucket:
        if len(self._buckets) >= 2 * self._count + _EMPTY_MAX:
            self._drop_empty()
        bucket = self._buckets[number] = _Bucket()
        heapq.heappush(self._heap, number)
        return bucket

    def _drop_empty(self) -> None:
        self._buckets = {number: bucket for number, bucket in self._buckets.items() if bucket.records}
        self._heap = list(self._buckets)
        heapq.heapify(self._heap)
