"""Random commands over so few names that they meet all the time.

All chance comes from a `Random`: one with a seed, or one of Hypothesis, which can make a program smaller.
"""

from collections.abc import Callable
from itertools import pairwise
from random import Random
from typing import Final

from msgspec.structs import replace

from lockstate.words import limits
from lockstate.words.cell_operations import (
    CellCompare,
    CellField,
    Compare,
    DeleteOperation,
    EndOperation,
    GetOperation,
    HoldCompare,
    LockCompare,
    Operation,
    PutOperation,
    Relation,
    RenewOperation,
    TakeOperation,
)
from lockstate.words.commands.admin import HoldRules, PreferLeader, RecordAct, SetNamespace, SetQuota
from lockstate.words.commands.cells import DeleteCells, PutCell, TransactCells
from lockstate.words.commands.entries import AbandonWaits, Cancel, Command, OnBehalf
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
from lockstate.words.commands.streams import EndWait, Numbered, NumberedCommand
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
from lockstate.words.settings import NamespaceSettings, Quota, RateSettings
from lockstate.words.wanted import Asking, Uncommon, Wanted, WantedPermits, WantedRate
from tests.property.model_locks import names, parts
from tests.property.model_records import ModelState, Plea

NAMES = ["e", "e", "a", "a/b", "a/b/c", "a/d"]
SEMAPHORES = ["a", "pool/x"]
ELECTIONS = ["a", "boss/x"]
RESOURCES = ["disk", "a"]
RATES = [("mail", Algorithm.FIXED_WINDOW), ("a", Algorithm.GCRA), ("log", Algorithm.SLIDING_WINDOW)]
RATE_WINDOWS_MS = [300, 300, 1000]
KEYS = [b"c", b"c/a", b"c/b", b"\xff"]
ORIGINS = ["n1", "n2"]
SESSION_IDS = [SessionId("s1"), SessionId("s2"), SessionId("s3")]
OWNERS = [NO_OWNER, NO_OWNER, NO_OWNER, OwnerName("ann"), OwnerName("bob")]
REQUEST_IDS = ["", "", "", "", "r1", "r2"]
REASONS = ["", "because"]
ATTEMPT_IDS = [AttemptId("a1"), AttemptId("a2")]
MODES = [*Mode, Mode.EXCLUSIVE, Mode.SHARED, Mode.SHARED]
SCOPES = [Scope.NODE, Scope.NODE, Scope.SUBTREE]
TTLS_MS = [5000, 50, 200, 500]
SESSION_TTLS_MS = [5000, 5000, 200, 1000]
WAITS_MS = [0, 3000, 3000, 3000, 3000, 50, 100, 300]
DELAYS_MS = [0, 0, 0, 50, 120]
GRACES_MS = [0, 50, 120, 120, 1000]
LIMITS = [3] * 9 + [2]
LABELS: list[dict[str, str]] = [{}, {"owner": "ann"}, {"host": "h1"}]
VALUES = ["", "v1", "v2"]
PRIORITIES = [5, 0, 1, 4, 6, 9, 9]

MISSING_HOLD_ID = HoldId("h-missing")
_HX, _TX = HoldId("hx"), HoldId("tx")
_A1 = ATTEMPT_IDS[0]
_S1 = SESSION_IDS[0]
_AGE_MS = limits.REQUEST_AGE_MS
PAUSES_MS = [0] * 60 + [1, 10, 10, 20, 20, 49, 50, 51, 100, 100, 300, _AGE_MS, _AGE_MS + 1]
"""Milliseconds of cluster time between entries, to choose from."""


def lease(rng: Random) -> tuple[SessionId, int]:
    """Return a session id and a ttl: one for a session, two in three, or one for a lease of its own."""
    return (rng.choice(SESSION_IDS), 0) if rng.randrange(3) else (NO_SESSION, rng.choice(TTLS_MS))


def lock(rng: Random, hold_id: HoldId) -> Command:
    """Ask for a lock, or for several."""
    several: tuple[Wanted, ...] = ()
    if rng.randrange(4) == 0:
        wanted = {name: rng.choice(MODES) for name in rng.choices(NAMES, k=rng.randint(1, 3))}
        several = tuple(Wanted(name, mode, rng.choice(SCOPES)) for name, mode in wanted.items())
    session_id, ttl_ms = lease(rng)
    uncommon = _uncommon(rng)
    if uncommon is not None and uncommon.is_endless:
        session_id, ttl_ms = NO_SESSION, 0
    return Acquire(
        "" if several else rng.choice(NAMES),
        rng.choice(MODES),
        hold_id,
        rng.choice(ATTEMPT_IDS),
        session_id,
        ttl_ms,
        rng.choice(OWNERS),
        rng.choice(WAITS_MS),
        rng.choice(REQUEST_IDS),
        Scope.NODE if several else rng.choice(SCOPES),
        several,
        rng.choice([*IfHeld, None]) if rng.randrange(2) else None,
        uncommon,
    )


def _uncommon(rng: Random) -> Uncommon | None:
    """Return what only few holds have, or nothing of it."""
    if rng.randrange(4) == 0:
        return None
    delay_ms, note = rng.choice(DELAYS_MS), rng.choice(["", "n"])
    if rng.randrange(2):
        return Uncommon(delay_ms, note)
    value = rng.choice(VALUES)
    is_secret = bool(value) and rng.randrange(2) == 0
    return Uncommon(delay_ms, note, value, is_secret, rng.choice(PRIORITIES), rng.randrange(4) == 0)


def permits(rng: Random, hold_id: HoldId) -> Command:
    """Ask for permits."""
    session_id, ttl_ms = lease(rng)
    limit, uncommon = rng.choice(LIMITS), _uncommon(rng)
    if uncommon is not None and uncommon.is_endless:
        session_id, ttl_ms = NO_SESSION, 0
    is_open = rng.randrange(2) == 0
    return AcquirePermits(
        rng.choice(SEMAPHORES),
        rng.choice([0, limit, limit, 4]) if is_open else limit,
        rng.choice([1, 2]),
        hold_id,
        rng.choice(ATTEMPT_IDS),
        session_id,
        ttl_ms,
        rng.choice(OWNERS),
        rng.choice(WAITS_MS),
        rng.choice(REQUEST_IDS),
        is_strict=not is_open or rng.randrange(4) == 0,
        uncommon=uncommon,
    )


def several(rng: Random, hold_id: HoldId) -> Command:
    """Ask for things of several kinds, mostly of those that others want too."""
    asked = lock(rng, hold_id)
    assert isinstance(asked, Acquire)
    wanted = tuple(
        WantedPermits(name, rng.choice([0, *LIMITS]), rng.choice([1, 1, 2]))
        for name in rng.sample(SEMAPHORES, k=rng.choice([0, 1, 1, 2]))
    )
    rates = tuple(
        WantedRate(name, 2, rng.choice(RATE_WINDOWS_MS), algorithm, rng.choice([1, 2]))
        for name, algorithm in rng.choice([[], RATES[:1], RATES[:1], RATES[1:2], RATES])
    )
    locks = asked.locks or (Wanted(asked.name, asked.mode, asked.scope),)
    if rates and rng.randrange(2) == 0:
        # Something that nobody else wants, so that nothing but a rate can be in the way.
        locks, wanted = (Wanted(f"of/{hold_id}"),), ()
    elif len(wanted) + len(rates) == 0:
        wanted = (WantedPermits(SEMAPHORES[0], LIMITS[0]),)
    if wanted and len(wanted) + len(rates) > 1 and rng.randrange(3) == 0:
        locks = ()
    fields = {name: getattr(asked, name) for name in Acquire.__struct_fields__}
    fields |= {"name": "", "mode": Mode.EXCLUSIVE, "scope": Scope.NODE, "locks": locks}
    if asked.uncommon is not None and rng.randrange(16):
        fields["uncommon"] = Uncommon(asked.uncommon.lock_delay_ms, asked.uncommon.note)
    if rates:
        fields["wait_ms"] = rng.choice([0, 50, 100, 3000])
    return AcquireSeveral(**fields, permits=wanted, rates=rates)


def take_rate(rng: Random) -> TakeRate:
    """Take from a rate limit from which others take as well, mostly with a wait for a place."""
    name, algorithm = rng.choice(RATES)
    is_said = rng.randrange(3)
    return TakeRate(
        name,
        rng.choice([2, 2, 3]) if is_said else 0,
        rng.choice(RATE_WINDOWS_MS) if is_said else 0,
        algorithm if is_said > 1 else None,
        rng.choice([1, 1, 2]),
        rng.choice(WAITS_MS),
        rng.choice(REQUEST_IDS),
        rng.choice([NO_ATTEMPT, *ATTEMPT_IDS, AttemptId(f"t{rng.randrange(1000)}")]),
    )


def insist(rng: Random, first_id: HoldId, second_id: HoldId) -> list[Command]:
    """Take what is left of a rate limit, and ask twice for the same place behind it, as over two nodes."""
    name, algorithm = rng.choice(RATES)
    rest = TakeRate(name, 2, RATE_WINDOWS_MS[-1], algorithm, 2)
    asked = replace(rest, cost=1, wait_ms=3000, request_id="r1", attempt_id=AttemptId(first_id))
    return [rest, asked, replace(asked, attempt_id=AttemptId(second_id))]


def cancelled_place(rng: Random, state: ModelState) -> Command:
    """Take back an attempt at a place of a rate limit, if there is one."""
    ids = [one for _, place in state.places() for one in place.ids]
    attempt_id = AttemptId(rng.choice(ids)) if ids else rng.choice(ATTEMPT_IDS)
    return Cancel(HoldId(attempt_id), attempt_id)


def forget_rates(rng: Random, _: ModelState) -> Command:
    """Forget rate limits: of one name, or of several."""
    name, reason, request_id = rng.choice(RATES)[0], rng.choice(["", "because"]), rng.choice(REQUEST_IDS)
    if rng.randrange(2):
        return ForgetRates(name, reason, request_id=request_id)
    return ForgetRates(name[: rng.randrange(len(name) + 1)], reason, is_prefix=True, request_id=request_id)


def rush(rng: Random, first_id: HoldId, second_id: HoldId) -> list[Command]:
    """Ask twice for the same lock and the same places of a rate limit, and give the first hold back."""
    (name, algorithm), locks = RATES[0], (Wanted(f"of/{first_id}"),)
    rates = (WantedRate(name, 2, RATE_WINDOWS_MS[-1], algorithm, 2),)
    first, second = [
        AcquireSeveral(
            "",
            Mode.EXCLUSIVE,
            hold_id,
            rng.choice(ATTEMPT_IDS),
            ttl_ms=5000,
            wait_ms=rng.choice([100, 300, 3000]),
            locks=locks,
            rates=rates,
        )
        for hold_id in (first_id, second_id)
    ]
    return [first, second, Release(first_id)]


def campaign(rng: Random, hold_id: HoldId) -> Command:
    """Ask to lead."""
    return Campaign(
        rng.choice(ELECTIONS),
        rng.choice(SESSION_IDS),
        rng.choice(VALUES),
        hold_id,
        rng.choice(ATTEMPT_IDS),
        rng.choice(OWNERS),
        rng.choice(WAITS_MS),
        rng.choice(REQUEST_IDS),
        rng.choice([None, None, IfHeld.RENEW, IfHeld.REFUSE]),
    )


def wish(rng: Random, hold_id: HoldId) -> Command:
    """Ask for something that can be held."""
    kinds = [lock, lock, lock, lock, permits, permits, several, campaign]
    return rng.choice(kinds)(rng, hold_id)


def asking(rng: Random, state: ModelState, command: Command) -> Command:
    """Return a request, which asks by itself if it waits and a namespace lets it, and sometimes if not."""
    lets = [of.settings.ask_after_ms_min is not None for of in state.namespaces.values()]
    if not isinstance(command, Acquire | AcquirePermits) or not command.wait_ms or not any(lets):
        return command
    if isinstance(command, AcquireSeveral) and rng.randrange(8):
        return command
    asks = Asking(rng.choice([0, 0, 20, command.wait_ms - 1]), rng.choice([10, *GRACES_MS]))
    return replace(command, uncommon=replace(command.uncommon or Uncommon(), asks=asks))


def conversion(rng: Random, state: ModelState, ticket_id: HoldId) -> Command:
    """Ask for another mode of what somebody holds, mostly upwards."""
    mode = rng.choice([*Mode, Mode.EXCLUSIVE, Mode.EXCLUSIVE])
    shared = [h.hold_id for h in state.holds if any(lock.mode is not Mode.EXCLUSIVE for lock in h.locks)]
    holds = shared * 3 + [hold.hold_id for hold in state.holds] + [MISSING_HOLD_ID]
    attempt_id, wait_ms = rng.choice(ATTEMPT_IDS), rng.choice(WAITS_MS)
    return Convert(rng.choice(holds), mode, ticket_id, attempt_id, wait_ms, rng.choice(REQUEST_IDS))


def addition(rng: Random, state: ModelState, ticket_id: HoldId) -> Command:
    """Ask for more locks for what somebody holds: also for what it has, or what others hold."""
    holds = [h.hold_id for h in state.holds if h.kind is HoldKind.LOCK] * 3
    holds += [hold.hold_id for hold in state.holds] + [MISSING_HOLD_ID]
    modes = [Mode.EXCLUSIVE, Mode.EXCLUSIVE, *Mode]
    scopes = [Scope.NODE, Scope.NODE, Scope.SUBTREE]
    locks = [
        Wanted(rng.choice(NAMES), rng.choice(modes), rng.choice(scopes)) for _ in range(rng.randint(1, 2))
    ]
    attempt_id, wait_ms = rng.choice(ATTEMPT_IDS), rng.choice(WAITS_MS)
    return AddLocks(rng.choice(holds), tuple(locks), ticket_id, attempt_id, wait_ms, rng.choice(REQUEST_IDS))


def other(rng: Random, state: ModelState) -> Command:
    """Ask for something else: mostly about what is held or waited for."""
    return rng.choice(_OTHERS)(rng, state)


def _id(rng: Random, state: ModelState) -> HoldId:
    alive = [hold.hold_id for hold in state.holds] + [ticket.ticket_id for ticket in state.tickets]
    return rng.choice([*alive * 3, MISSING_HOLD_ID])


def _some_names(rng: Random, state: ModelState) -> Command:
    """Give back a part of what is held, sometimes more than that."""
    several = [hold for hold in state.holds if len(hold.locks) > 1] or state.holds
    hold = rng.choice(several) if several else None
    held = names(hold) if hold is not None else []
    some = tuple(rng.choices([*held * 5, "e"], k=rng.randint(1, 2)))
    return Release(hold.hold_id if hold is not None else MISSING_HOLD_ID, rng.choice(REQUEST_IDS), some)


def _kind_of(rng: Random, state: ModelState, hold_id: HoldId) -> HoldKind:
    """Return the kind of a hold, sometimes another one."""
    hold = state.hold(hold_id)
    return hold.kind if hold is not None and rng.randrange(3) else rng.choice(list(HoldKind))


def release_of(rng: Random, state: ModelState) -> Command:
    """Give back what is mostly of the kind that is named."""
    hold_id = _id(rng, state)
    return Release(hold_id, rng.choice(REQUEST_IDS), (), _kind_of(rng, state, hold_id))


def renewal_of(rng: Random, state: ModelState) -> Command:
    """Renew what is mostly of the kind that is named."""
    hold_id = _id(rng, state)
    # As many random bits as for the ttl alone: other histories stay what they were.
    ttl_ms, exact = rng.choice([(0, False), (0, False), (0, False), (0, True), (50, False), (50, True)])
    return Renew(hold_id, ttl_ms, rng.choice(REQUEST_IDS), _kind_of(rng, state, hold_id), exact)


def by_value(rng: Random, state: ModelState) -> Command:
    """Release or renew what mostly has the value."""
    marked = [hold for hold in state.holds if hold.value and hold.kind is not HoldKind.ELECTION]
    hold = rng.choice(marked or state.holds) if state.holds else None
    kind = hold.kind if hold is not None and rng.randrange(8) else rng.choice(list(HoldKind))
    name = rng.choice(names(hold) if hold is not None and rng.randrange(8) else NAMES)
    value = hold.value if hold is not None and rng.randrange(4) else rng.choice(VALUES)
    if rng.randrange(2):
        return ReleaseByValue(name, value, kind, rng.choice(REQUEST_IDS))
    plain, exact, adding = (False, False), (True, False), (True, True)
    asked = [*[(0, plain)] * 3, (0, exact), (50, plain), (50, exact), (1, plain), (50, adding)]
    ttl_ms, (is_exact, adds) = rng.choice(asked)
    return RenewByValue(name, value, ttl_ms, kind, rng.choice(REQUEST_IDS), is_exact, adds)


def force_end(rng: Random, state: ModelState) -> Command:
    """End what is held of a name, all of it or that of one token, mostly of the kind that is held."""
    hold = rng.choice(state.holds) if state.holds else None
    token = hold.token if hold is not None and rng.randrange(2) else rng.choice([0, 0, 1])
    if hold is not None and rng.randrange(3):
        kind, name = _kind_of(rng, state, hold.hold_id), rng.choice(names(hold))
    else:
        kind, name = rng.choice(list(HoldKind)), rng.choice([*NAMES, *SEMAPHORES, *ELECTIONS])
    delay_ms = rng.choice(DELAYS_MS) if kind is not HoldKind.ELECTION else 0
    return ForceRelease(name, "because", delay_ms, rng.choice(REQUEST_IDS), kind, token)


def revocation(rng: Random, state: ModelState) -> Command:
    """Ask for what is held of a name, mostly of the kind that is held, sometimes for somebody who waits.

    Or take back what was asked.
    """
    if state.pleas and not rng.randrange(3):
        return withdrawal(rng, rng.choice(state.pleas))
    meant = force_end(rng, state)
    assert isinstance(meant, ForceRelease)
    numbers = [ticket.number for ticket in state.tickets if ticket.kind is meant.kind]
    ticket = rng.choice([0, 0, 0, *numbers, 9999])
    return Revoke(
        meant.name,
        rng.choice(REASONS),
        rng.choice(GRACES_MS),
        meant.kind,
        meant.token,
        ticket,
        rng.choice(REQUEST_IDS),
    )


def withdrawal(rng: Random, plea: Plea) -> Command:
    """Take back what was asked: all of it, of one holder, or for one wait; sometimes of another kind."""
    kind = plea.kind if rng.randrange(8) else rng.choice(list(HoldKind))
    token, ticket = rng.choice([0, 0, plea.hold.token, 9999]), rng.choice([0, 0, plea.ticket, 9999])
    return WithdrawRevocation(plea.name, rng.choice(REASONS), kind, token, ticket, rng.choice(REQUEST_IDS))


def put_off(rng: Random, state: ModelState) -> Command:
    """Put off what is mostly to be given up, or take that back."""
    if state.pleas and rng.randrange(2):
        return withdrawal(rng, rng.choice(state.pleas))
    asked = [plea.hold.hold_id for plea in state.pleas]
    hold_id = rng.choice([*asked * 4, _id(rng, state)])
    return PutOff(hold_id, _kind_of(rng, state, hold_id), rng.choice(REQUEST_IDS))


def hand_over(rng: Random, state: ModelState) -> Command:
    """Hand a lock over, mostly to somebody who waits for it or to a session that is there."""
    hold = rng.choice(state.holds) if state.holds and rng.randrange(8) else None
    hold_id, request_id = (hold.hold_id if hold else MISSING_HOLD_ID), rng.choice(REQUEST_IDS)
    waits = [ticket.number for ticket in state.tickets if hold and names(ticket) == names(hold)]
    others = [ticket.number for ticket in state.tickets]
    if rng.randrange(3) and (waits or others):
        return HandOver(hold_id, rng.choice([*waits * 9, *others, 9999]), request_id=request_id)
    sessions = [session.public_name for session in state.sessions if session.public_name]
    new_id = rng.choice([*[HoldId(f"h{rng.randrange(1000, 9999)}")] * 9, hold_id, HoldId("s1")])
    return HandOver(hold_id, 0, rng.choice([*sessions * 5, "s-99999", "x"]), new_id, request_id)


def force_close(rng: Random, state: ModelState) -> Command:
    """End a session by its public name, sometimes one that is not there."""
    names = [session.public_name for session in state.sessions if session.public_name]
    name = rng.choice([*names * 5, "s-0", "s-01", "s-99999", "x"])
    return ForceCloseSession(name, rng.choice(["", "because"]), rng.choice(REQUEST_IDS))


def force_waits(rng: Random, state: ModelState) -> Command:
    """End waits of a name, all of them or that of one number, mostly where somebody waits."""
    ticket = rng.choice(state.tickets) if state.tickets else None
    reason, request_id = rng.choice(["", "because"]), rng.choice(REQUEST_IDS)
    if ticket is None or rng.randrange(4) == 0:
        name, kind = rng.choice([*NAMES, *SEMAPHORES, *ELECTIONS]), rng.choice(list(HoldKind))
        return ForceWaits(name, reason, kind, rng.choice([0, 0, 9999]), request_id)
    part = rng.choice(parts(ticket))
    return ForceWaits(part.name, reason, part.kind, rng.choice([0, ticket.number]), request_id)


def lift_delay(rng: Random, state: ModelState) -> Command:
    """Lift the delays of a name, mostly of one that has some."""
    delayed = [(delay.kind, delay.name) for delay in state.delays]
    kind, name = rng.choice([*delayed * 3, (HoldKind.LOCK, "e"), (HoldKind.SEMAPHORE, "a")])
    return LiftDelay(name, rng.choice(["", "because"]), kind, rng.choice(REQUEST_IDS))


def put_cell(rng: Random) -> Command:
    """Write a cell, for a session, with a lease, or for good."""
    put = _put(rng, rng.choice(KEYS))
    return PutCell(put.key, put.value, put.session_id, put.ttl_ms, rng.choice(REQUEST_IDS))


def _put(rng: Random, key: bytes) -> PutOperation:
    session_id, ttl_ms = lease(rng) if rng.randrange(2) else (NO_SESSION, 0)
    keeps_lease = not rng.randrange(10 if session_id or ttl_ms else 3)
    return PutOperation(key, rng.choice([b"", b"v1", b"v2"]), session_id, ttl_ms, keeps_lease)


def transaction(rng: Random, state: ModelState) -> Command:
    """Compare what is mostly true, and read, write and delete some cells, and change some locks."""
    compares = [_compare(rng, state) for _ in range(rng.randint(0, 2))]
    then, otherwise = _branch(rng, state), _branch(rng, state)
    for hold in rng.sample(state.holds, k=min(len(state.holds), rng.choice([0, 0, 1]))):
        compares.append(LockCompare(rng.choice(hold.locks).name if hold.locks else "e", hold.hold_id))
        if not any(isinstance(part, EndOperation) and part.hold_id == hold.hold_id for part in then):
            then = (EndOperation(hold.hold_id, "because"), *then)
    not_for = rng.choice([(), (), tuple(NAMES)])
    return TransactCells(tuple(compares), then, otherwise, rng.choice(REQUEST_IDS), not_for)


def _compare(rng: Random, state: ModelState) -> Compare:
    which = rng.randrange(4)
    if which == 0:
        token = rng.choice([0, *[hold.token for hold in state.holds]])
        return HoldCompare(_id(rng, state), token)
    if which == 1:
        return LockCompare(rng.choice(NAMES), rng.choice([NO_HOLD, _id(rng, state)]))
    key, of = rng.choice(KEYS), rng.choice(list(CellField))
    cell = state.cell(key)
    relation = rng.choice([Relation.EQUAL, *Relation])
    if of is CellField.VALUE:
        return CellCompare(key, of, relation, value=rng.choice([b"v1", cell.value if cell else b""]))
    return CellCompare(key, of, relation, rng.choice([1, getattr(cell, of.value) if cell else 0]))


def _branch(rng: Random, state: ModelState) -> tuple[Operation, ...]:
    keys = rng.sample(KEYS, k=rng.randint(0, 3))
    parts: list[Operation] = [_put(rng, key) if rng.randrange(3) else DeleteOperation(key) for key in keys]
    parts += [GetOperation(rng.choice(KEYS)) for _ in range(rng.randint(0, 2))]
    if rng.randrange(2):
        parts += _lock_parts(rng, state, rng.sample(NAMES, k=rng.randint(0, 2)))
    return tuple(rng.sample(parts, k=len(parts)))


def lock_transaction(rng: Random, state: ModelState) -> TransactCells:
    """Take, end and renew locks, mostly those that can be, and write a cell with that."""
    held = {lock.name for hold in state.holds for lock in hold.locks}
    free = [name for name in dict.fromkeys(NAMES) if name not in held]
    names = rng.sample(free, k=min(len(free), rng.randint(0, 2)))
    compares = [LockCompare(name) for name in names if rng.randrange(3) == 0]
    parts = _lock_parts(rng, state, names)
    if rng.randrange(2):
        parts.append(_put(rng, rng.choice(KEYS)))
    otherwise = rng.choice([(), (GetOperation(KEYS[0]),)])
    return TransactCells(tuple(compares), tuple(parts), otherwise, rng.choice(REQUEST_IDS))


def _lock_parts(rng: Random, state: ModelState, names: list[str]) -> list[Operation]:
    """Take what has these names, or is held by what ends before; renew what is held."""
    parts: list[Operation] = []
    for hold in rng.sample(state.holds, k=min(len(state.holds), rng.randint(0, 2))):
        if rng.randrange(4) == 0:
            parts.append(RenewOperation(hold.hold_id, rng.choice(TTLS_MS)))
            continue
        parts.append(EndOperation(hold.hold_id))
        names += [lock.name for lock in hold.locks if lock.name in NAMES and lock.name not in names]
    for name in names:
        value, ttl_ms = rng.choice(["", "v1"]), rng.choice([0, *TTLS_MS])
        new_id = rng.choice([*[HoldId(f"h{rng.randrange(1000, 9999)}")] * 9, _id(rng, state), HoldId("s1")])
        parts.append(TakeOperation(name, new_id, value, rng.choice(OWNERS), ttl_ms))
    return parts


def frame(rng: Random, state: ModelState, new_id: Callable[[str], HoldId]) -> Numbered | None:
    """Number some commands of a session that has a stream; None if there is none.

    Sometimes the first number is wrong, or the connection an old one.
    """
    if not state.streams:
        return None
    session_id = rng.choice(sorted(state.streams))
    stream = state.streams[session_id]
    commands: list[NumberedCommand] = []
    for _ in range(rng.randint(0, 3)):
        command = rng.choice(
            [
                wish(rng, new_id("h")),
                wish(rng, new_id("h")),
                conversion(rng, state, new_id("t")),
                EndWait(rng.randint(1, stream.last + 1)),
                other(rng, state),
            ]
        )
        if isinstance(command, NumberedCommand) and not isinstance(command, AcquireSeveral):
            commands.append(command)
    seen = [number for number in stream.kept if rng.randrange(3)]
    ranges = [(number, number + rng.randrange(2)) for number in seen]
    if rng.randrange(10):  # mostly such as are taken: no two have a number in common
        ranges = [one for before, one in pairwise([(0, 0), *ranges]) if before[1] < one[0]]
    acked = tuple(ranges)
    first = stream.last + 1 if rng.randrange(8) else rng.randint(0, stream.last + 3)
    epoch = stream.epoch - (rng.randrange(10) == 0)
    count = len(commands) + (rng.randrange(30) == 0)
    if first <= stream.last:
        commands, count = [], 0
    return Numbered(count, session_id, epoch, first, acked, tuple(commands))


_QUOTAS: Final = (
    *[None] * 6,
    Quota(holds=4),
    Quota(2, 5, 2),
    Quota(waits=1),
    Quota(cells=0, fences=0),
    Quota(cells=1, fences=0, bytes=8),
    Quota(bytes=2),
    Quota(rate_limits=1),
)
"""Mostly none, or little would ever be held."""

NAMESPACES: Final = ("a", "a/b", "c", "e", "pool", "mail")
_SETTINGS: Final = (
    *[None] * 16,
    NamespaceSettings(holds=1, held_ms_max=60),
    NamespaceSettings(60, 150, 30, waits=1),
    NamespaceSettings(no_deadline=False, holds=3, cells=1),
    NamespaceSettings(no_deadline=True, priority=False, cells=0, fences=0, held_ms_max=80),
    NamespaceSettings(ttl_ms_min=100, lock_delay_ms_min=50, priority=True, fences=1),
    NamespaceSettings(bytes=12, if_held=IfHeld.REFUSE, held_ms_max=70),
    NamespaceSettings(rate_limits=0, held_ms_max=50),
    NamespaceSettings(held_ms_max=50),
    NamespaceSettings(rate=RateSettings(3, 300)),
    NamespaceSettings(rate=RateSettings(2, 1000, Algorithm.GCRA)),
    NamespaceSettings(rate=RateSettings(2, 300, Algorithm.SLIDING_WINDOW)),
    NamespaceSettings(priority=True, ask_after_ms_min=0),
    NamespaceSettings(ask_after_ms_min=10, grace_ms_min=10),
)
"""Mostly none, as of quotas."""


def namespace(rng: Random, _: ModelState) -> Command:
    """Set a namespace, or remove one."""
    return SetNamespace(
        rng.choice(NAMESPACES), rng.choice(_SETTINGS), rng.choice(REQUEST_IDS), rng.choice(REASONS)
    )


def act(rng: Random, _: ModelState) -> Command:
    """Record that somebody changes the cluster, hold its rules, or say who should lead."""
    dice = rng.randrange(4)
    if dice == 0:
        return HoldRules(bool(rng.randrange(2)), rng.choice(REASONS), rng.choice(REQUEST_IDS))
    if dice == 1:
        return PreferLeader(rng.choice(["n4", "n5", ""]), rng.choice(REASONS), rng.choice(REQUEST_IDS))
    peer, node_id = rng.choice(["", "h:1"]), rng.choice(["", "n4"])
    return RecordAct(
        rng.choice(list(ClusterAct)), node_id, peer, rng.choice(REASONS), rng.choice(REQUEST_IDS)
    )


def freezing(rng: Random, state: ModelState) -> Command:
    """Freeze a prefix, mostly for a short time, or thaw one."""
    known = [one.prefix for one in state.freezes]
    prefix = rng.choice([*known * 4, *NAMESPACES])
    if rng.randrange(2) and (prefix not in known or rng.randrange(3)):
        return Thaw(prefix, rng.choice(["", "well again"]), rng.choice(REQUEST_IDS))
    return Freeze(
        prefix, rng.choice(["", "because"]), rng.choice([0, 1, 50, 50, 200]), rng.choice(REQUEST_IDS)
    )


_OTHERS: Final[list[Callable[[Random, ModelState], Command]]] = [
    lambda r, _: opening(r, r.choice(SESSION_IDS)),
    lambda r, _: KeepAlive(r.choice(SESSION_IDS)),
    lambda r, _: KeepAlive(r.choice(SESSION_IDS), r.choice(SESSION_TTLS_MS)),
    force_close,
    hand_over,
    hand_over,
    hand_over,
    lift_delay,
    freezing,
    revocation,
    revocation,
    put_off,
    put_off,
    lambda r, _: ForgetFence(r.choice(RESOURCES), "because", r.choice(REQUEST_IDS)),
    lambda r, _: CloseSession(r.choice(SESSION_IDS), r.choice(REQUEST_IDS)),
    lambda r, w: Cancel(_id(r, w), r.choice(ATTEMPT_IDS)),
    lambda r, w: Renew(_id(r, w), r.choice([0, 0, 50, 200]), r.choice(REQUEST_IDS)),
    lambda r, w: Release(_id(r, w), r.choice(REQUEST_IDS)),
    lambda r, w: Release(_id(r, w)),
    _some_names,
    lambda r, _: ForceRelease(r.choice(NAMES), "because", r.choice(DELAYS_MS), r.choice(REQUEST_IDS)),
    release_of,
    renewal_of,
    by_value,
    by_value,
    _some_names,
    force_end,
    force_end,
    lambda r, _: ResizeSemaphore(
        r.choice(SEMAPHORES), r.randint(1, 4), r.choice(REQUEST_IDS), r.choice(REASONS)
    ),
    lambda r, _: ResizeSemaphore(r.choice(SEMAPHORES), 1),
    force_waits,
    lambda r, w: Proclaim(_id(r, w), r.choice(VALUES), r.choice(REQUEST_IDS)),
    lambda r, _: AbandonWaits(r.choice(ORIGINS)),
    lambda r, _: put_cell(r),
    lambda r, _: put_cell(r),
    lambda r, _: DeleteCells(r.choice(KEYS), r.randrange(3) == 0, r.choice(REQUEST_IDS)),
    transaction,
    transaction,
    lambda r, _: take_rate(r),
    lambda r, _: take_rate(r),
    lambda r, _: take_rate(r),
    cancelled_place,
    forget_rates,
    lambda r, _: AdvanceFence(r.choice(RESOURCES), r.randint(0, 5), r.choice(REQUEST_IDS)),
    *[
        lambda r, _: SetQuota(
            r.choice(["ann", "bob", "*"]), r.choice(_QUOTAS), r.choice(REQUEST_IDS), r.choice(REASONS)
        )
    ]
    * 2,
    *[namespace] * 2,
    act,
]


def opening(rng: Random, session_id: SessionId) -> Command:
    """Open a session."""
    return OpenSession(session_id, rng.choice(SESSION_TTLS_MS), rng.choice(LABELS), rng.choice(REQUEST_IDS))


_X, _S = Mode.EXCLUSIVE, Mode.SHARED

BAD_COMMANDS: Final[list[Command]] = [
    OnBehalf("", KeepAlive(_S1)),
    OnBehalf("*", OpenSession(_S1, 100)),
    OnBehalf("x" * 65, Acquire("a", _X, HoldId("h0"), AttemptId("a0"), ttl_ms=100)),
    OnBehalf("ann", OpenSession(_S1, limits.TTL_MS_MIN - 1)),
    SetQuota("", Quota(1)),
    SetQuota("ann", Quota(1), reason="\n"),
    SetNamespace("a", reason="x" * (limits.REASON_BYTES_MAX + 1)),
    ResizeSemaphore("a", 1, reason="\n"),
    RecordAct(ClusterAct.ADD, "n4", "h:1", "x" * (limits.REASON_BYTES_MAX + 1)),
    HoldRules(True, "\n"),
    PreferLeader("n4", "\n"),
    PreferLeader("n\n4", "because"),
    RecordAct(ClusterAct.ADD, "n\n4", "h:1", "because"),
    RecordAct(ClusterAct.MOVE, "n4", "h" * (limits.NAME_BYTES_MAX + 1), "because"),
    SetQuota("ann", Quota(holds=-1)),
    SetQuota("ann", Quota(1, 2, limits.QUOTA_MAX + 1)),
    SetQuota("ann", Quota(bytes=-1)),
    SetNamespace("", NamespaceSettings(holds=1)),
    SetNamespace("a//b"),
    SetNamespace("a", NamespaceSettings(ttl_ms_min=limits.TTL_MS_MIN - 1)),
    SetNamespace("a", NamespaceSettings(ttl_ms_max=limits.TTL_MS_MAX + 1)),
    SetNamespace("a", NamespaceSettings(ttl_ms_min=60, ttl_ms_max=59)),
    SetNamespace("a", NamespaceSettings(lock_delay_ms_min=-1)),
    SetNamespace("a", NamespaceSettings(held_ms_max=limits.TTL_MS_MIN - 1)),
    SetNamespace("a", NamespaceSettings(held_ms_max=limits.HELD_MS_MAX + 1)),
    Revoke("a", "held-too-long", 5),
    SetNamespace("a", NamespaceSettings(holds=1, waits=-1)),
    SetNamespace("a", NamespaceSettings(bytes=-1)),
    SetNamespace("a", NamespaceSettings(if_held=IfHeld.COUNT)),
    SetNamespace("a", NamespaceSettings(fences=limits.QUOTA_MAX + 1)),
    OpenSession(NO_SESSION, 100),
    OpenSession(_S1, limits.TTL_MS_MIN - 1),
    OpenSession(_S1, 100, {"": "x"}),
    KeepAlive(NO_SESSION),
    CloseSession(_S1, "r" * 65),
    Acquire("e", _S, _HX, _A1),
    Acquire("e", _S, _HX, _A1, session_id=_S1, ttl_ms=100),
    Acquire("e", _S, _HX, _A1, ttl_ms=100, wait_ms=-1),
    Acquire("a//b", _X, _HX, _A1, ttl_ms=100, request_id="r1"),
    Acquire("a" * 513, _X, _HX, _A1, ttl_ms=100),
    Acquire("e", _X, _HX, _A1, ttl_ms=100, locks=(Wanted("a"),)),
    Acquire("", _X, _HX, _A1, ttl_ms=100, locks=(Wanted("a"), Wanted("a", _S))),
    Acquire("", _X, _HX, _A1, ttl_ms=100, locks=(Wanted("a/b"), Wanted("a", scope=Scope.SUBTREE))),
    Acquire("", _X, _HX, _A1, ttl_ms=100, locks=(Wanted("e"), Wanted("a/"))),
    Acquire("", _X, _HX, _A1, ttl_ms=100, locks=tuple(Wanted(f"n{i}") for i in range(65))),
    AcquirePermits("a", 0, 0, _HX, _A1, ttl_ms=100),
    AcquirePermits("a", 3, 4, _HX, _A1, ttl_ms=100),
    AcquirePermits("a", limits.SEMAPHORE_LIMIT_MAX + 1, 1, _HX, _A1, ttl_ms=100),
    AcquirePermits("", 3, 1, _HX, _A1, ttl_ms=100),
    *[
        AcquireSeveral("", Mode.EXCLUSIVE, _HX, _A1, ttl_ms=100, locks=locks, permits=permits, rates=rates)
        for locks, permits, rates in (
            ((), (), ()),
            ((Wanted("e"), Wanted("a")), (), ()),
            ((), (), (WantedRate("mail", 2, 50), WantedRate("post", 2, 50))),
            ((), (WantedPermits("a", 3),), ()),
            ((Wanted("e"), Wanted("e")), (WantedPermits("a", 3),), ()),
            ((Wanted("e"),), (WantedPermits("a", 3), WantedPermits("a", 3)), ()),
            ((Wanted("e"),), (WantedPermits("a", 3, 4),), ()),
            ((Wanted("e"),), (WantedPermits("a", -1),), ()),
            ((Wanted("e"),), (WantedPermits("", 3),), ()),
            ((Wanted("e"),), tuple(WantedPermits(f"p{i}", 3) for i in range(17)), ()),
            ((Wanted("e"),), (), (WantedRate("mail", 2, 50), WantedRate("mail", 2, 60))),
            ((Wanted("e"),), (), (WantedRate("mail", 2, 50, cost=3),)),
            ((Wanted("e"),), (), (WantedRate("mail", 2, 1),)),
            ((Wanted("e"),), (), tuple(WantedRate(f"r{i}", 2, 50) for i in range(17))),
        )
    ],
    AcquireSeveral("e", Mode.EXCLUSIVE, _HX, _A1, ttl_ms=100, permits=(WantedPermits("a", 3),) * 2),
    AcquireSeveral("", Mode.EXCLUSIVE, _HX, _A1, locks=(Wanted("e"),), permits=(WantedPermits("a", 3),)),
    Campaign("boss", NO_SESSION, "v1", _HX, _A1),
    Campaign("boss", _S1, "v" * 1025, _HX, _A1),
    Campaign("boss", _S1, "v1", _HX, _A1, if_held=IfHeld.COUNT),
    Campaign("boss", SessionId("s-missing"), "v1", _HX, _A1, wait_ms=100),
    Convert(MISSING_HOLD_ID, _X, _TX, _A1, -1),
    Convert(MISSING_HOLD_ID, _X, NO_HOLD, _A1),
    AddLocks(MISSING_HOLD_ID, (), _TX, _A1),
    AddLocks(MISSING_HOLD_ID, (Wanted("e"),), _TX, _A1, -1),
    AddLocks(MISSING_HOLD_ID, (Wanted("e"), Wanted("e", _S)), _TX, _A1),
    AddLocks(MISSING_HOLD_ID, (Wanted("a/"),), NO_HOLD, _A1),
    Proclaim(MISSING_HOLD_ID, "\n"),
    ResizeSemaphore("a", 0),
    AdvanceFence("", 1),
    AdvanceFence("a", -1),
    Cancel(NO_HOLD, _A1),
    Renew(HoldId("h1"), limits.TTL_MS_MAX + 1),
    Release(HoldId("\n")),
    Release(HoldId("h1"), "", ("e", "e")),
    PutCell(b"", b""),
    PutCell(b"c" * 513, b""),
    PutCell(b"c", b"v" * 4097, request_id="r1"),
    PutCell(b"c", b"", _S1, 100),
    PutCell(b"c", b"", ttl_ms=1),
    PutCell(b"c", b"", SessionId("s-missing")),
    DeleteCells(b""),
    DeleteCells(b"c" * 513, is_prefix=True),
    TransactCells((HoldCompare(NO_HOLD),), (PutOperation(b"c", b""),)),
    TransactCells((CellCompare(b"", CellField.VALUE),), (PutOperation(b"c", b""),)),
    TransactCells((), (PutOperation(b"c", b""), DeleteOperation(b"c"))),
    TransactCells((), (), (PutOperation(b"c", b""), PutOperation(b"", b""))),
    TransactCells((), (GetOperation(b"c"),) * 65),
    TransactCells((), (EndOperation(MISSING_HOLD_ID, "because"),)),
    TransactCells((), (), (EndOperation(MISSING_HOLD_ID, "because"),)),
    TransactCells((LockCompare("e", MISSING_HOLD_ID),), (EndOperation(MISSING_HOLD_ID, "be\ncause"),)),
    TransactCells((LockCompare("a/"),), (PutOperation(b"c", b""),)),
    TransactCells((LockCompare("a", HoldId("h" * 129)),)),
    TransactCells((), (TakeOperation("e", _HX), TakeOperation("e", HoldId("hy")))),
    TransactCells((), (TakeOperation("e", _HX), RenewOperation(_HX, 100))),
    TransactCells((), (TakeOperation("/", _HX),)),
    TransactCells((), (TakeOperation("e", NO_HOLD),)),
    TransactCells((), (TakeOperation("e", _HX, "\n"),)),
    TransactCells((), (TakeOperation("e", _HX, "v", OwnerName("\n")),)),
    TransactCells((), (TakeOperation("e", _HX, ttl_ms=-1),)),
    TransactCells((), (RenewOperation(_HX, 0),)),
    TransactCells((), (EndOperation(_HX),)),
    TransactCells((), (PutOperation(b"c", b""), PutOperation(b"c/a", b"", SessionId("s-missing")))),
    ForceRelease("/", "because"),
    ForceRelease("e", "because", -1),
    ForceRelease("e", "because", 0, "", HoldKind.LOCK, -1),
    ForceRelease("e", "be\ncause", 0, "", HoldKind.SEMAPHORE),
    ForceRelease("a", "because", 1, "", HoldKind.ELECTION),
    ForceCloseSession("s-1", "be\ncause"),
    ForceWaits("", "because", request_id="r1"),
    SetNamespace("a", NamespaceSettings(grace_ms_min=1)),
    SetNamespace("a", NamespaceSettings(ask_after_ms_min=-1)),
    SetNamespace("a", NamespaceSettings(ask_after_ms_min=0, grace_ms_min=limits.GRACE_MS_MAX + 1)),
    Acquire("e", _X, _HX, _A1, ttl_ms=100, uncommon=Uncommon(asks=Asking(0, 10))),
    Acquire("e", _X, _HX, _A1, ttl_ms=100, wait_ms=5, uncommon=Uncommon(asks=Asking(5, 10))),
    Acquire("e", _X, _HX, _A1, ttl_ms=100, wait_ms=5, uncommon=Uncommon(asks=Asking(-1, 10))),
    Acquire("e", _X, _HX, _A1, ttl_ms=100, wait_ms=5, uncommon=Uncommon(asks=Asking(0, -1))),
    ForceWaits("e", "be\ncause"),
    ForceWaits("e", "because", HoldKind.LOCK, -1),
    WithdrawRevocation("/", "because"),
    WithdrawRevocation("e", "be\ncause"),
    WithdrawRevocation("e", "because", HoldKind.LOCK, -1),
    WithdrawRevocation("e", "because", HoldKind.LOCK, 0, -1),
    LiftDelay("/", "because"),
    Freeze("", "because"),
    Freeze("a//b", "because"),
    Freeze("a", "be\ncause"),
    Freeze("a", "because", -1),
    Freeze("a", "because", limits.FREEZE_MS_MAX + 1),
    Thaw("/", "because"),
    Thaw("a", "be\ncause"),
    LiftDelay("e", "be\ncause"),
    LiftDelay("a", "because", HoldKind.ELECTION),
    ForgetFence("", "because", "r1"),
    ForgetFence("disk", "w" * 1025),
    ForgetRates("", "because"),
    ForgetRates("a//b", "because"),
    ForgetRates("a\n", "because", is_prefix=True),
    ForgetRates("a" * 513, "because", is_prefix=True, request_id="r1"),
    ForgetRates("a", "w" * 1025),
    KeepAlive(_S1, limits.TTL_MS_MIN - 1),
    Acquire("e", _X, _HX, _A1, ttl_ms=100, uncommon=Uncommon(is_secret=True)),
    Acquire("e", _X, _HX, _A1, ttl_ms=100, uncommon=Uncommon(is_endless=True)),
    AcquirePermits("a", 3, 1, _HX, _A1, _S1, uncommon=Uncommon(is_endless=True)),
    Acquire("e", _X, _HX, _A1, ttl_ms=100, uncommon=Uncommon(value="v" * 1025)),
    AcquirePermits("a", 3, 1, _HX, _A1, ttl_ms=100, uncommon=Uncommon(is_secret=True)),
    AcquirePermits("a", 3, 1, _HX, _A1, ttl_ms=100, uncommon=Uncommon(value="\n")),
    HandOver(HoldId("h1")),
    HandOver(HoldId("h1"), -1),
    HandOver(HoldId("h1"), 1, "s-1", _HX),
    HandOver(HoldId("h1"), 1, new_hold_id=_HX),
    HandOver(HoldId("h1"), 0, "s-1"),
    HandOver(HoldId("h1"), 0, "s-1", HoldId("h" * 65)),
    HandOver(HoldId("h1"), limits.TOKEN_MAX + 1),
    ReleaseByValue("e", ""),
    ReleaseByValue("", "v1"),
    RenewByValue("e", "v" * 1025),
    RenewByValue("e", ""),
]
