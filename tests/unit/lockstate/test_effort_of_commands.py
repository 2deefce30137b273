"""What each command costs where the state is large, in executed lines, is no more than its load says.

Leaders fill their entries by load. A command that costs more because of what is in the state, and is not
counted so, would let one client keep all nodes busy with little.
"""

from typing import Final

import msgspec

from cluster.commands.encoded_command import FREE, encode
from lockstate.catalogue import ROWS
from lockstate.words import limits
from lockstate.words.cell_operations import (
    CellCompare,
    CellField,
    EndOperation,
    LockCompare,
    PutOperation,
    Relation,
    TakeOperation,
)
from lockstate.words.commands import admin, cells, entries, holds, overrides, primitives, sessions, streams
from lockstate.words.commands.entries import Command
from lockstate.words.commands.holds import Acquire, AcquirePermits, ReleaseByValue, RenewByValue
from lockstate.words.commands.overrides import ForceRelease, Revoke
from lockstate.words.commands.primitives import ResizeSemaphore
from lockstate.words.commands.streams import Numbered, NumberedCommand
from lockstate.words.ids import AttemptId, HoldId, OwnerName, SessionId
from lockstate.words.kinds import Algorithm, ClusterAct, HoldKind
from lockstate.words.modes import Mode, Scope
from lockstate.words.settings import NamespaceSettings, Quota
from lockstate.words.wanted import Uncommon, Wanted, WantedPermits, WantedRate
from tests.unit.lockstate.work_meter import Meter

MANY: Final = 3_000
LONG_MS: Final = limits.TTL_MS_MAX
ATTEMPT: Final = AttemptId("a1")
SEMAPHORE, SHARED, EXCLUSIVE = HoldKind.SEMAPHORE, Mode.SHARED, Mode.EXCLUSIVE
ANN, BOB, EVE, PAT, TIM = (SessionId(name) for name in ("ann", "bob", "eve", "pat", "tim"))
LINES_PER_LOAD: Final = 150
"""Executed lines that one of load stands for, at most; each command has FREE more of it."""
BOUNDED: Final = {
    entries.AbandonWaits: 6 * limits.ABANDONED_PER_COMMAND_MAX,
    entries.Tick: limits.EXPIRIES_PER_ENTRY_MAX,
}
"""What only nodes ask for, one in an entry: it ends so many, however many there are."""


def lock(
    name: str,
    hold_id: str,
    mode: Mode = EXCLUSIVE,
    session_id: str = "",
    *,
    wait_ms: int = 0,
    value: str = "",
) -> Acquire:
    """Ask for a lock."""
    ttl_ms, uncommon = 0 if session_id else LONG_MS, Uncommon(value=value) if value else None
    return Acquire(
        name,
        mode,
        HoldId(hold_id),
        ATTEMPT,
        SessionId(session_id),
        ttl_ms,
        wait_ms=wait_ms,
        uncommon=uncommon,
    )


def permit(
    name: str, hold_id: str, limit: int = 0, session_id: str = "", *, wait_ms: int = 0, value: str = ""
) -> AcquirePermits:
    """Ask for one permit of a semaphore."""
    ttl_ms, uncommon = 0 if session_id else LONG_MS, Uncommon(value=value) if value else None
    return AcquirePermits(
        name,
        limit,
        1,
        HoldId(hold_id),
        ATTEMPT,
        SessionId(session_id),
        ttl_ms,
        wait_ms=wait_ms,
        uncommon=uncommon,
    )


def _campaign(hold_id: str, session_id: SessionId = BOB) -> holds.Campaign:
    owner = OwnerName(hold_id)
    return holds.Campaign("lead", session_id, "v", HoldId(hold_id), ATTEMPT, owner, LONG_MS)


def _several(hold_id: str) -> holds.AcquireSeveral:
    """Ask for a lock and places of rate limits for a session, of which all but the first are for later."""
    names = [f"later/{n}" for n in range(limits.RATES_COUNT_MAX)]
    return holds.AcquireSeveral(
        "",
        EXCLUSIVE,
        HoldId(hold_id),
        ATTEMPT,
        PAT,
        wait_ms=LONG_MS,
        locks=(Wanted(f"pat/{hold_id}"),),
        rates=tuple(WantedRate(name, 1, LONG_MS // 2048, Algorithm.GCRA) for name in names),
    )


def _numbered(first: int, *numbered: NumberedCommand) -> Numbered:
    return Numbered(len(numbered), TIM, 1, first, (), numbered)


def _large() -> Meter:
    """Return a machine with much of everything."""
    meter, each = Meter(), range(MANY)
    meter.run(*[sessions.OpenSession(session_id, LONG_MS) for session_id in (ANN, BOB, EVE, TIM)])
    delayed = Uncommon(lock_delay_ms=limits.LOCK_DELAY_MS_MAX)
    short = [permit("late", f"d{n}", MANY) for n in each]
    meter.run(*[msgspec.structs.replace(one, ttl_ms=50, uncommon=delayed) for one in short])
    while meter.machine.counts()["holds"]:
        meter.now_ms += limits.RATE_WINDOW_MS_MIN * 6
        meter.run(entries.Tick())
    # A semaphore that many use, and one that many wait for.
    meter.run(*[permit("used", f"u{n}", 2 * MANY, value=f"v{n % 9}") for n in each])
    meter.run(*[permit("full", f"f{n}", MANY) for n in each])
    meter.run(*[permit("full", f"fw{n}", wait_ms=LONG_MS) for n in each])
    # A lock that many read, one that readers wait for, one that writers wait for, and an election.
    meter.run(*[lock("read", f"r{n}", SHARED, value=f"v{n % 9}") for n in each])
    meter.run(lock("busy", "b"), *[lock("busy", f"bw{n}", SHARED, wait_ms=LONG_MS) for n in each])
    meter.run(lock("line", "l"), *[lock("line", f"lw{n}", wait_ms=LONG_MS) for n in each])
    crowd = [SessionId(f"c{n}") for n in range(MANY // 50)]
    meter.run(*[sessions.OpenSession(session_id, LONG_MS) for session_id in crowd])
    meter.run(*[_campaign(f"e{n}", crowd[n % len(crowd)]) for n in each])
    # Sessions with many holds: of one all are asked for, and one has cells.
    for session_id in (ANN, BOB, EVE):
        meter.run(*[lock(f"{session_id}/{n}", f"{session_id}{n}", session_id=session_id) for n in each])
    meter.run(*[Revoke(f"ann/{n}", "", limits.GRACE_MS_MAX) for n in each])
    meter.run(*[cells.PutCell(b"eve/%d" % n, b"v", EVE) for n in range(limits.SESSION_CELLS_MAX)])
    meter.run(*[cells.PutCell(b"cell/%d" % n, b"v") for n in each])
    meter.run(*[primitives.AdvanceFence(f"fence/{n}", 7) for n in each])
    meter.run(*[admin.SetQuota(f"p{n}", Quota()) for n in each])
    meter.run(*[admin.SetNamespace(f"space/{n}", NamespaceSettings()) for n in each])
    for _ in range(limits.RATE_ROWS_MAX):
        meter.now_ms += 1
        meter.run(_TAKE)
    meter.run(*[primitives.TakeRate(f"many/{n}", 1, LONG_MS, Algorithm.GCRA) for n in each])
    meter.run(*[primitives.TakeRate("many/0", 1, LONG_MS, Algorithm.GCRA, 1, LONG_MS) for _ in range(MANY)])
    # Rate limits of which as many places are taken as there may be, by one session and by one attempt.
    meter.run(sessions.OpenSession(PAT, LONG_MS))
    meter.run(*[_several(f"p{n}") for n in range(limits.RATE_PLACES_MAX - 2)])
    meter.run(msgspec.structs.replace(_LATER, attempt_id=AttemptId("taken")))
    # A stream that keeps nearly as much as it may, all of which waits.
    meter.run(streams.ResumeStream(TIM))
    meter.run(*[lock(f"tim/{n}", f"th{n}") for n in range(_LAST)])
    waits = [lock(f"tim/{n}", f"t{n}", EXCLUSIVE, TIM, wait_ms=LONG_MS) for n in range(_LAST)]
    meter.run(_numbered(1, *waits))
    counts = meter.machine.counts()
    assert min(counts["holds"], counts["tickets"]) > 4 * MANY
    return meter


_TAKE: Final = primitives.TakeRate("rate", limits.RATE_LIMIT_MAX, LONG_MS, Algorithm.SLIDING_WINDOW)
_LATER: Final = primitives.TakeRate("later/0", 1, LONG_MS // 2048, Algorithm.GCRA, 1, LONG_MS)
_PUTS: Final = tuple(PutOperation(b"cell/%d" % n, b"w") for n in range(limits.TRANSACTION_PARTS_MAX))
_TAKES: Final = tuple(
    TakeOperation(f"take/{n}" + "/part" * 20, HoldId(f"take{n}"), "v", ttl_ms=LONG_MS)
    for n in range(limits.TRANSACTION_PARTS_MAX)
)
_COMPARES: Final = tuple(
    CellCompare(b"cell/%d" % n, CellField.VERSION, Relation.EQUAL, number=1)
    for n in range(limits.TRANSACTION_PARTS_MAX)
)
_DEEP: Final = tuple(
    Wanted(f"deep/{n}" + "/part" * 28, SHARED, Scope.SUBTREE) for n in range(limits.LOCKS_COUNT_MAX)
)
_NOBODYS: Final = limits.TOKEN_MAX
_WAITING: Final = 7 * MANY + 12
"""The number of a wait for the lock that writers wait for."""
_LAST: Final = limits.STREAM_KEPT_MAX - 2
"""The last number of the stream."""

ASKED: Final[tuple[Command, ...]] = (
    # What asks for something, or for a change.
    sessions.OpenSession(SessionId("new"), LONG_MS),
    lock("new", "n1"),
    lock("read", "n2", SHARED),
    lock("read", "n3"),
    lock("read", "n4", SHARED, BOB),
    lock("line", "n5", EXCLUSIVE, BOB, wait_ms=LONG_MS),
    lock("line", "n6"),
    msgspec.structs.replace(lock("", "n7"), locks=_DEEP),
    permit("used", "n8"),
    permit("used", "n9", session_id=BOB),
    permit("full", "n10"),
    permit("full", "n11", session_id=BOB, wait_ms=LONG_MS),
    permit("full", "n12", session_id=TIM, wait_ms=LONG_MS),
    permit("late", "n13", MANY),
    holds.AcquireSeveral(
        "",
        EXCLUSIVE,
        HoldId("n14"),
        ATTEMPT,
        ttl_ms=LONG_MS,
        wait_ms=LONG_MS,
        locks=(Wanted("line"), Wanted("read", SHARED)),
        permits=(WantedPermits("used"), WantedPermits("full")),
        rates=(WantedRate("rate", _TAKE.limit, _TAKE.window_ms, _TAKE.algorithm),),
    ),
    _campaign("n15"),
    holds.Convert(HoldId("r0"), EXCLUSIVE, HoldId("n16"), ATTEMPT, LONG_MS),
    holds.AddLocks(HoldId("r1"), (Wanted("line"),), HoldId("n17"), ATTEMPT, LONG_MS),
    _TAKE,
    primitives.AdvanceFence("fence/0", 8),
    cells.PutCell(b"cell/0", b"w"),
    cells.TransactCells(_COMPARES, _PUTS),
    cells.TransactCells((), _TAKES),
    cells.TransactCells((LockCompare("new/1"),), (EndOperation(HoldId("r2")), *_TAKES[1:])),
    admin.SetQuota("p0", None),
    admin.RecordAct(ClusterAct.TRANSFER, "", "", "why"),
    admin.HoldRules(is_held=True, reason="why"),
    admin.PreferLeader("n4", "why"),
    admin.SetNamespace("space/0", None),
    entries.OnBehalf("p1", lock("new/1", "n18")),
    # What means a hold, by its id, its token or its value.
    sessions.KeepAlive(ANN),
    holds.Renew(HoldId("r2")),
    RenewByValue("used", "nobody's", kind=SEMAPHORE),
    RenewByValue("read", "v8"),
    ReleaseByValue("read", "nobody's"),
    ReleaseByValue("used", "v8", kind=SEMAPHORE),
    holds.Proclaim(HoldId("e0"), "w"),
    holds.PutOff(HoldId("ann0")),
    Revoke("used", "", 0, SEMAPHORE, _NOBODYS),
    Revoke("read", "", LONG_MS, token=MANY),
    ForceRelease("read", "", token=_NOBODYS),
    ForceRelease("used", "", kind=SEMAPHORE, token=_NOBODYS),
    holds.Release(HoldId("r3")),
    holds.Release(HoldId("f0")),
    holds.Release(HoldId("l")),
    holds.HandOver(HoldId("r5"), 0, "s-3", HoldId("n19")),
    holds.HandOver(HoldId("lw0"), _WAITING),
    holds.HandOver(HoldId("nobody's"), _WAITING),
    entries.Cancel(HoldId("one-taken"), AttemptId("taken")),
    holds.Release(HoldId("p9")),
    entries.Cancel(HoldId("lw2"), ATTEMPT),
    entries.Cancel(HoldId("r4"), ATTEMPT),
    # Streams.
    Numbered(0, TIM, 1, 1, ((1, limits.TOKEN_MAX),), ()),
    Numbered(0, TIM, 1, 1, tuple((16 * n + 1, 16 * n + 15) for n in range(limits.STREAM_RANGES_MAX)), ()),
    _numbered(_LAST + 1, ReleaseByValue("used", "nobody's", SEMAPHORE)),
    _numbered(_LAST + 2, streams.EndWait(1)),
    streams.ResumeStream(TIM),
    # What moves many.
    overrides.Freeze("read", ""),
    overrides.Freeze("ann", ""),
    overrides.Freeze("busy", ""),
    holds.Release(HoldId("b")),
    overrides.Thaw("busy", ""),
    overrides.Thaw("nobody's", ""),
    overrides.Thaw("read", ""),
    overrides.Thaw("ann", ""),
    ResizeSemaphore("full", MANY + MANY // 2),
    ResizeSemaphore("full", 1),
    ResizeSemaphore("nobody's", 1),
    ForceRelease("used", "", kind=SEMAPHORE),
    overrides.WithdrawRevocation("used", "", SEMAPHORE, _NOBODYS),
    overrides.WithdrawRevocation("read", ""),
    Revoke("read", "", limits.GRACE_MS_MAX),
    overrides.WithdrawRevocation("read", "", token=MANY),
    overrides.WithdrawRevocation("read", ""),
    ForceRelease("read", ""),
    overrides.LiftDelay("late", "", SEMAPHORE),
    overrides.ForceWaits("line", "", ticket=1),
    overrides.ForceWaits("line", "", ticket=3 * MANY),
    overrides.ForceWaits("line", ""),
    cells.DeleteCells(b"cell/", is_prefix=True),
    overrides.ForgetFence("fence/0", ""),
    overrides.ForgetRates("rate", ""),
    overrides.ForgetRates("many/0", ""),
    overrides.ForgetRates("many/", "", is_prefix=True),
    overrides.ForgetRates("", "", is_prefix=True),
    sessions.CloseSession(BOB),
    overrides.ForceCloseSession("s-3", ""),
    sessions.CloseSession(PAT),
    sessions.CloseSession(TIM),
    entries.AbandonWaits("n1"),
    entries.Barrier(),
    entries.Tick(),
)
"""Commands, as they are asked one after the other where there is much of everything."""


def test_each_command_costs_what_its_load_says() -> None:
    """However large the state is: a few lines for each of its load, and for what it has free."""
    asked = {type(command) for command in ASKED} | {streams.EndWait}
    assert asked == {row.command for row in ROWS}, "a command whose cost nobody has measured"
    meter = _large()
    too_much = []
    for command in ASKED:
        encoded = encode(command, meter.machine)
        lines = meter.cost(command)
        allowed = LINES_PER_LOAD * (encoded.load + FREE * encoded.count + BOUNDED.get(type(command), 0))
        if lines > allowed:
            too_much.append(f"{lines} lines, {allowed} allowed: {command}"[:300])
    assert not too_much, "\n".join(too_much)
