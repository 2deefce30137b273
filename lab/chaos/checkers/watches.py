"""Watches: each event once, in order, none left out, across reconnects; grants and ends alternate."""

from typing import Final

from lab.chaos.checkers.holds import FOREVER_NS, RELEASES, Hold, conflict, holds
from lab.chaos.checkers.violation import Violation
from lab.chaos.history import History, Operation

EventKey = tuple[object, ...]

ENDS: Final = ("released", "expired", "forced")


def watches(history: History) -> list[Violation]:
    """What each watcher heard is in order, without repetition, and has each change that clients were told of.

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
        found += _replayed(events)
        connects = [operation for operation in stream if operation.kind == "watch-connect"]
        if connects and events:
            prefix = events[0].name
            known = [item for item in holds(history) if item.kind == "lock" and item.name.startswith(prefix)]
            found += _missing(known, events, connects[0].return_ns)
            found += _wrong_ends(history, known, events)
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


def _replayed(events: list[Operation]) -> list[Violation]:
    """Find grants that were told before the end that made room, and ends of what nobody had any more.

    What was granted before the watch began is not known: only its end may be heard.
    """
    found = []
    held: dict[str, dict[int, Operation]] = {}
    first: dict[str, int] = {}
    for event in events:
        name, token = event.result.get("name", ""), event.result.get("token", 0)
        here = held.setdefault(name, {})
        if event.result["event"] == "granted":
            first.setdefault(name, token)
            for other in here.values():
                if other.result["token"] != token and conflict(_mode(other), _mode(event)):
                    text = f"{event.client} heard of {_words(event)} while {other.result['token']} had it"
                    found.append(_violation(other, event, text))
            here[token] = event
        elif event.result["event"] in ENDS:
            known = here.pop(token, None)
            if known is None and token >= first.get(name, FOREVER_NS):
                text = f"{event.client} heard of {_words(event)}, which nobody had"
                found.append(_violation(event, event, text))
    return found


def _missing(known: list[Hold], events: list[Operation], since_ns: int) -> list[Violation]:
    """Find grants that lie in the watched time, and that no event told of."""
    heard = {event.result.get("token") for event in events if event.result["event"] == "granted"}
    last_revision = events[-1].result["revision"]
    return [
        _violation(
            hold.grant, events[-1], f"{events[0].client} did not hear of {hold.name}, token {hold.token}"
        )
        for hold in known
        if hold.asked_ns > since_ns
        and hold.grant.result["revision"] < last_revision
        and hold.token not in heard
    ]


def _wrong_ends(history: History, known: list[Hold], events: list[Operation]) -> list[Violation]:
    """Find ends of which something else was told than their clients were, or nothing, or too early."""
    granted = {event.result["token"] for event in events if event.result["event"] == "granted"}
    ends = {event.result["token"]: event for event in events if event.result["event"] in ENDS}
    released = {
        operation.arguments["hold"]: operation
        for operation in history.operations
        if operation.kind in RELEASES and operation.outcome == "ok"
    }
    found = []
    for hold in known:
        end, release = ends.get(hold.token), released.get(hold.key)
        if end is None:
            is_over = release is not None and release.result["revision"] < events[-1].result["revision"]
            if hold.token in granted and release is not None and is_over:
                text = f"{events[0].client} did not hear that {hold.name}, token {hold.token}, was released"
                found.append(_violation(release, events[-1], text))
        elif release is not None and end.result["event"] == "expired":
            found.append(_violation(release, end, f"{end.client} heard of {_words(end)}: it was released"))
        elif end.result["event"] == "released" and hold.let_go_ns == FOREVER_NS:
            found.append(_violation(hold.grant, end, f"{end.client} heard of {_words(end)}: nobody did it"))
        elif end.result["event"] == "expired" and end.return_ns < min(hold.trusted_until_ns, hold.let_go_ns):
            found.append(_violation(hold.grant, end, f"{end.client} heard of {_words(end)}, too early"))
    return found


def _mode(event: Operation) -> str:
    return str(event.result.get("mode", "exclusive"))


def _key(event: Operation) -> EventKey:
    return tuple(event.result.get(field) for field in ("revision", "event", "kind", "name", "owner", "token"))


def _words(event: Operation) -> str:
    result = event.result
    return f"{result['event']} of {result.get('name')}, token {result.get('token')}, at {result['revision']}"


def _violation(first: Operation, second: Operation, text: str) -> Violation:
    return Violation(checker="watch", text=text, operations=(first.id, second.id), at_ns=second.return_ns)
