"""Defects in what streams promise: each number once, in one connection, and its outcome until it is seen."""

from typing import Any, Final

import msgspec

from cluster.commands.outbox import Answer, Outbox
from cluster.commands.waiters import Waiters
from lockstate.rules.frames import Frames
from lockstate.tables.records import Kept, Stream
from lockstate.tables.streams import Streams
from lockstate.words.commands.streams import EndWait, Numbered
from lockstate.words.ids import HoldId, SessionId
from lockstate.words.results import Queued, Result
from tests.simulation.mutations.mutation import Mutation, Surroundings, replaced

_apply = Frames.apply
_apply_each = Frames._apply_each
_complete = Outbox.complete


def _apply_of_any_connection(frames: Frames, frame: Numbered) -> Result:
    """Apply what still comes of a connection that was replaced."""
    stream = frames._state.streams.get(frame.session_id)
    epoch = stream.epoch if stream is not None else frame.epoch
    return _apply(frames, msgspec.structs.replace(frame, epoch=epoch))


def _apply_last_again(frames: Frames, stream: Stream, frame: Numbered, *, is_owned: bool) -> Result:
    """Apply the last number once more when it comes again."""
    if frame.commands and frame.first == stream.last:
        stream.last -= 1
        stream.kept.pop(frame.first, None)
    return _apply_each(frames, stream, frame, is_owned=is_owned)


def _none_kept(_streams: Streams) -> list[tuple[SessionId, int, Kept]]:
    """Leave outcomes out of snapshots."""
    return []


def _complete_crossed(outbox: Outbox, seq: int, answer: Answer, *args: Any) -> None:
    """Tell the ends of a frame's waits to each other's numbers."""
    if answer.waits is not None and len(answer.waits) > 1:
        waits = dict(zip(answer.waits, reversed(list(answer.waits.values())), strict=True))
        answer = msgspec.structs.replace(answer, waits=waits)
    _complete(outbox, seq, answer, *args)


def _nothing(*_args: Any) -> None:
    """Do nothing."""


_STREAMS: Final = Surroundings(
    rates={"kill": 6.0, "half-open": 6.0, "slow-node": 6.0, "client-cut": 6.0},
    fault_s=(0.5, 3.0),
    settings={"streams_count": 3, "clients_count": 1, "compact_entries": 30},
    client_settings={"vocabulary_share": 0.3},
)
"""Connections break all the time, and what was sent over them comes late."""

_LAGGING: Final = Surroundings(
    rates={"isolate": 8.0, "slow-node": 4.0},
    fault_s=(3.0, 12.0),
    settings={"streams_count": 6, "clients_count": 1, "compact_entries": 10},
    client_settings={"wait_ms": (10_000, 20_000), "timeout_s": (4.0, 8.0), "names": ("n0",)},
)
"""Nodes fall behind, and take over snapshots, while streams wait."""


def _apply_behind_a_gap(frames: Frames, frame: Numbered) -> Result:
    """Apply what comes, whatever is missing before it."""
    stream = frames._state.streams.get(frame.session_id)
    if stream is not None and frame.epoch == stream.epoch and frame.first > stream.last + 1:
        stream.last = frame.first - 1
    return _apply(frames, frame)


def _keep_all(_streams: Streams, _stream: Stream, _ranges: tuple[tuple[int, int], ...]) -> None:
    """Keep what the client says that it has."""


def _forget_and_count(streams: Streams, stream: Stream, ranges: tuple[tuple[int, int], ...]) -> None:
    """Forget outcomes, and count their bytes for ever."""
    size_bytes = stream.kept_bytes
    _acknowledge(streams, stream, ranges)
    stream.rows_bytes = size_bytes


_acknowledge = Streams.acknowledge


def _end_the_newest_wait(frames: Frames, stream: Stream, command: EndWait) -> Result:
    """End the wait that was numbered last."""
    waiting = [number for number, kept in stream.kept.items() if isinstance(kept.result, Queued)]
    number = max(waiting) if command.number in waiting else command.number
    return _end_wait(frames, stream, EndWait(number))


_end_wait = Frames._end_wait


def _nobody_waits(_streams: Streams, _session_id: SessionId) -> tuple[HoldId, ...]:
    """Find no waits that a stream has numbered."""
    return ()


STREAMS: Final = (
    Mutation(
        name="replaced-connection-heard",
        sentence="A late message of a replaced connection of a stream is applied.",
        found_by=("model-state", "model-events", "reply", "stream-epoch", "stream-once"),
        apply=replaced(Frames, "apply", _apply_of_any_connection),
        surroundings=_STREAMS,
    ),
    Mutation(
        name="last-number-applied-again",
        sentence="The last number of a stream is applied once more when its frame comes again.",
        found_by=("model-state", "model-events", "reply", "stream-once"),
        apply=replaced(Frames, "_apply_each", _apply_last_again),
        surroundings=_STREAMS,
    ),
    Mutation(
        name="stream-outcomes-not-in-snapshot",
        sentence="Outcomes that a stream has not acknowledged are left out of snapshots.",
        found_by=("equal-digest", "model-state", "reply", "stream-once", "node-ends"),
        apply=replaced(Streams, "dump_kept", _none_kept),
        surroundings=_STREAMS,
    ),
    Mutation(
        name="waits-of-a-frame-crossed",
        sentence="The ends of the waits of one frame are told to each other's numbers.",
        found_by=("stream-wait",),
        apply=replaced(Outbox, "complete", _complete_crossed),
        surroundings=_STREAMS,
    ),
    Mutation(
        name="waits-of-streams-not-reconciled",
        sentence="A node with a new snapshot does not look which waits of streams have ended meanwhile.",
        found_by=("wait-told",),
        apply=replaced(Waiters, "reconcile", _nothing),
        surroundings=_LAGGING,
    ),
    Mutation(
        name="numbers-left-out",
        sentence="What comes behind a number that is missing is applied.",
        found_by=("reply", "model-state", "model-events", "stream-last", "stream-once", "stream-order"),
        apply=replaced(Frames, "apply", _apply_behind_a_gap),
        surroundings=_STREAMS,
    ),
    Mutation(
        name="acknowledged-outcomes-kept",
        sentence="Outcomes that a client has acknowledged are kept.",
        found_by=("reply", "model-state", "model-events", "streams-counted"),
        apply=replaced(Streams, "acknowledge", _keep_all),
        surroundings=_STREAMS,
    ),
    Mutation(
        name="bytes-of-outcomes-not-given-back",
        sentence="The bytes of acknowledged outcomes count for ever.",
        found_by=("reply", "model-state", "model-events", "streams-counted"),
        apply=replaced(Streams, "acknowledge", _forget_and_count),
        surroundings=_STREAMS,
    ),
    Mutation(
        name="another-wait-ended",
        sentence="The end of one wait of a stream ends the one that it numbered last.",
        found_by=("reply", "model-state", "model-events", "stream-wait"),
        apply=replaced(Frames, "_end_wait", _end_the_newest_wait),
        surroundings=_STREAMS,
    ),
    Mutation(
        name="waits-outlive-their-stream",
        sentence="Waits that a stream has numbered go on when its session ends.",
        found_by=("reply", "model-state", "model-events"),
        apply=replaced(Streams, "waiting", _nobody_waits),
        surroundings=_STREAMS,
    ),
)
