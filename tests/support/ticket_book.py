"""What events say of queues, as somebody who follows them writes it down: each ticket comes and goes once."""

from collections.abc import Iterable

from lockstate.words.events import Event, EventKind

_LEAVES = {EventKind.GRANTED, EventKind.CONVERTED, EventKind.ELECTED, EventKind.LEFT}


class TicketBook:
    """The tickets that were told to wait, and for which names, until their end is told."""

    def __init__(self) -> None:
        self._waiting: dict[int, list[tuple[object, ...]]] = {}
        self._highest = 0
        self._is_whole = True
        """Whether every ticket was told with its number: before rules 8 they had none."""

    @property
    def numbers(self) -> list[int]:
        """The tickets whose end was not told yet."""
        return sorted(self._waiting)

    def watch(self, events: Iterable[Event]) -> str | None:
        """Write down the events of one entry; return what is wrong with them, None if nothing is."""
        newest = self._highest
        for event in events:
            what = (event.of, event.name, event.scope, event.owner)
            if event.kind is EventKind.QUEUED:
                self._is_whole = self._is_whole and event.ticket > 0
                if 0 < event.ticket <= newest:
                    return f"{event} has the number of an earlier wait"
                self._highest = max(self._highest, event.ticket)
                if event.ticket:
                    self._waiting.setdefault(event.ticket, []).append(what)
            elif event.kind in _LEAVES and event.ticket:
                known = self._waiting.get(event.ticket, [])
                if what not in known and self._is_whole:
                    return f"{event} ends a wait that was not told"
                if what in known:
                    known.remove(what)
                if not known:
                    self._waiting.pop(event.ticket, None)
        return None
