"""Names of locks as callers give them: a text, or a tuple of parts that is safe to make from any values."""

from typing import TypeAlias

Name: TypeAlias = str | tuple[object, ...]
"""The name of a lock: `"order/42"`, or its parts, `("order", 42)`."""


def to_name(name: Name) -> str:
    """Return a name as text. Raises ValueError for a tuple with an empty part, or with none.

    Different tuples have different names: a slash within a part is not taken for one between two.
    """
    if isinstance(name, str):
        return name
    if not name:
        raise ValueError("name: a tuple needs at least one part")
    return "/".join(_part(str(part)) for part in name)


def _part(text: str) -> str:
    """Return one part, with what would mean something else between slashes replaced."""
    if not text:
        raise ValueError("name: no part of a tuple may be empty")
    if text in (".", ".."):  # not allowed in names
        return text.replace(".", "%2E")
    return text.replace("%", "%25").replace("/", "%2F")
