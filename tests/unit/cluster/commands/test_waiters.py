"""Requests that wait: woken when they are settled, or by snapshots; forgotten when nobody waits any more."""

import asyncio
import gc

import pytest

from cluster.commands.waiters import Waiters
from cluster.errors import OutcomeUnknown
from lockstate.words.ids import HoldId
from lockstate.words.modes import Mode
from lockstate.words.outcomes import Settled
from lockstate.words.refusals import Reason, Refused
from lockstate.words.results import Granted, Queued

GRANTED = Granted(HoldId("h1"), 7, "n", Mode.EXCLUSIVE, 1000)
LOST = OutcomeUnknown("lost")


def end(result: Granted | Refused = GRANTED, hold_id: str = "h1") -> Settled:
    """Return the end of a wait."""
    return Settled(HoldId(hold_id), result, 0)


async def test_the_end_of_a_wait_reaches_everyone_who_waits_for_it() -> None:
    """Several attempts of one request get the same answer, with the revision at which it was settled."""
    waiters = Waiters(asyncio.get_running_loop())
    futures = [waiters.add(HoldId("h1")), waiters.add(HoldId("h1"))]
    other = waiters.add(HoldId("h2"))
    waiters.wake(end(), 3)
    for future in futures:
        answer = await future
        assert (answer.result, answer.revision) == (GRANTED, 3)
    assert not other.done()
    assert waiters.hold_ids() == ["h2"]


async def test_a_refusal_ends_a_wait_too() -> None:
    """A wait that was over in the cluster ends with its reason."""
    waiters = Waiters(asyncio.get_running_loop())
    future = waiters.add(HoldId("h1"))
    refused = Refused(Reason.LOCK_HELD, "the wait is over")
    waiters.wake(end(refused), 3)
    assert (await future).result is refused


async def test_the_end_of_another_wait_wakes_nobody() -> None:
    """What is settled for the clients of other nodes passes."""
    waiters = Waiters(asyncio.get_running_loop())
    future = waiters.add(HoldId("h1"))
    waiters.wake(end(hold_id="elsewhere"), 3)
    assert not future.done()


async def test_a_wait_may_end_with_nobody_there() -> None:
    """Its client is away, and the node fell behind: nothing is logged as a mistake."""
    loop = asyncio.get_running_loop()
    uncaught: list[str] = []
    loop.set_exception_handler(lambda _, context: uncaught.append(context["message"]))
    waiters = Waiters(loop)
    waiters.add(HoldId("h1"))
    waiters.fail_all(LOST)
    await asyncio.sleep(0)
    gc.collect()
    assert not uncaught
    assert not waiters


async def test_a_conversion_is_woken_by_its_ticket() -> None:
    """A conversion waits under its ticket and gets its hold, whose id is another one."""
    waiters = Waiters(asyncio.get_running_loop())
    future = waiters.add(HoldId("t1"))
    waiters.wake(end(hold_id="h1"), 3)
    assert not future.done()
    waiters.wake(end(hold_id="t1"), 4)
    assert (await future).result == GRANTED


async def test_who_leaves_is_forgotten() -> None:
    """A cancelled future leaves nothing behind, and does not disturb the others."""
    waiters = Waiters(asyncio.get_running_loop())
    left, stays = waiters.add(HoldId("h1")), waiters.add(HoldId("h1"))
    left.cancel()
    await asyncio.sleep(0)
    waiters.wake(end(), 3)
    assert (await stays).result is GRANTED
    alone = waiters.add(HoldId("h2"))
    alone.cancel()
    await asyncio.sleep(0)
    assert len(waiters) == 0


async def test_a_new_wait_for_the_same_hold_is_not_taken_down_by_the_old_one() -> None:
    """The callbacks of futures that are done do not touch a waiter that was added since."""
    waiters = Waiters(asyncio.get_running_loop())
    waiters.add(HoldId("h1"))
    waiters.wake(end(), 3)
    again = waiters.add(HoldId("h1"))
    await asyncio.sleep(0)
    waiters.wake(end(), 4)
    assert (await again).revision == 4


async def test_a_snapshot_tells_what_became_of_a_wait() -> None:
    """Held: the answer. Still queued: it goes on. Neither: unknown, since the end was never seen."""
    waiters = Waiters(asyncio.get_running_loop())
    held, queued, gone = waiters.add(HoldId("h1")), waiters.add(HoldId("h2")), waiters.add(HoldId("h3"))
    waiters.reconcile(HoldId("h1"), GRANTED, 9, LOST)
    waiters.reconcile(HoldId("h2"), Queued(HoldId("h2"), 1), 9, LOST)
    waiters.reconcile(HoldId("h3"), None, 9, LOST)
    assert (await held).revision == 9
    assert not queued.done()
    with pytest.raises(OutcomeUnknown):
        await gone
    assert waiters.hold_ids() == ["h2"]


async def test_stopping_ends_every_wait() -> None:
    """Nobody waits for a node that stops."""
    waiters = Waiters(asyncio.get_running_loop())
    futures = [waiters.add(HoldId("h1")), waiters.add(HoldId("h2"))]
    waiters.fail_all(LOST)
    for future in futures:
        with pytest.raises(OutcomeUnknown):
            await future
    assert len(waiters) == 0
