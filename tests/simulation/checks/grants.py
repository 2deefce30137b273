"""Grants seen from outside: tokens rise with real time over all kinds of holds, and none is given twice."""

from collections import OrderedDict
from itertools import islice
from typing import Final, TypeVar

from lockstate.words.cell_operations import TakeOperation
from lockstate.words.commands.cells import TransactCells
from lockstate.words.commands.holds import Acquire, AcquirePermits, AddLocks, Campaign, Convert, RenewByValue
from lockstate.words.ids import NO_HOLD, HoldId
from lockstate.words.modes import Mode
from lockstate.words.results import Granted, Proclaimed, Renewed, Result, Transacted
from tests.simulation.checks.report import Report
from tests.simulation.checks.takes import takes_of
from tests.simulation.workload.history import Call

_K = TypeVar("_K")
_V = TypeVar("_V")

KEPT: Final = 50_000
"""Holds that are remembered; older ones are hardly told of any more."""


class Tokens:
    """Which hold has which token."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._known_before: OrderedDict[str, int] = OrderedDict()
        """By hold id: the highest token that anybody knew when this hold was asked for."""
        self._tokens: OrderedDict[str, int] = OrderedDict()
        self._holds: OrderedDict[int, str] = OrderedDict()
        self._converting: OrderedDict[str, int] = OrderedDict()
        """By hold id: what was known when it was first to exclude more. It may draw a new token then."""

    def called(self, call: Call) -> None:
        """Record what was known when a hold was asked for, or was to be converted."""
        match call.command:
            case Acquire(hold_id=hold_id) | AcquirePermits(hold_id=hold_id) | Campaign(hold_id=hold_id):
                self._known_before[hold_id] = call.known_token
                shorten(self._known_before)
            case TransactCells(then=then, otherwise=otherwise):
                for part in (*then, *otherwise):
                    if isinstance(part, TakeOperation):
                        # Repeated, it is the same hold: what was known at first counts.
                        self._known_before.setdefault(part.hold_id, call.known_token)
                shorten(self._known_before)
            case AddLocks(hold_id=hold_id):
                self._converting.setdefault(hold_id, call.known_token)
                shorten(self._converting)
            case Convert(hold_id=hold_id, mode=mode) if mode is not Mode.CONCURRENT_READ:
                self._converting.setdefault(hold_id, call.known_token)
                shorten(self._converting)

    def replied(self, call: Call, result: Result) -> None:
        """Check the token of a grant or a renewal."""
        if isinstance(result, Granted):
            self._granted(call, result.hold_id, result.name, result.token)
        elif isinstance(result, Transacted):
            for take, taken in takes_of(call.command, result):
                self._granted(call, take.hold_id, take.name, taken.token)
        elif isinstance(result, Renewed | Proclaimed) and not isinstance(call.command, RenewByValue):
            # Which hold has a value, only the log tells.
            self._same(call, getattr(call.command, "hold_id", NO_HOLD), result.token)

    def _granted(self, call: Call, hold_id: HoldId, name: str, token: int) -> None:
        known = self._known_before.get(hold_id)
        if known is not None and token <= known:
            self._report.fail(
                "tokens-rise", f"{call.client} got token {token} for {name!r}; it asked after {known}"
            )
        self._same(call, hold_id, token)
        owner = self._holds.setdefault(token, hold_id)
        if owner != hold_id:
            self._report.fail(
                "tokens-once", f"{call.client} got token {token} for {name!r}, which another hold has"
            )
        shorten(self._holds)

    def _same(self, call: Call, hold_id: HoldId, token: int) -> None:
        """Check that a hold keeps its token, but for a conversion: that draws one above all known ones."""
        known = self._tokens.setdefault(hold_id, token)
        is_drawn = hold_id in self._converting and max(known, token) > self._converting[hold_id]
        if known != token and not is_drawn:
            self._report.fail(
                "tokens-once", f"{call.client} is told token {token} of a hold that has {known}"
            )
        self._tokens[hold_id] = max(known, token)
        shorten(self._tokens)


def shorten(records: OrderedDict[_K, _V], count: int = KEPT) -> None:
    """Drop the oldest records, a few at a time."""
    if len(records) > count + count // 10:
        for key in list(islice(records, len(records) - count)):
            del records[key]
