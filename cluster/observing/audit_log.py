"""The log lines of what the audit keeps: who got what, how it ended, who ended it by force.

Every node applies every entry, so only the leader writes them. What people may have to look into is told at
the level info, up to a number for each entry: forced ends and expiries. All else is for who asks for
debug. Owners, names and reasons come from clients, so they are quoted. No line has a session id or a hold
id: they are secrets.
"""

import logging
from collections.abc import Sequence
from typing import Final

from lockstate.owners import shown_owner
from lockstate.results import Event, EventKind, HoldKind

logger = logging.getLogger(__name__)

NEWS_TOLD_MAX: Final = 100
"""In one entry. Very many holds may end at once, and a line for each would stop the leader for seconds."""

_NEWS: Final = frozenset({EventKind.EXPIRED, EventKind.SESSION_EXPIRED, EventKind.FORCED})

_LINES: Final[dict[EventKind, str]] = {
    EventKind.GRANTED: "event=granted %s",
    EventKind.RELEASED: "event=released %s",
    EventKind.EXPIRED: "event=expired %s",
    EventKind.FORCED: "event=forced %s",
    EventKind.CONVERTED: "event=converted %s",
    EventKind.ELECTED: "event=elected %s",
    EventKind.RESIGNED: "event=resigned %s",
    EventKind.SESSION_EXPIRED: "event=session-expired %s",
}
"""All that is audited: neither who begins to wait nor who gives up."""


def tell(events: Sequence[Event]) -> None:
    """Write the lines of one entry's events. Cheap when there are none to write: grants are many."""
    if not logger.isEnabledFor(logging.INFO):
        return
    kinds = _LINES if logger.isEnabledFor(logging.DEBUG) else _NEWS
    told = [event for event in events if event.kind in kinds]
    if told:
        _write(told)


def _write(events: Sequence[Event]) -> None:
    news = 0
    for event in events:
        is_news = event.kind in _NEWS
        news += is_news
        if not is_news:
            logger.debug(_LINES[event.kind], _said(event))
        elif news <= NEWS_TOLD_MAX:
            logger.info(_LINES[event.kind], _said(event))
    if news > NEWS_TOLD_MAX:
        logger.info("event=ended-more count=%d revision=%d", news - NEWS_TOLD_MAX, events[0].revision)


def _said(event: Event) -> str:
    """Return what a line says of an event, its kind apart. A session has nothing but its owner."""
    owner = shown_owner(event.owner, event.session_id)
    if event.kind is EventKind.SESSION_EXPIRED:
        return f"owner={owner!r} revision={event.revision}"
    mode = f" mode={event.mode}" if event.of is HoldKind.LOCK else ""
    reason = f" reason={event.reason!r}" if event.kind is EventKind.FORCED else ""
    return (
        f"kind={event.of} name={event.name!r}{mode} token={event.token} owner={owner!r}"
        f" lasted_ms={event.lasted_ms} revision={event.revision}{reason}"
    )
