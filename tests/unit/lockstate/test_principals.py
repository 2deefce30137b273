"""Whose sessions and holds are: what belongs to another principal is as if it never was."""

from collections.abc import Callable
from typing import get_args

import pytest

from lockstate.machine import LockMachine
from lockstate.rules.on_behalf import on_behalf
from lockstate.stored import snapshot
from lockstate.tables import fingerprint
from lockstate.tables.owners import session_name
from lockstate.tables.requests import RequestMemory, key_of
from lockstate.words import limits
from lockstate.words.cell_operations import GetOperation, HoldCompare, PutOperation
from lockstate.words.commands.admin import SetQuota
from lockstate.words.commands.cells import PutCell, TransactCells
from lockstate.words.commands.entries import Command, Entry, OfSomebody, OnBehalf
from lockstate.words.commands.holds import (
    Acquire,
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
from lockstate.words.commands.overrides import ForceCloseSession, ForceRelease, Revoke
from lockstate.words.commands.primitives import TakeRate
from lockstate.words.commands.sessions import CloseSession, KeepAlive, OpenSession
from lockstate.words.commands.streams import EndWait, Numbered, NumberedCommand, ResumeStream
from lockstate.words.events import Event, EventKind
from lockstate.words.ids import AttemptId, HoldId, OwnerName, SessionId
from lockstate.words.refusals import Reason
from lockstate.words.results import (
    Cancelled,
    Done,
    FrameRefused,
    Granted,
    NumberedDone,
    Queued,
    QuotaSet,
    RateTaken,
    Released,
    Renewed,
    Result,
    SessionKept,
    SessionOpened,
    StreamFault,
    StreamResumed,
    Transacted,
)
from lockstate.words.settings import Quota
from lockstate.words.wanted import Uncommon
from tests.unit.lockstate.machine_driver import EXCLUSIVE, SHARED, MachineDriver, expect, reason, wanted

S1, H1 = SessionId("s1"), HoldId("h1")
ID = "r" * 16


class Driver(MachineDriver):
    """A machine, and clients that are somebody."""

    def by(self, principal: str, command: OfSomebody, at_ms: int = 0) -> Result:
        """Apply a command of a principal."""
        return self.run(OnBehalf(principal, command), at_ms)

    def took(self, principal: str, hold_id: str, name: str = "a", **fields: object) -> Result:
        """Acquire a lock with a lease of its own."""
        lease = {"ttl_ms": 1000} | fields
        return self.by(principal, Acquire(name, EXCLUSIVE, HoldId(hold_id), AttemptId(hold_id), **lease))  # type: ignore[arg-type]

    def in_frame(self, session_id: SessionId, first: int, *commands: NumberedCommand) -> tuple[Result, ...]:
        """Apply a frame of the first epoch of a stream."""
        frame = Numbered(len(commands), session_id, 1, first, (), commands)
        return expect(NumberedDone, self.run(frame)).results


@pytest.fixture
def driver() -> Driver:
    """Ann has a session s1 with a hold h1 of "a", a hold h2 of "b" with a value, and a lead h3."""
    driver = Driver()
    expect(SessionOpened, driver.by("ann", OpenSession(S1, 1000, {"owner": "x"})))
    acquired = driver.by("ann", Acquire("a", EXCLUSIVE, H1, AttemptId("a1"), S1))
    expect(Granted, acquired)
    marked = Acquire("b", EXCLUSIVE, HoldId("h2"), AttemptId("a2"), ttl_ms=5000, uncommon=Uncommon(value="v"))
    expect(Granted, driver.by("ann", marked))
    expect(Granted, driver.by("ann", Campaign("e", S1, "here", HoldId("h3"), AttemptId("a3"))))
    return driver


OF_THE_SESSION: list[OfSomebody] = [
    KeepAlive(S1),
    CloseSession(S1),
    Acquire("c", EXCLUSIVE, HoldId("x"), AttemptId("x"), S1),
    Campaign("e2", S1, "", HoldId("x"), AttemptId("x")),
    PutCell(b"k", b"v", S1),
    TransactCells((), (PutOperation(b"k", b"v", S1),)),
    TransactCells((HoldCompare(HoldId("no")),), (), (PutOperation(b"k", b"v", S1),)),
    ResumeStream(S1),
]
OF_A_HOLD: list[OfSomebody] = [
    Renew(HoldId("h2")),
    Renew(H1),
    Renew(HoldId("h2")),
    Release(HoldId("h2")),
    Release(H1),
    Convert(H1, SHARED, HoldId("t"), AttemptId("t")),
    AddLocks(HoldId("h2"), wanted("c"), HoldId("t"), AttemptId("t")),
    Proclaim(HoldId("h3"), "there"),
    PutOff(H1),
    HandOver(H1, 99),
]


@pytest.mark.parametrize("command", OF_THE_SESSION, ids=repr)
def test_the_session_of_another_never_was(driver: Driver, command: OfSomebody) -> None:
    """Whoever learned the id of a session that is not its own is told what a stranger to any id is told."""
    before = driver.machine.counts()
    refused = driver.by("bob", command)
    assert reason(refused) is Reason.SESSION_EXPIRED
    assert driver.events == ()
    assert driver.machine.counts() == before
    never = Driver()
    assert never.by("bob", command) == refused


@pytest.mark.parametrize("command", OF_A_HOLD, ids=repr)
def test_the_hold_of_another_never_was(driver: Driver, command: OfSomebody) -> None:
    """The same for holds: of a session, and with a lease of their own."""
    refused = driver.by("bob", command)
    assert reason(refused) is Reason.LEASE_EXPIRED
    assert driver.events == ()
    assert driver.machine.counts()["holds"] == 3
    never = Driver()
    assert never.by("bob", command) == refused


@pytest.mark.parametrize("command", [*OF_THE_SESSION, *OF_A_HOLD], ids=repr)
@pytest.mark.parametrize("principal", ["ann", ""])
def test_its_own_is_there(driver: Driver, command: OfSomebody, principal: str) -> None:
    """Ann may use what is hers, and so may who asks through a node that knows no principals."""
    result = driver.by(principal, command) if principal else driver.run(command)
    if isinstance(command, PutOff):
        assert reason(result) is Reason.NOT_REVOKED
    elif isinstance(command, HandOver):
        assert reason(result) is Reason.TICKET_ENDED
    else:
        assert not hasattr(result, "reason"), result


def test_what_was_there_before_principals_is_anybodys() -> None:
    """What was made without a principal can be used by each, also after nodes were told of principals."""
    driver = Driver()
    driver.open("s1")
    driver.granted("a")
    expect(SessionKept, driver.by("bob", KeepAlive(S1)))
    expect(Renewed, driver.by("bob", Renew(H1)))
    assert driver.machine.state.principals.rows == {}


def test_a_value_of_another_is_nobodys(driver: Driver) -> None:
    """Who may read a value is not who may end the hold that has it."""
    assert reason(driver.by("bob", RenewByValue("b", "v"))) is Reason.NOT_HOLDER
    assert reason(driver.by("bob", ReleaseByValue("b", "v"))) is Reason.NOT_HOLDER
    expect(Renewed, driver.by("ann", RenewByValue("b", "v")))
    expect(Released, driver.by("ann", ReleaseByValue("b", "v")))


def test_a_transaction_does_not_see_the_hold_of_another(driver: Driver) -> None:
    """A compare with a hold that is not one's own is false."""
    asks = TransactCells((HoldCompare(H1),), (GetOperation(b"k"),))
    assert expect(Transacted, driver.by("ann", asks)).succeeded
    assert not expect(Transacted, driver.by("bob", asks)).succeeded
    assert expect(Transacted, driver.run(asks)).succeeded


def test_request_ids_are_each_ones_own() -> None:
    """Two principals that happen to send the same request id get a hold each, or a refusal."""
    driver = Driver()
    first = expect(Granted, driver.took("ann", "h1", request_id=ID, owner="w"))
    assert reason(driver.took("bob", "h2", request_id=ID, owner="w")) is Reason.LOCK_HELD
    again = expect(Granted, driver.took("ann", "h3", request_id=ID, owner="w"))
    assert (again.hold_id, again.token) == (first.hold_id, first.token)
    assert driver.machine.state.principals.rows == {"h1": "ann"}


def test_a_request_goes_on_as_somebodys() -> None:
    """What was asked before a node knew who asks is not done again when one that knows is asked the same."""
    driver = Driver()
    take = TakeRate("r", 5, 60_000, request_id=ID)
    taken = expect(RateTaken, driver.run(take))
    assert driver.by("ann", take) == taken
    assert expect(RateTaken, driver.by("ann", TakeRate("r", 5, 60_000, request_id="s" * 16))).remaining == 3
    first = Acquire("a", EXCLUSIVE, H1, AttemptId("a1"), ttl_ms=1000, owner=OwnerName("w"), request_id=ID)
    expect(Granted, driver.run(first))
    assert expect(Granted, driver.took("ann", "h2", owner="w", request_id=ID)).hold_id == H1
    assert driver.machine.state.holds[H1].attempt_id == "h2", "it is of the newer attempt as well"
    expect(Renewed, driver.by("ann", Renew(H1)))


def test_a_request_of_nobody_is_in_nobodys_way() -> None:
    """Another request that happens to have its id is a request of its own, as beside any principal's."""
    driver = Driver()
    expect(RateTaken, driver.run(TakeRate("r", 5, 60_000, request_id=ID)))
    other = TakeRate("r", 5, 60_000, cost=2, request_id=ID)
    taken = expect(RateTaken, driver.by("ann", other))
    assert taken.remaining == 2
    assert driver.by("ann", other) == taken


def test_an_attempt_that_came_before_principals_is_the_same_request() -> None:
    """A client that repeats a request while nodes are told of principals gets its first outcome, once."""
    driver = Driver()
    asked = Acquire("a", EXCLUSIVE, H1, AttemptId("a1"), ttl_ms=1000, request_id=ID)
    first = expect(Granted, driver.run(asked))
    again = Acquire("a", EXCLUSIVE, HoldId("h2"), AttemptId("a2"), ttl_ms=1000, request_id=ID)
    for who in ("ann", "bob"):
        assert expect(Granted, driver.by(who, again)).hold_id == first.hold_id
    assert driver.machine.state.holds[H1].attempt_id == "a2"
    assert driver.machine.state.principals.rows == {}
    other = Acquire("b", EXCLUSIVE, HoldId("h3"), AttemptId("a3"), ttl_ms=1000, request_id=ID)
    expect(Granted, driver.by("ann", other))


def test_an_attempt_through_a_node_that_does_not_say_who_asks_is_the_same_request() -> None:
    """A node that is behind, or has no tokens, leaves out who asks: it is told the first outcome."""
    driver = Driver()
    first = expect(Granted, driver.took("ann", "h1", request_id=ID))
    again = Acquire("a", EXCLUSIVE, HoldId("h2"), AttemptId("a2"), ttl_ms=1000, request_id=ID)
    assert expect(Granted, driver.run(again)).hold_id == first.hold_id
    assert driver.machine.state.holds[H1].attempt_id == "a2"
    assert driver.machine.state.principals.rows == {"h1": "ann"}
    driver.run(TakeRate("r", 5, 60_000, request_id=ID))
    restarted = LockMachine(snapshot.decode(snapshot.encode(driver.machine.state)))
    assert restarted.state.requests.askers == {("", ID): {"ann"}}, "the other one is nobody's"


def test_what_is_freed_while_no_request_can_be_remembered_is_whose_it_was(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A release is remembered nonetheless, and told also through a node that does not say who asks."""
    monkeypatch.setattr(limits, "REQUESTS_COUNT_MAX", 1)
    driver = Driver()
    driver.took("ann", "h1", request_id=ID)
    release = Release(H1, ID)
    assert driver.by("ann", release) == Released()
    assert driver.run(release) == Released()
    assert reason(driver.by("bob", release)) is Reason.LEASE_EXPIRED


def test_an_attempt_that_was_undone_is_its_principals_no_more() -> None:
    """The same request begins anew; nobody's, of the same id, does not take it along."""
    driver = Driver()
    driver.took("ann", "h1", request_id=ID)
    driver.run(Acquire("b", EXCLUSIVE, HoldId("h9"), AttemptId("a9"), ttl_ms=1000, request_id=ID))
    assert driver.cancel("h9", "a9") == Cancelled(undone=True)
    assert driver.machine.state.requests.askers == {("", ID): {"ann"}}
    assert driver.cancel("h1", "h1") == Cancelled(undone=True)
    assert driver.machine.state.requests.askers == {}
    assert expect(Granted, driver.took("ann", "h2", request_id=ID)).hold_id == "h2"


def test_of_two_principals_with_one_request_id_the_same_is_found() -> None:
    """Who asks without a name is told what was asked with just this content; else it is a new request."""
    driver = Driver()
    for who, name in (("bob", "b"), ("ann", "a")):
        expect(Granted, driver.took(who, f"h-{who}", name, request_id=ID))
    for name, hold_id in (("a", "h-ann"), ("b", "h-bob"), ("c", "h-new")):
        asked = Acquire(name, EXCLUSIVE, HoldId("h-new"), AttemptId("new"), ttl_ms=1000, request_id=ID)
        assert expect(Granted, driver.run(asked)).hold_id == hold_id
    driver.pass_to(limits.REQUEST_AGE_MS + 1001)
    assert driver.machine.counts()["requests"] == 0
    assert driver.machine.state.requests.askers_of(("", ID)) == ()


def test_a_wait_and_its_hold_are_whose_they_were(driver: Driver) -> None:
    """A hold that begins while somebody else asks belongs to who has waited for it."""
    expect(Queued, driver.took("bob", "h9", "b", wait_ms=1000))
    assert driver.machine.state.principals.rows["h9"] == "bob"
    expect(Released, driver.by("ann", Release(HoldId("h2"))))
    (granted,) = [event for event in driver.events if event.kind is EventKind.GRANTED]
    assert granted.principal == "bob"
    assert reason(driver.by("ann", Release(HoldId("h9")))) is Reason.LEASE_EXPIRED
    expect(Released, driver.by("bob", Release(HoldId("h9"))))
    assert "h9" not in driver.machine.state.principals.rows


@pytest.mark.parametrize(
    "end",
    [
        lambda driver: driver.by("ann", Release(HoldId("h2"))),
        lambda driver: driver.by("ops", ForceRelease("b", "why")),
        lambda driver: driver.pass_to(6000),
        lambda driver: driver.cancel("h2", "a2"),
    ],
    ids=["released", "forced", "expired", "cancelled"],
)
def test_nothing_is_left_of_what_has_ended(driver: Driver, end: Callable[[Driver], object]) -> None:
    """However a hold ends, nobody has it any more."""
    end(driver)
    assert "h2" not in driver.machine.state.principals.rows


@pytest.mark.parametrize(
    "end",
    [
        lambda driver: driver.by("ann", CloseSession(S1)),
        lambda driver: driver.by("ops", ForceCloseSession("s-1", "why")),
        lambda driver: driver.pass_to(1001),
    ],
    ids=["closed", "forced", "expired"],
)
def test_a_session_ends_with_all_that_is_its_principals(
    driver: Driver, end: Callable[[Driver], object]
) -> None:
    """Its holds go with it, and are counted no more."""
    name = session_name(driver.machine.state.sessions[S1])
    assert name == "s-1", "the first that was made"
    end(driver)
    assert driver.machine.state.principals.rows == {"h2": "ann"}
    assert driver.machine.state.principals.used_by("ann").holds == 1
    assert {event.principal for event in driver.events if event.name in {"a", "e"}} == {"ann"}


def test_a_wait_that_ends_is_nobodys(driver: Driver) -> None:
    """So is one that times out."""
    expect(Queued, driver.took("bob", "h9", "b", wait_ms=100))
    driver.pass_to(101)
    assert "h9" not in driver.machine.state.principals.rows
    assert [event.principal for event in driver.events] == ["bob"]


def test_a_wait_for_a_change_is_its_holders(driver: Driver) -> None:
    """The hold stays its principal's when a wait to change it ends."""
    expect(Granted, driver.took("bob", "h8", "c"))
    adding = AddLocks(HoldId("h8"), wanted("b"), HoldId("t8"), AttemptId("t8"), 100)
    expect(Queued, driver.by("bob", adding))
    assert driver.machine.state.principals.used_by("bob").waits == 1
    driver.pass_to(101)
    assert driver.machine.state.principals.rows["h8"] == "bob"
    assert driver.machine.state.principals.used_by("bob").waits == 0


def test_an_id_that_is_in_use_does_not_change_hands(driver: Driver) -> None:
    """Who gives the id of somebody else's hold as its own new one is refused, and gets nothing."""
    assert reason(driver.took("bob", "h2", "c")) is Reason.INVALID_REQUEST
    assert reason(driver.by("bob", OpenSession(S1, 1000))) is Reason.INVALID_REQUEST
    assert driver.machine.state.principals.rows == {"s1": "ann", "h2": "ann"}


@pytest.mark.parametrize("principal", ["", "*", "x" * (limits.PRINCIPAL_BYTES_MAX + 1), "a\nb", "\ud800"])
def test_a_name_that_cannot_be(principal: str) -> None:
    """Such a command has no effect."""
    driver = Driver()
    command = OnBehalf(principal, OpenSession(S1, 1000))
    assert reason(driver.run(command)) is Reason.INVALID_REQUEST
    assert driver.machine.counts()["sessions"] == 0


@pytest.mark.parametrize("name", ["*", "a\nb"])
def test_a_name_that_cannot_be_is_none_whatever_else_bears_it(driver: Driver, name: str) -> None:
    """There may be a quota of everybody, and the id of a hold is whatever its client has made up."""
    if name == "*":
        expect(QuotaSet, driver.run(SetQuota("*", Quota(holds=9))))
    expect(Granted, driver.took("ann", name, "c"))
    assert reason(driver.by(name, OpenSession(SessionId("s9"), 1000))) is Reason.INVALID_REQUEST
    assert driver.machine.counts()["sessions"] == 1


def test_who_asked_is_forgotten_with_the_command(driver: Driver) -> None:
    """What nobody asks for next is not Ann's."""
    driver.ids_made = 10
    driver.open("s2")
    driver.granted("d", session_id="s2")
    assert set(driver.machine.state.principals.rows) == {"s1", "h2"}
    assert [event.principal for event in driver.events] == [""]


# -- streams -------------------------------------------------------------------------------------------------


def test_what_a_stream_numbers_is_its_sessions(driver: Driver) -> None:
    """Holds of a stream with a lease of their own are of the principal of its session, and only its."""
    expect(StreamResumed, driver.by("ann", ResumeStream(S1)))
    own = Acquire("c", EXCLUSIVE, HoldId("h7"), AttemptId("h7"), ttl_ms=1000)
    assert [type(result) for result in driver.in_frame(S1, 1, own)] == [Granted]
    assert driver.machine.state.principals.rows["h7"] == "ann"
    assert driver.machine.state.principals.asking == ""
    assert reason(driver.by("bob", Release(HoldId("h7")))) is Reason.LEASE_EXPIRED


def test_a_principals_stream_can_end_its_waits(driver: Driver) -> None:
    """The end of a wait by its number is between the two: the number is one of the stream itself."""
    expect(StreamResumed, driver.by("ann", ResumeStream(S1)))
    expect(Granted, driver.took("bob", "h8", "c"))
    wait = Acquire("c", EXCLUSIVE, HoldId("w1"), AttemptId("w1"), S1, wait_ms=900)
    queued, ended = driver.in_frame(S1, 1, wait, EndWait(1))
    assert (type(queued), type(ended)) == (Queued, Done)
    assert not driver.machine.state.tickets
    assert reason(driver.in_frame(S1, 1, wait)[0]) is Reason.LOCK_HELD


def test_a_stream_does_not_reach_what_is_anothers(driver: Driver) -> None:
    """A frame of Bob's session names Ann's session and holds."""
    s2 = SessionId("s2")
    expect(SessionOpened, driver.by("bob", OpenSession(s2, 1000)))
    expect(StreamResumed, driver.by("bob", ResumeStream(s2)))
    results = driver.in_frame(
        s2,
        1,
        Renew(H1),
        Release(HoldId("h2")),
        Acquire("c", EXCLUSIVE, HoldId("h7"), AttemptId("h7"), S1),
        ReleaseByValue("b", "v"),
        PutCell(b"k", b"v", S1),
    )
    assert [reason(result) for result in results] == [
        Reason.LEASE_EXPIRED,
        Reason.LEASE_EXPIRED,
        Reason.SESSION_EXPIRED,
        Reason.NOT_HOLDER,
        Reason.SESSION_EXPIRED,
    ]


def test_a_number_that_is_repeated_tells_nothing_of_the_hold_of_another(driver: Driver) -> None:
    """A number may come again with another command: also that tells nothing of a hold of somebody else."""
    s2 = SessionId("s2")
    expect(SessionOpened, driver.by("bob", OpenSession(s2, 1000)))
    expect(StreamResumed, driver.by("bob", ResumeStream(s2)))
    own = Acquire("c", EXCLUSIVE, HoldId("h7"), AttemptId("h7"), s2)
    driver.in_frame(s2, 1, own, Renew(HoldId("h7")))
    (of_ann,), (never,) = (driver.in_frame(s2, 2, Renew(HoldId(one))) for one in ("h2", "made-up"))
    assert reason(of_ann) is Reason.LEASE_EXPIRED
    assert of_ann == never


def test_a_stream_of_nobodys_session_asks_as_who_sends_it(driver: Driver) -> None:
    """A session from before principals is anybody's, but who goes on with its stream is still somebody."""
    driver.ids_made = 10
    driver.open("s2")
    s2 = SessionId("s2")
    expect(StreamResumed, driver.by("bob", ResumeStream(s2)))
    own = Acquire("c", EXCLUSIVE, HoldId("h7"), AttemptId("h7"), ttl_ms=1000)
    asked = (Release(HoldId("h2")), Renew(H1), PutCell(b"k", b"v", S1), ReleaseByValue("b", "v"), own)
    results = expect(NumberedDone, driver.by("bob", Numbered(5, s2, 1, 1, (), asked))).results
    assert [reason(result) for result in results[:4]] == [
        Reason.LEASE_EXPIRED,
        Reason.LEASE_EXPIRED,
        Reason.SESSION_EXPIRED,
        Reason.NOT_HOLDER,
    ]
    expect(Granted, results[4])
    assert driver.machine.state.principals.rows["h7"] == "bob"
    assert driver.machine.state.principals.asking == ""


def test_who_sends_a_frame_of_the_session_of_another(driver: Driver) -> None:
    """To Bob, who knows its id, it is gone; through a node without principals it goes on as Ann's."""
    expect(StreamResumed, driver.by("ann", ResumeStream(S1)))
    own = Acquire("c", EXCLUSIVE, HoldId("h7"), AttemptId("h7"), ttl_ms=1000)
    frame = Numbered(1, S1, 1, 1, (), (own,))
    assert expect(FrameRefused, driver.by("bob", frame)).fault is StreamFault.GONE
    expect(Granted, expect(NumberedDone, driver.run(frame)).results[0])
    assert driver.machine.state.principals.rows["h7"] == "ann"


# -- the audit -----------------------------------------------------------------------------------------------


def test_a_hold_that_ends_by_itself_is_ended_by_nobody(driver: Driver) -> None:
    """An expiry names whose it was; a grace that is over names nobody who forced it just then."""
    driver.by("ops", Revoke("a", "please", 100))
    driver.apply(Entry(200))
    forced: list[Event] = [event for event in driver.events if event.kind is EventKind.FORCED]
    assert [(event.principal, event.by) for event in forced] == [("ann", "")]


# -- snapshots -----------------------------------------------------------------------------------------------


def test_whose_everything_is_survives_a_restart(driver: Driver) -> None:
    """A snapshot that is loaded gives the same state, with the same counts and the same fingerprint."""
    expect(Queued, driver.took("bob", "h9", "b", wait_ms=1000))
    again = LockMachine(snapshot.decode(snapshot.encode(driver.machine.state)))
    assert snapshot.encode(again.state) == snapshot.encode(driver.machine.state)
    assert fingerprint.of(again.state) == fingerprint.of(driver.machine.state)
    assert again.is_sound
    ours, theirs = again.state.principals, driver.machine.state.principals
    assert (ours.rows, ours.usage) == (theirs.rows, theirs.usage)


def test_whose_something_is_shows_in_the_fingerprint() -> None:
    """Two nodes that differ in nothing else are not in the same state."""
    states = []
    for principal in ("ann", "bob"):
        driver = Driver()
        driver.took(principal, "h1")
        assert driver.machine.is_sound
        states.append(driver.machine.fingerprint)
    assert states[0] != states[1]


def test_commands_of_nodes_are_nobodys() -> None:
    """Only what clients ask for can be asked on behalf of somebody, and not another OnBehalf."""
    theirs = set(get_args(OfSomebody))
    assert theirs < set(get_args(Command))
    assert not {kind.__name__ for kind in theirs} & {"Tick", "Cancel", "AbandonWaits", "OnBehalf"}


def test_many_principals_may_send_one_request_id() -> None:
    """Each has its own outcome; who is forgotten leaves those of the others."""
    memory = RequestMemory()
    key = ("a", ID)
    names = [f"p{number}" for number in range(50)]
    for at_ms, name in enumerate(reversed(names)):
        memory.remember(key_of(name, key), b"", at_ms, Done())
        memory.note_asker(key_of(name, key))
    assert memory.askers_of(key) == tuple(sorted(names))
    memory.prune(limits.REQUEST_AGE_MS + 49)
    assert memory.askers_of(key) == ("p0",)
    memory.prune(limits.REQUEST_AGE_MS + 50)
    assert memory.askers == {}


def test_a_command_is_put_in_the_name_of_who_asks() -> None:
    """Nobody's stays as it is; what no client asks for is a mistake of the node."""
    assert on_behalf("", Release(H1)) == Release(H1)
    assert on_behalf("ann", Release(H1)) == OnBehalf("ann", Release(H1))
    with pytest.raises(AssertionError):
        on_behalf("ann", OnBehalf("bob", Release(H1)))


def test_whose_a_lease_is(driver: Driver) -> None:
    """Of who made it, or of nobody; who has no name is told of all, and what is not there is nobody's."""
    machine = driver.machine
    expect(SessionOpened, driver.run(OpenSession(SessionId("s2"), 1000)))
    leases = (S1, SessionId("s2"), SessionId("no"))
    asked = {lease: [machine.is_of(lease, who) for who in ("ann", "bob", "")] for lease in leases}
    assert asked == {S1: [True, False, True], "s2": [True, True, True], "no": [True, True, True]}
    owned = {lease: [machine.belongs_to(lease, who) for who in ("ann", "bob", "")] for lease in leases}
    assert owned == {S1: [True, False, False], "s2": [False] * 3, "no": [False] * 3}
    assert [machine.owner_of(lease) for lease in leases] == ["ann", "", ""]
