"""Every command once, as the tests know it: an example, and what makes two commands the same request.

Models, checkers, simulated clients and generators of random commands draw from this table. A new command gets
one row here; what its rule is, and when somebody asks for it, is told where that belongs: in tests/property
(model_*.py, programs.py), tests/scenarios/clients.py and tests/simulation/workload.

The table is independent of those in `lockstate`; test_vocabulary.py compares them.
"""

import hashlib
from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeVar, cast

import msgspec

from lockstate.words.cell_operations import (
    CellCompare,
    CellField,
    DeleteOperation,
    EndOperation,
    GetOperation,
    HoldCompare,
    LockCompare,
    PutOperation,
    Relation,
    RenewOperation,
    TakeOperation,
)
from lockstate.words.commands.admin import HoldRules, PreferLeader, RecordAct, SetNamespace, SetQuota
from lockstate.words.commands.cells import DeleteCells, PutCell, TransactCells
from lockstate.words.commands.entries import (
    AbandonWaits,
    Barrier,
    Cancel,
    Command,
    OnBehalf,
    Tick,
    Undecodable,
)
from lockstate.words.commands.holds import (
    Acquire,
    AcquirePermits,
    AcquireSeveral,
    AddLocks,
    Campaign,
    Convert,
    HandOver,
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
from lockstate.words.commands.streams import EndWait, Numbered, ResumeStream
from lockstate.words.ids import AttemptId, HoldId, OwnerName, SessionId
from lockstate.words.kinds import Algorithm, ClusterAct, HoldKind, IfHeld
from lockstate.words.modes import Mode, Scope
from lockstate.words.refusals import Reason
from lockstate.words.settings import NamespaceSettings, Quota
from lockstate.words.wanted import Asking, Uncommon, Wanted, WantedPermits, WantedRate

CommandT = TypeVar("CommandT", bound=Command)

NO_OUTCOME: Final = frozenset(
    {
        Reason.INVALID_REQUEST,
        Reason.NAME_TOO_LONG,
        Reason.TTL_OUT_OF_RANGE,
        Reason.QUEUE_FULL,
        Reason.OVERLOADED,
        Reason.WRONG_KIND,
    }
)
"""Refusals that are not remembered: they have no effect, so the corrected request may keep its id."""


class Word(NamedTuple):
    """What the tests know of one kind of command."""

    tag: int
    """The number that stands for it in an entry, for ever."""
    example: Command
    """One with other values than the defaults, as far as they may be combined."""
    scope: tuple[str, ...] | None = None
    """The fields of which the first that is not empty tells clients with equal request ids apart.

    No fields: request ids count for everybody. None: the command carries no request id.
    """
    ids_of_attempt: tuple[str, ...] = ()
    """The fields that each attempt at one request gets anew."""


_SESSION, _HOLD, _TICKET = SessionId("s"), HoldId("h"), HoldId("t")
_ATTEMPT, _ANN = AttemptId("a"), OwnerName("ann")
_HOLD_IDS, _TICKET_IDS = ("hold_id", "attempt_id"), ("ticket_id", "attempt_id")
_PARTY = ("session_id", "owner")
_TRANSACTION = TransactCells(
    (
        CellCompare(b"c", CellField.VALUE, Relation.LESS, 3, b"v"),
        HoldCompare(_HOLD, 7),
        LockCompare("a", _HOLD),
    ),
    (
        PutOperation(b"c", b"v", _SESSION, 0),
        DeleteOperation(b"d"),
        GetOperation(b"e"),
        EndOperation(_HOLD, "why"),
        TakeOperation("a", HoldId("n"), "v", _ANN, 50),
    ),
    (GetOperation(b"c"), RenewOperation(_HOLD, 50)),
    "r",
)
_SEVERAL = (Wanted("a", Mode.UPDATE, Scope.SUBTREE), Wanted("b"))

VOCABULARY: Final[dict[type[Command], Word]] = {
    OpenSession: Word(1, OpenSession(_SESSION, 50, {"owner": "ann"}, "r"), (), ("session_id",)),
    KeepAlive: Word(2, KeepAlive(_SESSION, 50)),
    CloseSession: Word(3, CloseSession(_SESSION, "r"), ("session_id",)),
    Acquire: Word(
        4,
        Acquire(
            "",
            Mode.SHARED,
            _HOLD,
            _ATTEMPT,
            locks=_SEVERAL,
            if_held=IfHeld.COUNT,
            uncommon=Uncommon(6, "note", "v", is_secret=True, priority=7, is_endless=True, asks=Asking(8, 9)),
        ),
        _PARTY,
        _HOLD_IDS,
    ),
    Cancel: Word(5, Cancel(_HOLD, _ATTEMPT)),
    Renew: Word(6, Renew(_HOLD, 50, "r", HoldKind.ELECTION), ("hold_id",)),
    Release: Word(7, Release(_HOLD, "r", ("a", "b"), HoldKind.SEMAPHORE), ("hold_id",)),
    ForceRelease: Word(8, ForceRelease("a", "why", 5, "r", HoldKind.SEMAPHORE, 7), ("name",)),
    Tick: Word(9, Tick()),
    Barrier: Word(10, Barrier()),
    Convert: Word(11, Convert(_HOLD, Mode.UPDATE, _TICKET, _ATTEMPT, 5, "r"), ("hold_id",), _TICKET_IDS),
    AcquirePermits: Word(
        12,
        AcquirePermits(
            "q",
            5,
            2,
            _HOLD,
            _ATTEMPT,
            _SESSION,
            0,
            _ANN,
            5,
            "r",
            is_strict=True,
            uncommon=Uncommon(6, "note"),
        ),
        _PARTY,
        _HOLD_IDS,
    ),
    ResizeSemaphore: Word(13, ResizeSemaphore("q", 5, "r", "why"), ("name",)),
    Campaign: Word(14, Campaign("e", _SESSION, "here", _HOLD, _ATTEMPT, _ANN, 5, "r"), _PARTY, _HOLD_IDS),
    Proclaim: Word(15, Proclaim(_HOLD, "there", "r"), ("hold_id",)),
    TakeRate: Word(
        16, TakeRate("mail", 5, 1000, Algorithm.GCRA, 2, 5, "r", _ATTEMPT), ("name",), ("attempt_id",)
    ),
    AdvanceFence: Word(17, AdvanceFence("disk", 7, "r"), ("name",)),
    AbandonWaits: Word(18, AbandonWaits("n1")),
    PutCell: Word(40, PutCell(b"c", b"v", _SESSION, 0, "r"), ("key",)),
    DeleteCells: Word(41, DeleteCells(b"c", is_prefix=True, request_id="r"), ("key",)),
    TransactCells: Word(42, _TRANSACTION, ()),
    ForceCloseSession: Word(47, ForceCloseSession("s-7", "why", "r"), ("session_name",)),
    LiftDelay: Word(48, LiftDelay("q", "why", HoldKind.SEMAPHORE, "r"), ("name",)),
    ForgetFence: Word(49, ForgetFence("disk", "why", "r"), ("name",)),
    WithdrawRevocation: Word(90, WithdrawRevocation("a", "why", HoldKind.SEMAPHORE, 7, 8, "r"), ("name",)),
    Revoke: Word(73, Revoke("a", "why", 5, HoldKind.SEMAPHORE, 7, 8, "r"), ("name",)),
    PutOff: Word(74, PutOff(_HOLD, HoldKind.ELECTION, "r"), ("hold_id",)),
    HandOver: Word(92, HandOver(_HOLD, 0, "s-7", HoldId("n"), "r"), ("hold_id",)),
    ReleaseByValue: Word(79, ReleaseByValue("a", "v", HoldKind.SEMAPHORE), ("value",)),
    RenewByValue: Word(80, RenewByValue("a", "v", 2000), ("value",)),
    AcquireSeveral: Word(
        81,
        AcquireSeveral(
            "",
            Mode.SHARED,
            _HOLD,
            _ATTEMPT,
            _SESSION,
            locks=_SEVERAL,
            permits=(WantedPermits("q", 5, 2),),
            rates=(WantedRate("mail", 5, 1000, Algorithm.GCRA, 2),),
        ),
        _PARTY,
        _HOLD_IDS,
    ),
    AddLocks: Word(82, AddLocks(_HOLD, _SEVERAL, _TICKET, _ATTEMPT, 5, "r"), ("hold_id",), _TICKET_IDS),
    OnBehalf: Word(83, OnBehalf("ann", OpenSession(_SESSION, 50, {"owner": "ann"}, "r"))),
    SetQuota: Word(84, SetQuota("ann", Quota(1, 2, 3, 4, 5, 6, 7), "r", "why"), ("principal",)),
    SetNamespace: Word(
        85,
        SetNamespace("a/b", NamespaceSettings(50, 60, 7, False, True, 1, 2, 3, 4), "r", "why"),
        ("prefix",),
    ),
    Freeze: Word(88, Freeze("a/b", "why", 5, "r"), ("prefix",)),
    Thaw: Word(89, Thaw("a/b", "why", "r"), ("prefix",)),
    ForceWaits: Word(86, ForceWaits("a", "why", HoldKind.SEMAPHORE, 8, "r"), ("name",)),
    ForgetRates: Word(87, ForgetRates("mail/", "why", is_prefix=True, request_id="r"), ("name",)),
    HoldRules: Word(93, HoldRules(is_held=True, reason="why", request_id="r"), ()),
    PreferLeader: Word(94, PreferLeader("n4", "why", "r"), ()),
    RecordAct: Word(91, RecordAct(ClusterAct.ADD, "n4", "h:1", "why", "r"), ("node_id",)),
    ResumeStream: Word(70, ResumeStream(_SESSION)),
    Numbered: Word(71, Numbered(2, _SESSION, 3, 7, ((1, 5),), (Release(_HOLD), EndWait(6)))),
}
"""In the order of the tags."""


_OF_THE_NODE: Final = ("priority_not_for", "endless_not_for")
"""The fields that say how the node is set that was asked."""


def plain_command(command: Command | Undecodable) -> Command | Undecodable:
    """Return what is asked, without who asks."""
    return command.command if isinstance(command, OnBehalf) else command


def request_scope(command: Command | Undecodable) -> str | None:
    """Return within what the request id of a command counts; None if it carries none."""
    word = None if isinstance(command, Undecodable) else VOCABULARY[type(command)]
    if word is None or word.scope is None or not command.request_id:
        return None
    if isinstance(command, ReleaseByValue | RenewByValue):
        # A value may be longer than a scope.
        scope = f"{command.name}\0{command.value}".encode("utf-8", "surrogatepass")
        return hashlib.blake2b(scope, digest_size=12).hexdigest()
    values = [getattr(command, field) for field in word.scope]
    texts = [value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value) for value in values]
    return next((text for text in texts if text), "")


def request_content(command: Command | Undecodable) -> tuple[str, dict[str, Any]]:
    """Return what must be the same in all attempts at one request: the kind and the fields."""
    ids = () if isinstance(command, Undecodable) else VOCABULARY[type(command)].ids_of_attempt
    ignored = (*ids, *_OF_THE_NODE)
    fields = msgspec.structs.asdict(command)
    if fields.get("uncommon") is not None:
        rare = msgspec.structs.asdict(fields["uncommon"])
        fields["uncommon"] = {name: rare[name] for name in rare if name not in ignored}
    return type(command).__name__, {name: fields[name] for name in fields if name not in ignored}


def another_attempt(command: CommandT, new_id: Callable[[str], str]) -> CommandT:
    """Return the same request as a client makes it again; `new_id` makes the id for a field."""
    fields = VOCABULARY[cast("type[Command]", type(command))].ids_of_attempt
    return msgspec.structs.replace(command, **{field: new_id(field) for field in fields})
