"""Commands of a principal: what belongs to another one is to them as if it never was.

That is decided here, before a command looks at the session or the hold that it names: for commands that come
one by one, and for those that a stream has numbered, which are of its session's principal, or of who sends
them if the session is nobody's. What finds holds and sessions by something else decides it there: by a value
(`values`), in a transaction (`transactions`), in a frame of a stream (`frames`).
Whoever asks through a node without principals may use whatever id it knows.
"""

from collections.abc import Callable
from typing import Any, Final, get_args

from lockstate.rules.checks import invalid
from lockstate.rules.effects import Effects
from lockstate.rules.refusals import LEASE_EXPIRED, SESSION_EXPIRED
from lockstate.tables.principals import EVERYBODY, NOBODY
from lockstate.words import limits
from lockstate.words.commands.admin import SetQuota
from lockstate.words.commands.entries import Command, OfSomebody, OnBehalf
from lockstate.words.commands.holds import Acquisition
from lockstate.words.commands.sessions import OpenSession
from lockstate.words.commands.streams import Numbered
from lockstate.words.events import EventKind
from lockstate.words.ids import NO_SESSION
from lockstate.words.refusals import Refused
from lockstate.words.results import QuotaSet, Result
from lockstate.words.settings import Quota

_ACQUISITIONS: Final = frozenset(get_args(Acquisition))
_OF_A_HOLD: Final = frozenset(
    [
        command
        for command in get_args(OfSomebody)
        if "hold_id" in command.__struct_fields__ and command not in _ACQUISITIONS
    ]
)
"""The classes of commands that name a hold of the client."""
_SET: Final = QuotaSet()


def on_behalf(principal: str, command: Command) -> Command:
    """Return a command as a principal asks it: as it is if nobody is known to ask."""
    if not principal:
        return command
    assert isinstance(command, OfSomebody), "a principal asks for what clients ask for"
    return OnBehalf(principal, command)


class OnBehalfOf:
    """Applies commands of principals to one state."""

    def __init__(self, effects: Effects) -> None:
        self._state = effects.state
        self._effects = effects

    def apply(self, command: OnBehalf, act: Callable[[], Result]) -> Result:
        """Do `act`, which applies the command in it, for the principal that asks."""
        principals = self._state.principals
        # Who has something was looked at when it got that.
        refused = None if command.principal in principals.usage else _check_principal(command.principal)
        if refused is not None:
            return refused
        principals.asking = command.principal
        result = self.act(command.command, act)
        principals.asking = NOBODY
        return result

    def act(self, command: Any, act: Callable[[], Result]) -> Result:
        """Do `act`, which applies a command, for the principal that asks already.

        Whose a new session is, or a new hold without one, must be known before it is there.
        """
        principals = self._state.principals
        refused = self._refuse_foreign(command)
        if refused is not None:
            return refused
        made = _made_by(command)
        if not made or made in principals.rows or self._is_there(made):
            return act()
        principals.put(made, principals.asking)
        result = act()
        if not self._is_there(made):
            principals.drop(made)
        return result

    def set_quota(self, command: SetQuota) -> Result:
        """Give a principal another quota, or none."""
        principals = self._state.principals
        principal, quota, reason = command.principal, command.quota, command.reason
        refused = None if principal == EVERYBODY else _check_principal(principal)
        refused = refused or limits.check_text("reason", reason, limits.REASON_BYTES_MAX)
        if refused is None and quota is not None:
            refused = _check_quota(quota)
            if refused is None and principal not in principals.quotas:
                refused = limits.check_count(len(principals.quotas), limits.QUOTAS_COUNT_MAX, "quotas")
        if refused is not None:
            return refused
        if quota != principals.quotas.get(principal):
            principals.set_quota(principal, quota)
            kind = EventKind.QUOTA_REMOVED if quota is None else EventKind.QUOTA_SET
            self._effects.tell_set(kind, quota, reason, principal=principal)
        return _SET

    def _is_there(self, record_id: str) -> bool:
        state: Any = self._state  # an id of no kind yet
        return record_id in state.sessions or record_id in state.holds or record_id in state.tickets

    def _refuse_foreign(self, command: Any) -> Refused | None:
        """Refuse a command that names what belongs to another principal."""
        is_foreign = self._state.principals.is_foreign
        kind = command.__class__
        if kind in _OF_A_HOLD:
            return LEASE_EXPIRED if is_foreign(self._lease_of(command.hold_id)) else None
        names_none = kind is OpenSession or kind is Numbered  # of a frame its stream says what is wrong
        session_id = NO_SESSION if names_none else getattr(command, "session_id", NO_SESSION)
        return SESSION_EXPIRED if session_id and is_foreign(session_id) else None

    def _lease_of(self, hold_id: str) -> str:
        """Return the id under which stands whose a hold is."""
        state: Any = self._state
        hold = state.holds.get(hold_id)
        return hold_id if hold is None else hold.session_id or hold_id


def _made_by(command: Any) -> str:
    """Return the id of what a command makes that a principal has: a session, or a hold without one."""
    if command.__class__ is OpenSession:
        return str(command.session_id)
    if command.__class__ in _ACQUISITIONS and not command.session_id:
        return str(command.hold_id)
    return ""


def _check_principal(principal: str) -> Refused | None:
    """Refuse what cannot be the name of a principal."""
    if not principal or principal == EVERYBODY:
        return invalid(f"principal: must be 1 to {limits.PRINCIPAL_BYTES_MAX} bytes, and not '*'")
    return limits.check_text("principal", principal, limits.PRINCIPAL_BYTES_MAX)


def _check_quota(quota: Quota) -> Refused | None:
    """Refuse numbers that mean nothing."""
    for what in quota.__struct_fields__:
        number: int | None = getattr(quota, what)
        refused = None if number is None else limits.check_range(what, number, limits.QUOTA_MAX)
        if refused is not None:
            return refused
    return None
