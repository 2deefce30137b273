"""Whose it is, seen from outside: what belongs to a principal for sure is never used by another one.

What the log names nobody for, the model lets pass as the product does. Here only clients count.
"""

from lockstate.words.commands.holds import Release, Renew
from lockstate.words.commands.sessions import CloseSession, KeepAlive
from lockstate.words.refusals import Refused
from lockstate.words.results import Result
from tests.simulation.checks.report import Report
from tests.simulation.workload.history import Call
from tests.simulation.workload.owned import Owned


class Owners:
    """Compares answers with `owned`: what clients were told before."""

    def __init__(self, report: Report, owned: Owned) -> None:
        self._report = report
        self._owned = owned

    def replied(self, call: Call, result: Result) -> None:
        """Check that nothing has come of what a client did with something of another principal."""
        match call.command:
            case KeepAlive(session_id=used) | CloseSession(session_id=used):
                owner = self._owned.sessions.get(used, call.principal)
            case Renew(hold_id=used) | Release(hold_id=used):
                owner = self._owned.holds.get(used, call.principal)
            case _:
                return
        if call.principal and owner != call.principal and not isinstance(result, Refused):
            self._report.fail(
                "foreign-refused",
                f"{call.client}, who is {call.principal}, used on {call.node_id} what belongs to {owner}",
                command=call.command,
                told=result,
            )
