"""What no cluster may answer, written into a clean history: the checker of the row must object.

A row needs no defect that a node could have, so it also shows what a real node never does by itself. Another
one is a function that changes the lines of a history in place, at a place that it finds.
"""

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from lab.chaos.history import FinalHolds, History, Holder, NodeState, Operation
from lab.chaos.teeth.audit_spoilers import AUDIT_SPOILERS
from lab.chaos.teeth.spoiler import Lines, Spoiler, every

SHORT_MS: Final = 1_000
"""A lease that is over in the end of any run."""
LONG_NS: Final = 60_000_000_000
"""Longer than anything lasts that is not kept for the whole run."""


def _copy(lines: Lines, operation: Operation, **changes: Any) -> Operation:
    """Add an operation that is like another one, but for `changes`; dictionaries are merged."""
    number = max(line.id for line in lines if isinstance(line, Operation))
    merged = {
        key: getattr(operation, key) | value if isinstance(value, dict) else value
        for key, value in changes.items()
    }
    copy = msgspec.structs.replace(operation, id=number + 1, **merged)
    lines.append(copy)
    return copy


def _later(lines: Lines, operation: Operation, **changes: Any) -> Operation:
    """Add an operation that is like another one, but when all of its kind must be over."""
    call_ns = History(lines).end_ns + LONG_NS
    return_ns = call_ns + operation.return_ns - operation.call_ns
    return _copy(lines, operation, call_ns=call_ns, return_ns=return_ns, **changes)


def _released(lines: Lines, *, before: Operation) -> Iterator[Operation]:
    """Yield the grants of a lock whose release was acknowledged before it was asked for something else."""
    for release in every(lines, "release", name=before.name):
        if release.return_ns < before.call_ns:
            for grant in every(lines, "acquire", name=before.name):
                if grant.result["hold"] == release.arguments["hold"]:
                    yield grant


def _granted_twice(lines: Lines) -> None:
    grant = next(every(lines, "acquire"))
    _copy(lines, grant, client="somebody-else", result={"hold": "another"})


def _nodes_differ(lines: Lines) -> None:
    last = next(line for line in reversed(lines) if isinstance(line, NodeState))
    last.digest = "0" * 16


def _stale_read(lines: Lines) -> None:
    look, grant = next(
        (look, grant) for look in every(lines, "look") for grant in _released(lines, before=look)
    )
    _copy(lines, grant, outcome="unknown", lost=1, arguments={"owner": "lost"})
    look.result["holders"] = [{"token": grant.result["token"], "owner": grant.arguments["owner"]}]


def _refused_for_ever(lines: Lines) -> None:
    refusal = next(every(lines, "acquire", outcome="refused", code="lock-held"))
    _later(lines, refusal, result={"holders": []})


def _lost_for_ever(lines: Lines) -> None:
    refusal = next(every(lines, "acquire", outcome="refused", code="lock-held"))
    _copy(lines, refusal, outcome="unknown", code="timeout", lost=1, arguments={"owner": "lost"})
    _refused_for_ever(lines)


def _served_late(lines: Lines) -> None:
    grant = next(item for item in every(lines, "acquire", bound="") if item.arguments.get("wait_ms"))
    grant.return_ns += LONG_NS


def _held_in_the_end(lines: Lines) -> None:
    listing = next(line for line in lines if isinstance(line, FinalHolds))
    grant = next(item for item in every(lines, "acquire") if item.arguments.get("ttl_ms", LONG_NS) < SHORT_MS)
    token, owner = grant.result["token"], grant.arguments["owner"]
    listing.holders.append(Holder(name=grant.name, owner=owner, token=token))


def _renewed_late(lines: Lines) -> None:
    _later(lines, next(every(lines, "renew")))


def _kept_alive_late(lines: Lines) -> None:
    _later(lines, next(every(lines, "session-keepalive")))


def _told_twice(lines: Lines) -> None:
    event = next(every(lines, "watch-event"))
    _copy(lines, event, result={"index": event.result["index"] + 1})


def _ends_and_grants(lines: Lines) -> Iterator[tuple[Operation, Operation]]:
    """Yield each release of which a watcher heard, as of its grant before, and the next grant of the name."""
    granted: set[tuple[str, int]] = set()
    ended: dict[tuple[str, str], Operation] = {}
    for event in every(lines, "watch-event"):
        place, hold = (event.client, event.result["name"]), (event.client, event.result["token"])
        if event.result["event"] == "released" and hold in granted:
            ended[place] = event
        elif event.result["event"] == "granted":
            granted.add(hold)
            if place in ended:
                yield ended.pop(place), event


def _end_untold(lines: Lines) -> None:
    lines.remove(next(_ends_and_grants(lines))[0])


def _other_end_told(lines: Lines) -> None:
    next(_ends_and_grants(lines))[0].result["event"] = "expired"


def _grant_told_first(lines: Lines) -> None:
    end, grant = next(_ends_and_grants(lines))
    places = [{field: event.result[field] for field in ("revision", "index")} for event in (end, grant)]
    end.result, grant.result = grant.result | places[0], end.result | places[1]


def _limited_for_nothing(lines: Lines) -> None:
    _later(lines, next(item for item in every(lines, "take") if not item.result["allowed"]))


def _queues(lines: Lines) -> Iterator[tuple[Operation, dict[str, Any]]]:
    """Yield reads of a queue, each with a waiter that it shows and that the next read shows, too."""
    before: dict[str, set[str]] = {}
    for read in every(lines, "queue"):
        for item in read.result["queue"]:
            if item["owner"] in before.get(read.name, ()):
                yield read, item
        before[read.name] = {item["owner"] for item in read.result["queue"]}


def _waiter_left_out(lines: Lines) -> None:
    read, item = next(_queues(lines))
    read.result["queue"].remove(item)


def _waiter_made_up(lines: Lines) -> None:
    read, item = next(_queues(lines))
    read.result["queue"].append(item | {"owner": "nobody"})


def _cell_read_stale(lines: Lines) -> None:
    writes = every(lines, "cell-write")
    old, new = next(
        (old, new)
        for old in writes
        for new in every(lines, "cell-write", name=old.name)
        if old.return_ns < new.call_ns
    )
    read = next(item for item in every(lines, "cell-read", name=old.name) if new.return_ns < item.call_ns)
    read.result["value"] = old.arguments["value"]


def _cell_lost_update(lines: Lines) -> None:
    exchange = next(item for item in every(lines, "cell-write") if "expected" in item.arguments)
    _copy(lines, exchange, client="somebody-else", arguments={"value": "another"})


SPOILERS: Final = (
    Spoiler("granted-twice", "two clients are granted one lock with one token", "tokens", _granted_twice),
    Spoiler("nodes-differ", "a node ends in another state", "equal-nodes", _nodes_differ),
    Spoiler(
        "stale-read",
        "a request is lost, and a read shows the token of a hold that was released before",
        "linearizability",
        _stale_read,
    ),
    Spoiler("refused-for-ever", "a lock is refused for long when nobody has it", "late", _refused_for_ever),
    Spoiler("lost-for-ever", "so it is, and a request for it was lost long ago", "late", _lost_for_ever),
    Spoiler("served-late", "a waiter is served long after the lock was free", "late", _served_late),
    Spoiler(
        "held-in-the-end", "a hold whose lease was over is in the final listing", "late", _held_in_the_end
    ),
    Spoiler("renewed-late", "a lease is renewed long after its end", "late", _renewed_late),
    Spoiler("limited-for-nothing", "a rate limit refuses what has room", "rates", _limited_for_nothing),
    Spoiler("waiter-left-out", "a read of a queue leaves a waiter out", "queue-reads", _waiter_left_out),
    Spoiler("waiter-made-up", "a read of a queue shows who never asked", "queue-reads", _waiter_made_up),
    Spoiler("cell-read-stale", "a read shows what was overwritten", "linearizability", _cell_read_stale),
    Spoiler("cell-update-lost", "two exchange the same value", "linearizability", _cell_lost_update),
    Spoiler("told-twice", "a watcher hears of one event twice", "watch", _told_twice),
    Spoiler("end-untold", "a watcher does not hear of an acknowledged release", "watch", _end_untold),
    Spoiler("other-end-told", "a watcher hears that a released hold expired", "watch", _other_end_told),
    Spoiler("grant-told-first", "a grant is told before the end that made room", "watch", _grant_told_first),
    Spoiler("kept-alive-late", "and so is a session", "late", _kept_alive_late),
    *AUDIT_SPOILERS,
)
