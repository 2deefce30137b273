"""The commands of the nodes themselves, the union of all commands, and the entries that carry them."""

from typing import ClassVar

import msgspec

from lockstate.words.commands.admin import HoldRules, PreferLeader, RecordAct, SetNamespace, SetQuota
from lockstate.words.commands.base import WithoutRequestId, WithRequestId
from lockstate.words.commands.cells import DeleteCells, PutCell, TransactCells
from lockstate.words.commands.holds import (
    Acquire,
    AcquirePermits,
    AcquireSeveral,
    AddLocks,
    Campaign,
    Convert,
    HandOver,
    MayWait,
    Proclaim,
    PutOff,
    Release,
    ReleaseByValue,
    Renew,
    RenewByValue,
)
from lockstate.words.commands.overrides import (
    ForceCloseSession,
    ForceRelease,
    ForceWaits,
    ForgetFence,
    ForgetRates,
    Freeze,
    LiftDelay,
    Revoke,
    Thaw,
    WithdrawRevocation,
)
from lockstate.words.commands.primitives import AdvanceFence, ResizeSemaphore, TakeRate
from lockstate.words.commands.sessions import CloseSession, KeepAlive, OpenSession
from lockstate.words.commands.streams import Numbered, ResumeStream
from lockstate.words.ids import AttemptId, HoldId


class Cancel(WithoutRequestId, frozen=True, tag=5):
    """Undo an attempt whose client went away: end its wait, or release what it got.

    `hold_id` is the id under which the attempt waits: the `ticket_id` of a change, else the hold's id; a take
    from a rate limit waits under its `attempt_id`. A change that was granted is not undone: its client still
    has its hold, and can give back what it got.

    Has no effect when a later attempt of the same request took over.
    """

    hold_id: HoldId
    attempt_id: AttemptId


class AbandonWaits(WithoutRequestId, frozen=True, tag=18):
    """End the waits whose clients were connected to a node process that is gone, a limited number at a time.

    `origin` names the process, as in `Batch`. An attempt that was repeated on another node waits there now.
    """

    origin: str


class Tick(WithoutRequestId, frozen=True, tag=9):
    """Let cluster time pass, so that what is due expires. The entry's `now_ms` does the work."""


class Barrier(WithoutRequestId, frozen=True, tag=10):
    """Mark a place in the log at which a node may answer linearizable reads."""


MayBeCancelled = MayWait | TakeRate
"""The commands of which a client that goes away may leave something behind that it will not use."""


OfSomebody = (
    OpenSession
    | KeepAlive
    | CloseSession
    | Acquire
    | Renew
    | Release
    | ForceRelease
    | Convert
    | AcquirePermits
    | ResizeSemaphore
    | Campaign
    | Proclaim
    | TakeRate
    | AdvanceFence
    | PutCell
    | DeleteCells
    | TransactCells
    | ForceCloseSession
    | ForceWaits
    | LiftDelay
    | ForgetRates
    | ForgetFence
    | Revoke
    | WithdrawRevocation
    | PutOff
    | HandOver
    | ReleaseByValue
    | RenewByValue
    | AcquireSeveral
    | AddLocks
    | SetQuota
    | SetNamespace
    | Freeze
    | Thaw
    | RecordAct
    | HoldRules
    | PreferLeader
    | ResumeStream
    | Numbered
)
"""What clients ask for, and so a principal may."""


class OnBehalf(WithRequestId, frozen=True, tag=83):
    """A command, and who asks for it: the principal that will own what it makes (tables/principals.py).

    A frame of a stream needs none, if its session is of who sends it: all that is in it is asked by whom the
    session belongs to. Who sends that of a session of nobody is told here.
    """

    principal: str
    command: OfSomebody

    @property
    def request_id(self) -> str:
        """Return that of the command."""
        return self.command.request_id


Command = OfSomebody | Cancel | Tick | Barrier | AbandonWaits | OnBehalf
"""All that an entry may carry: the decoder is made of it, and each has a row in lockstate/catalogue.py."""


class Undecodable(msgspec.Struct, frozen=True):
    """Stands in an entry for bytes that are not a command of this version. Never encoded."""

    request_id: ClassVar[str] = ""


class Batch(msgspec.Struct, frozen=True):
    """The commands of one origin within an entry, in its order.

    `origin` names one run of a node process. Sequence numbers rise strictly within an origin, for as long as
    it lives; a command whose number is not above all that were applied for its origin is a repetition and has
    no effect.
    """

    origin: str
    seqs: tuple[int, ...]
    commands: tuple[Command | Undecodable, ...]


class AdvanceVersion(msgspec.Struct, frozen=True):
    """Move the rules of the cluster up to `to` (lockstate/words/versions.py): never down, one at a time.

    The leader's own command: no client asks for it, so it has no origin, number or result. It travels in the
    header of an entry, where a node that does not know these rules sees it before it applies anything.
    """

    to: int


class Entry(msgspec.Struct, frozen=True):
    """A committed log entry: commands, and the cluster time at which the leader proposed them.

    `advance` counts first: time and commands of the same entry follow the rules that it moves to. Then
    `bytes_max` bounds the memory that the state takes (lockstate/tables/budget.py); 0 leaves the bound as
    it is.
    """

    now_ms: int
    batches: tuple[Batch, ...] = ()
    advance: AdvanceVersion | None = None
    bytes_max: int = 0
