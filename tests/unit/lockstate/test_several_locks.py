"""Several locks at once: all or nothing, one place in all queues, holding nothing meanwhile."""

import msgspec
import pytest

from lockstate.words import limits
from lockstate.words.commands.holds import Acquire
from lockstate.words.ids import AttemptId, HoldId
from lockstate.words.refusals import Reason, Refused
from lockstate.words.results import Granted, Released
from lockstate.words.wanted import Wanted
from tests.unit.lockstate.machine_driver import (
    EXCLUSIVE,
    NODE,
    SHARED,
    SUBTREE,
    MachineDriver,
    expect,
    reason,
    wanted,
)

AB = wanted("a", "b")


def test_one_lock_can_be_released_by_its_name() -> None:
    """A release may name the lock of a hold of one."""
    driver = MachineDriver()
    driver.granted("a")
    assert reason(driver.release("h1", "b")) is Reason.NOT_HOLDER
    assert driver.release("h1", "a") == Released()


def test_a_part_that_is_not_held_releases_nothing() -> None:
    """One name too many, or one twice, and all stay held."""
    driver = MachineDriver()
    driver.granted(locks=AB)
    assert reason(driver.release("h1", "a", "c")) is Reason.NOT_HOLDER
    assert reason(driver.release("h1", "a", "a")) is Reason.INVALID_REQUEST
    assert driver.events == ()
    assert [driver.machine.lock(name).state for name in ("a", "b")] == ["held", "held"]


@pytest.mark.parametrize(
    ("locks", "name", "detail"),
    [
        (wanted("a", "a"), "", "locks: a name is given twice"),
        ((Wanted("a"), Wanted("a", SHARED)), "", "locks: a name is given twice"),
        (wanted("a"), "a", "name and locks: only one of the two is allowed"),
        (wanted("a//b"), "", "name: no part between two '/' may be empty"),
        (
            (*wanted("a", scope=SUBTREE), *wanted("a/b/c")),
            "",
            "locks: 'a/b/c' lies in the subtree 'a', which is asked for too",
        ),
        (
            (*wanted("a/b"), *wanted("a", scope=SUBTREE)),
            "",
            "locks: 'a/b' lies in the subtree 'a', which is asked for too",
        ),
        (wanted(*map(str, range(limits.LOCKS_COUNT_MAX + 1))), "", "locks: 65; at most 64 are allowed"),
    ],
)
def test_bad_lists_of_locks_are_refused(locks: tuple[Wanted, ...], name: str, detail: str) -> None:
    """A list that contradicts itself is refused with the names that do."""
    driver = MachineDriver()
    refused = expect(Refused, driver.acquire(name, locks=locks))
    assert (refused.reason, refused.detail) == (Reason.INVALID_REQUEST, detail)
    assert driver.machine.counts()["locks"] == 0


def test_a_list_may_have_sixty_four_locks() -> None:
    """The bound itself is allowed, one lock is a list too, and names may lie below names."""
    driver = MachineDriver()
    driver.granted(locks=wanted(*map(str, range(limits.LOCKS_COUNT_MAX))))
    driver.granted(locks=wanted("one"))
    driver.granted(locks=wanted("a", "a/b", "a/b/c"))
    driver.granted(locks=wanted("t", "tt", "u/t", scope=SUBTREE))


def test_mode_and_scope_of_the_command_mean_nothing_for_several() -> None:
    """Each lock of a list brings its own."""
    driver = MachineDriver()
    command = Acquire("", SHARED, HoldId("h"), AttemptId("t"), ttl_ms=1000, scope=SUBTREE, locks=AB)
    granted = expect(Granted, driver.run(command))
    assert {(lock.mode, lock.scope) for lock in granted.locks} == {(EXCLUSIVE, NODE)}
    again = msgspec.structs.replace(command, hold_id="i", mode=EXCLUSIVE)
    assert reason(driver.run(again)) is Reason.LOCK_HELD


def test_the_claims_of_one_request_are_bounded() -> None:
    """Very deep names together are too many to be looked at in one step; one fewer part is not."""
    driver = MachineDriver()
    deep = ["/".join([str(number), *"x" * 199]) for number in range(10)]
    assert expect(Granted, driver.acquire(locks=wanted(*deep))).token == 1
    too_deep = ["/".join([f"y{number}", *"x" * 199]) for number in range(9)] + ["/".join(["y9", *"x" * 200])]
    refused = expect(Refused, driver.acquire(locks=wanted(*too_deep)))
    assert refused.reason is Reason.INVALID_REQUEST
    assert "2001" in refused.detail
