"""Fencing tokens: they agree with real time over all names, and a fence accepts no stale one."""

import heapq

from lab.chaos.checkers.holds import ACQUIRES, holds
from lab.chaos.checkers.violation import Violation
from lab.chaos.history import History, Operation


def tokens_in_real_time(history: History) -> list[Violation]:
    """A grant that was asked for after another one was known has the greater token, whatever the names."""
    found = []
    known: list[tuple[int, int, int]] = []
    highest, highest_id = 0, 0
    for hold in sorted(holds(history), key=lambda item: item.asked_ns):
        grant = hold.grant
        while known and known[0][0] < hold.asked_ns:
            _, token, grant_id = heapq.heappop(known)
            if token > highest:
                highest, highest_id = token, grant_id
        if hold.token <= highest:
            found.append(
                Violation(
                    checker="tokens",
                    text=f"{hold.name} got token {hold.token} when {highest} was known already",
                    operations=(highest_id, grant.id),
                    at_ns=grant.return_ns,
                )
            )
        heapq.heappush(known, (grant.return_ns, hold.token, grant.id))
    return found


def tokens_are_unique(history: History) -> list[Violation]:
    """No two holds have one token, and a hold keeps the one that it has."""
    found = []
    by_token: dict[int, Operation] = {}
    by_key: dict[str, Operation] = {}
    for operation in history.operations:
        if operation.kind not in ACQUIRES or operation.outcome != "ok":
            continue
        key, token = operation.result["hold"], operation.result["token"]
        first = by_key.setdefault(key, operation)
        if first.result["token"] != token:
            text = f"a hold of {operation.name} had token {first.result['token']}, and then {token}"
            found.append(_pair(first, operation, text))
        other = by_token.setdefault(token, operation)
        if other.result["hold"] != key:
            found.append(_pair(other, operation, f"{other.name} and {operation.name} both got token {token}"))
    return found


def fences(history: History) -> list[Violation]:
    """A fence accepts no token below one that it has accepted, and refuses none without a greater one."""
    found = []
    by_resource: dict[str, list[Operation]] = {}
    for operation in history.operations:
        if operation.kind == "advance":
            by_resource.setdefault(operation.name, []).append(operation)
    for group in by_resource.values():
        found += _stale_accepted(group)
        found += _present_refused(group)
    return found


def _stale_accepted(group: list[Operation]) -> list[Violation]:
    """Find tokens that were accepted after a greater one was known to be."""
    found = []
    highest: Operation | None = None
    done: list[tuple[int, int, Operation]] = []
    for operation in group:
        while done and done[0][0] < operation.call_ns:
            earlier = heapq.heappop(done)[2]
            if highest is None or earlier.arguments["token"] > highest.arguments["token"]:
                highest = earlier
        if operation.outcome != "ok":
            continue
        if highest is not None and operation.arguments["token"] < highest.arguments["token"]:
            text = (
                f"{operation.name} accepted token {operation.arguments['token']} "
                f"after {highest.arguments['token']}"
            )
            found.append(_pair(highest, operation, text))
        heapq.heappush(done, (operation.return_ns, operation.id, operation))
    return found


def _present_refused(group: list[Operation]) -> list[Violation]:
    """Find tokens that were called stale though nobody had brought a greater one."""
    found = []
    for operation in group:
        if operation.code != "stale-token":
            continue
        token = operation.arguments["token"]
        if not any(
            other.arguments["token"] > token and other.call_ns < operation.return_ns for other in group
        ):
            text = f"{operation.name} refused token {token} of a present holder: no greater one was brought"
            found.append(
                Violation(checker="fences", text=text, operations=(operation.id,), at_ns=operation.return_ns)
            )
    return found


def _pair(first: Operation, second: Operation, text: str) -> Violation:
    checker = "fences" if second.kind == "advance" else "tokens"
    return Violation(checker=checker, text=text, operations=(first.id, second.id), at_ns=second.return_ns)
