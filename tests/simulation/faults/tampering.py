"""Somebody between two nodes, who has no key: flips bits, and adds, repeats and takes away what was written.

A sealed link ends with the first of it, and nothing else happens. One that believes what comes does not.
"""

from collections import deque
from random import Random
from typing import Final

CHANCE: Final = 0.05
"""How many of the pieces that pass are changed."""
KEPT: Final = 20
"""Pieces that may be sent again."""
ADDED_MAX: Final = 40
"""Bytes that are made up at a time."""


class Tampering:
    """One direction between two nodes."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._kept: deque[bytes] = deque(maxlen=KEPT)

    def pass_on(self, data: bytes) -> bytes:
        """Return what passes in the place of `data`."""
        random = self._random
        self._kept.append(data)
        if random.random() >= CHANCE:
            return data
        at = random.randrange(len(data))
        match random.randrange(5):
            case 0:
                return data[:at] + bytes([data[at] ^ 1 << random.randrange(8)]) + data[at + 1 :]
            case 1:
                return data + random.choice(self._kept)
            case 2:
                return b""
            case 3:
                return random.randbytes(random.randint(1, ADDED_MAX)) + data
            case _:
                # Another small number in the place of one.
                return data[:at] + bytes([random.randrange(128)]) + data[at + 1 :]
