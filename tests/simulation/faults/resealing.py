"""A peer that knows the keys of its link and means harm: what it says in place of its node is sealed, too.

`Resealer` takes what a node has written apart and seals something else, with numbers of its own; from the
first record of a connection to its last, because the receiver counts. Whoever has no keys can only put bytes
between others (`Endpoint.enqueue`), and the link ends.
"""

from typing import Final

from cluster.peers.sealing import Opener, Sealer

_LENGTH_BYTES: Final = 4


class Resealer:
    """Stands between one node and its side of one connection."""

    def __init__(self, key: bytes) -> None:
        self._opener = Opener(key)
        self._sealer = Sealer(key)

    def open(self, sealed: bytes) -> bytes:
        """Return the whole frames in what the node wrote. Raises SealBroken if anything was left out."""
        return b"".join(self._opener.open(sealed))

    def seal(self, frames: bytes) -> bytes:
        """Return these frames as the next that the other side will believe."""
        return self._sealer.seal(frames)


def frames_in(data: bytes) -> list[bytes]:
    """Return the frames in `data`, which holds whole ones, each with its length."""
    frames, at = [], 0
    while at < len(data):
        end = at + _LENGTH_BYTES + int.from_bytes(data[at : at + _LENGTH_BYTES], "big")
        frames.append(data[at:end])
        at = end
    return frames
