"""The commands of streams: a frame carries many others, each with a number of its session."""

from lockstate.words.commands.base import WithoutRequestId
from lockstate.words.commands.cells import DeleteCells, PutCell, TransactCells
from lockstate.words.commands.holds import (
    Acquire,
    AcquirePermits,
    Campaign,
    Convert,
    Proclaim,
    Release,
    ReleaseByValue,
    Renew,
    RenewByValue,
)
from lockstate.words.commands.primitives import AdvanceFence, TakeRate
from lockstate.words.ids import SessionId


class EndWait(WithoutRequestId, frozen=True, tag=72):
    """End the wait of an earlier number of the same stream, if it still waits. Only within `Numbered`."""

    number: int


NumberedCommand = (
    Acquire
    | AcquirePermits
    | Campaign
    | Convert
    | Renew
    | Release
    | ReleaseByValue
    | RenewByValue
    | Proclaim
    | TakeRate
    | AdvanceFence
    | PutCell
    | DeleteCells
    | TransactCells
    | EndWait
)
"""What a session may number. A `request_id` in it means nothing: the number says which request it is."""


class ResumeStream(WithoutRequestId, frozen=True, tag=70):
    """Begin to number commands in a session, or go on after a connection was lost.

    What comes later of the frames of an earlier connection has no effect.
    """

    session_id: SessionId


class Numbered(WithoutRequestId, frozen=True, tag=71):
    """A frame of a stream: commands that a session has numbered without gaps, from `first` on.

    `count` is how many they are: it stands in front for who only wants to know that. `epoch` is that of the
    connection (`StreamResumed`). `acked` are ranges, first and last, of numbers whose final answers the
    client has seen: their outcomes are forgotten.
    """

    count: int
    session_id: SessionId
    epoch: int
    first: int
    acked: tuple[tuple[int, int], ...]
    commands: tuple[NumberedCommand, ...]
