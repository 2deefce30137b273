"""Commands on their way from a node to whoever leads: how they are sent, and what is wrong with some."""

import secrets
from typing import Final, NamedTuple

import msgspec

from lockstate import limits
from lockstate.versions import RULES_WHOLE

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


class Forwarded(msgspec.Struct, frozen=True, array_like=True):
    """Commands for the leader of `term`, in order of their numbers; 0 is the term of no leader.

    `askers` are as in `TakenCommands`. Who sends it writes it as a `frame`.
    """

    term: int
    origin: str
    seqs: list[int]
    commands: list[bytes]
    askers: list[str] = []


class TakenCommands(NamedTuple):
    """Commands to be sent, in order of their numbers.

    `askers` has for each the principal that asks and is not named in it, because its node only knew rules
    without principals; "" where there is none. It is empty where that is so of all. What the rules are where
    it stands in the log is known to who puts it there: that one names them in it (`Batcher`).
    """

    seqs: list[int]
    commands: list[bytes]
    askers: list[str]


Frame = tuple[int, str, list[int], list[bytes]] | tuple[int, str, list[int], list[bytes], list[str]]
"""A Forwarded as it is sent."""


def frame(term: int, origin: str, taken: TakenCommands, rules_known: int) -> Frame:
    """Return what is sent to a leader that knows the rules up to `rules_known`.

    One that knows none with principals puts nothing into the log that would be read by them, and release
    0.1.0 takes four fields and no more.
    """
    seqs, commands, askers = taken
    if askers and rules_known >= RULES_WHOLE:
        return term, origin, seqs, commands, askers
    return term, origin, seqs, commands


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
    if batch.askers and len(batch.askers) != len(batch.commands):
        return f"{len(batch.askers)} askers for {len(batch.commands)} commands"
    if any(len(asker.encode()) > limits.PRINCIPAL_BYTES_MAX for asker in batch.askers):
        return "an asker whose name is too long"
    longest = max(map(len, batch.commands), default=0)
    return f"a command of {longest} bytes" if longest > COMMAND_BYTES_MAX else ""
