"""All records that end by themselves, by (deadline, order of creation)."""

import heapq
from typing import Final

import msgspec

_BUCKET_BITS: Final = 6
"""A bucket takes the deadlines of 64 ms: few enough to be sorted at once, long enough to be few."""
_ORDER_BITS: Final = 64
_ORDER_MASK: Final = (1 << _ORDER_BITS) - 1
_EMPTY_MAX: Final = 1024


class Timed(msgspec.Struct, eq=False, gc=False, array_like=True):
    """Something that ends by itself when cluster time has passed `expires_at_ms`.

    `order` is its place among all creations: it breaks ties between equal deadlines.
    """

    order: int
    expires_at_ms: int


class Lease(Timed, eq=False, gc=False, array_like=True):
    """What ends when it is not renewed for `ttl_ms`."""

    ttl_ms: int


class _Bucket:
    """Records of nearby deadlines. `keys` orders them once the first is asked for: a heap with husks."""

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
    """A calendar queue (Brown 1988): adding and removing cost the same whatever the number of records.

    What is removed before it ends, as nearly all leases are, is never sorted and leaves nothing behind.
    """

    def __init__(self) -> None:
        self._buckets: dict[int, _Bucket] = {}
        self._heap: list[int] = []
        self._count = 0

    def __len__(self) -> int:
        """Return how many records are waiting for their end."""
        return self._count

    def add(self, record: Timed) -> None:
        """Add `record`, which must not be there."""
        at = record.expires_at_ms >> _BUCKET_BITS
        bucket = self._buckets.get(at)
        if bucket is None:
            bucket = self._buckets[at] = _Bucket()
            heapq.heappush(self._heap, at)
        bucket.records[record.order] = record
        if bucket.keys is not None:
            heapq.heappush(bucket.keys, record.expires_at_ms << _ORDER_BITS | record.order)
        self._count += 1

    def remove(self, record: Timed) -> None:
        """Take `record` out, which must be there with the deadline that it had when it was added."""
        del self._buckets[record.expires_at_ms >> _BUCKET_BITS].records[record.order]
        self._count -= 1
        if len(self._buckets) > 2 * self._count + _EMPTY_MAX:
            self._drop_empty()

    def move(self, record: Timed, expires_at_ms: int) -> None:
        """Give a record that is there another deadline."""
        if record.expires_at_ms != expires_at_ms:
            self.remove(record)
            record.expires_at_ms = expires_at_ms
            self.add(record)

    def due(self, now_ms: int) -> Timed | None:
        """Return the first record if `now_ms` has passed its end. Who ends it takes it out."""
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

    def _drop_empty(self) -> None:
        self._buckets = {at: bucket for at, bucket in self._buckets.items() if bucket.records}
        self._heap = list(self._buckets)
        heapq.heapify(self._heap)
