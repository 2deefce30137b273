"""Waits of clients that are away: who gets one back, and when it ends."""

import asyncio
import gc

import pytest

from cluster.commands import kept_waits
from cluster.commands.kept_waits import KeptWaits
from cluster.commands.outbox import Answer
from cluster.errors import WaitCutOff
from holdfast import wire
from lockstate.words.commands.entries import MayBeCancelled
from lockstate.words.commands.holds import Acquire
from lockstate.words.ids import AttemptId, HoldId
from lockstate.words.modes import Mode
from lockstate.words.results import Granted, Queued


class _Kept:
    """What is kept, and the attempts that were taken back."""

    def __init__(self) -> None:
        self.undone: list[str] = []
        self.waits = KeptWaits(self._undo)

    def _undo(self, command: MayBeCancelled, answer: Answer) -> None:
        assert isinstance(command, Acquire)
        assert answer.revision == 1
        self.undone.append(command.attempt_id)


def acquire(attempt: str = "first", *, request_id: str = "request-number-01", name: str = "a") -> Acquire:
    """Return one attempt at a request."""
    return Acquire(
        name,
        Mode.EXCLUSIVE,
        HoldId(f"hold-of-{attempt}"),
        AttemptId(attempt),
        ttl_ms=60_000,
        wait_ms=60_000,
        request_id=request_id,
    )


def queued() -> Answer:
    """Return what a request that waits was answered."""
    return Answer(Queued(HoldId("h"), 0), 1, asyncio.get_running_loop().create_future())


def test_the_grace_is_the_published_one() -> None:
    """What the API says of the grace is what a node gives."""
    assert kept_waits.KEEP_S * 1000 == wire.WAIT_KEPT_MS


async def test_a_request_that_is_asked_again_goes_on_with_the_attempt_that_waits() -> None:
    """It is handed over once, with the ids of the attempt that the cluster knows."""
    kept, answer = _Kept(), queued()
    kept.waits.keep(acquire(), "ann", answer)
    assert kept.waits.take(acquire("second"), "ann") == (acquire(), answer)
    assert kept.waits.take(acquire("third"), "ann") is None
    assert kept.undone == []


async def test_others_do_not_get_a_wait() -> None:
    """Neither another principal, nor another request, nor the same id with other content."""
    kept = _Kept()
    kept.waits.keep(acquire(), "ann", queued())
    assert kept.waits.take(acquire(), "bob") is None
    assert kept.waits.take(acquire(request_id="request-number-02"), "ann") is None
    assert kept.waits.take(acquire(name="b"), "ann") is None
    assert kept.waits.take(acquire(request_id=""), "ann") is None
    assert len(kept.waits) == 1


async def test_a_wait_that_has_ended_is_not_handed_over() -> None:
    """What is left of the lease is known to the state machine; this attempt ends with the grace."""
    kept, answer = _Kept(), queued()
    kept.waits.keep(acquire(), "", answer)
    assert answer.wait is not None
    answer.wait.set_result(Answer(Granted(HoldId("h"), 1, "a", Mode.EXCLUSIVE, 60_000), 2))
    assert kept.waits.take(acquire("second"), "") is None
    assert len(kept.waits) == 1


async def test_at_the_end_of_the_grace_the_attempt_is_taken_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody asked again: the queue moves on."""
    monkeypatch.setattr(kept_waits, "KEEP_S", 0.01)
    kept = _Kept()
    kept.waits.keep(acquire(), "", queued())
    async with asyncio.timeout(10):
        while not kept.undone:  # noqa: ASYNC110 - a timer has no event to await
            await asyncio.sleep(0.001)
    assert kept.undone == ["first"]
    assert len(kept.waits) == 0


async def test_of_two_attempts_the_newer_is_kept() -> None:
    """A request that was cut off twice waits with its newer attempt; the older one is taken back at once."""
    kept = _Kept()
    kept.waits.keep(acquire("first"), "", queued())
    kept.waits.keep(acquire("second"), "", queued())
    assert kept.undone == ["first"]


async def test_the_oldest_gives_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is a bound, and the wait that was cut off first ends early when it is reached."""
    monkeypatch.setattr(kept_waits, "KEPT_COUNT_MAX", 2)
    kept = _Kept()
    for number in range(3):
        request = acquire(f"attempt-{number}", request_id=f"request-number-0{number}")
        kept.waits.keep(request, "", queued())
    assert kept.undone == ["attempt-0"]
    assert len(kept.waits) == 2


async def test_a_wait_that_its_node_loses_sight_of_fails_in_silence(caplog: pytest.LogCaptureFixture) -> None:
    """Nobody is there to be told; at the end of the grace the attempt is taken back all the same."""
    kept, answer = _Kept(), queued()
    kept.waits.keep(acquire(), "", answer)
    assert answer.wait is not None
    answer.wait.set_exception(WaitCutOff("no leader"))
    await asyncio.sleep(0)
    del answer
    assert kept.waits.take(acquire("second"), "") is None
    kept.waits.keep(acquire("second"), "", queued())
    gc.collect()
    assert kept.undone == ["first"]
    assert not caplog.records
