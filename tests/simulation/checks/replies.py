"""Answers: clients are told what the model says at that place of the log, and places follow real time.

A call is known by its node and the bytes of its command. Commands without an id of their own may be asked for
several times in the same words, so calls and effects are counted: no more effects than calls.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from lockstate.catalogue import request_key
from lockstate.rules.on_behalf import on_behalf
from lockstate.words.codec import encode_command
from lockstate.words.commands.entries import (
    AbandonWaits,
    Barrier,
    Cancel,
    Command,
    OnBehalf,
    Tick,
    Undecodable,
)
from lockstate.words.refusals import Reason, Refused
from lockstate.words.results import Granted, Queued, Result
from tests.property.model_deadlock import check_cycle
from tests.property.model_records import Deadlock
from tests.simulation.checks.comparable import DEADLOCKS, plain
from tests.simulation.checks.model_replay import Answer, Expected, Step
from tests.simulation.checks.report import Report
from tests.simulation.workload.history import NOT_APPLIED, Call, FailureOutcome

Key = tuple[str, bytes]
"""Node and encoded command."""
Place = tuple[str, tuple[str, str] | None]
"""Node and request."""

NO_ROOM = (Reason.QUOTA_EXCEEDED, Reason.OVERLOADED)
"""Why a node refuses without a command in the log."""

_OF_NODES = (AbandonWaits, Cancel, Tick, Barrier)
"""Commands that nodes make by themselves."""


@dataclass(slots=True)
class _Effect:
    """A command that was applied. `told` is what its client has to be told, None while it waits."""

    revision: int
    told: Result | None
    told_revision: int
    deadlock: Deadlock | None = None


@dataclass(slots=True)
class _Asked:
    """Calls in the same words. What is settled (a reply and its effect, a call without one) is left out."""

    sent_us: list[int] = field(default_factory=list)
    open: int = 0
    """How many of the calls have no outcome yet."""
    effects: list[_Effect] = field(default_factory=list)

    @property
    def is_settled(self) -> bool:
        """Whether nothing can come: every client was told, or left, and every call had its effect."""
        return not self.open and len(self.effects) == len(self.sent_us)


class Replies:
    """Calls without a settled outcome, and the effects that the committed entries had of them."""

    def __init__(self, report: Report, expected: Expected, has_restored: Callable[[str, int], bool]) -> None:
        """`expected` is the model after the newest entry. `has_restored` tells of a node and a revision."""
        self._report = report
        self._expected = expected
        self._has_restored = has_restored
        self._asked: dict[Key, _Asked] = {}
        self._waiting: dict[str, list[_Effect]] = {}
        self._requests: dict[str, list[Place]] = {}
        """By what a wait answers to, the nodes that were asked for it, and the requests."""
        self._ends: dict[Place, tuple[Result, int]] = {}
        """How the waits of requests ended: a node goes on with one that is asked again, without a command."""

    def __len__(self) -> int:
        """Return how many kinds of calls are unsettled."""
        return len(self._asked)

    def called(self, call: Call) -> None:
        """Record a call."""
        asked = self._asked.setdefault(_key(call.node_id, call.command), _Asked())
        asked.sent_us.append(call.called_us)
        asked.open += 1

    def applied(self, step: Step) -> int:
        """Record what an entry did; return when the youngest of its commands was sent, at least."""
        sent_us = 0
        for answer in step.answers:
            if not isinstance(answer.command, _OF_NODES):
                sent_us = max(sent_us, self._effect(answer, step))
        for hold_id, told in step.wait_ends:
            for effect in self._waiting.pop(hold_id, ()):
                effect.told, effect.told_revision = told, step.revision
            for place in self._requests.pop(hold_id, ()):
                self._ends[place] = told, step.revision
        return sent_us

    def _effect(self, answer: Answer, step: Step) -> int:
        if isinstance(answer.command, Undecodable):
            self._report.fail("asked-once", f"revision {step.revision} has bytes that are not a command")
        key = _key(answer.node_id, answer.command)
        asked = self._asked.get(key)
        if asked is None or len(asked.effects) >= len(asked.sent_us):
            self._report.fail(
                "asked-once",
                f"revision {step.revision} has a command that nobody asked {answer.node_id} for, was told to "
                "have had no effect, or had its effect already",
                command=answer.command,
            )
        effect = _Effect(step.revision, answer.result, step.revision, answer.deadlock)
        asked.effects.append(effect)
        if isinstance(answer.result, Queued):
            effect.told = None
            self._waiting.setdefault(answer.result.hold_id, []).append(effect)
            if answer.command.request_id:
                place = answer.node_id, request_key(_asked_of(answer.command))
                self._requests.setdefault(answer.result.hold_id, []).append(place)
        sent_us = min(asked.sent_us)
        self._drop_if_settled(key, asked)
        return sent_us

    def replied(self, call: Call, result: Result, revision: int) -> None:
        """Check an answer: there is an effect of the call that says so, at this revision, in real time."""
        key = _key(call.node_id, call.command)
        asked = self._asked[key]
        fitting = [effect for effect in asked.effects if self._says(effect, call, result, revision)]
        if not fitting and (
            self._is_end_of_earlier(call, result, revision) or self._has_no_room(call, result, revision)
        ):
            self._had_no_effect(call, key, asked)
            return
        if not fitting:
            self._report.fail(
                "reply",
                f"{call.client} was told by {call.node_id} what did not happen at revision {revision}",
                command=call.command,
                told=result,
                effects=asked.effects,
            )
        effect = fitting[-1]
        if effect.revision <= call.known_revision:
            self._report.fail(
                "real-time",
                f"{call.client} asked when revision {call.known_revision} was known, and its command came "
                f"into effect at {effect.revision}",
                command=call.command,
            )
        self._check_cycle(call, effect, result)
        asked.effects.remove(effect)
        asked.sent_us.remove(call.called_us)
        asked.open -= 1
        self._drop_if_settled(key, asked)

    def _is_end_of_earlier(self, call: Call, result: Result, revision: int) -> bool:
        """Whether this is how the wait of an earlier attempt ended, with which its node has gone on."""
        if not call.command.request_id:
            return False
        told, at = self._ends.get((call.node_id, request_key(_asked_of(call.command))), (None, 0))
        return told is not None and at == revision and plain(told) == plain(result)

    def _has_no_room(self, call: Call, result: Result, revision: int) -> bool:
        """Whether this refuses for want of room, behind the call, what the model refuses there, too.

        The model knows the newest revision only; of an older one the refusal is taken as it is.
        """
        if not isinstance(result, Refused) or result.reason not in NO_ROOM:
            return False
        if not call.known_revision <= revision <= self._expected.revision:
            return False
        if revision < self._expected.revision:
            return True
        refused = self._expected.refusal_now(on_behalf(call.principal, call.command))
        if refused is None:
            return False
        return refused.reason != result.reason or plain(refused) == plain(result)

    def _check_cycle(self, call: Call, effect: _Effect, result: Result) -> None:
        """Check that a refusal for a deadlock names a real one; a repetition names none."""
        if not isinstance(result, Refused) or result.reason not in DEADLOCKS:
            return
        said = ""
        if effect.deadlock is not None:
            try:
                _, edges, starts = effect.deadlock
                check_cycle(edges, starts, result.cycle)
            except AssertionError as error:
                said = str(error)
        elif result.cycle:
            said = "it was told once already"
        if said:
            self._report.fail(
                "deadlock-real",
                f"{call.client} is refused for a deadlock that is none: {said}",
                command=call.command,
                told=result,
            )

    def _says(self, effect: _Effect, call: Call, result: Result, revision: int) -> bool:
        told = effect.told
        if told is None:
            return False
        if revision == effect.told_revision and plain(told) == plain(result):
            return True
        # A node that restored a snapshot finds its waiter granted there, with what is left of the lease: at
        # the end of the entry, in which it may have been renewed behind the grant.
        return (
            isinstance(told, Granted)
            and isinstance(result, Granted)
            and told.token <= result.token
            and (told.hold_id, told.name, told.permits) == (result.hold_id, result.name, result.permits)
            and revision >= effect.told_revision > effect.revision
            and self._has_restored(call.node_id, revision)
        )

    def failed(self, call: Call, outcome: FailureOutcome) -> None:
        """Check that what is said to have had no effect has none, now and later."""
        key = _key(call.node_id, call.command)
        asked = self._asked[key]
        if outcome == NOT_APPLIED:
            self._had_no_effect(call, key, asked)
            return
        asked.open -= 1
        self._drop_if_settled(key, asked)

    def _had_no_effect(self, call: Call, key: Key, asked: _Asked) -> None:
        """Note that what was sent has no effect of its own, now and later."""
        asked.open -= 1
        asked.sent_us.remove(call.called_us)
        if len(asked.effects) > len(asked.sent_us):
            self._report.fail(
                "not-applied",
                f"{call.client} was told that its command had no effect; it had one",
                command=call.command,
                effects=asked.effects,
            )
        self._drop_if_settled(key, asked)

    def _drop_if_settled(self, key: Key, asked: _Asked) -> None:
        if asked.is_settled:
            del self._asked[key]


def _asked_of(command: Command) -> Command:
    return command.command if isinstance(command, OnBehalf) else command


def _key(node_id: str, command: Command) -> Key:
    return node_id, encode_command(command)
