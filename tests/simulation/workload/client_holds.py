"""What a client holds and relies on: by its own clock, from before it asked, never more than it can know."""

from dataclasses import dataclass, field
from typing import Final

from lockstate.words.commands.holds import AcquirePermits, Campaign, MayWait
from lockstate.words.ids import NO_SESSION, HoldId, SessionId
from lockstate.words.kinds import HoldKind
from lockstate.words.modes import Mode
from lockstate.words.results import Granted, GrantedSeveral
from lockstate.words.wanted import Wanted
from tests.simulation.checks.conflicts import is_stronger
from tests.simulation.workload.history import Belief, History
from tests.simulation.world.event_loop import NodeLoop

ROUNDING_US: Final = 1_000
RATE_DIVISOR: Final = 500
"""What a client takes off a lease, as the SDK does: rounding, and the error of clock rates."""
OLD_US: Final = 5_000_000
FOR_EVER_MS: Final = 24 * 3_600_000
"""For how long a client relies on what has no deadline: longer than any simulation."""


@dataclass
class Held:
    """What a client holds, or held until not long ago."""

    locks: tuple[Wanted, ...]
    """What it relies on: during a conversion, of each the weaker mode."""
    hold_id: HoldId
    token: int
    session_id: SessionId
    ttl_ms: int
    until_us: int
    """On the client's own clock."""
    kind: HoldKind
    permits: int
    since_us: int
    """In true time: it was not asked for before."""
    value: str = ""
    """What it carried when that was last heard."""
    is_renewing: bool = False
    is_converting: bool = False
    is_of_kinds: bool = False
    beside: tuple[tuple[str, int], ...] = ()
    """Of several kinds: the permits of each semaphore."""
    is_changed: bool = False
    """Whether it was ever to become another hold than the one that was granted."""

    @property
    def places(self) -> list[tuple[HoldKind, str]]:
        """Return the kind and the name of all that it is of."""
        locks = [(self.kind, lock.name) for lock in self.locks]
        return locks + [(HoldKind.SEMAPHORE, name) for name, _ in self.beside]


@dataclass
class Session:
    """A session of a client's."""

    session_id: SessionId
    ttl_ms: int
    holds: list[HoldId] = field(default_factory=list)


class ClientHolds:
    """The sessions and holds of one client."""

    def __init__(self, loop: NodeLoop, history: History) -> None:
        self.sessions: dict[SessionId, Session] = {}
        self.held: dict[HoldId, Held] = {}
        self._loop = loop
        self._history = history
        self._left: set[HoldId] = set()
        """Holds of which nobody knows any more what they are."""
        self._since_us: dict[tuple[str, str], int] = {}
        """When a session first asked for a semaphore: it may be given what it had already."""

    def asks(self, command: MayWait) -> int:
        """Record that something is asked for; return since when it may be held."""
        now_us = self._loop.now_us
        if isinstance(command, AcquirePermits) and command.session_id:
            return self._since_us.setdefault((command.session_id, command.name), now_us)
        return now_us

    def take(self, command: MayWait, asked_us: int, granted: Granted, since_us: int) -> None:
        """Rely on what was granted. What was held already is not news: it may have changed meanwhile."""
        if granted.hold_id in self._left:
            return
        session_id, ttl_ms = getattr(command, "session_id", NO_SESSION), getattr(command, "ttl_ms", 0)
        session = self.sessions.get(session_id)
        if session is not None:
            session.holds.append(granted.hold_id)
        held = self.held.get(granted.hold_id)
        if held is None:
            kind = HoldKind.LOCK
            if isinstance(command, Campaign | AcquirePermits):
                kind = HoldKind.ELECTION if isinstance(command, Campaign) else HoldKind.SEMAPHORE
            parts = granted.held if isinstance(granted, GrantedSeveral) else ()
            beside = tuple([(one.name, one.permits) for one in parts])
            held = Held(
                granted.locks or (() if beside else (Wanted(granted.name, granted.mode, granted.scope),)),
                granted.hold_id,
                granted.token,
                session_id,
                ttl_ms,
                0,
                kind,
                granted.permits,
                since_us,
                is_of_kinds=isinstance(granted, GrantedSeveral),
                beside=beside,
            )
            self.held[granted.hold_id] = held
        if granted.value:
            held.value = granted.value
        self.believe(held, asked_us, granted.expires_in_ms)

    def session_kept(self, session: Session, asked_us: int, expires_in_ms: int) -> None:
        """Rely on what a session has for as long as it was told to live."""
        for hold_id in session.holds:
            if held := self.held.get(hold_id):
                self.believe(held, asked_us, expires_in_ms)

    def session_over(self, session: Session) -> None:
        """Rely on nothing of a session any more."""
        self.sessions.pop(session.session_id, None)
        for hold_id in session.holds:
            self.give_up(hold_id)

    def believe(self, held: Held, asked_us: int, expires_in_ms: int | None) -> None:
        """Rely on a lease, from before it was asked for, on this client's own clock."""
        if expires_in_ms is None:
            expires_in_ms = FOR_EVER_MS
        until_us = relied_until_us(asked_us, expires_in_ms)
        if until_us > held.until_us and until_us > self._loop.local_us():
            held.until_us = until_us
            self._tell(held)

    def shorten(self, held: Held, ttl_ms: int, asked_us: int | None = None) -> None:
        """Rely on a lease no longer than one that was asked for then, or is about to be asked for instead."""
        until_us = relied_until_us(self._loop.local_us() if asked_us is None else asked_us, ttl_ms)
        if until_us < held.until_us:
            held.until_us = until_us
            self._tell(held)

    def change(self, held: Held, locks: tuple[Wanted, ...]) -> None:
        """Rely on other locks from now on."""
        held.is_changed = True
        held.locks = locks
        self._tell(held)

    def _tell(self, held: Held) -> None:
        self._history.believes(
            Belief(
                client=self._loop.name,
                locks=held.locks,
                hold_id=held.hold_id,
                token=held.token,
                from_us=self._loop.now_us,
                until_us=self._loop.clock.true_time(held.until_us),
                kind=held.kind,
                permits=held.permits,
                since_us=held.since_us,
                beside=held.beside,
            )
        )

    def give_up(self, hold_id: HoldId) -> None:
        """Rely on a hold no more; never again if it was to change."""
        held = self.held.pop(hold_id, None)
        if held is not None:
            if held.is_changed:
                self._left.add(hold_id)
            self._history.stopped_believing(hold_id, self._loop.now_us)

    def forget_old(self) -> None:
        """Forget what has been over for long; until then it is asked about now and again."""
        old_us = self._loop.local_us() - OLD_US
        for hold_id in [hold_id for hold_id, held in self.held.items() if held.until_us < old_us]:
            self.give_up(hold_id)


def _weaker_mode(one: Mode, other: Mode) -> Mode:
    """Return the mode that keeps away what both modes do; neither of the two may be it."""
    if not is_stronger(one, other):
        return one
    return Mode.CONCURRENT_READ if is_stronger(other, one) else other


def weaker(locks: tuple[Wanted, ...], mode: Mode) -> tuple[Wanted, ...]:
    """Return what is sure of locks while they may or may not have got another mode: what both keep away."""
    return tuple([Wanted(item.name, _weaker_mode(item.mode, mode), item.scope) for item in locks])


def relied_until_us(asked_us: int, expires_in_ms: int) -> int:
    """Return up to when a client relies on a lease, on its own clock."""
    lease_us = expires_in_ms * 1000
    return asked_us + lease_us - ROUNDING_US - lease_us // RATE_DIVISOR
