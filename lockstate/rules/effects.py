"""What applying an entry tells others: events for everybody, ended waits for the nodes of their clients."""

from collections.abc import Sequence
from typing import Final, NamedTuple, TypeAlias, cast

import msgspec

from lockstate.reads.held import told_value
from lockstate.tables.cells import Cell
from lockstate.tables.happened import Events, Told
from lockstate.tables.owners import own_id
from lockstate.tables.rate_algorithms import Limiter
from lockstate.tables.records import (
    Delay,
    FrozenPrefix,
    Hold,
    Plea,
    PreferredLeader,
    RulesHold,
    Session,
    Ticket,
    permits_in,
)
from lockstate.tables.state import State
from lockstate.words.commands.admin import RecordAct
from lockstate.words.events import OF_CLUSTER, CellEvent, CellEventKind, Event, EventKind, Left
from lockstate.words.ids import NO_OWNER, NO_SESSION
from lockstate.words.kinds import HoldKind
from lockstate.words.modes import Mode, Scope
from lockstate.words.outcomes import Settled
from lockstate.words.refusals import Refused
from lockstate.words.results import Granted
from lockstate.words.settings import NamespaceSettings, Quota
from lockstate.words.wanted import Wanted

_NOT_AUDITED: Final = frozenset({EventKind.QUEUED, EventKind.LEFT})
"""Events that do not go into the audit."""
_OVERRIDES: Final = frozenset(
    {
        EventKind.FORCED,
        EventKind.SESSION_FORCED,
        EventKind.WAIT_FORCED,
        EventKind.REVOKED,
        EventKind.REVOCATION_WITHDRAWN,
    }
)
"""Events of what somebody does to what others hold or wait for."""


class _Permits(NamedTuple):
    """The permits of one semaphore as a part of what is of several kinds."""

    name: str
    permits: int
    kind: HoldKind = HoldKind.SEMAPHORE
    mode: Mode = Mode.EXCLUSIVE
    scope: Scope = Scope.NODE


_Part: TypeAlias = Wanted | _Permits | Hold | Ticket
"""What an event tells of."""


class Effects:
    """Collects the events and ended waits of one entry."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.events: list[Told] = []
        self.plain_count = 0
        """How many of them are rows of plain locks."""
        self.settled: list[Settled] = []
        self.cell_events: list[CellEvent] = []
        self._is_all_audited = True

    def take(self) -> tuple[Sequence[Event], tuple[Settled, ...], tuple[CellEvent, ...]]:
        """Return what was collected and start over; events that are audited go into the audit.

        Those of cells are not: a counter would soon push out all that is told of holds.
        """
        settled, cell_events = tuple(self.settled), tuple(self.cell_events)
        events = self._events_taken() if self.events else ()
        self.state.audit.link()
        if settled:
            self.settled = []
        if cell_events:
            self.cell_events = []
        return events, settled, cell_events

    def _events_taken(self) -> Events:
        """Take the events, of which there are some, and tell the audit."""
        told = tuple(self.events)
        at = self.state.revision, self.state.now_ms
        events = Events(*at, told, self.plain_count == len(told))
        self.events, self.plain_count = [], 0
        if self._is_all_audited:
            self.state.audit.extend(events)
        else:
            self._is_all_audited = True
            audited = [one for one in told if type(one) is not Event or one.kind not in _NOT_AUDITED]
            self.state.audit.extend(Events(*at, tuple(audited), False))
        return events

    def drop(self) -> None:
        """Forget what was collected: nobody is to hear of it."""
        self.events, self.settled, self.cell_events = [], [], []
        self.plain_count = 0
        self._is_all_audited = True

    def tell(  # noqa: PLR0917 - what an event tells, called everywhere
        self,
        kind: EventKind,
        of: Hold | Ticket,
        lasted_ms: int,
        reason: str = "",
        locks: tuple[Wanted, ...] = (),
        ticket: int = 0,
    ) -> None:
        """Add an event of a hold or a ticket: one for each of its locks, or for each of `locks`.

        `ticket` is the number of the wait that brought a hold this event. One of several kinds is told of by
        each of its parts.
        """
        if kind in _NOT_AUDITED:
            self._is_all_audited = False
        if isinstance(of, Ticket):
            ticket = of.order
        for part in locks or _parts(of):
            self.events.append(self._event(kind, of, part, lasted_ms, reason, ticket))

    def tell_receiver(self, token: int) -> None:
        """Let the newest event, of a hold that was handed over, say with which token it goes on."""
        self.events[-1] = msgspec.structs.replace(cast("Event", self.events[-1]), to_token=token)

    def tell_left(self, ticket: Ticket, why: Left) -> None:
        """Add the event that a wait ended without a grant of its own."""
        self.tell(EventKind.LEFT, ticket, self.state.now_ms - ticket.since_ms, why)

    def _event(  # noqa: PLR0917 - what an event of a hold or a ticket is made of
        self,
        kind: EventKind,
        of: Hold | Ticket,
        part: _Part,
        lasted_ms: int,
        reason: str,
        ticket: int,
    ) -> Event:
        state = self.state
        principal = state.principals.of(of) if state.owners else ""
        by = state.principals.asking if kind in _OVERRIDES else ""
        of_kind, permits = of.kind, of.permits
        if permits and of.is_of_kinds:
            of_kind, permits = (part.kind, part.permits) if isinstance(part, _Permits) else (of_kind, 0)
        return Event(
            state.revision,
            state.now_ms,
            kind,
            part.name,
            part.mode,
            of.owner,
            of.token if isinstance(of, Hold) else 0,
            of.session_id or own_id(of),
            lasted_ms,
            reason,
            of_kind,
            part.scope,
            permits,
            told_value(of),
            ticket,
            0,
            principal,
            by,
        )

    def tell_plea(self, kind: EventKind, hold: Hold, plea: Plea) -> None:
        """Add the event that a holder is to give up a name, or has put that off."""
        self._tell_plea(kind, hold, plea, plea.reason, max(0, plea.expires_at_ms - self.state.now_ms))

    def tell_withdrawn(self, hold: Hold, plea: Plea, reason: str) -> None:
        """Add the event that a holder need not give up a name any more, and why."""
        self._tell_plea(EventKind.REVOCATION_WITHDRAWN, hold, plea, reason, 0)

    def _tell_plea(self, kind: EventKind, hold: Hold, plea: Plea, reason: str, ends_in_ms: int) -> None:
        lasted_ms = self.state.now_ms - hold.since_ms
        asked = [part for part in _parts(hold) if (_kind_of(hold, part), part.name) == (plea.kind, plea.name)]
        for part in asked:
            event = self._event(kind, hold, part, lasted_ms, reason, plea.ticket)
            self.events.append(msgspec.structs.replace(event, ends_in_ms=ends_in_ms))

    def tell_session(self, session: Session, kind: EventKind, reason: str) -> None:
        """Add the event that a session expired, or was ended by force for a reason."""
        state = self.state
        event = Event(
            state.revision,
            state.now_ms,
            kind,
            "",
            Mode.EXCLUSIVE,
            session.owner,
            0,
            session.session_id,
            0,
            reason,
            principal=state.principals.rows.get(session.session_id, ""),
            by=state.principals.asking if kind in _OVERRIDES else "",
        )
        self.events.append(event)

    def tell_lifted(self, delay: Delay, reason: str) -> None:
        """Add the event that a delay was ended before its time."""
        event = self._of_nobody(EventKind.DELAY_LIFTED, delay.name, 0, reason)
        self.events.append(
            msgspec.structs.replace(event, of=delay.kind, scope=delay.scope, permits=delay.permits)
        )

    def tell_forgotten(self, resource: str, token: int, reason: str) -> None:
        """Add the event that the highest token of a resource was forgotten."""
        self.events.append(self._of_nobody(EventKind.FENCE_FORGOTTEN, resource, token, reason))

    def tell_rate_forgotten(self, limiter: Limiter, reason: str) -> None:
        """Add the event that a rate limit was forgotten, which counted for a principal if that is known."""
        event = self._of_nobody(EventKind.RATE_LIMIT_FORGOTTEN, limiter.name, 0, reason)
        self.events.append(msgspec.structs.replace(event, principal=limiter.principal))

    def tell_resized(self, semaphore: str, limit: int, reason: str) -> None:
        """Add the event that a semaphore was given another limit."""
        event = self._of_nobody(EventKind.RESIZED, semaphore, 0, reason)
        self.events.append(msgspec.structs.replace(event, of=HoldKind.SEMAPHORE, permits=limit))

    def tell_set(
        self,
        kind: EventKind,
        settings: Quota | NamespaceSettings | None,
        reason: str,
        *,
        name: str = "",
        principal: str = "",
    ) -> None:
        """Add the event that a namespace or a quota was set, or with None removed."""
        event = self._of_nobody(kind, name, 0, reason)
        value = "" if settings is None else _said(settings)
        self.events.append(msgspec.structs.replace(event, value=value, principal=principal))

    def tell_asked(self, command: RecordAct) -> None:
        """Add the event that somebody asks for a change of the members, or for another leader."""
        self._tell_node(OF_CLUSTER[command.act], command.reason, id=command.node_id, peer=command.peer)

    def tell_preference(self, kind: EventKind, preferred: PreferredLeader, reason: str) -> None:
        """Add the event that somebody wants a node to lead, or no longer: then with how long they did."""
        lasted_ms = self.state.now_ms - preferred.since_ms
        self._tell_node(kind, reason, lasted_ms, id=preferred.node_id)

    def _tell_node(self, kind: EventKind, reason: str, lasted_ms: int = 0, /, **said: str) -> None:
        """Add an event about a node, of which something is said."""
        value = msgspec.json.encode({what: text for what, text in said.items() if text}).decode()
        event = self._of_nobody(kind, "", 0, reason)
        self.events.append(msgspec.structs.replace(event, value=value, lasted_ms=lasted_ms))

    def tell_freeze(self, kind: EventKind, freeze: FrozenPrefix, reason: str) -> None:
        """Add the event that a prefix was frozen or thawed; one that thaws by itself has no reason."""
        event = self._of_nobody(kind, freeze.prefix, 0, reason)
        now_ms, until_ms = self.state.now_ms, freeze.expires_at_ms
        lasted_ms, ends_in_ms = now_ms - freeze.since_ms, max(until_ms - now_ms, 0)
        if kind is EventKind.THAWED:
            ends_in_ms = 0
        self.events.append(msgspec.structs.replace(event, lasted_ms=lasted_ms, ends_in_ms=ends_in_ms))

    def tell_rules_hold(self, kind: EventKind, hold: RulesHold, reason: str) -> None:
        """Add the event that the rules are held, or no longer: then with how long they were."""
        event = self._of_nobody(kind, "", 0, reason)
        self.events.append(msgspec.structs.replace(event, lasted_ms=self.state.now_ms - hold.since_ms))

    def tell_restored(self, reason: str) -> None:
        """Add the event that the state is that of a new cluster, with the newest token that counts there."""
        self.events.append(self._of_nobody(EventKind.RESTORED, "", self.state.next_token - 1, reason))

    def _of_nobody(self, kind: EventKind, name: str, token: int, reason: str) -> Event:
        """Return an event of what belongs to no client."""
        state = self.state
        return Event(
            state.revision,
            state.now_ms,
            kind,
            name,
            Mode.EXCLUSIVE,
            NO_OWNER,
            token,
            NO_SESSION,
            0,
            reason,
            by=state.principals.asking,
        )

    def tell_cell(self, kind: CellEventKind, cell: Cell) -> None:
        """Add the event of a cell that was written or, at the present revision of the table, removed."""
        state, is_put = self.state, kind is CellEventKind.PUT
        self.cell_events.append(
            CellEvent(
                state.revision,
                state.now_ms,
                kind,
                cell.key,
                cell.mod_revision if is_put else state.cells.revision,
                cell.version if is_put else 0,
            )
        )

    def settle(self, ticket: Ticket, result: Granted | Refused, position: int = 0) -> None:
        """Settle a wait: remember the outcome of its request, and tell the node that keeps its client."""
        self.state.settle(ticket.request, result)
        added = ticket.locks if ticket.is_addition else ()
        waited_ms = self.state.now_ms - ticket.since_ms
        self.settled.append(Settled(ticket.hold_id, result, waited_ms, added, position))


def _kind_of(of: Hold | Ticket, part: _Part) -> HoldKind:
    """Return the kind of a part of a hold or a ticket."""
    return part.kind if isinstance(part, _Permits) else of.kind


def _said(settings: Quota | NamespaceSettings) -> str:
    """Return what settings say as JSON, without what they leave open: a few hundred bytes at most."""
    said = msgspec.structs.asdict(settings)
    if said.get("rate") is not None:
        said["rate"] = msgspec.structs.asdict(said["rate"])
    return msgspec.json.encode({what: value for what, value in said.items() if value is not None}).decode()


def _parts(of: Hold | Ticket) -> list[_Part]:
    """Return the parts of a hold or a ticket. What is of one thing is its own only part."""
    if of.name:
        return [of]
    locks: list[_Part] = list(of.locks)
    return [*locks, *[_Permits(name, count) for name, count in permits_in(of)]]
