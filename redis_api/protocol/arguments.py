"""How arguments of commands are read: numbers, times, options."""

import re
import time
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple, TypeVar

from redis_api.protocol.errors import (
    NOT_AN_INTEGER,
    SYNTAX,
    CommandRefused,
    not_supported,
    shown,
    wrong_arity,
)

_INTEGER: Final = re.compile(rb"-?(?:0|[1-9][0-9]{0,18})")
_INTEGER_MAX: Final = (1 << 63) - 1
DATABASES_COUNT: Final = 16
"""Databases, as a Redis server has them unless it was told otherwise."""

T = TypeVar("T")


def fits_arity(arity: int, count: int) -> bool:
    """Whether a command may have so many words, its name included: -2 means two or more."""
    return count == arity if arity > 0 else count >= -arity


def subcommand(
    command: str, known: Mapping[bytes, tuple[int, T]], args: Sequence[bytes], why: str = ""
) -> tuple[T, Sequence[bytes]]:
    """Return what `known` has for a subcommand beside the number of its arguments, and these arguments.

    Raises CommandRefused; `why` is said of a subcommand that is not there.
    """
    word, rest = args[0].upper(), args[1:]
    if word not in known:
        raise not_supported(f"{command} {shown(word)}", why)
    count, found = known[word]
    if len(rest) != count:
        raise wrong_arity(f"{command}|{word.decode()}")
    return found, rest


def is_int64(number: float) -> bool:
    """Whether a number has a place in 64 bits."""
    return -_INTEGER_MAX - 1 <= number <= _INTEGER_MAX


def integer(text: bytes) -> int:
    """Read an integer of 64 bits. Raises CommandRefused."""
    if _INTEGER.fullmatch(text) is None or text == b"-0":
        raise CommandRefused(NOT_AN_INTEGER)
    number = int(text)
    if not is_int64(number):
        raise CommandRefused(NOT_AN_INTEGER)
    return number


def database_of(text: bytes) -> int:
    """Return the number of a database. Raises CommandRefused."""
    database = integer(text)
    if not 0 <= database < DATABASES_COUNT:
        raise CommandRefused("DB index is out of range")
    return database


def unix_ms() -> int:
    """Return the time of this machine, as milliseconds since 1970."""
    return time.time_ns() // 1_000_000


class TimeUnit(NamedTuple):
    """How a time to live is given."""

    unit_ms: int = 1
    is_moment: bool = False
    """Whether it is a moment since 1970, by the clock of this node."""

    def ttl_ms(self, text: bytes, command: str) -> int:
        """Return the milliseconds from now on. Raises CommandRefused."""
        given_ms, now_ms = integer(text) * self.unit_ms, unix_ms()
        if not is_int64(given_ms) or not is_int64(given_ms + (0 if self.is_moment else now_ms)):
            raise _invalid_time(command)
        return given_ms - now_ms if self.is_moment else given_ms

    def positive_ttl_ms(self, text: bytes, command: str) -> int:
        """Return the same, of a time that is positive as it is given. Raises CommandRefused."""
        ttl_ms = self.ttl_ms(text, command)
        if integer(text) <= 0:
            raise _invalid_time(command)
        return ttl_ms


def _invalid_time(command: str) -> CommandRefused:
    return CommandRefused(f"invalid expire time in '{command}' command")


TIMES: Final = {
    b"EX": TimeUnit(1000), b"PX": TimeUnit(),
    b"EXAT": TimeUnit(1000, is_moment=True), b"PXAT": TimeUnit(is_moment=True),
}  # fmt: skip
"""The options by which SET takes a time."""


class SetOptions(NamedTuple):
    """What SET says behind key and value."""

    ttl_ms: int | None = None
    gets: bool = False
    keeps_time: bool = False
    only_new: bool = False
    only_old: bool = False
    if_equal: bytes | None = None
    if_other: bytes | None = None

    @property
    def compares(self) -> bool:
        """Whether it depends on the value that is there."""
        return self.if_equal is not None or self.if_other is not None


_MOMENTS: Final = frozenset([word for word, unit in TIMES.items() if unit.is_moment])
_USUAL_COUNT: Final = 3
"""Options of clients that take a lock, which are the same all day: NX PX ms."""
_USUAL_BYTES_MAX: Final = 24
"""Bytes of the last two of them; the first one is a word that is known."""
_SET_WORDS: Final = {b"NX": "only_new", b"XX": "only_old", b"KEEPTTL": "keeps_time", b"GET": "gets"}
_SET_COMPARES: Final = {b"IFEQ": "if_equal", b"IFNE": "if_other"}


def set_options(args: list[bytes]) -> SetOptions:
    """Read the options of SET. Raises CommandRefused."""
    if len(args) == _USUAL_COUNT and len(args[1]) + len(args[2]) <= _USUAL_BYTES_MAX:
        usual = _usual_options(*args)
        if usual is not None:
            return usual
    return _read_options(args)


@lru_cache(256)
def _usual_options(*args: bytes) -> SetOptions | None:
    """Return what few options say, None if that depends on the time of day. Raises CommandRefused."""
    return _read_options(args) if _MOMENTS.isdisjoint(map(bytes.upper, args)) else None


def _read_options(args: Sequence[bytes]) -> SetOptions:
    given: dict[str, Any] = {}
    unit = text = None
    words = iter(args)
    for word in map(bytes.upper, words):
        if word in _SET_WORDS:
            given[_SET_WORDS[word]] = True
        elif word in _SET_COMPARES and (value := next(words, None)) is not None:
            given[_SET_COMPARES[word]] = value
        elif word in TIMES and text is None and (text := next(words, None)) is not None:
            unit = TIMES[word]
        else:
            raise CommandRefused(SYNTAX)
    conditions = given.keys() & {"only_new", "only_old", "if_equal", "if_other"}
    if len(conditions) > 1 or (text is not None and "keeps_time" in given):
        raise CommandRefused(SYNTAX)
    if unit is not None and text is not None:
        given["ttl_ms"] = unit.positive_ttl_ms(text, "set")
    return SetOptions(**given)


def within(first: int, last: int, count: int) -> slice:
    """Return the places from one to another of `count`; a negative one counts from the end."""
    first = max(first + count, 0) if first < 0 else first
    return slice(first, max(last + count if last < 0 else last, first - 1) + 1)


class Condition(NamedTuple):
    """When EXPIRE and its like change anything."""

    only_endless: bool = False
    only_limited: bool = False
    only_longer: bool = False
    only_shorter: bool = False

    def allows(self, ttl_ms: int, left_ms: int | None) -> bool:
        """Whether a time is to be set where `left_ms` are left, None for ever."""
        if (self.only_endless and left_ms is not None) or (self.only_limited and left_ms is None):
            return False
        if self.only_longer and (left_ms is None or ttl_ms <= left_ms):
            return False
        return not (self.only_shorter and left_ms is not None and ttl_ms >= left_ms)


_CONDITIONS: Final = {
    b"NX": "only_endless",
    b"XX": "only_limited",
    b"GT": "only_longer",
    b"LT": "only_shorter",
}


def condition(args: list[bytes]) -> Condition:
    """Read what stands behind the time of EXPIRE and its like. Raises CommandRefused."""
    given: dict[str, bool] = {}
    for word in args:
        name = _CONDITIONS.get(word.upper())
        if name is None:
            raise CommandRefused(f"Unsupported option {shown(word)}")
        given[name] = True
    found = Condition(**given)
    if found.only_endless and len(given) > 1:
        raise CommandRefused("NX and XX, GT or LT options at the same time are not compatible")
    if found.only_longer and found.only_shorter:
        raise CommandRefused("GT and LT options at the same time are not compatible")
    return found


def keys_and_args(args: Sequence[bytes]) -> tuple[Sequence[bytes], Sequence[bytes]]:
    """Take numkeys, keys and arguments of a script apart. Raises CommandRefused."""
    count = integer(args[0])
    if count < 0:
        raise CommandRefused("Number of keys can't be negative")
    if count > len(args) - 1:
        raise CommandRefused("Number of keys can't be greater than number of args")
    return args[1 : 1 + count], args[1 + count :]
