"""Grants seen from outside: tokens rise with real time, none is given twice, waiters go in order."""

from collections import OrderedDict
from dataclasses import dataclass
from itertools import islice
from typing import Final, TypeVar

from lockstate.commands import Acquire
from lockstate.modes import Mode
from lockstate.results import Granted, Queued, Renewed, Result
from tests.simulation.checks.report import Report
from tests.simulation.history import Call
from tests.simulation.replay import Step

_K = TypeVar("_K")
_V = TypeVar("_V")

KEPT: Final = 50_000
"""Holds that are remembered; older ones are hardly told of any more."""
NAMES_KEPT: Final = 5_000
GRANTS_KEPT: Final = 32
"""Grants of one name whose order is compared."""


def are_compatible(one: Mode, other: Mode) -> bool:
    """Whether two may hold a lock at the same time."""
    return one is Mode.SHARED and other is Mode.SHARED


class Tokens:
    """Which hold has which token."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._known_before: OrderedDict[str, int] = OrderedDict()
        """By hold id: the highest token that anybody knew when this hold was asked for."""
        self._tokens: OrderedDict[str, int] = OrderedDict()
        self._holds: OrderedDict[int, str] = OrderedDict()

    def called(self, call: Call) -> None:
        """Take note of what was known when a hold was asked for."""
        if isinstance(call.command, Acquire):
            self._known_before[call.command.hold_id] = call.known_token
            _shorten(self._known_before)

    def replied(self, call: Call, result: Result) -> None:
        """Check the token of a grant or a renewal."""
        if isinstance(result, Granted):
            self._granted(call, result)
        elif isinstance(result, Renewed):
            hold_id = getattr(call.command, "hold_id", "")
            self._same(call, hold_id, result.token)

    def _granted(self, call: Call, granted: Granted) -> None:
        known = self._known_before.get(granted.hold_id)
        if known is not None and granted.token <= known:
            self._report.fail(
                "tokens-rise",
                f"{call.client} got token {granted.token} for {granted.name!r}; it asked after {known}",
            )
        self._same(call, granted.hold_id, granted.token)
        owner = self._holds.setdefault(granted.token, granted.hold_id)
        if owner != granted.hold_id:
            self._report.fail(
                "tokens-once",
                f"{call.client} got token {granted.token} for {granted.name!r}, which another hold has",
            )
        _shorten(self._holds)

    def _same(self, call: Call, hold_id: str, token: int) -> None:
        known = self._tokens.setdefault(hold_id, token)
        if known != token:
            self._report.fail(
                "tokens-once", f"{call.client} is told token {token} of a hold that has {known}"
            )
        _shorten(self._tokens)


@dataclass(slots=True, frozen=True)
class _Grant:
    """A hold that somebody was told of: its place of arrival in the log, and its token."""

    arrived: tuple[int, int]
    token: int
    mode: Mode


class Order:
    """Of two grants that conflict, the one that arrived first has the smaller token."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._arrived: OrderedDict[str, tuple[int, int]] = OrderedDict()
        self._grants: OrderedDict[str, dict[int, _Grant]] = OrderedDict()

    def applied(self, step: Step) -> None:
        """Take note of who arrived where."""
        for place, answer in enumerate(step.answers):
            match answer.command, answer.result:
                case Acquire(hold_id=asked), Granted(hold_id=made) | Queued(hold_id=made) if asked == made:
                    self._arrived[made] = (step.revision, place)
        _shorten(self._arrived)

    def replied(self, result: Result) -> None:
        """Compare a grant with the others of its name."""
        arrived = self._arrived.get(result.hold_id) if isinstance(result, Granted) else None
        if not isinstance(result, Granted) or arrived is None:
            return
        grants = self._grants.setdefault(result.name, {})
        self._grants.move_to_end(result.name)
        grant = _Grant(arrived, result.token, result.mode)
        for other in grants.values():
            in_order = (other.arrived < grant.arrived) == (other.token < grant.token)
            if other.token != grant.token and not in_order and not are_compatible(grant.mode, other.mode):
                self._report.fail(
                    "first-come",
                    f"two got {result.name!r} in another order than they came",
                    one=grant,
                    two=other,
                )
        grants[grant.token] = grant
        if len(grants) > GRANTS_KEPT:
            del grants[min(grants)]
        _shorten(self._grants, NAMES_KEPT)


def _shorten(records: OrderedDict[_K, _V], count: int = KEPT) -> None:
    """Drop the oldest records, a few at a time."""
    if len(records) > count + count // 10:
        for key in list(islice(records, len(records) - count)):
            del records[key]
