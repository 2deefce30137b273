"""Cursors: the places where a client goes on, as text.

Whatever a client gets from a node to give back later is written and read here: `next` of a page, and the ids
of events, which come back as `since` or as the last event id. To clients, cursors are opaque. Today a place
in the history is `REVISION` or `REVISION.N`, and a place in a listing is a name; since nobody else takes them
apart, they can say more one day, such as a group, without a new format.
"""

import base64
import binascii
import re
from typing import Final

from cluster.observing.event_log import Position
from lockstate.words import limits

BYTES_MAX: Final = limits.NAME_BYTES_MAX + 64
"""Bytes of a cursor of a listing, at most: a name, and what kind of thing it is the name of."""

_POSITION: Final = re.compile(r"([0-9]{1,18})(?:\.([0-9]{1,9}))?", re.ASCII)


def of_event(revision: int, number: int = 0) -> str:
    """Return the cursor of the place behind event `number` of a revision, or behind all of it."""
    return f"{revision}.{number}" if number else f"{revision}"


def of_position(position: Position) -> str:
    """Return the cursor of a place in the history: the id of the event before it."""
    revision, number = position
    return of_event(revision, number) if number else of_event(revision - 1)


def position_of(cursor: str) -> Position | None:
    """Return the place in the history that `cursor` stands for, None if it stands for none."""
    found = _POSITION.fullmatch(cursor)
    if found is None:
        return None
    revision, number = found.groups()
    return Position(int(revision), int(number)) if number else Position.behind(int(revision))


def of_name(name: str) -> str:
    """Return the cursor of the place behind `name` in a listing."""
    return name


def name_of(cursor: str) -> str:
    """Return the name behind which a listing goes on. It is not checked: any text is a place in the order."""
    return cursor


def of_key(key: bytes) -> str:
    """Return the cursor of the place behind `key` in a listing of cells."""
    return base64.urlsafe_b64encode(key).decode()


def key_of(cursor: str) -> bytes | None:
    """Return the key behind which a listing of cells goes on, None if `cursor` stands for none."""
    try:
        return base64.b64decode(cursor, altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        return None
