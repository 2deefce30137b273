"""Grants seen from outside: who came first is served first, and who converts before all who only wait.

A priority moves the time at which somebody came, and a hand-over goes ahead of all that wait.

What arrived where is read from the log; who got which token, and when, from what clients are told.
"""

from collections import OrderedDict, deque
from dataclasses import dataclass
from typing import Final, NamedTuple

from lockstate.words import limits
from lockstate.words.commands.entries import Command, Undecodable
from lockstate.words.commands.holds import Acquire, AcquirePermits, AddLocks, Campaign, Change, Convert
from lockstate.words.ids import HoldId
from lockstate.words.kinds import HoldKind
from lockstate.words.modes import Mode
from lockstate.words.results import Granted, GrantedSeveral, HandedOver, Queued, Result
from lockstate.words.wanted import PRIORITY_DEFAULT, Wanted
from tests.simulation.checks.conflicts import conflict
from tests.simulation.checks.grants import shorten
from tests.simulation.checks.model_replay import Step
from tests.simulation.checks.report import Report
from tests.simulation.workload.history import Call

GRANTS_KEPT: Final = 200
"""Grants of one kind whose order is compared."""


class _Arrival(NamedTuple):
    """Where a request came in the log, and when, and with which priority."""

    revision: int
    nth: int
    now_ms: int
    priority: int = PRIORITY_DEFAULT

    @property
    def place(self) -> tuple[int, int, int]:
        """By what those who wait are in order."""
        ahead_ms = (self.priority - PRIORITY_DEFAULT) * limits.PRIORITY_STEP_MS
        return self.now_ms - ahead_ms, self.revision, self.nth


@dataclass(slots=True, frozen=True)
class _Grant:
    """A hold that somebody was told of: its place of arrival in the log, and its token."""

    hold_id: HoldId
    arrived: _Arrival
    token: int
    revision: int
    """At which it was granted."""
    locks: tuple[Wanted, ...]
    is_conversion: bool


class Order:
    """Of two grants that conflict, the one that arrived first has the smaller token."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._arrived: OrderedDict[str, _Arrival] = OrderedDict()
        """By what waits: the hold id of what was asked for, the ticket of a conversion."""
        self._granted: OrderedDict[str, int] = OrderedDict()
        """By the same: the revision at which it was granted, whenever somebody is told."""
        self._converted: OrderedDict[str, None] = OrderedDict()
        """Holds whose token may be another one by now."""
        self._grants: dict[HoldKind, deque[_Grant]] = {kind: deque(maxlen=GRANTS_KEPT) for kind in HoldKind}

    def applied(self, step: Step) -> None:
        """Record which command arrived where. A repetition arrives nowhere."""
        for place, answer in enumerate(step.single_answers()):
            match answer.command, answer.result:
                case (
                    Acquire(hold_id=asked) | AcquirePermits(hold_id=asked) | Campaign(hold_id=asked),
                    Granted(hold_id=made) | Queued(hold_id=made),
                ) if asked == made:
                    priority = _priority_of(answer.command)
                    self._arrived[made] = _Arrival(step.revision, place, step.now_ms, priority)
                    if isinstance(answer.result, Granted):
                        self._granted[made] = step.revision
                case Convert(ticket_id=asked) | AddLocks(ticket_id=asked), Queued(hold_id=made) if (
                    asked == made
                ):
                    self._arrived[made] = _Arrival(step.revision, place, step.now_ms)
            if isinstance(answer.command, Change):
                self._converted[answer.command.hold_id] = None
        handed_over = {result.token for result in step.told() if isinstance(result, HandedOver)}
        for waited_for, told in step.wait_ends:
            if isinstance(told, Granted) and told.token not in handed_over:
                self._granted[waited_for] = step.revision
        shorten(self._arrived)
        shorten(self._granted)
        shorten(self._converted)

    def replied(self, call: Call, result: Result) -> None:
        """Compare a grant with the others of its kind."""
        command = call.command
        if not isinstance(result, Granted):
            return
        kind, is_conversion = _kind_of(command), isinstance(command, Convert)
        if isinstance(command, Convert):
            if result.mode is not Mode.EXCLUSIVE:
                return  # no token tells when it came through
            waited_for = command.ticket_id
        elif isinstance(command, AddLocks):
            waited_for = command.ticket_id
        elif result.hold_id in self._converted:
            return
        else:
            waited_for = result.hold_id
        arrived, revision = self._arrived.get(waited_for), self._granted.get(waited_for)
        if arrived is None or revision is None or kind is None:
            return
        things = [(kind, command.locks)] if isinstance(command, AddLocks) else _things(kind, result)
        for of, locks in things:
            grant = _Grant(result.hold_id, arrived, result.token, revision, locks, is_conversion)
            grants = self._grants[of]
            for other in grants:
                if conflict(other.locks, grant.locks):
                    self._compare(other, grant)
            grants.append(grant)

    def _compare(self, one: _Grant, other: _Grant) -> None:
        """Object to two that came in another order than they were served."""
        if one.hold_id == other.hold_id or one.token == other.token:
            return
        if one.is_conversion == other.is_conversion:
            first, second = (one, other) if one.token < other.token else (other, one)
            in_order = first.arrived.place < second.arrived.place
            if first.arrived.priority != second.arrived.priority:
                # Who was served before the other came is not overtaken by it.
                in_order = in_order or first.revision <= second.arrived.revision
        else:
            conversion, plain = (one, other) if one.is_conversion else (other, one)
            # A waiter that was served before the conversion came does not concern it.
            in_order = plain.revision <= conversion.arrived.revision or conversion.token < plain.token
        if not in_order:
            self._report.fail(
                "first-come",
                f"two got {one.locks[0].name!r} in another order than they came",
                one=one,
                two=other,
            )


def _priority_of(command: Command | Undecodable) -> int:
    rare = command.uncommon if isinstance(command, Acquire | AcquirePermits) else None
    return PRIORITY_DEFAULT if rare is None else rare.priority


def _things(kind: HoldKind, result: Granted) -> list[tuple[HoldKind, tuple[Wanted, ...]]]:
    """Return what was granted, by kind. Permits are given in the order in which they were asked for."""
    if isinstance(result, GrantedSeveral):
        permits = tuple([Wanted(one.name) for one in result.held])
        things = [(HoldKind.LOCK, result.locks), (HoldKind.SEMAPHORE, permits)]
        return [(of, locks) for of, locks in things if locks]
    mode = Mode.EXCLUSIVE if kind is not HoldKind.LOCK else result.mode
    return [(kind, result.locks or (Wanted(result.name, mode, result.scope),))]


def _kind_of(command: Command) -> HoldKind | None:
    match command:
        case Acquire() | Convert() | AddLocks():
            return HoldKind.LOCK
        case AcquirePermits():
            return HoldKind.SEMAPHORE
        case Campaign():
            return HoldKind.ELECTION
    return None
