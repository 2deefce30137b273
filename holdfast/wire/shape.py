"""What the answers of the HTTP API are made of.

An answer is one struct for all: nodes make it, the published description is made of it, and the client reads
it. Fields that are not always there are `Unset` in structs that users never see. In values of theirs such a
field is marked as `MayLack`, and has a default for the client to read in its place. What the client does not
read has ABSENT as its default, though nodes always say it.
"""

from typing import Annotated, Any, Final, TypeVar

import msgspec

T = TypeVar("T")

Unset = msgspec.UnsetType
UNSET: Final = msgspec.UNSET

LEFT_OUT: Final = "left out where there is nothing to say"
MayLack = Annotated[T, LEFT_OUT]
"""A field that nodes leave out where there is nothing to say. Its default is what users see then."""
ABSENT: Final[Any] = UNSET
"""What a node gives a field to leave it out, whatever its type is."""


class ReadAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Base of the answers to reads.

    `hidden` counts what is left out because the caller may not read it. A node's own, older view (`is_stale`)
    has its `revision`, and the time since the node heard from a leader (`lag_ms`).
    """

    hidden: MayLack[int] = 0
    revision: MayLack[int] | None = None
    lag_ms: MayLack[int | None] = None


FRESH: Final[dict[str, Any]] = dict.fromkeys(ReadAnswer.__struct_fields__, ABSENT)
"""What a node says in these fields while nothing is left out and the answer is not stale."""


class WriteAnswer(msgspec.Struct, kw_only=True):
    """Base of the answers to what may be repeated: `repeated` says that it was answered so before."""

    repeated: bool | Unset = UNSET
