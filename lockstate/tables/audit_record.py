"""What an event shows to others: in the audit, whose hashes cover it, and in watches. It has no secret.

To show anything else changes the hashes: that takes further rules (lockstate/words/versions.py).
"""

from typing import Final

import msgspec

from lockstate.tables.owners import shown_owner
from lockstate.words.events import OF_NODES, OF_SETTINGS, Event, EventKind
from lockstate.words.kinds import HoldKind
from lockstate.words.modes import Mode, Scope

Unset = msgspec.UnsetType
UNSET = msgspec.UNSET

OF_NOBODY: Final = OF_SETTINGS.union(OF_NODES) | {
    EventKind.DELAY_LIFTED,
    EventKind.FENCE_FORGOTTEN,
    EventKind.RATE_LIMIT_FORGOTTEN,
    EventKind.RESIZED,
    EventKind.FROZEN,
    EventKind.THAWED,
    EventKind.RULES_HELD,
    EventKind.RULES_RELEASED,
    EventKind.RESTORED,
}
"""Events of what no client has: they show no owner."""
_OF_NO_KIND: Final[dict[EventKind, str]] = {
    EventKind.SESSION_EXPIRED: "",
    EventKind.SESSION_FORCED: "",
    EventKind.FENCE_FORGOTTEN: "token",
    EventKind.RATE_LIMIT_FORGOTTEN: "",
    EventKind.QUOTA_SET: "value",
    EventKind.QUOTA_REMOVED: "",
    EventKind.NAMESPACE_SET: "value",
    EventKind.NAMESPACE_REMOVED: "",
    EventKind.FROZEN: "ends_in_ms",
    EventKind.THAWED: "",
    EventKind.RULES_HELD: "",
    EventKind.RULES_RELEASED: "",
    **dict.fromkeys(OF_NODES, "value"),
    EventKind.RESTORED: "token",
}
"""Events of what is neither lock, semaphore nor election, and what they tell besides what all do."""
_OF_PLEAS: Final = frozenset({EventKind.REVOKED, EventKind.PUT_OFF})
"""Events of holds that are to be given up: they say by when."""


class AuditEvent(msgspec.Struct, kw_only=True):
    """Something that happened. Times are milliseconds of cluster time, of which only differences matter.

    `number`, `chain`, `previous` and `hash` are of the audit alone: they chain its records. One that is not
    linked yet has only the first of them.
    """

    revision: int
    event: EventKind
    kind: HoldKind | Unset = UNSET
    name: str
    mode: Mode | Unset = UNSET
    scope: Scope | Unset = UNSET
    permits: int | Unset = UNSET
    owner: str
    token: int | Unset = UNSET
    value: str | Unset = UNSET
    ticket: int | Unset = UNSET
    to_token: int | Unset = UNSET
    reason: str
    at_ms: int
    lasted_ms: int
    ends_in_ms: int | Unset = UNSET
    principal: str | Unset = UNSET
    by: str | Unset = UNSET
    number: int | Unset = UNSET
    chain: int | Unset = UNSET
    previous: str | Unset = UNSET
    hash: str | Unset = UNSET


def shown(event: Event) -> AuditEvent:
    """Return an event as others see it."""
    record = AuditEvent(
        revision=event.revision,
        event=event.kind,
        name=event.name,
        owner=shown_owner(event.owner, event.session_id) if event.kind not in OF_NOBODY else "",
        reason=event.reason,
        at_ms=event.now_ms,
        lasted_ms=event.lasted_ms,
        principal=event.principal or UNSET,
        by=event.by or UNSET,
    )
    said = _OF_NO_KIND.get(event.kind)
    if said is not None:
        if said:
            setattr(record, said, getattr(event, said) or UNSET)
        return record
    record.kind = event.of
    if event.kind not in OF_NOBODY:
        record.token = event.token
    if event.ticket:
        record.ticket = event.ticket
    if event.to_token:
        record.to_token = event.to_token
    if event.kind in _OF_PLEAS:
        record.ends_in_ms = event.ends_in_ms
    _add_what_it_is_of(record, event)
    return record


def _add_what_it_is_of(record: AuditEvent, event: Event) -> None:
    """Add what is told of a hold, a wait or a delay by its kind."""
    if event.kind is EventKind.DELAY_LIFTED and event.of is HoldKind.LOCK:
        record.scope = event.scope
    elif event.of is HoldKind.LOCK:
        record.mode, record.scope = event.mode, event.scope
    elif event.of is HoldKind.SEMAPHORE:
        record.permits = event.permits
    if _tells_value(event):
        record.value = event.value


def _tells_value(event: Event) -> bool:
    """Whether an event tells what a leader says from now on, or what any other hold carries."""
    return bool(event.value) if event.of is not HoldKind.ELECTION else event.kind is EventKind.ELECTED
