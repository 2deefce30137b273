"""Lateness: nothing outlives its time by more than what the cluster stood still, and two seconds.

Cluster time passes while the cluster serves. So a silence, in which nobody was answered because of a fault,
makes everything later by as much; while nothing is broken there is no excuse. A request that was lost excuses
others only until what it may have been granted is over. That is sooner where a node that lives says how soon
it gives back what nobody knows of: then there are no ghosts, which hold a lock that is nobody's.
"""

from collections.abc import Iterator
from typing import Final

import msgspec

from lab.chaos.checkers.holds import ACQUIRES, DRIFT, FOREVER_NS, RENEWALS, ROUNDING_NS, holds
from lab.chaos.checkers.latest import Latest
from lab.chaos.checkers.violation import Violation
from lab.chaos.gaps import ClusterClock
from lab.chaos.history import History, Operation

PATIENCE_NS: Final = 2_000_000_000
"""How late anything may be by itself."""
BUSY: Final = {"lock-held": "lock", "no-permits": "semaphore"}
LIVING: Final = ("session-open", "session-keepalive")


class Life(msgspec.Struct, frozen=True, kw_only=True):
    """A hold as others may meet it, also one that its client never heard of: then it has no token."""

    kind: str
    name: str
    token: int
    owner: str
    asked_ns: int
    end_ns: int
    """When its end was acknowledged, or its last lease was over for sure."""
    seen_until_ns: int
    """Until when others may meet it: some time longer, unless its end was acknowledged."""


class _Name:
    """What clients may have met under one name."""

    def __init__(self, lives: list[Life]) -> None:
        self.by_asked = Latest((life.asked_ns, life.seen_until_ns) for life in lives)
        self.ends_by_token = Latest((life.token, life.end_ns) for life in lives if life.token)
        self.lost_by_asked = Latest((life.asked_ns, life.end_ns) for life in lives if not life.token)


def late(history: History) -> list[Violation]:
    """Nobody meets a hold, waits for it, or keeps it alive long after its time."""
    clock = ClusterClock(history)
    lives = _Lives(history, clock)
    groups: dict[tuple[str, str], list[Life]] = {}
    seen_until_ns: dict[tuple[str, str], int] = {}
    for life in lives.all():
        groups.setdefault((life.kind, life.name), []).append(life)
        seen = (life.name, life.owner)
        seen_until_ns[seen] = max(seen_until_ns.get(seen, 0), life.seen_until_ns)
    names = {key: _Name(group) for key, group in groups.items()}
    nothing = _Name([])
    found = [*lives.revivals()]
    for operation in history.operations:
        for holder in operation.result.get("holders", ()):
            until_ns = seen_until_ns.get((operation.name, holder["owner"]), FOREVER_NS)
            found += _judged(operation, operation.call_ns, until_ns, f"is shown with {holder['owner']}")
        if operation.kind not in ACQUIRES:
            continue
        name = names.get((ACQUIRES[operation.kind], operation.name), nothing)
        if operation.outcome == "refused" and operation.code in BUSY:
            until_ns = name.by_asked.below(operation.return_ns)
            found += _judged(operation, _refused_ns(operation), until_ns, "was refused")
        elif operation.outcome == "ok" and _has_waited(operation) and not clock.was_broken(operation):
            ended_ns = max(
                operation.call_ns,
                name.ends_by_token.below(operation.result["token"]),
                name.lost_by_asked.below(operation.return_ns),
            )
            until_ns = clock.after(ended_ns, PATIENCE_NS)
            found += _judged(operation, operation.return_ns, until_ns, "was granted to a waiter")
    return [*found, *_listed_late(history, seen_until_ns)]


class _Lives:
    """When what clients had, or may have had, was over for sure."""

    def __init__(self, history: History, clock: ClusterClock) -> None:
        self._history = history
        self._clock = clock
        self._ttl_ms: dict[str, int] = {}
        self._leases: dict[str, list[tuple[Operation, int]]] = {}
        for operation in history.operations:
            self._note(operation)

    def all(self) -> Iterator[Life]:
        """Yield everything that may have been held."""
        for hold in holds(self._history):
            is_released = hold.released_ns < FOREVER_NS
            end_ns = hold.released_ns if is_released else self._end_ns(hold.key, hold.session)
            yield Life(
                kind=hold.kind,
                name=hold.name,
                token=hold.token,
                owner=hold.owner,
                asked_ns=hold.asked_ns,
                end_ns=end_ns,
                seen_until_ns=end_ns if is_released else self._clock.after(end_ns, PATIENCE_NS),
            )
        for lost in self._history.operations:
            if lost.kind in ACQUIRES and lost.lost:
                lasts_ms = lost.arguments.get("wait_ms", 0) + lost.arguments.get("ttl_ms", 0)
                if not self._clock.was_ended(lost):
                    lasts_ms = min(lasts_ms, lost.arguments.get("given_back_ms", lasts_ms))
                end_ns = self._clock.after(self._clock.settled_ns(lost), lasts_ms * 1_000_000)
                end_ns = max(end_ns, self._end_ns(lost.arguments.get("session", "")))
                yield Life(
                    kind=ACQUIRES[lost.kind],
                    name=lost.name,
                    token=0,
                    owner=lost.arguments.get("owner", ""),
                    asked_ns=lost.call_ns,
                    end_ns=end_ns,
                    seen_until_ns=self._clock.after(end_ns, PATIENCE_NS),
                )

    def revivals(self) -> Iterator[Violation]:
        """Yield renewals of leases that were over for long."""
        for leases in self._leases.values():
            end_ns = FOREVER_NS
            for operation, until_ns in leases:
                if operation.kind not in ACQUIRES and operation.outcome == "ok" and end_ns < FOREVER_NS:
                    seen_until_ns = self._clock.after(end_ns, PATIENCE_NS)
                    yield from _judged(operation, operation.call_ns, seen_until_ns, "was renewed")
                end_ns = until_ns if end_ns == FOREVER_NS else max(end_ns, until_ns)

    def _note(self, operation: Operation) -> None:
        """Take up a lease that was granted or renewed, or may have been."""
        if operation.kind not in (*ACQUIRES, *RENEWALS, *LIVING):
            return
        is_session = operation.kind in LIVING
        field = "session" if is_session else "hold"
        key = str(operation.result.get(field) or operation.arguments.get(field) or "")
        if operation.outcome == "ok":
            lasts_ms = operation.result["expires_in_ms"]
            self._ttl_ms[key] = max(self._ttl_ms.get(key, 0), lasts_ms)
            until_ns = self._clock.after(operation.return_ns, lasts_ms * 1_000_000)
        elif operation.lost and key:
            lasts_ms = operation.arguments.get("ttl_ms") or self._ttl_ms.get(key, 0)
            until_ns = self._clock.after(self._clock.settled_ns(operation), lasts_ms * 1_000_000)
        else:
            return
        self._leases.setdefault(key, []).append((operation, until_ns))

    def _end_ns(self, *keys: str) -> int:
        """Return when the last lease of a hold, or of its session, was over."""
        return max((until_ns for key in keys for _, until_ns in self._leases.get(key, ())), default=0)


def _refused_ns(operation: Operation) -> int:
    """Return the first moment at which a refusal can have been decided: a wait was over by then."""
    wait_ns = operation.arguments.get("wait_ms", 0) * 1_000_000
    if not wait_ns or operation.attempts > 1:
        return operation.call_ns
    waited_ns = min(wait_ns, operation.return_ns - operation.call_ns)
    return operation.call_ns + int(waited_ns * (1 - DRIFT)) - ROUNDING_NS


def _has_waited(operation: Operation) -> bool:
    """Whether a grant may have been waited for, and its client has surely heard of it at once."""
    return bool(operation.arguments.get("wait_ms")) and operation.attempts <= 1 and not operation.bound


def _listed_late(history: History, seen_until_ns: dict[tuple[str, str], int]) -> Iterator[Violation]:
    """Yield the holders of the final listings whose time was over."""
    for listing in history.final_holds:
        for holder in listing.holders:
            until_ns = seen_until_ns.get((holder.name, holder.owner), FOREVER_NS)
            if until_ns < listing.call_ns:
                text = (
                    f"{holder.name} is held in the end by {holder.owner}, {_over(listing.call_ns, until_ns)}"
                )
                yield Violation(checker="late", text=text, at_ns=listing.return_ns)


def _judged(operation: Operation, at_ns: int, until_ns: int, what: str) -> Iterator[Violation]:
    if at_ns > until_ns:
        yield Violation(
            checker="late",
            text=f"{operation.name} {what} {_over(at_ns, until_ns)}",
            operations=(operation.id,),
            at_ns=operation.return_ns,
        )


def _over(at_ns: int, until_ns: int) -> str:
    if not until_ns:
        return "though nobody can ever have had it"
    return f"{(at_ns - until_ns) / 1e9:.3f} s after the last moment at which it may have been held"
