"""What a request came to: refused ones had no effect, repeated ones have one outcome."""

from collections.abc import Iterator

from lab.chaos.checkers.holds import ACQUIRES
from lab.chaos.checkers.violation import Violation
from lab.chaos.history import History, Operation


def not_applied(history: History) -> list[Violation]:
    """Nobody was ever seen to hold what a request asked for that was surely not applied.

    Owners are made for one request, or for the repeated ones of one session; an owner counts if each of its
    requests was refused at the first attempt.
    """
    refused: dict[str, Operation] = {}
    others: set[str] = set()
    for operation in history.operations:
        owner = operation.arguments.get("owner", "") if operation.kind in ACQUIRES else ""
        if not owner:
            continue
        if operation.outcome == "refused" and operation.lost == 0:
            refused[owner] = operation
        else:
            others.add(owner)
    found = []
    for owner, where, at_ns in _seen_owners(history):
        operation_or_none = refused.get(owner)
        if operation_or_none is not None and owner not in others:
            found.append(
                Violation(
                    checker="not-applied",
                    text=f"{operation_or_none.name} was refused to {owner}, who was its holder in {where}",
                    operations=(operation_or_none.id,),
                    at_ns=at_ns,
                )
            )
    return found


def one_outcome(history: History) -> list[Violation]:
    """All operations with one `request` among their arguments that were granted something got the same.

    A refusal changed nothing and is not remembered, so it may come before the grant; whoever asks once the
    grant has been told gets the grant.
    """
    groups: dict[str, list[Operation]] = {}
    for operation in history.operations:
        if "request" in operation.arguments and operation.outcome != "unknown":
            groups.setdefault(operation.arguments["request"], []).append(operation)
    found = []
    for group in groups.values():
        granted_ns = min([operation.return_ns for operation in group if operation.outcome == "ok"], default=0)
        outcomes = {_essence(operation) for operation in group if _is_bound(operation, granted_ns)}
        if len(outcomes) > 1:
            found.append(
                Violation(
                    checker="one-outcome",
                    text=f"one request for {group[0].name} had several outcomes: {sorted(outcomes)}",
                    operations=tuple(operation.id for operation in group),
                    at_ns=group[-1].return_ns,
                )
            )
    return found


def _is_bound(operation: Operation, granted_ns: int) -> bool:
    """Whether an outcome has to be that of the grant, and is not one of a node that could not serve."""
    is_of_state = operation.code in ("lock-held", "no-permits", "lease-expired")
    return operation.outcome == "ok" or (is_of_state and 0 < granted_ns < operation.call_ns)


def _essence(operation: Operation) -> str:
    """Return what must be the same in every answer to one request."""
    if operation.outcome == "ok":
        return f"ok {operation.result.get('hold')} {operation.result.get('token')}"
    return f"{operation.outcome} {operation.code}"


def _seen_owners(history: History) -> Iterator[tuple[str, str, int]]:
    """Yield who was seen to hold something, where, and when."""
    for operation in history.operations:
        if operation.kind == "watch-event" and operation.result.get("event") == "granted":
            yield operation.result.get("owner", ""), "an event", operation.return_ns
        for holder in operation.result.get("holders", ()):
            yield holder.get("owner", ""), "an answer", operation.return_ns
    for listing in history.final_holds:
        for final in listing.holders:
            yield final.owner, "the final listing", listing.return_ns
