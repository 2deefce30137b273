"""The command line of scripts/demo: shows and checks what happens to a lock when the leader dies."""

import argparse
import asyncio
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import holdfast
from scripts.lib import guardian
from scripts.lib.ports import PortsBusyError
from scripts.local_cluster import ClusterFailure, LocalCluster

LOCK = "accounts/42"
TTL_MS = 60_000
WAIT_MS = 60_000
PATIENCE_S = 20.0
POLL_S = 0.05


class ClaimFailed(Exception):
    """A claim of the demonstration turned out to be false."""


class Narrator:
    """Tells the story with the time since its beginning."""

    def __init__(self) -> None:
        self._began_s = time.monotonic()
        self.claims_count = 0

    def say(self, text: str) -> None:
        """Tell what happens."""
        print(f"[{time.monotonic() - self._began_s:6.2f} s]  {text}", flush=True)

    def claim(self, text: str, *, holds: bool, because: object = "") -> None:
        """State a fact that was just checked. Raises ClaimFailed if it does not hold."""
        if not holds:
            raise ClaimFailed(f"not true: {text}" + (f" ({because})" if because != "" else ""))
        self.claims_count += 1
        self.say(f"    ok: {text}")


async def tell(cluster: LocalCluster, narrator: Narrator) -> None:
    """Tell the story. Raises ClaimFailed."""
    leader = await asyncio.to_thread(cluster.leader)
    first, second = (node for node in cluster.nodes() if node.id != leader)
    narrator.say(f"three nodes run; {leader} leads, {first.id} and {second.id} follow")
    async with (
        holdfast.Client([first.http], owner="alice", timeout=PATIENCE_S) as alice,
        holdfast.Client([second.http], owner="bob", timeout=PATIENCE_S) as bob,
    ):
        narrator.say(f"alice acquires {LOCK!r} through the follower {first.id}")
        hold = await alice.acquire(LOCK, ttl=TTL_MS / 1000)
        narrator.claim(f"alice holds it, with fencing token {hold.token}", holds=hold.is_valid)

        narrator.say(f"bob asks for it through {second.id}, and waits")
        waiting = asyncio.create_task(bob.acquire(LOCK, ttl=TTL_MS / 1000, wait=WAIT_MS / 1000))
        try:
            await _waits(alice)
            narrator.claim("bob is first in the queue", holds=not waiting.done())
            await _leader_dies(cluster, narrator, leader, alice, hold, waiting=waiting)
            later = await _handover(narrator, hold, waiting)
        finally:
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
        _fenced(narrator, hold, later)
        await later.release()
        info = await bob.get_lock(LOCK)
        narrator.claim("bob has released; the lock is free", holds=info.state == "free", because=info)


async def _leader_dies(
    cluster: LocalCluster,
    narrator: Narrator,
    leader: str,
    alice: holdfast.Client,
    hold: holdfast.Hold,
    *,
    waiting: asyncio.Task[holdfast.Hold],
) -> None:
    """Kill the leader; nothing that was granted or queued is lost."""
    narrator.say(f"kill -9 {leader}, the leader")
    await asyncio.to_thread(cluster.kill, leader)
    narrator.claim(f"{leader} is dead", holds=not cluster.is_alive(leader))
    new_leader = await asyncio.to_thread(cluster.leader)
    narrator.claim(f"{new_leader} leads now", holds=new_leader != leader)
    info = await alice.get_lock(LOCK)
    holders = [(holder.owner, holder.token) for holder in info.holders]
    narrator.claim(
        f"alice still holds the lock, with the same token {hold.token}",
        holds=holders == [("alice", hold.token)],
        because=info,
    )
    await _waits(alice)
    narrator.claim("bob still waits, and has seen no error", holds=not waiting.done())


async def _handover(
    narrator: Narrator, hold: holdfast.Hold, waiting: asyncio.Task[holdfast.Hold]
) -> holdfast.Hold:
    """Release; the waiter gets the lock with the next token."""
    await hold.renew()
    narrator.claim("alice's renewal is answered by the new leader", holds=hold.is_valid)
    narrator.say("alice releases")
    await hold.release()
    async with asyncio.timeout(PATIENCE_S):
        later = await waiting
    narrator.claim(
        f"bob holds the lock, with the next token {later.token}",
        holds=later.token == hold.token + 1,
        because=f"the token is {later.token}",
    )
    return later


def _fenced(narrator: Narrator, old: holdfast.Hold, new: holdfast.Hold) -> None:
    """Let an old holder try to write after a new one."""
    account = holdfast.FencedResource()
    account.check(new.token)
    narrator.say(f"bob writes to a fenced account with token {new.token}")
    narrator.say(f"a write of alice, delayed until now, arrives with token {old.token}")
    try:
        account.check(old.token)
    except holdfast.StaleToken as error:
        narrator.claim(f"the account refuses it: {error}", holds=True)
    else:
        narrator.claim("the account refuses it", holds=False)


async def _waits(client: holdfast.Client) -> None:
    """Wait until one waiter stands in the lock's queue."""

    async def has_waiter() -> bool:
        return len((await client.get_lock(LOCK)).queue) == 1

    await _until(has_waiter, "nobody waits for the lock")


async def _until(condition: Callable[[], Awaitable[bool]], complaint: str) -> None:
    """Wait for a condition. Raises ClaimFailed."""
    deadline_s = time.monotonic() + PATIENCE_S
    while not await condition():
        if time.monotonic() > deadline_s:
            raise ClaimFailed(f"{complaint}, after {PATIENCE_S:.0f} s")
        await asyncio.sleep(POLL_S)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    argparse.ArgumentParser(
        prog="scripts/demo",
        description="Start three nodes on this machine, take a lock, kill the leader with -9, and check that "
        "the lock, its queue and its fencing survive. Takes well under a minute; leaves nothing behind.",
    ).parse_args(argv)
    # So that a terminated run, or one whose terminal is closed, cleans up like an interrupted one. The runner
    # of the event loop handles SIGINT; a callback could swallow a KeyboardInterrupt raised by another signal.
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: signal.raise_signal(signal.SIGINT))
    narrator = Narrator()
    directory = Path(tempfile.mkdtemp(prefix="holdfast-demo-"))
    try:
        with guardian.guarded(), LocalCluster.up(directory, progress=narrator.say) as cluster:
            asyncio.run(tell(cluster, narrator))
            narrator.say(f"stopping the nodes; all {narrator.claims_count} claims were checked")
    except (ClaimFailed, ClusterFailure, PortsBusyError, holdfast.LockError, TimeoutError) as error:
        print(f"scripts/demo: FAILED: {str(error) or 'no answer in time'}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("scripts/demo: interrupted; everything is stopped and removed", file=sys.stderr)
        return 130
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
