"""Commands on their way from a node to whoever leads: how they are sent, and what is wrong with some."""

import secrets
from typing import Annotated, Final

import msgspec

from cluster.commands.encoded_command import EncodedCommand
from cluster.tracing import IDS_BYTES, STATE_CHARS_MAX

COMMAND_BYTES_MAX: Final = 1 << 20
"""No command comes near it: bodies of requests are smaller. An entry has room for one."""
SEQ_MAX: Final = 1 << 53
"""No run of a node's process numbers so many commands."""
ORIGIN_CHARACTERS_MAX: Final = 128
"""Node ids have 63 characters at most, and what `new_origin` adds 13."""


def new_origin(node_id: str) -> str:
    """Return a name for this run of the node's process: numbers begin again with each run."""
    return f"{node_id}.{secrets.token_hex(6)}"


def node_of(origin: str) -> str:
    """Return the node whose process `origin` names."""
    return origin.rpartition(".")[0]


Trace = Annotated[bytes, msgspec.Meta(min_length=IDS_BYTES, max_length=IDS_BYTES + STATE_CHARS_MAX)]
"""Of which call a command is a part, packed (`cluster.tracing.Context`). It never comes into the log."""


class Forwarded(msgspec.Struct, frozen=True, array_like=True):
    """Commands for the leader of `term`, in order of their numbers; 0 is the term of no leader."""

    term: int
    origin: str
    seqs: list[int]
    commands: list[EncodedCommand]
    traces: dict[int, Trace] = {}
    """By their numbers, the contexts of those that are recorded."""


def fault_in(batch: Forwarded, node_id: str) -> str:
    """Return what is wrong with a batch that `node_id` forwards; empty if nothing is.

    All of it may become an entry, on all nodes: what no correct node forwards must not come so far.
    """
    if node_of(batch.origin) != node_id or len(batch.origin) > ORIGIN_CHARACTERS_MAX:
        return f"commands of {batch.origin[:ORIGIN_CHARACTERS_MAX]!r}"
    if len(batch.seqs) != len(batch.commands):
        return f"{len(batch.seqs)} numbers for {len(batch.commands)} commands"
    last = 0
    for seq in batch.seqs:
        if not last < seq <= SEQ_MAX:
            return f"command {seq} behind command {last}"
        last = seq
    longest = max((len(command.data) for command in batch.commands), default=0)
    return f"a command of {longest} bytes" if longest > COMMAND_BYTES_MAX else ""
