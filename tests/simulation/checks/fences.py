"""Fences seen from outside: what a resource has seen never goes back, unless somebody has it forgotten."""

from lockstate.words.commands.overrides import ForgetFence
from lockstate.words.commands.primitives import AdvanceFence
from lockstate.words.refusals import Reason, Refused
from lockstate.words.results import FenceAdvanced, Result
from tests.simulation.checks.report import Report
from tests.simulation.workload.history import Call


class Fences:
    """The highest token that anybody was told a resource has seen, and what was known at each call."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._highest: dict[str, int] = {}
        self._known: dict[int, int] = {}
        self._first_known: dict[tuple[str, str], int] = {}
        """Of requests that may be repeated: what was known when the first attempt left."""
        self._forgotten: set[str] = set()
        """Resources of which nothing is expected: no answer says on which side of the forgetting it is. What
        must have come of each command in its place is known to the model."""

    def called(self, call: Call) -> None:
        """Record what was known when a fence was to be advanced."""
        command = call.command
        if isinstance(command, ForgetFence):
            self._forgotten.add(command.name)
        if isinstance(command, AdvanceFence):
            known = self._highest.get(command.name, 0)
            if command.request_id:
                known = self._first_known.setdefault((command.name, command.request_id), known)
            self._known[call.number] = known

    def failed(self, call: Call) -> None:
        """Forget a call without an answer: it may fall either way."""
        self._known.pop(call.number, None)

    def replied(self, call: Call, result: Result) -> None:
        """Check an answer against what had been told before the question."""
        command = call.command
        if not isinstance(command, AdvanceFence):
            return
        known = self._known.pop(call.number)
        if command.name in self._forgotten:
            return
        match result:
            case FenceAdvanced():
                if command.token < known or result.highest_token != command.token:
                    self._fail(call, result, known)
                self._tell(command.name, result.highest_token)
            case Refused(reason=Reason.STALE_TOKEN):
                highest = result.facts["highest_token"]
                if highest < known or highest <= command.token:
                    self._fail(call, result, known)
                self._tell(command.name, highest)

    def _tell(self, resource: str, token: int) -> None:
        self._highest[resource] = max(token, self._highest.get(resource, 0))

    def _fail(self, call: Call, result: Result, known: int) -> None:
        self._report.fail(
            "fence-rises",
            f"{call.client} was told of a fence that went back; {known} had been seen when it asked",
            command=call.command,
            told=result,
        )
