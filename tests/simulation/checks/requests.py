"""One outcome per request: all attempts with the same `request_id` are told the same, from outside.

Independent of the log: only what clients say counts. Rules: docs/semantics.md, "request_id".
"""

from collections.abc import Iterable
from typing import Any, Final, get_args

from lockstate.words.commands.entries import Command
from lockstate.words.commands.holds import MayWait, Renew, RenewByValue
from lockstate.words.commands.streams import NumberedCommand
from lockstate.words.refusals import Reason, Refused
from lockstate.words.results import (
    DelaysLifted,
    FenceAdvanced,
    FenceForgotten,
    ForceReleased,
    Granted,
    Proclaimed,
    PutOffTo,
    RatesForgotten,
    RateTaken,
    Released,
    Renewed,
    Resized,
    Result,
    RevocationsWithdrawn,
    Revoked,
    SessionClosed,
    SessionForced,
    SessionOpened,
)
from tests.simulation.checks.report import Report
from tests.simulation.workload.history import NOT_APPLIED, Call, FailureOutcome
from tests.support.vocabulary import NO_OUTCOME, request_content, request_scope

AGE_US: Final = 300_000_000
"""So long an outcome is remembered, in cluster time."""

_Key = tuple[str, str, str | int]
"""Kind of command, scope, request id."""


class Requests:
    """The first outcome of each request, while the cluster has to remember it."""

    def __init__(self, report: Report, rate_allowance: float) -> None:
        self._report = report
        self._age_us = AGE_US * (1 - rate_allowance)
        self._first: dict[_Key, tuple[int, object, object]] = {}
        """When it was asked, what, and the outcome; None for one that may have been undone."""
        self._told_us: dict[_Key, int] = {}
        """When the outcome was first told."""

    def __len__(self) -> int:
        """Return how many requests are known."""
        return len(self._first)

    def replied(self, call: Call, result: Result, now_us: int) -> None:
        """Compare an outcome with the first one."""
        self._prune(now_us)
        key = _key(call.command)
        outcome = essence(result)
        if key is None:
            return
        if outcome is None:
            if not (isinstance(result, Refused) and result.reason in NO_OUTCOME):
                self._refused(call, key, result, now_us)
            return
        self._told_us.setdefault(key, now_us)
        content = request_content(call.command)
        asked_us, first_content, first = self._first.setdefault(key, (call.called_us, content, outcome))
        is_remembered = now_us - asked_us <= self._age_us and first is not None and content == first_content
        if is_remembered and first != outcome:
            self._report.fail(
                "one-outcome",
                f"{call.client} repeated {key} and got another outcome",
                first=first,
                told=outcome,
            )

    def _refused(self, call: Call, key: _Key, result: Result, now_us: int) -> None:
        """Object to a refusal of what is known to be done, and was asked for once more after that."""
        if key not in self._first or call.called_us <= self._told_us.get(key, now_us):
            return
        asked_us, content, first = self._first[key]
        if is_over(call.command, result):
            return
        is_remembered = now_us - asked_us <= self._age_us and content == request_content(call.command)
        if is_remembered and first is not None:
            self._report.fail(
                "one-outcome", f"{call.client} repeated {key} and was refused", first=first, told=result
            )

    def failed(self, call: Call, outcome: FailureOutcome, now_us: int) -> None:
        """Record a wish whose client left: it may be undone, and then starts afresh."""
        key = _key(call.command)
        if key is not None and isinstance(call.command, MayWait) and outcome != NOT_APPLIED:
            self._first.pop(key, None)
            self._first[key] = (now_us, None, None)

    def abandoned(self, requests: Iterable[tuple[str, str | int]], now_us: int) -> None:
        """Record waits that were ended for their nodes: their requests may start afresh, too."""
        for scope, request_id in requests:
            for kind in get_args(MayWait):
                self._first.pop((kind.__name__, scope, request_id), None)
                self._first[kind.__name__, scope, request_id] = (now_us, None, None)

    def _prune(self, now_us: int) -> None:
        """Forget what is too old to be compared: dictionaries keep their order."""
        while self._first:
            key = next(iter(self._first))
            if now_us - self._first[key][0] <= AGE_US:
                return
            del self._first[key]
            self._told_us.pop(key, None)


def _key(command: Command) -> _Key | None:
    scope = request_scope(command)
    return None if scope is None else (type(command).__name__, scope, command.request_id)


def is_over(command: Command | NumberedCommand, result: Result) -> bool:
    """Whether a repeated renewal is told that what it renewed has ended since; the model knows that."""
    is_told_so = isinstance(result, Refused) and result.reason is Reason.LEASE_EXPIRED
    return is_told_so and isinstance(command, Renew | RenewByValue)


def essence(result: Result) -> tuple[Any, ...] | None:  # noqa: C901, PLR0912 - one case for each
    """Return what must not change from attempt to attempt; None if the result is not to be remembered."""
    match result:
        case Refused():
            # Those that changed nothing are tried again; the model knows which these are.
            return None
        case Granted():
            # A hold that was converted meanwhile has another token.
            return ("granted", result.hold_id)
        case Renewed():
            return ("renewed", result.token)
        case SessionOpened():
            return ("opened", result.session_id)
        case SessionClosed():
            return ("closed", result.released)
        case ForceReleased():
            return ("forced", tuple([view.token for view in result.released]))
        case Released():
            return ("released", result.locks)
        case Resized():
            return ("resized", result.limit, result.available)
        case Proclaimed():
            return ("proclaimed", result.token)
        case RateTaken():
            return ("taken", result.at_ms, result.remaining) if result.allowed else None
        case FenceAdvanced():
            return ("advanced", result.highest_token)
        case FenceForgotten():
            return ("forgotten", result.highest_token)
        case RatesForgotten():
            return ("rates forgotten", result.count, result.is_more)
        case Revoked():
            return ("revoked", tuple([view.token for view in result.holders]))
        case RevocationsWithdrawn():
            return ("withdrawn", result.count, result.left)
        case PutOffTo():
            return ("put off", result.token)
        case DelaysLifted():
            return ("lifted", result.count, result.left_ms)
        case SessionForced():
            return ("session forced", result.session_name, result.released)
    return (type(result).__name__,)
