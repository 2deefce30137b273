"""What each command costs where the state is large, in executed lines, is no more than its load says.

Leaders fill their entries by load. A command that costs more because of what is in the state, and is not
counted so, would let one client keep all nodes busy with little.
"""

from typing import Final

import msgspec

from cluster.commands.encoded_command import FREE, encode
from lockstate.catalogue import ROWS
from lockstate.words import commands, limits
from lockstate.words.cell_operations import (
    CellCompare,
    CellField,
    EndOperation,
    LockCompare,
    PutOperation,
    Relation,
    TakeOperation,
)
from lockstate.words.commands import (
    Acquire,
    AcquirePermits,
    Command,
    ForceRelease,
    Numbered,
    NumberedCommand,
    ReleaseByValue,
    RenewByValue,
    ResizeSemaphore,
    Revoke,
)
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
    commands.AbandonWaits: 6 * limits.ABANDONED_PER_COMMAND_MAX,
    commands.Tick: limits.EXPIRIES_PER_ENTRY_MAX,
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


def _campaign(hold_id: str, session_id: SessionId = BOB) -> commands.Campaign:
    owner = OwnerName(hold_id)
    return commands.Campaign("lead", session_id, "v", HoldId(hold_id), ATTEMPT, owner, LONG_MS)


def _several(hold_id: str) -> commands.AcquireSeveral:
    """Ask for a lock and places of rate limits for a session, of which all but the first are for later."""
    names = [f"later/{n}" for n in range(limits.RATES_COUNT_MAX)]
    return commands.AcquireSeveral(
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
    meter.run(*[commands.OpenSession(session_id, LONG_MS) for session_id in (ANN, BOB, EVE, TIM)])
    delayed = Uncommon(lock_delay_ms=limits.LOCK_DELAY_MS_MAX)
    short = [permit("late", f"d{n}", MANY) for n in each]
    meter.run(*[msgspec.structs.replace(one, ttl_ms=50, uncommon=delayed) for one in short])
    while meter.machine.counts()["holds"]:
        meter.now_ms += limits.RATE_WINDOW_MS_MIN * 6
        meter.run(commands.Tick())
    # A semaphore that many use, and one that many wait for.
    meter.run(*[permit("used", f"u{n}", 2 * MANY, value=f"v{n % 9}") for n in each])
    meter.run(*[permit("full", f"f{n}", MANY) for n in each])
    meter.run(*[permit("full", f"fw{n}", wait_ms=LONG_MS) for n in each])
    # A lock that many read, one that readers wait for, one that writers wait for, and an election.
    meter.run(*[lock("read", f"r{n}", SHARED, value=f"v{n % 9}") for n in each])
    meter.run(lock("busy", "b"), *[lock("busy", f"bw{n}", SHARED, wait_ms=LONG_MS) for n in each])
    meter.run(lock("line", "l"), *[lock("line", f"lw{n}", wait_ms=LONG_MS) for n in each])
    crowd = [SessionId(f"c{n}") for n in range(MANY // 50)]
    meter.run(*[commands.OpenSession(session_id, LONG_MS) for session_id in crowd])
    meter.run(*[_campaign(f"e{n}", crowd[n % len(crowd)]) for n in each])
    # Sessions with many holds: of one all are asked for, and one has cells.
    for session_id in (ANN, BOB, EVE):
        meter.run(*[lock(f"{session_id}/{n}", f"{session_id}{n}", session_id=session_id) for n in each])
    meter.run(*[Revoke(f"ann/{n}", "", limits.GRACE_MS_MAX) for n in each])
    meter.run(*[commands.PutCell(b"eve/%d" % n, b"v", EVE) for n in range(limits.SESSION_CELLS_MAX)])
    meter.run(*[commands.PutCell(b"cell/%d" % n, b"v") for n in each])
    meter.run(*[commands.AdvanceFence(f"fence/{n}", 7) for n in each])
    meter.run(*[commands.SetQuota(f"p{n}", Quota()) for n in each])
    meter.run(*[commands.SetNamespace(f"space/{n}", NamespaceSettings()) for n in each])
    for _ in range(limits.RATE_ROWS_MAX):
        meter.now_ms += 1
        meter.run(_TAKE)
    meter.run(*[commands.TakeRate(f"many/{n}", 1, LONG_MS, Algorithm.GCRA) for n in each])
    meter.run(*[commands.TakeRate("many/0", 1, LONG_MS, Algorithm.GCRA, 1, LONG_MS) for _ in range(MANY)])
    # Rate limits of which as many places are taken as there may be, by one session and by one attempt.
    meter.run(commands.OpenSession(PAT, LONG_MS))
    meter.run(*[_several(f"p{n}") for n in range(limits.RATE_PLACES_MAX - 2)])
    meter.run(msgspec.structs.replace(_LATER, attempt_id=AttemptId("taken")))
    # A stream that keeps nearly as much as it may, all of which waits.
    meter.run(commands.ResumeStream(TIM))
    meter.run(*[lock(f"tim/{n}", f"th{n}") for n in range(_LAST)])
    waits = [lock(f"tim/{n}", f"t{n}", EXCLUSIVE, TIM, wait_ms=LONG_MS) for n in range(_LAST)]
    meter.run(_numbered(1, *waits))
    counts = meter.machine.counts()
    assert min(counts["holds"], counts["tickets"]) > 4 * MANY
    return meter


_TAKE: Final = commands.TakeRate("rate", limits.RATE_LIMIT_MAX, LONG_MS, Algorithm.SLIDING_WINDOW)
_LATER: Final = commands.TakeRate("later/0", 1, LONG_MS // 2048, Algorithm.GCRA, 1, LONG_MS)
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
    commands.OpenSession(SessionId("new"), LONG_MS),
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
    commands.AcquireSeveral(
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
    commands.Convert(HoldId("r0"), EXCLUSIVE, HoldId("n16"), ATTEMPT, LONG_MS),
    commands.AddLocks(HoldId("r1"), (Wanted("line"),), HoldId("n17"), ATTEMPT, LONG_MS),
    _TAKE,
    commands.AdvanceFence("fence/0", 8),
    commands.PutCell(b"cell/0", b"w"),
    commands.TransactCells(_COMPARES, _PUTS),
    commands.TransactCells((), _TAKES),
    commands.TransactCells((LockCompare("new/1"),), (EndOperation(HoldId("r2")), *_TAKES[1:])),
    commands.SetQuota("p0", None),
    commands.RecordAct(ClusterAct.TRANSFER, "", "", "why"),
    commands.HoldRules(is_held=True, reason="why"),
    commands.PreferLeader("n4", "why"),
    commands.SetNamespace("space/0", None),
    commands.OnBehalf("p1", lock("new/1", "n18")),
    # What means a hold, by its id, its token or its value.
    commands.KeepAlive(ANN),
    commands.Renew(HoldId("r2")),
    RenewByValue("used", "nobody's", kind=SEMAPHORE),
    RenewByValue("read", "v8"),
    ReleaseByValue("read", "nobody's"),
    ReleaseByValue("used", "v8", kind=SEMAPHORE),
    commands.Proclaim(HoldId("e0"), "w"),
    commands.PutOff(HoldId("ann0")),
    Revoke("used", "", 0, SEMAPHORE, _NOBODYS),
    Revoke("read", "", LONG_MS, token=MANY),
    ForceRelease("read", "", token=_NOBODYS),
    ForceRelease("used", "", kind=SEMAPHORE, token=_NOBODYS),
    commands.Release(HoldId("r3")),
    commands.Release(HoldId("f0")),
    commands.Release(HoldId("l")),
    commands.HandOver(HoldId("r5"), 0, "s-3", HoldId("n19")),
    commands.HandOver(HoldId("lw0"), _WAITING),
    commands.HandOver(HoldId("nobody's"), _WAITING),
    commands.Cancel(HoldId("one-taken"), AttemptId("taken")),
    commands.Release(HoldId("p9")),
    commands.Cancel(HoldId("lw2"), ATTEMPT),
    commands.Cancel(HoldId("r4"), ATTEMPT),
    # Streams.
    Numbered(0, TIM, 1, 1, ((1, limits.TOKEN_MAX),), ()),
    Numbered(0, TIM, 1, 1, tuple((16 * n + 1, 16 * n + 15) for n in range(limits.STREAM_RANGES_MAX)), ()),
    _numbered(_LAST + 1, ReleaseByValue("used", "nobody's", SEMAPHORE)),
    _numbered(_LAST + 2, commands.EndWait(1)),
    commands.ResumeStream(TIM),
    # What moves many.
    commands.Freeze("read", ""),
    commands.Freeze("ann", ""),
    commands.Freeze("busy", ""),
    commands.Release(HoldId("b")),
    commands.Thaw("busy", ""),
    commands.Thaw("nobody's", ""),
    commands.Thaw("read", ""),
    commands.Thaw("ann", ""),
    ResizeSemaphore("full", MANY + MANY // 2),
    ResizeSemaphore("full", 1),
    ResizeSemaphore("nobody's", 1),
    ForceRelease("used", "", kind=SEMAPHORE),
    commands.WithdrawRevocation("used", "", SEMAPHORE, _NOBODYS),
    commands.WithdrawRevocation("read", ""),
    Revoke("read", "", limits.GRACE_MS_MAX),
    commands.WithdrawRevocation("read", "", token=MANY),
    commands.WithdrawRevocation("read", ""),
    ForceRelease("read", ""),
    commands.LiftDelay("late", "", SEMAPHORE),
    commands.ForceWaits("line", "", ticket=1),
    commands.ForceWaits("line", "", ticket=3 * MANY),
    commands.ForceWaits("line", ""),
    commands.DeleteCells(b"cell/", is_prefix=True),
    commands.ForgetFence("fence/0", ""),
    commands.ForgetRates("rate", ""),
    commands.ForgetRates("many/0", ""),
    commands.ForgetRates("many/", "", is_prefix=True),
    commands.ForgetRates("", "", is_prefix=True),
    commands.CloseSession(BOB),
    commands.ForceCloseSession("s-3", ""),
    commands.CloseSession(PAT),
    commands.CloseSession(TIM),
    commands.AbandonWaits("n1"),
    commands.Barrier(),
    commands.Tick(),
)
"""Commands, as they are asked one after the other where there is much of everything."""


def test_each_command_costs_what_its_load_says() -> None:
    """However large the state is: a few lines for each of its load, and for what it has free."""
    asked = {type(command) for command in ASKED} | {commands.EndWait}
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
