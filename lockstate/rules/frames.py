"""Applying the frames of streams: numbered commands, each once, in order and without gaps."""

from collections.abc import Callable, Mapping
from typing import Any, Final, get_args

from lockstate.rules.effects import Effects
from lockstate.rules.holds import ends, waiting
from lockstate.rules.plain_locks import PLAIN, PlainLocks
from lockstate.rules.refusals import SESSION_EXPIRED
from lockstate.tables import budget
from lockstate.tables.records import RequestKey, Stream
from lockstate.words import limits
from lockstate.words.commands.cells import TransactCells
from lockstate.words.commands.entries import MayBeCancelled
from lockstate.words.commands.holds import Acquire, MayWait, Release
from lockstate.words.commands.streams import EndWait, Numbered, ResumeStream
from lockstate.words.events import Left
from lockstate.words.ids import NO_SESSION, SessionId
from lockstate.words.refusals import Reason, Refused
from lockstate.words.results import (
    Done,
    FrameRefused,
    NumberedDone,
    Queued,
    Result,
    StreamFault,
    StreamResumed,
    Transacted,
)

_PLAIN_BYTES: Final = 512
"""More bytes than a plain command's outcome takes as it is kept: it has an id and a name of 64 letters."""
_DONE: Final = Done()
_GONE: Final = FrameRefused(StreamFault.GONE)
_MALFORMED: Final = FrameRefused(StreamFault.MALFORMED)
_TOLD_KEYS: Final = frozenset(get_args(MayBeCancelled))
"""The classes of commands that are told the key under which their outcome is remembered."""
_WINDOW_FULL: Final = Refused(
    Reason.OVERLOADED, "too many outcomes of this stream are not acknowledged", (), 0, limits.RETRY_MS
)
_MUCH_DONE: Final = Refused(
    Reason.OVERLOADED, "what came before in this frame made too much to do", (), 0, limits.RETRY_MS
)


class Frames:
    """Applies the frames of one state. The machine applies each command, and says what became of one."""

    def __init__(  # noqa: PLR0917 - all that applies commands
        self,
        effects: Effects,
        plain_locks: PlainLocks,
        acts: Mapping[type, Callable[..., Result]],
        frees: frozenset[type],
        apply_owned: Callable[[Any, RequestKey], Result],
        again: Callable[[Any, RequestKey, Result, int], Result],
    ) -> None:
        """`acts` carry commands out, by class; `apply_owned` does it for the principal that asks.

        `frees` are the classes of those that are carried out when the state has no room. `again` tells the
        outcome that a command had before as it is now. What only streams know, the end of a wait by its
        number, is not among `acts`.
        """
        self._effects = effects
        self._plain_locks = plain_locks
        self._state = effects.state
        self._acts = acts
        self._frees = frees
        self._apply_owned = apply_owned
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
        principals = state.principals
        if session is None or (principals.asking and principals.is_foreign(frame.session_id)):
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
        sender = principals.asking
        principal = state.owners.get(frame.session_id, sender) if state.owners else sender
        if principal:
            principals.asking = principal
            done = self._apply_each(stream, frame, is_owned=True)
            principals.asking = sender
        else:
            done = self._apply_each(stream, frame, is_owned=False)
        state.asking = asking
        return done

    def _apply_each(self, stream: Stream, frame: Numbered, *, is_owned: bool) -> NumberedDone:
        """Apply the numbers that are new, up to the first for which there is no room.

        Plain ones, which nearly all of them are, are carried out together.
        """
        state, now_ms = self._state, self._state.now_ms
        streams, session_id, commands = state.streams, stream.session_id, frame.commands
        count_max, bytes_max = limits.STREAM_KEPT_MAX, limits.STREAM_KEPT_BYTES_MAX
        only = session_id if is_owned else NO_SESSION
        # A frame cannot be cut in two, so what its commands bring about is counted as they are applied.
        events, cell_events = self._effects.events, self._effects.cell_events
        effort_max = len(events) + len(cell_events) + state.searched_count + limits.FRAME_EFFORT_MAX
        results: list[Result] = []
        while len(results) < len(commands):
            place = len(results)
            command, number = commands[place], frame.first + place
            if number <= stream.last:
                results.append(self._repeat(stream, number, command))
                continue
            effort_left = effort_max - len(events) - len(cell_events) - state.searched_count
            count_left = count_max - stream.kept_count
            bytes_left = bytes_max - stream.rows_bytes - _PLAIN_BYTES * stream.fresh_count
            if bytes_left < _PLAIN_BYTES:
                bytes_left = bytes_max - stream.kept_bytes
            if effort_left < 0 or count_left <= 0 or bytes_left <= 0:
                return NumberedDone(tuple(results), _MUCH_DONE if effort_left < 0 else _WINDOW_FULL)
            kind = command.__class__
            if kind in PLAIN:  # mostly a whole frame of them: each makes one event, and a short outcome
                many = min(effort_left, count_left, bytes_left // _PLAIN_BYTES, len(commands) - place)
                key = (session_id, frame.first)
                done = self._plain_locks.run(commands, range(place, place + many), key, frame.first, only)
                if done:
                    streams.keep_plain(stream, number, now_ms, done)
                    results += done
                    continue
            if state.is_tight and kind not in self._frees:
                refused = budget.check_room(state)
                if refused is not None:
                    return NumberedDone(tuple(results), refused)
            result = self._apply_one(stream, command, (session_id, number), is_owned=is_owned)
            streams.keep(stream, number, now_ms, result)
            results.append(result)
        return NumberedDone(tuple(results))

    def _apply_one(self, stream: Stream, command: Any, key: RequestKey, *, is_owned: bool) -> Result:
        """Apply a command that is not plain."""
        kind = command.__class__
        if is_owned and kind is not EndWait and not self._is_of(stream.session_id, command):
            return self._apply_owned(command, key)
        if kind in PLAIN:
            return self._plain_locks.general(command, key)
        if kind in _TOLD_KEYS:
            return self._acts[kind](command, key)
        if isinstance(command, EndWait):
            return self._end_wait(stream, command)
        return self._acts[kind](command)

    def _is_of(self, session_id: SessionId, command: Any) -> bool:
        """Whether a plain command is about this session alone, whose principal asks already."""
        if command.__class__ is Release:
            hold = self._state.holds.get(command.hold_id)
            return hold is not None and hold.session_id == session_id
        return command.__class__ is Acquire and bool(command.session_id == session_id)

    def _repeat(self, stream: Stream, number: int, command: Any) -> Result:
        """Return the outcome of a number that was applied before."""
        kept = stream.kept.get(number)
        if kept is None:
            return Refused(Reason.INVALID_REQUEST, f"number {number}: its outcome was acknowledged")
        if not _could_be_of(command, kept.result):
            return Refused(Reason.INVALID_REQUEST, f"number {number}: was given to another command")
        return self._again(command, (stream.session_id, number), kept.result, kept.at_ms)

    def _end_wait(self, stream: Stream, command: EndWait) -> Result:
        """End the wait of an earlier number, as if its time were over."""
        kept = stream.kept.get(command.number)
        if kept is not None and isinstance(kept.result, Queued):
            ticket = self._state.tickets[kept.result.hold_id]
            waiting.serve(self._effects, ends.end_wait(self._effects, ticket, Left.CANCELLED))
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
    """Whether ranges rise, and none touches a number of another one."""
    before = 0
    for first, last in ranges:
        if not before < first <= last:
            return False
        before = last
    return len(ranges) <= limits.STREAM_RANGES_MAX
