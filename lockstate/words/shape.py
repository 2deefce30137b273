"""How words are encoded: as MessagePack arrays."""

import msgspec


class Array(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Base of what is encoded as an array of its fields: a new one goes to the end, with a default."""
