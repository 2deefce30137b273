"""How much a command makes all nodes do, beyond what most commands do: found out from its bytes.

What an ordinary command asks for, one lock or something as small, has no load: there may be thousands of it
in an entry. Load has what has many names with many parts, or ends many. It is an estimate, in microseconds of
a state machine about, which decides what waits for what and nothing else: nodes may differ.
"""

from typing import Final

from lockstate.machine import LockMachine
from lockstate.words import codec

FREE: Final = 24
"""What any command may have without any load, each one in a frame as well: parts of names, and bytes."""
_BYTES: Final = 32
"""Bytes of a command that count as one part of a name."""


def load_of(command: bytes, machine: LockMachine) -> int:
    """Return the load of an encoded command in this state, 0 for nearly all."""
    load = command.count(b"/") + len(command) // _BYTES - FREE
    if load > 0:
        return max(load - FREE * (codec.commands_in(command) - 1), 0)
    ended = codec.ended_by(command)
    return max(machine.claims_count(ended) - FREE, 0) if ended else 0
