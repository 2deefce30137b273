"""Commands from submission to outcome: numbers, order, deadlines, bounds, and reads that share a barrier."""

import asyncio
from typing import Any

import pytest

from cluster.commands import outbox as outbox_module
from cluster.commands.encoded_command import EncodedCommand
from cluster.commands.outbox import Answer, Outbox, Pending
from cluster.errors import ClusterError, NoLeader, OutcomeUnknown, Overloaded, ShuttingDown
from lockstate.machine import LockMachine
from lockstate.words import codec
from lockstate.words.commands.entries import Barrier
from lockstate.words.results import Done
from tests.support.virtual_loop import VirtualLoop

ANSWER = Answer(Done(), 7)
BARRIER = EncodedCommand(codec.encode_command(Barrier()))


def new_outbox() -> tuple[Outbox, VirtualLoop]:
    """Return an empty outbox and its loop."""
    loop = VirtualLoop(100_000)
    return Outbox("a.1", loop.as_loop), loop


def failure(future: "asyncio.Future[Any]") -> type[BaseException] | None:
    """Return what kind of error ended a future, None while it is pending."""
    error = future.exception() if future.done() else None
    return type(error) if error is not None else None


def submit(outbox: Outbox, *commands: bytes, timeout_s: float = 5) -> list[Pending]:
    """Submit commands."""
    return [outbox.submit(EncodedCommand(command), timeout_s) for command in commands]


def taken(outbox: Outbox) -> tuple[list[int], list[bytes]]:
    """Take what is unsent; return its numbers and bytes."""
    seqs, commands = outbox.take()
    return seqs, [command.data for command in commands]


async def test_numbers_rise_by_one_and_stay_with_their_command() -> None:
    """Commands are taken once, in order, with numbers from 1 on."""
    outbox, _ = new_outbox()
    submit(outbox, b"one", b"two")
    assert taken(outbox) == ([1, 2], [b"one", b"two"])
    assert not outbox.unsent
    submit(outbox, b"three")
    assert taken(outbox) == ([3], [b"three"])
    assert len(outbox) == 3


async def test_keepalives_alone_are_not_urgent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Anything else is, also a read, and whatever is sent again or had no room."""
    outbox, _ = new_outbox()
    for _ in range(2):
        outbox.submit(EncodedCommand(b"keepalive", is_patient=True), 5)
    seen = [outbox.is_urgent]
    outbox.read(lambda _: None, 5).add_done_callback(failure)
    seen.append(outbox.is_urgent)
    outbox.take()
    seen.append(outbox.is_urgent)
    outbox.rewind()
    seen.append(outbox.is_urgent)
    monkeypatch.setattr(outbox_module, "SEND_BYTES_MAX", 1)
    outbox.take()
    assert [*seen, outbox.is_urgent] == [False, True, False, True, True]


async def test_a_rewind_sends_all_that_is_pending_from_the_lowest_number() -> None:
    """After a change of leader, all without an outcome goes out again, in order, before anything new."""
    outbox, _ = new_outbox()
    submit(outbox, b"one", b"two", b"three")
    outbox.take()
    outbox.complete(1, ANSWER, LockMachine())
    submit(outbox, b"four")
    assert outbox.rewind() == 2
    submit(outbox, b"five")
    assert taken(outbox) == ([2, 3, 4, 5], [b"two", b"three", b"four", b"five"])


async def test_a_frame_is_limited_and_the_next_goes_on_behind_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """What does not fit stays unsent, in order."""
    monkeypatch.setattr(outbox_module, "SEND_BYTES_MAX", 10)
    outbox, _ = new_outbox()
    submit(outbox, b"12345", b"12345", b"third")
    assert outbox.take()[0] == [1, 2]
    assert outbox.unsent
    assert outbox.take()[0] == [3]


async def test_an_outcome_is_handed_over_once() -> None:
    """The future gets the answer; a repetition finds nobody, and a caller that left does no harm."""
    outbox, _ = new_outbox()
    kept, left = submit(outbox, b"one", b"two")
    left.future.cancel()
    for _ in range(2):
        outbox.complete(kept.seq, ANSWER, LockMachine())
        outbox.complete(left.seq, ANSWER, LockMachine())
    assert kept.future.result() is ANSWER
    assert len(outbox) == 0


async def test_what_was_never_sent_ends_as_no_leader() -> None:
    """At its deadline an unsent command ends as surely not applied, and is never sent any more."""
    outbox, loop = new_outbox()
    (pending,) = submit(outbox, b"one", timeout_s=5)
    loop.run_ms(4_990)
    outbox.give_up_due()
    assert failure(pending.future) is None
    loop.run_ms(10)
    outbox.give_up_due()
    assert failure(pending.future) is NoLeader
    assert outbox.take() == ([], [])


async def test_what_was_sent_ends_as_unknown() -> None:
    """A command that was sent, even to a leader long gone, may be applied: nobody says that it is not."""
    outbox, loop = new_outbox()
    (pending,) = submit(outbox, b"one", timeout_s=5)
    outbox.take()
    outbox.rewind()
    loop.run_ms(5_000)
    outbox.give_up_due()
    assert failure(pending.future) is OutcomeUnknown
    assert outbox.take() == ([], [])


async def test_deadlines_do_not_pile_up() -> None:
    """What has an outcome long before its deadline leaves nothing behind, however much there is."""
    outbox, loop = new_outbox()
    kept = outbox.submit(EncodedCommand(b"kept"), 1)
    for _ in range(5000):
        pending = outbox.submit(EncodedCommand(b"x"), 3600)
        outbox.complete(pending.seq, ANSWER, LockMachine())
    assert len(outbox._deadlines) <= 2 * len(outbox) + 1025
    loop.run_ms(1_000)
    outbox.give_up_due()
    assert failure(kept.future) is NoLeader


async def test_too_many_commands_are_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Above the bounds, in count or in bytes, nothing is taken; room comes back with the outcomes."""
    monkeypatch.setattr(outbox_module, "PENDING_COUNT_MAX", 2)
    outbox, _ = new_outbox()
    submit(outbox, b"one", b"two")
    with pytest.raises(Overloaded):
        outbox.submit(EncodedCommand(b"three"), 5)
    outbox.complete(1, ANSWER, LockMachine())
    outbox.submit(EncodedCommand(b"three"), 5)
    monkeypatch.setattr(outbox_module, "PENDING_COUNT_MAX", 100)
    monkeypatch.setattr(outbox_module, "PENDING_BYTES_MAX", 8)
    with pytest.raises(Overloaded):
        outbox.submit(EncodedCommand(b"x"), 5)


async def test_reads_share_a_barrier_until_it_is_sent() -> None:
    """A barrier that is under way does not serve later reads.

    What was answered meanwhile may be behind it.
    """
    outbox, _ = new_outbox()
    first = outbox.read(lambda machine: machine.revision, 5)
    second = outbox.read(lambda machine: machine.now_ms, 5)
    assert outbox.take() == ([1], [BARRIER])
    third = outbox.read(lambda machine: machine.revision, 5)
    outbox.complete(1, ANSWER, LockMachine())
    assert (first.result(), second.result()) == (0, 0)
    assert not third.done()
    assert outbox.take() == ([2], [BARRIER])


async def test_a_barrier_that_is_sent_again_takes_no_new_reads() -> None:
    """An old barrier may be in the log already when it is sent again: a new read waits for one behind it."""
    outbox, _ = new_outbox()
    outbox.read(lambda machine: machine.revision, 5)
    outbox.take()
    outbox.rewind()
    later = outbox.read(lambda machine: machine.revision, 5)
    assert outbox.take()[0] == [1, 2]
    outbox.complete(1, ANSWER, LockMachine())
    assert not later.done()


async def test_a_read_after_a_failed_barrier_gets_another() -> None:
    """When no leader came before the deadline of some reads, the next read begins anew and is answered."""
    outbox, loop = new_outbox()
    failed = outbox.read(lambda machine: machine.revision, 5)
    loop.run_ms(5_000)
    outbox.give_up_due()
    assert failure(failed) is NoLeader
    answered = outbox.read(lambda machine: machine.revision, 5)
    (seq,), *_ = outbox.take()
    outbox.complete(seq, ANSWER, LockMachine())
    assert answered.result() == 0


async def test_a_read_does_not_end_before_its_own_deadline() -> None:
    """Sharing a barrier with an older or less patient read costs nobody the time it gave."""
    outbox, loop = new_outbox()
    outbox.read(lambda machine: machine.revision, 1).add_done_callback(lambda future: future.exception())
    patient = outbox.read(lambda machine: machine.revision, 60)
    loop.run_ms(1_000)
    outbox.give_up_due()
    assert failure(patient) is None


async def test_a_sent_read_that_fails_is_surely_not_applied() -> None:
    """Reads change nothing: even when their barrier was sent, all of them end as no-leader."""
    outbox, loop = new_outbox()
    reads = [outbox.read(lambda machine: machine.revision, 5) for _ in range(3)]
    reads[1].cancel()
    outbox.take()
    loop.run_ms(5_000)
    outbox.give_up_due()
    assert [failure(reads[0]), failure(reads[2])] == [NoLeader, NoLeader]


async def test_a_query_that_fails_hurts_only_its_caller() -> None:
    """The other readers of the barrier get their answers."""
    outbox, _ = new_outbox()
    bad = outbox.read(lambda _: 1 // 0, 5)
    good = outbox.read(lambda machine: machine.revision, 5)
    (seq,), *_ = outbox.take()
    outbox.complete(seq, ANSWER, LockMachine())
    assert failure(bad) is ZeroDivisionError
    assert good.result() == 0


async def test_closing_ends_everything_by_what_is_known_of_it() -> None:
    """Unsent commands and all reads are surely not applied; sent commands are unknown.

    Nothing is taken any more.
    """
    outbox, _ = new_outbox()
    sent = outbox.submit(EncodedCommand(b"sent"), 5)
    sent_read = outbox.read(lambda machine: machine.revision, 5)
    outbox.take()
    unsent = outbox.submit(EncodedCommand(b"unsent"), 5)
    outbox.close(ShuttingDown("stops"), OutcomeUnknown("stops"))
    assert failure(sent.future) is OutcomeUnknown
    assert failure(unsent.future) is ShuttingDown
    assert failure(sent_read) is ShuttingDown
    with pytest.raises(ShuttingDown):
        outbox.submit(EncodedCommand(b"late"), 5)


async def test_what_a_snapshot_contains_is_found_by_number() -> None:
    """Everything pending up to a number was applied; what is behind it was not."""
    outbox, _ = new_outbox()
    pending = submit(outbox, b"one", b"two", b"three")
    outbox.complete(1, ANSWER, LockMachine())
    assert outbox.applied_up_to(2) == [pending[1]]
    assert outbox.applied_up_to(0) == []


async def test_draining_waits_for_every_outcome() -> None:
    """It ends with the last outcome, whatever it is, or when its time is over."""
    outbox = Outbox("a.1", asyncio.get_running_loop())
    first, second = submit(outbox, b"one", b"two")
    await outbox.drain(0)
    drained = asyncio.ensure_future(outbox.drain(60))
    outbox.complete(first.seq, ANSWER, LockMachine())
    await asyncio.sleep(0)
    assert not drained.done()
    outbox.fail(second.seq, NoLeader("none"))
    await drained
    with pytest.raises(ClusterError):
        await second.future
    assert first.future.result() is ANSWER


async def test_what_was_given_up_without_a_leader_takes_no_memory() -> None:
    """A node that is cut off is asked again and again: it keeps what is pending, and little else."""
    outbox, loop = new_outbox()
    for _ in range(10_000):
        submit(outbox, b"asked in vain", timeout_s=0.1)[0].future.add_done_callback(failure)
        loop.run_ms(200)
        outbox.give_up_due()
    assert len(outbox) == 0
    assert len(outbox.unsent) <= 2048
    submit(outbox, b"asked at last")
    assert taken(outbox) == ([10_001], [b"asked at last"])


HEAVY = outbox_module.UNDER_WAY_LOAD_MAX // 2 + 1
"""A load of which there is room for one."""


def numbers(*pending: Pending) -> list[int]:
    """Return the numbers of commands, 0 of those that wait for their turn."""
    return [each.seq for each in pending]


async def test_what_has_a_load_waits_for_what_is_under_way() -> None:
    """The next gets its number when that has an outcome, or is given up; its load does not count any more."""
    outbox, loop = new_outbox()
    first, second, third, fourth = (
        outbox.submit(EncodedCommand(b"x", HEAVY), timeout_s) for timeout_s in (5, 9, 9, 9)
    )
    assert numbers(first, second, third, fourth) == [1, 0, 0, 0]
    assert len(outbox) == 4
    assert outbox.take()[0] == [1]
    loop.run_ms(5_000)
    outbox.give_up_due()
    assert numbers(second, third, fourth) == [2, 0, 0]
    outbox.complete(2, ANSWER, LockMachine())
    outbox.fail(3, NoLeader("no more"))
    assert numbers(third, fourth) == [3, 4]
    assert outbox.take()[0] == [4]
    outbox.complete(4, ANSWER, LockMachine())
    assert numbers(outbox.submit(EncodedCommand(b"5", HEAVY), 5)) == [5]


async def test_load_rests_if_others_came_meanwhile() -> None:
    """For twice as long as it was under way, and not for ever; who is alone need not wait."""
    for others, was_s, rest_s in ((0, 0.02, 0), (1, 0.02, 0.04), (1, 2.0, outbox_module.REST_S_MAX)):
        outbox, loop = new_outbox()
        told: list[int] = []
        outbox.on_rested = lambda outbox=outbox, told=told: told.append(len(outbox.take()[0]))  # type: ignore[misc]
        outbox.submit(EncodedCommand(b"light, before"), 9)
        heavy = [outbox.submit(EncodedCommand(b"x", HEAVY), 9) for _ in range(2)]
        submit(outbox, *[b"light, meanwhile"] * others)
        outbox.take()
        loop.run_ms(round(was_s * 1000))
        outbox.complete(2, ANSWER, LockMachine())
        assert bool(heavy[1].seq) is (rest_s == 0)
        loop.run_ms(round(rest_s * 1000) - 1)
        assert bool(heavy[1].seq) is (rest_s == 0)
        loop.run_ms(1)
        assert heavy[1].seq
        assert told == ([1] if rest_s else [])


async def test_there_may_be_as_much_load_as_one_entry_has_room_for() -> None:
    """And whatever comes alone, however much that is; what fits beside it need not wait."""
    outbox, _ = new_outbox()
    half = EncodedCommand(b"x", outbox_module.UNDER_WAY_LOAD_MAX // 2)
    assert numbers(*[outbox.submit(half, 5) for _ in range(3)]) == [1, 2, 0]
    outbox, _ = new_outbox()
    large = EncodedCommand(b"x", 10 * outbox_module.UNDER_WAY_LOAD_MAX)
    assert numbers(*[outbox.submit(large, 5) for _ in range(2)]) == [1, 0]


async def test_what_has_no_load_never_waits_for_others() -> None:
    """Nor do reads; only what comes in one lane behind something that waits, waits with it."""
    outbox, _ = new_outbox()
    heavy = [outbox.submit(EncodedCommand(b"x", HEAVY), 5, lane) for lane in ("", "a", "")]
    behind, other = (
        outbox.submit(EncodedCommand(b"x"), 5, "a"),
        outbox.submit(EncodedCommand(b"x"), 5, "b"),
    )
    nameless = outbox.submit(EncodedCommand(b"x"), 5)
    outbox.read(lambda machine: machine.revision, 5)
    assert numbers(*heavy, behind, other, nameless) == [1, 0, 0, 0, 2, 3]
    assert outbox.take()[0] == [1, 2, 3, 4]
    outbox.complete(1, ANSWER, LockMachine())
    assert numbers(*heavy, behind) == [1, 5, 0, 0]
    outbox.complete(5, ANSWER, LockMachine())
    assert numbers(*heavy, behind) == [1, 5, 6, 7]


async def test_what_has_little_load_is_before_what_has_much() -> None:
    """One that asks for little waits for what is under way, and not for all that is asked for."""
    outbox, _ = new_outbox()
    heavy = [outbox.submit(EncodedCommand(b"x", HEAVY), 5) for _ in range(9)]
    little = outbox.submit(EncodedCommand(b"x", HEAVY // 2), 5)
    assert numbers(*heavy[:2], little) == [1, 0, 2]
    little = outbox.submit(EncodedCommand(b"x", HEAVY * 3 // 5), 5)
    assert little.seq == 0
    outbox.complete(1, ANSWER, LockMachine())
    assert numbers(*heavy[:2], little) == [1, 0, 3]


async def test_what_has_much_load_is_not_passed_for_ever() -> None:
    """Also while there is always something under way, and room for more that has little load."""
    outbox, _ = new_outbox()
    under_way = [outbox.submit(EncodedCommand(b"x", HEAVY // 2), 5) for _ in range(2)]
    much = outbox.submit(EncodedCommand(b"x", 2 * HEAVY), 5)
    passed = 0
    while under_way[0].seq:
        passed += 1
        assert passed < 20
        first = under_way.pop(0)
        under_way.append(outbox.submit(EncodedCommand(b"x", HEAVY // 2), 5))
        outbox.complete(first.seq, ANSWER, LockMachine())
    assert passed > 1
    for pending in under_way:
        outbox.complete(pending.seq, ANSWER, LockMachine())
    assert much.seq


async def test_what_waits_for_its_turn_ends_as_never_sent() -> None:
    """At its deadline, and when the node stops: then nothing gets a number because something else ended."""
    outbox, loop = new_outbox()
    sent, given_up, left = (
        outbox.submit(EncodedCommand(b"x", HEAVY), timeout_s) for timeout_s in (99, 5, 99)
    )
    outbox.take()
    loop.run_ms(5_000)
    outbox.give_up_due()
    assert failure(given_up.future) is Overloaded
    outbox.close(ShuttingDown("stops"), OutcomeUnknown("stops"))
    assert [failure(each.future) for each in (sent, left)] == [OutcomeUnknown, ShuttingDown]
    assert numbers(given_up, left) == [0, 0]
    assert len(outbox) == 0
    assert not outbox.unsent


async def test_only_so_much_may_wait_for_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """More is refused at once; what need not wait is taken, and room comes back with the outcomes."""
    monkeypatch.setattr(outbox_module, "QUEUE_COUNT_MAX", 2)
    outbox, _ = new_outbox()
    for lane in ("", "a", ""):
        outbox.submit(EncodedCommand(b"x", HEAVY), 5, lane)
    for load, lane in ((HEAVY, ""), (0, "a")):
        with pytest.raises(Overloaded):
            outbox.submit(EncodedCommand(b"x", load), 5, lane)
    assert outbox.submit(EncodedCommand(b"x"), 5).seq == 2
    outbox.complete(1, ANSWER, LockMachine())
    outbox.submit(EncodedCommand(b"x", HEAVY), 5)


async def test_what_waits_leaves_room_for_what_need_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """However large it is; and one sharer has half of the room at most."""
    monkeypatch.setattr(outbox_module, "QUEUE_BYTES_MAX", 10)
    monkeypatch.setattr(outbox_module, "QUEUE_COUNT_MAX", 4)
    outbox, _ = new_outbox()
    for data in (b"x" * 100, b"x" * 9, b"x" * 9):
        outbox.submit(EncodedCommand(data, HEAVY), 5)
    with pytest.raises(Overloaded):
        outbox.submit(EncodedCommand(b"x", HEAVY), 5)
    assert outbox.submit(EncodedCommand(b"x" * 100), 5).seq == 2
    outbox.complete(1, ANSWER, LockMachine())  # the next of them has its number, and does not wait any more
    for _ in range(2):
        outbox.submit(EncodedCommand(b"", HEAVY), 5, "", "ann")
    with pytest.raises(Overloaded):
        outbox.submit(EncodedCommand(b"", HEAVY), 5, "", "ann")
    outbox.submit(EncodedCommand(b"", HEAVY), 5, "", "bob")


async def test_a_new_leader_gets_what_has_numbers_first() -> None:
    """What waits for its turn is not sent again: it was not sent before."""
    outbox, _ = new_outbox()
    for _ in range(3):
        outbox.submit(EncodedCommand(b"x", HEAVY), 5)
    outbox.take()
    assert outbox.rewind() == 1
    assert outbox.take()[0] == [1]


async def test_what_was_given_up_does_not_pile_up_in_the_queue() -> None:
    """While there is no leader clients ask again and again, and what they gave up is forgotten."""
    outbox, loop = new_outbox()
    first = outbox.submit(EncodedCommand(b"x", HEAVY), 9_000)
    last = outbox.submit(EncodedCommand(b"x", HEAVY), 9_000, "last")
    for _ in range(4_000):
        outbox.submit(EncodedCommand(b"x", HEAVY - 1), 0)
        loop.run_ms(1)
        outbox.give_up_due()
    assert len(outbox) == 2
    assert len(outbox._queue) <= 2048
    outbox.complete(first.seq, ANSWER, LockMachine())
    assert last.seq == 2
    assert len(outbox._queue) == 0
