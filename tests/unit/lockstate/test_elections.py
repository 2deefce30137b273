"""Elections: one leader with a value that everybody sees, and a queue of candidates."""

import pytest

from lockstate.words import limits
from lockstate.words.commands import Campaign, Proclaim
from lockstate.words.ids import NO_HOLD, NO_OWNER, AttemptId, HoldId, OwnerName, SessionId
from lockstate.words.results import (
    Cancelled,
    ElectionView,
    EventKind,
    ForceReleased,
    Granted,
    HoldKind,
    HoldView,
    Proclaimed,
    Queued,
    Reason,
    Refused,
    Renewed,
    WaiterView,
)
from tests.unit.lockstate.machine_driver import EXCLUSIVE, MachineDriver, expect, reason


def _driver(*session_ids: str) -> MachineDriver:
    driver = MachineDriver()
    driver.open(*session_ids, ttl_ms=5000)
    return driver


def test_the_first_to_campaign_leads() -> None:
    """It has a token and a value, which everybody hears and can read."""
    driver = _driver("ann")
    elected = expect(Granted, driver.campaign("db", "ann", "10.0.0.1"))
    assert (elected.token, elected.owner, elected.mode, elected.expires_in_ms) == (1, "ann", EXCLUSIVE, 5000)
    assert [
        (event.kind.value, event.name, event.of, event.value, event.token, event.owner)
        for event in driver.events
    ] == [("elected", "db", HoldKind.ELECTION, "10.0.0.1", 1, "ann")]
    assert driver.machine.election("db") == ElectionView(
        "db",
        HoldView(
            OwnerName("ann"),
            EXCLUSIVE,
            1,
            5000,
            "",
            "db",
            kind=HoldKind.ELECTION,
            session_name="s-1",
            labels={"owner": "ann"},
        ),
        "10.0.0.1",
    )


def test_an_election_without_candidates_has_no_leader() -> None:
    """There is nothing to know about one that nobody takes part in."""
    assert MachineDriver().machine.election("db") == ElectionView("db")


def test_a_refused_candidate_learns_the_leader() -> None:
    """The refusal has the leader among its holders."""
    driver = _driver("ann", "bob")
    driver.campaign("db", "ann")
    refused = expect(Refused, driver.campaign("db", "bob"))
    assert (refused.reason, refused.detail) == (Reason.LOCK_HELD, "held by ann")
    assert [(holder.owner, holder.name, holder.kind) for holder in refused.holders] == [
        ("ann", "db", HoldKind.ELECTION)
    ]


def test_candidates_lead_one_after_the_other() -> None:
    """In order of arrival, each with a higher token and its own value."""
    driver = _driver("ann", "bob", "eve")
    driver.campaign("db", "ann", "a")
    assert driver.campaign("db", "bob", "b", wait_ms=9000) == Queued(HoldId("h2"), 1)
    assert driver.happened() == [("queued", "db")]
    assert driver.campaign("db", "eve", "e", wait_ms=9000, at_ms=5) == Queued(HoldId("h3"), 2)
    assert driver.machine.election("db").queue == (
        WaiterView(
            OwnerName("bob"), EXCLUSIVE, 1, 5, "db", kind=HoldKind.ELECTION, ticket=4, session_name="s-2"
        ),
        WaiterView(
            OwnerName("eve"), EXCLUSIVE, 2, 0, "db", kind=HoldKind.ELECTION, ticket=5, session_name="s-3"
        ),
    )
    driver.release("h1", at_ms=30)
    assert [(event.kind.value, event.value, event.token, event.lasted_ms) for event in driver.events] == [
        ("resigned", "a", 1, 30),
        ("elected", "b", 2, 30),
    ]
    assert expect(Granted, driver.settled["h2"]).owner == "bob"
    driver.close("bob")
    assert driver.happened() == [("resigned", "db"), ("elected", "db")]
    assert driver.machine.election("db").value == "e"


def test_a_leader_that_dies_has_expired() -> None:
    """A leader whose session expires has not resigned, and the next candidate leads."""
    driver = MachineDriver()
    driver.open("ann", ttl_ms=500)
    driver.open("bob", ttl_ms=5000)
    driver.campaign("db", "ann", "a")
    driver.campaign("db", "bob", "b", wait_ms=9000)
    assert driver.pass_to(501) == [EventKind.EXPIRED, EventKind.SESSION_EXPIRED, EventKind.ELECTED]


def test_a_queue_without_leader_can_be_read() -> None:
    """While nobody leads yet there may be candidates: none here is lost."""
    driver = _driver("ann", "bob")
    driver.campaign("db", "ann")
    driver.campaign("db", "bob", wait_ms=100)
    driver.pass_to(101)
    assert driver.refused("h2").reason is Reason.LOCK_HELD
    assert driver.machine.election("db").queue == ()


def test_a_leader_that_campaigns_again_says_something_else() -> None:
    """The same session and owner keep hold and token; the value becomes the new one, if it is new."""
    driver = _driver("ann")
    driver.campaign("db", "ann", "old")
    again = expect(Granted, driver.campaign("db", "ann", "new", at_ms=40))
    assert (again.hold_id, again.token, again.expires_in_ms) == ("h1", 1, 5000)
    assert [(event.kind.value, event.value, event.token) for event in driver.events] == [
        ("elected", "new", 1)
    ]
    driver.campaign("db", "ann", "new", at_ms=50)
    assert driver.events == ()
    assert reason(driver.campaign("db", "ann", owner="another")) is Reason.LOCK_HELD


def test_a_leader_proclaims() -> None:
    """A proclamation changes the value and not the token; repeating the same value is not an event."""
    driver = _driver("ann")
    driver.campaign("db", "ann", "old")
    assert driver.run(Proclaim(HoldId("h1"), "new")) == Proclaimed(1)
    assert [(event.kind.value, event.value, event.token) for event in driver.events] == [
        ("elected", "new", 1)
    ]
    assert driver.machine.election("db").value == "new"
    assert driver.run(Proclaim(HoldId("h1"), "new")) == Proclaimed(1)
    assert driver.events == ()
    assert driver.run(Proclaim(HoldId("h1"), "")) == Proclaimed(1)
    assert driver.machine.election("db").value == ""


def test_only_a_leader_proclaims() -> None:
    """A hold that does not lead an election, or leads it no more, cannot proclaim."""
    driver = _driver("ann", "bob")
    driver.granted("a")
    driver.campaign("db", "ann")
    driver.campaign("db", "bob", wait_ms=900)
    assert reason(driver.run(Proclaim(HoldId("h1"), "x"))) is Reason.INVALID_REQUEST
    for hold_id in ("h3", "nobody"):
        assert reason(driver.run(Proclaim(HoldId(hold_id), "x"))) is Reason.LEASE_EXPIRED


@pytest.mark.parametrize(
    ("value", "is_good"),
    [
        ("", True),
        ("x" * limits.VALUE_BYTES_MAX, True),
        ("x" * (limits.VALUE_BYTES_MAX + 1), False),
        ("é" * 513, False),
        ("a\nb", False),
    ],
)
def test_a_value_is_short_and_printable(value: str, is_good: bool) -> None:  # noqa: FBT001 - a column of the table
    """Up to 1024 bytes of printable text, when campaigning and when proclaiming."""
    driver = _driver("ann", "bob")
    driver.campaign("db", "ann")
    said, campaigned = driver.run(Proclaim(HoldId("h1"), value)), driver.campaign("other", "bob", value)
    if is_good:
        assert (said, driver.machine.election("other").value) == (Proclaimed(1), value)
    else:
        assert reason(said) is reason(campaigned) is Reason.INVALID_REQUEST


def test_only_sessions_campaign() -> None:
    """Neither a hold with a lease of its own nor an expired session is a session to campaign for."""
    driver = MachineDriver()
    driver.granted("a")
    for session_id in ("nobody", "h1", ""):
        assert reason(driver.campaign("db", session_id)) is Reason.SESSION_EXPIRED


@pytest.mark.parametrize(
    "command",
    [
        Campaign("", SessionId("ann"), "", HoldId("h9"), AttemptId("a9")),
        Campaign("db", SessionId("ann"), "", NO_HOLD, AttemptId("a9")),
        Campaign("db", SessionId("ann"), "", HoldId("h9"), AttemptId("")),
        Campaign("db", SessionId("ann"), "", HoldId("h1"), AttemptId("a9")),
        Campaign("db", SessionId("ann"), "", HoldId("h9"), AttemptId("a9"), OwnerName("x" * 257)),
        Campaign("db", SessionId("ann"), "", HoldId("h9"), AttemptId("a9"), NO_OWNER, -1),
    ],
    ids=str,
)
def test_a_malformed_campaign_has_no_effect(command: Campaign) -> None:
    """Each field is checked."""
    driver = _driver("ann")
    driver.granted("a")
    assert reason(driver.run(command)) is Reason.INVALID_REQUEST
    assert driver.machine.election("db") == ElectionView("db")


def test_an_election_is_not_a_lock() -> None:
    """A lock and an election of one name have nothing to do with each other, nor has their listing."""
    driver = _driver("ann")
    driver.campaign("db", "ann")
    driver.granted("db", owner="bob")
    assert [holder.owner for holder in driver.machine.lock("db").holders] == ["bob"]
    assert expect(ForceReleased, driver.force("db")).released[0].owner == "bob"
    assert driver.machine.election("db").leader is not None
    assert driver.machine.locks("", "", 10) == ([], None)
    assert driver.machine.check_fence("db", 1, HoldKind.LOCK).valid is False


def test_leading_is_a_hold_of_the_session() -> None:
    """It shows there, is renewed with it, and can be undone by the attempt it belongs to."""
    driver = _driver("ann", "bob")
    driver.campaign("db", "ann")
    driver.campaign("db", "bob", wait_ms=900)
    views = [driver.machine.session(SessionId(session_id)) for session_id in ("ann", "bob")]
    assert views[0] is not None
    assert views[1] is not None
    assert [(holder.name, holder.kind) for holder in views[0].holds] == [("db", HoldKind.ELECTION)]
    assert [(waiter.name, waiter.kind, waiter.position) for waiter in views[1].tickets] == [
        ("db", HoldKind.ELECTION, 1)
    ]
    assert driver.renew("h1", at_ms=400) == Renewed(1, 5000)
    assert driver.cancel("h1", "a1") == Cancelled(undone=True)
    assert driver.happened() == [("resigned", "db"), ("elected", "db")]
    driver.release("h2")
    assert driver.machine.counts()["locks"] == 0
