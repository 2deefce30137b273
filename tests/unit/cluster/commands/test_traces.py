"""The spans of commands: from the outbox to the leader, to an outcome or to none."""

import asyncio
from collections.abc import Iterator

import msgspec
import pytest

from cluster import tracing
from cluster.commands.encoded_command import EncodedCommand
from cluster.commands.forwarded import Forwarded
from cluster.commands.outbox import Answer, Outbox
from cluster.commands.traces import Traces
from cluster.errors import NoLeader
from cluster.tracing import ERROR, Context, Span, Tracer
from lockstate.machine import LockMachine
from lockstate.words.outcomes import BatchOutcome
from lockstate.words.refusals import Reason, Refused
from lockstate.words.results import Done

PARENT = f"00-{'a1' * 16}-{'b2' * 8}-01"
COMMAND = EncodedCommand(b"x")
ORIGIN, OTHER = "n2.run", "n3.run"


class Recorded:
    """What has ended, and what records it."""

    def __init__(self, origin: str = ORIGIN) -> None:
        self.spans: list[Span] = []
        self.tracer = Tracer(self.spans.append)
        self.traces = Traces(self.tracer, origin)

    @property
    def told(self) -> list[tuple[str, object]]:
        """Name and error of all."""
        return [(span.name, span.attributes.get(ERROR)) for span in self.spans]


@pytest.fixture
def call() -> Iterator[Span]:
    """Run as a part of a recorded call."""
    span = Tracer(lambda _: None).of_call(PARENT, "a=1")
    token = tracing.current.set(span)
    assert span is not None
    yield span
    tracing.current.reset(token)


def forwarded(*seqs: int, traces: dict[int, bytes], origin: str = OTHER) -> Forwarded:
    """Return commands as another node sends them."""
    return Forwarded(3, origin, list(seqs), [COMMAND] * len(seqs), traces)


def applied(origin: str, *seqs: int) -> BatchOutcome:
    """Return what an entry did of one origin."""
    return BatchOutcome(origin, seqs, (Done(),) * len(seqs))


async def settle() -> None:
    """Let callbacks run."""
    await asyncio.sleep(0)
    await asyncio.sleep(0)


def test_a_command_is_recorded_from_asking_to_outcome(call: Span) -> None:
    """One that no recorded call asks for is not; a refusal is told with its reason, a failure by its code."""

    async def work() -> None:
        recorded, outbox = Recorded(), Outbox(ORIGIN, asyncio.get_running_loop())
        first, second, third = (outbox.submit(COMMAND, 5) for _ in range(3))
        for pending in (first, second, third):
            recorded.traces.watch(pending, "replicate X")
            recorded.traces.watch(pending, "a barrier that is shared")
        tracing.current.set(None)
        recorded.traces.watch(outbox.submit(COMMAND, 5), "nobody's")
        seqs, _ = outbox.take()
        contexts = recorded.traces.sent(seqs, "n1")
        assert (seqs, sorted(contexts)) == ([1, 2, 3, 4], [1, 2, 3])
        sent = Context.of_packed(contexts[1])
        assert (sent.trace_id, sent.state) == (call.context.trace_id, "a=1")
        recorded.traces.applied([applied(ORIGIN, 1, 2, 3, 4)], 0.5)
        outbox.complete(1, Answer(Done(), 7), LockMachine())
        outbox.complete(2, Answer(Refused(Reason.WRONG_KIND, "no"), 7), LockMachine())
        outbox.fail(3, NoLeader("gone"))
        with pytest.raises(NoLeader):
            await third.future
        await settle()
        assert recorded.told == [("replicate X", None), ("replicate X", None), ("replicate X", "no-leader")]
        done, refused, _ = recorded.spans
        assert done.context.span_id == sent.span_id
        assert done.parent_id == call.context.span_id
        assert done.attributes == {"holdfast.leader": "n1", "holdfast.revision": 7}
        assert refused.attributes["holdfast.refused"] == Reason.WRONG_KIND.value
        assert [name for name, _ in done.events] == ["sent", "committed"]
        assert not recorded.traces._own
        assert not recorded.traces._open

    asyncio.run(work())


def test_the_leader_records_its_part() -> None:
    """From the frame to the entry that is applied; numbers that the frame has not are ignored."""
    recorded = Recorded()
    parent = Context("a1" * 16, "b2" * 8, state="a=1")
    recorded.traces.forwarded(forwarded(1, 2, traces={1: parent.packed(), 9: parent.packed()}), 0)
    recorded.traces.proposed([(OTHER, [1, 2], [b"", b""]), (ORIGIN, [1], [b""])])
    recorded.traces.applied([applied(ORIGIN, 1)], 0.0)
    assert recorded.spans == []
    recorded.traces.applied([applied(OTHER, 1, 2)], 0.0)
    (lead,) = recorded.spans
    assert (lead.name, lead.parent_id, lead.context.trace_id) == ("lead", "b2" * 8, "a1" * 16)
    assert lead.context.state == "a=1"
    assert lead.attributes == {"holdfast.from": "n3"}
    assert [name for name, _ in lead.events] == ["proposed", "committed"]
    recorded.traces.applied([applied(OTHER, 1, 2)], 0.0)
    assert len(recorded.spans) == 1


def test_what_a_leader_lets_go_does_not_stay(call: Span) -> None:
    """A connection that ends, leadership that is lost, commands that come again: each span has its end."""
    recorded, packed = Recorded(), call.context.packed()
    for seq in (1, 1, 2):
        recorded.traces.forwarded(forwarded(seq, traces={seq: packed}), 0)
    recorded.traces.forwarded(forwarded(1, traces={1: packed}, origin="n1.run"), 0)
    assert recorded.told == [("lead", "sent-again")]
    recorded.traces.let_go("connection-lost", "n1")
    assert recorded.told[1:] == [("lead", "connection-lost")]
    recorded.traces.let_go("leadership-lost")
    assert recorded.told[2:] == [("lead", "leadership-lost")] * 2
    assert not recorded.traces._open


@pytest.mark.parametrize("packed", [b"", b"x" * 23, b"x" * (24 + 513)])
def test_a_frame_with_a_malformed_trace_is_refused(packed: bytes) -> None:
    """No correct node sends one. One without any has one byte for them."""
    frame = msgspec.msgpack.encode(forwarded(1, traces={1: packed}))
    with pytest.raises(msgspec.ValidationError):
        msgspec.msgpack.decode(frame, type=Forwarded)
    plain = forwarded(1, traces={})
    encoded = msgspec.msgpack.encode(plain)
    assert encoded[-1:] == b"\x80"
    assert msgspec.msgpack.decode(encoded, type=Forwarded) == plain
