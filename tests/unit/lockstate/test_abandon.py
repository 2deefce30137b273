"""Waits for clients of a node process that is gone: undone, so that nobody gets what nobody hears of."""

import pytest

from lockstate import limits
from lockstate.commands import AbandonWaits, Acquire, Batch, Command, Entry
from lockstate.ids import AttemptId, HoldId
from lockstate.results import Queued, Reason, Result, WaitsAbandoned
from tests.unit.lockstate.world import EXCLUSIVE, SHARED, World, expect, reason


def _run_from(world: World, origin: str, *commands: Command) -> tuple[Result, ...]:
    """Apply commands of another node process."""
    first = world.machine.applied_seq(origin) + 1
    seqs = tuple(range(first, first + len(commands)))
    return world.apply(Entry(0, (Batch(origin, seqs, commands),))).batches[0].results


def _wish(hold_id: str, request_id: str = "", name: str = "a") -> Acquire:
    return Acquire(
        name,
        EXCLUSIVE,
        HoldId(hold_id),
        AttemptId(f"{hold_id}-1"),
        ttl_ms=1000,
        wait_ms=5000,
        request_id=request_id,
    )


def test_the_waits_of_one_process_end() -> None:
    """Those of others stay in their order, and who stood behind is served."""
    world = World()
    world.granted("a", mode=SHARED)
    _run_from(world, "gone", _wish("x"))
    world.queued("a", mode=SHARED)
    world.queued("a")
    assert _run_from(world, "n2", AbandonWaits("gone")) == (WaitsAbandoned(1, 0),)
    assert world.refused("x").reason is Reason.LOCK_HELD
    assert world.served() == ["h2"]
    assert len(world.machine.lock("a").queue) == 1


def test_holds_stay() -> None:
    """What a client has been granted is its own, whichever node told it."""
    world = World()
    _run_from(world, "gone", _wish("x"))
    assert _run_from(world, "n2", AbandonWaits("gone")) == (WaitsAbandoned(0, 0),)
    assert world.machine.lock("a").state == "held"


def test_a_process_that_nobody_knows_has_no_waits() -> None:
    """To abandon nothing is no mistake."""
    assert World().run(AbandonWaits("nobody")) == WaitsAbandoned(0, 0)


def test_a_repeated_attempt_waits_where_it_was_repeated() -> None:
    """A request that was sent again through another node belongs to that one now."""
    world = World()
    world.granted("a")
    _run_from(world, "gone", _wish("x", "r"))
    (again,) = _run_from(world, "n2", _wish("y", "r"))
    assert again == Queued(HoldId("x"), 1)
    assert world.run(AbandonWaits("gone")) == WaitsAbandoned(0, 0)
    assert world.run(AbandonWaits("n2")) == WaitsAbandoned(1, 0)


def test_an_abandoned_request_starts_afresh() -> None:
    """It was undone, so a repetition with the same id is a first one again."""
    world = World()
    world.granted("a")
    _run_from(world, "gone", _wish("x", "r"))
    world.run(AbandonWaits("gone"))
    assert expect(Queued, world.run(_wish("z", "r"))).hold_id == "z"
    assert reason(world.acquire("a")) is Reason.LOCK_HELD


def test_many_waits_end_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """One command ends so many, the oldest first, and says how many are left."""
    monkeypatch.setattr(limits, "ABANDONED_PER_COMMAND_MAX", 2)
    world = World()
    world.granted("a")
    _run_from(world, "gone", *[_wish(f"x{number}") for number in range(5)])
    left = [expect(WaitsAbandoned, world.run(AbandonWaits("gone"))) for _ in range(3)]
    assert left == [WaitsAbandoned(2, 3), WaitsAbandoned(2, 1), WaitsAbandoned(1, 0)]


def test_conversions_are_abandoned_and_their_holds_kept() -> None:
    """A conversion waits like a request; its hold stays as it was."""
    world = World()
    for _ in range(2):
        world.granted("a", mode=SHARED)
    world.converting("h1", EXCLUSIVE)
    assert world.run(AbandonWaits("n1")) == WaitsAbandoned(1, 0)
    assert [holder.mode for holder in world.machine.lock("a").holders] == [SHARED, SHARED]
    assert isinstance(world.converting("h1", EXCLUSIVE), Queued)


def test_the_processes_that_somebody_waits_at_are_known() -> None:
    """As long as somebody waits there, and no longer."""
    world = World()
    world.granted("a")
    assert world.machine.waiting_origins() == []
    _run_from(world, "n5", _wish("x"))
    _run_from(world, "n4", _wish("y"))
    assert world.machine.waiting_origins() == ["n5", "n4"]
    world.run(AbandonWaits("n5"))
    assert world.machine.waiting_origins() == ["n4"]
    world.release("h1")
    assert world.machine.waiting_origins() == []
