"""What clients were told to hold, put together from the operations, for checkers that look at intervals."""

from collections.abc import Iterable
from typing import Final, Literal

import msgspec

from lab.chaos.history import History, Operation

FOREVER_NS: Final = 2**62
ROUNDING_NS: Final = 1_000_000
"""Leases are counted in whole milliseconds."""
DRIFT: Final = 0.002
"""How much faster than the clients' a leader's clock may run: what the documents ask clients to take off."""

ACQUIRES: Final = {"acquire": "lock", "sem-acquire": "semaphore"}
RENEWALS: Final = {"renew": "lock", "sem-renew": "semaphore"}
RELEASES: Final = {"release": "lock", "sem-release": "semaphore"}


class Hold(msgspec.Struct, kw_only=True):
    """One hold as its client knows it: surely from `granted_ns` to `trusted_until_ns` or `let_go_ns`."""

    kind: str
    name: str
    key: str
    token: int
    owner: str
    mode: str
    permits: int
    limit: int
    session: str
    grant: Operation
    asked_ns: int
    """When it was first asked for, also by a request of unknown outcome that this one repeats."""
    granted_ns: int
    trusted_until_ns: int
    let_go_ns: int = FOREVER_NS
    """When its client first asked for its end, or for that of its session."""
    released_ns: int = FOREVER_NS
    """When its end was acknowledged."""

    @property
    def end_ns(self) -> int:
        """Until when nobody else may have it."""
        return min(self.trusted_until_ns, self.let_go_ns)

    def conflicts(self, other: "Hold") -> bool:
        """Whether two holds of one lock exclude each other."""
        return conflict(self.mode, other.mode)


BESIDE: Final = {
    frozenset(pair)
    for pair in (
        ("concurrent-read",),
        ("concurrent-read", "concurrent-write"),
        ("concurrent-read", "shared"),
        ("concurrent-read", "update"),
        ("concurrent-write",),
        ("shared",),
        ("shared", "update"),
    )
}
"""The modes that two may have at a time, as docs/semantics.md says."""


def conflict(one: str, other: str) -> bool:
    """Whether two modes of a lock exclude each other."""
    return frozenset((one, other)) not in BESIDE


def trusted_until_ns(operation: Operation, drift: float = DRIFT) -> int:
    """Return until when a client may rely on what was granted or renewed: it counts from before it asked."""
    if operation.result["expires_in_ms"] == 0:
        return operation.call_ns  # an old outcome, told again: it was over by then, nobody knows since when
    lasts_ns = operation.result["expires_in_ms"] * 1_000_000
    if not lasts_ns:
        return operation.call_ns  # over when its client was told of it, and nobody knows since when
    return int(operation.result["sent_ns"] + lasts_ns * (1 - drift)) - ROUNDING_NS


def holds(history: History, drift: float = DRIFT) -> list[Hold]:
    """Return all holds that clients were told of, in the order in which they heard of them."""
    found: dict[str, Hold] = {}
    by_session: dict[str, list[Hold]] = {}
    asked = _first_calls_ns(history)
    for operation in sorted(history.operations, key=lambda item: item.return_ns):
        if operation.outcome != "ok" or operation.kind not in ACQUIRES:
            continue
        key = operation.result["hold"]
        if key in found:  # asked again: the same hold, renewed
            hold = found[key]
            _extend(hold, operation, drift)
            continue
        hold = found[key] = _hold(operation, drift, asked)
        by_session.setdefault(hold.session, []).append(hold)
    for operation in history.operations:
        for hold in _ended_by(operation, found, by_session):
            hold.let_go_ns = min(hold.let_go_ns, operation.call_ns)
            if operation.outcome == "ok":
                hold.released_ns = min(hold.released_ns, operation.return_ns)
        if operation.kind in RENEWALS and operation.outcome == "ok":
            hold = found[operation.arguments["hold"]]  # only who was granted a hold can renew it
            hold.trusted_until_ns = max(hold.trusted_until_ns, trusted_until_ns(operation, drift))
        if operation.kind == "session-keepalive" and operation.outcome == "ok":
            for hold in by_session.get(operation.arguments["session"], ()):
                hold.trusted_until_ns = max(hold.trusted_until_ns, trusted_until_ns(operation, drift))
    return list(found.values())


def _first_calls_ns(history: History) -> dict[str | None, int]:
    """Return when each request that was sent by several operations was first sent."""
    found: dict[str | None, int] = {}
    for operation in history.operations:  # in order of their calls
        if "request" in operation.arguments:
            found.setdefault(operation.arguments["request"], operation.call_ns)
    return found


def _extend(hold: Hold, operation: Operation, drift: float) -> None:
    """Take what a repeated request was told; of a lease that was over by then nobody knows since when."""
    if operation.result["expires_in_ms"]:
        hold.trusted_until_ns = max(hold.trusted_until_ns, trusted_until_ns(operation, drift))


def by_name(items: Iterable[Hold], kind: Literal["lock", "semaphore"]) -> dict[str, list[Hold]]:
    """Return the holds of each name, in the order in which their clients heard of them."""
    groups: dict[str, list[Hold]] = {}
    for hold in items:
        if hold.kind == kind:
            groups.setdefault(hold.name, []).append(hold)
    return groups


def _hold(operation: Operation, drift: float, asked: dict[str | None, int]) -> Hold:
    arguments = operation.arguments
    asked_ns = asked.get(arguments.get("request"), operation.call_ns)
    is_over = not operation.result["expires_in_ms"]  # heard of late: since when, nobody knows
    return Hold(
        kind=ACQUIRES[operation.kind],
        name=operation.name,
        key=operation.result["hold"],
        token=operation.result["token"],
        owner=arguments.get("owner", ""),
        mode=arguments.get("mode", "exclusive"),
        permits=arguments.get("permits", 1),
        limit=arguments.get("limit", 1),
        session=arguments.get("session", ""),
        grant=operation,
        asked_ns=asked_ns,
        granted_ns=operation.return_ns,
        trusted_until_ns=asked_ns if is_over else trusted_until_ns(operation, drift),
    )


def _ended_by(
    operation: Operation, found: dict[str, Hold], by_session: dict[str, list[Hold]]
) -> Iterable[Hold]:
    """Return the holds that an operation ends if it has an effect."""
    if operation.kind in RELEASES:
        hold = found.get(operation.arguments["hold"])
        return () if hold is None else (hold,)
    if operation.kind == "session-close":
        return by_session.get(operation.arguments["session"], ())
    if operation.kind == "force-release":
        return [hold for hold in found.values() if hold.name == operation.name and hold.kind == "lock"]
    return ()
