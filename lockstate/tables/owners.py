"""Owners as others see them, the parties that can wait for each other, and what counts as the same wish."""

import hashlib
from typing import Final

from lockstate.tables.records import Claimant, Session, Ticket
from lockstate.words.ids import NO_HOLD, HoldId, OwnerName, SessionId
from lockstate.words.kinds import HoldKind
from lockstate.words.wanted import Wanted

Party = tuple[str, str]
"""One that can wait for others: an owner within a session. A hold or ticket with a lease of its own is a
party by itself: an owner's name alone proves nothing, for many programs may give the same."""

Wish = tuple[SessionId, OwnerName, HoldKind, int, frozenset[Wanted] | Wanted]
"""What a session wants for an owner. It gets a lock or an election once, however often it asks."""

_NO_SESSION: Final = "\x00"
"""In the place of the session in a party without one: it is not printable, as every session's id is."""


_SESSION_NAME: Final = "s-"
"""What the public names of sessions begin with; their creation numbers follow."""
_DIGITS_MAX: Final = 20
"""Digits of such a number, at most."""


def public_name(kind: str, secret: str) -> str:
    """Return a name for others to see that identifies a secret id without giving it away."""
    return f"{kind}-{hashlib.blake2b(secret.encode('utf-8', 'surrogatepass'), digest_size=4).hexdigest()}"


def session_name(session: Session) -> str:
    """Return the public name of a session: it identifies the session, also later, and gives no right."""
    return f"{_SESSION_NAME}{session.order}"


def order_in(name: str) -> int:
    """Return the creation number in the public name of a session, 0 for any other text."""
    number = name.removeprefix(_SESSION_NAME)
    is_number = number != name and len(number) <= _DIGITS_MAX and number.isascii() and number.isdigit()
    return int(number) if is_number else 0


def shown_owner(owner: OwnerName, lease_id: SessionId | HoldId) -> OwnerName:
    """Return the owner as others see it: if none was given, a name made from the id of the hold."""
    return owner or OwnerName(public_name("hold", lease_id))


def party_of(record: Claimant) -> Party:
    """Return the party that a hold or a ticket belongs to; what changes a hold belongs to its party."""
    if record.session_id:
        return (record.session_id, record.owner)
    return (_NO_SESSION, own_id(record))


def wish_of(record: Claimant) -> Wish | None:
    """Return what `record` is of and for whom, in a session; None if it cannot be shared."""
    if not record.session_id or (record.permits and record.is_of_kinds):
        return None
    if isinstance(record, Ticket) and record.changes:
        return None
    locks = record.locks
    if len(locks) > 1:
        return (record.session_id, record.owner, record.kind, record.permits, frozenset(locks))
    # One lock is the same wish, however it was asked for.
    lock = locks[0] if locks else Wanted(record.name, record.mode, record.scope)
    return (record.session_id, record.owner, record.kind, record.permits, lock)


def own_id(record: Claimant) -> HoldId:
    """Return the id of the hold that `record` is, will be, or changes."""
    return (record.changes if isinstance(record, Ticket) else NO_HOLD) or record.hold_id
