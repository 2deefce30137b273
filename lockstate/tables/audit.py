"""The audit: what happened last, each record with its number and the hash of the one before it.

The hash of a record covers all that it shows, and so the hash of its predecessor, and so all records before.
Who has one of them can tell whether all before it are there, and as they were.

A hash takes as long as half an acquire, so an entry links only some records (`LINKS_MAX`); those behind them
are linked by later entries, and until then have a number alone. If more happens, and a record is forgotten
before it was linked, the chain begins anew behind it: its successor cannot tell of it any more. Which records
that are follows from the log alone, so the hashes are the same on every node, and after every restart.

When the hash of a linked record is made follows from nothing: it is made when somebody reads it, when the
host has time (`catch_up`), or at the latest when `BEHIND_MAX` of them wait. Nobody can tell the difference.

What operators do to others is kept longer, with its links (`KeptActs`): there is little of it, and whoever
can make many grants must not be able to push it out.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from hashlib import sha256
from itertools import chain, count, islice
from typing import Final, NamedTuple, TypeAlias

import msgspec

from lockstate.tables.audit_record import AuditEvent, shown
from lockstate.tables.happened import NewestEvents
from lockstate.words import limits
from lockstate.words.events import OF_OPERATORS, Event, EventKind

LINKS_MAX: Final = 8
"""Records that one entry links: of a few commands it links all, of hundreds of them a small part."""

BEHIND_MAX: Final = 32
"""Hashes of linked records that may wait to be made: a few hundred microseconds of work."""

_canonical = msgspec.json.Encoder(order="sorted")


class AuditLink(NamedTuple):
    """What ties a record to the one before; while it is not linked yet, its number alone."""

    number: int
    chain: int = 0
    """The number of the record with which its chain begins: 1, unless too much happened at some time."""
    previous: str = ""
    """The hash of the record before it, empty if it is the first of its chain."""
    hash: str = ""


Linked: TypeAlias = tuple[Event, AuditLink]
"""An event of the audit, with its link."""


class Base(msgspec.Struct, frozen=True, array_like=True):
    """What a snapshot has of the chain beside the events: the hashes can be made of it and them."""

    forgotten: int
    """How many records there were before the oldest one that is kept."""
    chain: int
    previous: str
    linked_count: int


class KeptAct(NamedTuple):
    """A record of what an operator did to others, which the audit has pushed out otherwise."""

    event: Event
    link: AuditLink


class KeptActs:
    """The newest of these, in groups by who did what.

    If there are too many, the oldest of the largest group goes (of several that are as large, the oldest of
    all): whoever does one thing very often pushes out nothing but that, neither what others did nor what it
    did otherwise.
    """

    def __init__(self) -> None:
        self._groups: dict[tuple[str, EventKind], deque[KeptAct]] = {}
        self._count = 0

    def keep(self, event: Event, link: AuditLink) -> None:
        """Keep a record behind all others."""
        self._groups.setdefault((event.by, event.kind), deque()).append(KeptAct(event, link))
        self._count += 1
        if self._count > limits.ACTS_COUNT_MAX:
            groups = self._groups
            largest = max(groups, key=lambda group: (len(groups[group]), -groups[group][0].link.number))
            groups[largest].popleft()
            self._count -= 1
            if not groups[largest]:
                del groups[largest]

    def all(self) -> list[KeptAct]:
        """Return all of them, the oldest first."""
        return sorted(chain.from_iterable(self._groups.values()), key=lambda act: act.link.number)

    def load(self, acts: Sequence[KeptAct]) -> None:
        """Add a part of what `all` returned."""
        for act in acts:
            self.keep(*act)


class Audit:
    """The newest events, the oldest first, and the hashes of those at the front that are linked."""

    def __init__(self) -> None:
        self.events = NewestEvents()
        self.linked_count = 0
        """How many of them are linked."""
        self._hashes: deque[str] = deque()
        """Those of the linked ones, but for the last few, which `catch_up` makes."""
        self._forgotten = 0
        self._chain = 1
        self._previous = ""
        """The hash of the newest record that was forgotten."""
        self._to_link = 0
        """While a snapshot is loaded: how many of its records had been linked."""
        self.acts = KeptActs()
        """What is kept of those before the oldest of the events."""

    def extend(self, events: Sequence[Event]) -> None:
        """Add what an entry made happen."""
        self.events.extend(events)
        over = self.events.count - limits.AUDIT_COUNT_MAX
        if over > 0:
            if len(self._hashes) < over <= self.linked_count:
                self.catch_up()  # the last one that goes is told by the first one that stays
            self._keep_acts(over)
            self.events.drop(over)
            self._forget(over)

    def link(self) -> None:
        """Link what an entry links: some of the records that are not linked yet. Called after each entry."""
        if self.linked_count < self.events.count:
            self.linked_count = min(self.linked_count + LINKS_MAX, self.events.count)
            if self.linked_count - len(self._hashes) > BEHIND_MAX:
                self.catch_up()

    def records(self, is_wanted: Callable[[Event], bool], behind: int | None = None) -> Iterator[Linked]:
        """Yield the records of some events, the newest first.

        Behind a number it is the oldest first.
        """
        if behind is None:
            places = range(len(self.events) - 1, -1, -1)
            found: Iterable[tuple[int, Event]] = zip(places, reversed(self.events), strict=True)
            yield from ((event, self._link(place)) for place, event in found if is_wanted(event))
            yield from (act for act in reversed(self.acts.all()) if is_wanted(act.event))
            return
        if behind < self._forgotten:
            acts = [act for act in self.acts.all() if act.link.number > behind]
            yield from (act for act in acts if is_wanted(act.event))
        first = min(max(behind - self._forgotten, 0), len(self.events))
        found = zip(count(first), islice(self.events, first, None), strict=False)
        yield from ((event, self._link(place)) for place, event in found if is_wanted(event))

    def base(self) -> list[Base]:
        """Return what a snapshot has to have."""
        return [Base(self._forgotten, self._chain, self._previous, self.linked_count)]

    def load_base(self, rows: Sequence[Base]) -> None:
        """Begin as a snapshot does; its events follow."""
        for row in rows:
            self._forgotten, self._chain = row.forgotten, row.chain
            self._previous, self._to_link = row.previous, row.linked_count

    def load(self, events: Sequence[Event]) -> None:
        """Add events of a snapshot, linked as they were."""
        self.events.extend(events)
        self.linked_count = max(min(self._to_link, len(self.events)), self.linked_count)
        self.catch_up()

    def _keep_acts(self, gone: int) -> None:
        """Keep what operators did of the oldest events, which are about to go."""
        for place, event in self.events.oldest_others(gone):
            if event.kind in OF_OPERATORS and event.concerns_others:
                self.acts.keep(event, self._link(place))

    def _forget(self, gone: int) -> None:
        """Follow the events, of which the oldest have gone."""
        self._forgotten += gone
        if gone > self.linked_count:
            self._hashes.clear()
            self.linked_count = 0
            self._chain, self._previous = self._forgotten + 1, ""
            return
        for _ in range(gone):
            self._previous = self._hashes.popleft()
        self.linked_count -= gone

    def catch_up(self) -> None:
        """Make the hashes that wait."""
        first = len(self._hashes)
        previous = self._hashes[-1] if first else self._previous
        numbers = count(self._forgotten + first + 1)
        for number, event in zip(numbers, self.events.between(first, self.linked_count), strict=False):
            previous = _hash(event, number, self._chain, previous)
            self._hashes.append(previous)

    def _link(self, place: int) -> AuditLink:
        """Return the link of a record."""
        number = self._forgotten + place + 1
        if place >= self.linked_count:
            return AuditLink(number)
        if place >= len(self._hashes):
            self.catch_up()
        previous = self._hashes[place - 1] if place else self._previous
        return AuditLink(number, self._chain, previous, self._hashes[place])


def _hash(event: Event, number: int, chain: int, previous: str) -> str:
    """Return the SHA-256 of a record as it is shown: compact JSON, its fields in alphabetical order."""
    record = shown(event)
    record.number, record.chain, record.previous = number, chain, previous
    return sha256(_canonical.encode(record)).hexdigest()


def row(event: Event, link: AuditLink) -> AuditEvent:
    """Return a record as it is shown."""
    record = shown(event)
    record.number = link.number
    if link.chain:
        record.chain, record.previous = link.chain, link.previous
        record.hash = link.hash or msgspec.UNSET
    return record
