"""The log lines of what the audit keeps: who got what, how it ended, who ended it by force.

Every node applies every entry, so only the leader writes them. What people may have to look into is told at
the level info, up to a number in each minute: what operators did, and expiries. All else is for who asks for
debug. Owners, names and reasons come from clients, so they are quoted. No line has a session id or a hold
id: they are secrets.
"""

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

from lockstate.tables.owners import shown_owner
from lockstate.words.results import Event, EventKind, HoldKind

logger = logging.getLogger(__name__)

PERIOD_S: Final = 60.0
"""Seconds after which what had no line of its own is summed up in one."""
_BY_OPERATORS: Final = (
    EventKind.FORCED,
    EventKind.REVOKED,
    EventKind.SESSION_FORCED,
    EventKind.WAIT_FORCED,
    EventKind.DELAY_LIFTED,
    EventKind.FENCE_FORGOTTEN,
)
"""What somebody did to others, and gave a reason for."""
TOLD_MAX: Final = {
    EventKind.EXPIRED: 10,
    EventKind.SESSION_EXPIRED: 10,
    **dict.fromkeys(_BY_OPERATORS, 100),
}
"""How many of a kind have lines of their own in a period, at info.

Clients that let leases expire by habit would fill a disk, and many holds may end at once: a line for each
would stop the leader for seconds."""

_NEWS: Final = frozenset(TOLD_MAX)

_LINES: Final[dict[EventKind, str]] = {
    EventKind.GRANTED: "event=granted %s",
    EventKind.RELEASED: "event=released %s",
    EventKind.EXPIRED: "event=expired %s",
    EventKind.FORCED: "event=forced %s",
    EventKind.REVOKED: "event=revoked %s",
    EventKind.PUT_OFF: "event=put-off %s",
    EventKind.CONVERTED: "event=converted %s",
    EventKind.ELECTED: "event=elected %s",
    EventKind.RESIGNED: "event=resigned %s",
    EventKind.SESSION_EXPIRED: "event=session-expired %s",
    EventKind.SESSION_FORCED: "event=session-forced %s",
    EventKind.WAIT_FORCED: "event=wait-forced %s",
    EventKind.DELAY_LIFTED: "event=delay-lifted %s",
    EventKind.FENCE_FORGOTTEN: "event=fence-forgotten %s",
}
"""All that is audited: neither who begins to wait nor who gives up."""


class AuditLog:
    """Writes the lines of one node. `now_s` is a clock in seconds that never goes back."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._ends_s = 0.0
        self._news: Counter[EventKind] = Counter()

    def tell(self, events: Sequence[Event]) -> None:
        """Write the lines of one entry's events. Cheap when there are none to write: grants are many."""
        if not logger.isEnabledFor(logging.INFO):
            return
        kinds = _LINES if logger.isEnabledFor(logging.DEBUG) else _NEWS
        told = [event for event in events if event.kind in kinds]
        if told:
            self._write(told)

    def look(self) -> None:
        """Sum up the period if it is over. Called now and then."""
        if self._news and self._now_s() >= self._ends_s:
            self._sum_up()

    def _write(self, events: Sequence[Event]) -> None:
        self.look()
        for event in events:
            if event.kind not in _NEWS:
                logger.debug(_LINES[event.kind], _said(event))
                continue
            if not self._news:
                self._ends_s = self._now_s() + PERIOD_S
            self._news[event.kind] += 1
            if self._news[event.kind] <= TOLD_MAX[event.kind]:
                logger.info(_LINES[event.kind], _said(event))
            elif logger.isEnabledFor(logging.DEBUG):
                logger.debug(_LINES[event.kind], _said(event))

    def _sum_up(self) -> None:
        more = {kind: max(self._news[kind] - told_max, 0) for kind, told_max in TOLD_MAX.items()}
        if any(more.values()):
            logger.info(
                "event=ended-more expired=%d session_expired=%d forced=%d for_s=%d",
                more[EventKind.EXPIRED],
                more[EventKind.SESSION_EXPIRED],
                sum([more[kind] for kind in _BY_OPERATORS]),
                PERIOD_S,
            )
        self._news.clear()


def _said(event: Event) -> str:
    """Return what a line says of an event, its kind apart. A session has nothing but its owner."""
    owner = shown_owner(event.owner, event.session_id)
    reason = f" reason={event.reason!r}" if event.kind in _BY_OPERATORS else ""
    reason += f" principal={event.principal!r}" if event.principal else ""
    reason += f" by={event.by!r}" if event.by else ""
    match event.kind:
        case EventKind.SESSION_EXPIRED | EventKind.SESSION_FORCED:
            return f"owner={owner!r} revision={event.revision}{reason}"
        case EventKind.DELAY_LIFTED:
            return f"kind={event.of} name={event.name!r} revision={event.revision}{reason}"
        case EventKind.FENCE_FORGOTTEN:
            return f"name={event.name!r} token={event.token} revision={event.revision}{reason}"
    mode = f" mode={event.mode}" if event.of is HoldKind.LOCK else ""
    return (
        f"kind={event.of} name={event.name!r}{mode} token={event.token} owner={owner!r}"
        f" lasted_ms={event.lasted_ms} revision={event.revision}{reason}"
    )
