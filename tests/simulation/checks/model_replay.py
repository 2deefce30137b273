"""The committed entries, done once more by the naive model: what must have come of each command.

The model of the property tests is the expected state. Here it only becomes fast enough for hours of entries,
and tells what happened in it: ends of waits, beginnings and ends of leases. Nothing of the machine is used
but the public names that it gives to sessions.
"""

import copy
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import cast

from lockstate.machine import LockMachine
from lockstate.tables.owners import session_name
from lockstate.words import limits
from lockstate.words.codec import decode_entry
from lockstate.words.commands.entries import AbandonWaits, Command, Entry, OnBehalf, Undecodable
from lockstate.words.commands.streams import EndWait, Numbered
from lockstate.words.events import HELD_TOO_LONG, CellEvent, Event, EventKind, Left
from lockstate.words.ids import HoldId, SessionId
from lockstate.words.kinds import HoldKind
from lockstate.words.refusals import Refused
from lockstate.words.results import Granted, NumberedDone, Result, WaitsAbandoned
from lockstate.words.views import CellView, ElectionView, FenceView, LockView, SemaphoreView, SessionView
from tests.property import model_views
from tests.property.model import pass_time, run
from tests.property.model_attempts import came_through, is_left_by
from tests.property.model_cells import cell_view, in_order
from tests.property.model_changes import end_wait, serve
from tests.property.model_records import (
    UNKNOWN_NUMBER,
    Deadlock,
    Hold,
    Key,
    Lease,
    ModelState,
    Request,
    Ticket,
)
from tests.property.model_requests import earlier_key, forget, request_key
from tests.simulation.checks.expected_rates import QuickRate
from tests.simulation.checks.takes import takes_of
from tests.support.vocabulary import plain_command

PURGE_MS = 60_000
"""Seconds between two sweeps of forgotten requests; a look-up checks the age of what it finds."""


@dataclass(slots=True, frozen=True)
class Answer:
    """A command that had its effect in an entry, and its result; of a new deadlock, what a cycle may be."""

    node_id: str
    command: Command | Undecodable
    result: Result
    deadlock: Deadlock | None = None
    numbered: tuple["Answer", ...] = ()
    """Of a frame: the numbers that were new in it."""
    is_repeated: bool = False
    """Whether it is what an earlier attempt was told: the command did nothing again."""


@dataclass(slots=True)
class Step:
    """What one entry did. Leases by `Lease.created`; one may begin (or begin anew) and end in one step."""

    revision: int
    now_ms: int
    answers: list[Answer] = field(default_factory=list)
    wait_ends: list[tuple[HoldId, Result]] = field(default_factory=list)
    """By hold id; those who wait for it on any connection are told this."""
    leases_begun: dict[int, int] = field(default_factory=dict)
    """The ttl in milliseconds."""
    leases_ended: list[tuple[int, bool]] = field(default_factory=list)
    """Whether it expired."""
    abandoned: list[Key] = field(default_factory=list)
    """Requests whose waits were ended because nobody kept their connections: they may start afresh."""
    voided: list[HoldId] = field(default_factory=list)
    """Holds that ended because somebody asked for it: released, closed, cancelled or by force.

    And those of which only a keepalive told that they may not be held for longer.
    """
    events: list[Event] = field(default_factory=list)
    cell_events: list[CellEvent] = field(default_factory=list)

    def single_answers(self) -> Iterator[Answer]:
        """Return the answers in the order of the log, with the numbers of a frame in its place."""
        for answer in self.answers:
            yield from answer.numbered if isinstance(answer.command, Numbered) else (answer,)

    def told(self) -> list[Result]:
        """Return the results of all these, and how waits ended."""
        results = [answer.result for answer in self.single_answers()]
        return results + [result for _, result in self.wait_ends]


class _RecordingState(ModelState):
    """The state of the model, which records the leases that begin."""

    step = Step(0, 0)

    def new_lease(self, ttl_ms: int, at_ms: int = 0) -> Lease:
        """Return a lease that begins now, or at a later moment: the time until then counts as its own."""
        lease = super().new_lease(ttl_ms, at_ms)
        self.step.leases_begun[lease.created] = lease.expires_at_ms - self.now_ms
        return lease

    def restart(self, lease: Lease) -> int:
        """Start a lease anew."""
        left_ms = self.step.leases_begun[lease.created] = super().restart(lease)
        return left_ms

    def leases(self) -> set[int]:
        """Return the leases that are alive."""
        own = {hold.lease.created for hold in self.holds if hold.lease and not hold.session_id}
        own |= {cell.lease.created for cell in self.cells if cell.lease}
        return own | {session.lease.created for session in self.sessions}

    def is_due(self) -> bool:
        """Whether anything is over."""
        now_ms = self.now_ms
        return (
            any(session.lease.expires_at_ms < now_ms for session in self.sessions)
            or any(hold.lease.expires_at_ms < now_ms for hold in self.holds if hold.lease)
            or any(ticket.deadline_ms < now_ms for ticket in self.tickets)
            or any(ticket.asks_at_ms < now_ms for ticket in self.tickets if ticket.asks is not None)
            or any(rate.whole_ms < now_ms for rate in self.rates)
            or any(place.at_ms < now_ms for _, place in self.places())
            or any(delay.until_ms < now_ms for delay in self.delays)
            or any(plea.until_ms < now_ms for plea in self.pleas)
            or any(cell.lease.expires_at_ms < now_ms for cell in self.cells if cell.lease)
            or any(freeze.until_ms < now_ms for freeze in self.freezes if freeze.until_ms is not None)
        )


class Expected:
    """The model, as it is after the newest entry; and what readers see of it."""

    def __init__(self) -> None:
        self.state = state = _RecordingState()
        # An audit does not go back for ever.
        state.history = deque(maxlen=limits.AUDIT_COUNT_MAX)  # type: ignore[assignment]
        state.rate_model = QuickRate
        self._purge_at_ms = 0

    @property
    def revision(self) -> int:
        """Return how many entries were applied."""
        return self.state.revision

    @property
    def now_ms(self) -> int:
        """Return the cluster time of the newest entry."""
        return self.state.now_ms

    @property
    def next_token(self) -> int:
        """Return the fencing token that the next grant gets."""
        return self.state.next_token

    # -- entries --------------------------------------------------------------------------------------------

    def replay(self, data: bytes) -> Step:
        """Apply one committed entry and return what it did."""
        state = self.state
        entry = decode_entry(data)
        state.revision += 1
        state.now_ms = max(state.now_ms, entry.now_ms)
        step = state.step = Step(state.revision, state.now_ms)
        state.events, state.settled, state.deadlocks = step.events, [], []
        state.cell_events = step.cell_events
        before, held = state.leases(), list(state.holds)
        self._pass_time()
        alive = state.leases()
        # What was to be given up is forced before its lease is over.
        left = {hold.hold_id for hold in state.holds}
        gone = [hold for hold in held if hold.hold_id not in left]
        forced = [hold for hold in gone if not hold.lease or hold.lease.expires_at_ms >= state.now_ms]
        early = {hold.lease.created for hold in forced if hold.lease}
        step.leases_ended = [(created, created not in early) for created in sorted(before - alive)]
        ended = [event for event in step.events if event.kind is EventKind.EXPIRED]
        holds, first_token = [hold.hold_id for hold in state.holds], state.next_token
        step.answers = self._run_all(entry)
        alive |= step.leases_begun.keys()
        step.leases_ended += [(created, False) for created in sorted(alive - state.leases())]
        still = {hold.hold_id for hold in state.holds}
        step.wait_ends = [(item.hold_id, item.result) for item in state.settled]
        holds += [
            item.hold_id for item in step.told() if isinstance(item, Granted) and item.token >= first_token
        ]
        for answer in step.single_answers():
            holds += [
                take.hold_id
                for take, taken in takes_of(answer.command, answer.result)
                if taken.token >= first_token
            ]
        too_long = {event.token for event in ended if event.reason == HELD_TOO_LONG}
        step.voided = [
            hold.hold_id for hold in forced if hold.session_id or not hold.lease or hold.token not in too_long
        ] + [each for each in holds if each not in still]
        return step

    def _pass_time(self) -> None:
        """End what is over, and forget old requests now and again."""
        state = self.state
        if state.is_due() or state.now_ms >= self._purge_at_ms:
            self._purge_at_ms = state.now_ms + PURGE_MS
            pass_time(state)

    def _run_all(self, entry: Entry) -> list[Answer]:
        """Run the commands of one origin in an entry, without repetitions."""
        answers = []
        highest_seqs = self.state.highest_seqs
        for batch in entry.batches:
            node_id = batch.origin.rpartition(".")[0]
            self.state.asking = batch.origin
            for seq, command in zip(batch.seqs, batch.commands, strict=True):
                if seq > highest_seqs.get(batch.origin, 0):
                    highest_seqs[batch.origin] = seq
                    answers.append(self._answer(node_id, command))
        return answers

    def _answer(self, node_id: str, command: Command | Undecodable) -> Answer:
        deadlocks = self.state.deadlocks
        count, asked = len(deadlocks), plain_command(command)
        repeated = self.state.repeated
        last = self._last_number(asked)
        result = self._run(command)
        numbered: tuple[Answer, ...] = ()
        if isinstance(asked, Numbered) and isinstance(result, NumberedDone):
            results = zip(asked.commands, result.results, strict=False)  # there may be no room for the rest
            each = list(results)[max(0, last + 1 - asked.first) :]
            numbered = tuple(
                [Answer(node_id, one, told) for one, told in each if not isinstance(one, EndWait)]
            )
        deadlock = deadlocks[-1] if len(deadlocks) > count else None
        return Answer(node_id, asked, result, deadlock, numbered, self.state.repeated > repeated)

    def _last_number(self, asked: Command | Undecodable) -> int:
        """Return the last number that was applied before, if this is a frame."""
        stream = self.state.streams.get(asked.session_id) if isinstance(asked, Numbered) else None
        return stream.last if stream is not None else 0

    def _is_old(self, request: Request) -> bool:
        """Whether the machine may have forgotten a request."""
        return self.state.now_ms > request.outcome_ms + limits.REQUEST_AGE_MS

    def _run(self, command: Command | Undecodable) -> Result:
        state, plain = self.state, plain_command(command)
        state.principal = command.principal if isinstance(command, OnBehalf) else ""
        for key in (request_key(state, plain), earlier_key(state, plain)):
            request = state.requests.get(key) if key is not None else None
            if request is not None and request.result is not None and self._is_old(request):
                del state.requests[cast("Key", key)]
        match plain:
            case AbandonWaits():
                return self._abandon(plain)
        return run(state, command)

    def waiting_at(self) -> list[tuple[HoldId, str]]:
        """Return each ticket with every node process that keeps the connection of a client of it.

        What a stream waits for is kept by none.
        """
        return [
            (ticket.ticket_id, origin)
            for ticket in self.state.tickets
            for origin in [ticket.origin, *[origin for _, origin in ticket.others]]
            if origin
        ]

    def _abandon(self, command: AbandonWaits) -> Result:
        """End what waits at a node process that is gone, as if each client had left, in order of arrival."""
        state = self.state
        gone = [ticket for ticket in state.tickets if came_through(ticket, command.origin)]
        gone.sort(key=lambda ticket: ticket.created)
        first = gone[: limits.ABANDONED_PER_COMMAND_MAX]
        ended = [ticket for ticket in first if is_left_by(ticket, command.origin)]
        for ticket in ended:
            if ticket.request is not None:
                scope, request_id = ticket.request
                plain = request_id.partition("\0")[0] if isinstance(request_id, str) else request_id
                state.step.abandoned.append((scope, plain))
            forget(state, ticket.request, ticket.ticket_id)
            end_wait(state, ticket, Left.ABANDONED)
        serve(state)
        return WaitsAbandoned(
            len(ended), sum(came_through(ticket, command.origin) for ticket in state.tickets)
        )

    def refusal_now(self, command: Command) -> Refused | None:
        """Return how a command would be refused at this revision, None if it would not. Nothing changes."""
        without_history: dict[int, object] = {id(self.state.history): deque()}
        result = run(copy.deepcopy(self.state, without_history), command)
        return result if isinstance(result, Refused) else None

    def learn_names(self, machine: LockMachine) -> None:
        """Learn the public names of sessions and tickets, which operators use and the rules leave open.

        Asked after each entry: nobody can name a session before the entry that opened it.
        """
        for session in self.state.sessions:
            opened = None if session.public_name else machine.state.sessions.get(session.session_id)
            if opened is not None:
                session.public_name = session_name(opened)
        for ticket in self.state.tickets:
            known = machine.state.tickets.get(ticket.ticket_id) if ticket.number == UNKNOWN_NUMBER else None
            if known is not None:
                ticket.number = known.order

    # -- reads ----------------------------------------------------------------------------------------------

    def lock(self, name: str) -> LockView:
        """Return one lock."""
        return model_views.lock_view(self.state, name)

    def locks(self, prefix: str, after: str, limit: int) -> tuple[list[LockView], str | None]:
        """Return a page of active locks, and where to go on, as readers see it."""
        active = model_views.active_names(self.state)
        names = [name for name in active if name.startswith(prefix) and name > after]
        page = [self.lock(name) for name in names[:limit]]
        return page, page[-1].name if len(names) > limit else None

    def session(self, session_id: SessionId) -> SessionView | None:
        """Return one session."""
        return model_views.session_view(self.state, session_id)

    def semaphore(self, name: str) -> SemaphoreView:
        """Return one semaphore."""
        return model_views.semaphore_view(self.state, name)

    def election(self, name: str) -> ElectionView:
        """Return one election."""
        return model_views.election_view(self.state, name)

    def cell(self, key: bytes) -> CellView | None:
        """Return one cell."""
        cell = self.state.cell(key)
        return None if cell is None else cell_view(self.state, cell)

    def cells(self, prefix: bytes, after: bytes, limit: int) -> tuple[list[CellView], bytes | None]:
        """Return a page of cells, and where to go on."""
        found = [one for one in in_order(self.state) if one.key.startswith(prefix) and one.key > after]
        page = [cell_view(self.state, cell) for cell in found[:limit]]
        return page, page[-1].key if len(found) > limit else None

    def check_fence(self, name: str, token: int) -> FenceView:
        """Return whether a token is a present holder's."""
        return model_views.fence_view(self.state, name, token)

    def elections(self) -> list[str]:
        """Return the elections that somebody leads or wants to lead."""
        things: list[Hold | Ticket] = [*self.state.holds, *self.state.tickets]
        return sorted({item.locks[0].name for item in things if item.kind is HoldKind.ELECTION})
