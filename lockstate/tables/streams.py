"""The memory of streams: sessions that number their commands, so that each is applied once.

A client numbers the commands of one session 1, 2, 3, ... and sends them in frames. Numbers are applied in
order and without gaps, so the last one says what is applied; a frame that comes again, over another node too,
finds the outcomes that are kept. They are kept until the client says that it has them, and with the session:
nothing ages, and no digest is made of what was asked. Part of the replicated state.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Final

from lockstate.tables.ledger import Ledger, mark_of_stream
from lockstate.tables.records import Kept, RequestKey, Stream, encoded_bytes
from lockstate.tables.requests import brief
from lockstate.words.ids import HoldId, SessionId
from lockstate.words.refusals import Refused
from lockstate.words.results import Queued, Result, Transacted

_LONG: Final = frozenset({Refused, Transacted})
"""The classes of outcomes of which less is kept than was told."""


class Streams:
    """The streams of all sessions that have one."""

    def __init__(self, ledger: Ledger) -> None:
        self._streams: dict[SessionId, Stream] = {}
        self._ledger = ledger
        self._noted = ledger.noted
        self.kept_count = 0
        """How many outcomes are kept."""

    def __len__(self) -> int:
        """Return how many streams there are."""
        return len(self._streams)

    def get(self, session_id: SessionId) -> Stream | None:
        """Return the stream of a session, if it has one."""
        return self._streams.get(session_id)

    def resume(self, session_id: SessionId) -> Stream:
        """Begin a stream, or begin a new epoch of it."""
        stream = self._streams.get(session_id)
        if stream is None:
            stream = self._streams[session_id] = Stream(session_id)
            self._ledger.noted[stream] = 0
        else:
            self._ledger.change(stream)
        stream.epoch += 1
        return stream

    def keep(self, stream: Stream, number: int, now_ms: int, result: Result) -> None:
        """Record a number as applied, and keep its outcome; if that is `Queued`, it is settled later."""
        kind = result.__class__
        if kind in _LONG:
            result = brief(result)
        if stream not in self._noted:
            self._ledger.change(stream)
        stream.kept[number] = kept = Kept(result, now_ms, encoded_bytes(result))
        stream.last = number
        stream.rows_bytes += kept.size_bytes
        self.kept_count += 1

    def keep_plain(self, stream: Stream, first: int, now_ms: int, results: Sequence[Result]) -> None:
        """Do what `keep` does for what plain commands come to, with numbers from `first` on."""
        if stream not in self._noted:
            self._ledger.change(stream)
        stream.fresh.append((first, now_ms, results))
        stream.last = first + len(results) - 1
        self.kept_count += len(results)

    def settle(self, key: RequestKey, now_ms: int, result: Result) -> None:
        """Replace the outcome of a number that waited."""
        stream = self._streams.get(SessionId(key[0]))
        kept = stream.rows.get(int(key[1])) if stream is not None else None
        if stream is None or kept is None:
            return
        self._ledger.change(stream)
        result = brief(result)
        stream.rows_bytes -= kept.size_bytes
        kept.result, kept.at_ms, kept.size_bytes = result, now_ms, encoded_bytes(result)
        stream.rows_bytes += kept.size_bytes

    def waiting(self, session_id: SessionId) -> tuple[HoldId, ...]:
        """Return what the numbers of a session wait under, in their order."""
        stream = self._streams.get(session_id)
        rows = stream.rows.values() if stream is not None else ()
        return tuple([one.result.hold_id for one in rows if isinstance(one.result, Queued)])

    def acknowledge(self, stream: Stream, ranges: tuple[tuple[int, int], ...]) -> None:
        """Forget outcomes that the client has seen. One that waits is not final: it stays.

        The ranges rise and are disjoint, so each outcome is looked at once, however many ranges there are.
        """
        if not ranges:
            return
        # Mostly that is whole runs that are still fresh: since they came, the stream is noted as changed.
        first, last = ranges[-1]
        fresh, runs_seen = stream.fresh, 0
        for begins, _, results in fresh:
            if not first <= begins <= last + 1 - len(results):
                break
            runs_seen += 1
            self.kept_count -= len(results)
        del fresh[:runs_seen]
        kept = stream.kept if fresh and fresh[0][0] <= last else stream.rows
        if not kept:
            return
        numbers = list(kept)  # in their order, in which they were given
        parts = [numbers[bisect_left(numbers, first) : bisect_right(numbers, last)] for first, last in ranges]
        seen = [number for number in chain(*parts) if kept[number].result.__class__ is not Queued]
        if not seen:
            return
        self._ledger.change(stream)
        self.kept_count -= len(seen)
        if len(seen) == len(kept):
            kept.clear()
            stream.rows_bytes = 0
        else:
            stream.rows_bytes -= sum([kept.pop(number).size_bytes for number in seen])

    def drop(self, session_id: SessionId) -> None:
        """Forget the stream of a session that ends."""
        stream = self._streams.pop(session_id, None)
        if stream is not None:
            self._ledger.remove(stream)
            self.kept_count -= stream.kept_count

    # -- snapshots ------------------------------------------------------------------------------------------

    def dump(self) -> list[tuple[SessionId, int, int]]:
        """Return session, epoch and last number of each stream, in order of the sessions."""
        return sorted((one.session_id, one.epoch, one.last) for one in self._streams.values())

    def dump_kept(self) -> list[tuple[SessionId, int, Kept]]:
        """Return what is kept, in order of the sessions and the numbers."""
        return [
            (session_id, number, kept)
            for session_id, _, _ in self.dump()
            for number, kept in self._streams[session_id].kept.items()
        ]

    def load(self, rows: Iterable[tuple[SessionId, int, int]]) -> None:
        """Add a part of what `dump` returned."""
        for session_id, epoch, last in rows:
            stream = self._streams[session_id] = Stream(session_id, epoch, last)
            self._ledger.noted[stream] = 0

    def load_kept(self, rows: Iterable[tuple[SessionId, int, Kept]]) -> None:
        """Add a part of what `dump_kept` returned. Raises KeyError for a session without a stream."""
        for session_id, number, kept in rows:
            stream = self._streams[session_id]
            self._ledger.change(stream)
            stream.rows[number] = kept
            stream.rows_bytes += kept.size_bytes
            self.kept_count += 1

    def recomputed_sum(self) -> int:
        """Return the sum of the marks of all streams (see `marks`)."""
        return sum([mark_of_stream(stream) for stream in self._streams.values()])
