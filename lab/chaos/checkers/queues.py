"""Queue order: who was seen in the queue before another one asked is served first."""

from lab.chaos.checkers.violation import Violation
from lab.chaos.history import History, Operation


def queue_order(history: History) -> list[Violation]:
    """No waiter is overtaken by one that asked after it was seen in the queue.

    Waiters that had to ask twice are left out: the second request may be a new one, at the end. Only locks of
    one mode are compared, so that the tokens say who was first. Who has a higher priority may go first,
    whenever it came.
    """
    by_name: dict[str, list[Operation]] = {}
    for operation in history.operations:
        if operation.kind in ("acquire", "queue") and operation.outcome == "ok":
            by_name.setdefault(operation.name, []).append(operation)
    found = []
    for group in by_name.values():
        if any(operation.kind == "queue" for operation in group):
            found += _overtaken([item for item in group if item.arguments.get("mode") in (None, "exclusive")])
    return found


def _overtaken(group: list[Operation]) -> list[Violation]:
    """Compare the grants of one lock."""
    seen_ns: dict[str, int] = {}
    for operation in group:
        for item in operation.result.get("queue", ()) if operation.kind == "queue" else ():
            seen_ns.setdefault(item["owner"], operation.return_ns)
    grants = [operation for operation in group if operation.kind == "acquire"]
    waiters = [item for item in grants if item.arguments["owner"] in seen_ns and item.attempts <= 1]
    return [
        Violation(
            checker="queue-order",
            text=f"{other.arguments['owner']} asked for {other.name} after {waiter.arguments['owner']} was "
            "seen in the queue, and was served first",
            operations=(waiter.id, other.id),
            at_ns=other.return_ns,
        )
        for waiter in waiters
        for other in grants
        if seen_ns[waiter.arguments["owner"]] < other.call_ns
        and other.result["token"] < waiter.result["token"]
        and _priority(other) <= _priority(waiter)
    ]


def _priority(operation: Operation) -> int:
    return int(operation.arguments.get("priority", 5))
