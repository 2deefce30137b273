"""What can be asked of the state machine: one frozen struct per command, and the log entry that carries them.

A command is encoded as a MessagePack array whose first element is its tag. A tag is never reused; a new field
goes to the end, with a default. Ids and secrets come in commands: the state machine invents nothing.
"""

from typing import ClassVar

import msgspec

from lockstate.words.cell_operations import Compare, Operation
from lockstate.words.ids import (
    NO_ATTEMPT,
    NO_HOLD,
    NO_OWNER,
    NO_SESSION,
    AttemptId,
    HoldId,
    OwnerName,
    SessionId,
)
from lockstate.words.kinds import Algorithm, ClusterAct, HoldKind, IfHeld
from lockstate.words.modes import Mode, Scope
from lockstate.words.settings import NamespaceSettings, Quota
from lockstate.words.shape import Array
from lockstate.words.wanted import Uncommon, Wanted, WantedPermits, WantedRate


class _Command(Array, frozen=True):
    """Base of all commands; fixes how they are encoded."""


class _Unremembered(_Command, frozen=True):
    """Base of the commands that may come twice without harm: they carry no `request_id`."""

    request_id: ClassVar[str] = ""


class OpenSession(_Command, frozen=True, tag=1):
    """Open a session that lives for `ttl_ms` after its last keepalive."""

    session_id: SessionId
    ttl_ms: int
    labels: dict[str, str] = {}
    request_id: str = ""


class KeepAlive(_Unremembered, frozen=True, tag=2):
    """Start the session's ttl anew, with another length from now on if `ttl_ms` is not 0."""

    session_id: SessionId
    ttl_ms: int = 0


class CloseSession(_Command, frozen=True, tag=3):
    """End a session: release its holds, end its waits."""

    session_id: SessionId
    request_id: str = ""


class Acquire(_Command, frozen=True, tag=4):
    """Ask for a lock, for a session (`session_id`) or with a lease of its own (`ttl_ms`): one of the two.

    Several locks at once are listed in `locks`; then `name` is empty, and `mode` and `scope` mean nothing.
    `hold_id` is the secret that the hold gets if this command is granted. `attempt_id` names this attempt: a
    repeated request carries the same `request_id` and a new attempt id; `Cancel` ends only the attempt it
    names.

    `if_held` says what is to be done if the session holds just that already. None does not say it: then it is
    renewed, unless a namespace says otherwise. To count means that as many releases end the hold.
    """

    name: str
    mode: Mode
    hold_id: HoldId
    attempt_id: AttemptId
    session_id: SessionId = NO_SESSION
    ttl_ms: int = 0
    owner: OwnerName = NO_OWNER
    wait_ms: int = 0
    request_id: str = ""
    scope: Scope = Scope.NODE
    locks: tuple[Wanted, ...] = ()
    if_held: IfHeld | None = None
    uncommon: Uncommon | None = None


class Cancel(_Unremembered, frozen=True, tag=5):
    """Undo an attempt whose client went away: end its wait, or release what it got.

    `hold_id` is the id under which the attempt waits: the `ticket_id` of a change, else the hold's id; a take
    from a rate limit waits under its `attempt_id`. A change that was granted is not undone: its client still
    has its hold, and can give back what it got.

    Has no effect when a later attempt of the same request took over.
    """

    hold_id: HoldId
    attempt_id: AttemptId


class Renew(_Command, frozen=True, tag=6):
    """Start the lease of a hold anew, with another length if `ttl_ms` is not 0.

    `kind` is what it takes the hold for: refused with `wrong-kind` if that is something else. None does not
    say it. If `exact`, the lease ends after `ttl_ms` even if it was to last longer.
    """

    hold_id: HoldId
    ttl_ms: int = 0
    request_id: str = ""
    kind: HoldKind | None = None
    exact: bool = False


class Release(_Command, frozen=True, tag=7):
    """Give a hold back; of a hold of several locks only those in `names`, unless `names` is empty.

    `kind` is as for a renewal.
    """

    hold_id: HoldId
    request_id: str = ""
    names: tuple[str, ...] = ()
    kind: HoldKind | None = None


class ForceRelease(_Command, frozen=True, tag=8):
    """End every hold of a name, or the one that has `token`, of one kind; 0 stands for all of them."""

    name: str
    reason: str
    lock_delay_ms: int = 0
    request_id: str = ""
    kind: HoldKind = HoldKind.LOCK
    token: int = 0


class Tick(_Unremembered, frozen=True, tag=9):
    """Let cluster time pass, so that what is due expires. The entry's `now_ms` does the work."""


class Barrier(_Unremembered, frozen=True, tag=10):
    """Mark a place in the log at which a node may answer linearizable reads."""


class Convert(_Command, frozen=True, tag=11):
    """Change the mode of a hold: down at once, up as soon as no other holder is in the way.

    `ticket_id` is the id under which the conversion waits; `attempt_id` is as for an acquire.
    """

    hold_id: HoldId
    mode: Mode
    ticket_id: HoldId
    attempt_id: AttemptId
    wait_ms: int = 0
    request_id: str = ""


class AcquirePermits(_Command, frozen=True, tag=12):
    """Ask for `permits` of a semaphore. The other fields are those of `Acquire`.

    It may have another limit than `limit`, or with 0 any that it has. With `is_strict` another one is a
    mistake.
    """

    name: str
    limit: int
    permits: int
    hold_id: HoldId
    attempt_id: AttemptId
    session_id: SessionId = NO_SESSION
    ttl_ms: int = 0
    owner: OwnerName = NO_OWNER
    wait_ms: int = 0
    request_id: str = ""
    is_strict: bool = False
    uncommon: Uncommon | None = None


class ResizeSemaphore(_Command, frozen=True, tag=13):
    """Give a semaphore another limit. Nobody loses permits: a smaller limit is reached as they return."""

    name: str
    limit: int
    request_id: str = ""
    reason: str = ""


class Campaign(_Command, frozen=True, tag=14):
    """Ask to lead an election, for a session, with a value that everybody can read.

    `if_held` is as in `Acquire`, without to count: a leader that campaigns again goes on, or is refused.
    """

    name: str
    session_id: SessionId
    value: str
    hold_id: HoldId
    attempt_id: AttemptId
    owner: OwnerName = NO_OWNER
    wait_ms: int = 0
    request_id: str = ""
    if_held: IfHeld | None = None


class Proclaim(_Command, frozen=True, tag=15):
    """Change the value of the election that a hold leads."""

    hold_id: HoldId
    value: str
    request_id: str = ""


class TakeRate(_Command, frozen=True, tag=16):
    """Take `cost` from a rate limit of `limit` per `window_ms`, now or within the next `wait_ms`.

    What its namespace sets may be left out: 0 and None stand for that. An algorithm that nobody says is that
    of fixed windows.

    `attempt_id` is as for an acquire: a place whose moment is to come is given back when its last attempt is
    cancelled. One without an attempt id stays.
    """

    name: str
    limit: int = 0
    window_ms: int = 0
    algorithm: Algorithm | None = None
    cost: int = 1
    wait_ms: int = 0
    request_id: str = ""
    attempt_id: AttemptId = NO_ATTEMPT


class AdvanceFence(_Command, frozen=True, tag=17):
    """Raise the highest token that a resource has seen; refused if `token` is below it."""

    name: str
    token: int
    request_id: str = ""


class AbandonWaits(_Unremembered, frozen=True, tag=18):
    """End the waits whose clients were connected to a node process that is gone, a limited number at a time.

    `origin` names the process, as in `Batch`. An attempt that was repeated on another node waits there now.
    """

    origin: str


class PutCell(_Command, frozen=True, tag=40):
    """Write a cell, whatever it had. It lives with a session, for `ttl_ms`, or until it is deleted."""

    key: bytes
    value: bytes
    session_id: SessionId = NO_SESSION
    ttl_ms: int = 0
    request_id: str = ""


class DeleteCells(_Command, frozen=True, tag=41):
    """Delete the cell of a key, or a limited number of those whose keys begin with it, in order."""

    key: bytes
    is_prefix: bool = False
    request_id: str = ""


class TransactCells(_Command, frozen=True, tag=42):
    """Do all of `then` if every compare is true, all of `otherwise` if not; or neither, if it is refused.

    Operations are done in order, and see what those before them did. Each of the two writes or deletes a key
    at most once, takes a name at most once, and does at most one thing with a hold. Clients that wait for
    what it releases are served after its last operation.

    HTTP and streams know only the parts about cells, and the compare with a hold; locks are for faces within
    the node. `endless_not_for` is as for an acquire.
    """

    compares: tuple[Compare, ...]
    then: tuple[Operation, ...] = ()
    otherwise: tuple[Operation, ...] = ()
    request_id: str = ""
    endless_not_for: tuple[str, ...] = ()


class EndWait(_Unremembered, frozen=True, tag=72):
    """End the wait of an earlier number of the same stream, if it still waits. Only within `Numbered`."""

    number: int


class ForceCloseSession(_Command, frozen=True, tag=47):
    """End somebody else's session, known by its public name, with its holds and waits."""

    session_name: str
    reason: str
    request_id: str = ""


class LiftDelay(_Command, frozen=True, tag=48):
    """End the lock-delays of a name, of a lock or a semaphore, before their time."""

    name: str
    reason: str
    kind: HoldKind = HoldKind.LOCK
    request_id: str = ""


class ForgetFence(_Command, frozen=True, tag=49):
    """Forget the highest token that a resource has seen: from now on it accepts any."""

    name: str
    reason: str
    request_id: str = ""


class ForgetRates(_Command, frozen=True, tag=87):
    """Forget the rate limits of a name, or a limited number of those whose names begin with it, in order.

    Each of them is as new then, whatever was taken from it. An empty name with `is_prefix` stands for all.
    """

    name: str
    reason: str
    is_prefix: bool = False
    request_id: str = ""


class ForceWaits(_Command, frozen=True, tag=86):
    """End the waits for a name, or the one that has number `ticket`; 0 stands for all of them.

    One command ends only a limited number, those that come first.
    """

    name: str
    reason: str
    kind: HoldKind = HoldKind.LOCK
    ticket: int = 0
    request_id: str = ""


class Revoke(_Command, frozen=True, tag=73):
    """Ask the holders of a name, or the one that has `token`, to give up; after `grace_ms` they are forced.

    `ticket` is the public number of the wait for which that is asked; 0 if for none. With one, only holders
    that are in its way are asked, and no longer than it waits.
    """

    name: str
    reason: str
    grace_ms: int
    kind: HoldKind = HoldKind.LOCK
    token: int = 0
    ticket: int = 0
    request_id: str = ""


class WithdrawRevocation(_Command, frozen=True, tag=90):
    """Take back what was asked of the holders of a name, or of the one that has `token`.

    With a `ticket`, only what was asked for that wait. One command takes back only a limited number.
    """

    name: str
    reason: str
    kind: HoldKind = HoldKind.LOCK
    token: int = 0
    ticket: int = 0
    request_id: str = ""


class PutOff(_Command, frozen=True, tag=74):
    """Answer revocations with "not yet": each grace counts once more. Possible once for each name."""

    hold_id: HoldId
    kind: HoldKind = HoldKind.LOCK
    request_id: str = ""


class HandOver(_Command, frozen=True, tag=92):
    """Give the hold of a lock to another client, ahead of all that wait: it is never free in between.

    Exactly one of the two is the receiver: `to_ticket`, the public number of a wait for the same name, or
    `to_session`, the public name of a session of the same principal. That gets the lock as it is held now,
    under `new_hold_id`, which the client makes.
    """

    hold_id: HoldId
    to_ticket: int = 0
    to_session: str = ""
    new_hold_id: HoldId = NO_HOLD
    request_id: str = ""


class ReleaseByValue(_Command, frozen=True, tag=79):
    """Give back the hold of a name that has a value, as a whole; of several with it, the one held longest."""

    name: str
    value: str
    kind: HoldKind = HoldKind.LOCK
    request_id: str = ""


class RenewByValue(_Command, frozen=True, tag=80):
    """Renew the hold of a name that has a value; of several with it, the one held longest.

    If `adds`, the lease gets `ttl_ms` on top of what is left of it.
    """

    name: str
    value: str
    ttl_ms: int = 0
    kind: HoldKind = HoldKind.LOCK
    request_id: str = ""
    exact: bool = False
    adds: bool = False


class AcquireSeveral(Acquire, frozen=True, tag=81):
    """Ask for locks, permits and places of rate limits, all of them or none; `name` is empty.

    There is a lock or a permit among them, and something that is not a lock: several locks are an `Acquire`.
    Of what is uncommon it may have a note and a lock-delay.
    """

    permits: tuple[WantedPermits, ...] = ()
    rates: tuple[WantedRate, ...] = ()


class AddLocks(_Command, frozen=True, tag=82):
    """Add locks to a hold: all of them at once, or none.

    `ticket_id` is the id under which this waits; `attempt_id` is as for an acquire. What the hold has already
    in the same mode and scope is not added again. `endless_not_for` is as for an acquire, and means something
    if the hold has no deadline.
    """

    hold_id: HoldId
    locks: tuple[Wanted, ...]
    ticket_id: HoldId
    attempt_id: AttemptId
    wait_ms: int = 0
    request_id: str = ""
    endless_not_for: tuple[str, ...] = ()


class SetQuota(_Command, frozen=True, tag=84):
    """Bound what a principal may have, or with "*" each one without a quota of its own; None ends the bound.

    What it has already stays.
    """

    principal: str
    quota: Quota | None = None
    request_id: str = ""
    reason: str = ""


class Freeze(_Command, frozen=True, tag=88):
    """Grant nothing new at or below a prefix for `for_ms`, or until it is thawed if that is 0.

    If it is frozen already, this freeze replaces the one that there is.
    """

    prefix: str
    reason: str
    for_ms: int = 0
    request_id: str = ""


class Thaw(_Command, frozen=True, tag=89):
    """End the freeze of a prefix, and grant what waits for it."""

    prefix: str
    reason: str
    request_id: str = ""


class SetNamespace(_Command, frozen=True, tag=85):
    """Set a namespace, or with None remove it. What is there already stays, and is not counted."""

    prefix: str
    settings: NamespaceSettings | None = None
    request_id: str = ""
    reason: str = ""


class RecordAct(_Command, frozen=True, tag=91):
    """Record that somebody asks for a change of the members, or for another leader. It changes nothing else.

    `node_id` is the node that is to join, move, leave or lead (empty: whichever can best), `peer` its address
    if it gets one.
    """

    act: ClusterAct
    node_id: str
    peer: str
    reason: str
    request_id: str = ""


class HoldRules(_Command, frozen=True, tag=93):
    """Keep the cluster at the rules that it follows, or, if not `is_held`, let it follow newer ones again."""

    is_held: bool
    reason: str
    request_id: str = ""


class PreferLeader(_Command, frozen=True, tag=94):
    """Say which node should lead whenever it can, or, with an empty `node_id`, that it does not matter.

    The state has no members: whoever asks for it makes sure that it is the id of one.
    """

    node_id: str
    reason: str
    request_id: str = ""


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


class ResumeStream(_Unremembered, frozen=True, tag=70):
    """Begin to number commands in a session, or go on after a connection was lost.

    What comes later of the frames of an earlier connection has no effect.
    """

    session_id: SessionId


class Numbered(_Unremembered, frozen=True, tag=71):
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


class OnBehalf(_Command, frozen=True, tag=83):
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


Acquisition = Acquire | AcquirePermits | Campaign | AcquireSeveral
"""The commands that ask for a new hold."""

Change = Convert | AddLocks
"""The commands that change what a hold has, and may wait for that under an id of their own."""

MayWait = Acquisition | Change
"""The commands whose answer may be that they wait: for a hold, or for a change of one."""

MayBeCancelled = MayWait | TakeRate
"""The commands of which a client that goes away may leave something behind that it will not use."""


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
