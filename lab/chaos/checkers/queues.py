"""Queues: who was seen in one before another client asked is served first, and reads of them are true."""

from typing import Final

from lab.chaos.checkers.holds import DRIFT
from lab.chaos.checkers.violation import Violation
from lab.chaos.gaps import ClusterClock
from lab.chaos.history import History, Operation

PATIENCE_NS: Final = 2_000_000_000
"""How long after its time a wait that was lost may be seen."""


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


def queue_reads(history: History) -> list[Violation]:
    """A read shows only waits that may go on, and leaves out none that was seen before and goes on."""
    clock = ClusterClock(history)
    waits: dict[tuple[str, str], list[Operation]] = {}
    for operation in history.operations:
        if operation.kind == "acquire":
            waits.setdefault((operation.name, operation.arguments["owner"]), []).append(operation)
    found = []
    first_seen: dict[str, dict[str, Operation]] = {}
    reads = [item for item in history.operations if item.kind == "queue" and item.outcome == "ok"]
    for read in sorted(reads, key=lambda item: item.return_ns):
        queue = {item["owner"] for item in read.result["queue"]}
        seen = first_seen.setdefault(read.name, {})
        for owner in queue:
            seen.setdefault(owner, read)
            may_wait = waits.get((read.name, owner), ())
            if not any(
                wait.call_ns < read.return_ns and read.call_ns < _over_ns(wait, clock) for wait in may_wait
            ):
                found.append(_objection(read, f"{owner} is in the queue of {read.name}, and does not wait"))
        missing = seen.keys() - queue - {holder["owner"] for holder in read.result["holders"]}
        found += [
            _objection(read, f"{owner} waits for {read.name}, and is not in the queue any more")
            for owner in missing
            for wait in waits.get((read.name, owner), ())
            if _goes_on(wait, seen[owner], read)
        ]
    return found


def _over_ns(wait: Operation, clock: ClusterClock) -> int:
    """Return when a wait was surely over."""
    if not wait.lost:
        return wait.return_ns
    wait_ns = wait.arguments.get("wait_ms", 0) * 1_000_000
    return clock.after(clock.settled_ns(wait), wait_ns + PATIENCE_NS)


def _goes_on(wait: Operation, seen: Operation, read: Operation) -> bool:
    """Whether a wait that was seen must be there at a later read, as a wait or as the hold that it became."""
    ends_ns = [
        wait.return_ns,
        seen.call_ns + int(wait.arguments["ttl_ms"] * 1_000_000 * (1 - DRIFT)),
        wait.call_ns + int(wait.arguments["wait_ms"] * 1_000_000 * (1 - DRIFT)),
    ]
    is_sure = wait.outcome != "unknown" and not wait.lost and seen.return_ns < read.call_ns
    return is_sure and read.return_ns < min(ends_ns)


def _objection(read: Operation, text: str) -> Violation:
    return Violation(checker="queue-reads", text=text, operations=(read.id,), at_ns=read.return_ns)
