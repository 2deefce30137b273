"""The checkers of what clients see object to what they are for, and to nothing else."""

from lockstate.words.commands.admin import SetNamespace
from lockstate.words.commands.entries import Barrier, Cancel, Tick
from lockstate.words.commands.holds import Release, Renew
from lockstate.words.commands.overrides import ForceRelease
from lockstate.words.commands.sessions import CloseSession, KeepAlive, OpenSession
from lockstate.words.ids import AttemptId, HoldId, SessionId
from lockstate.words.modes import Mode
from lockstate.words.refusals import Reason, Refused
from lockstate.words.results import Granted, Released
from lockstate.words.settings import NamespaceSettings
from lockstate.words.views import LockView
from tests.simulation.checks.scripted_cluster import ScriptedCluster, acquire, objects
from tests.simulation.workload.history import Query, ReadLock, ReadLocks, ReadSession


def granted(hold: str, token: int, expires_in_ms: int = 1000, name: str = "x") -> Granted:
    """Return the answer to a granted acquire."""
    return Granted(HoldId(hold), token, name, Mode.EXCLUSIVE, expires_in_ms)


# -- answers ----------------------------------------------------------------------------------------------


def test_right_answers_pass() -> None:
    """Every kind of command, waits, repeated requests and unknown outcomes pass when told as they are."""
    cluster = ScriptedCluster()
    cluster.ask(OpenSession(SessionId("s1"), 60_000, {"owner": "me"}, "r0"))
    cluster.ask(acquire("h1", request_id="r1", owner="one"))
    cluster.ask(acquire("h9", attempt_id="again", request_id="r1", owner="one"), node_id="b")
    waiting = cluster.call(acquire("h2", session_id="s1", ttl_ms=0, wait_ms=5000), node_id="c")
    cluster.commit(acquire("h2", session_id="s1", ttl_ms=0, wait_ms=5000), node_id="c")
    assert cluster.ask(acquire("h3")).reason == Reason.LOCK_HELD  # type: ignore[union-attr]
    cluster.ask(Renew(HoldId("h1"), 2000))
    lost = cluster.call(Renew(HoldId("h1")))
    cluster.history.gone(lost, cluster.now_us)
    cluster.ask(Release(HoldId("h1"), "r2"))
    revision, result = cluster.wait_ends["h2"]
    cluster.reply(waiting, result, revision)
    cluster.ask(KeepAlive(SessionId("s1")))
    cluster.ask(ForceRelease("x", "by hand"))
    cluster.ask(CloseSession(SessionId("s1")))
    cluster.commit(Renew(HoldId("h1")))
    cluster.commit(Tick(), Barrier(), Cancel(HoldId("h2"), AttemptId("no such attempt")))
    assert cluster.checkers.violation is None
    assert cluster.history.outcomes["granted"] == 3
    assert not cluster.history.calls


def test_a_wrong_answer() -> None:
    """An answer that is not the model's is found: another result, another token, another revision."""
    for token, later in ((2, 0), (1, 1), (1, -1)):
        cluster = ScriptedCluster()
        cluster.commit(Tick())
        number = cluster.call(acquire("h1"))
        revision = cluster.commit(acquire("h1"))
        cluster.commit(Tick())
        with objects("reply"):
            cluster.reply(number, granted("h1", token), revision + later)
    cluster = ScriptedCluster()
    number = cluster.call(Release(HoldId("h1")))
    with objects("reply"):
        cluster.reply(number, Released(), cluster.commit(Release(HoldId("h1"))))


def test_an_answer_without_an_entry() -> None:
    """An answer to a command that no committed entry contains is found."""
    cluster = ScriptedCluster()
    number = cluster.call(acquire("h1"))
    with objects("reply"):
        cluster.reply(number, granted("h1", 1), cluster.commit(Tick()))


def test_a_refusal_for_want_of_room_without_an_entry() -> None:
    """It passes where the model refuses, too, or refused before; where there is room it is found."""
    cluster = ScriptedCluster()
    free = cluster.call(acquire("h0", name="y"))
    wanted = acquire("h1", name="x/a")
    early = cluster.call(wanted)
    cluster.ask(SetNamespace("x", NamespaceSettings(holds=0)))
    number = cluster.call(wanted)
    refused = cluster.machine.no_room_for(wanted, "")
    assert refused is not None
    revision = cluster.machine.revision
    cluster.reply(number, refused, revision)
    cluster.reply(early, refused, revision)
    with objects("reply"):
        cluster.reply(free, refused, revision)
    for later in (-1, 1):
        cluster = ScriptedCluster()
        cluster.ask(SetNamespace("x", NamespaceSettings(holds=0)))
        with objects("reply"):
            cluster.reply(cluster.call(wanted), refused, cluster.machine.revision + later)


def test_a_wait_that_has_not_ended() -> None:
    """A grant told to one who still waits is found, and so is a refusal in place of a grant."""
    cluster = ScriptedCluster()
    cluster.ask(acquire("h1"))
    number = cluster.call(acquire("h2", wait_ms=5000))
    revision = cluster.commit(acquire("h2", wait_ms=5000))
    with objects("reply"):
        cluster.reply(number, granted("h2", 2), revision)
    cluster = ScriptedCluster()
    cluster.ask(acquire("h1"))
    number = cluster.call(acquire("h2", wait_ms=5000))
    cluster.commit(acquire("h2", wait_ms=5000))
    cluster.ask(Release(HoldId("h1")))
    with objects("reply"):
        cluster.reply(number, Refused(Reason.LOCK_HELD, ""), cluster.wait_ends["h2"][0])


def test_waiters_that_are_told_of_their_end() -> None:
    """A wait that ends by its deadline, by its session or by a cancel is told so."""
    cluster = ScriptedCluster()
    cluster.ask(OpenSession(SessionId("s1"), 60_000, {}))
    cluster.ask(acquire("h1", ttl_ms=60_000))
    waits = {
        "h2": acquire("h2", wait_ms=500),
        "h3": acquire("h3", session_id="s1", ttl_ms=0, wait_ms=50_000),
        "h4": acquire("h4", wait_ms=50_000),
    }
    numbers = {hold_id: cluster.call(command) for hold_id, command in waits.items()}
    cluster.commit(*waits.values())
    cluster.pass_ms(1000)
    cluster.commit(Tick())
    cluster.ask(CloseSession(SessionId("s1")))
    cluster.commit(Cancel(HoldId("h4"), AttemptId("try-h4")))
    for hold_id, number in numbers.items():
        revision, result = cluster.wait_ends[hold_id]
        cluster.reply(number, result, revision)
    assert cluster.history.outcomes["lock-held"] == 2
    assert cluster.history.outcomes["session-expired"] == 1


def test_a_grant_found_in_a_snapshot() -> None:
    """A node that restored a snapshot may tell a grant with what is left of it; any other may not."""
    for node_id in ("c", "b"):
        cluster = ScriptedCluster()
        cluster.ask(acquire("h1"))
        command = acquire("h2", wait_ms=5000)
        number = cluster.call(command, node_id="c")
        cluster.commit(command, node_id="c")
        cluster.ask(Release(HoldId("h1")))
        cluster.pass_ms(100)
        cluster.commit(Tick())
        cluster.checkers.restored(node_id, cluster.log[-1][1], cluster.machines[node_id])
        told = cluster.machine.attempt(HoldId("h2"))
        assert isinstance(told, Granted)
        if node_id == "c":
            cluster.reply(number, told, cluster.machine.revision)
        else:
            with objects("reply"):
                cluster.reply(number, told, cluster.machine.revision)


def test_a_grant_found_in_a_snapshot_of_its_own_entry() -> None:
    """What was renewed behind the grant, in the same entry, is told by a node that restored it; no other."""
    for node_id in ("c", "b"):
        cluster = ScriptedCluster()
        cluster.ask(OpenSession(SessionId("s1"), 5000, {}))
        cluster.ask(acquire("h1", ttl_ms=60_000))
        command = acquire("h2", session_id="s1", ttl_ms=0, wait_ms=50_000)
        number = cluster.call(command, node_id="c")
        cluster.commit(command, node_id="c")
        cluster.pass_ms(1000)
        for each in (Release(HoldId("h1")), KeepAlive(SessionId("s1"))):
            cluster.call(each)
        cluster.commit(Release(HoldId("h1")), KeepAlive(SessionId("s1")))
        cluster.checkers.restored(node_id, cluster.log[-1][1], cluster.machines[node_id])
        told = cluster.machine.attempt(HoldId("h2"))
        assert isinstance(told, Granted)
        assert told != cluster.wait_ends["h2"][1], "less was left when it was granted"
        if node_id == "c":
            cluster.reply(number, told, cluster.machine.revision)
        else:
            with objects("reply"):
                cluster.reply(number, told, cluster.machine.revision)


def test_a_command_that_is_applied_twice() -> None:
    """A command that has an effect twice, or that nobody asked for, is found."""
    cluster = ScriptedCluster()
    cluster.ask(KeepAlive(SessionId("s1")))
    with objects("asked-once"):
        cluster.commit(KeepAlive(SessionId("s1")))
    cluster = ScriptedCluster()
    cluster.call(KeepAlive(SessionId("s1")))
    cluster.commit(KeepAlive(SessionId("s1")))
    with objects("asked-once"):
        cluster.commit(KeepAlive(SessionId("s1")))


def test_a_command_that_was_not_applied() -> None:
    """A command whose client was told that it had no effect must not have had one, nor have one later."""
    cluster = ScriptedCluster()
    number = cluster.call(acquire("h1"))
    cluster.commit(acquire("h1"))
    with objects("not-applied"):
        cluster.history.failed(number, cluster.now_us, "no-leader", "not-applied")
    cluster = ScriptedCluster()
    number = cluster.call(acquire("h1"))
    cluster.history.failed(number, cluster.now_us, "no-leader", "not-applied")
    with objects("asked-once"):
        cluster.commit(acquire("h1"))


def test_what_is_unknown_may_fall_either_way() -> None:
    """A command whose outcome its client does not know may have its effect late, once, or never."""
    cluster = ScriptedCluster()
    numbers = [
        cluster.call(command) for command in (Renew(HoldId("h1")), Renew(HoldId("h1")), Renew(HoldId("h2")))
    ]
    cluster.history.failed(numbers[0], cluster.now_us, "outcome-unknown", "unknown")
    cluster.history.gone(numbers[2], cluster.now_us)
    cluster.reply(numbers[1], Refused(Reason.LEASE_EXPIRED, ""), cluster.commit(Renew(HoldId("h1"))))
    cluster.commit(Renew(HoldId("h1")))
    with objects("asked-once"):
        cluster.commit(Renew(HoldId("h1")))


def test_settled_calls_are_forgotten() -> None:
    """What has its answer and its effect takes no memory any more; what may still come does."""
    cluster = ScriptedCluster()
    for number in range(50):
        cluster.ask(acquire(f"h{number}", f"x{number}"))
    assert len(cluster.checkers.replies) == 0
    cluster.history.gone(cluster.call(acquire("late")), cluster.now_us)
    assert len(cluster.checkers.replies) == 1


# -- real time and reads ----------------------------------------------------------------------------------


def test_an_order_against_real_time() -> None:
    """A command that comes into effect before what was known when it was asked for is found."""
    cluster = ScriptedCluster()
    cluster.call(Renew(HoldId("h9")))
    early = cluster.commit(Renew(HoldId("h9")))
    cluster.ask(acquire("h1"))
    number = cluster.call(Renew(HoldId("h9")))
    with objects("real-time"):
        cluster.reply(number, Refused(Reason.LEASE_EXPIRED, ""), early)


def test_right_reads_pass() -> None:
    """Locks, pages and sessions pass if they are as they were at any revision since the call."""
    cluster = ScriptedCluster()
    cluster.ask(OpenSession(SessionId("s1"), 60_000, {"owner": "me"}))
    cluster.ask(acquire("h1", session_id="s1", ttl_ms=0))
    cluster.ask(acquire("h2", "y"))
    cluster.ask(acquire("h3", "yy"))
    queries: list[Query] = [
        ReadLock("x"),
        ReadLocks("y", "", 1),
        ReadLocks("", "x"),
        ReadSession(SessionId("s1")),
        ReadSession(SessionId("s2")),
    ]
    for query in queries:
        number = cluster.history.call_read("two", "b", query, cluster.now_us)
        unanswered = cluster.history.call_read("two", "b", query, cluster.now_us)
        revision = cluster.commit(Barrier())
        value = query.ask(cluster.machine)
        cluster.ask(Renew(HoldId("h1")))
        cluster.history.reply_read(number, cluster.now_us, value, revision)
        cluster.history.end_read(unanswered, cluster.now_us)
    assert cluster.checkers.reads.checked_count == len(queries)


def test_a_stale_read() -> None:
    """A read of a revision older than what was told to anybody before it is found."""
    cluster = ScriptedCluster()
    stale, revision = ReadLock("x").ask(cluster.machine), cluster.commit(Tick())
    cluster.ask(acquire("h1"))
    number = cluster.history.call_read("two", "b", ReadLock("x"), cluster.now_us)
    with objects("read-fresh"):
        cluster.history.reply_read(number, cluster.now_us, stale, revision)


def test_a_fresh_read_of_the_past() -> None:
    """A revision that was newer than all answers, and had passed when it was asked for, is not compared."""
    cluster = ScriptedCluster()
    revision = cluster.commit(Tick())
    cluster.commit(Tick())
    number = cluster.history.call_read("two", "b", ReadLock("x"), cluster.now_us)
    cluster.history.reply_read(number, cluster.now_us, LockView("x", "free"), revision)
    assert cluster.checkers.reads.unchecked_count == 1


def test_a_wrong_read() -> None:
    """A read that shows what was not so at its revision, or a revision that is not yet, is found."""
    for later in (0, 1):
        cluster = ScriptedCluster()
        cluster.ask(acquire("h1", owner="one"))
        number = cluster.history.call_read("two", "b", ReadLock("x"), cluster.now_us)
        revision = cluster.commit(Barrier())
        value = ReadLock("x").ask(cluster.machine) if later else LockView("x", "free")
        with objects("read-view"):
            cluster.history.reply_read(number, cluster.now_us, value, revision + later)
