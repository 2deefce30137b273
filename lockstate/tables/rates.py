"""The table of rate limits. How each of them counts is in `rate_algorithms`, who may take in `rules/rates`.

A rate limit is identified by its name, algorithm and window; the limit itself comes with every request. It
exists from the first admission until it is whole again, or an operator has it forgotten.

A *place* is what was taken for a moment that is still to come. Until then it can be given back. So a limiter
has only what was taken for moments that have come, and beside it, while it has places, there is a copy that
has these as well: it says where the next place is. When places are given back, the copy is made anew without
them, once for all that one command ends (`settle`). The other places keep their moments, which their clients
have been told.
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import takewhile
from operator import attrgetter
from typing import Final, Literal, NamedTuple

import msgspec

from lockstate.tables import marks
from lockstate.tables.deadlines import Deadlines, Timed
from lockstate.tables.ledger import Ledger, mark_of_limiter
from lockstate.tables.rate_algorithms import (
    AnyLimiter,
    FixedWindow,
    Gcra,
    Limiter,
    SlidingRow,
    SlidingWindow,
)
from lockstate.tables.record_index import RecordIndex
from lockstate.tables.records import RequestKey
from lockstate.words import limits
from lockstate.words.ids import NO_ATTEMPT, AttemptId
from lockstate.words.kinds import Algorithm

RateRow = FixedWindow | SlidingRow | Gcra
"""A rate limit as it is stored."""

RateKey = tuple[str, Algorithm, int]
"""Name, algorithm and window in milliseconds."""

_KINDS: Final[dict[Algorithm, type[AnyLimiter]]] = {
    kind.algorithm: kind for kind in (FixedWindow, SlidingWindow, Gcra)
}


Counted = Literal["rate_limits", "waits"]
"""What limits and places count as in quotas."""


class Taker(NamedTuple):
    """Who takes from a rate limit."""

    ids: tuple[str, ...] = ()
    """What a place is known by: the attempts of its client, or the hold that was granted with it."""
    request: RequestKey | None = None
    principal: str = ""


class Place(Timed, kw_only=True, eq=False, gc=False, array_like=True):
    """What was taken from a rate limit for a moment that is still to come, `expires_at_ms`."""

    name: str
    algorithm: Algorithm
    window_ms: int
    cost: int
    limit: int
    ids: tuple[str, ...]
    request: RequestKey | None
    principal: str

    @property
    def key(self) -> RateKey:
        """The rate limit that it is of."""
        return (self.name, self.algorithm, self.window_ms)


class _Reserved(msgspec.Struct, gc=False):
    """The places of one rate limit in order, and the limiter as it will be with all of them."""

    ahead: AnyLimiter
    places: dict[int, Place]


class RateLimits:
    """All rate limits that are not whole, in order of creation, and their places."""

    def __init__(
        self,
        deadlines: Deadlines,
        take_order: Callable[[], int],
        ledger: Ledger,
        count: Callable[[Counted, str, str, int, int], None],
    ) -> None:
        """`count` is told of each limit and place that comes or goes.

        That is: what it counts as, for whom, its name and creation number, and 1 or -1.
        """
        self._deadlines = deadlines
        self._take_order = take_order
        self._ledger = ledger
        self._count_in_quotas = count
        self._limiters: dict[RateKey, AnyLimiter] = {}
        self._reserved: dict[RateKey, _Reserved] = {}
        """What is reserved, of those that have places."""
        self.stale: dict[RateKey, None] = {}
        """Those whose copies still have places that were given back: for as long as a command ends holds."""
        self.by_id: dict[str, tuple[Place, ...]] = {}
        self.by_request: dict[RequestKey, Place] = {}
        """Places by their ids and by their requests."""
        self.places: dict[int, Place] = {}
        """All places, by order of creation."""
        self.rows_count = 0
        """How many rows all logs of sliding windows have, with those of copies."""
        self.in_order: RecordIndex[Limiter] = RecordIndex(attrgetter("name", "algorithm", "window_ms"))

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._limiters)

    def all(self) -> Collection[AnyLimiter]:
        """Return all limiters, without their places, in order of creation."""
        return self._limiters.values()

    def get(self, key: RateKey) -> AnyLimiter | None:
        """Return the limiter of a rate limit with all its places, to be asked; None if it is whole."""
        reserved = self._reserved.get(key) if self._reserved else None
        return self._limiters.get(key) if reserved is None else reserved.ahead

    def named(self, name: str, *, is_prefix: bool = False) -> Iterator[Limiter]:
        """Yield the rate limits of a name, or those whose names begin with it, in order of their keys."""
        behind = self.in_order.after((name, "", 0), inclusive=True)
        if is_prefix:
            return takewhile(lambda limiter: limiter.name.startswith(name), behind)
        return takewhile(lambda limiter: limiter.name == name, behind)

    def whole_ms(self, key: RateKey) -> int:
        """Return when a rate limit that is there will be whole."""
        return self._limiters[key].expires_at_ms

    def counted_with(self, one: str) -> int:
        """Return how many places, at most, are counted anew when those that are known by an id go."""
        places = self.by_id.get(one, ()) if self.by_id else ()
        return sum([self.places_count(place.key) for place in places])

    def places_count(self, key: RateKey) -> int:
        """Return how many places a rate limit has."""
        reserved = self._reserved.get(key)
        return 0 if reserved is None else len(reserved.places)

    # -- taking ---------------------------------------------------------------------------------------------

    def admit(self, key: RateKey, at_ms: int, now_ms: int, limit: int, cost: int, by: Taker) -> None:  # noqa: PLR0917 - what is admitted
        """Count `cost` at `at_ms`, the first moment at which it fits: as a place if that is to come."""
        limiter = self._limiters.get(key)
        if limiter is None:
            limiter = self._add(key, now_ms, by.principal)
        elif limiter not in self._ledger.noted:
            self._ledger.change(limiter)
        limiter.last_principal = by.principal
        # What comes behind a place is one as well: a limiter counts in the order of asking.
        if at_ms > now_ms or key in self._reserved:
            place = Place(
                order=self._take_order(),
                expires_at_ms=at_ms,
                name=limiter.name,
                algorithm=limiter.algorithm,
                window_ms=limiter.window_ms,
                cost=cost,
                limit=limit,
                ids=by.ids,
                request=None if by.request in self.by_request else by.request,
                principal=by.principal,
            )
            self._enter(place)
            limiter = self._reserved[key].ahead
            limiter.last_principal = by.principal
        else:
            self._count(limiter, at_ms, limit, cost)
        self._deadlines.move(self._limiters[key], limiter.whole_ms())

    def _add(self, key: RateKey, now_ms: int, principal: str) -> AnyLimiter:
        name, algorithm, window_ms = key
        limiter = _KINDS[algorithm](
            order=self._take_order(),
            expires_at_ms=now_ms,
            name=name,
            window_ms=window_ms,
            principal=principal,
        )
        self._enter_limiter(limiter)
        return limiter

    def _enter_limiter(self, limiter: AnyLimiter) -> None:
        self._put_in(limiter)
        self._count_limiter(limiter, 1)

    def _put_in(self, limiter: AnyLimiter) -> None:
        self._limiters[limiter.name, limiter.algorithm, limiter.window_ms] = limiter
        self.in_order.add(limiter)
        self._deadlines.add(limiter)
        self._ledger.noted[limiter] = 0
        self.rows_count += limiter.rows_count

    def _take_out(self, limiter: Limiter) -> None:
        del self._limiters[limiter.name, limiter.algorithm, limiter.window_ms]
        self.in_order.remove(limiter)
        self._deadlines.remove(limiter)
        self._ledger.remove(limiter)
        self.rows_count -= limiter.rows_count

    def _count_limiter(self, limiter: Limiter, by: int) -> None:
        self._count_in_quotas("rate_limits", limiter.principal, limiter.name, limiter.order, by)

    def _count(self, limiter: AnyLimiter, at_ms: int, limit: int, cost: int) -> None:
        before = limiter.rows_count
        limiter.admit(at_ms, limit, cost)
        self.rows_count += limiter.rows_count - before

    # -- places ---------------------------------------------------------------------------------------------

    def _enter(self, place: Place) -> None:
        """Add the last place of a rate limit."""
        reserved = self._reserved.get(place.key)
        if reserved is None:
            ahead = self._limiters[place.key].copy()
            self.rows_count += ahead.rows_count
            reserved = self._reserved[place.key] = _Reserved(ahead, {})
        self._count(reserved.ahead, place.expires_at_ms, place.limit, place.cost)
        reserved.places[place.order] = self.places[place.order] = place
        self._index(place)
        if place.request is not None:
            self.by_request[place.request] = place
        self._deadlines.add(place)
        self._ledger.noted[place] = 0
        self._count_place(place, 1)

    def _index(self, place: Place) -> None:
        for one in filter(None, place.ids):
            self.by_id[one] = (*self.by_id.get(one, ()), place)

    def _unindex(self, place: Place) -> None:
        for one in filter(None, place.ids):
            left = tuple([other for other in self.by_id[one] if other is not place])
            if left:
                self.by_id[one] = left
            else:
                del self.by_id[one]

    def _count_place(self, place: Place, by: int) -> None:
        self._count_in_quotas("waits", place.principal, place.name, place.order, by)

    def arrive(self, place: Place) -> None:
        """Count a place whose moment has come, and which cannot be given back any more."""
        limiter = self._limiters[place.key]
        self._ledger.change(limiter)
        self._count(limiter, place.expires_at_ms, place.limit, place.cost)
        self._leave(place)

    def _leave(self, place: Place) -> None:
        """Take out a place; with the last one of a rate limit goes the copy."""
        self._unindex(place)
        if place.request is not None:
            del self.by_request[place.request]
        self._deadlines.remove(place)
        self._ledger.remove(place)
        self._count_place(place, -1)
        del self.places[place.order]
        reserved = self._reserved[place.key]
        del reserved.places[place.order]
        if not reserved.places:
            self.rows_count -= reserved.ahead.rows_count
            del self._reserved[place.key]

    def give_back(self, one: str, now_ms: int) -> None:
        """Give back the places that are known by an id, as if they had never been asked for.

        Whoever calls it settles before anything is taken again.
        """
        for place in self.by_id.get(one, ()):
            if place.expires_at_ms > now_ms:
                self._leave(place)
                self.stale[place.key] = None

    def settle(self, now_ms: int) -> int:
        """Make copies anew without the places that were given back; return how many others were counted."""
        stale, self.stale = self.stale, {}
        counted = 0
        for key in stale:
            limiter = self._limiters[key]
            reserved = self._reserved.get(key)
            if reserved is not None:
                self.rows_count -= reserved.ahead.rows_count
                limiter = reserved.ahead = limiter.copy()
                for other in reserved.places.values():
                    limiter.admit(other.expires_at_ms, other.limit, other.cost)
                self.rows_count += limiter.rows_count
                counted += len(reserved.places)
            self._deadlines.move(self._limiters[key], max(limiter.whole_ms(), now_ms))
        return counted

    def join(self, request: RequestKey | None, attempt_id: AttemptId) -> None:
        """Let another attempt at a request have its place, if that is still to come and can be given back."""
        place = None if request is None else self.by_request.get(request)
        if place is None or not place.ids or attempt_id in place.ids:
            return
        ids = (*place.ids, attempt_id)
        if len(ids) > limits.ATTEMPTS_COUNT_MAX:
            # Whoever is dropped may have been told of it, so it is never given back.
            ids = (NO_ATTEMPT, *ids[2:])
        self._rename(place, ids)

    def leave(self, attempt_id: AttemptId, now_ms: int) -> Place | None:
        """Take back an attempt; return the place that was given back if that was the only one at it."""
        place = min(self.by_id.get(attempt_id, ()), key=attrgetter("order"), default=None)
        if place is None or place.expires_at_ms <= now_ms:
            return None
        if len(place.ids) > 1:
            self._rename(place, tuple([one for one in place.ids if one != attempt_id]))
            return None
        self._leave(place)
        self.stale[place.key] = None
        self.settle(now_ms)
        return place

    def _rename(self, place: Place, ids: tuple[str, ...]) -> None:
        """Let a place be known by other ids."""
        self._ledger.change(place)
        self._unindex(place)
        place.ids = ids
        self._index(place)

    # -- other settings -------------------------------------------------------------------------------------

    def other(self, key: RateKey) -> AnyLimiter | None:
        """Return the rate limit of the same name that goes on with its count as another one of this key.

        None if this one is there, or none of its name is. Of several it is the one that is whole last.
        """
        if key in self._limiters:
            return None
        last = max(self.named(key[0]), key=attrgetter("expires_at_ms", "order"), default=None)
        return None if last is None else self._limiters[last.name, last.algorithm, last.window_ms]

    def turned(self, source: AnyLimiter, key: RateKey, limit: int, now_ms: int) -> AnyLimiter:
        """Return a limiter of another kind or window that has admitted what counts of one, but its places."""
        name, algorithm, window_ms = key
        limiter = _KINDS[algorithm](
            order=source.order,
            expires_at_ms=source.expires_at_ms,
            name=name,
            window_ms=window_ms,
            principal=source.principal,
            last_principal=source.last_principal,
        )
        for at_ms, cost in source.taken(now_ms):
            limiter.admit(at_ms, limit, cost)
        return limiter

    def places_of(self, limiter: Limiter) -> Collection[Place]:
        """Return the places of a rate limit, in order."""
        reserved = self._reserved.get((limiter.name, limiter.algorithm, limiter.window_ms))
        return () if reserved is None else reserved.places.values()

    def turn(self, source: AnyLimiter, key: RateKey, limit: int, now_ms: int) -> None:
        """Let a rate limit go on with its count, its places and its creation number under another key."""
        limiter = self.turned(source, key, limit, now_ms)
        reserved = self._reserved.pop((source.name, source.algorithm, source.window_ms), None)
        self._take_out(source)
        self._put_in(limiter)
        ahead = limiter
        if reserved is not None:
            self.rows_count -= reserved.ahead.rows_count
            ahead = reserved.ahead = limiter.copy()
            self._reserved[key] = reserved
            for place in reserved.places.values():
                self._ledger.change(place)
                place.algorithm, place.window_ms, place.limit = limiter.algorithm, limiter.window_ms, limit
                ahead.admit(place.expires_at_ms, limit, place.cost)
            self.rows_count += ahead.rows_count
        self._deadlines.move(limiter, max(ahead.whole_ms(), now_ms))

    # -- how they end ---------------------------------------------------------------------------------------

    def end(self, limiter: Limiter) -> None:
        """Forget a rate limit that has no places, and its deadline."""
        self._take_out(limiter)
        self._count_limiter(limiter, -1)

    def forget(self, limiter: Limiter) -> None:
        """Forget a rate limit as it is, with its places, which their clients use without being counted."""
        for place in list(self.places_of(limiter)):
            self._leave(place)
        self.end(limiter)

    def recomputed_sum(self) -> int:
        """Return the sum of the marks of all of this, but for deadlines (see `marks`)."""
        places = sum([marks.of_record(place) for place in self.places.values()])
        return places + sum([mark_of_limiter(limiter) for limiter in self.all()])

    # -- snapshots ------------------------------------------------------------------------------------------

    def dump(self) -> list[RateRow]:
        """Return what must be stored, in order of creation; equal states give equal rows.

        Encode the rows before the next change: most of them are the limiters themselves.
        """
        return [limiter.row() if isinstance(limiter, SlidingWindow) else limiter for limiter in self.all()]

    def load(self, rows: Iterable[RateRow]) -> None:
        """Add stored rate limits, in order of creation. The rows belong to the table from now on."""
        for row in rows:
            self._enter_limiter(row.limiter() if isinstance(row, SlidingRow) else row)

    def load_places(self, places: Iterable[Place]) -> None:
        """Add stored places, in order of creation. Raises KeyError for one of what is not there."""
        for place in places:
            self._enter(place)
