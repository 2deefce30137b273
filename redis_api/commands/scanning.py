"""SCAN, KEYS and DBSIZE: page by page in the order of their names, without what may not be read.

A cursor of SCAN is a number for a place that this node keeps. So a key that is there from the first call to
the last is told, whatever comes and goes meanwhile.
"""

import re
from typing import Final, NamedTuple

from holdfast.token_lines import Right
from lockapi import sight
from lockstate.machine import LockMachine
from lockstate.words.limits import LIST_LIMIT_MAX
from redis_api.keys import cell_values
from redis_api.protocol import globs, spelled
from redis_api.protocol.arguments import integer
from redis_api.protocol.errors import SYNTAX, CommandRefused
from redis_api.protocol.resp import Reply
from redis_api.shared.client import Client
from redis_api.shared.cursors import Scanned

KEYS_COUNT_MAX: Final = 10_000
"""Keys that KEYS and DBSIZE look at."""
_COUNT: Final = 10
"""Keys that SCAN looks at unless it is told how many."""
_LITERAL: Final = re.compile(rb"[0-9A-Za-z][0-9A-Za-z:_-]*")
"""How a pattern begins that lets all others but keys with such a name be skipped."""


class Matching(NamedTuple):
    """Which keys are asked for."""

    pattern: re.Pattern[bytes] | None = None
    type: bytes | None = None
    literal: str = ""
    """How the names of all of them begin, behind the prefix of their database."""

    def takes(self, key: bytes, type_: bytes) -> bool:
        """Whether a key is among them."""
        return (self.type is None or self.type == type_) and (
            self.pattern is None or self.pattern.fullmatch(key) is not None
        )


def matching(pattern: bytes, type_: bytes | None = None) -> Matching:
    """Return what matches a pattern of Redis. Raises CommandRefused if it is too long."""
    globs.check_length(pattern)
    literal = _LITERAL.match(pattern)
    begin = literal[0].decode() if literal is not None else ""
    if literal is not None and pattern[literal.end() : literal.end() + 1] not in (b"*", b"?", b"["):
        begin = ""
    return Matching(None if pattern == b"*" else globs.matcher(pattern), type_, begin)


# -- pages ---------------------------------------------------------------------------------------------------


async def _page(
    client: Client, place: Scanned, asked: Matching, count: int
) -> tuple[list[bytes], Scanned | None, int]:
    """Look at so many keys from a place on; return those that match, the next place, and how many there were.

    Raises ProblemError, ClusterError.
    """
    prefix = spelled.prefix_of(place.database) + asked.literal
    rights = client.gateway.rights
    sight.check_reach(rights, prefix)
    found: list[bytes] = []

    def note(name: str, type_: bytes) -> None:
        key = spelled.key_of(place.database, name)
        if key is not None and asked.takes(key, type_) and rights.covers(Right.READ, name):
            found.append(key)

    def look(machine: LockMachine) -> tuple[Scanned | None, int]:
        seen_count, after = 0, place.after
        if not place.in_locks:
            cells, more = machine.cells(prefix.encode(), after.encode(), count)
            for cell in cells:
                note(
                    cell.key.decode(errors="replace"),
                    b"list" if isinstance(cell_values.decode(cell.value), tuple) else b"string",
                )
            if more is not None:
                return place._replace(after=more.decode(errors="replace")), len(cells)
            seen_count, after = len(cells), ""
            if seen_count >= count:
                return Scanned(place.database, "", in_locks=True), seen_count
        locks, further = machine.locks(prefix, after, count - seen_count)
        for lock in locks:
            is_cell = machine.cell(lock.name.encode()) is not None
            if not is_cell and lock.name in {hold.name for hold in lock.holders}:
                note(lock.name, b"string")
        next_place = None if further is None else Scanned(place.database, further, in_locks=True)
        return next_place, seen_count + len(locks)

    next_place, seen_count = await client.gateway.read(look, client.timeout_s)
    return found, next_place, seen_count


async def scan(client: Client, args: list[bytes]) -> Reply:
    """SCAN cursor [MATCH pattern] [COUNT count] [TYPE type]."""
    number = _cursor(args[0])
    pattern, count, type_ = b"*", _COUNT, None
    words = iter(args[1:])
    for word in map(bytes.upper, words):
        given = next(words, None)
        if given is None or word not in (b"MATCH", b"COUNT", b"TYPE"):
            raise CommandRefused(SYNTAX)
        if word == b"MATCH":
            pattern = given
        elif word == b"TYPE":
            type_ = given.lower()
        else:
            count = integer(given)
            if count < 1:
                raise CommandRefused(SYNTAX)
    place = client.face.cursors.place(number, client.database)
    found, next_place, _ = await _page(client, place, matching(pattern, type_), min(count, LIST_LIMIT_MAX))
    return [str(0 if next_place is None else client.face.cursors.keep(next_place)), found]


def _cursor(text: bytes) -> int:
    """Read a cursor. Raises CommandRefused."""
    if not text.isdigit() or int(text) >= 1 << 64:
        raise CommandRefused("invalid cursor")
    return int(text)


async def keys(client: Client, args: list[bytes]) -> Reply:
    """KEYS pattern: page by page, so not all of one moment."""
    return [*await every_key(client, "KEYS", client.database, args[0])]


async def dbsize(client: Client, args: list[bytes]) -> Reply:
    """DBSIZE: how many keys KEYS would list."""
    del args
    return len(await every_key(client, "DBSIZE", client.database))


async def every_key(client: Client, command: str, database: int, pattern: bytes = b"*") -> list[bytes]:
    """Return all keys of a database that match; each page after the first one counts as a request more.

    Raises CommandRefused, ProblemError, ClusterError.
    """
    asked = matching(pattern)
    found: list[bytes] = []
    place: Scanned | None = Scanned(database)
    count = 0
    while place is not None:
        page, place, seen_count = await _page(client, place, asked, LIST_LIMIT_MAX)
        found += page
        count += seen_count
        if place is not None:
            client.count_more(1)
        if count > KEYS_COUNT_MAX:
            raise CommandRefused(
                f"{command} looks at {KEYS_COUNT_MAX} keys at most, and there are more: use SCAN"
            )
    return found
