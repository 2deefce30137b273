"""Elections: one leader with a value that everybody sees, and a queue of candidates."""

import pytest

from lockstate.words import limits
from lockstate.words.commands.admin import SetNamespace
from lockstate.words.commands.holds import Campaign, Proclaim
from lockstate.words.ids import NO_HOLD, NO_OWNER, AttemptId, HoldId, OwnerName, SessionId
from lockstate.words.kinds import HoldKind, IfHeld
from lockstate.words.refusals import Reason, Refused
from lockstate.words.results import Granted, Proclaimed
from lockstate.words.settings import NamespaceSettings
from lockstate.words.views import ElectionView
from tests.unit.lockstate.machine_driver import MachineDriver, expect, reason


def _driver(*session_ids: str) -> MachineDriver:
    driver = MachineDriver()
    driver.open(*session_ids, ttl_ms=5000)
    return driver


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
        Campaign("db", SessionId("ann"), "", HoldId("h9"), AttemptId("a9"), if_held=IfHeld.COUNT),
    ],
    ids=str,
)
def test_a_malformed_campaign_has_no_effect(command: Campaign) -> None:
    """Each field is checked."""
    driver = _driver("ann")
    driver.granted("a")
    assert reason(driver.run(command)) is Reason.INVALID_REQUEST
    assert driver.machine.election("db") == ElectionView("db")


def test_a_leader_need_not_share() -> None:
    """A campaign that says so is refused if its session leads; nothing is renewed or said anew."""
    driver = _driver("ann")
    first = expect(Granted, driver.campaign("db", "ann", "one"))
    refused = expect(Refused, driver.campaign("db", "ann", "two", if_held=IfHeld.REFUSE, at_ms=500))
    assert refused.reason is Reason.ALREADY_HELD
    assert driver.machine.election("db").value == "one"
    assert driver.machine.state.sessions[SessionId("ann")].expires_at_ms == 5000
    again = expect(Granted, driver.campaign("db", "ann", "two", if_held=IfHeld.RENEW, at_ms=500))
    assert (again.token, driver.machine.election("db").value) == (first.token, "two")


def test_a_namespace_says_it_for_all_campaigns() -> None:
    """Unless one says otherwise itself."""
    driver = _driver("ann")
    driver.run(SetNamespace("db", NamespaceSettings(if_held=IfHeld.REFUSE)))
    expect(Granted, driver.campaign("db", "ann"))
    assert reason(driver.campaign("db", "ann")) is Reason.ALREADY_HELD
    expect(Granted, driver.campaign("db", "ann", if_held=IfHeld.RENEW))


def test_of_two_candidacies_of_a_session_the_second_may_want_to_lead_alone() -> None:
    """When the first is granted, the second is refused instead of sharing it."""
    driver = _driver("ann", "bob")
    driver.campaign("db", "ann")
    driver.campaign("db", "bob", wait_ms=900)
    driver.campaign("db", "bob", wait_ms=900, if_held=IfHeld.REFUSE)
    driver.release("h1")
    assert driver.machine.election("db").queue == ()
    assert expect(Granted, driver.settled[HoldId("h2")]).token == 2
    assert reason(driver.settled[HoldId("h3")]) is Reason.ALREADY_HELD
