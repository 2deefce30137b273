"""The log lines of what the audit keeps: who got what, how it ended, who ended it by force.

Every node applies every entry, so only the leader writes them. What people may have to look into is told at
the level info: what operators did, and expiries. What an operator did to others always has its line, and
nobody can use up the lines for it by doing something harmless very often: all else at this level has a number
of lines in each minute, for each principal. So has a resize, for which the right to acquire is enough. The
rest is for who asks for debug. Owners, names and reasons come from clients, so they are quoted. No line has a
session id or a hold id: they are secrets.
"""

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from lockstate.tables.happened import told_in
from lockstate.tables.owners import shown_owner
from lockstate.words.events import OF_NODES, OF_OPERATORS, OF_SETTINGS, Event, EventKind
from lockstate.words.kinds import HoldKind

logger = logging.getLogger(__name__)

PERIOD_S: Final = 60.0
"""Seconds after which what had no line of its own is summed up in one."""
TOLD_MAX: Final = {
    EventKind.EXPIRED: 10,
    EventKind.SESSION_EXPIRED: 10,
    **dict.fromkeys(sorted(OF_OPERATORS), 100),
}
"""How many of a kind have lines of their own in a period, at info, for one principal.

Clients that let leases expire by habit would fill a disk."""
PRINCIPALS_MAX: Final = 10
"""For how many principals together there are so many lines of a kind."""
OF_AN_ACT_MAX: Final = 16
"""How many holders of one name, or holds of one session, have lines of their own if one act ends more.

The others are counted in one line: a line for each would stop the leader for seconds."""
OF_AN_ENTRY_MAX: Final = 1000
"""How many lines one entry has, for the same reason; the others are counted in one, too."""

_NEWS: Final = frozenset(TOLD_MAX)
_OF_VALUES: Final = OF_SETTINGS | OF_NODES

_LINES: Final[dict[EventKind, str]] = {
    EventKind.GRANTED: "event=granted %s",
    EventKind.RELEASED: "event=released %s",
    EventKind.EXPIRED: "event=expired %s",
    EventKind.FORCED: "event=forced %s",
    EventKind.HANDED_OVER: "event=handed-over %s",
    EventKind.REVOKED: "event=revoked %s",
    EventKind.REVOCATION_WITHDRAWN: "event=revocation-withdrawn %s",
    EventKind.PUT_OFF: "event=put-off %s",
    EventKind.CONVERTED: "event=converted %s",
    EventKind.ELECTED: "event=elected %s",
    EventKind.RESIGNED: "event=resigned %s",
    EventKind.SESSION_EXPIRED: "event=session-expired %s",
    EventKind.SESSION_FORCED: "event=session-forced %s",
    EventKind.WAIT_FORCED: "event=wait-forced %s",
    EventKind.DELAY_LIFTED: "event=delay-lifted %s",
    EventKind.FENCE_FORGOTTEN: "event=fence-forgotten %s",
    EventKind.RATE_LIMIT_FORGOTTEN: "event=rate-limit-forgotten %s",
    EventKind.RESIZED: "event=resized %s",
    EventKind.QUOTA_SET: "event=quota-set %s",
    EventKind.QUOTA_REMOVED: "event=quota-removed %s",
    EventKind.NAMESPACE_SET: "event=namespace-set %s",
    EventKind.NAMESPACE_REMOVED: "event=namespace-removed %s",
    EventKind.FROZEN: "event=frozen %s",
    EventKind.THAWED: "event=thawed %s",
    EventKind.MEMBER_ADD_ASKED: "event=member-add-asked %s",
    EventKind.MEMBER_MOVE_ASKED: "event=member-move-asked %s",
    EventKind.MEMBER_REMOVE_ASKED: "event=member-remove-asked %s",
    EventKind.TRANSFER_ASKED: "event=transfer-asked %s",
    EventKind.RULES_HELD: "event=rules-held %s",
    EventKind.RULES_RELEASED: "event=rules-released %s",
    EventKind.LEADER_PREFERRED: "event=leader-preferred %s",
    EventKind.PREFERENCE_ENDED: "event=preference-ended %s",
    EventKind.RESTORED: "event=restored %s",
}
"""All that is audited: neither who begins to wait nor who gives up."""


class AuditLog:
    """Writes the lines of one node. `now_s` is a clock in seconds that never goes back."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._ends_s = 0.0
        self._news: Counter[EventKind] = Counter()
        """How many of a kind might have had lines of their own in this period."""
        self._told: Counter[tuple[EventKind, str]] = Counter()
        """How many had one: of a kind for a principal, and of a kind for all together."""

    def tell(self, events: Sequence[Event]) -> None:
        """Write the lines of one entry's events. Cheap when there are none to write: grants are many."""
        if not logger.isEnabledFor(logging.INFO):
            return
        if logger.isEnabledFor(logging.DEBUG):
            told = [event for event in events if event.kind in _LINES]
        else:
            told = [one for one in told_in(events) if type(one) is Event and one.kind in _NEWS]
        if told:
            self._write(told)

    def look(self) -> None:
        """Sum up the period if it is over. Called now and then."""
        if self._news and self._now_s() >= self._ends_s:
            self._sum_up()

    def _write(self, events: Sequence[Event]) -> None:
        self.look()
        acts = _Acts(events)
        for event in events:
            if event.kind not in _NEWS:
                is_told = False
            elif event.concerns_others and event.kind is not EventKind.RESIZED:
                is_told = acts.has_line(event)
            else:
                is_told = self._has_line(event)
            if is_told:
                logger.info(_LINES[event.kind], _said(event))
            elif logger.isEnabledFor(logging.DEBUG):
                logger.debug(_LINES[event.kind], _said(event))
        for line in acts.summary():
            logger.info(line)

    def _has_line(self, event: Event) -> bool:
        """Whether something that is nobody's concern but its principal's has a line in this period."""
        if not self._news:
            self._ends_s = self._now_s() + PERIOD_S
        kind, told_max = event.kind, TOLD_MAX[event.kind]
        self._news[kind] += 1
        mine, every = (kind, event.principal), (kind, _EVERYBODY)
        if self._told[every] >= told_max * PRINCIPALS_MAX or self._told[mine] >= told_max:
            return False
        self._told[mine] += 1
        self._told[every] += 1
        return True

    def _sum_up(self) -> None:
        more = {kind: self._news[kind] - self._told[kind, _EVERYBODY] for kind in TOLD_MAX}
        if any(more.values()):
            logger.info(
                "event=ended-more expired=%d session_expired=%d forced=%d for_s=%d",
                more[EventKind.EXPIRED],
                more[EventKind.SESSION_EXPIRED],
                sum([more[kind] for kind in OF_OPERATORS]),
                PERIOD_S,
            )
        self._news.clear()
        self._told.clear()


_EVERYBODY: Final = "*"
"""In the place of a principal: of all together. Nobody can have this name."""


class _Acts:
    """What operators did to others in one entry: all of it is told, but not each of very many in one line.

    The holds of a session that was ended are one act with it, and so are the holders of one name that were
    ended for one reason.
    """

    def __init__(self, events: Iterable[Event]) -> None:
        self._sessions = {event.session_id for event in events if event.kind is EventKind.SESSION_FORCED}
        self._counts: Counter[tuple[str, ...]] = Counter()
        self._lines = self._more = 0

    def has_line(self, event: Event) -> bool:
        """Count an event; return whether it has a line of its own."""
        field, text = "name", event.name
        if event.kind is EventKind.FORCED and event.session_id in self._sessions:
            field, text = "owner", shown_owner(event.owner, event.session_id)
        act = event.kind.value, field, text, event.by, event.reason
        self._counts[act] += 1
        if self._counts[act] > OF_AN_ACT_MAX:
            return False
        if self._lines >= OF_AN_ENTRY_MAX:
            self._more += 1
            return False
        self._lines += 1
        return True

    def summary(self) -> Iterable[str]:
        """Yield the lines that count what had none."""
        for (kind, field, text, by, reason), count in self._counts.items():
            if count > OF_AN_ACT_MAX:
                tail = f"{_by(by)} reason={reason!r}"
                yield f"event=acts-more act={kind} {field}={text!r} count={count - OF_AN_ACT_MAX}{tail}"
        if self._more:
            yield f"event=acts-more count={self._more}"


def _by(principal: str) -> str:
    return f" by={principal!r}" if principal else ""


def _said(event: Event) -> str:
    """Return what a line says of an event, its kind apart. A session has nothing but its owner."""
    owner = shown_owner(event.owner, event.session_id)
    reason = f" reason={event.reason!r}" if event.reason or event.kind in OF_OPERATORS else ""
    reason += f" principal={event.principal!r}" if event.principal else ""
    reason += _by(event.by)
    match event.kind:
        case EventKind.SESSION_EXPIRED | EventKind.SESSION_FORCED:
            return f"owner={owner!r} revision={event.revision}{reason}"
        case EventKind.DELAY_LIFTED:
            return f"kind={event.of} name={event.name!r} revision={event.revision}{reason}"
        case EventKind.RESIZED:
            return f"name={event.name!r} limit={event.permits} revision={event.revision}{reason}"
        case kind if kind in _OF_VALUES:
            name = f"name={event.name!r} " if event.name else ""
            value = f" value={event.value!r}" if event.value else ""
            return f"{name}revision={event.revision}{value}{reason}"
        case EventKind.FROZEN | EventKind.THAWED:
            return f"name={event.name!r} revision={event.revision}{reason}"
        case EventKind.RULES_HELD | EventKind.RULES_RELEASED:
            return f"revision={event.revision}{reason}"
        case EventKind.RESTORED:
            return f"token={event.token} revision={event.revision}{reason}"
        case EventKind.FENCE_FORGOTTEN:
            return f"name={event.name!r} token={event.token} revision={event.revision}{reason}"
        case EventKind.RATE_LIMIT_FORGOTTEN:
            return f"name={event.name!r} revision={event.revision}{reason}"
    mode = f" mode={event.mode}" if event.of is HoldKind.LOCK else ""
    return (
        f"kind={event.of} name={event.name!r}{mode} token={event.token} owner={owner!r}"
        f" lasted_ms={event.lasted_ms} revision={event.revision}{reason}"
    )
