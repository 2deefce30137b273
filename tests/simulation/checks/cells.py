"""Cells seen from outside: each change has a revision of its own, and later changes have higher ones."""

from typing import Final

from lockstate.words.commands.cells import DeleteCells, PutCell, TransactCells
from lockstate.words.results import CellsDeleted, CellWritten, Result, Transacted
from tests.simulation.checks.report import Report
from tests.simulation.workload.history import Call

_REMEMBERED_MAX: Final = 2_000
"""Changes of which it is remembered who made them."""


class Cells:
    """The highest revision that anybody was told, and what was known at each call."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._highest = 0
        self._known: dict[int, int] = {}
        self._first_known: dict[str, int] = {}
        """Of requests that may be repeated: what was known when the first attempt left."""
        self._changed_by: dict[int, str] = {}

    def called(self, call: Call) -> None:
        """Record what was known when a client asked."""
        command = call.command
        if isinstance(command, PutCell | DeleteCells | TransactCells):
            known = self._highest
            if command.request_id:
                known = self._first_known.setdefault(command.request_id, known)
            self._known[call.number] = known

    def failed(self, call: Call) -> None:
        """Forget a call without an answer: it may fall either way."""
        self._known.pop(call.number, None)

    def replied(self, call: Call, result: Result) -> None:
        """Check an answer against what had been told before the question."""
        known = self._known.pop(call.number, None)
        if known is None:
            return
        match result:
            case CellWritten():
                revision, is_change = result.mod_revision, True
            case CellsDeleted():
                revision, is_change = result.revision, result.count > 0
            case Transacted():
                revision = result.revision
                is_change = any(
                    isinstance(part, CellWritten) or (isinstance(part, CellsDeleted) and part.count)
                    for part in result.results
                )
            case _:
                return
        self._check(call, result, known, revision, is_change=is_change)

    def _check(self, call: Call, result: Result, known: int, revision: int, *, is_change: bool) -> None:
        who = call.command.request_id or f"call {call.number}"
        is_alone = not is_change or self._changed_by.setdefault(revision, who) == who
        if revision < known or (is_change and revision == known) or not is_alone:
            self._report.fail(
                "cells-rise",
                f"{call.client} was told of a change of cells at {revision}; {known} was known when it asked",
                command=call.command,
                told=result,
            )
        self._highest = max(self._highest, revision)
        if len(self._changed_by) > _REMEMBERED_MAX:
            del self._changed_by[next(iter(self._changed_by))]
