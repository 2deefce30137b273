"""Sessions: none ends before its time, and none that was closed lives on."""

from lab.chaos.checkers.holds import FOREVER_NS, trusted_until_ns
from lab.chaos.checkers.violation import Violation
from lab.chaos.history import History, Operation


class _Lives:
    """What clients know of the life of each session."""

    def __init__(self, history: History) -> None:
        self.trusted_ns: dict[str, int] = {}
        self.close_called_ns: dict[str, int] = {}
        self.closed_ns: dict[str, int] = {}
        for operation in history.operations:
            session = _session(operation)
            if operation.kind in ("session-open", "session-keepalive") and operation.outcome == "ok":
                until_ns = trusted_until_ns(operation)
                self.trusted_ns[session] = max(self.trusted_ns.get(session, 0), until_ns)
            if operation.kind == "session-close":
                _lower(self.close_called_ns, session, operation.call_ns)
                if operation.outcome == "ok":
                    _lower(self.closed_ns, session, operation.return_ns)


def sessions(history: History) -> list[Violation]:
    """No session is over before its time, and none lives on after its close was acknowledged."""
    lives = _Lives(history)
    found = []
    for operation in history.operations:
        if operation.kind not in ("session-keepalive", "session-close"):
            continue
        session = _session(operation)
        # Who repeats the end of a session may be told that it is over because of the first attempt.
        if operation.code == "session-expired" and operation.outcome == "refused":
            until_ns = lives.trusted_ns.get(session, 0)
            if operation.kind == "session-keepalive":
                until_ns = min(until_ns, lives.close_called_ns.get(session, FOREVER_NS))
            if operation.return_ns < until_ns:
                left_ms = (until_ns - operation.return_ns) / 1e6
                found.append(_violation(operation, f"a session was over {left_ms:.1f} ms early"))
        is_alive = operation.kind == "session-keepalive" and operation.outcome == "ok"
        if is_alive and lives.closed_ns.get(session, FOREVER_NS) < operation.call_ns:
            found.append(_violation(operation, "a session lived on after its close was acknowledged"))
    return found


def _lower(times_ns: dict[str, int], session: str, at_ns: int) -> None:
    times_ns[session] = min(times_ns.get(session, FOREVER_NS), at_ns)


def _session(operation: Operation) -> str:
    return str(operation.arguments.get("session") or operation.result.get("session") or "")


def _violation(operation: Operation, text: str) -> Violation:
    return Violation(
        checker="sessions",
        text=f"{operation.client}: {text}",
        operations=(operation.id,),
        at_ns=operation.return_ns,
    )
