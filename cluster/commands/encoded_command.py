"""A command as it travels: its bytes, and what decides when it is its turn. Only the log has the bytes alone.

What an ordinary command asks for, one lock or something as small, has no load: there may be thousands of it
in an entry. Load has what has many names with many parts, or goes through much of the state
(`lockstate.rules.effort`). It is an estimate, in some microseconds of a state machine each, which decides
what waits for what and nothing else: nodes may differ.
"""

from typing import Annotated, Final

import msgspec

from lockstate.catalogue import PATIENT
from lockstate.machine import LockMachine
from lockstate.rules.on_behalf import on_behalf
from lockstate.words import codec, limits
from lockstate.words.commands.entries import Command
from lockstate.words.commands.streams import Numbered

FREE: Final = 24
"""What any command may have without any load, each one in a frame as well: parts of names, and bytes."""
_BYTES: Final = 32
"""Bytes of a command that count as one part of a name."""


class EncodedCommand(msgspec.Struct, frozen=True, array_like=True):
    """One command, which the node that took it from a client has encoded."""

    data: bytes
    load: Annotated[int, msgspec.Meta(ge=0)] = 0
    """How much it makes all nodes do, beyond what most commands do; 0 of nearly all."""
    count: Annotated[int, msgspec.Meta(ge=1, le=limits.STREAM_KEPT_MAX)] = 1
    """How many commands it stands for: those of a frame of a stream."""
    is_patient: bool = False
    """Whether it may wait a little to share an entry with others."""


def encode(command: Command, machine: LockMachine, principal: str = "") -> EncodedCommand:
    """Return a command as `principal` asks it, with its load in this state."""
    data = codec.encode_command(on_behalf(principal, command))
    # No machine takes a frame of more than is kept: whatever a client sends, it must fit an entry.
    count = min(max(len(command.commands), 1), limits.STREAM_KEPT_MAX) if isinstance(command, Numbered) else 1
    named = data.count(b"/") + len(data) // _BYTES
    load = max(max(named, machine.effort_of(command)) - FREE * count, 0)
    return EncodedCommand(data, load, count, command.__class__ in PATIENT)
