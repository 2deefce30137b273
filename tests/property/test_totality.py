"""The machine against entries that no node would write: it never raises, and a restart makes no difference.

Nothing is known here of what is right: that is what the model and the referee are for. All values are such as
the codec lets through, and so few that ids, names and requests of all kinds meet.
"""

import os
from collections.abc import Callable
from random import Random
from typing import Any, Final, TypeVar
from unittest.mock import patch

import msgspec
import pytest

from lockstate import invariants
from lockstate.machine import LockMachine
from lockstate.stored import snapshot
from lockstate.words import limits
from lockstate.words.codec import decode_entry, encode_command, encode_entry
from lockstate.words.commands.admin import SetNamespace, SetQuota
from lockstate.words.commands.entries import (
    AbandonWaits,
    Barrier,
    Batch,
    Cancel,
    Command,
    Entry,
    OfSomebody,
    OnBehalf,
    Tick,
)
from lockstate.words.commands.holds import (
    Acquire,
    AcquirePermits,
    AcquireSeveral,
    AddLocks,
    Campaign,
    Convert,
    Proclaim,
    Release,
    Renew,
)
from lockstate.words.commands.overrides import ForceRelease
from lockstate.words.commands.primitives import AdvanceFence, ResizeSemaphore, TakeRate
from lockstate.words.commands.sessions import CloseSession, KeepAlive, OpenSession
from lockstate.words.commands.streams import EndWait, Numbered, NumberedCommand, ResumeStream
from lockstate.words.ids import AttemptId, HoldId, OwnerName, SessionId
from lockstate.words.kinds import Algorithm, HoldKind, IfHeld
from lockstate.words.modes import Mode, Scope
from lockstate.words.results import Granted, Queued, Result
from lockstate.words.settings import NamespaceSettings, Quota
from lockstate.words.wanted import Asking, Uncommon, Wanted, WantedPermits, WantedRate
from tests.support.vocabulary import another_attempt

_Value = TypeVar("_Value")

SEEDS: Final = int(os.environ.get("TOTALITY_SEEDS", "50"))
FIRST_SEED: Final = int(os.environ.get("TOTALITY_FIRST_SEED", "0"))
"""The number of histories, and the first seed."""
ENTRIES: Final = 100
REUSING: Final = 3
"""In one history of this many, all ids come from one small pool."""

IDS: Final = ["h1", "h2", "h3", "h4", "h5", "h6", "h7", "h8", "s1", "s2", "s3"]
"""One pool for sessions, holds, tickets and attempts: they are reused, and collide across kinds."""
ODD_IDS: Final = ["ann", "", "\x00", "x" * 64, "x" * 65, "\x01a", "\n"]
SESSIONS: Final = ["s1", "s2", "s3"]
NAMES: Final = ["a", "a", "a/b", "a/b/c", "a/d", "e", "e"]
DEEP: Final = "/".join(["p"] * 256)
ODD_NAMES: Final = [
    "",
    "/",
    "a//b",
    "a/",
    "\x01a",
    "\x02a",
    "a/../b",
    "é" * 257,
    "n" * 513,
    DEEP,
    DEEP[:-2],
    " ",
]
NUMBERS: Final = [-(1 << 63), -1, 0, 1, (1 << 31), (1 << 53), (1 << 53) + 1, (1 << 63) - 1, (1 << 64) - 1]
REQUEST_IDS: Final = ["r1", "r2", "r3", "r4", "r5", "r6"]
ORIGINS: Final = ["n1", "n2", "", "x" * 600, "\x00"]
TTLS_MS: Final = [50, 200, 5_000, 5_000, 60_000, limits.TTL_MS_MAX]
WAITS_MS: Final = [0, 50, 300, 3_000, 3_000, 60_000, limits.WAIT_MS_MAX]
ODD_IN: Final = 150
"""One value in this many is odd: with more of them nothing would ever be granted."""
ODD_ENTRIES: Final = 24
"""One entry in this many is odd as a whole."""

SMALL: Final[list[dict[str, Any]]] = [
    {"CYCLE_SHOWN_MAX": limits.CYCLE_SHOWN_MAX},
    {"EXPIRIES_PER_ENTRY_MAX": 1, "ABANDONED_PER_COMMAND_MAX": 1},
    {"HOLDERS_COUNT_MAX": 2},
    {"HOLDERS_COUNT_MAX": 1, "QUEUE_LENGTH_MAX": 2, "TICKETS_COUNT_MAX": 3},
    {"SESSION_CLAIMS_MAX": 3, "DEADLOCK_STEPS_MAX": 5},
    {"DEADLOCK_STEPS_MAX": 0},
    {"REQUESTS_COUNT_MAX": 3, "ORIGINS_COUNT_MAX": 1, "CYCLE_SHOWN_MAX": 1},
    {"HOLDS_COUNT_MAX": 2, "RECORDS_COUNT_MAX": 4, "SEMAPHORES_COUNT_MAX": 1, "FENCES_COUNT_MAX": 1},
    {"RATE_LIMITERS_COUNT_MAX": 1, "RATE_ROWS_COUNT_MAX": 2, "RATE_ROWS_MAX": 2, "SESSIONS_COUNT_MAX": 1},
    {"STATE_BYTES_MAX": 6_000},
    {"HOLDERS_SHOWN_MAX": 1, "LIST_ROWS_MAX": 1, "LIST_LIMIT_MAX": 1, "AUDIT_LIMIT_MAX": 1},
]
"""Limits: the real ones, or so small that they are reached all the time."""


class Chance:
    """Draws commands, each field for itself."""

    def __init__(self, seed: int, machine: LockMachine) -> None:
        self.rng = Random(seed)
        self.machine = machine
        self._is_reusing = seed % REUSING == 0
        self._made_count = 0

    def made(self) -> str:
        """Return an id for something new: mostly one that was never used."""
        self._made_count += 1
        is_new = not self._is_reusing and self.rng.randrange(6)
        return f"i{self._made_count}" if is_new else self.pick(IDS, ODD_IDS)

    def known(self) -> str:
        """Return the id of something: mostly of what is held or waits."""
        state = self.machine.state
        alive = [*state.holds, *state.tickets]
        return self.rng.choice(alive) if alive and self.rng.randrange(6) else self.pick(IDS, ODD_IDS)

    def pick(self, usual: list[_Value], odd: list[_Value]) -> _Value:
        """Return one of the usual values, now and then an odd one."""
        return self.rng.choice(odd if self.rng.randrange(ODD_IN) == 0 else usual)

    def name(self) -> str:
        """Return a name."""
        return self.pick(NAMES, ODD_NAMES)

    def number(self, usual: list[int]) -> int:
        """Return one of the usual numbers, or one that is far out."""
        return self.pick(usual, NUMBERS)

    def owner(self) -> str:
        """Return an owner, or none."""
        return self.pick(["", "", "ann", "bob"], ["\x00", "o" * 257])

    def request_id(self) -> str:
        """Return a request id, mostly a new one or none."""
        self._made_count += 1
        return self.pick(
            ["", "", f"q{self._made_count}", self.rng.choice(["", *REQUEST_IDS])], ["r" * 65, "\n"]
        )

    def text(self) -> str:
        """Return a note, a value or a reason."""
        return self.pick(["", "v", "w"], ["\n", "v" * 1025])

    def attempt_id(self) -> str:
        """Return the id of an attempt."""
        return self.pick(["a1", "a2"], ODD_IDS)

    def mode(self) -> Mode:
        """Return a mode."""
        return self.rng.choice([Mode.SHARED, *list(Mode)])

    def scope(self) -> Scope:
        """Return a scope."""
        return self.rng.choice([Scope.NODE, Scope.NODE, Scope.SUBTREE])

    def lease(self) -> tuple[str, int]:
        """Return a session id and a ttl, mostly exactly one of them."""
        if self.rng.randrange(ODD_IN) == 0:
            return self.made(), self.number(TTLS_MS)
        return (self.pick(SESSIONS, IDS), 0) if self.rng.randrange(2) else ("", self.number(TTLS_MS))

    def wanted(self) -> tuple[Wanted, ...]:
        """Return several locks, one in three times: a few, seldom 64 or more of deep paths."""
        if self.rng.randrange(3):
            return ()
        if self.rng.randrange(ODD_IN) == 0:
            count = self.rng.choice([64, 65])
            return tuple(Wanted(f"{i}/{DEEP[:-40]}", self.mode(), self.scope()) for i in range(count))
        names = self.rng.sample(["a", "a/b", "a/b/c", "a/d", "e"], k=self.rng.randint(1, 3))
        locks = [Wanted(self.pick([name], NAMES), self.mode(), self.scope()) for name in names]
        return tuple(locks)

    def command(self) -> Command:
        """Return any command, by some principal or by nobody known."""
        command = self.rng.choice(_COMMANDS)(self)
        if not isinstance(command, OfSomebody) or self.rng.randrange(2):
            return command
        return OnBehalf(self.pick(["ann", "ann", "bob"], ["", "*", "p" * 65, "\x00"]), command)

    def quota(self) -> Quota | None:
        """Return a quota, or none: mostly one that leaves room."""
        numbers = [self.number([2, 5, 20]) if self.rng.randrange(2) else None for _ in range(6)]
        return Quota(*numbers) if self.rng.randrange(3) else None

    def settings(self) -> NamespaceSettings | None:
        """Return settings of a namespace, or none: mostly such that leave room."""
        ttls_ms = [self.number(usual) if self.rng.randrange(2) else None for usual in ([50, 60], [60_000])]
        delay_ms = self.number([0, 60]) if self.rng.randrange(2) else None
        rare = [self.rng.choice([None, True, False]) for _ in range(2)]
        quotas = [self.number([2, 5, 20]) if self.rng.randrange(2) else None for _ in range(4)]
        drawn = [*ttls_ms, delay_ms, *rare, *quotas]
        return msgspec.convert(drawn, NamespaceSettings) if self.rng.randrange(3) else None


def _acquire(chance: Chance) -> Command:
    locks = chance.wanted()
    name = chance.name() if not locks or chance.rng.randrange(ODD_IN) == 0 else ""
    session_id, ttl_ms = chance.lease()
    return Acquire(
        name,
        chance.mode(),
        HoldId(chance.made()),
        AttemptId(chance.attempt_id()),
        SessionId(session_id),
        ttl_ms,
        OwnerName(chance.owner()),
        chance.number(WAITS_MS),
        chance.request_id(),
        chance.scope(),
        locks,
        chance.rng.choice([None, *IfHeld]),
        _uncommon(chance),
    )


def _uncommon(chance: Chance) -> Uncommon | None:
    """Return what only few acquires say, half of it what any of them may."""
    if chance.rng.randrange(3) == 0:
        return None
    common = chance.number([0, 0, 60]), chance.text()
    if chance.rng.randrange(2):
        return Uncommon(*common)
    is_secret, is_endless = [chance.rng.randrange(4) == 0 for _ in range(2)]
    asks = Asking(chance.number([0, 60]), chance.number([0, 60])) if chance.rng.randrange(2) else None
    return Uncommon(
        *common, chance.text(), is_secret, chance.number([5, 0, 9]), is_endless=is_endless, asks=asks
    )


def _several(chance: Chance) -> Command:
    """Ask for several kinds: mostly for locks, permits and rates that others ask for too."""
    asked = _acquire(chance)
    fields = {name: getattr(asked, name) for name in Acquire.__struct_fields__}
    if chance.rng.randrange(ODD_IN):
        fields["name"] = ""
    permits = tuple(
        WantedPermits(
            chance.pick([name], ODD_NAMES), chance.number([0, 3, 3, 3, 2]), chance.number([1, 1, 2])
        )
        for name in chance.rng.sample(["a", "q"], chance.rng.randrange(3))
    )
    rates = tuple(
        WantedRate(
            chance.pick([name], ODD_NAMES),
            chance.number([1, 3, 2_000]),
            chance.number([10, 1000, 3_000_000]),
            chance.rng.choice(list(Algorithm)),
            chance.number([1, 1, 2]),
        )
        for name in chance.rng.sample(["a", "q"], chance.rng.randrange(3))
    )
    return AcquireSeveral(**fields, permits=permits, rates=rates)


def _permits(chance: Chance) -> Command:
    session_id, ttl_ms = chance.lease()
    return AcquirePermits(
        chance.pick(["a", "q"], ODD_NAMES),
        chance.number([3, 3, 3, 2]),
        chance.number([1, 1, 2]),
        HoldId(chance.made()),
        AttemptId(chance.attempt_id()),
        SessionId(session_id),
        ttl_ms,
        OwnerName(chance.owner()),
        chance.number(WAITS_MS),
        chance.request_id(),
        chance.rng.randrange(2) == 0,
        _uncommon(chance),
    )


def _campaign(chance: Chance) -> Command:
    return Campaign(
        chance.pick(["a", "a/b"], ODD_NAMES),
        SessionId(chance.pick(SESSIONS, IDS)),
        chance.text(),
        HoldId(chance.made()),
        AttemptId(chance.attempt_id()),
        OwnerName(chance.owner()),
        chance.number(WAITS_MS),
        chance.request_id(),
        chance.rng.choice([None, *IfHeld]),
    )


def _convert(chance: Chance) -> Command:
    return Convert(
        HoldId(chance.known()),
        chance.mode(),
        HoldId(chance.made()),
        AttemptId(chance.attempt_id()),
        chance.number(WAITS_MS),
        chance.request_id(),
    )


def _add(chance: Chance) -> Command:
    locks = [
        Wanted(chance.name(), chance.mode(), chance.scope()) for _ in range(chance.rng.choice([1, 1, 2, 0]))
    ]
    return AddLocks(
        HoldId(chance.known()),
        tuple(locks),
        HoldId(chance.made()),
        AttemptId(chance.attempt_id()),
        chance.number(WAITS_MS),
        chance.request_id(),
    )


def _release(chance: Chance) -> Command:
    names = tuple(chance.name() for _ in range(chance.rng.choice([0] * 6 + [1, 2])))
    return Release(HoldId(chance.known()), chance.request_id(), names)


def _take_rate(chance: Chance) -> Command:
    return TakeRate(
        chance.pick(["a", "q"], ODD_NAMES),
        chance.number([1, 3, 2_000]),
        chance.number([10, 1000, 3_000_000]),
        chance.rng.choice(list(Algorithm)),
        chance.number([1, 1, 2]),
        chance.number(WAITS_MS),
        chance.request_id(),
    )


def _open(chance: Chance) -> Command:
    labels = chance.pick([{}, {"owner": "ann"}], [{"": "x"}, {"owner": "\x00"}, {"k": "v" * 257}])
    return OpenSession(
        SessionId(chance.pick(SESSIONS, IDS)),
        chance.number([50, 5_000, 60_000, 60_000, 60_000]),
        labels,
        chance.request_id(),
    )


def _quota(chance: Chance) -> Command:
    return SetQuota(
        chance.pick(["ann", "bob", "*"], ["", "\x00"]), chance.quota(), chance.request_id(), chance.text()
    )


def _namespace(chance: Chance) -> Command:
    return SetNamespace(chance.pick(NAMES, ODD_NAMES), chance.settings(), chance.request_id(), chance.text())


def _frame(chance: Chance) -> Command:
    """Number commands: the next ones, or others than those that had the numbers before."""
    session_id = SessionId(chance.pick(SESSIONS, IDS))
    known = chance.machine.stream(session_id)
    epoch, last = (known.epoch, known.last) if known is not None else (1, 0)
    drawn = [chance.command() for _ in range(chance.rng.randrange(4))]
    commands: list[NumberedCommand] = [
        each for each in drawn if isinstance(each, NumberedCommand) and not isinstance(each, AcquireSeveral)
    ]
    commands += [EndWait(chance.number([1, last, last + 1]))] * chance.rng.randrange(2)
    first = chance.number([last + 1, last + 1, last + 1, last, last - 1, 1])
    acked = [(chance.number([1, last]), chance.number([last, limits.TOKEN_MAX]))] * chance.rng.randrange(2)
    count = len(commands) + (chance.rng.randrange(20) == 0)
    return Numbered(count, session_id, chance.number([epoch]), first, tuple(acked), tuple(commands))


_COMMANDS: Final[list[Callable[[Chance], Command]]] = [
    *[_acquire] * 10,
    *[_several] * 5,
    *[_permits] * 4,
    *[_campaign] * 3,
    *[_convert] * 8,
    *[_add] * 6,
    *[_release] * 4,
    *[_open] * 6,
    _quota,
    _namespace,
    _take_rate,
    lambda chance: KeepAlive(SessionId(chance.pick(SESSIONS, IDS))),
    lambda chance: CloseSession(SessionId(chance.pick(SESSIONS, IDS)), chance.request_id()),
    lambda chance: Cancel(HoldId(chance.known()), AttemptId(chance.attempt_id())),
    lambda chance: ForceRelease(
        chance.pick(NAMES, ODD_NAMES),
        chance.text(),
        chance.number([0, 60]),
        chance.request_id(),
        chance.rng.choice(list(HoldKind)),
        chance.number([0, 0, 1, 2]),
    ),
    lambda chance: Release(
        HoldId(chance.known()), chance.request_id(), (), chance.rng.choice([None, *HoldKind])
    ),
    lambda chance: Renew(
        HoldId(chance.known()),
        chance.number([0, 60]),
        chance.request_id(),
        chance.rng.choice([None, *HoldKind]),
    ),
    lambda chance: ResizeSemaphore(
        chance.pick(["a", "q"], ODD_NAMES), chance.number([1, 2, 3, 4]), chance.request_id(), chance.text()
    ),
    lambda chance: Proclaim(HoldId(chance.known()), chance.text(), chance.request_id()),
    lambda chance: AdvanceFence(chance.name(), chance.number([0, 1, 2]), chance.request_id()),
    lambda chance: AbandonWaits(chance.pick(["n1", "n2", "n3", "n4"], ORIGINS)),
    lambda chance: ResumeStream(SessionId(chance.pick(SESSIONS, IDS))),
    _frame,
    _frame,
    lambda _: Tick(),
    lambda _: Barrier(),
]


class History:
    """Draws entries that lead on from each other: requests come again, time mostly goes on."""

    def __init__(self, seed: int, machine: LockMachine) -> None:
        self.chance = Chance(seed, machine)
        self.machine = machine
        self.rng = self.chance.rng
        self.now_ms = 1_000
        self.seq = 0
        self.requests: list[Command] = []

    def entry(self) -> bytes:
        """Return the next entry as it stands in a log."""
        rng = self.rng
        if rng.randrange(ODD_ENTRIES) == 0:
            now_ms = self.chance.number([self.now_ms - 500, 0])
            self.now_ms += rng.choice([0, 0, 0, limits.REQUEST_AGE_MS + 1, limits.WAIT_MS_MAX * 400])
        else:
            self.now_ms += rng.choice([0] * 30 + [1, 10, 49, 50, 51, 60, 300])
            now_ms = self.now_ms
        batches = [self._batch() for _ in range(rng.choice([0, 1, 1, 1, 2, 3]))]
        advance_to = int(rng.randrange(ODD_ENTRIES) == 0)
        return encode_entry(now_ms, batches, advance_to=advance_to)

    def _batch(self) -> tuple[str, list[int], list[bytes]]:
        commands = [self._command() for _ in range(self.rng.choice([1, 1, 2, 4]))]
        seqs = list(range(self.seq + 1, self.seq + 1 + len(commands)))
        self.seq += len(commands)
        if self.rng.randrange(2 * ODD_ENTRIES) == 0:
            self.rng.shuffle(seqs)
        encoded = [encode_command(command) for command in commands]
        if self.rng.randrange(ODD_ENTRIES) == 0:
            encoded[0] = msgspec.msgpack.encode([self.rng.randrange(25), "a", -1, None])
        return self.chance.pick(["n1", "n2", "n2", "n3"], ORIGINS), seqs, encoded

    def _command(self) -> Command:
        if self.requests and self.rng.randrange(5) == 0:
            return self._again(self.rng.choice(self.requests[-12:]))
        command = self.chance.command()
        if command.request_id:
            self.requests.append(command)
        return command

    def _again(self, command: Command) -> Command:
        """Repeat a request, as another attempt and mostly with another id."""
        return another_attempt(command, self._new_id)

    def _new_id(self, field: str) -> str:
        match field:
            case "session_id":
                return self.chance.pick(SESSIONS, IDS)
            case "attempt_id":
                return self.chance.attempt_id()
        return self.chance.made()


def read_all(machine: LockMachine) -> list[object]:
    """Return what every read of the machine says about everything that may exist, and about more."""
    seen: list[object] = [machine.counts(), machine.next_deadline_ms(), sorted(machine.waiting_origins())]
    for name in [*sorted(set(NAMES)), "q", *ODD_NAMES]:
        seen += [machine.lock(name), machine.semaphore(name), machine.election(name)]
        seen += [machine.check_fence(name, token) for token in (0, -1, machine.next_token - 1)]
        seen += [machine.locks(name, "", 2), machine.locks("", name, -1)]
    for some_id in [*IDS, *ODD_IDS]:
        seen += [
            machine.session(SessionId(some_id)),
            machine.attempt(HoldId(some_id)),
            machine.audit(session_id=SessionId(some_id), limit=3),
        ]
    return [
        *seen,
        [machine.applied_seq(origin) for origin in ORIGINS],
        machine.audit("a"),
        machine.audit(limit=-1),
    ]


def run(seed: int) -> None:
    """Apply a history to a machine and to one that restarts now and then, and compare all they say."""
    machine, restarted = LockMachine(), LockMachine()
    history, rng = History(seed, machine), Random(~seed)
    applied: list[str] = []
    try:
        for _ in range(ENTRIES):
            data = history.entry()
            applied.append(repr(decode_entry(data)))
            entry = decode_entry(data)
            outcome = machine.apply(entry)
            assert restarted.apply(entry) == outcome, "a restart makes a difference"
            invariants.check(machine.state)
            stored = snapshot.encode(machine.state)
            assert snapshot.encode(restarted.state) == stored, "a restart makes a difference in the state"
            assert restarted.fingerprint == machine.fingerprint, "a restart makes a difference to peers"
            if rng.randrange(3) == 0:
                assert read_all(machine) == read_all(restarted), "a restart makes a difference to readers"
                invariants.check(restarted.state)
            if rng.randrange(3) == 0:
                restarted = LockMachine(snapshot.decode(stored))
        _end_everything(machine)
    except Exception as error:
        error.add_note("\n".join(applied))
        raise


def _end_everything(machine: LockMachine) -> None:
    """Let time pass until everything that can expire has, and check that the machine is as good as new."""
    while (deadline_ms := machine.next_deadline_ms()) is not None:
        machine.apply(Entry(max(machine.now_ms, deadline_ms + 1)))
    machine.apply(Entry(machine.now_ms + limits.REQUEST_AGE_MS + 1))
    for table, value in vars(machine.state).items():
        assert table in KEPT or not value, f"{table} are remembered for ever"
    assert not machine.state.principals.rows, "who had something is remembered for ever"
    assert not list(machine.state.names.after("", inclusive=True)), "names are remembered for ever"
    for index in (machine.state.sessions_in_order, machine.state.tickets_in_order):
        assert not list(index.after(0, inclusive=True)), "what is listed is remembered for ever"
    assert not list(machine.state.semaphores_in_order.after("", inclusive=True)), "semaphores are, too"


KEPT: Final = [
    "rules",
    "principals",
    "namespaces",
    "spaces",
    "bytes_max",
    "is_tight",
    "searched_count",
    "revision",
    "now_ms",
    "_ttl_ms",
    "_until_ms",
    "next_token",
    "next_order",
    "asking",
    "origins",
    "fences",
    "cells",
    "audit",
    "names",
    "sessions_in_order",
    "tickets_in_order",
    "semaphores_in_order",
    "fences_in_order",
    "ledger",
    "semaphore_values",
    "fence_values",
    "origin_values",
]
"""The tables that may have content when nothing is held, wanted or remembered. All others are empty then."""


@pytest.mark.parametrize("seed", range(FIRST_SEED, FIRST_SEED + SEEDS))
def test_whatever_an_entry_says_the_machine_bears_it(seed: int) -> None:
    """Nothing that entries say raises, no restart makes a difference, and in the end nothing is left."""
    with patch.multiple(limits, **SMALL[seed % len(SMALL)]):
        run(seed)


def ask(machine: LockMachine, *commands: Command) -> Result:
    """Apply commands, each in an entry of its own, and return the result of the last."""
    for command in commands:
        seq = machine.applied_seq("n1") + 1
        outcome = machine.apply(Entry(1_000, (Batch("n1", (seq,), (command,)),)))
    return outcome.batches[0].results[0]


def test_a_hold_id_that_is_used_again_mixes_up_no_requests() -> None:
    """A repeated request whose hold has ended does not take over a waiter that has the same id."""
    machine = LockMachine()
    first = Acquire(
        "f",
        Mode.EXCLUSIVE,
        HoldId("h1"),
        AttemptId("a1"),
        ttl_ms=5_000,
        owner=OwnerName("ann"),
        request_id="r1",
    )
    second = Acquire(
        "e",
        Mode.EXCLUSIVE,
        HoldId("h1"),
        AttemptId("a2"),
        ttl_ms=5_000,
        owner=OwnerName("bob"),
        wait_ms=3_000,
        request_id="r2",
    )
    other = Acquire("e", Mode.EXCLUSIVE, HoldId("h0"), AttemptId("a0"), ttl_ms=5_000)
    assert isinstance(ask(machine, first, Release(HoldId("h1")), other, second), Queued)
    again = msgspec.structs.replace(first, hold_id="h8", attempt_id="a8")
    assert isinstance(ask(machine, again), Granted)
    later = msgspec.structs.replace(second, hold_id="h9", attempt_id="a9")
    assert isinstance(ask(machine, Release(HoldId("h0")), later), Granted)


def test_a_hold_id_that_is_used_for_a_conversion_mixes_up_no_requests() -> None:
    """A repeated conversion whose hold has ended does not take over another one whose ticket has that id."""
    machine = LockMachine()
    first = Convert(HoldId("h1"), Mode.EXCLUSIVE, HoldId("t1"), AttemptId("a1"), 0, "r1")
    ask(
        machine,
        Acquire("f", Mode.SHARED, HoldId("h1"), AttemptId("a1"), ttl_ms=5_000),
        first,
        Release(HoldId("h1")),
    )
    holds = [
        Acquire("e", Mode.SHARED, HoldId(hold_id), AttemptId("a1"), ttl_ms=5_000) for hold_id in ("h2", "h3")
    ]
    second = Convert(HoldId("h2"), Mode.EXCLUSIVE, HoldId("h1"), AttemptId("a2"), 3_000, "r2")
    assert isinstance(ask(machine, *holds, second), Queued)
    again = msgspec.structs.replace(first, ticket_id="t8", attempt_id="a8")
    assert isinstance(ask(machine, again), Granted)
    later = msgspec.structs.replace(second, ticket_id="t9", attempt_id="a9")
    assert isinstance(ask(machine, Release(HoldId("h3")), later), Granted)
