"""Stand-ins that grant everything."""

import pytest

import holdfast
from holdfast.testing import NullClient, NullHold, NullLock


def use(lock: NullLock) -> int:
    """Use a lock as threads do."""
    with lock as hold:
        hold.ensure(5)
        assert (hold.state, hold.is_valid) == ("held", True)
    assert hold.reason == "released"
    return hold.token


async def use_in_task(lock: NullLock) -> int:
    """Use a lock as tasks do."""
    async with lock as outer, NullLock("b", tokens=lock._tokens) as inner:
        assert inner.token > outer.token
        await inner.convert("shared")
        assert (inner.mode, outer.mode) == ("shared", "exclusive")
    assert (inner.state, outer.state) == ("released", "released")
    hold = await lock.acquire(wait=0)
    await hold.renew()
    await hold.release()
    return hold.token


async def test_a_lock_serves_tasks_and_threads() -> None:
    """Everybody gets it, and tokens rise."""
    lock = NullLock(("order", 42))
    assert use(lock) < use(lock) < await use_in_task(lock)
    assert lock.acquired == 4
    held = lock.try_acquire()
    assert held.name == "order/42"
    held.release()


def test_a_released_hold_is_not_valid() -> None:
    """A program that goes on after its release is found out."""
    hold = NullClient().acquire("a", ttl=5)
    hold.release()
    with pytest.raises(holdfast.LeaseLost):
        hold.ensure()
    with pytest.raises(holdfast.LeaseLost):
        hold.renew()


async def test_a_client_gives_all_kinds() -> None:
    """Its locks, semaphores and elections are there for everybody, with tokens that rise over all of them."""
    async with NullClient() as client:
        async with client.lock("a", wait=5, ttl=30) as first, client.locks("b", "c") as second:
            assert second.names == ("b", "c")
        with client.semaphore("gpu", limit=4) as third, client.election("primary") as fourth:
            assert first.token < second.token < third.token < fourth.token
        hold = await client.acquire("a", wait=0, renew=False)
        await hold.renew()
        await hold.release()
        assert isinstance(hold, NullHold)


def test_what_the_real_client_refuses_is_refused() -> None:
    """An argument that does not exist is a mistake in tests, too."""
    client = NullClient()
    with pytest.raises(TypeError):
        client.lock("a", tll=30)
    with pytest.raises(TypeError):
        client.semaphore("gpu", permit=2)
    with pytest.raises(ValueError, match="at least one"):
        client.locks()


def test_a_hold_that_gets_more_names_each_once() -> None:
    """As a real hold does, to which a repetition adds nothing."""
    hold = NullHold(("a",), 1)
    hold.add("b", "a")
    hold.add("b")
    assert hold.names == ("a", "b")
    with pytest.raises(ValueError, match="at least one"):
        hold.add()


def test_a_hold_has_what_holds_have() -> None:
    """Code that works with the stand-in finds the same names on a real hold."""
    public = {name for name in dir(NullHold) if name[0] != "_"}
    assert public <= {name for name in dir(holdfast.SyncHold) if name[0] != "_"}
    for kind in (NullLock, NullClient):
        real = {NullLock: holdfast.SyncLock, NullClient: holdfast.SyncClient}[kind]
        assert {name for name in dir(kind) if name[0] != "_"} <= set(dir(real)) | {"acquired"}
