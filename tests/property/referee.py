"""A referee that does not know the state: only commands, results and events, and what a lock promises."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from lockstate.words import limits
from lockstate.words.cell_operations import TakeOperation
from lockstate.words.commands.cells import TransactCells
from lockstate.words.commands.entries import Entry
from lockstate.words.commands.holds import Acquire, AcquirePermits, AddLocks, HandOver
from lockstate.words.commands.streams import Numbered
from lockstate.words.events import Event, EventKind, Left
from lockstate.words.ids import HoldId
from lockstate.words.kinds import HoldKind
from lockstate.words.modes import Mode
from lockstate.words.outcomes import Outcome
from lockstate.words.results import Granted, HandedOver, LockTaken, NumberedDone, Queued, Result, Transacted
from lockstate.words.wanted import PRIORITY_DEFAULT, Wanted
from tests.property.model_locks import conflict
from tests.support.ticket_book import TicketBook
from tests.support.vocabulary import plain_command

BEGINNINGS = {EventKind.GRANTED, EventKind.ELECTED}
ENDS = {
    EventKind.RELEASED,
    EventKind.EXPIRED,
    EventKind.FORCED,
    EventKind.RESIGNED,
    EventKind.HANDED_OVER,
}


@dataclass
class Referee:
    """Follows the outcomes of one machine and objects when a promise is broken."""

    revision: int = 0
    now_ms: int = 0
    last: Event | None = None
    """The event that drew the last token."""
    held: list[Event] = field(default_factory=list)
    """The grant of each lock that is held."""
    waiting: list[Event] = field(default_factory=list)
    """The arrival of each lock that is waited for, in order."""
    tokens: dict[HoldId, int] = field(default_factory=dict)
    """The last token of every hold there has been."""
    before: dict[int, int] = field(default_factory=dict)
    """The token that a hold had before, by each token that this outcome gives it."""
    unsure: list[Event] = field(default_factory=list)
    """Arrivals that may be those of one waiter or of another just like it."""
    waited: set[tuple[int, Mode]] = field(default_factory=set)
    """Token and mode of every wait that this outcome ends with a grant."""
    waits: set[HoldId] = field(default_factory=set)
    """All that wait."""
    added: set[int] = field(default_factory=set)
    """The tokens of holds to which this outcome adds what they waited for."""
    additions: set[HoldId] = field(default_factory=set)
    """The ids under which anybody may have waited for more locks for a hold."""
    shared: Counter[int] = field(default_factory=Counter)
    """How many more waits share a hold, by its token."""
    at_once: dict[int, int] = field(default_factory=dict)
    """The priority of each request that this outcome grants at once, by its token."""
    priorities: dict[int, int] = field(default_factory=dict)
    """The priorities of waits, by the numbers of their tickets."""
    handed_over: Event | None = None
    """The end of a hold that was handed over, until the next event grants what it had."""
    tickets: TicketBook = field(default_factory=TicketBook)

    def watch(self, entry: Entry, outcome: Outcome) -> None:
        """Check one outcome against everything seen before."""
        assert outcome.revision == self.revision + 1, "revisions count entries"
        assert outcome.now_ms == max(self.now_ms, entry.now_ms), "cluster time never goes back"
        self.revision, self.now_ms = outcome.revision, outcome.now_ms
        self.waited = {
            (s.result.token, mode)
            for s in outcome.settled
            if isinstance(s.result, Granted)
            for mode in (s.result.mode, *(lock.mode for lock in s.result.locks))
        }
        ids = {s.hold_id for s in outcome.settled}
        given = {result.hold_id for result in _results(outcome) if isinstance(result, Granted)} | ids
        self._note_additions(entry)
        self.added = {
            s.result.token
            for s in outcome.settled
            if isinstance(s.result, Granted) and s.hold_id in self.additions
        }
        self.shared = Counter(
            s.result.token
            for s in outcome.settled
            if isinstance(s.result, Granted) and s.result.hold_id != s.hold_id and s.result.hold_id in given
            if s.hold_id not in self.additions
        )
        self._note_priorities(entry, outcome, ids)
        self._note_tokens(outcome)
        self._note_given(entry, outcome)
        objection = self.tickets.watch(outcome.events)
        assert objection is None, objection
        for event in outcome.events:
            assert (event.revision, event.now_ms) == (self.revision, self.now_ms)
            self._watch_event(event)

    def _note_additions(self, entry: Entry) -> None:
        """Note the ids under which somebody may wait for more locks for a hold."""
        self.additions |= {command.ticket_id for command in _asked(entry) if isinstance(command, AddLocks)}

    def _note_tokens(self, outcome: Outcome) -> None:
        """Note which tokens follow one another in one hold; one outcome may give it several, which rise."""
        granted = [
            r for r in (*_results(outcome), *(s.result for s in outcome.settled)) if isinstance(r, Granted)
        ]
        self.before = {}
        for result in sorted(granted, key=lambda one: one.token):
            last = self.tokens.get(result.hold_id)
            if last is not None and last < result.token:
                self.before[result.token] = last
            self.tokens[result.hold_id] = max(result.token, last or 0)

    def _note_given(self, entry: Entry, outcome: Outcome) -> None:
        """Note the tokens of holds that no grant tells of: given to sessions, or taken by transactions."""
        asked = {
            (batch.origin, seq): plain_command(command)
            for batch in entry.batches
            for seq, command in zip(batch.seqs, batch.commands, strict=True)
        }
        for batch in outcome.batches:
            for seq, result in zip(batch.seqs, batch.results, strict=True):
                command = asked[batch.origin, seq]
                if isinstance(command, HandOver) and isinstance(result, HandedOver):
                    new_id = command.new_hold_id
                    self.tokens[new_id] = max(result.token, self.tokens.get(new_id, 0))
                if isinstance(command, Numbered) and isinstance(result, NumberedDone):
                    for one, of_one in zip(command.commands, result.results, strict=False):
                        self._note_taken(one, of_one)
                self._note_taken(command, result)

    def _note_taken(self, command: Any, result: Result) -> None:
        """Note the tokens of what a transaction has taken."""
        if isinstance(command, TransactCells) and isinstance(result, Transacted):
            operations = command.then if result.succeeded else command.otherwise
            for take, taken in zip(operations, result.results, strict=True):
                if isinstance(take, TakeOperation) and isinstance(taken, LockTaken):
                    self.tokens[take.hold_id] = max(taken.token, self.tokens.get(take.hold_id, 0))

    def _note_priorities(self, entry: Entry, outcome: Outcome, waited: set[HoldId]) -> None:
        """Note with which priorities something was granted at once or told to wait, in their order."""
        asked = {
            command.hold_id: command.uncommon.priority
            for command in _asked(entry)
            if isinstance(command, Acquire | AcquirePermits) and command.uncommon is not None
        }
        results = _results(outcome)
        # A hold that waited for more may be told of again in the same entry, by what else is asked of it.
        by_waits = {s.result.token for s in outcome.settled if isinstance(s.result, Granted)}
        self.at_once = {
            result.token: asked.get(result.hold_id, PRIORITY_DEFAULT)
            for result in results
            if isinstance(result, Granted) and result.hold_id not in waited and result.token not in by_waits
        }
        for result in results:
            if isinstance(result, Transacted):
                taken = [part.token for part in result.results if isinstance(part, LockTaken)]
                self.at_once |= dict.fromkeys(taken, PRIORITY_DEFAULT)
        queued = dict.fromkeys(result.hold_id for result in results if isinstance(result, Queued))
        new = [hold_id for hold_id in queued if hold_id in asked]
        numbers = dict.fromkeys(e.ticket for e in outcome.events if e.kind is EventKind.QUEUED)
        if new:
            known = [hold_id for hold_id in queued if hold_id not in self.waits]
            for hold_id, number in zip(known, numbers, strict=True):
                self.priorities[number] = asked.get(hold_id, PRIORITY_DEFAULT)
        # An id may be used again by a request that was undone.
        self.waits = (self.waits | queued.keys()) - waited

    def _place(self, arrival: Event) -> tuple[int, int]:
        """Return the place of a wait: of two at one time the earlier one comes first."""
        priority = self.priorities.get(arrival.ticket, PRIORITY_DEFAULT)
        ahead_ms = (priority - PRIORITY_DEFAULT) * limits.PRIORITY_STEP_MS
        return arrival.now_ms - ahead_ms, self.waiting.index(arrival)

    def _watch_event(self, event: Event) -> None:
        ended, self.handed_over = self.handed_over, event if event.to_token else None
        if ended is not None:
            assert (event.name, event.token) == (ended.name, ended.to_token), f"{event} came after {ended}"
            self._watch_token(event)
            self._watch_receiver(event)
            return
        if event.kind is EventKind.QUEUED:
            self.waiting.append(event)
        elif event.kind is EventKind.LEFT:
            if event.reason != Left.SHARED:  # with the grant of the hold that is shared, it left already
                self._leave(event)
        elif event.kind is EventKind.CONVERTED:
            self._watch_conversion(event)
        elif event.kind in BEGINNINGS and not self._is_proclaimed(event):
            self._watch_token(event)
            self._watch_order(event)
            self._watch_grant(event)
            for _ in range(self.shared[event.token]):
                self._leave(event)
        elif event.kind in ENDS:
            assert bool(event.to_token) == (event.kind is EventKind.HANDED_OVER), f"{event}: who has it now?"
            self.held.remove(self._grant_of(event))

    def _watch_receiver(self, event: Event) -> None:
        """Put what was handed over in the hands of a waiter, in whatever place, or of a session."""
        if event.ticket:
            self.waiting.remove(self._arrivals(event)[0])
        self._watch_grant(event)
        for _ in range(self.shared[event.token]):
            self._leave(event)

    def _grant_of(self, event: Event) -> Event:
        """Return the grant of the hold that ends."""
        mine = [h for h in self.held if _is_of_one(h, event) and h.token == event.token]
        assert mine, f"{event} ends a hold that nobody has"
        return mine[0]

    def _is_proclaimed(self, event: Event) -> bool:
        """Whether a leader only changes its value."""
        return event.kind is EventKind.ELECTED and any(
            _is_of_one(h, event) and h.token == event.token for h in self.held
        )

    def _watch_token(self, event: Event) -> None:
        """Check that tokens rise; several locks that come together have one."""
        last = self.last
        if last is not None and event.token == last.token:
            one, other = ((e.revision, e.session_id, e.owner) for e in (event, last))
            assert one == other, f"the token of {last} is drawn again"
            # Locks that are added are granted with the token with which all others are converted.
            kinds = (last.kind, event.kind)
            assert last.kind is event.kind or kinds == (EventKind.CONVERTED, EventKind.GRANTED), (
                f"{event} again"
            )
        else:
            assert last is None or event.token > last.token, f"the token of {event} does not rise"
        self.last = event

    def _watch_order(self, event: Event) -> None:
        """Check that a grant overtakes no waiter it conflicts with; a request that did not wait came last."""
        if event.token in self.at_once:
            ahead_ms = (self.at_once[event.token] - PRIORITY_DEFAULT) * limits.PRIORITY_STEP_MS
            place = event.now_ms - ahead_ms, len(self.waiting)
            earlier = [other for other in self.waiting if self._place(other) < place]
        else:
            arrival = self._arrivals(event)[0]
            place = self._place(arrival)
            earlier = [other for other in self.waiting if self._place(other) < place]
            earlier = [] if arrival in self.unsure else earlier
            self.waiting.remove(arrival)
        for other in earlier:
            assert not _conflict(other, event), f"{event} overtakes {other}"

    def _leave(self, event: Event) -> None:
        """Take out an arrival for what `event` tells of."""
        arrivals = self._arrivals(event)
        assert arrivals, f"{event} ends a wait that never began"
        self.waiting.remove(arrivals[0])
        self.unsure += arrivals[1:]

    def _arrivals(self, event: Event) -> list[Event]:
        """Return the arrivals that may be that of the waiter whose wait is over, the first one first.

        The time of its arrival is known, except for conversions and for waiters just like one.
        """
        alike = [w for w in self.waiting if _is_of_one(w, event)]
        if event.ticket and any(w.ticket == event.ticket for w in alike):
            return [w for w in alike if w.ticket == event.ticket]
        return [w for w in alike if w.now_ms == event.now_ms - event.lasted_ms] or alike

    def _watch_grant(self, event: Event) -> None:
        for other in self.held:
            is_free = (
                event.of is HoldKind.SEMAPHORE or other.token == event.token or not _conflict(other, event)
            )
            assert is_free, f"{event} is granted beside {other}"
        self.held.append(event)

    def _watch_conversion(self, event: Event) -> None:
        """Put a hold in its new mode in place of the old one; to read without protection draws no token."""
        mine = [
            h
            for h in self.held
            if (h.of, h.name, h.scope, h.session_id, h.owner)
            == (event.of, event.name, event.scope, event.session_id, event.owner)
        ]
        tokens = {event.token, self.before.get(event.token)}
        taken = [h for h in mine if h.token in tokens]
        assert taken, f"{event} converts what nobody has"
        is_kept = taken[0].mode is event.mode
        if not any(h.token == event.token for h in mine):
            # With an addition comes a new token for all that is kept as it was.
            is_drawn = event.mode is not Mode.CONCURRENT_READ or is_kept
            assert is_drawn, f"{event} draws a token for nothing"
            self._watch_token(event)
        self.held.remove(taken[0])
        if (event.token, event.mode) in self.waited and (event.ticket or event.token not in self.added):
            arrivals = [w for w in self.waiting if _is_of_one(w, event)]
            self.waiting.remove(arrivals[0])
            self.unsure += arrivals[1:]
        self._watch_grant(event)


def _asked(entry: Entry) -> list[Any]:
    """Return all that is asked, also in frames, without who asks."""
    wholes = [plain_command(whole) for batch in entry.batches for whole in batch.commands]
    return [one for whole in wholes for one in (whole.commands if isinstance(whole, Numbered) else (whole,))]


def _results(outcome: Outcome) -> list[Result]:
    """Return the results of all commands, those in frames included."""
    results = [result for batch in outcome.batches for result in batch.results]
    return [
        one for whole in results for one in (whole.results if isinstance(whole, NumberedDone) else (whole,))
    ]


def _is_of_one(one: Event, other: Event) -> bool:
    """Whether two events tell of the same lock of the same hold or waiter."""
    mine, others = ((e.of, e.name, e.scope, e.mode, e.session_id, e.owner, e.permits) for e in (one, other))
    return mine == others


def _conflict(one: Event, other: Event) -> bool:
    if one.of is not other.of:
        return False
    first, second = (Wanted(e.name, e.mode, e.scope) for e in (one, other))
    return conflict(first, second)
