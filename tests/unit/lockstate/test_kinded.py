"""Commands that name a kind: the wrong one is told, and force ends holds of any kind."""

from typing import Any

import msgspec
import pytest

from lockstate.tables import requests
from lockstate.words import limits
from lockstate.words.commands import (
    Acquire,
    AcquireAs,
    AcquireIf,
    Command,
    ForceEnd,
    ForceRelease,
    IfHeld,
    Release,
    ReleaseOf,
    Renew,
    RenewOf,
)
from lockstate.words.ids import AttemptId, HoldId, SessionId
from lockstate.words.kinds import HoldKind
from lockstate.words.modes import Mode
from lockstate.words.results import ForceReleased, Granted, Reason, Refused, Released, Renewed, Result
from tests.unit.lockstate.machine_driver import MachineDriver, expect, reason

LOCK, SEMAPHORE, ELECTION = HoldKind


def _driver() -> tuple[MachineDriver, dict[HoldKind, HoldId]]:
    """Return a machine in which one session has a lock, permits and an election, all of the name `a`."""
    driver = MachineDriver()
    driver.open("ann", ttl_ms=5000)
    held = {
        LOCK: driver.granted("a", session_id="ann"),
        SEMAPHORE: expect(Granted, driver.permits("a", 3, 2, session_id="ann")),
        ELECTION: expect(Granted, driver.campaign("a", "ann", "here")),
    }
    return driver, {kind: granted.hold_id for kind, granted in held.items()}


def _forced(result: Result) -> list[tuple[HoldKind, int]]:
    return [(holder.kind, holder.token) for holder in expect(ForceReleased, result).released]


@pytest.mark.parametrize("make", [ReleaseOf, RenewOf])
@pytest.mark.parametrize("named", HoldKind)
@pytest.mark.parametrize("found", HoldKind)
def test_a_hold_of_another_kind_is_left_alone(
    make: type[ReleaseOf | RenewOf], named: HoldKind, found: HoldKind
) -> None:
    """A command that names the right kind is done; the wrong kind is told, with what the hold is of."""
    driver, held = _driver()
    result = driver.run(make(held[found], kind=named), at_ms=10)
    if named is found:
        assert isinstance(result, Released if make is ReleaseOf else Renewed)
        return
    refused = expect(Refused, result)
    assert (refused.reason, refused.detail) == (
        Reason.WRONG_KIND,
        f"hold_id: its kind is {found}, not {named}",
    )
    assert [(holder.kind, holder.name) for holder in refused.holders] == [(found, "a")]
    assert driver.events == ()
    assert len(driver.machine.state.holds) == 3


@pytest.mark.parametrize(
    ("newer", "older"),
    [
        (ReleaseOf(HoldId("h"), "r", ("a",), SEMAPHORE), Release(HoldId("h"), "r", ("a",))),
        (RenewOf(HoldId("h"), 50, "r", ELECTION), Renew(HoldId("h"), 50, "r")),
        (ForceEnd("a", "why", 5, "r"), ForceRelease("a", "why", 5, "r")),
    ],
)
def test_a_request_is_the_same_under_older_rules(newer: Command, older: Command) -> None:
    """A client that repeats a request while the cluster moves to newer rules gets its first outcome."""
    assert requests.older_form(newer) == older
    assert requests.content_digest(newer) == requests.content_digest(older)
    assert requests.request_key(newer) == requests.request_key(older)


def test_what_rules_without_re_entrancy_take_of_it() -> None:
    """They always renew, and so know only the acquire that says so."""
    asked = "a", Mode.EXCLUSIVE, HoldId("h" * 32), AttemptId("t" * 32)
    renews = AcquireIf(*asked, ttl_ms=50, if_held=IfHeld.RENEW)
    assert requests.older_form(renews) == Acquire(*asked, ttl_ms=50)
    assert requests.older_form(msgspec.structs.replace(renews, if_held=IfHeld.COUNT)) is None
    assert requests.older_form(AcquireAs(*asked, ttl_ms=50, if_held=IfHeld.RENEW)) is None


def test_a_renewing_acquire_is_the_same_with_and_without_the_word() -> None:
    """It was asked without that word first."""
    driver = MachineDriver()
    driver.open("ann", ttl_ms=5000)
    request_id, first_hold = "r" * 16, HoldId("1" * 32)
    fields: dict[str, Any] = {"session_id": SessionId("ann"), "request_id": request_id}
    first = driver.run(Acquire("a", Mode.EXCLUSIVE, first_hold, AttemptId("1" * 32), **fields))
    again = driver.run(
        AcquireIf("a", Mode.EXCLUSIVE, HoldId("2" * 32), AttemptId("2" * 32), **fields, if_held=IfHeld.RENEW)
    )
    assert expect(Granted, again).hold_id == expect(Granted, first).hold_id == first_hold
    counts = driver.run(
        AcquireIf("a", Mode.EXCLUSIVE, HoldId("3" * 32), AttemptId("3" * 32), **fields, if_held=IfHeld.COUNT)
    )
    assert reason(counts) is Reason.INVALID_REQUEST


@pytest.mark.parametrize("command", [ForceEnd("a", "why", kind=SEMAPHORE), ForceEnd("a", "why", token=1)])
def test_what_older_rules_cannot_say_is_another_request(command: ForceEnd) -> None:
    """They know no force for permits, and none for one of several holders."""
    assert requests.older_form(command) is None
    plain = ForceRelease("a", "why")
    assert requests.content_digest(command) != requests.content_digest(plain)


@pytest.mark.parametrize("kind", HoldKind)
def test_force_ends_what_is_held_of_its_kind(kind: HoldKind) -> None:
    """The other two kinds of this name stay, and so does the session."""
    driver, held = _driver()
    token = driver.machine.state.holds[held[kind]].token
    assert _forced(driver.run(ForceEnd("a", "it hangs", kind=kind))) == [(kind, token)]
    assert [(event.kind.value, event.of, event.reason) for event in driver.events] == [
        ("forced", kind, "it hangs")
    ]
    assert held[kind] not in driver.machine.state.holds
    assert len(driver.machine.state.holds) == 2
    assert [event.reason for event in driver.machine.audit("a", limit=1)] == ["it hangs"]


@pytest.mark.parametrize("kind", HoldKind)
def test_force_for_another_kind_is_told(kind: HoldKind) -> None:
    """If only another kind of this name is held, that is named, and nothing ends; if none is, nothing is."""
    driver, held = _driver()
    driver.run(ForceEnd("a", "x", kind=kind))
    refused = expect(Refused, driver.run(ForceEnd("a", "x", kind=kind)))
    other = next(other for other in HoldKind if other is not kind)
    assert refused.detail == f"name: no {kind} of this name is held, but the {other} is"
    assert [(holder.kind, holder.name) for holder in refused.holders] == [(other, "a")]
    assert len(driver.machine.state.holds) == 2
    for hold_kind, hold_id in held.items():
        driver.run(ReleaseOf(hold_id, kind=hold_kind))
    assert _forced(driver.run(ForceEnd("a", "x", kind=kind))) == []


@pytest.mark.parametrize(
    ("command", "field"),
    [
        (ForceEnd("", "x"), "name"),
        (ForceEnd("a", "x\n"), "reason"),
        (ForceEnd("a", "x", limits.LOCK_DELAY_MS_MAX + 1), "lock_delay_ms"),
        (ForceEnd("a", "x", token=-1), "token"),
        (ForceEnd("a", "x", token=limits.TOKEN_MAX + 1), "token"),
        (ForceEnd("a", "x", 1, kind=ELECTION), "lock_delay_ms"),
    ],
)
def test_a_malformed_force_is_refused(command: ForceEnd, field: str) -> None:
    """The refusal names the field. An election has no delay."""
    driver, held = _driver()
    refused = expect(Refused, driver.run(command))
    assert refused.reason is Reason.INVALID_REQUEST
    assert refused.detail.startswith(f"{field}: ")
    assert set(driver.machine.state.holds) == set(held.values())
