"""The leader ends the waits of node processes that it misses, after a grace, and of nobody else."""

import asyncio
import itertools
import logging
from typing import cast

import pytest

from cluster.commands import outbox as outbox_module
from cluster.commands.abandoned_waits import GRACE_MS, RETRY_MS, TIMEOUT_S, AbandonedWaits
from cluster.commands.clock import ClusterClock
from cluster.commands.encoded_command import EncodedCommand
from cluster.commands.outbox import Answer, Outbox
from lockstate.machine import LockMachine
from lockstate.words import limits
from lockstate.words.codec import decode_entry, encode_command, encode_entry
from lockstate.words.commands.entries import AbandonWaits, Batch, Entry
from lockstate.words.commands.holds import Acquire
from lockstate.words.ids import AttemptId, HoldId, OwnerName
from lockstate.words.modes import Mode
from tests.support.virtual_loop import VirtualLoop

OWN, OTHER, RESTARTED = "n1.aa", "n2.bb", "n2.cc"
NAME = "printer"


class World(VirtualLoop):
    """A leader with a machine, a loop and a cluster clock on virtual milliseconds; commits when told to."""

    def __init__(self) -> None:
        super().__init__()
        self.stalled_ms = 0
        self.proposed: list[str] = []
        self.machine = LockMachine()
        self.outbox = Outbox(OWN, self.as_loop)
        self.abandoned = AbandonedWaits(
            self.outbox,
            self.as_loop,
            cast("ClusterClock", self),
            self.machine.waiting_origins,
            self.take,
        )
        self._unsent: list[tuple[list[int], list[bytes]]] = []
        self._numbers = itertools.count(1)
        self.abandoned.lead(is_leader=True)
        self.ask(OWN, "holder")

    def now_ms(self) -> int:
        """Return cluster time."""
        return self.at_ms - self.stalled_ms

    def take(self) -> None:
        """Take what the outbox has, as the leader's own next entry does."""
        seqs, commands = self.outbox.take()
        datas = [command.data for command in commands]
        (batch,) = decode_entry(encode_entry(0, [(OWN, seqs, datas)])).batches
        self.proposed += [command.origin for command in batch.commands if isinstance(command, AbandonWaits)]
        self._unsent.append((seqs, datas))

    async def commit(self) -> None:
        """Commit all that was proposed, and what the outcome leads to."""
        while self._unsent:
            entry = decode_entry(encode_entry(self.now_ms(), [(OWN, *self._unsent.pop(0))]))
            self._apply(entry)
            await run_callbacks()

    def lose(self) -> None:
        """Lose all that was proposed."""
        self._unsent.clear()

    def ask(self, origin: str, owner: str, request_id: str = "") -> None:
        """Let a client of a process ask for the lock."""
        number = next(self._numbers)
        wanted = Acquire(
            NAME,
            Mode.EXCLUSIVE,
            HoldId(f"hold-{number}"),
            AttemptId(f"try-{number}"),
            ttl_ms=limits.TTL_MS_MAX,
            wait_ms=limits.WAIT_MS_MAX,
            owner=OwnerName(owner),
            request_id=request_id,
        )
        seq = self.machine.applied_seq(origin) + 1
        if origin == OWN:
            seq = self.outbox.submit(EncodedCommand(encode_command(wanted)), TIMEOUT_S).seq
            self.outbox.take()
        self._apply(Entry(self.now_ms(), (Batch(origin, (seq,), (wanted,)),)))

    def _apply(self, entry: Entry) -> None:
        outcome = self.machine.apply(entry)
        for batch in outcome.batches:
            for seq, result in zip(batch.seqs, batch.results, strict=True):
                self.outbox.complete(seq, Answer(result, outcome.revision), self.machine)
        self.abandoned.look()

    @property
    def queue(self) -> list[str]:
        """The owners that wait, in order."""
        return [waiter.owner for waiter in self.machine.lock(NAME).queue]


async def run_callbacks() -> None:
    """Let the loop call who waited for a future."""
    for _ in range(2):
        await asyncio.sleep(0)


async def test_waits_of_a_lost_node_end_after_the_grace(caplog: pytest.LogCaptureFixture) -> None:
    """The grace counts from the loss of the connection; then its waits end, and the log says so."""
    caplog.set_level(logging.INFO)
    world = World()
    world.abandoned.heard(OTHER)
    for origin, owner in ((OTHER, "lost"), (OWN, "own"), (OTHER, "lost too")):
        world.ask(origin, owner)
    world.run_ms(60_000)
    world.abandoned.lost("n2")
    world.run_ms(GRACE_MS - 1)
    assert world.proposed == []
    world.run_ms(1)
    assert world.proposed == [OTHER]
    await world.commit()
    assert world.queue == ["own"]
    world.run_ms(RETRY_MS)
    assert world.waiting == []
    assert world.proposed == [OTHER]
    assert f"event=waits-abandoned node=n2 origin={OTHER} ended=2 left=0" in caplog.messages


async def test_a_node_that_comes_back_in_time_keeps_its_waits() -> None:
    """A short partition does no harm, however often it comes."""
    world = World()
    world.ask(OTHER, "patient")
    for _ in range(3):
        world.abandoned.lost("n2")
        world.run_ms(GRACE_MS - 1)
        world.abandoned.heard(OTHER)
        world.run_ms(1)
    world.run_ms(2 * GRACE_MS)
    assert world.proposed == []
    assert world.queue == ["patient"]


async def test_a_node_started_anew_has_left_its_earlier_waits() -> None:
    """Connected or not: what waits for its earlier run ends, what waits for the present one stays."""
    world = World()
    world.abandoned.heard(OTHER)
    world.ask(OTHER, "before")
    world.abandoned.lost("n2")
    world.run_ms(1_000)
    world.abandoned.heard(RESTARTED)
    world.ask(RESTARTED, "after")
    world.run_ms(GRACE_MS - 1_000)
    await world.commit()
    assert world.proposed == [OTHER]
    assert world.queue == ["after"]
    world.run_ms(60_000)
    assert world.proposed == [OTHER]


async def test_a_request_repeated_elsewhere_keeps_its_place() -> None:
    """Within the grace it goes over to the node on which it was repeated, and stays where it stood."""
    world = World()
    world.abandoned.heard(OTHER)
    for owner in ("first", "second"):
        world.ask(OTHER, owner, request_id="once")
    world.ask(OWN, "third")
    world.abandoned.lost("n2")
    world.ask(OWN, "first", request_id="once")
    world.run_ms(GRACE_MS)
    await world.commit()
    assert world.queue == ["first", "third"]


async def test_a_new_leader_gives_the_whole_grace() -> None:
    """Whom it misses may be on the way to it: the grace counts from when it began to lead."""
    world = World()
    world.abandoned.lead(is_leader=False)
    world.ask(OTHER, "orphan")
    world.run_ms(60_000)
    assert world.timers == []
    world.abandoned.lead(is_leader=True)
    world.run_ms(GRACE_MS - 1)
    assert world.proposed == []
    world.run_ms(1)
    assert world.proposed == [OTHER]


async def test_who_leads_no_more_ends_no_waits() -> None:
    """What it proposed is not sent to the next leader, which may be connected with the node."""
    world = World()
    world.ask(OTHER, "orphan")
    world.run_ms(GRACE_MS)
    assert len(world.outbox) == 1
    world.abandoned.lead(is_leader=False)
    assert len(world.outbox) == 0
    world.outbox.rewind()
    assert not world.outbox.unsent
    await run_callbacks()
    world.run_ms(60_000)
    assert world.proposed == [OTHER]
    assert world.waiting == []


async def test_many_waits_end_one_command_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """One command ends so many waits; the next follows when it is applied, until none is left."""
    monkeypatch.setattr(limits, "ABANDONED_PER_COMMAND_MAX", 2)
    world = World()
    for number in range(5):
        world.ask(OTHER, f"orphan {number}")
    world.run_ms(GRACE_MS)
    assert world.proposed == [OTHER]
    await world.commit()
    assert world.proposed == [OTHER] * 3
    assert world.queue == []


async def test_a_lost_command_is_tried_again() -> None:
    """While its outcome may come there is no second one; when it is given up there is."""
    world = World()
    world.ask(OTHER, "orphan")
    world.run_ms(GRACE_MS)
    world.lose()
    world.run_ms(int(TIMEOUT_S * 1000) - 1)
    assert world.proposed == [OTHER]
    world.run_ms(1)
    world.outbox.give_up_due()
    await run_callbacks()
    world.run_ms(RETRY_MS)
    assert world.proposed == [OTHER] * 2
    await world.commit()
    assert world.queue == []


async def test_a_command_that_was_not_taken_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node with too much to do ends the waits when it has room again."""
    world = World()
    world.ask(OTHER, "orphan")
    with monkeypatch.context() as full:
        full.setattr(outbox_module, "PENDING_COUNT_MAX", 0)
        world.run_ms(GRACE_MS)
        assert world.proposed == []
    world.run_ms(RETRY_MS)
    assert world.proposed == [OTHER]


async def test_several_nodes_have_a_grace_each() -> None:
    """A node that is missed later loses its waits later."""
    world = World()
    for node_id in ("n2", "n3"):
        world.abandoned.heard(f"{node_id}.run")
        world.ask(f"{node_id}.run", node_id)
    world.abandoned.lost("n2")
    world.run_ms(GRACE_MS // 2)
    world.abandoned.lost("n3")
    world.run_ms(GRACE_MS // 2)
    await world.commit()
    assert world.queue == ["n3"]
    world.run_ms(GRACE_MS // 2)
    await world.commit()
    assert world.queue == []
    assert world.proposed == ["n2.run", "n3.run"]


async def test_a_stalled_leader_gives_the_grace_all_the_same() -> None:
    """It counts in cluster time: a leader that was stopped has heard of nobody meanwhile."""
    world = World()
    world.ask(OTHER, "patient")
    world.run_ms(1_000)
    world.at_ms += 60_000
    world.stalled_ms += 60_000
    world.run_ms(0)
    assert world.proposed == []
    world.run_ms(GRACE_MS - 1_001)
    assert world.proposed == []
    world.run_ms(1)
    assert world.proposed == [OTHER]


async def test_no_timer_is_set_while_nobody_is_missed() -> None:
    """Neither waits of connected nodes nor the loss of a node without waits cost anything."""
    world = World()
    world.abandoned.heard(OTHER)
    world.abandoned.heard("n3.dd")
    world.ask(OTHER, "patient")
    world.ask(OWN, "patient too")
    world.abandoned.lost("n3")
    assert world.timers == []


async def test_a_stopped_node_sets_no_timer() -> None:
    """A node that stops proposes nothing any more."""
    world = World()
    world.ask(OTHER, "orphan")
    world.abandoned.stop()
    world.abandoned.look()
    world.run_ms(60_000)
    assert world.waiting == []
    assert world.proposed == []
