"""What there is no room for: nodes ask here before they put into the log what would be refused there.

A refusal changes nothing, but in the log it takes as much as its command, on every node. What is refused here
the command would refuse as well at the same place in the log, unless it finds a reason before this one.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final, get_args

from lockstate.rules.effects import Effects
from lockstate.rules.holds import admission
from lockstate.tables.principals import NOBODY, lease_id_of
from lockstate.tables.records import each_lock
from lockstate.tables.requests import key_of
from lockstate.words.claims import record_name
from lockstate.words.commands.cells import PutCell, TransactCells
from lockstate.words.commands.entries import Command
from lockstate.words.commands.holds import Acquire, Acquisition, AddLocks, Campaign
from lockstate.words.commands.sessions import OpenSession
from lockstate.words.kinds import HoldKind
from lockstate.words.refusals import Reason, Refused

_NO_ROOM: Final = (Reason.OVERLOADED, Reason.QUOTA_EXCEEDED)
_ACQUISITIONS: Final = frozenset(get_args(Acquisition))


class Room:
    """Looks at one state, and changes nothing."""

    def __init__(
        self,
        effects: Effects,
        check_session: Callable[[OpenSession], Refused | None],
        check_puts: Callable[[Sequence[PutCell]], Refused | None],
        check_transaction: Callable[[TransactCells], Refused | None],
    ) -> None:
        """Sessions, writes of cells and transactions are looked at by these."""
        self._effects = effects
        self._check_session = check_session
        self._check_puts = check_puts
        self._check_transaction = check_transaction
        self._state = effects.state

    def refusal(self, command: Command, principal: str, key: tuple[str, str] | None) -> Refused | None:
        """Return the refusal of a command that a principal asks for, if there is no room for it.

        `key` is that of its request: one that has an outcome is given that.
        """
        state = self._state
        if not (state.is_tight or state.principals.quotas or state.spaces):
            return None
        if key is not None and any(
            key_of(one, key) in state.requests for one in self._askers(key, principal)
        ):
            return None
        state.principals.asking = principal
        try:
            return self._refusal(command)
        finally:
            state.principals.asking = NOBODY

    def _askers(self, key: tuple[str, str], principal: str) -> tuple[str, ...]:
        """Return of whom a request may be that this principal repeats (see `LockMachine`)."""
        return (principal, NOBODY) if principal else (NOBODY, *self._state.requests.askers_of(key))

    def _refusal(self, command: Any) -> Refused | None:
        match command:
            case PutCell():
                return _for_lack_of_room(self._check_puts((command,)))
            case TransactCells():
                return _for_lack_of_room(self._check_transaction(command))
            case OpenSession():
                return self._check_session(command)
            case AddLocks():
                return self._check_added(command)
        if command.__class__ not in _ACQUISITIONS or (command.session_id and not self._is_for_new(command)):
            return None
        return admission.check_room(self._state, None, 0, command)

    def _check_added(self, command: AddLocks) -> Refused | None:
        """Refuse more locks for a hold that lives and lacks them."""
        hold = self._state.holds.get(command.hold_id)
        if hold is None or self._state.principals.is_foreign(lease_id_of(hold)):
            return None
        had = tuple(each_lock(hold))
        return admission.check_added(
            self._state, hold, [lock.name for lock in command.locks if lock not in had]
        )

    def _is_for_new(self, command: Acquisition) -> bool:
        """Whether a session that lives asks for a new hold: nobody has it, or it is not to be shared."""
        state = self._state
        if command.session_id not in state.sessions or state.principals.is_foreign(command.session_id):
            return False
        if command.__class__ not in (Acquire, Campaign):
            return True
        kind = HoldKind.ELECTION if isinstance(command, Campaign) else HoldKind.LOCK
        several = command.locks if isinstance(command, Acquire) else ()
        lock = state.locks.get(record_name(kind, several[0].name if several else command.name))
        return lock is None or not lock.holders_count


def _for_lack_of_room(refused: Refused | None) -> Refused | None:
    """Return a refusal if there is no room. What else is wrong is for the log to tell."""
    return refused if refused is not None and refused.reason in _NO_ROOM else None
