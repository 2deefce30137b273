"""Defects of the state machine: sessions, queues, requests, and what holds exclude."""

import contextlib
from collections.abc import Iterator
from typing import Any, Final
from unittest import mock

import cluster.commands.clock
from lockstate import machine
from lockstate.machine import LockMachine
from lockstate.rules.holds import ends, grants, waiting
from lockstate.rules.sessions import Sessions
from lockstate.rules.waits import Waits
from lockstate.tables import queues
from lockstate.tables.claim_table import Freed
from lockstate.tables.holds import add_hold
from lockstate.tables.records import Hold, Session, Ticket
from lockstate.tables.requests import RequestMemory
from lockstate.tables.state import State
from lockstate.words import limits
from lockstate.words.claims import Claims
from lockstate.words.commands.entries import Batch, Cancel, Command, Undecodable
from lockstate.words.commands.holds import Renew
from lockstate.words.events import EventKind
from lockstate.words.kinds import HoldKind
from lockstate.words.modes import CONFLICTING, FIELD, Mode, Scope, claim_of, intent_of
from lockstate.words.outcomes import BatchOutcome
from lockstate.words.refusals import Reason, Refused
from lockstate.words.results import Cancelled, Renewed, Result
from tests.simulation.mutations.mutation import (
    Apply,
    Mutation,
    Surroundings,
    many_snapshots,
    replaced,
    together,
)

_FAILOVERS: Final = Surroundings(
    rates={"kill": 8.0, "transfer": 6.0, "reset": 6.0, "isolate": 3.0},
    fault_s=(0.5, 4.0),
    settings={"compact_entries": 1_000, "latency_us": 20_000, "jitter_us": 5_000, "clients_count": 8},
)
"""Many leaders, and commands under way that are sent again to the next one."""
CONTENDED: Final = Surroundings(minutes=1)


@contextlib.contextmanager
def _one_expiry() -> Iterator[None]:
    """Let each entry end one thing whose time is over: the rest is for the next one. No defect."""
    with many_snapshots(), mock.patch.object(limits, "EXPIRIES_PER_ENTRY_MAX", 1):
        yield


_EXPIRING: Final = Surroundings(minutes=1, client_settings={"ttl_ms": (50, 1_000)}, around=_one_expiry)


_UNDECODABLE: Final = Refused(Reason.INVALID_REQUEST, "the command could not be decoded")


def _advance_by_local_clock(machine: LockMachine, now_ms: int) -> None:
    """Let so much time pass as this machine's own clock says, from the first entry on."""
    state = machine.state
    local_ms = cluster.commands.clock.SystemClock().now_ns() // 1_000_000
    offset_ms = machine.__dict__.setdefault("offset_ms", now_ms - local_ms)
    state.now_ms = max(state.now_ms, local_ms + offset_ms)
    machine._rules.sessions.expire_due()
    state.requests.prune(state.now_ms)


def advance_anywhere(machine: LockMachine, now_ms: int) -> None:
    """Take over the time of the entry, whatever it is."""
    machine.state.now_ms = now_ms
    machine._rules.sessions.expire_due()
    machine.state.requests.prune(now_ms)


def _apply_all(machine: LockMachine, batch: Batch) -> BatchOutcome:
    """Apply commands whether or not they were applied before."""
    origin = machine.state.origin(batch.origin)
    machine.state.note_batch(batch.origin, origin, max([origin.last_seq, *batch.seqs]))
    results = tuple(
        [_apply(machine, command, seq) for seq, command in zip(batch.seqs, batch.commands, strict=True)]
    )
    return BatchOutcome(batch.origin, batch.seqs, results)


def _apply(machine: LockMachine, command: Command | Undecodable, seq: int) -> Result:
    if isinstance(command, Undecodable):
        return _UNDECODABLE
    return machine._apply_once(command, seq) if command.request_id else machine._apply(command, None)


def _apply_without_request(machine: LockMachine, command: Command, _seq: int) -> Result:
    """Do not look whether this request came before."""
    return machine._apply(command, None)


def _is_never_tried_again(_result: Result) -> bool:
    return False


_renew, _end = Sessions.renew, Sessions.end
_can_go, _candidates = queues.can_go, queues.candidates


def _candidates_all(state: State, freed: Freed) -> Iterator[Ticket]:
    """Look at all who wait for a lock, who came last first."""
    yield from (ticket for ticket in _candidates(state, freed) if ticket.kind is HoldKind.SEMAPHORE)
    waiting = [ticket for ticket in state.tickets.values() if ticket.kind is not HoldKind.SEMAPHORE]
    yield from reversed(waiting)


def can_overtake(state: State, ticket: Ticket, claims: Claims, *ended: Any) -> bool:
    """Look at holds only, and not at waiters."""
    records = [lock for name, _ in claims if (lock := state.locks.get(name)) is not None]
    waiting = [lock.waiting for lock in records]
    for lock in records:
        lock.waiting = 0
    try:
        return _can_go(state, ticket, claims, *ended)
    finally:
        for lock, count in zip(records, waiting, strict=True):
            lock.waiting = count


def _renew_in_words_only(sessions: Sessions, command: Renew) -> Result:
    """Tell of a new lease, and let the old one go on."""
    hold = sessions._state.holds.get(command.hold_id)
    if hold is None:
        return _renew(sessions, command)
    return Renewed(hold.token, sessions._state.lease_of(hold).ttl_ms)


def _cancel_nothing(_waits: Waits, _command: Cancel) -> Result:
    """Leave the ticket of a client that went away in its queue."""
    return Cancelled(undone=True)


def _keep_nothing(_state: State, *_what: object) -> None:
    """Let the next one in although a delay was asked for."""


def _end_alone(sessions: Sessions, session: Session, kind: EventKind, reason: str = "") -> tuple[str, ...]:
    """End a session, and serve nobody of those who waited for its holds."""
    with mock.patch.object(waiting, "serve", _serve_nobody):
        return _end(sessions, session, kind, reason)


def _serve_nobody(_effects: object, _freed: object) -> None:
    """Let everybody wait."""


_expire_due = Sessions.expire_due


def _expire_due_but_one(sessions: Sessions) -> None:
    """Put what is left for the next entry off by a minute."""
    _expire_due(sessions)
    deadlines = sessions._state.deadlines
    left = deadlines.due(sessions._state.now_ms)
    if left is not None:
        deadlines.move(left, left.expires_at_ms + 60_000)


def _expire_never(sessions: Sessions) -> None:
    """Put the ends of leases off by an hour, again and again."""
    deadlines = sessions._state.deadlines
    while isinstance(due := deadlines.due(sessions._state.now_ms), Hold | Session):
        deadlines.move(due, due.expires_at_ms + 3_600_000)
    _expire_due(sessions)


def _extend_backwards(state: State, session: Session) -> None:
    """Count a renewed lease from when it was to end: it lasts longer than its client was told."""
    state.deadlines.move(session, session.expires_at_ms + session.ttl_ms)


def _add_hold_with_old_token(state: State, hold: Hold, claims: Claims, *rest: Any) -> Any:
    """Give every tenth token a second time."""
    if hold.token % 10 == 0:
        hold.token -= 1
    return add_hold(state, hold, claims, *rest)


_prune = RequestMemory.prune


def _prune_early(requests: RequestMemory, now_ms: int) -> None:
    """Forget what is older than half a second."""
    _prune(requests, now_ms + 299_500)


def beside(one: Mode, other: Mode) -> Apply:
    """Return what lets two modes stand beside each other."""
    modes = {claim: mode for mode in Mode for claim in (*[claim_of(mode, s) for s in Scope], intent_of(mode))}
    conflicting = tuple(
        tuple([item for item in row if {modes[claim], modes[item]} != {one, other}])
        for claim, row in enumerate(CONFLICTING)
    )
    conflicts = tuple([sum([FIELD[item] for item in row]) for row in conflicting])
    return together(replaced(queues, "CONFLICTING", conflicting), replaced(queues, "CONFLICTS", conflicts))


STATES: Final = (
    Mutation(
        name="expiry-by-local-clock",
        sentence="Leases end by the clock of each node, not by the time in the entry.",
        found_by=("equal-digest", "model-state"),
        apply=replaced(LockMachine, "_advance_time", _advance_by_local_clock),
        surroundings=CONTENDED,
    ),
    Mutation(
        name="repeated-commands-applied",
        sentence="A command that comes twice in the log is done twice.",
        found_by=("model-events", "model-state", "read-view", "asked-once", "reply"),
        apply=replaced(LockMachine, "_apply_batch", _apply_all),
        surroundings=_FAILOVERS,
        seeds_max=20,
    ),
    Mutation(
        name="request-ids-ignored",
        sentence="A repeated request is done again.",
        found_by=("model-events", "model-state", "read-view", "one-outcome", "reply"),
        apply=replaced(LockMachine, "_apply_once", _apply_without_request),
        surroundings=_FAILOVERS,
    ),
    Mutation(
        name="refusals-remembered",
        sentence="A request that was refused is refused again without a look.",
        found_by=("model-events", "model-state", "read-view", "one-outcome", "reply"),
        apply=replaced(machine, "_is_to_be_tried_again", _is_never_tried_again),
        surroundings=_FAILOVERS,
        seeds_max=20,
    ),
    Mutation(
        name="queue-overtaken",
        sentence="The last waiter of a queue is served first.",
        found_by=("first-come", "model-events", "model-state", "reply"),
        apply=together(
            replaced(waiting, "candidates", _candidates_all),
            replaced(waiting, "can_go", can_overtake),
        ),
        surroundings=CONTENDED,
    ),
    Mutation(
        name="exclusive-beside-shared",
        sentence="An exclusive and a shared hold do not exclude each other.",
        found_by=("holds-exclude", "exclusion"),
        apply=beside(Mode.EXCLUSIVE, Mode.SHARED),
        surroundings=CONTENDED,
    ),
    Mutation(
        name="lease-not-renewed",
        sentence="A renewal is answered, and the lease ends as if there had been none.",
        found_by=("model-events", "model-state", "read-view", "reply", "lease-early", "exclusion"),
        apply=replaced(Sessions, "renew", _renew_in_words_only),
        surroundings=CONTENDED,
    ),
    Mutation(
        name="lease-renewed-from-its-end",
        sentence="A renewal adds its time to what was left of the lease.",
        found_by=("model-state", "read-view", "reply", "lease-late"),
        apply=replaced(State, "extend", _extend_backwards),
        surroundings=CONTENDED,
    ),
    Mutation(
        name="token-given-twice",
        sentence="Every tenth hold gets the token of the one before.",
        found_by=("token-drawn", "tokens-once", "model-events"),
        apply=replaced(grants, "add_hold", _add_hold_with_old_token),
        surroundings=CONTENDED,
    ),
    Mutation(
        name="cancel-left-undone",
        sentence="The ticket of a client that went away stays in the queue, and is served.",
        found_by=("model-events", "model-state", "reply"),
        apply=replaced(Waits, "cancel", _cancel_nothing),
        surroundings=CONTENDED,
    ),
    Mutation(
        name="lock-delay-forgotten",
        sentence="After an expiry the next holder is let in at once, although a delay was asked for.",
        found_by=("delay-kept", "model-state"),
        apply=together(
            replaced(ends, "set_delay", _keep_nothing), replaced(ends, "withhold_permits", _keep_nothing)
        ),
        surroundings=CONTENDED,
    ),
    Mutation(
        name="waiters-forgotten",
        sentence="When a session ends, waiters for its holds are not served.",
        found_by=("model-events", "model-state", "reply"),
        apply=replaced(Sessions, "end", _end_alone),
        surroundings=CONTENDED,
    ),
    Mutation(
        name="expiry-budget-loses-one",
        sentence="The first hold that one entry could not end lives a minute longer.",
        found_by=("model-events", "model-state", "reply", "read-view", "lease-late"),
        apply=replaced(Sessions, "expire_due", _expire_due_but_one),
        surroundings=_EXPIRING,
    ),
    Mutation(
        name="lease-never-ends",
        sentence="Leases and sessions that nobody renews live on.",
        found_by=("model-events", "model-state", "reply", "read-view", "lease-late"),
        apply=replaced(Sessions, "expire_due", _expire_never),
        surroundings=CONTENDED,
    ),
    Mutation(
        name="requests-forgotten-early",
        sentence="The outcome of a request is remembered for half a second.",
        found_by=("model-events", "model-state", "one-outcome", "equal-digest", "reply"),
        apply=replaced(RequestMemory, "prune", _prune_early),
        surroundings=_FAILOVERS,
        seeds_max=20,
    ),
)
