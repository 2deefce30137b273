"""What a lock and a semaphore may answer, one operation at a time."""

from typing import Any, Final, NamedTuple

from lab.chaos.checkers.holds import conflict


class Grant(NamedTuple):
    """A hold is given; `token` is None if nobody knows it."""

    key: str
    mode: str = "exclusive"
    permits: int = 1
    token: int | None = None


class Busy(NamedTuple):
    """A request is refused because of others. Of these `tokens` are shown, but perhaps not all."""

    mode: str = "exclusive"
    permits: int = 1
    tokens: frozenset[int] = frozenset()


class End(NamedTuple):
    """A hold that is there ends: released, expired, or withdrawn with its request; `mode` if it is known."""

    key: str
    mode: str = ""


class Ghost(NamedTuple):
    """A request that nobody listens to any longer is granted: a hold whose token nobody ever saw."""

    mode: str = "exclusive"
    permits: int = 1


class Vanish(NamedTuple):
    """Such a hold ends. It may at any time: of its lease, or because its request was given up."""

    mode: str = "exclusive"
    permits: int = 1


class Gone(NamedTuple):
    """Its holder is told that a hold is over."""

    key: str


class Held(NamedTuple):
    """Its holder is told that a hold lasts."""

    key: str


class Seen(NamedTuple):
    """Somebody reads which tokens are held."""

    tokens: frozenset[int]


class Holders(NamedTuple):
    """The state of a lock or a semaphore."""

    grants: frozenset[Grant] = frozenset()
    highest_token: int = 0
    ghosts: tuple[Ghost, ...] = ()
    """In order, so that equal ones cannot be told apart."""

    @property
    def tokens(self) -> set[int | None]:
        """The tokens of all grants."""
        return {grant.token for grant in self.grants}

    def modes(self) -> list[str]:
        """Return the modes of all."""
        return [grant.mode for grant in self.grants] + [ghost.mode for ghost in self.ghosts]

    def find(self, key: str) -> Grant | None:
        """Return the hold of this key, if it is there."""
        return next((grant for grant in self.grants if grant.key == key), None)


def _without(state: Holders, ghost: Ghost) -> Holders | None:
    """Return the state with one such hold less, None if there is none."""
    if ghost not in state.ghosts:
        return None
    place = state.ghosts.index(ghost)
    return state._replace(ghosts=state.ghosts[:place] + state.ghosts[place + 1 :])


class LockModel:
    """A lock with modes: `exclusive` alone is a mutex. A hold may be granted again while it lasts.

    `has_waits` says that requests may queue: then one may be refused because of others in front of it.
    """

    initial: Final = Holders()

    def __init__(self, *, has_waits: bool = True) -> None:
        self._has_waits = has_waits

    def step(self, state: Holders, action: Any) -> Holders | None:
        """Return the state after `action`, None if it cannot be."""
        match action:
            case Grant():
                return self._grant(state, action)
            case Busy():
                return state if self._is_busy(state, action) else None
            case End(key, mode):
                grant = state.find(key)
                if grant is None or mode not in ("", grant.mode):
                    return None
                return state._replace(grants=state.grants - {grant})
            case Ghost(mode, permits):
                has_room = self._has_room(state, mode, permits)
                return state._replace(ghosts=tuple(sorted((*state.ghosts, action)))) if has_room else None
            case Vanish(mode, permits):
                return _without(state, Ghost(mode, permits))
            case Held(key):
                return state if state.find(key) else None
            case Gone(key):
                return None if state.find(key) else state
            case Seen(tokens):
                return state if self._shows(state, tokens) else None
            case _:
                raise TypeError(f"a lock knows no {action}")

    def is_read(self, action: Any) -> bool:
        """Whether `action` never changes anything."""
        return isinstance(action, Busy | Held | Gone | Seen)

    def matters(self, first: Any, second: Any) -> bool:
        """Whether `first` may be needed just before `second`, see `Model`.

        What is not listed may swap: an end makes no room for what it does not exclude, leaves nobody busy and
        no other hold gone; a grant takes room that both have in the other order, too, and does not make
        another hold end or last. A ghost that vanishes at once may as well never have been.
        """
        match first, second:
            case (Grant(), Grant()):
                return self._grants_in_order(first, second)
            case (End(), Grant()):
                return first.key == second.key or self._makes_room(first, second)
            case (End() | Vanish(), Ghost()) | (Vanish(), Grant()):
                return self._makes_room(first, second)
            case (Grant() | Ghost(), Busy()):
                return self._takes_room(first, second) or (
                    isinstance(first, Grant) and first.token in second.tokens
                )
            case (Grant(), End() | Held() | Gone()) | (End(), Gone()) | (Held(), End()) | (Gone(), Grant()):
                return bool(first.key == second.key)
            case (Grant(), Seen(tokens)):
                return first.token in tokens  # else it is never seen so
            case (End() | Vanish(), Seen()) | (Busy(), End() | Vanish()):
                return True
            case (Seen(), Grant() | End() | Ghost() | Vanish()):
                return True
            case _:
                return False

    def is_lost(self, state: Holders, action: Any) -> bool:
        """Whether `action` never can be any more: tokens only grow."""
        return (
            isinstance(action, Grant)
            and action.token is not None
            and action.token <= state.highest_token
            and action not in state.grants
        )

    def _grants_in_order(self, first: Grant, second: Grant) -> bool:
        """Whether the order of two grants matters: it is that of their tokens."""
        if first.key == second.key:
            return True
        return first.token is not None and second.token is not None and first.token <= second.token

    def _makes_room(self, end: End | Vanish, grant: Grant | Ghost) -> bool:
        return not end.mode or conflict(end.mode, grant.mode)

    def _takes_room(self, grant: Grant | Ghost, busy: Busy) -> bool:
        return self._has_waits or conflict(grant.mode, busy.mode)

    def _grant(self, state: Holders, grant: Grant) -> Holders | None:
        if grant in state.grants:
            return state
        if state.find(grant.key) or not self._has_room(state, grant.mode, grant.permits):
            return None
        if grant.token is not None and grant.token <= state.highest_token:
            return None
        highest_token = max(state.highest_token, grant.token or 0)
        return Holders(state.grants | {grant}, highest_token, state.ghosts)

    def _is_busy(self, state: Holders, busy: Busy) -> bool:
        if not busy.tokens <= state.tokens:
            return False
        if self._has_waits:
            return bool(state.grants or state.ghosts)
        return not self._has_room(state, busy.mode, busy.permits)

    def _shows(self, state: Holders, tokens: frozenset[int]) -> bool:
        """Whether these are the tokens of all holds. A ghost would show one that was never seen."""
        return state.tokens == tokens and not state.ghosts

    def _has_room(self, state: Holders, mode: str, permits: int) -> bool:
        del permits
        return not any(conflict(each, mode) for each in state.modes())


class SemaphoreModel(LockModel):
    """Permits up to a limit."""

    def __init__(self, limit: int, *, has_waits: bool = True) -> None:
        super().__init__(has_waits=has_waits)
        self._limit = limit

    def _has_room(self, state: Holders, mode: str, permits: int) -> bool:
        del mode
        taken = sum(grant.permits for grant in state.grants) + sum(ghost.permits for ghost in state.ghosts)
        return taken + permits <= self._limit

    def _makes_room(self, end: End | Vanish, grant: Grant | Ghost) -> bool:
        del end, grant
        return True

    def _takes_room(self, grant: Grant | Ghost, busy: Busy) -> bool:
        del grant, busy
        return True
