"""Fences: is this token still a holder's, and which is the highest that a resource has seen."""

import pytest

from lockstate.words import limits
from lockstate.words.commands import AdvanceFence
from lockstate.words.results import FenceAdvanced, FenceView, Reason, Refused
from tests.unit.lockstate.machine_driver import (
    EXCLUSIVE,
    SHARED,
    SUBTREE,
    UPDATE,
    MachineDriver,
    expect,
    reason,
    wanted,
)


def test_a_fence_only_rises() -> None:
    """A token at or above the highest is accepted; a lower one is stale, and the refusal has the highest."""
    driver = MachineDriver()
    for token in (5, 5, 9):
        assert driver.run(AdvanceFence("disk", token)) == FenceAdvanced(token)
    refused = expect(Refused, driver.run(AdvanceFence("disk", 8)))
    assert (refused.reason, refused.facts) == (Reason.STALE_TOKEN, {"highest_token": 9})
    assert refused.detail == "a newer holder was here: 9 is the highest token"
    assert driver.run(AdvanceFence("disk", 9)) == FenceAdvanced(9)


def test_resources_are_apart() -> None:
    """Each resource remembers its own highest token, for ever."""
    driver = MachineDriver()
    driver.run(AdvanceFence("disk", 9))
    assert driver.run(AdvanceFence("tape", 0)) == FenceAdvanced(0)
    driver.pass_to(10**12)
    assert reason(driver.run(AdvanceFence("disk", 8))) is Reason.STALE_TOKEN
    assert driver.machine.counts()["fences"] == 2


def test_a_fence_is_not_a_lock() -> None:
    """Advancing a fence neither holds anything nor depends on what is held."""
    driver = MachineDriver()
    driver.run(AdvanceFence("a", 5))
    assert driver.granted("a").token == 1
    assert driver.events[0].name == "a"


@pytest.mark.parametrize(
    ("resource", "token", "expected"),
    [
        ("", 1, Reason.INVALID_REQUEST),
        ("x" * 513, 1, Reason.NAME_TOO_LONG),
        ("disk", -1, Reason.INVALID_REQUEST),
        ("disk", limits.TOKEN_MAX + 1, Reason.INVALID_REQUEST),
    ],
)
def test_bad_tokens_and_names_are_refused(resource: str, token: int, expected: Reason) -> None:
    """A token is an integer that every JSON reader keeps."""
    driver = MachineDriver()
    assert reason(driver.run(AdvanceFence(resource, token))) is expected
    assert driver.machine.counts()["fences"] == 0


def test_the_largest_token_is_accepted() -> None:
    """The bounds themselves are allowed."""
    driver = MachineDriver()
    assert driver.run(AdvanceFence("disk", 0)) == FenceAdvanced(0)
    assert driver.run(AdvanceFence("disk", limits.TOKEN_MAX)) == FenceAdvanced(limits.TOKEN_MAX)


def test_fences_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """When there are too many, a new resource is refused; known ones go on."""
    monkeypatch.setattr(limits, "FENCES_COUNT_MAX", 1)
    driver = MachineDriver()
    driver.run(AdvanceFence("disk", 1))
    assert reason(driver.run(AdvanceFence("tape", 1))) is Reason.OVERLOADED
    assert driver.run(AdvanceFence("disk", 2)) == FenceAdvanced(2)


def test_a_check_tells_whether_the_token_is_a_holders() -> None:
    """Valid for each present holder; the current token is the highest of them, 0 when there is none."""
    driver = MachineDriver()
    assert driver.machine.check_fence("a", 1) == FenceView(valid=False, current_token=0)
    for _ in range(2):
        driver.granted("a", mode=SHARED)
    checks = [driver.machine.check_fence("a", token) for token in (0, 1, 2, 3)]
    assert [check.valid for check in checks] == [False, True, True, False]
    assert {check.current_token for check in checks} == {2}
    driver.release("h2")
    assert driver.machine.check_fence("a", 2) == FenceView(valid=False, current_token=1)


def test_a_check_knows_all_kinds_of_holders() -> None:
    """Holders of several locks, of subtrees that cover the name, and converted ones count."""
    driver = MachineDriver()
    driver.granted(locks=wanted("a", "b"))
    driver.granted("t", mode=UPDATE, scope=SUBTREE)
    driver.granted("t/x", mode=SHARED)
    assert driver.machine.check_fence("b", 1) == FenceView(valid=True, current_token=1)
    assert driver.machine.check_fence("t/x", 2) == FenceView(valid=True, current_token=3)
    assert driver.machine.check_fence("t", 3) == FenceView(valid=False, current_token=2)
    driver.release("h3")
    driver.convert("h2", EXCLUSIVE)
    assert driver.machine.check_fence("t/x", 2) == FenceView(valid=False, current_token=4)
    assert driver.machine.check_fence("t/x/y", 4).valid
