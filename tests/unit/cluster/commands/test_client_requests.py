"""What the faces ask for, and what becomes of it when a client goes away at any moment of its request."""

import asyncio
from collections import Counter
from collections.abc import Coroutine
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from cluster.commands import client_requests, kept_waits
from cluster.commands.client_requests import ClientRequests
from cluster.commands.log_space import check_log_space
from cluster.commands.outbox import Answer, Outbox
from cluster.errors import NoLeader, OutcomeUnknown, Overloaded, ShuttingDown, WaitCutOff
from lockstate.machine import LockMachine
from lockstate.words.commands.cells import PutCell
from lockstate.words.commands.entries import Barrier, Batch, Cancel, Command, Entry, OnBehalf
from lockstate.words.commands.holds import Acquire, Convert, MayWait, Release, ReleaseByValue
from lockstate.words.commands.primitives import TakeRate
from lockstate.words.commands.sessions import CloseSession, KeepAlive, OpenSession
from lockstate.words.commands.streams import Numbered
from lockstate.words.ids import AttemptId, HoldId, OwnerName, SessionId
from lockstate.words.kinds import HoldKind, IfHeld
from lockstate.words.modes import Mode
from lockstate.words.refusals import Reason, Refused
from lockstate.words.results import Cancelled, Done, Granted, Queued, RateTaken, Result

LONG_S = 3_600.0
"""A timeout, in seconds, that no test waits for."""
SHORT_S = 0.01
"""A timeout, in seconds, whose end a test is about."""
RELEASE = Release(HoldId("h1"))
MUCH = Release(HoldId("/" * 10_000))
"""What makes nodes do much, as far as can be told from its size."""
QUEUED = Queued(HoldId("h1"), 0)
UNDO = Cancel(HoldId("h1"), AttemptId("of-h1"))

_decoder: msgspec.msgpack.Decoder[Command] = msgspec.msgpack.Decoder(Command)


class _Faces:
    """A node's client side; the test is the cluster, and answers commands by their numbers, from 1 on."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.outbox = Outbox("a.1", loop)
        self.failures: Counter[str] = Counter()
        self.flushes = 0
        self.is_open = True
        self.has_room = True
        self.owners: dict[SessionId, str] = {}
        self.refusal: Refused | None = None
        self.refused: list[Result] = []
        self.machine = cast(
            "LockMachine",
            SimpleNamespace(
                owner_of=lambda session_id: self.owners.get(session_id, ""),
                effort_of=lambda _: 0,
                no_room_for=lambda *_: self.refusal,
                revision=7,
            ),
        )
        self.requests = ClientRequests(
            self.outbox,
            self.failures,
            self._flush,
            lambda: self.is_open,
            self._check_room,
            answered=self.refused.append,
            machine=lambda: self.machine,
        )
        self.wait: asyncio.Future[Answer] = loop.create_future()

    def _flush(self) -> None:
        self.flushes += 1

    def _check_room(self, command: type[Command]) -> None:
        check_log_space(command, for_anything=self.has_room, for_what_frees=True)

    def answer(self, seq: int, result: Result, machine: LockMachine | None = None) -> None:
        """Let a command have its outcome; of a queued one `wait` is the end, a read looks at `machine`."""
        wait = self.wait if isinstance(result, Queued) else None
        self.outbox.complete(seq, Answer(result, seq, wait), machine or LockMachine())

    async def begin(self, command: MayWait, timeout_s: float = LONG_S) -> "asyncio.Task[Answer]":
        """Return a request whose command is in the outbox."""
        task = asyncio.create_task(self.requests.acquire(command, timeout_s))
        await asyncio.sleep(0)
        assert self.sent() == [command]
        return task

    def sent(self) -> list[Command]:
        """Return what was submitted since the last look."""
        return [_decoder.decode(command.data) for command in self.outbox.take()[1]]


def acquire(*, request_id: str = "", wait_ms: int = 1_000_000) -> Acquire:
    """Return a request that may wait."""
    return Acquire(
        "a",
        Mode.EXCLUSIVE,
        HoldId("h1"),
        AttemptId("of-h1"),
        ttl_ms=60_000,
        wait_ms=wait_ms,
        request_id=request_id,
    )


def granted(hold_id: str = "h1") -> Granted:
    """Return the grant of a hold."""
    return Granted(HoldId(hold_id), 1, "a", Mode.EXCLUSIVE, 60_000)


CONVERT = Convert(HoldId("h0"), Mode.EXCLUSIVE, HoldId("h1"), AttemptId("of-h1"), wait_ms=1_000_000)
"""A conversion of h0 whose wait answers to h1."""


async def settle() -> None:
    """Let everything happen that is due."""
    for _ in range(5):
        await asyncio.sleep(0)


async def leave(task: "asyncio.Task[Any]") -> None:
    """Let the client go away."""
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await settle()


# -- commands and reads -------------------------------------------------------------------------------------


async def test_what_a_principal_asks_is_asked_on_its_behalf() -> None:
    """Whichever way it is asked; what takes it back is the node's own."""
    faces = _Faces()
    faces.requests.begin(RELEASE, LONG_S, "ann")
    tasks = [
        asyncio.create_task(faces.requests.submit(RELEASE, LONG_S, "bob")),
        asyncio.create_task(faces.requests.acquire(acquire(), LONG_S, "eve")),
    ]
    await asyncio.sleep(0)
    assert faces.sent() == [OnBehalf("ann", RELEASE), OnBehalf("bob", RELEASE), OnBehalf("eve", acquire())]
    faces.answer(3, QUEUED)
    await asyncio.sleep(0)
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    await asyncio.sleep(0)
    assert faces.sent() == [UNDO]


async def test_a_command_is_submitted_and_answered() -> None:
    """It is flushed once, and the outcome goes to who asked."""
    faces = _Faces()
    task = asyncio.create_task(faces.requests.submit(RELEASE, LONG_S))
    await asyncio.sleep(0)
    assert faces.sent() == [RELEASE]
    assert faces.flushes == 1
    faces.answer(1, Done())
    assert await task == Answer(Done(), 1)


FULL = Refused(Reason.QUOTA_EXCEEDED, "full")


async def test_what_there_is_no_room_for_is_not_in_the_log() -> None:
    """A read looks once more; all that are refused share it, and count as answered."""
    faces = _Faces()
    faces.refusal = FULL
    tasks = [
        asyncio.create_task(faces.requests.submit(PutCell(b"c", b"v"), LONG_S)),
        asyncio.create_task(faces.requests.acquire(acquire(), LONG_S)),
    ]
    await asyncio.sleep(0)
    assert faces.sent() == [Barrier()]
    faces.answer(1, Done(), faces.machine)
    assert await asyncio.gather(*tasks) == [Answer(FULL, 7)] * 2
    assert faces.refused == [FULL] * 2


async def test_what_there_is_room_for_by_now_is_put_into_the_log() -> None:
    """What this node had applied was out of date: nobody is refused for that."""
    faces = _Faces()
    faces.refusal = FULL
    task = asyncio.create_task(faces.requests.submit(RELEASE, LONG_S))
    await asyncio.sleep(0)
    assert faces.sent() == [Barrier()]
    faces.refusal = None
    faces.answer(1, Done(), faces.machine)
    await settle()
    assert faces.sent() == [RELEASE]
    faces.answer(2, Done())
    assert await task == Answer(Done(), 2)
    assert not faces.refused


@pytest.mark.parametrize("kind", ["submit", "acquire"])
async def test_without_a_leader_nobody_is_told_that_there_is_no_room(kind: str) -> None:
    """What this node knows may be out of date. The request fails as any other, and is surely not applied."""
    faces = _Faces()
    faces.refusal = FULL
    made = {"submit": (faces.requests.submit, RELEASE), "acquire": (faces.requests.acquire, acquire())}
    ask, command = made[kind]
    task = asyncio.create_task(ask(command, SHORT_S))  # type: ignore[operator]
    while not task.done():
        faces.outbox.give_up_due()
        await asyncio.sleep(SHORT_S / 10)
    with pytest.raises(NoLeader):
        task.result()
    assert faces.sent() == []
    assert not faces.refused


async def test_a_look_for_room_takes_from_the_time_of_the_command() -> None:
    """The client was told when it has its answer: not twice as late."""
    faces = _Faces()
    faces.refusal = FULL
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    task = asyncio.create_task(faces.requests.submit(RELEASE, LONG_S))
    passed = loop.create_future()
    loop.call_later(SHORT_S, passed.set_result, None)
    await passed
    assert faces.sent() == [Barrier()]
    faces.refusal = None
    faces.answer(1, Done(), faces.machine)
    await settle()
    assert faces.sent() == [RELEASE]
    assert faces.outbox._deadlines[-1][0] <= began_s + LONG_S + SHORT_S / 2
    task.cancel()


async def test_a_read_is_answered_from_the_state_at_its_barrier() -> None:
    """It is flushed like a command."""
    faces = _Faces()
    task = asyncio.create_task(faces.requests.read(lambda machine: machine.revision, LONG_S))
    await asyncio.sleep(0)
    assert faces.flushes == 1
    faces.answer(1, Done())
    assert await task == 0


async def test_a_closed_node_takes_nothing() -> None:
    """Neither commands nor reads: it says so, counts it, and has nothing in its outbox."""
    faces = _Faces()
    faces.is_open = False
    asked: list[Coroutine[Any, Any, object]] = [
        faces.requests.submit(RELEASE, LONG_S),
        faces.requests.acquire(acquire(), LONG_S),
        faces.requests.read(lambda machine: machine.revision, LONG_S),
    ]
    for question in asked:
        with pytest.raises(ShuttingDown):
            await question
    assert faces.failures == {"shutting-down": 3}
    assert (len(faces.outbox), faces.flushes) == (0, 0)


async def test_what_the_outbox_refuses_is_counted() -> None:
    """The reason goes to who asked."""
    faces = _Faces()
    faces.outbox.close(ShuttingDown("stops"), OutcomeUnknown("stops"))
    with pytest.raises(ShuttingDown, match="stops"):
        await faces.requests.submit(RELEASE, LONG_S)
    assert faces.failures == {"shutting-down": 1}


# -- waiting ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("result", [granted(), Refused(Reason.LOCK_HELD, "held")])
async def test_what_need_not_wait_is_answered_at_once(result: Result) -> None:
    """A grant or a refusal is the end."""
    faces = _Faces()
    task = await faces.begin(acquire())
    faces.answer(1, result)
    assert (await task).result == result


async def test_the_end_of_a_wait_is_the_answer() -> None:
    """Who is queued hears nothing before that."""
    faces = _Faces()
    task = await faces.begin(acquire())
    faces.answer(1, QUEUED)
    await settle()
    assert not task.done()
    faces.wait.set_result(Answer(granted(), 9))
    assert await task == Answer(granted(), 9)
    assert faces.sent() == []


@pytest.mark.parametrize(("request_id", "undone"), [("", [UNDO]), ("r", [])])
async def test_a_wait_without_an_end_is_unknown(request_id: str, undone: list[Command]) -> None:
    """If nobody can ask for it again it is undone; with a request id the client may repeat it."""
    faces = _Faces()
    task = await faces.begin(acquire(request_id=request_id, wait_ms=1), SHORT_S)
    faces.answer(1, QUEUED)
    with pytest.raises(OutcomeUnknown):
        await task
    await settle()
    assert faces.sent() == undone


# -- clients that go away -----------------------------------------------------------------------------------


async def test_who_leaves_the_queue_is_taken_out_of_it() -> None:
    """The cancel goes out in the background; the wait is nobody's any more."""
    faces = _Faces()
    task = await faces.begin(acquire())
    faces.answer(1, QUEUED)
    await settle()
    await leave(task)
    assert faces.sent() == [UNDO]
    assert faces.flushes == 2
    assert faces.wait.cancelled()


@pytest.mark.parametrize("result", [QUEUED, granted()])
async def test_who_leaves_before_the_answer_is_undone_when_it_comes(result: Result) -> None:
    """Until then nobody knows whether there is anything to undo."""
    faces = _Faces()
    task = await faces.begin(acquire())
    await leave(task)
    assert faces.sent() == []
    faces.answer(1, result)
    await settle()
    assert faces.sent() == [UNDO]


@pytest.mark.parametrize("result", [Refused(Reason.LOCK_HELD, "held"), granted("h0")])
async def test_what_this_request_did_not_get_is_not_undone(result: Result) -> None:
    """A refusal left nothing; a hold that was there before belongs to who got it."""
    faces = _Faces()
    await leave(await faces.begin(acquire()))
    faces.answer(1, result)
    await settle()
    assert faces.sent() == []


@pytest.mark.parametrize(("if_held", "undone"), [(IfHeld.COUNT, [UNDO]), (IfHeld.RENEW, [])])
async def test_of_what_the_session_had_only_a_count_is_undone(if_held: IfHeld, undone: list[Command]) -> None:
    """A renewal changed nothing that could be taken back, and ends no hold."""
    faces = _Faces()
    command = msgspec.structs.replace(acquire(), if_held=if_held)
    await leave(await faces.begin(msgspec.structs.replace(command, hold_id=HoldId("h2"))))
    faces.answer(1, msgspec.structs.replace(granted(), depth=2))
    await settle()
    assert faces.sent() == undone


@pytest.mark.parametrize("is_known", [True, False])
async def test_a_request_with_an_id_keeps_its_place(*, is_known: bool) -> None:
    """Its connection ends, before or after it was queued: asked again it goes on behind a barrier."""
    faces, command = _Faces(), acquire(request_id="r")
    task = await faces.begin(command)
    if is_known:
        faces.answer(1, QUEUED)
        await settle()
    await leave(task)
    if not is_known:
        faces.answer(1, QUEUED)
        await settle()
    again = msgspec.structs.replace(command, attempt_id=AttemptId("another"))
    asked_again = asyncio.create_task(faces.requests.acquire(again, LONG_S))
    await settle()
    assert faces.sent() == [Barrier()]
    faces.answer(2, Done())
    await settle()
    assert faces.sent() == []
    faces.wait.set_result(Answer(granted(), 2))
    assert await asked_again == Answer(granted(), 2, is_repeated=True)


async def test_a_grant_before_the_repetition_is_answered_with_what_is_left() -> None:
    """Its entry is older than the repetition, from which the client counts: the state machine is asked."""
    faces, command = _Faces(), acquire(request_id="r")
    task = await faces.begin(command)
    faces.answer(1, QUEUED)
    await settle()
    await leave(task)
    again = msgspec.structs.replace(command, attempt_id=AttemptId("another"))
    asked_again = asyncio.create_task(faces.requests.acquire(again, LONG_S))
    await settle()
    assert faces.sent() == [Barrier()]
    faces.wait.set_result(Answer(granted(), 2))
    faces.answer(2, Done())
    await settle()
    assert faces.sent() == [again]
    left = msgspec.structs.replace(granted(), expires_in_ms=1)
    faces.answer(3, left)
    assert (await asked_again).result == left


@pytest.mark.parametrize("is_cut_off", [True, False])
async def test_a_repetition_that_hears_nothing_keeps_the_place(*, is_cut_off: bool) -> None:
    """Its client goes, or nobody leads, before the barrier: the next repetition goes on with the wait."""
    faces, command = _Faces(), acquire(request_id="r")
    task = await faces.begin(command)
    faces.answer(1, QUEUED)
    await settle()
    await leave(task)
    asked_again = asyncio.create_task(faces.requests.acquire(command, LONG_S))
    await settle()
    assert faces.sent() == [Barrier()]
    if is_cut_off:
        await leave(asked_again)
    else:
        faces.outbox.fail(2, NoLeader("none"))
        with pytest.raises(NoLeader):
            await asked_again
    await settle()
    assert (faces.sent(), faces.wait.done(), len(faces.requests._kept)) == ([], False, 1)
    asked_again = asyncio.create_task(faces.requests.acquire(command, LONG_S))
    await settle()
    assert faces.sent() == [Barrier()]
    faces.answer(3, Done())
    await settle()
    faces.wait.set_result(Answer(granted(), 4))
    assert await asked_again == Answer(granted(), 4, is_repeated=True)


async def test_the_grace_does_not_end_a_wait_while_its_repetition_looks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without a leader the barrier takes longer than the grace has left."""
    monkeypatch.setattr(kept_waits, "KEEP_S", SHORT_S)
    faces, command = _Faces(), acquire(request_id="r")
    task = await faces.begin(command)
    faces.answer(1, QUEUED)
    await settle()
    await leave(task)
    asked_again = asyncio.create_task(faces.requests.acquire(command, LONG_S))
    await asyncio.wait([asked_again], timeout=5 * SHORT_S)
    assert faces.sent() == [Barrier()]
    faces.answer(2, Done())
    await settle()
    faces.wait.set_result(Answer(granted(), 3))
    assert (await asked_again).result == granted()


async def test_who_asks_again_and_leaves_is_undone_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    """The grant of an earlier attempt is that of this one, too, and ends with the last of them."""
    monkeypatch.setattr(kept_waits, "KEEP_S", SHORT_S)
    faces = _Faces()
    await leave(await faces.begin(acquire(request_id="r")))
    faces.outbox.complete(1, Answer(granted("h0"), 1, is_repeated=True), LockMachine())
    await settle()
    async with asyncio.timeout(10):
        while len(faces.requests._kept):  # noqa: ASYNC110 - a timer has no event to await
            await asyncio.sleep(0.001)
    await settle()
    assert faces.sent() == [Cancel(HoldId("h0"), AttemptId("of-h1"))]


@pytest.mark.parametrize("result", [QUEUED, granted()])
async def test_who_does_not_ask_again_loses_place_and_grant(
    result: Result, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the grace this attempt is taken back: nobody would hear of the grant."""
    monkeypatch.setattr(kept_waits, "KEEP_S", SHORT_S)
    faces = _Faces()
    await leave(await faces.begin(acquire(request_id="r")))
    faces.answer(1, result)
    async with asyncio.timeout(10):
        while not faces.outbox.unsent:  # noqa: ASYNC110 - a timer has no event to await
            await asyncio.sleep(0.001)
    assert faces.sent() == [UNDO]


@pytest.mark.parametrize(("request_id", "grace_s"), [("", LONG_S), ("r", SHORT_S)])
async def test_a_place_of_a_rate_limit_is_left_as_a_wait_is(
    request_id: str, grace_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At once if nobody can ask for it again, else after the grace; of what was refused there is nothing."""
    monkeypatch.setattr(kept_waits, "KEEP_S", grace_s)
    faces, attempt_id = _Faces(), AttemptId("t1")
    take = TakeRate("mail", 1, 1000, wait_ms=5000, request_id=request_id, attempt_id=attempt_id)
    for seq, allowed in ((1, False), (2, True)):
        begun = faces.requests.begin(take, LONG_S)
        faces.requests.abandon(take, begun)
        assert faces.sent() == [take]
        faces.answer(seq, RateTaken(allowed, 1, 0, 0, 2000, 1000 * allowed))
        await settle()
    async with asyncio.timeout(10):
        while not faces.outbox.unsent:  # noqa: ASYNC110 - a timer has no event to await
            await asyncio.sleep(0.001)
    assert faces.sent() == [Cancel(HoldId("t1"), attempt_id)]


async def test_what_need_not_wait_is_undone_at_once() -> None:
    """There is no place to keep, and whoever asks again is as well served by a new grant."""
    faces = _Faces()
    await leave(await faces.begin(acquire(request_id="r", wait_ms=0)))
    faces.answer(1, granted())
    await settle()
    assert faces.sent() == [UNDO]


async def test_a_slice_ends_where_the_request_stands() -> None:
    """After `poll_s` the answer is that it is queued; the next slice goes on."""
    faces, command = _Faces(), acquire(request_id="r")
    slices = [asyncio.create_task(faces.requests.acquire(command, LONG_S, "", SHORT_S))]
    await settle()
    assert faces.sent() == [command]
    faces.answer(1, QUEUED)
    assert (await slices[0]).result == QUEUED
    for seq, poll_s in ((2, 0.0), (3, LONG_S)):
        slices.append(asyncio.create_task(faces.requests.acquire(command, LONG_S, "", poll_s)))
        await settle()
        assert faces.sent() == [Barrier()]
        faces.answer(seq, Done())
        await settle()
    assert (await slices[1]).result == QUEUED
    faces.wait.set_result(Answer(granted(), 2))
    assert (await slices[2]).result == granted()
    assert faces.sent() == []


async def test_a_withdrawn_request_is_taken_back_with_all_its_attempts() -> None:
    """Those that other nodes keep, too; of a request that has nothing there is nothing to take back."""
    faces, machine = _Faces(), LockMachine()
    holder = acquire()
    first = msgspec.structs.replace(
        holder, hold_id=HoldId("h2"), attempt_id=AttemptId("at-a"), request_id="r", owner=OwnerName("o")
    )
    second = msgspec.structs.replace(first, hold_id=HoldId("h3"), attempt_id=AttemptId("at-b"))
    machine.apply(Entry(1, (Batch("a.1", (1, 2), (holder, first)), Batch("b.1", (1,), (second,)))))
    found = []
    for scope in ("o", "other"):
        task = asyncio.create_task(faces.requests.withdraw(scope, "r", LONG_S))
        await settle()
        faces.sent()
        seq = faces.outbox._next_seq
        faces.outbox.complete(seq - 1, Answer(Done(), 1), machine)
        await settle()
        for number, command in enumerate(faces.sent(), seq):
            found.append(command)
            faces.answer(number, Cancelled(undone=True))
        assert await task is (scope == "o")
    assert found == [Cancel(HoldId("h2"), AttemptId("at-a")), Cancel(HoldId("h2"), AttemptId("at-b"))]


async def test_a_command_without_an_outcome_is_not_undone() -> None:
    """If it was not applied there is nothing; if it was, ticket or hold end by themselves."""
    faces = _Faces()
    await leave(await faces.begin(acquire()))
    faces.outbox.fail(1, NoLeader("none"))
    await settle()
    assert faces.sent() == []


async def test_of_a_conversion_only_the_wait_is_undone() -> None:
    """One that came through stays, as the hold does."""
    waiting, converted = _Faces(), _Faces()
    for faces, result in ((waiting, QUEUED), (converted, granted("h0"))):
        await leave(await faces.begin(CONVERT))
        faces.answer(1, result)
        await settle()
    assert waiting.sent() == [UNDO]
    assert converted.sent() == []


# -- nodes that stop ----------------------------------------------------------------------------------------


async def test_who_leaves_a_stopping_node_is_not_undone() -> None:
    """Its client may ask on another node: the connection ended because this one stops."""
    faces = _Faces()
    task = await faces.begin(acquire())
    faces.answer(1, QUEUED)
    await settle()
    faces.is_open = False
    await leave(task)
    assert faces.sent() == []


@pytest.mark.parametrize(("request_id", "undone"), [("", [UNDO]), ("r", [])])
async def test_a_stopping_node_takes_back_what_nobody_can_ask_for(
    request_id: str, undone: list[Command]
) -> None:
    """The answer waits until the ticket is gone; one with a request id keeps its place in the queue."""
    faces = _Faces()
    task = await faces.begin(acquire(request_id=request_id))
    faces.answer(1, QUEUED)
    await settle()
    faces.is_open = False
    faces.wait.set_exception(OutcomeUnknown("this node stops"))
    await settle()
    assert faces.sent() == undone
    assert task.done() != bool(undone)
    faces.answer(2, Done())
    with pytest.raises(OutcomeUnknown, match="this node stops"):
        await task


async def test_a_lost_wait_of_an_open_node_is_not_undone() -> None:
    """What a snapshot has hidden may have been granted: the client repeats it, or it ends by itself."""
    faces = _Faces()
    task = await faces.begin(acquire())
    faces.answer(1, QUEUED)
    await settle()
    faces.wait.set_exception(OutcomeUnknown("this node fell behind"))
    with pytest.raises(OutcomeUnknown, match="fell behind"):
        await task
    assert faces.sent() == []
    assert faces.failures == {"outcome-unknown": 1}


@pytest.mark.parametrize(("request_id", "undone"), [("", [UNDO]), ("r", [])])
async def test_a_wait_that_was_cut_off_is_undone_if_nobody_can_ask_again(
    request_id: str, undone: list[Command]
) -> None:
    """The client is told at once; the ticket is taken back behind its back, or keeps its place."""
    faces = _Faces()
    task = await faces.begin(acquire(request_id=request_id))
    faces.answer(1, QUEUED)
    await settle()
    faces.wait.set_exception(WaitCutOff("no leader"))
    with pytest.raises(WaitCutOff):
        await task
    await settle()
    assert faces.sent() == undone
    assert faces.failures == {"outcome-unknown": 1}


async def test_a_cancel_that_nobody_takes_is_tried_until_somebody_does(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cluster may be without a leader for minutes, and a session may live for days. People read it once."""
    monkeypatch.setattr(client_requests, "RETRY_S", 0.0)
    faces = _Faces()
    task = await faces.begin(acquire())
    faces.answer(1, QUEUED)
    await settle()
    faces.wait.set_exception(WaitCutOff("no leader"))
    with pytest.raises(WaitCutOff):
        await task
    for seq, error in ((2, NoLeader("none")), (3, OutcomeUnknown("late")), (4, NoLeader("none"))):
        await settle()
        assert faces.sent() == [UNDO]
        faces.outbox.fail(seq, error)
    await settle()
    assert faces.sent() == [UNDO]
    faces.answer(5, Done())
    await settle()
    assert faces.sent() == []
    assert not faces.requests._cancels
    assert caplog.text.count("event=cancel-failed code=no-leader name='a'") == 1
    assert caplog.text.count("event=cancel-failed") == 1


async def test_a_node_that_stops_tries_no_cancel_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its waits end with it: the leader misses this run of the node."""
    monkeypatch.setattr(client_requests, "RETRY_S", 0.0)
    faces = _Faces()
    task = await faces.begin(acquire())
    faces.answer(1, QUEUED)
    await settle()
    await leave(task)
    assert faces.sent() == [UNDO]
    faces.is_open = False
    faces.outbox.fail(2, ShuttingDown("stops"))
    await settle()
    assert faces.sent() == []
    assert not faces.requests._cancels


async def test_what_the_leader_has_no_room_for_is_refused_and_counted() -> None:
    """Nothing is submitted; a release goes through."""
    faces = _Faces()
    faces.has_room = False
    with pytest.raises(Overloaded):
        await faces.requests.acquire(acquire(), LONG_S)
    assert faces.failures == {"overloaded": 1}
    assert faces.sent() == []
    task = asyncio.create_task(faces.requests.submit(RELEASE, LONG_S))
    await asyncio.sleep(0)
    assert faces.sent() == [RELEASE]
    faces.answer(1, Done())
    assert (await task).result == Done()


# -- requests without a task --------------------------------------------------------------------------------


async def test_what_is_begun_has_its_outcome_in_a_future() -> None:
    """It is submitted and flushed at once; nothing has to run in between."""
    faces = _Faces()
    begun = faces.requests.begin(RELEASE, LONG_S)
    assert faces.sent() == [RELEASE]
    assert faces.flushes == 1
    faces.answer(1, Done())
    assert begun.result() == Answer(Done(), 1)
    faces.is_open = False
    with pytest.raises(ShuttingDown):
        faces.requests.begin(RELEASE, LONG_S)
    assert faces.failures[ShuttingDown.code] == 1


async def test_what_was_begun_for_a_client_that_left_is_undone() -> None:
    """A grant that it never heard of is given back, whether it comes later or has come already."""
    for is_answered in (False, True):
        faces = _Faces()
        begun = faces.requests.begin(acquire(wait_ms=0), LONG_S)
        faces.sent()
        if is_answered:
            faces.answer(1, granted())
        faces.requests.abandon(acquire(wait_ms=0), begun)
        if not is_answered:
            faces.answer(1, granted())
        await settle()
        assert faces.sent() == [UNDO]
        faces.answer(2, Done())
        await settle()


async def test_of_a_release_whose_client_left_nothing_is_undone() -> None:
    """Nor of an acquire that was refused, or had no outcome."""
    faces = _Faces()
    begun = faces.requests.begin(RELEASE, LONG_S)
    faces.requests.abandon(RELEASE, begun)
    faces.answer(1, Done())
    for outcome in (Refused(Reason.LOCK_HELD, "held"), None):
        begun = faces.requests.begin(acquire(wait_ms=0), LONG_S)
        faces.requests.abandon(acquire(wait_ms=0), begun)
        if outcome is not None:
            faces.answer(2, outcome)
        else:
            faces.outbox.fail(3, NoLeader("nobody leads"))
            assert isinstance(begun.exception(), NoLeader)
    faces.sent()
    await settle()
    assert faces.sent() == []


async def test_what_a_stream_numbers_keeps_its_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind what waits for its turn of its session, also the end of that; keepalives go at once."""
    monkeypatch.setattr("cluster.commands.outbox.REST_S_MAX", 0)
    faces = _Faces()
    first, second = [Numbered(1, SessionId("s1"), 1, number, (), (MUCH,)) for number in (1, 2)]
    third = Numbered(0, SessionId("s1"), 1, 3, (), ())
    ends = CloseSession(SessionId("s1"))
    kept, other = KeepAlive(SessionId("s1")), Numbered(0, SessionId("s2"), 1, 1, (), ())
    for command in (first, second, third, ends, kept, other):
        faces.requests.begin(command, LONG_S)
    assert faces.sent() == [first, kept, other]
    faces.answer(1, Done())
    assert faces.sent() == [second, third, ends]


async def test_a_lane_keeps_the_order_of_what_is_begun_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where a command makes nodes do so much that it has to wait for its turn; others go at once."""
    monkeypatch.setattr("cluster.commands.outbox.REST_S_MAX", 0)
    faces = _Faces()
    first, second = [ReleaseByValue("n", f"{number}" * 90_000, HoldKind.LOCK) for number in (1, 2)]
    third, other = [ReleaseByValue("n", f"{number}", HoldKind.LOCK) for number in (3, 4)]
    for command in (first, second, third):
        faces.requests.begin(command, LONG_S, lane="redis-1")
    faces.requests.begin(other, LONG_S, lane="redis-2")
    assert faces.sent() == [first, other]
    faces.answer(1, Done())
    assert faces.sent() == [second, third]


async def test_a_principal_has_one_share_of_what_makes_nodes_do_much() -> None:
    """What one asks for comes before the last of what another asks for."""
    faces = _Faces()
    asked = [OpenSession(SessionId(f"s{number}"), 60_000, {"much": MUCH.hold_id}) for number in range(5)]
    for command, principal in zip(asked, ["", "ann", "ann", "ann", "bob"], strict=True):
        faces.requests.begin(command, LONG_S, principal)
    sent: list[Command] = []
    for number in range(1, 6):
        sent += faces.sent()
        faces.answer(number, Done())
    assert [_inner(command) for command in sent] == [asked[place] for place in (0, 1, 4, 2, 3)]


async def test_a_frame_is_of_whom_its_session_is() -> None:
    """All streams of a principal have one share, though their frames do not say who asks."""
    faces = _Faces()
    faces.owners = {SessionId("s1"): "ann", SessionId("s2"): "ann", SessionId("s3"): "bob"}
    under_way: Command = OpenSession(SessionId("s0"), 60_000, {"much": MUCH.hold_id})
    frames: list[Command] = [Numbered(1, SessionId(f"s{number}"), 1, 1, (), (MUCH,)) for number in (1, 2, 3)]
    for command in [under_way, *frames]:
        faces.requests.begin(command, LONG_S)
    sent: list[Command] = []
    for number in range(1, 5):
        sent += faces.sent()
        faces.answer(number, Done())
    assert sent == [under_way, frames[0], frames[2], frames[1]]


def _inner(command: Command) -> Command:
    """Return a command without the name of who asks."""
    return command.command if isinstance(command, OnBehalf) else command
