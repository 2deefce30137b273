"""Fences: is this token still a holder's, and which is the highest that a resource has seen."""

import pytest

from lockstate.words import limits
from lockstate.words.commands.primitives import AdvanceFence
from lockstate.words.refusals import Reason, Refused
from lockstate.words.results import FenceAdvanced
from tests.unit.lockstate.machine_driver import MachineDriver, expect, reason


def test_a_fence_only_rises() -> None:
    """A token at or above the highest is accepted; a lower one is stale, and the refusal has the highest."""
    driver = MachineDriver()
    driver.draw(9)
    for token in (5, 5, 9):
        assert driver.run(AdvanceFence("disk", token)) == FenceAdvanced(token)
    refused = expect(Refused, driver.run(AdvanceFence("disk", 8)))
    assert (refused.reason, refused.facts) == (Reason.STALE_TOKEN, {"highest_token": 9})
    assert refused.detail == "a newer holder was here: 9 is the highest token"
    assert driver.run(AdvanceFence("disk", 9)) == FenceAdvanced(9)


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


def test_the_newest_token_is_the_largest_that_is_accepted() -> None:
    """One that nobody was given shuts nobody out: not even where nothing was granted yet."""
    driver = MachineDriver()
    assert driver.run(AdvanceFence("disk", 0)) == FenceAdvanced(0)
    assert reason(driver.run(AdvanceFence("disk", 1))) is Reason.INVALID_REQUEST
    driver.granted("a")
    driver.granted("b")
    refused = expect(Refused, driver.run(AdvanceFence("disk", limits.TOKEN_MAX)))
    assert refused.detail == f"token: {limits.TOKEN_MAX}; must be 0 to 2, the newest that was granted"
    assert driver.run(AdvanceFence("disk", 2)) == FenceAdvanced(2)


def test_fences_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """When there are too many, a new resource is refused; known ones go on."""
    monkeypatch.setattr(limits, "FENCES_COUNT_MAX", 1)
    driver = MachineDriver()
    driver.draw(2)
    driver.run(AdvanceFence("disk", 1))
    assert reason(driver.run(AdvanceFence("tape", 1))) is Reason.OVERLOADED
    assert driver.run(AdvanceFence("disk", 2)) == FenceAdvanced(2)
