"""The replicated state machine: applies committed entries, each command once, and answers reads.

Deterministic and total. Time comes in the entry; ids and secrets come in the commands. What commands do is in
the rules, and the catalogue says which rule; here are entries, time, and requests that come twice.
"""

from collections.abc import Sequence
from typing import Any, Final, get_args

import msgspec

from lockstate.catalogue import FREES, acts_of, content_digest, effort_of, request_key
from lockstate.reads import held, history, holders, places, views
from lockstate.rules import attempts, rates
from lockstate.rules.holds import grants
from lockstate.rules.plain_locks import PLAIN
from lockstate.rules.refusals import LEASE_EXPIRED
from lockstate.rules.restoring import Restoration
from lockstate.rules.ruleset import Act, Ruleset
from lockstate.tables import budget, fingerprint
from lockstate.tables.audit import Linked
from lockstate.tables.ledger import NO_ROOM, NOTED_MAX
from lockstate.tables.names import GONE_MAX, YOUNG_MAX
from lockstate.tables.owners import order_in
from lockstate.tables.principals import NOBODY, lease_id_of
from lockstate.tables.records import RequestKey, Ticket
from lockstate.tables.requests import Remembered, grant_later, key_of, rate_taken_later
from lockstate.tables.state import State
from lockstate.words import limits
from lockstate.words.commands.cells import TransactCells
from lockstate.words.commands.entries import (
    AdvanceVersion,
    Batch,
    Command,
    Entry,
    MayBeCancelled,
    OnBehalf,
    Undecodable,
)
from lockstate.words.commands.holds import MayWait, PutOff, Renew, RenewByValue
from lockstate.words.commands.overrides import Freeze
from lockstate.words.commands.primitives import TakeRate
from lockstate.words.commands.sessions import OpenSession
from lockstate.words.events import Event
from lockstate.words.ids import NO_HOLD, NO_SESSION, HoldId, SessionId
from lockstate.words.kinds import HoldKind
from lockstate.words.outcomes import BatchOutcome, Outcome
from lockstate.words.refusals import Reason, Refused
from lockstate.words.results import (
    CellsDeleted,
    DelaysLifted,
    FenceForgotten,
    ForceReleased,
    Frozen,
    Granted,
    PutOffTo,
    Queued,
    RatesForgotten,
    RateTaken,
    Released,
    Renewed,
    Result,
    RevocationsWithdrawn,
    Revoked,
    SessionOpened,
    Thawed,
    Transacted,
    WaitsForced,
)
from lockstate.words.versions import RULES
from lockstate.words.views import (
    CellView,
    ElectionView,
    FenceView,
    HighestToken,
    Holdings,
    HoldView,
    LockView,
    SemaphoreView,
    SessionView,
    StreamView,
)

_DONE_AT_ONCE: Final[frozenset[type]] = frozenset({Granted, Released, Renewed})
"""The results of nearly all requests. To look one up is quicker than to ask what it is."""
_TOLD_KEYS: Final = frozenset(get_args(MayBeCancelled))
"""The classes of commands that are told under which key their outcome is remembered."""
_UNDECODABLE: Final = Refused(Reason.INVALID_REQUEST, "the command could not be decoded")


class LockMachine:
    """The replicated state machine."""

    def __init__(self, state: State | None = None) -> None:
        self.state = state = state or State()
        self._repeated: list[int] = []
        """The numbers of the commands of a batch that had been answered before, under their `request_id`."""
        self._acts: dict[type, Act] = {Undecodable: lambda _: _UNDECODABLE}
        self._rules = rules = Ruleset(state, self._acts, FREES, self._apply, self._as_it_is_now)
        self._acts |= acts_of(rules)

    # -- what the host asks ---------------------------------------------------------------------------------

    @property
    def rules(self) -> int:
        """Return the version of the rules that this state follows."""
        return self.state.rules

    @property
    def revision(self) -> int:
        """Return how many entries this state has applied."""
        return self.state.revision

    @property
    def now_ms(self) -> int:
        """Return the cluster time of the newest entry."""
        return self.state.now_ms

    @property
    def next_token(self) -> int:
        """Return the fencing token that the next grant gets."""
        return self.state.next_token

    @property
    def fingerprint(self) -> int:
        """Return 64 bits that every node at this revision has, if it is in the same state."""
        return fingerprint.of(self.state)

    def effort_of(self, command: Command) -> int:
        """Return how much of this state a command would go through beyond what it names: see `effort`."""
        return effort_of(self.state, command)

    def no_room_for(self, command: Command, principal: str) -> Refused | None:
        """Return the refusal of a command that a principal asks for, if there is no room (see `room`)."""
        return self._rules.room.refusal(command, principal, request_key(command))

    @property
    def is_sound(self) -> bool:
        """Whether the records are what the changes of them add up to. It takes as long as they are many."""
        return fingerprint.recomputed(self.state) == fingerprint.of(self.state)

    def next_deadline_ms(self) -> int | None:
        """Return the next deadline, effective at the first `now_ms` above it; None if there is none."""
        return self.state.deadlines.next_ms()

    def next_forgetting_ms(self) -> int | None:
        """Return when the oldest outcome may be forgotten, by any entry whose `now_ms` is above it.

        None if none is remembered. Nothing depends on it but memory.
        """
        return self.state.requests.next_ms()

    def applied_seq(self, origin: str) -> int:
        """Return the highest sequence number applied for `origin`, 0 if none."""
        known = self.state.origins.get(origin)
        return known.last_seq if known is not None else 0

    def attempt(self, hold_id: HoldId) -> Granted | Queued | None:
        """Return what became of an attempt: the hold it was granted, its place in the queue, or None."""
        ticket = self.state.tickets.get(hold_id)
        if ticket is not None:
            return Queued(hold_id, places.position(self.state, ticket))
        hold = self.state.holds.get(hold_id)
        return grants.grant_of(self.state, hold) if hold is not None else None

    def waiting_origins(self) -> list[str]:
        """Return the node processes that keep the connections of waiting clients; those of streams go."""
        return list(filter(None, self.state.origin_tickets))

    def counts(self) -> dict[str, int]:
        """Return the sizes of the tables. Locks are counted with the ancestors of their names."""
        state = self.state
        return {
            "locks": len(state.claimed),
            "holds": len(state.holds),
            "tickets": len(state.tickets),
            "sessions": len(state.sessions),
            "requests": len(state.requests),
            "semaphores": len(state.semaphores),
            "rate_limits": len(state.rates),
            "fences": len(state.fences),
            "cells": len(state.cells),
            "streams": len(state.streams),
            "holds_without_deadline": state.endless_count,
        }

    @property
    def bytes_count(self) -> int:
        """Return how much memory the state takes, as it is counted (see `budget`)."""
        return budget.bytes_of(self.state)

    @property
    def bytes_max(self) -> int:
        """Return how much memory the state may take."""
        return self.state.bytes_max

    # -- reads ----------------------------------------------------------------------------------------------

    def lock(self, name: str) -> LockView:
        """Return one lock as anybody may see it."""
        return views.lock_view(self.state, name)

    def holders(self, name: str) -> tuple[HoldView, ...]:
        """Return who holds a lock, as `lock` shows them, without a look at all that wait for it."""
        return views.lock_holders(self.state, name)

    def is_delayed(self, name: str) -> bool:
        """Whether a lock-delay keeps this lock."""
        return places.is_delayed(self.state, name)

    def can_take(self, name: str, ended: HoldId = NO_HOLD) -> bool:
        """Whether an exclusive lock could be had now without waiting, or as soon as this hold has ended."""
        return self._rules.lock_parts.can_take(name, ended)

    def leaves_delay(self, hold_id: HoldId) -> bool:
        """Whether this hold leaves a lock-delay if it ends by force."""
        hold = self.state.holds.get(hold_id)
        return hold is not None and hold.details.lock_delay_ms > 0

    def hold_ids(self, name: str) -> tuple[HoldId, ...]:
        """Return the ids of the holds of exactly this lock, for faces that do something with them."""
        return tuple([hold.hold_id for hold in holders.holders_of(self.state, HoldKind.LOCK, name)])

    def locks(
        self, prefix: str, after: str, limit: int, longer_than_ms: int = 0
    ) -> tuple[list[LockView], str | None]:
        """Return a page of active locks in order of name, and the name to go on after if there are more."""
        return views.lock_views(self.state, prefix, after, limit, longer_than_ms)

    def session(self, session_id: SessionId) -> SessionView | None:
        """Return one session, for a client that knows its id."""
        return views.session_view(self.state, session_id)

    def lives(self, lease_id: SessionId | HoldId) -> bool:
        """Whether there is a session of this id, or a hold of this id that lives without one."""
        hold = self.state.holds.get(HoldId(lease_id))
        return lease_id in self.state.sessions or (hold is not None and not hold.session_id)

    def is_of(self, lease_id: SessionId | HoldId, principal: str) -> bool:
        """Whether a session, or a hold without one, is of this principal or of nobody, or is not there.

        Whoever asks without a name, "", is told of all.
        """
        owner = self.state.principals.rows.get(lease_id, NOBODY)
        return not (owner and principal) or owner == principal

    def belongs_to(self, lease_id: SessionId | HoldId, principal: str) -> bool:
        """Whether a session, or a hold without one, is there and is of this principal."""
        return self.state.principals.rows.get(lease_id) == principal

    def owner_of(self, lease_id: SessionId | HoldId) -> str:
        """Return the principal of a session, or of a hold without one; "" if it is of nobody or not there."""
        return self.state.principals.rows.get(lease_id, NOBODY)

    def is_endless(self, hold_id: HoldId) -> bool | None:
        """Whether a hold has no deadline, which never changes; None if there is no such hold."""
        hold = self.state.holds.get(hold_id)
        return None if hold is None else hold.is_endless

    def semaphore(self, name: str) -> SemaphoreView:
        """Return one semaphore as anybody may see it."""
        return views.semaphore_view(self.state, name)

    def election(self, name: str) -> ElectionView:
        """Return one election as anybody may see it."""
        return views.election_view(self.state, name)

    def cell(self, key: bytes) -> CellView | None:
        """Return one cell, None if there is none."""
        cell = self.state.cells.get(key)
        return None if cell is None else views.cell_view(self.state, cell)

    def cells(self, prefix: bytes, after: bytes, limit: int) -> tuple[list[CellView], bytes | None]:
        """Return a page of cells in order of key, and the key to go on after if there are more."""
        return views.cell_views(self.state, prefix, after, limit)

    def stream(self, session_id: SessionId) -> StreamView | None:
        """Return what is known of the stream of a session, None if it has none."""
        stream = self.state.streams.get(session_id)
        return None if stream is None else StreamView(stream.epoch, stream.last, stream.kept_count)

    @property
    def cells_revision(self) -> int:
        """Return how often any cell has been changed."""
        return self.state.cells.revision

    def check_fence(self, name: str, token: int, kind: HoldKind | None = None) -> FenceView:
        """Return whether `token` belongs to a present holder of `name`, of one kind or of any."""
        return views.fence_view(self.state, name, token, kind)

    def fence(self, name: str) -> HighestToken:
        """Return the highest token that a resource has seen."""
        return HighestToken(name, self.state.fences.get(name))

    def peek_rate(self, command: TakeRate) -> RateTaken | Refused:
        """Return what a rate limit would answer to `command` now, which takes nothing."""
        return rates.peek(self.state, command)

    def holdings_of(self, name: str) -> Holdings | None:
        """Return what the session of this public name holds and waits for, None if there is no such one."""
        session = self.state.sessions_in_order.get(order_in(name))
        view = views.session_view(self.state, session.session_id) if session is not None else None
        return Holdings(view.holds, view.tickets) if view is not None else None

    def audit(
        self, name: str = "", session_id: SessionId | HoldId = NO_SESSION, limit: int = limits.AUDIT_LIMIT_MAX
    ) -> list[Event]:
        """Return what happened last, the newest first: to a name, by a session or hold, or at all."""
        return [event for event, _ in self.audit_records(name, session_id, limit)]

    def audit_records(
        self,
        name: str = "",
        session_id: SessionId | HoldId = NO_SESSION,
        limit: int = limits.AUDIT_LIMIT_MAX,
        *,
        behind: int | None = None,
        by_operators: bool = False,
    ) -> list[Linked]:
        """Return what `audit` does, each with its link; behind a number the oldest come first."""
        return history.audit(self.state, name, session_id, limit, behind, by_operators=by_operators)

    def ending(self, *, session_id: SessionId = NO_SESSION, hold_id: HoldId = NO_HOLD) -> Event | None:
        """Return what ended a session, or a hold with a lease of its own; None if that was long ago."""
        return history.ending(self.state, session_id, hold_id)

    # -- apply ----------------------------------------------------------------------------------------------

    def apply(self, entry: Entry) -> Outcome:
        """Apply one committed entry. Deterministic; never raises, whatever the entry says.

        The rules move first, if the entry says so. Then time passes: what is over by `now_ms` ends, in order
        of (deadline, creation). Then the commands are applied in their order.
        """
        state = self.state
        state.revision += 1
        if entry.advance is not None:
            self._advance_rules(entry.advance)
        if entry.bytes_max:
            budget.set_bound(state, entry.bytes_max)
        self._advance_time(entry.now_ms)
        budget.begin_entry(state)
        batches = tuple([self._apply_batch(batch) for batch in entry.batches])
        if len(state.names.young) > YOUNG_MAX or len(state.names.gone) > GONE_MAX:
            state.claimed.settle()
        if len(state.ledger.noted) > NOTED_MAX or len(state.deadlines.noted) > NOTED_MAX:
            state.make_up()
        return Outcome(state.revision, state.now_ms, batches, *self._rules.effects.take())

    def restore(self, restoration: Restoration) -> None:
        """Let this state begin in a new cluster (see `restoring`). Before any entry of that is applied."""
        self.state.revision += 1
        self._rules.restoring.restore(restoration)
        self._rules.effects.take()

    def _advance_rules(self, advance: AdvanceVersion) -> None:
        """Follow the next rules from here on, unless they are held.

        A repetition has no effect, and no version is left out.
        """
        if self.state.rules_hold is None and advance.to == self.state.rules + 1 and advance.to in RULES:
            self.state.rules = advance.to
            self.state.ledger.room = NO_ROOM

    def _advance_time(self, now_ms: int) -> None:
        """Let cluster time pass; it never goes back."""
        state = self.state
        if now_ms > state.now_ms:  # noqa: PLR1730 - in every entry, and max() takes longer
            state.now_ms = now_ms
        self._rules.sessions.expire_due()
        state.requests.prune(state.now_ms)

    def _apply_batch(self, batch: Batch) -> BatchOutcome:
        """Apply the commands of one origin, except those that were applied before: they came twice."""
        origin = self.state.origin(batch.origin)
        self.state.asking = batch.origin
        last_seq, all_seqs, commands = origin.last_seq, batch.seqs, batch.commands
        acts, plain = self._acts, self._rules.plain_locks
        results: list[Result] = []
        came_twice: set[int] = set()
        done_until = until = 0
        for place, seq in enumerate(all_seqs):
            if place < done_until:
                continue
            if seq <= last_seq:
                came_twice.add(place)
                continue
            command = commands[place]
            if command.request_id:
                result = self._apply_once(command, seq)
            elif command.__class__ in PLAIN:
                if until <= place:
                    until = _end_of_run(all_seqs, commands, place)
                done = plain.run(commands, range(place, until))
                if done:
                    results += done
                    done_until = place + len(done)
                    last_seq = all_seqs[done_until - 1]
                    continue
                result = plain.general(command)
            else:
                result = acts[command.__class__](command)
            results.append(result)
            last_seq = seq
        self.state.note_batch(batch.origin, origin, last_seq)
        seqs = all_seqs
        if came_twice:
            seqs = tuple([seq for place, seq in enumerate(all_seqs) if place not in came_twice])
        if self._repeated:
            repeated, self._repeated = tuple(self._repeated), []
            return BatchOutcome(batch.origin, seqs, tuple(results), repeated)
        return BatchOutcome(batch.origin, seqs, tuple(results))

    def _apply(self, command: Command, key: RequestKey | None) -> Result:
        """Apply a command, and pass the key under which it is remembered on to those that may wait."""
        act = self._acts[command.__class__]
        return act(command, key) if command.__class__ in _TOLD_KEYS else act(command)

    def _apply_once(self, command: Any, seq: int) -> Result:
        """Apply a command that carries a `request_id`, or answer with the outcome of what it repeats."""
        if command.__class__ is OnBehalf:
            return self._rules.principals.apply(command, lambda: self._apply_once(command.command, seq))
        key = request_key(command)
        if key is None or len(key[0]) > limits.NAME_BYTES_MAX:
            return self._apply(command, None)
        refused = limits.check_id("request_id", key[1])
        if refused is not None:
            return refused
        requests = self.state.requests
        digest = content_digest(command)
        if requests.askers or self.state.principals.asking:
            key = self._own_key(key, digest)
        remembered = requests.get(key)
        if remembered is not None:
            if remembered.digest == digest:
                self._repeated.append(seq)
            return self._repeat(remembered, digest, command, key)
        if requests.is_full or (self.state.is_tight and budget.is_full(self.state)):
            return self._apply_without_room(command, key, digest)
        result = self._apply(command, key)
        if result.__class__ in _DONE_AT_ONCE or not _is_to_be_tried_again(result):
            requests.remember(key, digest, self.state.now_ms, result)
            if self.state.principals.asking:
                requests.note_asker(key)
        return result

    def _apply_without_room(self, command: Command, key: tuple[str, str], digest: bytes) -> Result:
        """Refuse a command whose outcome could not be remembered; not if it frees something.

        What it freed took more than the memory of its outcome does. An outcome that freed nothing is not
        remembered: a repetition finds the same, or renews once more. A transaction is refused whatever its
        parts are: one that deletes a single cell may have 63 outcomes beside it.
        """
        state = self.state
        if command.__class__ not in FREES:
            return budget.check_room(state) or Refused(
                Reason.OVERLOADED, "too many requests with a request_id within five minutes", (), 0, 1000
            )
        result = self._apply(command, key)
        if not (isinstance(result, Refused | Renewed) or _freed_nothing(result)):
            state.requests.remember(key, digest, state.now_ms, result)
            if state.principals.asking:
                state.requests.note_asker(key)
        return result

    def _repeat(self, remembered: Remembered, digest: bytes, command: Command, key: RequestKey) -> Result:
        """Answer a repeated request with its first outcome; times that remain count from now."""
        if remembered.digest != digest:
            return Refused(Reason.INVALID_REQUEST, "request_id: was used for a request with other content")
        return self._as_it_is_now(command, key, remembered.result, remembered.at_ms)

    def _own_key(self, key: tuple[str, str], digest: bytes) -> tuple[str, str]:
        """Return a key as it is of the principal that asks: the ids of others are not its own.

        A client may repeat what it asked through a node that says who asks at one that does not, or the other
        way round: one that has no tokens yet. That is the same request, of nobody and of somebody; but never
        is one that of two principals.
        """
        asking, requests = self.state.principals.asking, self.state.requests
        own = key_of(asking, key)
        if own in requests:
            return own
        for other in (NOBODY,) if asking else requests.askers_of(key):
            earlier = requests.get(key_of(other, key))
            if earlier is not None and earlier.digest == digest:
                return key_of(other, key)
        return own

    def _as_it_is_now(self, command: Command, key: RequestKey | None, first: Result, at_ms: int) -> Result:
        """Return the outcome that a request had at some time; times that remain count from now."""
        if isinstance(command, MayWait):
            if isinstance(first, Queued):
                return self._still_queued(command, self.state.tickets[first.hold_id])
            return self._still_granted(command, key, first, at_ms) if isinstance(first, Granted) else first
        match command:
            case Renew() if isinstance(first, Renewed):
                hold = self.state.holds.get(command.hold_id)
                # A number of a stream may come again with another command, for what is somebody else's.
                if hold is None or self.state.principals.is_foreign(lease_id_of(hold)):
                    return LEASE_EXPIRED
                return self._rules.sessions.renewed(hold, first.token)
            case RenewByValue() if isinstance(first, Renewed):
                renewed = holders.holder_with_token(self.state, command.kind, command.name, first.token)
                return self._rules.sessions.renewed(renewed, first.token) if renewed else LEASE_EXPIRED
            case PutOff() | Freeze() if isinstance(first, PutOffTo | Frozen) and first.ends_in_ms is not None:
                left_ms = max(first.ends_in_ms - (self.state.now_ms - at_ms), 0)
                return msgspec.structs.replace(first, ends_in_ms=left_ms)
            case TakeRate() if isinstance(first, RateTaken):
                self.state.rates.join(key, command.attempt_id)
                return rate_taken_later(first, self.state.now_ms - at_ms)
            case TransactCells() if isinstance(first, Transacted):
                return self._rules.transactions.repeated(command, first)
            case OpenSession() if isinstance(first, SessionOpened):
                session = self.state.sessions.get(first.session_id)
                left_ms = session.expires_at_ms - self.state.now_ms if session else 0
                return msgspec.structs.replace(first, expires_in_ms=max(left_ms, 0))
        return first

    def _still_queued(self, command: MayWait, ticket: Ticket) -> Queued:
        """Let a wait go on for another attempt, which may have come through another node."""
        attempts.join(self.state, ticket, command.attempt_id)
        return Queued(ticket.hold_id, places.position(self.state, ticket))

    def _still_granted(self, command: MayWait, key: RequestKey | None, first: Granted, at_ms: int) -> Granted:
        """Return a grant as it was, with what is left of its lease: nothing, if it has ended.

        The hold belongs to this attempt as well, unless another request has been given it since.
        """
        first = grant_later(first, self.state.now_ms - at_ms)
        hold = self.state.holds.get(first.hold_id)
        if hold is None:
            return msgspec.structs.replace(first, expires_in_ms=0)
        if hold.request == key:
            attempts.join(self.state, hold, command.attempt_id)
        return msgspec.structs.replace(first, expires_in_ms=held.remaining_ms(self.state, hold))


def _end_of_run(seqs: Sequence[int], commands: Sequence[Any], first: int) -> int:
    """Return the place behind the commands from `first` on that may be plain, each new and without an id."""
    for end in range(first + 1, len(seqs)):
        command = commands[end]
        if command.request_id or seqs[end] <= seqs[end - 1] or command.__class__ not in PLAIN:
            return end
    return len(seqs)


def _is_to_be_tried_again(result: Result) -> bool:
    """Whether a repetition of a request is tried, for the first attempt changed nothing."""
    return isinstance(result, Refused) or (isinstance(result, RateTaken) and not result.allowed)


def _freed_nothing(result: Result) -> bool:
    """Whether a command that is there to free something found nothing, or nobody to ask for it."""
    match result:
        case CellsDeleted() | DelaysLifted() | RatesForgotten() | RevocationsWithdrawn():
            return not result.count
        case ForceReleased():
            return not result.released
        case Revoked():
            return not result.holders
        case WaitsForced():
            return not result.waits
        case FenceForgotten():
            return result.highest_token is None
        case Thawed():
            return not result.was_frozen
    return False
