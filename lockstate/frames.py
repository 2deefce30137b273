"""Applying the frames of streams: numbered commands, each once, in order and without gaps."""

from collections.abc import Callable
from typing import Any, Final

from lockstate import budget, limits
from lockstate.commands import (
    EndWait,
    MayWait,
    Numbered,
    Release,
    ReleaseByValue,
    Renew,
    RenewByValue,
    ResumeStream,
    TransactCells,
)
from lockstate.holds import SESSION_EXPIRED, Holds
from lockstate.records import RequestKey, Stream
from lockstate.results import (
    Done,
    FrameRefused,
    Left,
    NumberedDone,
    Queued,
    Reason,
    Refused,
    Result,
    StreamFault,
    StreamResumed,
    Transacted,
)
from lockstate.versions import RULES_WHOLE

_DONE: Final = Done()
_GONE: Final = FrameRefused(StreamFault.GONE)
_MALFORMED: Final = FrameRefused(StreamFault.MALFORMED)
_FREES: Final = (Release, Renew, EndWait, ReleaseByValue, RenewByValue)
"""The classes of commands that are carried out when the state has no room: they make it no larger."""
_WINDOW_FULL: Final = Refused(
    Reason.OVERLOADED, "too many outcomes of this stream are not acknowledged", (), 0, budget.RETRY_MS
)


class Frames:
    """Applies the frames of one state. The machine applies each command, and says what became of one."""

    def __init__(
        self,
        holds: Holds,
        apply: Callable[[Any, RequestKey], Result],
        again: Callable[[Any, RequestKey, Result, int], Result],
    ) -> None:
        """`apply` carries a command out. `again` tells the outcome that one had at some time as it is now."""
        self._holds = holds
        self._state = holds.state
        self._apply = apply
        self._again = again

    def resume(self, command: ResumeStream) -> Result:
        """Begin a stream, or a new epoch of it."""
        state = self._state
        session = state.sessions.get(command.session_id)
        if session is None:
            return SESSION_EXPIRED
        known = state.streams.get(session.session_id)
        if known is None and (refused := budget.check_room(state)) is not None:
            return refused
        stream = state.streams.resume(session.session_id)
        state.extend(session)
        return StreamResumed(stream.epoch, stream.last)

    def apply(self, frame: Numbered) -> Result:
        """Apply the commands that are new, and repeat the outcomes of those that are not."""
        state = self._state
        session, stream = state.sessions.get(frame.session_id), state.streams.get(frame.session_id)
        if session is None:
            return _GONE
        if stream is None or frame.epoch != stream.epoch:
            return FrameRefused(StreamFault.REPLACED, stream.last if stream is not None else 0)
        if frame.count != len(frame.commands) or frame.first < 1 or not _are_ranges(frame.acked):
            return _MALFORMED
        if frame.first > stream.last + 1:
            return FrameRefused(StreamFault.GAP, stream.last)
        state.extend(session)
        state.streams.acknowledge(stream, frame.acked)
        # A wait of a stream is kept by no node process: its client may come back over another one.
        asking, state.asking = state.asking, ""
        done = self._apply_each(stream, frame)
        state.asking = asking
        return done

    def _apply_each(self, stream: Stream, frame: Numbered) -> NumberedDone:
        results: list[Result] = []
        streams = self._state.streams
        for number, command in enumerate(frame.commands, frame.first):
            if number <= stream.last:
                results.append(self._repeat(stream, number, command))
                continue
            refused = self._check_room(stream, command)
            if refused is not None:
                return NumberedDone(tuple(results), refused)
            streams.begin(stream, number)
            if isinstance(command, EndWait):
                result = self._end_wait(stream, command)
            else:
                result = self._apply(command, (stream.session_id, number))
            streams.keep(stream, number, self._state.now_ms, result)
            results.append(result)
        return NumberedDone(tuple(results))

    def _repeat(self, stream: Stream, number: int, command: Any) -> Result:
        """Return the outcome of a number that was applied before."""
        kept = stream.kept.get(number)
        if kept is None:
            return Refused(Reason.INVALID_REQUEST, f"number {number}: its outcome was acknowledged")
        # Rules before 9 told the place of a wait to any command.
        is_told = self._state.rules < RULES_WHOLE and isinstance(kept.result, Queued)
        if not is_told and not _could_be_of(command, kept.result):
            return Refused(Reason.INVALID_REQUEST, f"number {number}: was given to another command")
        return self._again(command, (stream.session_id, number), kept.result, kept.at_ms)

    def _check_room(self, stream: Stream, command: Any) -> Refused | None:
        """Refuse a command whose outcome cannot be kept, or that makes a full state larger."""
        if not self._state.streams.has_room(stream):
            return _WINDOW_FULL
        return None if isinstance(command, _FREES) else budget.check_room(self._state)

    def _end_wait(self, stream: Stream, command: EndWait) -> Result:
        """End the wait of an earlier number, as if its time were over."""
        kept = stream.kept.get(command.number)
        if kept is not None and isinstance(kept.result, Queued):
            ticket = self._state.tickets[kept.result.hold_id]
            self._holds.serve(self._holds.end_wait(ticket, Left.CANCELLED))
        return _DONE


def _could_be_of(command: Any, result: Result) -> bool:
    """Whether a command may have had this result, as far as its repetition looks at that.

    One that still waits is told its place again. A transaction reads again, so it has as many parts.
    """
    if isinstance(result, Queued):
        return isinstance(command, MayWait)
    if not isinstance(result, Transacted):
        return True
    if not isinstance(command, TransactCells):
        return False
    return len(command.then if result.succeeded else command.otherwise) == len(result.results)


def _are_ranges(ranges: tuple[tuple[int, int], ...]) -> bool:
    return len(ranges) <= limits.STREAM_RANGES_MAX and all(1 <= first <= last for first, last in ranges)
