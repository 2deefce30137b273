"""Watches: each event once, in order of revision, none left out, across reconnects."""

from lab.chaos.checkers.holds import holds
from lab.chaos.checkers.violation import Violation
from lab.chaos.history import History, Operation

EventKey = tuple[object, ...]


def watches(history: History) -> list[Violation]:
    """What each watcher heard is in order, without repetition, and has each grant that clients were told of.

    After `410 compacted` a watcher begins anew: each `segment` stands for itself.
    """
    streams: dict[tuple[str, int], list[Operation]] = {}
    for operation in history.operations:
        if operation.kind in ("watch-event", "watch-connect") and operation.outcome == "ok":
            streams.setdefault((operation.client, operation.arguments["segment"]), []).append(operation)
    found = []
    for stream in streams.values():
        events = [operation for operation in stream if operation.kind == "watch-event"]
        events.sort(key=lambda operation: operation.result["index"])
        found += _order(events)
        connects = [operation for operation in stream if operation.kind == "watch-connect"]
        if connects and events:
            found += _missing(history, events, connects[0].return_ns)
    return found


def _order(events: list[Operation]) -> list[Violation]:
    """Find events that go back and such that came twice."""
    found = []
    seen: dict[EventKey, Operation] = {}
    highest: Operation | None = None
    for event in events:
        first = seen.setdefault(_key(event), event)
        if first is not event:
            found.append(_violation(first, event, f"{event.client} heard twice of {_words(event)}"))
        if highest is not None and event.result["revision"] < highest.result["revision"]:
            text = f"{event.client} heard of {_words(event)} after revision {highest.result['revision']}"
            found.append(_violation(highest, event, text))
        else:
            highest = event
    return found


def _missing(history: History, events: list[Operation], since_ns: int) -> list[Violation]:
    """Find grants that lie in the watched time, and that no event told of."""
    prefix = events[0].name
    heard = {event.result.get("token") for event in events if event.result["event"] == "granted"}
    last_revision = events[-1].result["revision"]
    return [
        _violation(
            hold.grant, events[-1], f"{events[0].client} did not hear of {hold.name}, token {hold.token}"
        )
        for hold in holds(history)
        if hold.kind == "lock"
        and hold.name.startswith(prefix)
        and hold.asked_ns > since_ns
        and hold.grant.result["revision"] < last_revision
        and hold.token not in heard
    ]


def _key(event: Operation) -> EventKey:
    return tuple(event.result.get(field) for field in ("revision", "event", "kind", "name", "owner", "token"))


def _words(event: Operation) -> str:
    result = event.result
    return f"{result['event']} of {result.get('name')}, token {result.get('token')}, at {result['revision']}"


def _violation(first: Operation, second: Operation, text: str) -> Violation:
    return Violation(checker="watch", text=text, operations=(first.id, second.id), at_ns=second.return_ns)
