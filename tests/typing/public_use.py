"""How programs use the client, for the type checker: `scripts/check` reads it, nothing runs it."""

import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import assert_type

import holdfast
from holdfast.testing import Flaky, MemoryCluster, NullClient, NullHold


async def tasks(client: holdfast.Client) -> None:
    """Use everything of the asyncio client."""
    async with client.lock(("order", 42), wait=timedelta(seconds=5), max_hold=600) as hold:
        assert_type(hold, holdfast.Hold)
        assert_type(hold.token, int)
        assert_type(hold.remaining, float)
        hold.ensure(5)
        await hold.convert("shared", wait=None)
        await hold.add("b", ("c", 7), mode="shared", wait=5)
        await hold.lost.wait()
    assert_type(await client.lock("a").try_acquire(), holdfast.Hold | None)
    assert_type(await client.lock("a").acquire(isinstance(hold, holdfast.Leadership)), holdfast.Hold | None)
    assert_type(await client.locks("a", "b", on_lost=print).acquire(wait=5), holdfast.Hold)
    async with client.semaphore("gpu", limit=4, permits=2, push=True) as permits:
        assert_type(permits, holdfast.Hold)
    async with client.session(labels={"host": "rack-3"}, push=True) as session:
        assert_type(session, holdfast.Session)
        assert_type(await client.lock("a", session=session).acquire(), holdfast.Hold)
    async with client.transaction(wait=5, labels={"job": "transfer"}) as transaction:
        assert_type(transaction, holdfast.Transaction)
        assert_type(await transaction.acquire("a", ("b", 7), mode="shared"), holdfast.Hold)
        assert_type(await transaction.acquire_permits("gpu", limit=4, wait=None), holdfast.Hold)
        assert_type(transaction.holds, tuple[holdfast.Hold, ...])
        await transaction.write(holdfast.CellPut("a", "1"))
    async with client.election("primary", value="10.0.0.1:80") as leadership:
        assert_type(leadership, holdfast.Leadership)
        await leadership.proclaim("10.0.0.2:80")
    async for leader in client.election("primary").observe():
        assert_type(leader, holdfast.Leader | None)
    async for event in client.watch("build/", since="12"):
        assert_type(event, holdfast.Event)
    async for info in client.list("build/"):
        assert_type(info, holdfast.LockInfo)
    assert_type(await client.list_waits("build/").page(), holdfast.Page[holdfast.WaitRow])
    assert_type(await client.ping(), holdfast.Pong)
    assert_type(await client.rate_limiter("mail", limit=100, per=60).take(wait=5), holdfast.Taken)
    async with client.rate_limiter("mail", "100/minute") as taken:
        assert_type(taken, holdfast.Taken)
    assert_type(await client.fence("disk").advance(7), int)
    assert_type(await client.cells.get("app/release"), holdfast.Cell | None)
    assert_type(await client.cells.put(("app", 7), b"v", session=session), holdfast.CellWritten)
    compare: list[holdfast.CellCompare] = [holdfast.StillHeld(hold), holdfast.CellIs("a", version=3)]
    assert_type(await client.cells.transact(compare=compare), holdfast.Transacted)


@holdfast.locked("report/{user_id}", ttl=30, wait=timedelta(seconds=5))
def report(user_id: int) -> str:
    """Run under a lock."""
    return str(user_id)


@holdfast.locked("report/{user_id}", if_busy="skip")
async def report_later(user_id: int) -> str:
    """Run under a lock, or not."""
    return str(user_id)


@holdfast.once("nightly", every="24h", retry=True)
def nightly() -> int:
    """Run once in a day."""
    return 1


@holdfast.leader("scheduler", value="here")
def schedule(lost: threading.Event) -> bool:
    """Run while leading."""
    return lost.is_set()


async def decorated() -> None:
    """Call decorated functions."""
    assert_type(report(7), str)
    assert_type(await report_later(user_id=7), str | None)
    assert_type(nightly(), int | None)
    assert_type(schedule(), bool)
    other: Callable[[], int | None] = holdfast.once("b", every=60, client=holdfast.SyncClient)(nightly)
    other()


def tests() -> None:
    """Use what there is for tests."""
    with MemoryCluster() as cluster:
        assert_type(cluster.client(owner="a"), holdfast.Client)
        assert_type(cluster.sync_client(timeout=timedelta(seconds=5)), holdfast.SyncClient)
        cluster.when_waiting = lambda: cluster.advance(timedelta(seconds=5))
        assert_type(cluster.waiting, int)
        flaky = Flaky(cluster)
        flaky.lose("acquire", applied=True, times=None)
        flaky.delay("release", timedelta(seconds=5))
        assert_type(flaky.client(), holdfast.Client)
        assert_type(flaky.sent, tuple[str, ...])
    with NullClient() as client, client.lock("a") as hold:
        assert_type(hold, NullHold)


def threads(client: holdfast.SyncClient) -> None:
    """Use everything of the client for threads."""
    with client.lock(("order", 42), wait=5.0, push=True, on_lost=lost) as hold:
        assert_type(hold, holdfast.SyncHold)
        assert_type(hold.lost, threading.Event)
        hold.convert("shared")
        hold.add("b", scope="subtree")
    if held := client.lock("a").try_acquire():
        assert_type(held, holdfast.SyncHold)
    with client.semaphore("gpu", limit=4) as permits, client.session(push=True) as session:
        assert_type(permits, holdfast.SyncHold)
        assert_type(session, holdfast.SyncSession)
    with client.transaction() as transaction:
        assert_type(transaction, holdfast.SyncTransaction)
        assert_type(transaction.acquire("a"), holdfast.SyncHold)
        assert_type(transaction.holds, tuple[holdfast.SyncHold, ...])
    with client.election("primary") as leadership:
        assert_type(leadership, holdfast.SyncLeadership)
    assert_type(client.election("primary").observe(), Iterator[holdfast.Leader | None])
    for event in client.watch("build/"):
        assert_type(event, holdfast.Event)
    assert_type(client.rate_limiter("mail", limit=100, per=60).try_take(), holdfast.Taken | None)
    assert_type(client.inspect("a"), holdfast.LockInfo)
    assert_type(client.cells.list("app/"), holdfast.SyncListing[holdfast.Cell])
    for row in client.list_holds(owner="worker-7"):
        assert_type(row, holdfast.HoldRow)
    assert_type(client.list_sessions().page(limit=5).items, tuple[holdfast.SessionRow, ...])
    assert_type(client.admin.revoke("a", reason="why"), tuple[holdfast.Holder, ...])
    assert_type(client.admin.withdraw_revocation("a", reason="why"), int)
    assert_type(client.admin.force_waits("a", reason="why"), tuple[holdfast.Waiter, ...])
    assert_type(client.get_ticket(7).estimate_ms, int | None)
    client.cells.put("app/me", "here", session=session)
    client.cells.transact(compare=[holdfast.StillHeld(hold)], then=[holdfast.CellDelete("a")])


class Counting:
    """Metrics that count."""

    def waited(self, kind: str, names: tuple[str, ...], seconds: float, outcome: str) -> None:
        """Hear of an acquire."""

    def held(self, kind: str, names: tuple[str, ...], seconds: float, reason: str) -> None:
        """Hear of the end of a hold."""

    def renewed(self, kind: str, seconds: float, outcome: str) -> None:
        """Hear of a renewal."""


def measured() -> tuple[holdfast.Client, holdfast.SyncClient]:
    """Give metrics to both clients."""
    metrics: holdfast.Metrics = Counting()
    return holdfast.Client(metrics=metrics), holdfast.SyncClient(metrics=Counting())


def lost(hold: holdfast.SyncHold) -> None:
    """Hear of a loss."""
    raise SystemExit(hold.reason)


def mistakes(client: holdfast.SyncClient, hold: holdfast.SyncHold) -> None:
    """What the type checker finds: each of these lines is an error, or the word that ignores it is one."""
    client.lock("x", mode="exlusive")  # type: ignore[arg-type]
    client.lock("x", scope="tree")  # type: ignore[arg-type]
    client.lock("x", timeout=30)  # type: ignore[call-arg]
    client.lock(b"x")  # type: ignore[arg-type]
    client.lock({"a", "b"})  # type: ignore[arg-type]
    client.lock("x", session=object())  # type: ignore[arg-type]
    client.lock("x", if_held="renew")  # type: ignore[arg-type]
    client.rate_limiter("r", limit=1, per=1, algorithm="leaky")  # type: ignore[arg-type]
    client.rate_limiter("r", limit=1, per=1, window=2)  # type: ignore[arg-type]
    client.elect("x")  # type: ignore[attr-defined]
    hold.extend()  # type: ignore[attr-defined]
    client.acquire("x", wait="5s")  # type: ignore[arg-type]
    print(hold.state == "hold")  # type: ignore[comparison-overlap]
    print(hold.reason == "lost")  # type: ignore[comparison-overlap]
