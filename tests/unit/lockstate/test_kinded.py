"""Commands that name a kind: the wrong one is told, and force ends holds of any kind."""

import pytest

from lockstate.words import limits
from lockstate.words.commands.holds import Release, Renew
from lockstate.words.commands.overrides import ForceRelease
from lockstate.words.ids import HoldId
from lockstate.words.kinds import HoldKind
from lockstate.words.refusals import Reason, Refused
from lockstate.words.results import ForceReleased, Granted, Released, Renewed, Result
from tests.unit.lockstate.machine_driver import MachineDriver, expect

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


@pytest.mark.parametrize("make", [Release, Renew])
@pytest.mark.parametrize("named", HoldKind)
@pytest.mark.parametrize("found", HoldKind)
def test_a_hold_of_another_kind_is_left_alone(
    make: type[Release | Renew], named: HoldKind, found: HoldKind
) -> None:
    """A command that names the right kind is done; the wrong kind is told, with what the hold is of."""
    driver, held = _driver()
    result = driver.run(make(held[found], kind=named), at_ms=10)
    if named is found:
        assert isinstance(result, Released if make is Release else Renewed)
        return
    refused = expect(Refused, result)
    assert (refused.reason, refused.detail) == (
        Reason.WRONG_KIND,
        f"hold_id: its kind is {found}, not {named}",
    )
    assert [(holder.kind, holder.name) for holder in refused.holders] == [(found, "a")]
    assert driver.events == ()
    assert len(driver.machine.state.holds) == 3


@pytest.mark.parametrize("kind", HoldKind)
def test_force_ends_what_is_held_of_its_kind(kind: HoldKind) -> None:
    """The other two kinds of this name stay, and so does the session."""
    driver, held = _driver()
    token = driver.machine.state.holds[held[kind]].token
    assert _forced(driver.run(ForceRelease("a", "it hangs", kind=kind))) == [(kind, token)]
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
    driver.run(ForceRelease("a", "x", kind=kind))
    refused = expect(Refused, driver.run(ForceRelease("a", "x", kind=kind)))
    other = next(other for other in HoldKind if other is not kind)
    assert refused.detail == f"name: no {kind} of this name is held, but the {other} is"
    assert [(holder.kind, holder.name) for holder in refused.holders] == [(other, "a")]
    assert len(driver.machine.state.holds) == 2
    for hold_kind, hold_id in held.items():
        driver.run(Release(hold_id, kind=hold_kind))
    assert _forced(driver.run(ForceRelease("a", "x", kind=kind))) == []


@pytest.mark.parametrize(
    ("command", "field"),
    [
        (ForceRelease("", "x"), "name"),
        (ForceRelease("a", "x\n"), "reason"),
        (ForceRelease("a", "x", limits.LOCK_DELAY_MS_MAX + 1), "lock_delay_ms"),
        (ForceRelease("a", "x", token=-1), "token"),
        (ForceRelease("a", "x", token=limits.TOKEN_MAX + 1), "token"),
        (ForceRelease("a", "x", 1, kind=ELECTION), "lock_delay_ms"),
    ],
)
def test_a_malformed_force_is_refused(command: ForceRelease, field: str) -> None:
    """The refusal names the field. An election has no delay."""
    driver, held = _driver()
    refused = expect(Refused, driver.run(command))
    assert refused.reason is Reason.INVALID_REQUEST
    assert refused.detail.startswith(f"{field}: ")
    assert set(driver.machine.state.holds) == set(held.values())
