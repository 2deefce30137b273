"""Defects of the state machine and of its snapshots."""

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import cluster.clock
from cluster.core import Core
from lockstate import modes, snapshot
from lockstate.commands import Batch, Cancel, Command, Renew, Undecodable
from lockstate.machine import LockMachine
from lockstate.modes import Mode
from lockstate.requests import RequestMemory
from lockstate.results import BatchOutcome, Cancelled, EventKind, Renewed, Result
from lockstate.rules import Rules
from lockstate.state import State
from lockstate.tables import Deadlines, Hold, Lock, Session
from tests.simulation.mutations.mutation import Apply, Mutation, Surroundings, replaced

_RESTORING: Final = Surroundings(
    rates={"kill": 4.0, "isolate": 1.0, "power": 1.0}, settings={"compact_entries": 20, "chunk_bytes": 4_096}
)
"""Many snapshots, and nodes that start from them."""
_FAILOVERS: Final = Surroundings(
    rates={"kill": 8.0, "transfer": 6.0, "reset": 6.0, "isolate": 3.0},
    fault_s=(0.5, 4.0),
    settings={"compact_entries": 1_000, "latency_us": 20_000, "jitter_us": 5_000, "clients_count": 8},
)
"""Many leaders, and commands under way that are sent again to the next one."""
_CONTENDED: Final = Surroundings(minutes=1)


def _snapshot_without(hide: Callable[[State], None]) -> Apply:
    """Return what leaves something out of a node's snapshots, and not out of anybody's digests."""

    def encode_state(core: Core) -> bytes:
        state = core.machine.state
        held = (state.next_token, state.requests, state.origins)
        hide(state)
        try:
            return snapshot.encode(core.machine)
        finally:
            state.next_token, state.requests, state.origins = held

    return replaced(Core, "encode_state", encode_state)


def _forget_token(state: State) -> None:
    state.next_token = 1 + max([hold.token for hold in state.holds.values()], default=0)


def _forget_requests(state: State) -> None:
    state.requests = RequestMemory()


def _forget_origins(state: State) -> None:
    state.origins = {}


def _load_no_deadlines(_self: Deadlines, _records: Iterable[Any]) -> None:
    """Forget that what a snapshot holds ends by itself."""


def _advance_by_local_clock(machine: LockMachine, now_ms: int) -> None:
    """Let so much time pass as this machine's own clock says, from the first entry on."""
    state = machine.state
    local_ms = cluster.clock.SystemClock().now_ns() // 1_000_000
    offset_ms = machine.__dict__.setdefault("offset_ms", now_ms - local_ms)
    state.now_ms = max(state.now_ms, local_ms + offset_ms)
    machine._rules.expire_due()
    state.requests.prune(state.now_ms)


def advance_anywhere(machine: LockMachine, now_ms: int) -> None:
    """Take over the time of the entry, whatever it is."""
    machine.state.now_ms = now_ms
    machine._rules.expire_due()
    machine.state.requests.prune(now_ms)


def _apply_all(machine: LockMachine, batch: Batch) -> BatchOutcome:
    """Apply commands whether or not they were applied before."""
    origin = machine.state.origin(batch.origin)
    origin.seen_ms = machine.state.now_ms
    origin.last_seq = max([origin.last_seq, *batch.seqs])
    results = tuple([machine._apply_once(command) for command in batch.commands])
    return BatchOutcome(batch.origin, batch.seqs, results)


_apply_once = LockMachine._apply_once


def _apply_without_request(machine: LockMachine, command: Command | Undecodable) -> Result:
    """Do not look whether this request came before."""
    if isinstance(command, Undecodable):
        return _apply_once(machine, command)
    return machine._apply_command(command, None)


_serve, _renew, _add_hold = Rules._serve, Rules.renew, State.add_hold


def _serve_last_first(rules: Rules, lock: Lock) -> None:
    """Grant to who came last."""
    if len(lock.queue) > 1:
        lock.queue = dict(reversed(list(lock.queue.items())))
    _serve(rules, lock)


def _renew_in_words_only(rules: Rules, command: Renew) -> Result:
    """Tell of a new lease, and let the old one go on."""
    hold = rules.state.holds.get(command.hold_id)
    if hold is None:
        return _renew(rules, command)
    session = rules.state.sessions[hold.session_id]
    return Renewed(hold.token, session.ttl_ms)


def _cancel_nothing(_rules: Rules, _command: Cancel) -> Result:
    """Leave the ticket of a client that went away in its queue."""
    return Cancelled(undone=True)


def _drop_hold_without_delay(rules: Rules, hold: Hold, kind: EventKind, reason: str = "") -> Lock:
    """End a hold, and let the next one in although a delay was asked for."""
    lock = rules.state.remove_hold(hold)
    rules._emit_hold(kind, hold, reason=reason)
    return lock


def _end_session_alone(rules: Rules, session: Session, _kind: EventKind) -> tuple[str, ...]:
    """End a session, and serve nobody of those who waited for its holds."""
    rules.state.remove_session(session)
    for ticket in list(session.tickets.values()):
        rules._drop_ticket(ticket)
    return tuple([rules._drop_hold(hold, EventKind.EXPIRED).name for hold in session.holds.values()])


def _extend_backwards(state: State, session: Session) -> None:
    """Count a renewed lease from when it was to end: it lasts longer than its client was told."""
    session.expires_at_ms += session.ttl_ms
    state.deadlines.set(session)


def _add_hold_with_old_token(state: State, hold: Hold) -> None:
    """Give every tenth token a second time."""
    if hold.token % 10 == 0:
        hold.token -= 1
    _add_hold(state, hold)


_prune = RequestMemory.prune


def _prune_early(requests: RequestMemory, now_ms: int) -> None:
    """Forget what is older than two seconds."""
    _prune(requests, now_ms + 298_000)


@contextlib.contextmanager
def _exclusive_beside_shared() -> Iterator[None]:
    """Change the table of compatible modes in place: it is known under several names."""
    before = dict(modes.COMPATIBLE)
    modes.COMPATIBLE[Mode.EXCLUSIVE] = frozenset({Mode.SHARED})
    modes.COMPATIBLE[Mode.SHARED] = modes.ALL_MODES
    try:
        yield
    finally:
        modes.COMPATIBLE.update(before)


STATES: Final = (
    Mutation(
        name="token-counter-not-in-snapshot",
        sentence="A restored node goes on from the highest token that somebody still holds.",
        found_by=("equal-digest", "tokens-once"),
        apply=_snapshot_without(_forget_token),
        surroundings=_RESTORING,
    ),
    Mutation(
        name="dedupe-lost-in-snapshot",
        sentence="A restored node knows nothing of the requests that it answered.",
        found_by=("equal-digest", "one-outcome"),
        apply=_snapshot_without(_forget_requests),
        surroundings=_RESTORING,
    ),
    Mutation(
        name="origins-lost-in-snapshot",
        sentence="A restored node does not know which numbered commands were applied.",
        found_by=("equal-digest",),
        apply=_snapshot_without(_forget_origins),
        surroundings=_RESTORING,
    ),
    Mutation(
        name="deadlines-lost-in-snapshot",
        sentence="After a restore, what was held or waited for before does not end by itself.",
        found_by=("equal-digest", "model-state", "lease-late"),
        apply=replaced(Deadlines, "load", _load_no_deadlines),
        surroundings=_RESTORING,
    ),
    Mutation(
        name="expiry-by-local-clock",
        sentence="Leases end by the clock of each node, not by the time in the entry.",
        found_by=("model-state", "equal-digest"),
        apply=replaced(LockMachine, "_advance_time", _advance_by_local_clock),
        surroundings=_CONTENDED,
    ),
    Mutation(
        name="repeated-commands-applied",
        sentence="A command that comes twice in the log is done twice.",
        found_by=("model-state", "asked-once", "reply"),
        apply=replaced(LockMachine, "_apply_batch", _apply_all),
        surroundings=_FAILOVERS,
        seeds_max=20,
    ),
    Mutation(
        name="request-ids-ignored",
        sentence="A repeated request is done again.",
        found_by=("read-view", "model-state", "one-outcome", "reply"),
        apply=replaced(LockMachine, "_apply_once", _apply_without_request),
        surroundings=_FAILOVERS,
    ),
    Mutation(
        name="queue-overtaken",
        sentence="Who came last to a queue is served first.",
        found_by=("first-come", "reply", "model-state"),
        apply=replaced(Rules, "_serve", _serve_last_first),
        surroundings=_CONTENDED,
    ),
    Mutation(
        name="exclusive-beside-shared",
        sentence="An exclusive and a shared hold do not exclude each other.",
        found_by=("exclusion", "model-state", "reply"),
        apply=_exclusive_beside_shared,
        surroundings=_CONTENDED,
    ),
    Mutation(
        name="lease-not-renewed",
        sentence="A renewal is answered, and the lease ends as if there had been none.",
        found_by=("reply", "model-state", "lease-early", "exclusion"),
        apply=replaced(Rules, "renew", _renew_in_words_only),
        surroundings=_CONTENDED,
    ),
    Mutation(
        name="lease-renewed-from-its-end",
        sentence="A renewal adds its time to what was left of the lease.",
        found_by=("model-state", "reply", "lease-late"),
        apply=replaced(State, "extend", _extend_backwards),
        surroundings=_CONTENDED,
    ),
    Mutation(
        name="token-given-twice",
        sentence="Every tenth hold gets the token of the one before.",
        found_by=("reply", "tokens-once", "model-state"),
        apply=replaced(State, "add_hold", _add_hold_with_old_token),
        surroundings=_CONTENDED,
    ),
    Mutation(
        name="cancel-left-undone",
        sentence="The ticket of a client that went away stays in the queue, and is served.",
        found_by=("reply", "model-state"),
        apply=replaced(Rules, "cancel", _cancel_nothing),
        surroundings=_CONTENDED,
    ),
    Mutation(
        name="lock-delay-forgotten",
        sentence="After an expiry the next holder is let in at once, although a delay was asked for.",
        found_by=("reply", "model-state"),
        apply=replaced(Rules, "_drop_hold", _drop_hold_without_delay),
        surroundings=_CONTENDED,
    ),
    Mutation(
        name="waiters-forgotten",
        sentence="When a session ends, nobody is served who waited for its holds.",
        found_by=("reply", "model-state", "uncaught", "node-ends"),
        apply=replaced(Rules, "_end_session", _end_session_alone),
        surroundings=_CONTENDED,
    ),
    Mutation(
        name="requests-forgotten-early",
        sentence="The outcome of a request is remembered for two seconds.",
        found_by=("model-state", "one-outcome", "equal-digest", "reply"),
        apply=replaced(RequestMemory, "prune", _prune_early),
        surroundings=_FAILOVERS,
    ),
)
