"""Who holds what, by the events alone: holds exclude each other, permits do not run out, one leads.

The commands of an entry say what events do not: limits of semaphores, and lock-delays. Which of them came
into effect is what the model says, whose answers are compared with those that clients get.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final, NoReturn

from lockstate.words.commands.holds import Acquire, AcquirePermits
from lockstate.words.commands.overrides import ForceRelease
from lockstate.words.commands.primitives import ResizeSemaphore
from lockstate.words.events import Event, EventKind
from lockstate.words.ids import HoldId, OwnerName, SessionId
from lockstate.words.kinds import HoldKind
from lockstate.words.modes import Mode
from lockstate.words.results import ForceReleased, Granted, GrantedSeveral, Queued, Resized
from lockstate.words.wanted import Wanted
from tests.simulation.checks.conflicts import conflict, draws_token, is_stronger
from tests.simulation.checks.model_replay import Step
from tests.simulation.checks.report import Report

_BEGIN: Final = (EventKind.GRANTED, EventKind.ELECTED)
_END: Final = (
    EventKind.RELEASED,
    EventKind.EXPIRED,
    EventKind.FORCED,
    EventKind.RESIGNED,
    EventKind.HANDED_OVER,
)


@dataclass(slots=True)
class _Held:
    """A hold, as events tell of it."""

    kind: HoldKind
    owner: OwnerName
    session_id: SessionId | HoldId
    token: int
    locks: list[Wanted]
    permits: int
    lock_delay_ms: int

    @property
    def places(self) -> list[tuple[str, str]]:
        """Return what it is of, whatever the modes."""
        return sorted((lock.name, lock.scope) for lock in self.locks)


@dataclass(slots=True, frozen=True)
class _Kept:
    """What a lock-delay keeps from everybody."""

    kind: HoldKind
    lock: Wanted
    permits: int
    until_ms: int


_Place = tuple[int, str]
"""A token, and the semaphore whose permits it is for, empty if it is for something else."""


class Ledger:
    """All holds, from grant to end."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._held: dict[_Place, _Held] = {}
        self.kept: list[_Kept] = []
        self._highest_token = 0
        self._drawn_by: tuple[object, ...] = ()
        """The revision and the holder for whom the highest token was drawn."""
        self._limits: dict[str, int] = {}
        self._allowed: dict[str, int] = {}
        """The largest limit that each semaphore had during the entry."""
        self._waiting: dict[HoldId, int] = {}
        """The lock-delays of those who wait, by hold id."""
        self._token_of: dict[HoldId, int] = {}
        """The newest token of each hold that was told of."""
        self._was: dict[int, int] = {}
        """The token that a hold had before, by the one that it has: the same, if no conversion drew one."""
        self._delays_ms: dict[int, int] = {}
        """The lock-delays of what the entry granted, by token."""
        self._taken_ms: dict[int, int] = {}
        """The least lock-delay that another acquire of a hold brought in the entry, by token."""
        self._forced_ms: dict[int, int] = {}
        """How long a force keeps what it ended from everybody, by token."""
        self._added_to = 0
        """The token of a hold that was told a new one, and must be told next what was added for that."""

    def __len__(self) -> int:
        """Return how many holds there are."""
        return len(self._held)

    def applied(self, step: Step, events: Sequence[Event]) -> None:
        """Record what an entry did."""
        self._read_commands(step)
        self.kept = [kept for kept in self.kept if kept.until_ms >= step.now_ms]
        for (kind, token, *_), group in groupby(
            events,
            lambda event: (event.kind, event.token, event.session_id, event.of, _semaphore(event)),
        ):
            told = list(group)
            if self._added_to and (kind, token) != (EventKind.GRANTED, self._added_to):
                self._fail("token-drawn", f"token {self._added_to} was drawn for nothing", told[0])
            if kind in _BEGIN:
                self._begun(told, token)
            elif kind is EventKind.CONVERTED:
                for conversion in _split(told):
                    self._converted(conversion, token)
            elif kind in _END or kind is EventKind.DELAY_LIFTED:
                for event in told:
                    self._ended(event) if kind in _END else self._lifted(event)
        for token, delay_ms in self._taken_ms.items():
            if (token, "") in self._held:
                self._held[token, ""].lock_delay_ms = delay_ms

    def _take(self, token: int, delay_ms: int) -> None:
        """Record that a session asked for what it holds with a lock-delay, which counts from then on.

        Which of several came last, and whether an end in this entry came before it, is not known: the least
        of them is kept in any case.
        """
        if delay_ms:
            self._taken_ms[token] = min(delay_ms, self._taken_ms.get(token, delay_ms))

    def _read_commands(self, step: Step) -> None:  # noqa: C901, PLR0912 - one case for each
        """Record what the events will not say."""
        self._allowed = dict(self._limits)
        self._delays_ms.clear()
        self._taken_ms.clear()
        self._forced_ms.clear()
        for result in step.told():
            for one in result.held if isinstance(result, GrantedSeveral) else ():
                self._limit(one.name, one.limit)
        for _, ended in step.wait_ends:
            if isinstance(ended, Granted) and ended.permits:
                self._limit(ended.name, ended.limit)
        for answer in step.single_answers():
            match answer.command, answer.result:
                case AcquirePermits(hold_id=asked) as command, Granted(hold_id=got) as granted:
                    # Which may be another limit than it asked for, unless it is strict.
                    if asked == got:
                        self._limit(command.name, granted.limit)
                case ResizeSemaphore() as command, Resized() if not answer.is_repeated:
                    self._limit(command.name, command.limit)
                case ForceRelease() as command, ForceReleased(released=released):
                    for view in released:
                        self._forced_ms[view.token] = command.lock_delay_ms
            match answer.command, answer.result:
                case Acquire() as wish, Granted() as granted if granted.depth:
                    if not answer.is_repeated:
                        self._take(granted.token, _delay_ms(wish))
                case Acquire() | AcquirePermits() as wish, Granted() as granted:
                    # Not what the session has already: that keeps the delay with which it was granted.
                    if granted.hold_id == wish.hold_id:
                        self._delays_ms.setdefault(granted.token, _delay_ms(wish))
                case Acquire() | AcquirePermits() as wish, Queued() as queued:
                    self._waiting.setdefault(queued.hold_id, _delay_ms(wish))
        for result in step.told():
            # A repeated request may be told of an earlier token.
            if isinstance(result, Granted) and result.token >= self._token_of.get(result.hold_id, 0):
                self._was.setdefault(result.token, self._token_of.get(result.hold_id, result.token))
                self._token_of[result.hold_id] = result.token
        for hold_id, told in step.wait_ends:
            delay_ms = self._waiting.pop(hold_id, 0)
            if isinstance(told, Granted) and told.depth:
                self._take(told.token, delay_ms)
            elif isinstance(told, Granted):
                self._delays_ms.setdefault(told.token, delay_ms)

    def _limit(self, name: str, limit: int) -> None:
        self._limits[name] = limit
        self._allowed[name] = max(limit, self._allowed.get(name, 0))

    # -- what happens ---------------------------------------------------------------------------------------

    def _begun(self, told: list[Event], token: int) -> None:
        event = told[0]
        place = token, _semaphore(event)
        if event.kind is EventKind.ELECTED and place in self._held:
            return  # the leader says something else
        if self._added_to:
            self._added(told, token)
            return
        self._draw(token, event)
        held = _Held(
            event.of,
            event.owner,
            event.session_id,
            token,
            _locks(told),
            event.permits,
            self._delays_ms.get(token, 0),
        )
        self._check(held, held.locks, event)
        self._held[place] = held

    def _added(self, told: list[Event], token: int) -> None:
        """Give a hold more locks, with the token that it was told just before."""
        event, held = told[0], self._held.pop((token, ""))
        if (held.session_id, held.owner) != (event.session_id, event.owner):
            self._fail("events-true", "one hold was told a token, and another one what was added", event)
        self._added_to = 0
        more = _locks(told)
        held.locks = [*held.locks, *more]
        self._check(held, more, event)
        self._held[token, ""] = held

    def _converted(self, told: list[Event], token: int) -> None:
        event, locks = told[0], _locks(told)
        places = sorted((lock.name, lock.scope) for lock in locks)
        whose = [
            held
            for held in self._held.values()
            if (held.kind, held.session_id, held.owner, held.places)
            == (HoldKind.LOCK, event.session_id, event.owner, places)
        ]
        if (token, "") in self._held:
            whose = [held for held in whose if held.token == token]
        if len(whose) > 1:
            # A session may hold a name in two modes that go with each other.
            whose = [held for held in whose if held.token == self._was.get(token)]
        if len(whose) != 1:
            self._fail("events-true", f"{len(whose)} holds may be what was converted", event)
        (held,) = whose
        before = {lock.name: lock.mode for lock in held.locks}
        if any(draws_token(before[lock.name], lock.mode) for lock in locks):
            self._draw(token, event)
        elif token != held.token and all(before[lock.name] is lock.mode for lock in locks):
            self._draw(token, event)
            self._added_to = token
        elif token != held.token:
            self._fail("token-drawn", f"token {held.token} changed in a conversion that draws none", event)
        del self._held[held.token, ""]
        if held.token in self._taken_ms:
            self._taken_ms[token] = self._taken_ms.pop(held.token)
        raised = [lock for lock in locks if is_stronger(lock.mode, before[lock.name])]
        held.token, held.locks = token, locks
        self._check(held, raised, event)
        self._held[token, ""] = held

    def _ended(self, event: Event) -> None:
        place = event.token, _semaphore(event)
        held = self._held.get(place)
        gone = [lock for lock in held.locks if lock.name == event.name] if held is not None else []
        if held is None or held.kind is not event.of or not gone:
            self._fail("events-true", "what nobody had has ended", event)
        held.locks = [lock for lock in held.locks if lock not in gone]
        if not held.locks:
            del self._held[place]
        forced_ms = self._forced_ms.get(event.token, 0) if event.kind is EventKind.FORCED else 0
        own_ms = min(held.lock_delay_ms, self._taken_ms.get(event.token, held.lock_delay_ms))
        delay_ms = max(own_ms, forced_ms)
        if (
            event.kind in {EventKind.EXPIRED, EventKind.FORCED}
            and delay_ms
            and held.kind is not HoldKind.ELECTION
        ):
            lock = Wanted(event.name, Mode.EXCLUSIVE, event.scope)
            self.kept.append(_Kept(held.kind, lock, held.permits, event.now_ms + delay_ms))

    def _lifted(self, event: Event) -> None:
        """Forget what kept a name from everybody. One such event stands for all that came of one scope."""
        self.kept = [
            item
            for item in self.kept
            if (item.kind, item.lock.name, item.lock.scope) != (event.of, event.name, event.scope)
        ]

    # -- what must be ---------------------------------------------------------------------------------------

    def _draw(self, token: int, event: Event) -> None:
        """Record a new token. All kinds draw from one sequence, and several kinds at once one token."""
        drawn_by = (event.revision, event.kind, event.session_id, event.owner)
        if token == self._highest_token and drawn_by == self._drawn_by:
            return
        if token <= self._highest_token:
            self._fail("token-drawn", f"a token was drawn after {self._highest_token}", event)
        self._highest_token, self._drawn_by = token, drawn_by

    def _check(self, held: _Held, gained: list[Wanted], event: Event) -> None:
        """Check that what a hold has now leaves all others what they have, and that nothing kept it away."""
        others = [other for other in self._held.values() if other.kind is held.kind]
        kept = [item for item in self.kept if item.kind is held.kind]
        match held.kind:
            case HoldKind.SEMAPHORE:
                self._check_permits(held, others, kept, event)
            case HoldKind.ELECTION:
                if any(other.locks[0].name == event.name for other in others):
                    self._fail("one-leader", "two lead one election", event)
            case HoldKind.LOCK:
                for other in others:
                    if conflict(held.locks, other.locks):
                        self._fail("holds-exclude", f"somebody holds it with token {other.token}", event)
                if conflict(gained, [item.lock for item in kept]):
                    self._fail("delay-kept", "a lock-delay was not over", event)

    def _check_permits(self, held: _Held, others: list[_Held], kept: list[_Kept], event: Event) -> None:
        used = sum(other.permits for other in others if other.locks[0].name == event.name)
        away = sum(item.permits for item in kept if item.lock.name == event.name)
        limit = self._allowed.get(event.name, 0)
        if used + away + held.permits > limit:
            self._fail(
                "permits-limit", f"{used} permits were held, {away} kept back, of at most {limit}", event
            )

    def _fail(self, checker: str, sentence: str, event: Event) -> NoReturn:
        self._report.fail(checker, f"{event.name!r} at revision {event.revision}: {sentence}", event=event)


def _delay_ms(wish: Acquire | AcquirePermits) -> int:
    return 0 if wish.uncommon is None else wish.uncommon.lock_delay_ms


def _semaphore(event: Event) -> str:
    """Return the semaphore that an event is about, empty if it is about something else."""
    return event.name if event.of is HoldKind.SEMAPHORE else ""


def _split(told: Sequence[Event]) -> list[list[Event]]:
    """Return the conversions of one hold that follow each other: each tells of every lock once."""
    conversions: list[list[Event]] = []
    for event in told:
        if not conversions or any(event.name == other.name for other in conversions[-1]):
            conversions.append([])
        conversions[-1].append(event)
    return conversions


def _locks(told: Sequence[Event]) -> list[Wanted]:
    return [Wanted(event.name, event.mode, event.scope) for event in told]
