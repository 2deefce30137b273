"""Waits, holds and queues, counted from what applying entries did."""

import random
from collections import Counter
from typing import Any

import pytest

from cluster.observing.contention import NAMES_KEPT_MAX, OTHER, Contention
from cluster.observing.metrics import NodeMetrics
from lockstate.machine import LockMachine
from lockstate.stored import snapshot
from lockstate.words.commands.entries import Batch, Cancel, Command, Entry
from lockstate.words.commands.holds import (
    Acquire,
    AcquirePermits,
    AddLocks,
    Campaign,
    Convert,
    Proclaim,
    Release,
)
from lockstate.words.commands.overrides import ForceRelease
from lockstate.words.commands.primitives import ResizeSemaphore
from lockstate.words.commands.sessions import CloseSession, OpenSession
from lockstate.words.commands.streams import Numbered, ResumeStream
from lockstate.words.ids import AttemptId, HoldId, SessionId
from lockstate.words.kinds import HoldKind
from lockstate.words.modes import Mode, Scope
from lockstate.words.outcomes import Outcome
from lockstate.words.refusals import Reason, Refused
from lockstate.words.results import NumberedDone, Queued
from lockstate.words.wanted import Wanted
from tests.unit.lockstate.machine_driver import MachineDriver, expect


class Counted(MachineDriver):
    """A machine whose outcomes are counted."""

    def __init__(self, paths_count_max: int = 100) -> None:
        super().__init__()
        self.contention = Contention(paths_count_max)

    def apply(self, entry: Entry) -> Outcome:
        """Apply an entry and count what it did."""
        outcome = self.machine.apply(entry)
        self.contention.observe(outcome)
        return outcome

    def value(self, name: str, path: str, kind: str = "lock", **labels: str) -> float:
        """Return the value of one sample, 0 if it is not shown."""
        wanted = {"kind": kind, "path": path, **labels}
        found = [
            item[4]
            for item in self.contention.samples()
            if item[0] == f"holdfast_{name}" and item[3] == wanted
        ]
        assert len(found) <= 1
        return found[0] if found else 0

    def waits(self, outcome: str, path: str = "a", kind: str = "lock") -> tuple[float, float]:
        """Return how many waits had this outcome, and how long they were together."""
        return (
            self.value("wait_seconds_count", path, kind, outcome=outcome),
            self.value("wait_seconds_sum", path, kind, outcome=outcome),
        )

    def holds(self, path: str = "a", kind: str = "lock") -> tuple[float, float]:
        """Return how many holds ended, and how long they were together."""
        return self.value("hold_seconds_count", path, kind), self.value("hold_seconds_sum", path, kind)


def queue_lengths(contention: Contention) -> dict[tuple[str, str], float]:
    """Return the queues that somebody stands in, by kind and path."""
    return {
        (labels["kind"], labels["path"]): value
        for name, _, _, labels, value in contention.samples()
        if name == "holdfast_queue_length" and value
    }


def queues_of(machine: LockMachine) -> dict[tuple[str, str], int]:
    """Return the same from the state."""
    return Counter(
        (ticket.kind.value, item.name.split("/")[0])
        for ticket in machine.state.tickets.values()
        for item in ticket.locks or (ticket,)
    )


def test_only_who_waited_has_a_wait() -> None:
    """A grant at once is a grant and no wait; one from the queue is both, with the time in the queue."""
    driver = Counted()
    first = driver.granted("a/1")
    driver.queued("a/1", at_ms=100)
    assert driver.waits("granted") == (0, 0)
    driver.run(Release(first.hold_id), at_ms=350)
    assert driver.value("grants_total", "a") == 2
    assert driver.waits("granted") == (1, 0.25)


def test_a_wait_of_no_time_is_a_wait() -> None:
    """A client that is let through within the millisecond in which it came has waited for 0 seconds."""
    driver = Counted()
    first = driver.granted("a")
    driver.queued("a")
    driver.run(Release(first.hold_id))
    assert driver.waits("granted") == (1, 0)
    assert driver.value("wait_seconds_bucket", "a", outcome="granted", le="0.003") == 1


def test_waits_without_a_grant_have_their_own_histogram() -> None:
    """A wait that times out, or is cancelled, counts as ended and not as granted."""
    driver = Counted()
    driver.granted("a", ttl_ms=60_000)
    driver.queued("a")
    cancelled = driver.queued("a", at_ms=4_000)
    driver.run(Cancel(cancelled.hold_id, AttemptId("a3")), at_ms=5_000)
    driver.pass_to(10_001)
    assert driver.waits("ended") == (2, 11.001)
    assert driver.waits("granted") == (0, 0)
    assert driver.value("queue_length", "a") == 0


def test_holds_count_whatever_ends_them() -> None:
    """Released, expired and forced holds are held times; the last two are counted by themselves too."""
    driver = Counted()
    driver.run(Release(driver.granted("a/1").hold_id), at_ms=200)
    driver.granted("a/2", ttl_ms=100, at_ms=200)
    driver.pass_to(301)
    assert driver.holds() == (2, 0.301)
    driver.granted("a/3", at_ms=301)
    driver.run(ForceRelease("a/3", "stuck"), at_ms=401)
    assert driver.holds() == (3, 0.401)
    assert (driver.value("expiries_total", "a"), driver.value("forced_releases_total", "a")) == (1, 1)


def test_what_lasted_exactly_a_bound_is_within_it() -> None:
    """Three milliseconds are in the bucket of three, four are not."""
    driver = Counted()
    driver.run(Release(driver.granted("a", at_ms=10).hold_id), at_ms=13)
    driver.run(Release(driver.granted("a", at_ms=20).hold_id), at_ms=24)
    assert driver.value("hold_seconds_bucket", "a", le="0.003") == 1
    assert driver.value("hold_seconds_bucket", "a", le="0.01") == 2
    assert driver.value("hold_seconds_bucket", "a", le="+Inf") == 2


def test_of_several_locks_each_counts() -> None:
    """A request for several locks stands in a queue of each path, and each is granted and held."""
    driver = Counted()
    driver.open("s1")
    first = driver.granted("b/1")
    wanted = (Wanted("a/1"), Wanted("b/1"))
    driver.run(
        Acquire(
            "",
            Mode.EXCLUSIVE,
            HoldId("h"),
            AttemptId("a"),
            session_id=SessionId("s1"),
            wait_ms=500,
            locks=wanted,
        )
    )
    assert queue_lengths(driver.contention) == {("lock", "a"): 1, ("lock", "b"): 1}
    driver.run(Release(first.hold_id), at_ms=10)
    assert queue_lengths(driver.contention) == {}
    assert (driver.waits("granted", "a"), driver.waits("granted", "b")) == ((1, 0.01), (1, 0.01))
    driver.run(Release(HoldId("h"), names=("b/1",)), at_ms=30)
    assert (driver.holds("a")[0], driver.holds("b")) == (0, (2, 0.03))


def test_conversions_leave_the_queue_without_a_grant() -> None:
    """A conversion that waited is one conversion and one wait, no grant, and out of the queue."""
    driver = Counted()
    reader = driver.granted("a", mode=Mode.SHARED)
    other = driver.granted("a", mode=Mode.SHARED)
    expect(
        Queued,
        driver.run(
            Convert(reader.hold_id, Mode.EXCLUSIVE, HoldId("t"), AttemptId("a"), wait_ms=500), at_ms=10
        ),
    )
    assert driver.value("queue_length", "a") == 1
    driver.run(Release(other.hold_id), at_ms=40)
    assert driver.value("queue_length", "a") == 0
    assert (driver.value("conversions_total", "a"), driver.value("grants_total", "a")) == (1, 2)
    assert driver.waits("granted") == (1, 0.03)


def test_an_addition_leaves_only_the_queues_that_it_stood_in() -> None:
    """What its hold had already was not waited for, though the grant tells of it too."""
    driver = Counted()
    hold = driver.granted("a")
    other = driver.granted("b")
    driver.adding(hold.hold_id, "b", at_ms=10)
    assert queue_lengths(driver.contention) == {("lock", "b"): 1}
    driver.run(Release(other.hold_id), at_ms=40)
    assert queue_lengths(driver.contention) == {}
    assert (driver.waits("granted", "a"), driver.waits("granted", "b")) == ((0, 0), (1, 0.03))
    assert (driver.value("grants_total", "a"), driver.value("grants_total", "b")) == (1, 2)


def test_waits_that_share_a_hold_are_one_grant() -> None:
    """Each of them waited and is out of the queue; there was one grant."""
    driver = Counted()
    driver.open("s1", ttl_ms=60_000)
    first = driver.granted("a")
    for at_ms in (10, 20):
        driver.queued("a", session_id="s1", at_ms=at_ms)
    assert driver.value("queue_length", "a") == 2
    driver.run(Release(first.hold_id), at_ms=40)
    assert driver.value("queue_length", "a") == 0
    assert driver.value("grants_total", "a") == 2
    assert driver.waits("granted") == (2, 0.05)


def test_kinds_are_apart() -> None:
    """A lock, a semaphore and an election of one name are counted by themselves."""
    driver = Counted()
    driver.open("s1", ttl_ms=60_000)
    driver.open("s2", ttl_ms=60_000)
    driver.granted("a")
    for number, session_id in enumerate(("s1", "s2")):
        semaphore = AcquirePermits(
            "a", 1, 1, HoldId(f"p{number}"), AttemptId("a"), session_id=SessionId(session_id), wait_ms=900
        )
        driver.run(semaphore)
        driver.run(
            Campaign("a", SessionId(session_id), "here", HoldId(f"e{number}"), AttemptId("a"), wait_ms=900)
        )
    assert queue_lengths(driver.contention) == {("semaphore", "a"): 1, ("election", "a"): 1}
    driver.run(Release(HoldId("p0")), at_ms=20)
    driver.run(Release(HoldId("e0")), at_ms=30)
    assert queue_lengths(driver.contention) == {}
    assert driver.waits("granted", kind="semaphore") == (1, 0.02)
    assert driver.waits("granted", kind="election") == (1, 0.03)
    assert (driver.holds(kind="semaphore"), driver.holds(kind="election")) == ((1, 0.02), (1, 0.03))
    assert [driver.value("grants_total", "a", kind) for kind in HoldKind] == [1, 2, 2]


def test_a_proclamation_is_no_election() -> None:
    """A leader that says something else is not elected again, neither here nor behind a snapshot."""
    driver = Counted()
    driver.open("s1")
    driver.run(Campaign("a", SessionId("s1"), "one", HoldId("e1"), AttemptId("a")))
    driver.run(Proclaim(HoldId("e1"), "two"), at_ms=50)
    assert (driver.value("grants_total", "a", "election"), driver.waits("granted", kind="election")) == (
        1,
        (0, 0),
    )
    driver.contention = Contention()
    driver.contention.restart(driver.machine)
    driver.run(Proclaim(HoldId("e1"), "three"), at_ms=60)
    assert driver.value("grants_total", "a", "election") == 0


def test_deadlocks_count_where_they_would_have_waited() -> None:
    """A refused deadlock counts for what was asked for, with its reason, as often as it is tried."""
    driver = Counted()
    driver.open("s1")
    driver.open("s2")
    driver.granted("a", session_id="s1")
    driver.granted("b", session_id="s2")
    driver.queued("b", session_id="s1")
    for _ in range(2):
        refused = driver.acquire("a", session_id="s2", wait_ms=900, request_id="r")
        assert expect(Refused, refused).reason is Reason.DEADLOCK
    assert driver.value("deadlocks_total", "a", reason="deadlock") == 2
    assert driver.value("deadlocks_total", "b", reason="deadlock") == 0


def test_deadlocks_in_frames_of_streams_count() -> None:
    """Each of a frame, once: a frame that comes again is not refused anew."""
    driver = Counted()
    driver.open("s1")
    driver.open("s2")
    driver.granted("a", session_id="s1")
    driver.granted("b", session_id="s2")
    driver.queued("b", session_id="s1")
    driver.run(ResumeStream(SessionId("s2")))
    ask = Acquire("a", Mode.EXCLUSIVE, HoldId("w1"), AttemptId("w1"), SessionId("s2"), wait_ms=900)
    for _ in range(2):
        done = driver.run(Numbered(1, SessionId("s2"), 1, 1, (), (ask,)))
        assert expect(Refused, expect(NumberedDone, done).results[0]).reason is Reason.DEADLOCK
    assert driver.value("deadlocks_total", "a", reason="deadlock") == 1


def test_deadlocks_of_conversions_are_apart() -> None:
    """Two readers that both want to write are a deadlock of conversions."""
    driver = Counted()
    driver.open("s1")
    driver.open("s2")
    one, two = (driver.granted("a", mode=Mode.SHARED, session_id=session_id) for session_id in ("s1", "s2"))
    driver.run(Convert(one.hold_id, Mode.EXCLUSIVE, HoldId("t1"), AttemptId("a"), wait_ms=500))
    refused = driver.run(Convert(two.hold_id, Mode.EXCLUSIVE, HoldId("t2"), AttemptId("a"), wait_ms=500))
    assert expect(Refused, refused).reason is Reason.CONVERSION_DEADLOCK
    assert driver.value("deadlocks_total", "a", reason="conversion-deadlock") == 1
    assert driver.value("deadlocks_total", "a", reason="deadlock") == 0


def test_paths_are_bounded() -> None:
    """The first paths to come are counted by themselves for ever, all later ones together."""
    driver = Counted(paths_count_max=2)
    for name in ("a/1", "b", "c/1", "d", "a/2", "c/2", "other/1"):
        driver.granted(name)
    paths = {labels["path"] for _, _, _, labels, _ in driver.contention.samples()}
    assert paths == {"a", "b", OTHER}
    assert [driver.value("grants_total", path) for path in ("a", "b", OTHER)] == [2, 1, 4]


def test_every_metric_is_known_before_anything_happens() -> None:
    """What is counted is shown with zeros from the start, each metric in one piece."""
    names = [name for name, *_ in Contention().samples()]
    metrics = list(dict.fromkeys(name.partition("_seconds_")[0] for name in names))
    assert metrics == [
        "holdfast_queue_length",
        "holdfast_grants_total",
        "holdfast_expiries_total",
        "holdfast_forced_releases_total",
        "holdfast_conversions_total",
        "holdfast_deadlocks_total",
        "holdfast_wait",
        "holdfast_hold",
    ]


def test_a_node_counts_events_by_kind() -> None:
    """The node's metrics have the events of all kinds, and what is counted of contention."""
    driver = Counted()
    metrics = NodeMetrics(list)
    metrics.contention.observe(
        driver.apply(Entry(0, (Batch("n", (1,), (OpenSession(SessionId("s"), 100),)),)))
    )
    metrics.applied(driver.apply(Entry(101)))
    metrics.restored(driver.machine)
    shown = {(name, labels.get("event")): value for name, _, _, labels, value in metrics.samples()}
    assert shown["holdfast_events_total", "session-expired"] == 1
    assert shown["holdfast_events_total", "granted"] == 0
    assert ("holdfast_queue_length", None) in shown


# -- queues under everything at once ------------------------------------------------------------------------

NAMES = ("a", "a/b", "a/b/c", "b", "b/x")
SESSIONS = ("s1", "s2", "s3")


class Traffic:
    """Random commands that meet all the time."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self._count = 0

    def command(self, machine: LockMachine) -> Command:
        """Return the next command. What exists is ended as often as something begins."""
        rng = self.random
        self._count += 1
        new_id = f"n{self._count}"
        name, session_id = rng.choice(NAMES), rng.choice(SESSIONS)
        wait_ms, mode = rng.choice((0, 30, 3_000, 3_000)), rng.choice(list(Mode))
        ids = [*machine.state.holds, *machine.state.tickets] or [HoldId("none")]
        some_id = rng.choice(ids)
        scope = rng.choice(list(Scope))
        wanted = tuple(Wanted(item, mode) for item in rng.sample(NAMES, 2))
        leased: dict[str, Any] = {"ttl_ms": 200} if rng.random() < 0.3 else {"session_id": session_id}
        if rng.random() < 0.2:
            return OpenSession(SessionId(session_id), 2_000)
        choices: list[Command] = [
            Acquire(name, mode, HoldId(new_id), AttemptId("a"), wait_ms=wait_ms, scope=scope, **leased),
            Acquire(name, mode, HoldId(new_id), AttemptId("a"), wait_ms=wait_ms, scope=scope, **leased),
            Acquire("", mode, HoldId(new_id), AttemptId("a"), wait_ms=wait_ms, locks=wanted, **leased),
            AcquirePermits(
                name, 3, rng.randint(1, 3), HoldId(new_id), AttemptId("a"), wait_ms=wait_ms, **leased
            ),
            Campaign(
                name, SessionId(session_id), rng.choice("xy"), HoldId(new_id), AttemptId("a"), wait_ms=wait_ms
            ),
            Convert(some_id, mode, HoldId(new_id), AttemptId("a"), wait_ms=wait_ms),
            AddLocks(some_id, wanted, HoldId(new_id), AttemptId("a"), wait_ms=wait_ms),
            Release(some_id),
            Release(some_id, names=(name,)),
            Cancel(some_id, AttemptId("a")),
            ForceRelease(name, "", lock_delay_ms=rng.choice((0, 40))),
            ResizeSemaphore(name, rng.choice((2, 3))),
            CloseSession(SessionId(session_id)),
            Proclaim(some_id, "z"),
        ]
        return rng.choice(choices)


@pytest.mark.parametrize("seed", range(10))
def test_queue_lengths_are_those_of_the_state(seed: int) -> None:
    """After every entry the queues are as long as they are in the state, also behind a snapshot."""
    traffic = Traffic(seed)
    machine, contention, now_ms, seq, entries_with_waiters = LockMachine(), Contention(), 0, 0, 0
    for _ in range(250):
        now_ms += traffic.random.choice((0, 0, 1, 20))
        commands = tuple(traffic.command(machine) for _ in range(traffic.random.randint(1, 3)))
        seqs = tuple(range(seq + 1, seq + 1 + len(commands)))
        seq += len(commands)
        contention.observe(machine.apply(Entry(now_ms, (Batch("n1", seqs, commands),))))
        assert queue_lengths(contention) == queues_of(machine)
        entries_with_waiters += bool(machine.state.tickets)
        if traffic.random.random() < 0.02:
            machine = LockMachine(snapshot.decode(snapshot.encode(machine.state)))
            if traffic.random.random() < 0.5:
                contention = Contention()
            contention.restart(machine)
            assert queue_lengths(contention) == queues_of(machine)
    assert entries_with_waiters > 10


def test_only_some_names_are_kept() -> None:
    """However many names there were, a few thousand short ones are known, and all are counted."""
    driver = Counted()
    for number in range(NAMES_KEPT_MAX + 10):
        driver.run(Acquire(f"a/{number}", Mode.EXCLUSIVE, HoldId(f"h{number}"), AttemptId("a"), ttl_ms=5000))
    assert 0 < len(driver.contention._of_locks) <= NAMES_KEPT_MAX
    long = "a/" + "k" * 70
    driver.run(Acquire(long, Mode.EXCLUSIVE, HoldId("h"), AttemptId("a"), ttl_ms=5000))
    assert long not in driver.contention._of_locks
    assert driver.value("grants_total", "a") == NAMES_KEPT_MAX + 11


def test_grants_and_ends_balance() -> None:
    """What was granted has ended or is held still: no grant and no end counts twice or not at all."""
    traffic, driver = Traffic(99), Counted()
    for at_ms in range(0, 3000, 5):
        driver.run(traffic.command(driver.machine), at_ms)
    granted: Counter[str] = Counter()
    for name, _, _, labels, value in driver.contention.samples():
        if name in {"holdfast_grants_total", "holdfast_hold_seconds_count"}:
            granted[labels["kind"]] += int(value if name == "holdfast_grants_total" else -value)
    held = Counter(
        hold.kind.value for hold in driver.machine.state.holds.values() for _ in hold.locks or (hold,)
    )
    assert +granted == held
