"""What must be equal in an answer and in what the model says: all but wording, hints, digests in owners."""

from typing import Any, Final

import msgspec

from lockstate.words.events import Event
from lockstate.words.limits import HOLDERS_SHOWN_MAX
from lockstate.words.modes import Mode, Scope
from lockstate.words.refusals import CycleView, Reason, Refused
from lockstate.words.results import (
    CellRead,
    ForceReleased,
    Granted,
    HandedOver,
    NumberedDone,
    Revoked,
    RulesHeld,
    SessionForced,
    SessionKept,
    Transacted,
    WaitsForced,
)
from lockstate.words.views import (
    CellView,
    ElectionView,
    HolderView,
    HoldView,
    LockView,
    SemaphoreView,
    SessionView,
    WaiterView,
)

DEADLOCKS: Final = frozenset({Reason.DEADLOCK, Reason.CONVERSION_DEADLOCK})


def plain(value: Any) -> Any:  # noqa: C901, PLR0912 - one case for each
    """Return a result or view without what the model leaves open. Which cycle is named is one of these."""
    match value:
        case HoldView():
            owner, name = _plain_owner(value.owner), _plain_name(value.session_name)
            return msgspec.structs.replace(value, owner=owner, session_name=name)
        case WaiterView():
            owner, name = _plain_owner(value.owner), _plain_name(value.session_name)
            return msgspec.structs.replace(value, owner=owner, session_name=name, ticket=0)
        case HolderView() | CycleView():
            return msgspec.structs.replace(value, owner=_plain_owner(value.owner))
        case CellView():
            return msgspec.structs.replace(value, owner=_plain_owner(value.owner))
        case CellRead():
            return CellRead(plain(value.cell))
        case Transacted():
            return msgspec.structs.replace(value, results=tuple([plain(part) for part in value.results]))
        case Event():
            # Here an owner that was not given is empty, in the model it is told as it is shown.
            owner = _plain_owner(value.owner or "hold-")
            return msgspec.structs.replace(value, owner=owner, ticket=bool(value.ticket))
        case LockView() | SemaphoreView():
            holders, queue = plain(value.holders), plain(value.queue)
            return msgspec.structs.replace(value, holders=holders, queue=queue)
        case ElectionView():
            return msgspec.structs.replace(value, leader=plain(value.leader), queue=plain(value.queue))
        case SessionView():
            holds, tickets = plain(value.holds), plain(value.tickets)
            owner, name = _plain_owner(value.owner), _plain_name(value.session_name)
            return msgspec.structs.replace(
                value, owner=owner, holds=holds, tickets=tickets, session_name=name
            )
        case Granted():
            owner = _plain_owner(value.owner)
            if value.locks:
                return msgspec.structs.replace(value, owner=owner, mode=Mode.EXCLUSIVE, scope=Scope.NODE)
            return msgspec.structs.replace(value, owner=owner)
        case Refused():
            # Of many that are in the way it is not promised which are named.
            holders = plain(value.holders) if len(value.holders) < HOLDERS_SHOWN_MAX else ()
            return msgspec.structs.replace(value, detail="", retry_after_ms=0, holders=holders, cycle=())
        case RulesHeld():
            # The replay knows no newer rules, to which an upgraded cluster may have moved.
            return msgspec.structs.replace(value, rules=0)
        case HandedOver():
            return msgspec.structs.replace(value, owner=_plain_owner(value.owner))
        case SessionForced():
            return msgspec.structs.replace(value, owner=_plain_owner(value.owner))
        case Revoked():
            return Revoked(tuple([plain(holder) for holder in value.holders]), value.left)
        case SessionKept():
            revoked = tuple([plain(holder) for holder in value.revoked])
            return msgspec.structs.replace(value, revoked=revoked)
        case ForceReleased():
            return ForceReleased(plain(value.released))
        case WaitsForced():
            return WaitsForced(plain(value.waits), value.left)
        case NumberedDone():
            return NumberedDone(plain(value.results), plain(value.refused))
        case tuple() | list():
            return tuple([plain(item) for item in value])
    return value


def _plain_owner(owner: str) -> str:
    kind, dash, _ = owner.partition("-")
    return kind + dash if kind in ("hold", "session") else owner


def _plain_name(session_name: str) -> str:
    """Return the public name of a session without its number, which the model does not know."""
    return session_name[:2]
