"""The lock of the SDK, and `holdfast run`, as users write them first, against real nodes that are killed."""

import asyncio
import contextlib
import os
import signal
import sys

import pytest

import holdfast
from scripts.local_cluster import LocalCluster
from tests.process.nodes import followers, http_to, until, urls
from tests.unit.holdfast.cli.test_run import has_ended

pytestmark = pytest.mark.process


async def test_a_contended_lock_waits_through_the_death_of_the_leader(cluster: LocalCluster) -> None:
    """The second of two blocks begins when the first has ended, with a larger token."""
    name = "sdk/contended"
    waiting_on, other = followers(cluster)
    async with (
        http_to(cluster) as http,
        holdfast.Client(cluster.node(other).http, owner="first") as first,
        holdfast.Client(cluster.node(waiting_on).http, owner="second") as second,
    ):
        tokens = []

        async def wait() -> None:
            async with second.lock(name) as hold:
                tokens.append(hold.token)

        async def is_queued() -> bool:
            return await http.queue_length(other, name) == 1

        async with first.lock(name) as hold:
            waiting = asyncio.create_task(wait())
            await until(is_queued, "the second waits")
            await asyncio.to_thread(cluster.kill, cluster.leader())
            await hold.renew()
            assert tokens == []
            tokens.append(hold.token)
        assert hold.reason == "released"
        await waiting
        assert tokens[0] < tokens[1]


async def test_a_hold_that_was_forced_away_is_lost_with_its_next_renewal(cluster: LocalCluster) -> None:
    """When an operator frees the lock the body hears of it at its next renewal, and the hold is not valid."""
    name = "sdk/forced"
    async with holdfast.Client(urls(cluster)) as client:
        with pytest.raises(holdfast.LeaseLost) as caught:  # noqa: PT012 - a block is what is tested
            async with client.lock(name, ttl=3) as hold:
                await client.admin.force_release(name, reason="a test")
                await asyncio.Event().wait()
        assert (hold.is_valid, hold.reason, caught.value.reason) == (False, "lease-expired", "lease-expired")


async def test_the_command_of_a_killed_holdfast_ends_before_the_lock_is_free(cluster: LocalCluster) -> None:
    """After kill -9 of `holdfast run` its command is gone when the next one gets the lock."""
    name = "sdk/killed"
    script = "trap '' TERM; echo $$; while :; do sleep 0.1; done"
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "holdfast",
        "run",
        name,
        "--ttl",
        "8s",
        "--",
        "sh",
        "-c",
        script,
        stdout=asyncio.subprocess.PIPE,
        env=os.environ | {"HOLDFAST_NODES": ",".join(urls(cluster))},
    )
    assert process.stdout is not None
    pid = int(await process.stdout.readline())
    try:
        process.kill()
        await process.wait()
        async with holdfast.Client(urls(cluster)) as client, client.lock(name):
            assert has_ended(pid)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
