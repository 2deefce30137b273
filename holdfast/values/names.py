"""Names of locks as callers give them: a text, or a tuple of parts that is safe to make from ids."""

from typing import TypeAlias
from uuid import UUID

Name: TypeAlias = str | tuple[str | int | UUID, ...]
"""The name of a lock: `"order/42"`, or its parts, `("order", 42)`."""


def to_name(name: Name) -> str:
    """Return a name as text.

    Different tuples have different names: a slash within a part is not taken for one between two.
    Raises TypeError for anything whose text might not be the same in every process (bytes, sets, floats),
    and ValueError for an empty text, a tuple without parts, or with an empty one.
    """
    if isinstance(name, str):
        if not name:
            raise ValueError("name: is empty")
        return str(name) if type(name) is str else str.__str__(name)
    if not isinstance(name, tuple):
        raise TypeError(f"name: {name!r} is {_a(name)}; give {_instead_of(name)}")
    if not name:
        raise ValueError("name: a tuple needs at least one part")
    return "/".join(_part(part) for part in name)


def _instead_of(name: object) -> str:
    """Return what to give in the place of something that is not a name."""
    several = "; several locks are locks(*names)" if isinstance(name, list | set) else ""
    return f"a str, or a tuple of str, int and UUID{several}"


def _part(part: object) -> str:
    """Return one part, with what would mean something else between slashes replaced."""
    if not isinstance(part, str | int | UUID) or isinstance(part, bool):
        raise TypeError(f"name: the part {part!r} is {_a(part)}; give a str, an int or a UUID")
    # An enumeration of texts or numbers is named by its value, as it is everywhere else.
    text = str.__str__(part) if isinstance(part, str) else str(int(part) if isinstance(part, int) else part)
    if not text:
        raise ValueError("name: no part of a tuple may be empty")
    if text in (".", ".."):  # not allowed in names
        return text.replace(".", "%2E")
    return text.replace("%", "%25").replace("/", "%2F")


def _a(value: object) -> str:
    kind = type(value).__name__
    return f"{'an' if kind[0] in 'aeiou' else 'a'} {kind}"
