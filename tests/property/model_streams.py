"""The model's streams: commands that a session numbers, each applied once, in order and without gaps."""

from collections.abc import Callable

from lockstate.words import limits
from lockstate.words.commands.entries import Command
from lockstate.words.commands.holds import MayWait
from lockstate.words.commands.streams import EndWait, Numbered, NumberedCommand, ResumeStream
from lockstate.words.events import Left
from lockstate.words.ids import NO_HOLD
from lockstate.words.refusals import Reason, Refused
from lockstate.words.results import (
    Done,
    FrameRefused,
    Granted,
    NumberedDone,
    Queued,
    Result,
    StreamFault,
    StreamResumed,
)
from tests.property.model_changes import end_wait, serve
from tests.property.model_principals import is_foreign
from tests.property.model_records import ModelState, Request, Stream
from tests.property.model_requests import as_it_is_now, without_holders


def resume(state: ModelState, command: ResumeStream) -> Result:
    """Begin a stream, or go on with it on another connection."""
    session = state.session(command.session_id)
    if session is None:
        return Refused(Reason.SESSION_EXPIRED, "")
    state.restart(session.lease)
    stream = state.streams.setdefault(command.session_id, Stream())
    stream.epoch += 1
    return StreamResumed(stream.epoch, stream.last)


def number(state: ModelState, frame: Numbered, run: Callable[[ModelState, Command], Result]) -> Result:
    """Apply the commands of a frame that are new; `run` applies one. Answer the others as before."""
    session, stream = state.session(frame.session_id), state.streams.get(frame.session_id)
    if session is None or is_foreign(state, session):
        return FrameRefused(StreamFault.GONE)
    if stream is None or stream.epoch != frame.epoch:
        return FrameRefused(StreamFault.REPLACED, stream.last if stream else 0)
    bounds = [0, *(bound for first, last in frame.acked for bound in (2 * first - 1, 2 * last))]
    is_wrong = bounds != sorted(set(bounds)) or len(bounds) > 2 * limits.STREAM_RANGES_MAX + 1
    if is_wrong or frame.first < 1 or len(frame.commands) != frame.count:
        return FrameRefused(StreamFault.MALFORMED)
    if frame.first - 1 > stream.last:
        return FrameRefused(StreamFault.GAP, stream.last)
    state.restart(session.lease)
    for first, last in frame.acked:
        for seen in range(first, last + 1):
            if seen in stream.kept and stream.kept[seen].result is not None:
                del stream.kept[seen]
    results: list[Result] = []
    asking, state.asking = state.asking, ""
    sender, state.principal = state.principal, session.principal or state.principal
    for offset, command in enumerate(frame.commands):
        if frame.first + offset > stream.last and len(stream.kept) >= limits.STREAM_KEPT_MAX:
            state.asking, state.principal = asking, sender
            return NumberedDone(tuple(results), Refused(Reason.OVERLOADED, "", retry_after_ms=1000))
        state.number_key = (frame.session_id, frame.first + offset)
        results.append(_apply(state, stream, frame.first + offset, command, run))
        state.number_key = None
    state.asking, state.principal = asking, sender
    return NumberedDone(tuple(results))


def _apply(
    state: ModelState,
    stream: Stream,
    own_number: int,
    command: NumberedCommand,
    run: Callable[[ModelState, Command], Result],
) -> Result:
    if own_number <= stream.last:
        kept = stream.kept.get(own_number)
        state.numbers_again += 1
        state.numbers_waiting_again += kept is not None and kept.result is None
        is_of_a_wait = kept is not None and kept.result is None
        if is_of_a_wait and not isinstance(command, MayWait):
            return Refused(Reason.INVALID_REQUEST, "")
        if kept is None or isinstance(command, EndWait):
            return kept.result if kept and kept.result else Refused(Reason.INVALID_REQUEST, "")
        assert state.number_key is not None
        return as_it_is_now(state, command, kept, state.number_key)
    stream.last = own_number
    if isinstance(command, EndWait):
        result: Result = _end_wait(state, stream, command)
    else:
        result = run(state, command)
    answers_to = result.hold_id if isinstance(result, Granted | Queued) else NO_HOLD
    final = None if isinstance(result, Queued) else without_holders(result)
    stream.kept[own_number] = Request(None, answers_to, final, state.now_ms)
    return result


def _end_wait(state: ModelState, stream: Stream, command: EndWait) -> Result:
    kept = stream.kept.get(command.number)
    ticket = state.ticket(kept.answers_to) if kept is not None and kept.result is None else None
    if ticket is not None:
        end_wait(state, ticket, Left.CANCELLED)
        serve(state)
    return Done()
