"""Holds of a namespace that bounds them: a client never relies on one for longer than the cluster lets it."""

from collections.abc import Iterator

import pytest

import holdfast
from holdfast.testing import MemoryCluster

BOUND_S = 10


@pytest.fixture
def cluster() -> Iterator[MemoryCluster]:
    """Return a cluster in which nothing in `a` is held for longer than ten seconds."""
    with MemoryCluster() as cluster:
        yield cluster


async def bound(client: holdfast.Client) -> None:
    """Let what lies in `a` be held for ten seconds."""
    settings = holdfast.NamespaceSettings(held_ms_max=1000 * BOUND_S)
    await client.admin.set_namespace("a", settings, reason="all have a turn")


async def test_a_hold_in_a_session_ends_before_the_session(cluster: MemoryCluster) -> None:
    """The lease of its session goes on for longer than the hold."""
    async with cluster.client() as client, client.session(ttl=60) as session:
        await bound(client)
        free = await client.acquire("free", session=session)
        held = await client.acquire("a/x", session=session)
        assert held.remaining <= BOUND_S < free.remaining
        cluster.clock.move(1000)
        await session.keepalive()
        assert held.remaining <= BOUND_S - 1 < free.remaining
        assert held.revocation is not None
        assert held.revocation.reason == "held-too-long"
        cluster.clock.move(9000)
        assert (held.is_valid, free.is_valid) == (False, True)


@pytest.mark.parametrize("in_session", [False, True])
async def test_what_is_added_ends_the_hold(cluster: MemoryCluster, *, in_session: bool) -> None:
    """A lock that is added brings its bound; one that is dropped takes it along."""
    async with cluster.client() as client, client.session(ttl=60) as session:
        await bound(client)
        asked = client.acquire("free", session=session) if in_session else client.acquire("free", ttl=60)
        hold = await asked
        cluster.clock.move(500)
        await hold.add("a/x")
        assert hold.remaining <= BOUND_S
        await hold.drop("a/x")
        assert hold.remaining > BOUND_S
