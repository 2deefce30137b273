"""The checkers that look at clients and time only object to what they are for, and to nothing else."""

from lockstate.words.cell_operations import TakeOperation
from lockstate.words.commands.admin import SetNamespace
from lockstate.words.commands.cells import TransactCells
from lockstate.words.commands.entries import AbandonWaits, Cancel, Command, Tick
from lockstate.words.commands.holds import Release, Renew
from lockstate.words.commands.overrides import ForceRelease
from lockstate.words.commands.sessions import CloseSession, KeepAlive, OpenSession
from lockstate.words.ids import AttemptId, HoldId, OwnerName, SessionId
from lockstate.words.modes import Mode
from lockstate.words.refusals import Reason, Refused
from lockstate.words.results import (
    ForceReleased,
    Granted,
    LockTaken,
    Released,
    Renewed,
    Result,
    SessionClosed,
    SessionOpened,
    Transacted,
)
from lockstate.words.settings import NamespaceSettings
from lockstate.words.views import HolderView
from lockstate.words.wanted import Asking, Wanted
from tests.simulation.checks.all_checkers import Checkers
from tests.simulation.checks.model_replay import Step
from tests.simulation.checks.requests import Requests
from tests.simulation.checks.scripted_cluster import ScriptedCluster, acquire, objects
from tests.simulation.workload.history import Belief, Call


def granted(hold: str, token: int, name: str = "x") -> Granted:
    """Return the answer to a granted acquire."""
    return Granted(HoldId(hold), token, name, Mode.EXCLUSIVE, 1000)


# -- one outcome for each request -------------------------------------------------------------------------

SAME: list[tuple[Command, Command, Result, Result]] = [
    (acquire("h1", request_id="r"), acquire("h2", request_id="r"), granted("h1", 1), granted("h1", 1)),
    (Renew(HoldId("h1"), 0, "r"), Renew(HoldId("h1"), 0, "r"), Renewed(1, 500), Renewed(1, 0)),
    (
        Renew(HoldId("h1"), 0, "r"),
        Renew(HoldId("h1"), 0, "r"),
        Renewed(1, 500),
        Refused(Reason.LEASE_EXPIRED, ""),
    ),
    (Release(HoldId("h1"), "r"), Release(HoldId("h1"), "r"), Released(), Released()),
    (
        OpenSession(SessionId("s1"), 100, {}, "r"),
        OpenSession(SessionId("s2"), 100, {}, "r"),
        SessionOpened(SessionId("s1"), 100, 100),
        SessionOpened(SessionId("s1"), 100, 7),
    ),
    (
        CloseSession(SessionId("s1"), "r"),
        CloseSession(SessionId("s1"), "r"),
        SessionClosed(("x",)),
        SessionClosed(("x",)),
    ),
    (ForceRelease("x", "", 0, "r"), ForceRelease("x", "", 0, "r"), ForceReleased(()), ForceReleased(())),
]
"""A request, its repetition, the first outcome, and what the repetition may be told."""

OTHER: list[Result] = [
    granted("h2", 2),
    Renewed(2, 500),
    Refused(Reason.SESSION_EXPIRED, ""),
    Refused(Reason.LEASE_EXPIRED, ""),
    SessionOpened(SessionId("s2"), 100, 100),
    SessionClosed(()),
    ForceReleased((HolderView(OwnerName("me"), Mode.EXCLUSIVE, 1, 0, ""),)),
]
"""What each of the repetitions above must not be told."""


def tell(requests: Requests, command: Command, result: Result, *, asked_us: int = 0, now_us: int = 0) -> None:
    """Tell of a reply without a cluster."""
    requests.replied(called(command, asked_us), result, now_us)


def called(command: Command, asked_us: int = 0) -> Call:
    """Return a call."""
    return Call(
        number=1,
        client="one",
        node_id="a",
        command=command,
        called_us=asked_us,
        known_revision=0,
        known_token=0,
    )


def requests_of(cluster: ScriptedCluster) -> Requests:
    """Return the checker of requests alone."""
    checkers: Checkers = cluster.checkers
    return checkers.requests


def test_repeated_requests_pass() -> None:
    """A repetition with the first outcome passes, with other times; so does what is not an outcome."""
    for first, again, outcome, repeated in SAME:
        requests = requests_of(ScriptedCluster())
        tell(requests, first, Refused(Reason.QUEUE_FULL, ""))
        tell(requests, first, Refused(Reason.LEASE_EXPIRED, ""))
        tell(requests, first, outcome)
        tell(requests, again, repeated)
        tell(requests, again, Refused(Reason.LEASE_EXPIRED, ""))


def test_a_second_outcome() -> None:
    """A repetition that is told another outcome is found, whatever kind of request it is."""
    for (first, again, outcome, _), other in zip(SAME, OTHER, strict=True):
        requests = requests_of(ScriptedCluster())
        tell(requests, first, outcome)
        with objects("one-outcome"):
            tell(requests, again, other, asked_us=1, now_us=1)


def test_requests_that_may_start_afresh() -> None:
    """After five minutes, with other content, or after a client left its wait, another outcome passes."""
    command, other = acquire("h1", request_id="r"), acquire("h2", request_id="r")
    requests = requests_of(ScriptedCluster())
    tell(requests, command, granted("h1", 1))
    tell(requests, other, granted("h2", 2), asked_us=0, now_us=301_000_000)
    tell(
        requests, acquire("h3", request_id="r", note="new"), Refused(Reason.LOCK_HELD, ""), now_us=302_000_000
    )
    requests.failed(called(other), "unknown", 302_000_000)
    tell(requests, other, granted("h3", 3), now_us=303_000_000)
    tell(requests, KeepAlive(SessionId("s1")), Released(), now_us=999_000_000)
    assert not len(requests)


# -- tokens and order -------------------------------------------------------------------------------------


def test_a_token_that_falls() -> None:
    """A token below one that was known when the hold was asked for is found, whatever the names."""
    cluster = ScriptedCluster()
    cluster.ask(acquire("h1"))
    cluster.ask(acquire("h2", "y"))
    number = cluster.call(acquire("h3", "z"))
    with objects("tokens-rise"):
        cluster.reply(number, granted("h3", 2, "z"), cluster.commit(acquire("h3", "z")))


def test_the_token_of_what_a_transaction_takes() -> None:
    """It is compared as that of a grant is."""
    cluster = ScriptedCluster()
    cluster.ask(acquire("h1"))
    take = TransactCells((), (TakeOperation("y", HoldId("h2"), ttl_ms=1000),))
    number = cluster.call(take)
    with objects("tokens-rise"):
        cluster.reply(
            number,
            Transacted(succeeded=True, revision=0, results=(LockTaken(1, 1000),)),
            cluster.commit(take),
        )


def test_a_token_that_is_given_twice() -> None:
    """One token of two concurrent holds is found, and so is a hold whose token changes."""
    cluster = ScriptedCluster()
    one, two = cluster.call(acquire("h1")), cluster.call(acquire("h2", "y"))
    revision = cluster.commit(acquire("h1"), acquire("h2", "y"))
    cluster.reply(one, granted("h1", 1), revision)
    with objects("tokens-once"):
        cluster.reply(two, granted("h2", 1, "y"), revision)
    with objects("tokens-once"):
        cluster.reply(cluster.call(Renew(HoldId("h1"))), Renewed(2, 1000), revision + 1)


def test_tokens_of_repeated_requests_pass() -> None:
    """A client that asks again for what it has is told the old token, also after others got newer ones."""
    cluster = ScriptedCluster()
    cluster.ask(acquire("h1", request_id="r", ttl_ms=60_000, owner="one"))
    cluster.ask(acquire("h2", "y"))
    again = cluster.ask(acquire("h3", request_id="r", ttl_ms=60_000, owner="one"))
    assert isinstance(again, Granted)
    assert again.token == 1


def test_waiters_out_of_order() -> None:
    """Of two that conflict the later one in the log must not get the smaller token; shared ones may."""
    for mode in (Mode.EXCLUSIVE, Mode.SHARED):
        cluster = ScriptedCluster()
        cluster.ask(acquire("h0"))
        commands = [acquire(hold, wait_ms=9000, mode=mode) for hold in ("h1", "h2")]
        numbers = [cluster.call(command) for command in commands]
        cluster.commit(*commands)
        cluster.ask(Release(HoldId("h0")))
        order = cluster.checkers.order
        grant = Granted(HoldId("h2"), 2, "x", mode, 1000)
        order.applied(Step(cluster.machine.revision, 0, wait_ends=[(HoldId("h2"), grant)]))
        order.replied(called(commands[1]), grant)
        if mode is Mode.SHARED:
            order.replied(called(commands[0]), Granted(HoldId("h1"), 3, "x", mode, 1000))
        else:
            with objects("first-come"):
                order.replied(called(commands[0]), Granted(HoldId("h1"), 3, "x", mode, 1000))
        assert numbers


# -- beliefs ----------------------------------------------------------------------------------------------


def believe(
    cluster: ScriptedCluster, hold: str, for_ms: int, mode: Mode = Mode.EXCLUSIVE, name: str = "x"
) -> None:
    """Tell that a client believes in its hold from now on."""
    until_us = cluster.now_us + for_ms * 1000
    cluster.history.believes(
        Belief(
            client=f"client of {hold}",
            locks=(Wanted(name, mode),),
            hold_id=HoldId(hold),
            token=1,
            from_us=cluster.now_us,
            until_us=until_us,
        )
    )


def test_beliefs_that_follow_each_other_pass() -> None:
    """Beliefs one after the other, prolonged ones, shared ones and those of other names pass."""
    cluster = ScriptedCluster()
    believe(cluster, "h1", 100)
    believe(cluster, "h1", 200)
    believe(cluster, "h2", 900, name="y")
    cluster.pass_ms(200)
    believe(cluster, "h3", 0)
    believe(cluster, "h4", 900)
    cluster.pass_ms(300)
    cluster.history.stopped_believing(HoldId("h4"), cluster.now_us)
    believe(cluster, "h5", 900, Mode.SHARED)
    believe(cluster, "h6", 900, Mode.SHARED)
    assert cluster.checkers.violation is None


def test_two_believe() -> None:
    """Two beliefs at one time are found: exclusive ones, mixed ones, and one that is prolonged too late."""
    for mode in Mode:
        cluster = ScriptedCluster()
        believe(cluster, "h1", 900)
        cluster.pass_ms(899)
        with objects("exclusion"):
            believe(cluster, "h2", 900, mode)
    cluster = ScriptedCluster()
    believe(cluster, "h1", 100)
    cluster.pass_ms(200)
    believe(cluster, "h2", 900, Mode.SHARED)
    with objects("exclusion"):
        believe(cluster, "h1", 100)


def test_a_belief_after_its_end_by_request() -> None:
    """A hold that was released, forced or cancelled is believed in against the will of who asked for that."""
    ends: list[Command] = [
        ForceRelease("x", "by hand"),
        Release(HoldId("h1")),
        Cancel(HoldId("h1"), AttemptId("try-h1")),
    ]
    for end in ends:
        cluster = ScriptedCluster()
        cluster.ask(acquire("h1", ttl_ms=60_000))
        believe(cluster, "h1", 50_000)
        cluster.call(end)
        cluster.commit(end)
        believe(cluster, "h2", 900)
        believe(cluster, "h1", 50_000)


# -- leases -----------------------------------------------------------------------------------------------


def test_a_belief_after_the_bound_on_holding() -> None:
    """A grant with a lease of its own tells of the bound; the lease of a session is that of all its holds."""
    session = SessionId("s")
    for lease in ({"ttl_ms": 60_000}, {"ttl_ms": 0, "session_id": session}):
        cluster = ScriptedCluster()
        cluster.ask(SetNamespace("x", NamespaceSettings(held_ms_max=500), "", "why"))
        cluster.ask(OpenSession(session, 60_000))
        told = cluster.ask(acquire("h1", **lease))
        assert isinstance(told, Granted)
        assert told.expires_in_ms == 500
        believe(cluster, "h1", 50_000)
        cluster.pass_ms(600)
        cluster.commit(Tick())
        if "session_id" in lease:
            believe(cluster, "h2", 900)
        else:
            with objects("exclusion"):
                believe(cluster, "h2", 900)


def test_a_wait_asks_while_nothing_else_ends() -> None:
    """The model lets time pass for it, too; its holder is forced when the grace is over."""
    cluster = ScriptedCluster()
    cluster.ask(SetNamespace("x", NamespaceSettings(ask_after_ms_min=0), "", "why"))
    cluster.ask(acquire("h1", ttl_ms=60_000))
    waits = acquire("h2", wait_ms=20_000, asks=Asking(100, 500))
    cluster.call(waits)
    cluster.commit(waits)
    for _ in range(2):
        assert "h2" not in cluster.wait_ends
        cluster.pass_ms(510)
        cluster.commit(Tick())
    assert isinstance(cluster.wait_ends["h2"][1], Granted)
    assert cluster.checkers.violation is None


def test_leases_that_end_in_time_pass() -> None:
    """Leases of holds and sessions that end between their ttl and 50 ms later pass; renewals start anew."""
    cluster = ScriptedCluster()
    begun_us = cluster.now_us
    cluster.ask(acquire("h1"))
    cluster.ask(OpenSession(SessionId("s1"), 1000, {}))
    cluster.pass_ms(900)
    cluster.ask(Renew(HoldId("h1")))
    cluster.ask(KeepAlive(SessionId("s1")))
    cluster.pass_ms(960)
    cluster.commit(Tick())
    assert cluster.machine.counts()["sessions"] == 0
    cluster.ask(acquire("h2", ttl_ms=60_000))
    cluster.ask(Release(HoldId("h2")))
    cluster.checkers.healthy(begun_us, cluster.now_us, ())
    assert cluster.checkers.violation is None


def test_a_lease_that_ends_early() -> None:
    """A lease that cluster time ends before its ttl has passed in true time is found."""
    for command in (acquire("h1"), OpenSession(SessionId("s1"), 1000, {})):
        cluster = ScriptedCluster()
        cluster.ask(command)
        cluster.pass_ms(900)
        data = cluster.entry(Tick())
        fast = data.replace(_stamp(cluster.now_us // 1000), _stamp(cluster.now_us // 1000 + 200))
        assert fast != data
        cluster.append(fast)
        for node_id in ("a", "b"):
            cluster.promise(node_id)
        with objects("lease-early"):
            cluster.apply("a", fast)


def _stamp(now_ms: int) -> bytes:
    """Return the bytes of a small number in an entry."""
    return b"\xcd" + now_ms.to_bytes(2, "big")


def test_a_lease_that_ends_late() -> None:
    """A lease that is over, or still there, more than 50 ms after its ttl is found, in healthy times only."""
    for is_over in (True, False):
        for healthy_ms in (500, 2000):
            cluster = ScriptedCluster()
            cluster.ask(acquire("h1"))
            cluster.pass_ms(1200)
            if is_over:
                cluster.commit(Tick())
            stretch = (cluster.now_us - healthy_ms * 1000, cluster.now_us)
            if healthy_ms < 1000:
                cluster.checkers.healthy(*stretch, ())
            else:
                with objects("lease-late"):
                    cluster.checkers.healthy(*stretch, ())


# -- waits ------------------------------------------------------------------------------------------------


def _wait(cluster: ScriptedCluster, node_id: str) -> None:
    """Wait at a node for what another has."""
    command = acquire("h2", wait_ms=60_000)
    cluster.call(command, node_id=node_id)
    cluster.commit(command, node_id=node_id)


def test_waits_of_runs_that_are_gone() -> None:
    """A waiter at a node process that is gone is found, but not before the leader had time to see it."""
    present, gone = "a.1", "c.1"
    for healthy_ms, origin in ((9000, gone), (9000, present), (6000, gone)):
        cluster = ScriptedCluster()
        cluster.ask(acquire("h1", ttl_ms=60_000))
        _wait(cluster, origin[0])
        cluster.pass_ms(20_000)
        stretch = (cluster.now_us - healthy_ms * 1000, cluster.now_us)
        if healthy_ms > 7000 and origin == gone:
            with objects("wait-left"):
                cluster.checkers.healthy(*stretch, {present})
        else:
            cluster.checkers.healthy(*stretch, {present})


def test_a_wait_that_has_ended_is_not_missed() -> None:
    """A wait at a node process that is gone is not looked for once it has ended."""
    cluster = ScriptedCluster()
    cluster.ask(acquire("h1", ttl_ms=60_000))
    _wait(cluster, "c")
    cluster.commit(AbandonWaits("c.1"))
    cluster.pass_ms(20_000)
    cluster.checkers.healthy(cluster.now_us - 9_000_000, cluster.now_us, {"a.1"})
    assert cluster.checkers.violation is None
