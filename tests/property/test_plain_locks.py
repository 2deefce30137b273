"""The short way of plain locks does what the long way and the model do, whatever stands beside them."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from itertools import count
from random import Random
from typing import Any, Final
from unittest.mock import patch

import msgspec
import pytest

from lockstate import invariants
from lockstate.machine import LockMachine
from lockstate.rules import plain_locks
from lockstate.rules.locks import Locks
from lockstate.stored import snapshot
from lockstate.tables import records
from lockstate.tables.happened import PlainGrant, told_in
from lockstate.words import limits
from lockstate.words.commands.admin import SetNamespace, SetQuota
from lockstate.words.commands.entries import Batch, Command, Entry, OnBehalf
from lockstate.words.commands.holds import Acquire, AcquireSeveral, AddLocks, Convert, Release, ReleaseByValue
from lockstate.words.commands.overrides import ForceRelease, Revoke
from lockstate.words.commands.sessions import OpenSession
from lockstate.words.commands.streams import Numbered, ResumeStream
from lockstate.words.events import Event
from lockstate.words.ids import NO_SESSION, AttemptId, HoldId, OwnerName, SessionId
from lockstate.words.kinds import HoldKind, IfHeld
from lockstate.words.modes import Mode, Scope
from lockstate.words.outcomes import Outcome
from lockstate.words.refusals import Reason, Refused
from lockstate.words.results import Granted, Result
from lockstate.words.settings import NamespaceSettings as Settings
from lockstate.words.settings import Quota
from lockstate.words.wanted import Uncommon, Wanted, WantedPermits
from tests.property import random_commands
from tests.property.machine_with_model import MachineWithModel, plain_of, without_short_ways

SEEDS: Final = range(40)
LATE_SEEDS: Final = range(8)
STEPS: Final = 80
LONG: Final = "k" * 70
NAMES: Final = [*"efgmnopqrs", "a", "a/b", "a/b/c", "a/b/d", "a/d", "h/i", "h/i/j", "t/u", "h/é", LONG]
"""Some below others, and two that are not plain."""
VALUES: Final = ["v1", "v2", "v" * 128, "v" * 129, "é"]
"""Two that are not plain, again."""

_PRINCIPALS: Final = (("",), ("ann",), ("", "ann"), ("ann", "bob", "ann"))
"""Who asks, in histories of four kinds: nobody known, one, one and nobody known, two."""


# -- histories ----------------------------------------------------------------------------------------------


class Plain(MachineWithModel):
    """Mostly asks for one lock, or gives it back."""

    def acquire(self, rng: Random) -> Any:
        """Ask for a lock as nearly everybody does."""
        hold_id = self._new_hold_id("h")
        session_id, ttl_ms = random_commands.lease(rng)
        wait_ms = rng.choice([0, 0, 300])
        attempt_id = AttemptId(rng.choice([hold_id, hold_id, "a1"]))
        owner = rng.choice(random_commands.OWNERS)
        said = Uncommon(value=rng.choice(VALUES), is_secret=rng.randrange(2) == 0)
        return Acquire(
            rng.choice(NAMES),
            Mode.EXCLUSIVE,
            hold_id,
            attempt_id,
            session_id,
            ttl_ms,
            owner,
            wait_ms,
            uncommon=None if rng.randrange(3) else said,
        )

    def release(self, rng: Random) -> Any:
        """Give back what is held, by its value if it has one; at times with another value."""
        marked = [hold for hold in self.state.holds if hold.value and not hold.is_several]
        if marked and rng.randrange(2):
            hold = rng.choice(marked)
            return ReleaseByValue(hold.locks[0].name, hold.value if rng.randrange(4) else rng.choice(VALUES))
        return Release(rng.choice([hold.hold_id for hold in self.state.holds] or [HoldId("h-missing")]))

    def change(self, rng: Random) -> None:
        """A hold gets another mode, and with it another token."""
        if self.state.holds:
            of, mode = rng.choice(self.state.holds).hold_id, rng.choice([Mode.SHARED, Mode.EXCLUSIVE])
            convert: Command = Convert(of, mode, self._new_hold_id("t"), AttemptId("a1"))
            self._apply([(random_commands.ORIGINS[0], [convert])])

    def plain(self, rng: Random) -> None:
        """Some acquire, some release, in one entry or in one frame of a stream."""
        self._pause(rng)
        makes: list[Callable[[Random], Any]] = [self.acquire, self.acquire, self.release]
        commands = [rng.choice(makes)(rng) for _ in range(rng.randint(1, 5))]
        session_id = rng.choice(random_commands.SESSION_IDS)
        stream = self.state.streams.get(session_id)
        if stream is not None and rng.randrange(2):
            first, acked = stream.last + 1, ((1, stream.last),) if stream.last and rng.randrange(2) else ()
            commands = [Numbered(len(commands), session_id, stream.epoch, first, acked, tuple(commands))]
        elif rng.randrange(4) == 0:
            commands[0] = msgspec.structs.replace(commands[0], request_id=f"r{len(self.ids)}")
        self._apply([(rng.choice(random_commands.ORIGINS), commands)])


@cache
def run(seed: int) -> tuple[Counter[str], AssertionError | None]:
    """Let a machine with the short way, one without it and the model follow a history; much in it is plain.

    Return how many acquires and releases there were (`asked`), how many of them the machine with the short
    way left to `Locks` (`left`), and how they differ if they do.
    """
    rng, counts = Random(seed), Counter[str]()
    with counted(counts) as pairs, patch.object(records, "_SEARCHED_MAX", 1 if seed % 2 else 64):
        pair = Plain(principals=_PRINCIPALS[seed % 4])
        pairs.append(pair)
        try:
            pair.come_back(rng)
            pair.resume(rng)
            for _ in range(STEPS):
                (pair.plain if rng.randrange(8) else pair.step)(rng)
        except AssertionError as error:
            error.add_note("\n".join(pair.applied))
            return counts, error
    return counts, None


@contextmanager
def counted(counts: Counter[str]) -> Iterator[list[Plain]]:
    """Count into `counts` what `Locks` carries out for the pair that is put into the list."""
    pairs: list[Plain] = []

    def counting(what: str, act: Callable[..., Result]) -> Callable[..., Result]:
        def count(locks: Locks, *arguments: Any) -> Result:
            of_twin = bool(pairs) and locks._state is pairs[0].twin.state
            counts[f"{what} {'asked' if of_twin else 'left'}"] += 1
            return act(locks, *arguments)

        return count

    with (
        patch.object(Locks, "acquire", counting("acquire", Locks.acquire)),
        patch.object(Locks, "release", counting("release", Locks.release)),
    ):
        yield pairs


@pytest.mark.parametrize("seed", SEEDS)
def test_the_short_way_is_the_long_way(seed: int) -> None:
    """Whatever else happens in between, and whether or not a session has many holds."""
    _, error = run(seed)
    if error is not None:
        raise error


def test_both_ways_are_taken_often() -> None:
    """Of what the histories above ask for, a good part is plain, and a good part is not."""
    counts = sum([run(seed)[0] for seed in SEEDS], Counter[str]())
    for what in ("acquire", "release"):
        assert 0.4 < counts[f"{what} left"] / counts[f"{what} asked"] < 0.8, counts


# -- what is read late ---------------------------------------------------------------------------------------


@cache
def read_late(seed: int) -> int:
    """Apply a history to a machine that is read after each entry, and to one that is read at its end.

    Return how many holds had changed before anybody read of their grants.
    """
    rng = Random(seed)
    pair = Plain(principals=_PRINCIPALS[seed % 4])
    entries: list[Entry] = []

    def apply_entry(entry: Entry) -> Outcome:
        entries.append(entry)
        return Plain.apply_entry(pair, entry)

    with patch.object(pair, "apply_entry", apply_entry):
        pair.come_back(rng)
        pair.resume(rng)
        for _ in range(STEPS):
            rng.choice([pair.plain, pair.plain, pair.step, pair.change])(rng)
    read, unread = LockMachine(), LockMachine()
    told: list[tuple[Event, ...]] = []
    outcomes: list[Outcome] = []
    for entry in entries:
        told.append(tuple(read.apply(entry).events))
        outcomes.append(unread.apply(entry))
        fingerprint = read.fingerprint
        assert rng.randrange(4) or unread.fingerprint == fingerprint
    rows = [row for outcome in outcomes for row in told_in(outcome.events) if isinstance(row, PlainGrant)]
    changed = sum((row.hold.token, row.hold.name) != (row.token, row.name) for row in rows)
    assert snapshot.encode(unread.state) == snapshot.encode(read.state)
    assert unread.audit_records() == read.audit_records()
    assert [tuple(outcome.events) for outcome in outcomes] == told
    assert unread.is_sound
    invariants.check(unread.state)
    return changed


@pytest.mark.parametrize("seed", LATE_SEEDS)
def test_what_is_read_late_is_what_it_was(seed: int) -> None:
    """Events, and what streams keep, are the same whenever somebody looks, whatever has happened since."""
    read_late(seed)


def test_holds_often_change_before_anybody_reads_of_them() -> None:
    """Else the histories above would show little."""
    assert sum(map(read_late, LATE_SEEDS)) > 3


# -- what is left to others ---------------------------------------------------------------------------------

H: Final = HoldId("h1")
S: Final = SessionId("s1")
PLAIN: Final = Acquire("a/b", Mode.EXCLUSIVE, H, AttemptId(H), S)
LEASED: Final = Acquire("a/b", Mode.EXCLUSIVE, H, AttemptId(H), ttl_ms=5000)
OTHER: Final = Acquire("a", Mode.EXCLUSIVE, HoldId("h0"), AttemptId("h0"), S)
MARKED: Final = msgspec.structs.replace(LEASED, uncommon=Uncommon(value="v"))
MARKED_IN_SESSION: Final = msgspec.structs.replace(PLAIN, uncommon=Uncommon(value="v", is_secret=True))
RELEASE: Final = Release(H)
BEGIN: Final[tuple[Command, ...]] = (OpenSession(S, 60_000), OpenSession(SessionId("s2"), 60_000))


def asked(of: Acquire, **fields: Any) -> tuple[Command, ...]:
    """Return an acquire that is changed a little, and the release of what it may have got."""
    changed = msgspec.structs.replace(of, **fields)
    return changed, Release(changed.hold_id)


NOT_PLAIN: Final[dict[str, tuple[Command, ...]]] = {
    "owner": asked(PLAIN, owner=OwnerName("ann")),
    "longest owner": asked(LEASED, owner=OwnerName("x" * 256)),
    "owner too long": asked(PLAIN, owner=OwnerName("x" * 257)),
    "owner of other letters": asked(PLAIN, owner=OwnerName("é" * 128)),
    "too many other letters": asked(PLAIN, owner=OwnerName("é" * 129)),
    "unprintable owner": asked(PLAIN, owner=OwnerName("a\x00")),
    "note": asked(PLAIN, uncommon=Uncommon(note="n")),
    "delay": asked(PLAIN, uncommon=Uncommon(lock_delay_ms=50)),
    "wrong delay": asked(PLAIN, uncommon=Uncommon(lock_delay_ms=-1)),
    "shared": asked(PLAIN, mode=Mode.SHARED),
    "concurrent": asked(PLAIN, mode=Mode.CONCURRENT_WRITE),
    "subtree": asked(PLAIN, scope=Scope.SUBTREE),
    "attempt": asked(PLAIN, attempt_id=AttemptId("a1")),
    "longest attempt": asked(PLAIN, attempt_id=AttemptId("a" * 64)),
    "long attempt": asked(PLAIN, attempt_id=AttemptId("a" * 65)),
    "no attempt": asked(PLAIN, attempt_id=AttemptId("")),
    "no id": asked(PLAIN, hold_id=HoldId("")),
    "long id": asked(PLAIN, hold_id=HoldId("h" * 65)),
    "longest id": asked(PLAIN, hold_id=HoldId("h" * 64), attempt_id=AttemptId("h" * 64)),
    "id of a session": asked(PLAIN, hold_id=HoldId("s2"), attempt_id=AttemptId("s2")),
    "id of a hold": (OTHER, *asked(PLAIN, name="b", hold_id=OTHER.hold_id, attempt_id=AttemptId("h0"))),
    "id of a wait": (
        LEASED,
        msgspec.structs.replace(OTHER, name="a/b", wait_ms=1000),
        *asked(PLAIN, name="b", hold_id=OTHER.hold_id, attempt_id=AttemptId("h0")),
    ),
    "negative wait": asked(PLAIN, wait_ms=-1),
    "long wait": asked(PLAIN, wait_ms=limits.WAIT_MS_MAX + 1),
    "longest wait": asked(PLAIN, wait_ms=limits.WAIT_MS_MAX),
    "two leases": asked(PLAIN, ttl_ms=5000),
    "no lease": asked(PLAIN, session_id=NO_SESSION),
    "short ttl": asked(LEASED, ttl_ms=limits.TTL_MS_MIN - 1),
    "shortest ttl": asked(LEASED, ttl_ms=limits.TTL_MS_MIN),
    "long ttl": asked(LEASED, ttl_ms=limits.TTL_MS_MAX + 1),
    "longest ttl": asked(LEASED, ttl_ms=limits.TTL_MS_MAX),
    "no such session": asked(PLAIN, session_id=SessionId("none")),
    "no name": asked(PLAIN, name=""),
    "slash": asked(PLAIN, name="/a"),
    "empty part": asked(PLAIN, name="a//b"),
    "dot": asked(PLAIN, name="a/."),
    "unprintable": asked(PLAIN, name="a\x00"),
    "other letters": asked(PLAIN, name="é" * 256),
    "too many other letters in a name": asked(PLAIN, name="é" * 257),
    "too many other letters below": asked(PLAIN, name="a/" + "é" * 256),
    "kept name": asked(PLAIN, name="k" * 64),
    "name that is not kept": asked(PLAIN, name="k" * 65),
    "long name": asked(PLAIN, name="x" * 513),
    "longest name": asked(PLAIN, name="x" * 512),
    "name and locks": asked(PLAIN, locks=(Wanted("f", Mode.EXCLUSIVE),)),
    "locks": asked(PLAIN, name="", locks=(Wanted("f", Mode.EXCLUSIVE),)),
    "held": (OTHER, *asked(PLAIN, name="a")),
    "held, waits": (OTHER, *asked(PLAIN, name="a", wait_ms=1000), Release(OTHER.hold_id), RELEASE),
    "parent held": (OTHER, PLAIN, Release(OTHER.hold_id), RELEASE),
    "child held": (PLAIN, OTHER, RELEASE, Release(OTHER.hold_id)),
    "subtree above": (msgspec.structs.replace(OTHER, scope=Scope.SUBTREE), PLAIN, RELEASE),
    "subtree waits": (PLAIN, msgspec.structs.replace(OTHER, scope=Scope.SUBTREE, wait_ms=1000), RELEASE),
    "delayed": (PLAIN, ForceRelease("a/b", "why", 1000), *asked(PLAIN, hold_id=HoldId("h2"))),
    "nothing uncommon": asked(PLAIN, uncommon=Uncommon()),
    "value": asked(LEASED, uncommon=Uncommon(value="v")),
    "secret": asked(LEASED, uncommon=Uncommon(value="v", is_secret=True)),
    "secret without a value": asked(LEASED, uncommon=Uncommon(is_secret=True)),
    "longest value": asked(LEASED, uncommon=Uncommon(value="v" * 128)),
    "long value": asked(LEASED, uncommon=Uncommon(value="v" * 129)),
    "value of other letters": asked(LEASED, uncommon=Uncommon(value="é")),
    "unprintable value": asked(LEASED, uncommon=Uncommon(value="v\x00")),
    "value and note": asked(LEASED, uncommon=Uncommon(value="v", note="n")),
    "value in a session": (MARKED_IN_SESSION, ReleaseByValue("a/b", "v")),
    "by value": (MARKED, ReleaseByValue("a/b", "v"), ReleaseByValue("a/b", "v")),
    "by another value": (MARKED, ReleaseByValue("a/b", "w"), ReleaseByValue("a/b", ""), RELEASE),
    "by a value that it has not": (PLAIN, ReleaseByValue("a/b", "v"), ReleaseByValue("a/b", "")),
    "by the value of a note": (
        asked(PLAIN, uncommon=Uncommon(note="v"))[0],
        ReleaseByValue("a/b", ""),
        ReleaseByValue("a/b", "v"),
    ),
    "by the value of another kind": (
        MARKED,
        ReleaseByValue("a/b", "v", HoldKind.SEMAPHORE),
        ReleaseByValue("a/b", "v", HoldKind.ELECTION),
    ),
    "by the value of a name above": (MARKED, ReleaseByValue("a", "v")),
    "by value where one waits": (
        MARKED,
        msgspec.structs.replace(PLAIN, hold_id=HoldId("h2"), wait_ms=1000),
        ReleaseByValue("a/b", "v"),
    ),
    "by value of one of two": (
        msgspec.structs.replace(MARKED, mode=Mode.SHARED),
        msgspec.structs.replace(MARKED, mode=Mode.SHARED, hold_id=HoldId("h2")),
        ReleaseByValue("a/b", "v"),
    ),
    "by value of one of several locks": (
        msgspec.structs.replace(MARKED, name="", locks=(Wanted("a/b", Mode.EXCLUSIVE), Wanted("f"))),
        ReleaseByValue("a/b", "v"),
        RELEASE,
    ),
    "by value where a delay is": (
        MARKED,
        ForceRelease("a/b", "why", 1000),
        ReleaseByValue("a/b", "v"),
    ),
    "value, counted": (
        msgspec.structs.replace(MARKED_IN_SESSION, if_held=IfHeld.COUNT),
        msgspec.structs.replace(MARKED_IN_SESSION, hold_id=HoldId("h2"), if_held=IfHeld.COUNT),
        ReleaseByValue("a/b", "v"),
        ReleaseByValue("a/b", "v"),
    ),
    "value of somebody": (
        OnBehalf("ann", MARKED),
        OnBehalf("bob", ReleaseByValue("a/b", "v")),
        OnBehalf("ann", ReleaseByValue("a/b", "v")),
    ),
    "value of nobody beside somebody": (
        OnBehalf("ann", OpenSession(SessionId("s3"), 60_000)),
        MARKED,
        ReleaseByValue("a/b", "v"),
    ),
    "value and a quota": (
        SetQuota("ann", Quota(bytes=3)),
        OnBehalf("ann", MARKED),
        OnBehalf("ann", msgspec.structs.replace(MARKED, name="z", hold_id=HoldId("h2"))),
    ),
    "value in a namespace": (
        SetNamespace("a", Settings(bytes=4)),
        MARKED,
        ReleaseByValue("a/b", "v"),
    ),
    "endless": asked(LEASED, ttl_ms=0, uncommon=Uncommon(is_endless=True)),
    "counted": (
        msgspec.structs.replace(PLAIN, if_held=IfHeld.COUNT),
        msgspec.structs.replace(PLAIN, hold_id=HoldId("h2"), if_held=IfHeld.COUNT),
        RELEASE,
        RELEASE,
    ),
    "refused if held": (
        msgspec.structs.replace(PLAIN, if_held=IfHeld.REFUSE),
        msgspec.structs.replace(PLAIN, hold_id=HoldId("h2"), if_held=IfHeld.REFUSE),
        RELEASE,
    ),
    "release of a lock": (PLAIN, Release(H, kind=HoldKind.LOCK)),
    "release of a semaphore": (PLAIN, Release(H, kind=HoldKind.SEMAPHORE)),
    "again": (PLAIN, msgspec.structs.replace(PLAIN, hold_id=HoldId("h2")), RELEASE, Release(HoldId("h2"))),
    "other names": (PLAIN, Release(H, names=("a/b",)), Release(H, names=("x",))),
    "not held": (Release(HoldId("h9")),),
    "converted": (PLAIN, Convert(H, Mode.SHARED, HoldId("t1"), AttemptId("a1")), RELEASE),
    "converting": (
        msgspec.structs.replace(PLAIN, mode=Mode.SHARED),
        msgspec.structs.replace(PLAIN, mode=Mode.SHARED, hold_id=HoldId("h2"), session_id=SessionId("s2")),
        Convert(H, Mode.EXCLUSIVE, HoldId("t1"), AttemptId("a1"), 1000),
        RELEASE,
        Release(HoldId("h2")),
    ),
    "to have more": (
        OTHER,
        PLAIN,
        AddLocks(H, (Wanted("a", Mode.EXCLUSIVE),), HoldId("t1"), AttemptId("a1"), 1000),
        RELEASE,
        Release(OTHER.hold_id),
    ),
    "has more": (PLAIN, AddLocks(H, (Wanted("z", Mode.EXCLUSIVE),), HoldId("t1"), AttemptId("a1")), RELEASE),
    "has less": (
        *asked(PLAIN, name="", locks=(Wanted("f", Mode.EXCLUSIVE), Wanted("g/h", Mode.EXCLUSIVE)))[:1],
        Release(H, names=("f",)),
        RELEASE,
    ),
    "several kinds": (
        AcquireSeveral(
            "",
            Mode.EXCLUSIVE,
            H,
            AttemptId(H),
            S,
            locks=(Wanted("a/b", Mode.EXCLUSIVE),),
            permits=(WantedPermits("pool", 1, 3),),
        ),
        PLAIN,
        RELEASE,
    ),
    "to be given up": (PLAIN, Revoke("a/b", "why", 1000), RELEASE),
    "namespace": (
        SetNamespace("a", Settings(holds=1)),
        PLAIN,
        *asked(PLAIN, hold_id=HoldId("h2"), name="a/c"),
    ),
    "namespace of its own name": (
        SetNamespace("a/b", Settings(holds=1, lock_delay_ms_min=500)),
        PLAIN,
        RELEASE,
        *asked(PLAIN, name="a", hold_id=HoldId("h2")),
    ),
    "namespace of a name below": (
        SetNamespace("a/b/c", Settings(holds=0)),
        PLAIN,
        *asked(PLAIN, name="a/b/c", hold_id=HoldId("h2")),
        RELEASE,
        *asked(PLAIN, name="a/b/c", hold_id=HoldId("h3")),
    ),
    "namespace far above": (SetNamespace("a", Settings(holds=1)), *asked(PLAIN, name="a/b/c/d")),
    "namespace beside": (
        SetNamespace("ab", Settings(holds=0)),
        SetNamespace("b", Settings(holds=0)),
        PLAIN,
        RELEASE,
    ),
    "namespace begins": (PLAIN, SetNamespace("a", Settings(holds=1)), RELEASE, PLAIN, RELEASE),
    "namespace ends": (PLAIN, SetNamespace("a", Settings(holds=1)), RELEASE, SetNamespace("a"), PLAIN),
    "quota": (SetQuota("*", Quota(holds=0)), PLAIN, OnBehalf("ann", LEASED), RELEASE),
    "quota in a session of nobody": (SetQuota("*", Quota(holds=0)), OnBehalf("ann", PLAIN), RELEASE),
    "quota with room": (
        SetQuota("ann", Quota(holds=1, bytes=0)),
        OnBehalf("ann", LEASED),
        OnBehalf("ann", msgspec.structs.replace(OTHER, name="z", session_id=NO_SESSION, ttl_ms=5000)),
        OnBehalf("ann", RELEASE),
        OnBehalf("ann", LEASED),
    ),
    "quota of everybody": (
        SetQuota("*", Quota(holds=1)),
        SetQuota("ann", Quota(holds=2)),
        *[
            OnBehalf(
                who, msgspec.structs.replace(LEASED, name=f"{who}{number}", hold_id=HoldId(f"{who}{number}"))
            )
            for who in ("ann", "bob")
            for number in range(3)
        ],
        PLAIN,
    ),
    "note of somebody": (
        OnBehalf("ann", msgspec.structs.replace(LEASED, uncommon=Uncommon(note="n"))),
        OnBehalf("ann", RELEASE),
        PLAIN,
        RELEASE,
    ),
    "foreign": (OnBehalf("ann", LEASED), OnBehalf("bob", RELEASE), RELEASE),
    "foreign session": (
        OnBehalf("ann", OpenSession(SessionId("s3"), 60_000)),
        OnBehalf("bob", msgspec.structs.replace(PLAIN, session_id=SessionId("s3"))),
        OnBehalf("ann", msgspec.structs.replace(PLAIN, session_id=SessionId("s3"))),
        OnBehalf("bob", RELEASE),
        OnBehalf("ann", RELEASE),
    ),
    "id that is somebody's": (
        OnBehalf("ann", LEASED),
        OnBehalf("bob", msgspec.structs.replace(LEASED, name="z")),
        OnBehalf("ann", RELEASE),
    ),
    "of two in turns": (
        OnBehalf("ann", LEASED),
        OnBehalf("bob", msgspec.structs.replace(OTHER, name="z", session_id=NO_SESSION, ttl_ms=5000)),
        OnBehalf("ann", RELEASE),
        OnBehalf("bob", Release(OTHER.hold_id)),
    ),
    "somebody's": (
        OnBehalf("ann", LEASED),
        OnBehalf("bob", RELEASE),
        OnBehalf("ann", RELEASE),
        PLAIN,
        RELEASE,
    ),
}
BESIDE_NAMESPACES: Final = ("ab", "b", "a/bc", "a/b/c", "z")
BOUNDS: Final = {"HOLDS_COUNT_MAX": 2, "RECORDS_COUNT_MAX": 3, "SESSION_CLAIMS_MAX": 3}
FOUR: Final = tuple(
    Acquire(f"{name}/x", Mode.EXCLUSIVE, HoldId(name), AttemptId(name), S) for name in ("e", "f", "g", "h")
)


def both(commands: tuple[Command, ...]) -> list[Outcome]:
    """Apply commands by the short and by the long way, an entry for each; return what came of them."""
    short, long = LockMachine(), without_short_ways()
    outcomes = []
    for seq, command in enumerate((*BEGIN, *commands), 1):
        entry = Entry(1000 + seq, (Batch("n1", (seq,), (command,)),))
        outcomes.append(short.apply(entry))
        assert long.apply(entry) == outcomes[-1], command
        assert snapshot.encode(long.state) == snapshot.encode(short.state)
        assert long.fingerprint == short.fingerprint
        invariants.check(short.state)
    return outcomes[len(BEGIN) :]


@pytest.mark.parametrize("what", NOT_PLAIN)
def test_what_is_not_plain_comes_to_the_same(what: str) -> None:
    """What asks for something else, what is wrong, and what finds something in its way."""
    assert len(both(NOT_PLAIN[what])) == len(NOT_PLAIN[what])


def test_what_lies_in_no_namespace_is_plain() -> None:
    """Namespaces beside a name, or below it, do not make its locks go the long way; one above it does."""
    machine = LockMachine()
    commands = [*BEGIN, *[SetNamespace(prefix, Settings(holds=9)) for prefix in BESIDE_NAMESPACES]]
    left = Counter[str]()
    with counted(left):
        for seq, command in enumerate((*commands, PLAIN, RELEASE, SetNamespace("a", Settings(holds=9))), 1):
            machine.apply(Entry(1000 + seq, (Batch("n1", (seq,), (command,)),)))
        assert left == Counter()
        machine.apply(Entry(2000, (Batch("n1", (50, 51), (PLAIN, RELEASE)),)))
    assert left == {"acquire left": 1, "release left": 1}


@pytest.mark.parametrize("of", [MARKED, MARKED_IN_SESSION])
@pytest.mark.parametrize("by", [RELEASE, ReleaseByValue("a/b", "v")])
def test_what_has_a_value_is_plain(of: Acquire, by: Command) -> None:
    """Who marks a lock and gives it back by that pays no more than others."""
    machine, left = LockMachine(), Counter[str]()
    with counted(left):
        for seq, command in enumerate((*BEGIN, of, by), 1):
            machine.apply(Entry(1000 + seq, (Batch("n1", (seq,), (command,)),)))
            assert len(machine.state.holds) == (command is of)
    assert left == Counter()


@pytest.mark.parametrize("bound", BOUNDS)
def test_full_tables_refuse_the_same(bound: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Holds, names and the claims of a session have bounds, for the short way too."""
    monkeypatch.setattr(limits, bound, BOUNDS[bound])
    results = [outcome.batches[0].results[0] for outcome in both(FOUR)]
    assert {type(result) for result in results} == {Granted, Refused}


def test_a_state_without_room_refuses_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bytes of a state have a bound, for the short way too."""
    monkeypatch.setattr(limits, "STATE_BYTES_MAX", 100)
    results = [outcome.batches[0].results[0] for outcome in both((LEASED,))]
    assert [result.reason for result in results if isinstance(result, Refused)] == [Reason.OVERLOADED]


@pytest.mark.parametrize("of", [PLAIN, LEASED])
def test_what_is_overdue_has_no_time_left(of: Acquire, monkeypatch: pytest.MonkeyPatch) -> None:
    """A session that should have ended, and has not yet, for too much ends at once: never less than 0 ms."""
    monkeypatch.setattr(limits, "EXPIRIES_PER_ENTRY_MAX", 1)
    first, second = OpenSession(SessionId("s0"), 100), OpenSession(S, 100)
    short, long = LockMachine(), without_short_ways()
    for machine in (short, long):
        machine.apply(Entry(1000, (Batch("n1", (1, 2), (first, second)),)))
        (result,) = machine.apply(Entry(5000, (Batch("n1", (3,), (of,)),))).batches[0].results
        assert isinstance(result, Granted)
        assert result.expires_in_ms == of.ttl_ms


def test_a_session_with_many_holds_forgets_what_is_released() -> None:
    """Else it would have a hold that has ended when it asks for the same again, beside who has it since."""
    other = SessionId("s2")
    shared = msgspec.structs.replace(PLAIN, name="x", mode=Mode.SHARED)
    asks = [
        msgspec.structs.replace(of, hold_id=HoldId(f"h{number}"), session_id=session_id, name=name)
        for number, (of, session_id, name) in enumerate(
            [(shared, S, "x"), (shared, S, "x"), (PLAIN, S, "e"), (PLAIN, other, "e"), (PLAIN, S, "e")]
        )
    ]
    with patch.object(records, "_SEARCHED_MAX", 0):
        outcomes = both((*asks[:3], Release(HoldId("h2")), *asks[3:]))
    assert isinstance(outcomes[-1].batches[0].results[0], Refused)


def test_refusals_take_no_name_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who is refused for anything else costs little, however many parts the name has."""
    monkeypatch.setattr(plain_locks, "claims_of_one", None)
    gone = msgspec.structs.replace(PLAIN, name="/".join(["a"] * 32), session_id=SessionId("gone"))
    short = LockMachine()
    (result,) = short.apply(Entry(1000, (Batch("n1", (1,), (gone,)),))).batches[0].results
    assert isinstance(result, Refused)
    assert result.reason is Reason.SESSION_EXPIRED


def test_what_is_kept_is_the_session_and_the_name_that_came_first() -> None:
    """Of what a command brings, nothing that is there already is kept a second time."""
    machine = LockMachine()
    for seq, command in enumerate((BEGIN[0], PLAIN, RELEASE, PLAIN), 1):
        copied = msgspec.msgpack.decode(msgspec.msgpack.encode(command), type=type(command))
        machine.apply(Entry(1000, (Batch("n1", (seq,), (copied,)),)))
    (hold,) = machine.state.holds.values()
    assert hold.session_id is machine.state.sessions[S].session_id
    assert hold.name is next(iter(plain_of(machine)._known))
    assert hold.attempt_id is hold.hold_id  # type: ignore[comparison-overlap]


@pytest.mark.parametrize(("name", "is_kept"), [("k" * 64, True), ("k" * 65, False), ("é", False)])
def test_only_short_names_are_kept(name: str, *, is_kept: bool) -> None:
    """What is kept is bounded by its bytes, too."""
    machine = LockMachine()
    machine.apply(Entry(1000, (Batch("n1", (1,), (msgspec.structs.replace(LEASED, name=name),)),)))
    assert len(machine.state.holds) == 1
    assert bool(plain_of(machine)._known) == is_kept


def test_names_that_are_kept_are_forgotten_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many names there were, only the latest few thousand are kept."""
    monkeypatch.setattr(plain_locks, "_NAMES_KEPT_MAX", 3)
    machine = LockMachine()
    for number in range(10):
        command = msgspec.structs.replace(LEASED, name=f"n{number}", hold_id=HoldId(f"h{number}"))
        command = msgspec.structs.replace(command, attempt_id=AttemptId(f"h{number}"))
        machine.apply(Entry(1000, (Batch("n1", (number + 1,), (command,)),)))
        assert len(plain_of(machine)._known) <= 3
    assert len(machine.state.holds) == 10


# -- many at once -------------------------------------------------------------------------------------------


def mixed(rng: Random, held: list[HoldId], number: int) -> Command:
    """Return a command as frames have them: mostly plain, at times for what is held, or something else."""
    if held and rng.randrange(5) < 2:
        return Release(held.pop(rng.randrange(len(held))))
    hold_id = HoldId(f"h{number}")
    held.append(hold_id)
    acquire = msgspec.structs.replace(PLAIN, hold_id=hold_id, attempt_id=AttemptId(hold_id))
    acquire = msgspec.structs.replace(acquire, name=rng.choice([f"n{number}", f"a/n{number}", "hot", "a/b"]))
    if rng.randrange(4) == 0:
        acquire = msgspec.structs.replace(acquire, uncommon=Uncommon(value="v"))
        if rng.randrange(3) == 0:
            return ReleaseByValue(acquire.name, "v")
    other = rng.randrange(12)
    if other == 0:
        return msgspec.structs.replace(acquire, mode=Mode.SHARED, wait_ms=1000)
    if other == 1:
        return msgspec.structs.replace(acquire, session_id=NO_SESSION, ttl_ms=5000)
    if other == 2:
        return msgspec.structs.replace(acquire, session_id=SessionId("s2"), wait_ms=1000)
    return Release(hold_id, names=("x",)) if other == 3 else acquire


@pytest.mark.parametrize("principal", ["", "ann"])
@pytest.mark.parametrize("seed", range(12))
def test_whole_frames_and_batches_come_to_the_same(
    seed: int, principal: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where a window is full, where a frame has made much, and where numbers come twice or fall."""
    monkeypatch.setattr(limits, "STREAM_KEPT_MAX", 40)
    monkeypatch.setattr(limits, "STREAM_KEPT_BYTES_MAX", [1 << 18, 2000][seed % 2])
    monkeypatch.setattr(limits, "FRAME_EFFORT_MAX", [10_000, 12][seed // 2 % 2])
    rng, held, numbers = Random(seed), list[HoldId](), count(1)
    short, long = LockMachine(), without_short_ways()
    begin: tuple[Any, ...] = (*BEGIN, ResumeStream(S))
    commands: list[Command] = [OnBehalf(principal, one) if principal else one for one in begin]
    seqs: tuple[int, ...] = (1, 2, 3)
    for step in range(30):
        entry = Entry(1000 + step, (Batch("n1", seqs, tuple(commands)),))
        outcome = short.apply(entry)
        assert long.apply(entry) == outcome
        assert long.fingerprint == short.fingerprint
        assert snapshot.encode(long.state) == snapshot.encode(short.state)
        invariants.check(short.state)
        stream, last = short.state.streams.get(S), short.applied_seq("n1")
        assert stream is not None
        commands = [mixed(rng, held, next(numbers)) for _ in range(rng.randint(1, 60))]
        if rng.randrange(2):
            acked = ((1, stream.last),) if stream.last and rng.randrange(3) else ()
            first = max(stream.last + 1 - rng.randrange(3), 1)
            frame = Numbered(len(commands), S, stream.epoch, first, acked, tuple(commands))  # type: ignore[arg-type]
            commands, seqs = [OnBehalf(principal, frame) if principal else frame], (last + 1,)
        else:
            order = [last + rng.choice([place, place, place, 1]) for place, _ in enumerate(commands)]
            seqs = tuple(order)
    assert short.audit_records() == long.audit_records()
