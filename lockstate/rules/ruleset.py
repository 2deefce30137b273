"""All rules of one state, made and tied together. The catalogue says which command each carries out."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from lockstate.rules.additions import Additions
from lockstate.rules.cells import Cells
from lockstate.rules.conversions import Conversions
from lockstate.rules.effects import Effects
from lockstate.rules.elections import Elections
from lockstate.rules.frames import Frames
from lockstate.rules.freezes import Freezes
from lockstate.rules.hand_overs import HandOvers
from lockstate.rules.kinded import Kinds
from lockstate.rules.lock_parts import LockParts
from lockstate.rules.locks import Locks
from lockstate.rules.on_behalf import OnBehalfOf
from lockstate.rules.plain_locks import PlainLocks
from lockstate.rules.pleas import Pleas
from lockstate.rules.restoring import Restoring
from lockstate.rules.room import Room
from lockstate.rules.semaphores import Semaphores
from lockstate.rules.sessions import Sessions
from lockstate.rules.several import Several
from lockstate.rules.transactions import Transactions
from lockstate.rules.values import Values
from lockstate.rules.waits import Waits
from lockstate.tables.records import RequestKey
from lockstate.tables.state import State
from lockstate.words.commands.entries import OnBehalf
from lockstate.words.results import Done, Result

Act = Callable[..., Result]
"""Carries out one command: it is passed the command, and the key of its request if it may wait."""

_DONE: Final = Done()


class Ruleset:
    """The rules of one state."""

    def __init__(
        self,
        state: State,
        acts: Mapping[type, Act],
        frees: frozenset[type],
        apply: Callable[[Any, RequestKey | None], Result],
        again: Callable[[Any, RequestKey, Result, int], Result],
    ) -> None:
        """Make the rules. What carries other commands has these applied by their `acts`, or by `apply`.

        `frees` are the classes of commands that are carried out without room. `again` tells the outcome that
        a command had before as it is now.
        """
        self.state = state
        self._apply = apply
        self.effects = effects = Effects(state)
        self.cells = Cells(state, effects)
        self.kinds = Kinds(effects)
        self.pleas = Pleas(effects, self.kinds)
        self.hand_overs = HandOvers(effects, self.pleas.pass_on)
        self.freezes = Freezes(effects)
        self.sessions = Sessions(effects, self.cells, self.pleas.end, self.pleas.ask, self.freezes.end)
        self.restoring = Restoring(effects, self.sessions.end)
        self.locks = Locks(effects)
        self.lock_parts = LockParts(effects, self.locks, self.sessions)
        self.transactions = Transactions(state, self.cells, self.lock_parts)
        self.semaphores = Semaphores(effects)
        self.elections = Elections(effects)
        self.several = Several(effects)
        self.conversions = Conversions(effects)
        self.additions = Additions(effects)
        self.values = Values(state, self.locks.release, self.sessions.renew)
        self.plain_locks = PlainLocks(state, effects, self.locks, self.values.release)
        self.waits = Waits(effects)
        self.principals = OnBehalfOf(effects)
        self.room = Room(
            effects, self.sessions.check_room, self.cells.check_room, self.transactions.check_room
        )
        self.frames = Frames(effects, self.plain_locks, acts, frees, self._apply_owned, again)

    def on_behalf(self, command: OnBehalf) -> Result:
        """Apply the command of a principal, which carries no `request_id`."""
        return self.principals.apply(command, lambda: self._apply(command.command, None))

    def nothing(self, _: Any) -> Result:
        """Change nothing: the entry of the command did what is to be done."""
        return _DONE

    def _apply_owned(self, command: Any, key: RequestKey) -> Result:
        """Apply a command that a stream has numbered, for the principal of its session."""
        return self.principals.act(command, lambda: self._apply(command, key))
