"""What clients asked and were told, and the checkers over it. They know nothing of how a cluster works.

Each checker returns sentences about what must not be; none when all is well. A promise that is broken says so
first: the gate, which tries a failed test once more, goes by that. All times are seconds of one
monotonic clock: that of the process that ran the clients.
"""

import heapq
import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

GRANTED: Final = "granted"
RELEASED: Final = "released"
REFUSED: Final = "refused"
FAILED: Final = "failed"
"""Surely not applied, or not known: `Operation.detail` says which."""
BROKEN: Final = "a promise is broken:"


@dataclass(slots=True, kw_only=True)
class Operation:
    """One request of one client, from before it was sent until its outcome. `outcomes` must end with one."""

    client: int
    kind: str
    name: str
    started_s: float
    ended_s: float = float("inf")
    outcomes: tuple[str, ...] = ()
    token: int = 0
    hold_id: str = ""
    valid_until_s: float = 0.0
    detail: str = ""

    @property
    def outcome(self) -> str:
        """The outcome, empty while there is none."""
        return self.outcomes[0] if self.outcomes else ""


History = Sequence[Operation]


def grants(history: History) -> list[Operation]:
    """Return the acquires that were granted, in the order in which their clients heard of it."""
    return sorted(
        (operation for operation in history if operation.outcome == GRANTED),
        key=lambda operation: operation.ended_s,
    )


def still_held(history: History) -> dict[str, Operation]:
    """Return the newest grant of each lock that nobody has even tried to release since, by name."""
    tried = {operation.hold_id for operation in history if operation.kind == "release"}
    newest = {grant.name: grant for grant in grants(history)}
    return {name: grant for name, grant in newest.items() if grant.hold_id not in tried}


def released(history: History) -> dict[str, int]:
    """Return the highest token of an acknowledged release of each lock, by name."""
    tokens: dict[str, int] = {}
    for operation in history:
        if operation.outcome == RELEASED:
            tokens[operation.name] = max(tokens.get(operation.name, 0), operation.token)
    return tokens


def longest_gap_s(history: History, from_s: float, to_s: float) -> float:
    """Return the longest time between `from_s` and `to_s` in which no acquire was granted."""
    moments = [grant.ended_s for grant in grants(history) if from_s <= grant.ended_s <= to_s]
    return max(later - earlier for earlier, later in itertools.pairwise([from_s, *moments, to_s]))


# --- checkers


def violations(history: History) -> list[str]:
    """Return what every history must be free of, whatever happened to the cluster."""
    return [*many_outcomes(history), *tokens_that_fall(history), *overlapping_grants(history)]


def many_outcomes(history: History) -> list[str]:
    """Every request has one outcome."""
    return [f"{BROKEN} {len(item.outcomes)} outcomes: {item}" for item in history if len(item.outcomes) != 1]


def errors(history: History) -> list[str]:
    """No client sees an error."""
    return [f"an error: {item}" for item in history if item.outcome in (FAILED, REFUSED)]


def tokens_that_fall(history: History) -> list[str]:
    """A grant asked for after another one was known has the greater token, whatever the names."""
    found = []
    known: list[tuple[float, int]] = []
    highest = 0
    seen: set[int] = set()
    for grant in sorted(grants(history), key=lambda operation: operation.started_s):
        while known and known[0][0] < grant.started_s:
            highest = max(highest, heapq.heappop(known)[1])
        if grant.token <= highest:
            found.append(f"{BROKEN} token {grant.token} came after {highest} was known: {grant}")
        if grant.token in seen:
            found.append(f"{BROKEN} token {grant.token} was given twice: {grant}")
        seen.add(grant.token)
        heapq.heappush(known, (grant.ended_s, grant.token))
    return found


def overlapping_grants(history: History) -> list[str]:
    """No two clients hold one lock at a time, each by its own count: until it releases or its lease ends."""
    let_go_s = {item.hold_id: item.started_s for item in history if item.kind == "release"}
    found = []
    by_name: dict[str, Operation] = {}
    for grant in grants(history):
        before = by_name.get(grant.name)
        by_name[grant.name] = grant
        if before is None:
            continue
        until_s = min(before.valid_until_s, let_go_s.get(before.hold_id, float("inf")))
        if grant.ended_s < until_s:
            found.append(f"{BROKEN} {grant} while {before} was valid")
    return found


def lost_grants(held: Iterable[Operation], tokens: Mapping[str, int | None]) -> list[str]:
    """Whoever was granted a lock, and neither released nor outlived it, is its holder. `tokens` by name."""
    return [
        f"{BROKEN} {grant.name} is held with token {tokens.get(grant.name)}, but was acknowledged: {grant}"
        for grant in held
        if tokens.get(grant.name) != grant.token
    ]


def revived_holds(released_tokens: Mapping[str, int], tokens: Mapping[str, int | None]) -> list[str]:
    """A hold whose release was acknowledged does not come back. `tokens` are those of the holders now."""
    return [
        f"{BROKEN} {name} is held with token {token}, but {released_tokens[name]} was released after it"
        for name, token in tokens.items()
        if token is not None and token <= released_tokens.get(name, 0)
    ]
