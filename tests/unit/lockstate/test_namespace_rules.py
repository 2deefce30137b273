"""What namespaces allow below them: leases, lock-delays, priorities, holds without a deadline."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from lockstate.catalogue import content_digest
from lockstate.words import limits
from lockstate.words.commands.admin import SetNamespace
from lockstate.words.commands.entries import Command
from lockstate.words.commands.holds import Acquire, AcquirePermits, AcquireSeveral, AddLocks
from lockstate.words.ids import AttemptId, HoldId, SessionId
from lockstate.words.kinds import IfHeld
from lockstate.words.refusals import Reason, Refused, RefusedInNamespace
from lockstate.words.results import Granted, Result
from lockstate.words.settings import NamespaceSettings
from lockstate.words.wanted import Uncommon, WantedPermits
from tests.unit.lockstate.machine_driver import EXCLUSIVE, SHARED, again, expect, reason, wanted
from tests.unit.lockstate.test_namespaces import space
from tests.unit.lockstate.test_principals import Driver

H, A = HoldId("x"), AttemptId("x")


def forbidden(result: Result) -> tuple[Reason, str]:
    """Return why something is refused, and by which namespace."""
    refused = expect(RefusedInNamespace, result)
    assert refused.quota == ""
    assert refused.namespace in refused.detail
    return refused.reason, refused.namespace


# -- what a session has already -----------------------------------------------------------------------------


def test_nobody_shares_a_hold_without_a_word() -> None:
    """Where a namespace wants that, for any of the names; who says it shares it all the same."""
    driver = Driver()
    driver.open("s1")
    space(driver, if_held=IfHeld.REFUSE)
    space(driver, "jobs/open", if_held=IfHeld.RENEW)
    both = wanted("else", "jobs/2")
    for fields in ({"name": "jobs/1"}, {"locks": both}):
        driver.granted(session_id="s1", **fields)
        assert reason(driver.acquire(session_id="s1", **fields)) is Reason.ALREADY_HELD
    for name in ("jobs/open", "jobs2"):
        driver.granted(name, session_id="s1")
        again(driver.acquire(name, session_id="s1"))
    told = Acquire("jobs/1", EXCLUSIVE, H, A, SessionId("s1"), if_held=None)
    assert reason(driver.run(told)) is Reason.ALREADY_HELD
    for if_held in (IfHeld.RENEW, IfHeld.COUNT):
        said = msgspec.structs.replace(told, if_held=if_held)
        again(driver.run(said))


def test_who_waits_is_told_that_its_session_has_it() -> None:
    """It counts what held when it asked: who asked before shares the hold."""
    driver = Driver()
    driver.open("s1")
    driver.open("s2")
    first = driver.granted("jobs", session_id="s2")
    early, before = (
        driver.queued("jobs", session_id="s1", wait_ms=99),
        driver.queued("jobs", session_id="s1", wait_ms=99),
    )
    space(driver, if_held=IfHeld.REFUSE)
    late = driver.queued("jobs", session_id="s1", wait_ms=99)
    driver.release(first.hold_id)
    settled = dict(driver.settled)
    again(settled[before.hold_id])
    assert reason(settled[late.hold_id]) is Reason.ALREADY_HELD
    assert early.hold_id in driver.machine.state.holds


def test_a_namespace_cannot_let_them_count() -> None:
    """Who does not know that it counts would not release as often."""
    refused = expect(Refused, Driver().run(SetNamespace("a", NamespaceSettings(if_held=IfHeld.COUNT))))
    assert (refused.reason, refused.detail[:7]) == (Reason.INVALID_REQUEST, "if_held")


# -- leases --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ttl_ms", "is_allowed"), [(99, False), (100, True), (200, True), (201, False), (1000, False)]
)
def test_leases_of_their_own(ttl_ms: int, is_allowed: bool) -> None:  # noqa: FBT001 - a parameter of pytest
    """Of locks, permits and several kinds, as they are asked for."""
    driver = Driver()
    space(driver, ttl_ms_min=100, ttl_ms_max=200)
    several = AcquireSeveral(
        "", SHARED, H, A, ttl_ms=ttl_ms, locks=wanted("else"), permits=(WantedPermits("jobs/p", 2),)
    )
    results = [
        driver.acquire("jobs/1", ttl_ms=ttl_ms),
        driver.acquire(locks=wanted("a", "jobs/2"), ttl_ms=ttl_ms),
        driver.permits("jobs", 1, ttl_ms=ttl_ms),
        driver.run(several),
    ]
    if is_allowed:
        assert all(isinstance(result, Granted) for result in results)
    else:
        assert [forbidden(result) for result in results] == [(Reason.TTL_OUT_OF_RANGE, "jobs")] * 4
    driver.granted("jobs2", ttl_ms=ttl_ms)


def test_one_bound_alone() -> None:
    """What is left open has the bounds that all leases have."""
    driver = Driver()
    space(driver, ttl_ms_min=100)
    driver.granted("jobs/1", ttl_ms=limits.TTL_MS_MAX)
    space(driver, ttl_ms_max=100)
    driver.granted("jobs/2", ttl_ms=limits.TTL_MS_MIN)
    assert forbidden(driver.acquire("jobs/3", ttl_ms=101))[1] == "jobs"


# -- lock-delays ---------------------------------------------------------------------------------------------


# -- what nodes are set to allow -----------------------------------------------------------------------------


def _endless(*not_for: str, name: str = "jobs/1") -> Acquire:
    return Acquire(name, EXCLUSIVE, H, A, uncommon=Uncommon(is_endless=True, endless_not_for=not_for))


def _prior(*not_for: str, name: str = "jobs/1") -> Acquire:
    return Acquire(
        name, EXCLUSIVE, H, A, ttl_ms=1000, uncommon=Uncommon(priority=7, priority_not_for=not_for)
    )


@pytest.mark.parametrize(("field", "ask"), [("no_deadline", _endless), ("priority", _prior)])
def test_a_namespace_decides_in_the_place_of_a_node(field: str, ask: Callable[..., Acquire]) -> None:
    """It allows what the node does not, and forbids what it does; if it leaves it open the node decides."""
    driver = Driver()
    assert reason(driver.run(ask("jobs/1"))) is Reason.INVALID_REQUEST
    space(driver, holds=5)
    refused = driver.run(ask("jobs/1"))
    assert (reason(refused), isinstance(refused, RefusedInNamespace)) == (Reason.INVALID_REQUEST, False)
    forbids: dict[str, Any] = {field: False}
    space(driver, **forbids)
    assert forbidden(driver.run(ask())) == (Reason.INVALID_REQUEST, "jobs")
    allows: dict[str, Any] = {field: True}
    space(driver, **allows)
    expect(Granted, driver.run(ask("jobs/1")))
    assert reason(driver.run(ask("jobs2", name="jobs2"))) is Reason.INVALID_REQUEST


def test_a_node_that_allows_it() -> None:
    """Where no namespace speaks it is had."""
    driver = Driver()
    expect(Granted, driver.run(_endless()))
    driver.release("x")
    expect(Granted, driver.run(_prior()))


def test_every_name_is_looked_at() -> None:
    """Of several locks one may be of a namespace, and one as the node is set."""
    driver = Driver()
    space(driver, no_deadline=True, priority=True)
    both = Acquire(
        "",
        EXCLUSIVE,
        H,
        A,
        locks=wanted("jobs/1", "else"),
        uncommon=Uncommon(is_endless=True, endless_not_for=("jobs/1",)),
    )
    expect(Granted, driver.run(both))
    driver.release("x")
    neither = msgspec.structs.replace(
        both, uncommon=Uncommon(is_endless=True, endless_not_for=("jobs/1", "else"))
    )
    assert reason(driver.run(neither)) is Reason.INVALID_REQUEST


def test_permits_as_well() -> None:
    """A semaphore's name may lie in a namespace, too."""
    driver = Driver()
    space(driver, no_deadline=False, priority=False)
    permits = AcquirePermits("jobs/p", 2, 1, H, A, uncommon=Uncommon(is_endless=True))
    assert forbidden(driver.run(permits))[1] == "jobs"
    prior = msgspec.structs.replace(permits, ttl_ms=1000, uncommon=Uncommon(priority=1))
    assert forbidden(driver.run(prior))[1] == "jobs"
    expect(Granted, driver.run(msgspec.structs.replace(prior, uncommon=Uncommon())))


def test_an_addition_to_a_hold_without_a_deadline() -> None:
    """It needs what the hold would have needed; that of another hold does not."""
    driver = Driver()
    expect(Granted, driver.run(_endless(name="else")))
    space(driver, no_deadline=False)
    assert forbidden(driver.add("x", "jobs/1"))[1] == "jobs"
    add = AddLocks(H, wanted("b"), HoldId("t"), A, endless_not_for=("b",))
    assert reason(driver.run(add)) is Reason.INVALID_REQUEST
    space(driver, "b", no_deadline=True)
    expect(Granted, driver.run(add))
    driver.granted("mine")
    other = AddLocks(HoldId("h2"), wanted("c"), HoldId("t"), A, endless_not_for=("c",))
    expect(Granted, driver.run(other))


def test_what_a_node_is_set_to_is_not_what_is_asked() -> None:
    """A request that is repeated at a node with other settings is the same one."""
    pairs: list[tuple[Command, Command]] = [
        (_endless(), _endless("jobs/1")),
        (_prior(), _prior("jobs/1")),
        (AddLocks(H, wanted("b"), H, A), AddLocks(H, wanted("b"), H, A, endless_not_for=("b",))),
    ]
    for one, other in pairs:
        assert content_digest(one) == content_digest(other)


# -- the command ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        (NamespaceSettings(ttl_ms_min=49), "ttl_ms_min"),
        (NamespaceSettings(ttl_ms_max=limits.TTL_MS_MAX + 1), "ttl_ms_max"),
        (NamespaceSettings(ttl_ms_min=101, ttl_ms_max=100), "ttl_ms_min"),
        (NamespaceSettings(lock_delay_ms_min=limits.LOCK_DELAY_MS_MAX + 1), "lock_delay_ms_min"),
        (NamespaceSettings(holds=-1), "holds"),
        (NamespaceSettings(waits=limits.QUOTA_MAX + 1), "waits"),
        (NamespaceSettings(cells=-1), "cells"),
        (NamespaceSettings(fences=-1), "fences"),
    ],
)
def test_settings_that_mean_nothing(settings: NamespaceSettings, field: str) -> None:
    """They are refused, and the field is named."""
    driver = Driver()
    result = driver.run(SetNamespace("jobs", settings))
    assert reason(result) is Reason.INVALID_REQUEST
    assert getattr(result, "detail").startswith(field)  # noqa: B009 - a refusal, as its reason says
    assert driver.machine.state.namespaces.rows == {}


@pytest.mark.parametrize("prefix", ["", "/jobs", "jobs/", "a//b", "..", "x" * 513, "\x00"])
def test_prefixes_are_names(prefix: str) -> None:
    """What cannot be a name is refused, also when a namespace is to be removed."""
    driver = Driver()
    for settings in (NamespaceSettings(), None):
        assert reason(driver.run(SetNamespace(prefix, settings))) in {
            Reason.INVALID_REQUEST,
            Reason.NAME_TOO_LONG,
        }
