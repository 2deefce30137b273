"""The checkers of what clients see object to what they are for, and to nothing else."""

from lockstate.commands import (
    Barrier,
    Cancel,
    CloseSession,
    ForceRelease,
    KeepAlive,
    OpenSession,
    Release,
    Renew,
    Tick,
)
from lockstate.ids import AttemptId, HoldId, SessionId
from lockstate.modes import Mode
from lockstate.results import Granted, LockView, Reason, Refused, Released
from tests.simulation.checks.scripted_cluster import ScriptedCluster, acquire, objects
from tests.simulation.workload.history import Query, ReadLock, ReadLocks, ReadSession


def granted(hold: str, token: int, expires_in_ms: int = 1000, name: str = "x") -> Granted:
    """Return the answer to a granted acquire."""
    return Granted(HoldId(hold), token, name, Mode.EXCLUSIVE, expires_in_ms)


# -- answers ----------------------------------------------------------------------------------------------


def test_right_answers_pass() -> None:
    """Every kind of command, waits, repeated requests and unknown outcomes pass when told as they are."""
    story = ScriptedCluster()
    story.ask(OpenSession(SessionId("s1"), 60_000, {"owner": "me"}, "r0"))
    story.ask(acquire("h1", request_id="r1", owner="one"))
    story.ask(acquire("h9", attempt_id="again", request_id="r1", owner="one"), node_id="b")
    waiting = story.call(acquire("h2", session_id="s1", ttl_ms=0, wait_ms=5000), node_id="c")
    story.commit(acquire("h2", session_id="s1", ttl_ms=0, wait_ms=5000), node_id="c")
    assert story.ask(acquire("h3")).reason == Reason.LOCK_HELD  # type: ignore[union-attr]
    story.ask(Renew(HoldId("h1"), 2000))
    lost = story.call(Renew(HoldId("h1")))
    story.history.gone(lost, story.now_us)
    story.ask(Release(HoldId("h1"), "r2"))
    revision, result = story.wait_ends["h2"]
    story.reply(waiting, result, revision)
    story.ask(KeepAlive(SessionId("s1")))
    story.ask(ForceRelease("x", "by hand"))
    story.ask(CloseSession(SessionId("s1")))
    story.commit(Renew(HoldId("h1")))
    story.commit(Tick(), Barrier(), Cancel(HoldId("h2"), AttemptId("no such attempt")))
    assert story.checkers.violation is None
    assert story.history.outcomes["granted"] == 3
    assert not story.history.calls


def test_a_wrong_answer() -> None:
    """An answer that is not the model's is found: another result, another token, another revision."""
    for token, later in ((2, 0), (1, 1), (1, -1)):
        story = ScriptedCluster()
        story.commit(Tick())
        number = story.call(acquire("h1"))
        revision = story.commit(acquire("h1"))
        story.commit(Tick())
        with objects("reply"):
            story.reply(number, granted("h1", token), revision + later)
    story = ScriptedCluster()
    number = story.call(Release(HoldId("h1")))
    with objects("reply"):
        story.reply(number, Released(), story.commit(Release(HoldId("h1"))))


def test_an_answer_without_an_entry() -> None:
    """An answer to a command that no committed entry contains is found."""
    story = ScriptedCluster()
    number = story.call(acquire("h1"))
    with objects("reply"):
        story.reply(number, granted("h1", 1), story.commit(Tick()))


def test_a_wait_that_has_not_ended() -> None:
    """A grant told to one who still waits is found, and so is a refusal in place of a grant."""
    story = ScriptedCluster()
    story.ask(acquire("h1"))
    number = story.call(acquire("h2", wait_ms=5000))
    revision = story.commit(acquire("h2", wait_ms=5000))
    with objects("reply"):
        story.reply(number, granted("h2", 2), revision)
    story = ScriptedCluster()
    story.ask(acquire("h1"))
    number = story.call(acquire("h2", wait_ms=5000))
    story.commit(acquire("h2", wait_ms=5000))
    story.ask(Release(HoldId("h1")))
    with objects("reply"):
        story.reply(number, Refused(Reason.LOCK_HELD, ""), story.wait_ends["h2"][0])


def test_waiters_that_are_told_of_their_end() -> None:
    """A wait that ends by its deadline, by its session or by a cancel is told so."""
    story = ScriptedCluster()
    story.ask(OpenSession(SessionId("s1"), 60_000, {}))
    story.ask(acquire("h1", ttl_ms=60_000))
    waits = {
        "h2": acquire("h2", wait_ms=500),
        "h3": acquire("h3", session_id="s1", ttl_ms=0, wait_ms=50_000),
        "h4": acquire("h4", wait_ms=50_000),
    }
    numbers = {hold_id: story.call(command) for hold_id, command in waits.items()}
    story.commit(*waits.values())
    story.pass_ms(1000)
    story.commit(Tick())
    story.ask(CloseSession(SessionId("s1")))
    story.commit(Cancel(HoldId("h4"), AttemptId("try-h4")))
    for hold_id, number in numbers.items():
        revision, result = story.wait_ends[hold_id]
        story.reply(number, result, revision)
    assert story.history.outcomes["lock-held"] == 2
    assert story.history.outcomes["session-expired"] == 1


def test_a_grant_found_in_a_snapshot() -> None:
    """A node that restored a snapshot may tell a grant with what is left of it; any other may not."""
    for node_id in ("c", "b"):
        story = ScriptedCluster()
        story.ask(acquire("h1"))
        command = acquire("h2", wait_ms=5000)
        number = story.call(command, node_id="c")
        story.commit(command, node_id="c")
        story.ask(Release(HoldId("h1")))
        story.pass_ms(100)
        story.commit(Tick())
        story.checkers.restored(node_id, story.log[-1][1], story.machines[node_id])
        told = story.machine.attempt(HoldId("h2"))
        assert isinstance(told, Granted)
        if node_id == "c":
            story.reply(number, told, story.machine.revision)
        else:
            with objects("reply"):
                story.reply(number, told, story.machine.revision)


def test_a_grant_found_in_a_snapshot_of_its_own_entry() -> None:
    """What was renewed behind the grant, in the same entry, is told by a node that restored it; no other."""
    for node_id in ("c", "b"):
        story = ScriptedCluster()
        story.ask(OpenSession(SessionId("s1"), 5000, {}))
        story.ask(acquire("h1", ttl_ms=60_000))
        command = acquire("h2", session_id="s1", ttl_ms=0, wait_ms=50_000)
        number = story.call(command, node_id="c")
        story.commit(command, node_id="c")
        story.pass_ms(1000)
        for each in (Release(HoldId("h1")), KeepAlive(SessionId("s1"))):
            story.call(each)
        story.commit(Release(HoldId("h1")), KeepAlive(SessionId("s1")))
        story.checkers.restored(node_id, story.log[-1][1], story.machines[node_id])
        told = story.machine.attempt(HoldId("h2"))
        assert isinstance(told, Granted)
        assert told != story.wait_ends["h2"][1], "less was left when it was granted"
        if node_id == "c":
            story.reply(number, told, story.machine.revision)
        else:
            with objects("reply"):
                story.reply(number, told, story.machine.revision)


def test_a_command_that_is_applied_twice() -> None:
    """A command that has an effect twice, or that nobody asked for, is found."""
    story = ScriptedCluster()
    story.ask(KeepAlive(SessionId("s1")))
    with objects("asked-once"):
        story.commit(KeepAlive(SessionId("s1")))
    story = ScriptedCluster()
    story.call(KeepAlive(SessionId("s1")))
    story.commit(KeepAlive(SessionId("s1")))
    with objects("asked-once"):
        story.commit(KeepAlive(SessionId("s1")))


def test_a_command_that_was_not_applied() -> None:
    """A command whose client was told that it had no effect must not have had one, nor have one later."""
    story = ScriptedCluster()
    number = story.call(acquire("h1"))
    story.commit(acquire("h1"))
    with objects("not-applied"):
        story.history.failed(number, story.now_us, "no-leader", "not-applied")
    story = ScriptedCluster()
    number = story.call(acquire("h1"))
    story.history.failed(number, story.now_us, "no-leader", "not-applied")
    with objects("asked-once"):
        story.commit(acquire("h1"))


def test_what_is_unknown_may_fall_either_way() -> None:
    """A command whose outcome its client does not know may have its effect late, once, or never."""
    story = ScriptedCluster()
    numbers = [
        story.call(command) for command in (Renew(HoldId("h1")), Renew(HoldId("h1")), Renew(HoldId("h2")))
    ]
    story.history.failed(numbers[0], story.now_us, "outcome-unknown", "unknown")
    story.history.gone(numbers[2], story.now_us)
    story.reply(numbers[1], Refused(Reason.LEASE_EXPIRED, ""), story.commit(Renew(HoldId("h1"))))
    story.commit(Renew(HoldId("h1")))
    with objects("asked-once"):
        story.commit(Renew(HoldId("h1")))


def test_settled_calls_are_forgotten() -> None:
    """What has its answer and its effect takes no memory any more; what may still come does."""
    story = ScriptedCluster()
    for number in range(50):
        story.ask(acquire(f"h{number}", f"x{number}"))
    assert len(story.checkers.replies) == 0
    story.history.gone(story.call(acquire("late")), story.now_us)
    assert len(story.checkers.replies) == 1


# -- real time and reads ----------------------------------------------------------------------------------


def test_an_order_against_real_time() -> None:
    """A command that comes into effect before what was known when it was asked for is found."""
    story = ScriptedCluster()
    story.call(Renew(HoldId("h9")))
    early = story.commit(Renew(HoldId("h9")))
    story.ask(acquire("h1"))
    number = story.call(Renew(HoldId("h9")))
    with objects("real-time"):
        story.reply(number, Refused(Reason.LEASE_EXPIRED, ""), early)


def test_right_reads_pass() -> None:
    """Locks, pages and sessions pass if they are as they were at any revision since the call."""
    story = ScriptedCluster()
    story.ask(OpenSession(SessionId("s1"), 60_000, {"owner": "me"}))
    story.ask(acquire("h1", session_id="s1", ttl_ms=0))
    story.ask(acquire("h2", "y"))
    story.ask(acquire("h3", "yy"))
    queries: list[Query] = [
        ReadLock("x"),
        ReadLocks("y", "", 1),
        ReadLocks("", "x"),
        ReadSession(SessionId("s1")),
        ReadSession(SessionId("s2")),
    ]
    for query in queries:
        number = story.history.call_read("two", "b", query, story.now_us)
        unanswered = story.history.call_read("two", "b", query, story.now_us)
        revision = story.commit(Barrier())
        value = query.ask(story.machine)
        story.ask(Renew(HoldId("h1")))
        story.history.reply_read(number, story.now_us, value, revision)
        story.history.end_read(unanswered, story.now_us)
    assert story.checkers.reads.checked_count == len(queries)


def test_a_stale_read() -> None:
    """A read of a revision older than what was told to anybody before it is found."""
    story = ScriptedCluster()
    stale, revision = ReadLock("x").ask(story.machine), story.commit(Tick())
    story.ask(acquire("h1"))
    number = story.history.call_read("two", "b", ReadLock("x"), story.now_us)
    with objects("read-fresh"):
        story.history.reply_read(number, story.now_us, stale, revision)


def test_a_fresh_read_of_the_past() -> None:
    """A revision that was newer than all answers, and had passed when it was asked for, is not compared."""
    story = ScriptedCluster()
    revision = story.commit(Tick())
    story.commit(Tick())
    number = story.history.call_read("two", "b", ReadLock("x"), story.now_us)
    story.history.reply_read(number, story.now_us, LockView("x", "free"), revision)
    assert story.checkers.reads.unchecked_count == 1


def test_a_wrong_read() -> None:
    """A read that shows what was not so at its revision, or a revision that is not yet, is found."""
    for later in (0, 1):
        story = ScriptedCluster()
        story.ask(acquire("h1", owner="one"))
        number = story.history.call_read("two", "b", ReadLock("x"), story.now_us)
        revision = story.commit(Barrier())
        value = ReadLock("x").ask(story.machine) if later else LockView("x", "free")
        with objects("read-view"):
            story.history.reply_read(number, story.now_us, value, revision + later)
