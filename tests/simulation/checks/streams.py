"""Streams seen from outside: each number has one command and one outcome, and what was told stays applied.

A number is known by its session. What a frame brings is handed on, number by number, to the checkers that
look at single commands from outside.
"""

import dataclasses
import itertools
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from lockstate.words.commands.holds import MayWait
from lockstate.words.commands.streams import EndWait, Numbered, NumberedCommand, ResumeStream
from lockstate.words.ids import SessionId
from lockstate.words.results import FrameRefused, NumberedDone, Queued, Result, StreamFault, StreamResumed
from tests.simulation.checks.cells import Cells
from tests.simulation.checks.comparable import plain
from tests.simulation.checks.fences import Fences
from tests.simulation.checks.grants import Tokens, shorten
from tests.simulation.checks.model_replay import Step
from tests.simulation.checks.order import Order
from tests.simulation.checks.owners import Owners
from tests.simulation.checks.report import Report
from tests.simulation.checks.requests import essence, is_over
from tests.simulation.workload.history import Call
from tests.support.vocabulary import another_attempt

KEPT: Final = 200
"""Sessions that are remembered."""
WAITS_KEPT: Final = 5_000
"""Ends of waits."""


@dataclass(slots=True)
class _Known:
    """What clients were told of one number, and what they know it to be."""

    command: NumberedCommand
    call: Call | None
    """With the command as if it had been asked for alone; the end of a wait cannot be."""
    outcome: Any = None
    """The first final one, as far as it may not change."""
    is_final: bool = False
    is_over: bool = False
    """Whether that was of a hold that was over by then, which tells nothing of what came of it first."""
    revision: int = 0
    """At which that was told."""
    waits_for: str = ""
    """What it is told to wait for."""


@dataclass(slots=True)
class _Stream:
    """What is known of the stream of one session."""

    epoch: int = 0
    last: int = 0
    """As the newest welcome says."""
    told: int = 0
    """The highest number that is known to be applied."""
    sent: dict[int, int] = field(default_factory=dict)
    """By epoch: the highest number that was sent with it."""
    numbers: dict[int, _Known] = field(default_factory=dict)
    done: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Of the newest connection, by number: in which call, and at which revision, it was told first."""
    lacking: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Likewise the numbers that were told to be lacking before a frame."""


class Streams:
    """All streams. `tokens` and `others` look at single commands: they hear of each, and of its first end."""

    def __init__(
        self,
        report: Report,
        tokens: Tokens,
        others: tuple[Order | Fences | Cells | Owners, ...],
        has_restored: Callable[[str, int], bool],
    ) -> None:
        self._report = report
        self._tokens = tokens
        self._others = others
        self._has_restored = has_restored
        self._streams: OrderedDict[str, _Stream] = OrderedDict()
        self._waits: OrderedDict[str, tuple[int, Result]] = OrderedDict()
        self._asked: dict[int, tuple[int, int]] = {}
        """By call: the epoch and the highest applied number that were known when a stream was resumed."""
        self._numbers = itertools.count(-1, -1)

    def applied(self, step: Step) -> None:
        """Record how waits ended."""
        for waited_for, told in step.wait_ends:
            self._waits[waited_for] = (step.revision, told)
        shorten(self._waits, WAITS_KEPT)

    # -- what is asked --------------------------------------------------------------------------------------

    def called(self, call: Call) -> None:
        """Record what is sent."""
        match call.command:
            case ResumeStream():
                stream = self._stream(call.command.session_id)
                self._asked[call.number] = (stream.epoch, stream.told)
            case Numbered():
                self._sent(call, call.command)

    def _stream(self, session_id: SessionId) -> _Stream:
        stream = self._streams.setdefault(session_id, _Stream())
        shorten(self._streams, KEPT)
        return stream

    def _sent(self, call: Call, frame: Numbered) -> None:
        stream = self._stream(frame.session_id)
        for first, last in frame.acked:
            for number in range(first, last + 1):
                known = stream.numbers.get(number)
                if known is not None and (known.is_final or not known.waits_for):
                    del stream.numbers[number]
        for number, command in enumerate(frame.commands, frame.first):
            known = stream.numbers.get(number)
            if known is None or not _is_same(known.command, command):
                stream.numbers[number] = self._known(call, command)
            elif known.command != command and known.call is not None and not isinstance(command, EndWait):
                # Another attempt, with ids of its own: either may be the one that is applied.
                again = dataclasses.replace(known.call, command=command, known_token=call.known_token)
                self._tokens.called(again)
        highest = frame.first + len(frame.commands) - 1
        stream.sent[frame.epoch] = max(highest, stream.sent.get(frame.epoch, 0))

    def _known(self, call: Call, command: NumberedCommand) -> _Known:
        """Return a new number, of which all checkers hear."""
        if isinstance(command, EndWait):
            return _Known(command, None)
        alone = dataclasses.replace(call, command=command, number=next(self._numbers))
        self._tokens.called(alone)
        for checker in self._others:
            if isinstance(checker, Fences | Cells):
                checker.called(alone)
        return _Known(command, alone)

    # -- what is told ---------------------------------------------------------------------------------------

    def replied(self, call: Call, result: Result, revision: int) -> None:
        """Check what a client is told."""
        match call.command, result:
            case ResumeStream(), StreamResumed():
                self._resumed(call, call.command, result)
            case Numbered(), NumberedDone():
                stream = self._stream(call.command.session_id)
                for place, told in enumerate(result.results):
                    self._told(call, stream, place, told, revision)
                    self._in_order(call, stream.done, call.command.first + place, revision)
            case Numbered(), FrameRefused(fault=StreamFault.GAP):
                stream = self._stream(call.command.session_id)
                self._in_order(call, stream.lacking, call.command.first - 1, revision)
        self._asked.pop(call.number, None)

    def _in_order(self, call: Call, told: dict[int, tuple[int, int]], number: int, revision: int) -> None:
        """Check that no frame of a connection was applied behind one that was sent after it."""
        frame = call.command
        assert isinstance(frame, Numbered)
        stream = self._stream(frame.session_id)
        if frame.epoch != stream.epoch:
            return
        told.setdefault(number, (call.number, revision))
        if number not in stream.done or number not in stream.lacking:
            return
        (sent, done_at), (sent_later, lacking_at) = stream.done[number], stream.lacking[number]
        if sent < sent_later and done_at >= lacking_at:
            sentence = (
                f"number {number}, done at {done_at}, was lacking at {lacking_at} to what was sent later"
            )
            self._fail("stream-order", call, sentence)

    def failed(self, call: Call) -> None:
        """Forget a call without an answer."""
        self._asked.pop(call.number, None)

    def _resumed(self, call: Call, command: ResumeStream, result: StreamResumed) -> None:
        stream = self._stream(command.session_id)
        epoch, told = self._asked[call.number]
        sent = max([stream.last, *[last for of, last in stream.sent.items() if of >= stream.epoch]])
        if result.epoch <= epoch:
            self._fail("stream-epoch", call, f"epoch {result.epoch} comes after {epoch}")
        if result.last < told:
            self._fail(
                "stream-last", call, f"number {told} was applied, and is not: {result.last} is the last"
            )
        if result.last > sent:
            # Frames of a connection that is over have no effect any more.
            self._fail(
                "stream-epoch", call, f"number {result.last} is applied, after {sent} nothing was sent"
            )
        stream.epoch, stream.last, stream.told = result.epoch, result.last, max(stream.told, result.last)
        if result.epoch > epoch:
            stream.done, stream.lacking = {}, {}
        stream.sent = {of: last for of, last in stream.sent.items() if of >= stream.epoch}

    def _told(self, call: Call, stream: _Stream, place: int, told: Result, revision: int) -> None:
        frame = call.command
        assert isinstance(frame, Numbered)
        number, command = frame.first + place, frame.commands[place]
        stream.told = max(stream.told, number)
        known = stream.numbers.get(number)
        if known is None:
            return
        if not _is_same(known.command, command):
            self._fail(
                "stream-once",
                call,
                f"number {number} is applied as {command}, and was given to {known.command} since",
            )
        self._compare(call, number, known, told, revision)

    def ended(self, call: Call, number: int, result: Result, revision: int) -> None:
        """Check the end of a wait."""
        frame = call.command
        assert isinstance(frame, Numbered)
        known = self._stream(frame.session_id).numbers.get(number)
        if known is None:
            return
        self._compare(call, number, known, result, revision)
        ended = self._waits.get(known.waits_for)
        if ended is None or self._has_restored(call.node_id, revision):
            return
        at, told = ended
        if at != revision or plain(told) != plain(result):
            self._fail(
                "stream-wait", call, f"the wait of number {number} ended at {at} with {told}, not {result}"
            )

    def _compare(self, call: Call, number: int, known: _Known, told: Result, revision: int) -> None:
        """Compare an outcome with the one that was told before."""
        if isinstance(told, Queued):
            if known.is_final and revision > known.revision:
                self._fail("stream-once", call, f"number {number} waits, and had an end before")
            known.waits_for = told.hold_id
            return
        outcome = essence(told)
        # An answer that comes late may be older than that of a repetition, whose hold was over by then.
        is_older = known.is_over and revision < known.revision
        if known.is_final and outcome != known.outcome and not (is_older or is_over(known.command, told)):
            self._fail(
                "stream-once", call, f"number {number} has the outcome {told}, and had {known.outcome} before"
            )
        if not known.is_final:
            known.is_final, known.outcome, known.revision = True, outcome, revision
            known.is_over = is_over(known.command, told)
            if known.call is not None:
                for checker in (self._tokens, *self._others):
                    checker.replied(known.call, told)

    def _fail(self, checker: str, call: Call, sentence: str) -> None:
        self._report.fail(checker, f"{call.client} on {call.node_id}: {sentence}", command=call.command)


def _is_same(one: Any, other: NumberedCommand) -> bool:
    """Whether two commands are attempts of the same: but for the ids that a node fills in."""
    return one == other or (
        isinstance(one, MayWait) and isinstance(other, MayWait) and _bare(one) == _bare(other)
    )


def _bare(command: Any) -> Any:
    return another_attempt(command, lambda _field: "")
