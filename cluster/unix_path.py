"""The path of a Unix socket, as settings and URLs give it: `unix:/run/holdfast.sock`."""

import os
from pathlib import Path
from typing import Final

SCHEME: Final = "unix:"
_PATH_BYTES_MAX: Final = 107
"""Bytes that the kernel has for the path (unix(7)), without the zero at its end."""


def is_unix(text: str) -> bool:
    """Whether this is meant to be a Unix socket, whatever its path."""
    return text.startswith(SCHEME)


def parse(text: str) -> Path:
    """Return the path. Raise ValueError, whose message says what is allowed.

    A client takes it in a list with commas, and a log line ends it at the first space.
    """
    path = text.removeprefix(SCHEME)
    is_one_word = path.isprintable() and not any(
        character.isspace() or character == "," for character in path
    )
    if not path.startswith("/") or path.endswith("/") or not is_one_word:
        raise ValueError("must be unix:/PATH, a path from / on without spaces and commas")
    if len(os.fsencode(path)) > _PATH_BYTES_MAX:
        raise ValueError(f"the path of a Unix socket has {_PATH_BYTES_MAX} bytes at most")
    return Path(path)


def url_of(path: Path) -> str:
    """Return the URL under which clients on the same machine reach a node."""
    return f"{SCHEME}{path}"
