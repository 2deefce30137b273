"""How keys and values of Redis, which are bytes, are spelled as names and values of holds, which are text.

What can be read stays as it is; the rest becomes %XX. Both ways are exact: no two keys share a name, and each
name that a key has gives the key back. Nothing is cut or hashed; what is too long as a name is refused as
such.
"""

import re
import unicodedata
from typing import Final

SPACE: Final = "redis"
"""The prefix of the names of all databases."""
EMPTY: Final = "%"
"""What stands for nothing: an empty value, an empty key, or an empty part of a key between two slashes."""

_PLAIN: Final = re.compile(rb"[!-$&-.0-~]+(?:/[!-$&-.0-~]+)*")
"""A key that is a name as it is, unless one of its parts is dots alone."""
_NAME: Final = re.compile(rf"{SPACE}/([0-9]{{1,3}})/")
_DOTS: Final = frozenset({".", ".."})
_CODE: Final = re.compile(rb"%([0-9A-F]{2})")


def name_of(database: int, key: bytes) -> str:
    """Return the name of the lock that a key of a database is."""
    return f"{SPACE}/{database}/{_spelled_key(key)}"


def prefix_of(database: int) -> str:
    """Return what the names of all keys of a database begin with."""
    return f"{SPACE}/{database}/"


def key_of(database: int, name: str) -> bytes | None:
    """Return the key of a name; None if no key of the database has that name."""
    spelled = name.removeprefix(prefix_of(database))
    key = b"/".join([b"" if part == EMPTY else _read(part) for part in spelled.split("/")])
    return key if name_of(database, key) == name else None


def channel_of(name: str) -> tuple[int, bytes] | None:
    """Return database and key of a name, as those of a channel; None if no client of Redis could give it."""
    match = _NAME.match(name)
    if match is None:
        return None
    key = key_of(int(match[1]), name)
    return None if key is None else (int(match[1]), key)


def value_text(value: bytes) -> str:
    """Return the text that a hold with this value carries."""
    if not value:
        return EMPTY
    text = _text(value)
    if text is None or not text.isprintable():
        return _coded(value)
    return text.replace("%", "%25")


def value_of(text: str) -> bytes:
    """Return the value that a text stands for; one that no client of Redis gave is told as it is."""
    if text == EMPTY:
        return b""
    value = _read(text)
    return value if value_text(value) == text else text.encode()


def _spelled_key(key: bytes) -> str:
    if _PLAIN.fullmatch(key) is not None:
        plain = key.decode("ascii")
        if _DOTS.isdisjoint(plain.split("/")):
            return plain
    return "/".join([_part(part) for part in key.split(b"/")])


def _part(part: bytes) -> str:
    """Return what stands between two slashes of a name."""
    if not part:
        return EMPTY
    text = _text(part)
    if text is None or not text.isprintable() or unicodedata.normalize("NFC", text) != text:
        return _coded(part)
    if text in _DOTS:
        return text.replace(".", "%2E")
    text = text.replace("%", "%25")
    inner = text.strip(" ")
    begin = len(text) - len(text.lstrip(" "))
    return "%20" * begin + inner + "%20" * (len(text) - begin - len(inner))


def _text(part: bytes) -> str | None:
    try:
        return part.decode()
    except UnicodeDecodeError:
        return None


def _coded(part: bytes) -> str:
    """Return bytes of which some are not text: what is plain ASCII stays, all others become %XX."""
    return "".join([chr(byte) if 0x20 < byte < 0x7F and byte != 0x25 else f"%{byte:02X}" for byte in part])  # noqa: PLR2004


def _read(text: str) -> bytes:
    return _CODE.sub(lambda code: bytes([int(code[1], 16)]), text.encode())
