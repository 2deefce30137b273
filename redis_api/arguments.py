"""How arguments of commands are read: numbers, times, options."""

import re
import time
from typing import Final, NamedTuple

from redis_api.errors import NOT_AN_INTEGER, SYNTAX, CommandRefused, not_supported

_INTEGER: Final = re.compile(rb"-?(?:0|[1-9][0-9]{0,18})")
INTEGER_MAX: Final = (1 << 63) - 1


def integer(text: bytes) -> int:
    """Read an integer of 64 bits. Raises CommandRefused."""
    if _INTEGER.fullmatch(text) is None or text == b"-0":
        raise CommandRefused(NOT_AN_INTEGER)
    number = int(text)
    if not -INTEGER_MAX - 1 <= number <= INTEGER_MAX:
        raise CommandRefused(NOT_AN_INTEGER)
    return number


def unix_ms() -> int:
    """Return the time of this machine, as milliseconds since 1970."""
    return time.time_ns() // 1_000_000


class TimeUnit(NamedTuple):
    """How a time to live is given."""

    unit_ms: int = 1
    is_moment: bool = False
    """Whether it is a moment since 1970, by the clock of this node."""

    def ttl_ms(self, text: bytes) -> int:
        """Return the milliseconds from now on. Raises CommandRefused."""
        given_ms = integer(text) * self.unit_ms
        if not -INTEGER_MAX - 1 <= given_ms <= INTEGER_MAX:
            raise CommandRefused("invalid expire time")
        return given_ms - unix_ms() if self.is_moment else given_ms


TIMES: Final = {
    b"EX": TimeUnit(1000), b"PX": TimeUnit(),
    b"EXAT": TimeUnit(1000, is_moment=True), b"PXAT": TimeUnit(is_moment=True),
}  # fmt: skip
"""The options by which SET takes a time."""


class SetOptions(NamedTuple):
    """What SET says behind key and value."""

    ttl_ms: int | None = None
    gets: bool = False


def set_options(args: list[bytes]) -> SetOptions:
    """Read the options of SET, which needs NX here. Raises CommandRefused."""
    ttl_ms: int | None = None
    gets = is_new = False
    words = iter(args)
    for word in map(bytes.upper, words):
        if word in TIMES and ttl_ms is None:
            given = next(words, None)
            if given is None:
                raise CommandRefused(SYNTAX)
            ttl_ms = TIMES[word].ttl_ms(given)
            if integer(given) <= 0:
                raise CommandRefused("invalid expire time in 'set' command")
        elif word == b"NX":
            is_new = True
        elif word == b"GET":
            gets = True
        elif word in (b"XX", b"KEEPTTL", b"IFEQ", b"IFNE", b"IFDEQ", b"IFDNE"):
            raise not_supported(f"SET with {word.decode()}", "a hold is taken by SET key value NX PX ms")
        else:
            raise CommandRefused(SYNTAX)
    if not is_new:
        raise not_supported("SET without NX", "a key here is a lock: SET key value NX PX ms takes it")
    return SetOptions(ttl_ms, gets)


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
            raise CommandRefused(f"Unsupported option {word[:100].decode(errors='replace')}")
        given[name] = True
    found = Condition(**given)
    if found.only_endless and len(given) > 1:
        raise CommandRefused("NX and XX, GT or LT options at the same time are not compatible")
    if found.only_longer and found.only_shorter:
        raise CommandRefused("GT and LT options at the same time are not compatible")
    return found


def keys_and_args(args: list[bytes]) -> tuple[list[bytes], list[bytes]]:
    """Take numkeys, keys and arguments of a script apart. Raises CommandRefused."""
    count = integer(args[0])
    if count < 0:
        raise CommandRefused("Number of keys can't be negative")
    if count > len(args) - 1:
        raise CommandRefused("Number of keys can't be greater than number of args")
    return args[1 : 1 + count], args[1 + count :]
