"""The places of SCAN on one node: a client of Redis knows each by a number."""

import secrets
from collections import OrderedDict
from typing import Final, NamedTuple

from redis_api.protocol.errors import CommandRefused

CURSORS_COUNT_MAX: Final = 1_000
"""Places of SCAN that a node keeps; the one that was used longest ago is forgotten."""


class Scanned(NamedTuple):
    """A place in the keys of a database: behind a cell, or behind a lock, which come after all cells."""

    database: int
    after: str = ""
    in_locks: bool = False


class Cursors:
    """The places of SCAN on one node."""

    def __init__(self) -> None:
        self._places: OrderedDict[int, Scanned] = OrderedDict()

    def keep(self, place: Scanned) -> int:
        """Return a number for a place."""
        number = secrets.randbits(62) + 1
        self._places[number] = place
        if len(self._places) > CURSORS_COUNT_MAX:
            self._places.popitem(last=False)
        return number

    def place(self, number: int, database: int) -> Scanned:
        """Return the place of a number, 0 for the beginning. Raises CommandRefused."""
        if not number:
            return Scanned(database)
        place = self._places.get(number)
        if place is None or place.database != database:
            raise CommandRefused("invalid cursor: this node knows it no more, or another one gave it")
        self._places.move_to_end(number)
        return place
