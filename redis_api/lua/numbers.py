"""Numbers of Lua 5.1, which are all floats, as integers: for replies, for the libraries bit and cmsgpack."""

import struct
from collections.abc import Callable, Sequence
from functools import reduce
from operator import and_, or_, xor
from typing import Any, Final

_INTEGER_MAX: Final = (1 << 63) - 1
_WORD: Final = (1 << 32) - 1


def integer(number: float) -> int:
    """Return a number without its fraction, as C does on most machines: what has no place is the lowest."""
    if not -_INTEGER_MAX - 1 <= number <= _INTEGER_MAX:
        return -_INTEGER_MAX - 1
    return int(number)


def calculate(name: bytes, words: Sequence[Any]) -> bytes | int | float:
    """Do what a function of a library does with numbers. Raises ValueError if there are too few."""
    if name == b"pack":
        return _packed(*words)
    if name == b"unpack":
        shape, number = words
        found: int | float = struct.unpack(shape.decode(), number)[0]
        return found
    given = [integer(word) for word in words]
    if not given:
        raise ValueError(name)
    if name == b"tohex":
        return _hex(*given[:2])
    if name in _FOLDED:
        return _signed(reduce(_FOLDED[name], given))
    by = (given[1] if len(given) > 1 else 0) & 31
    return _signed(_SHIFTED[name](given[0] & _WORD, by))


def _packed(shape: bytes, number: float) -> bytes:
    """Return a number as cmsgpack keeps it: one that is "real" as short as it can be."""
    if shape != b"real":
        return struct.pack(shape.decode(), int(number))
    try:
        short = struct.pack(">f", number)
    except OverflowError:
        short = b""
    if short and struct.unpack(">f", short)[0] == number:
        return b"\xca" + short
    return b"\xcb" + struct.pack(">d", number)


def _signed(value: int) -> int:
    """Return the lowest 32 bits as a number with a sign."""
    value &= _WORD
    return value - (1 << 32) if value >> 31 else value


def _hex(value: int, digits: int = 8) -> bytes:
    count = min(abs(digits), 8)
    shown = f"{value & _WORD:08x}"[8 - count :]
    return (shown.upper() if digits < 0 else shown).encode()


_FOLDED: Final[dict[bytes, Callable[[int, int], int]]] = {b"band": and_, b"bor": or_, b"bxor": xor}
_SHIFTED: Final[dict[bytes, Callable[[int, int], int]]] = {
    b"tobit": lambda word, _: word,
    b"bnot": lambda word, _: ~word,
    b"bswap": lambda word, _: int.from_bytes(word.to_bytes(4, "big"), "little"),
    b"lshift": lambda word, by: word << by,
    b"rshift": lambda word, by: word >> by,
    b"arshift": lambda word, by: _signed(word) >> by,
    b"rol": lambda word, by: word << by | word >> (32 - by),
    b"ror": lambda word, by: word >> by | word << (32 - by),
}
"""The functions of LuaBitOp: those of any count of numbers, and those of one and a count of bits."""
