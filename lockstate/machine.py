"""The replicated state machine: applies committed entries, each command once, and answers reads.

Deterministic and total. Time comes in the entry; ids and secrets come in the commands. What commands do to
locks and sessions is in `rules`; here are entries, time, and requests that come twice.
"""

from typing import assert_never

import msgspec

from lockstate import limits, views
from lockstate.commands import (
    Acquire,
    Barrier,
    Batch,
    Cancel,
    CloseSession,
    Command,
    Entry,
    ForceRelease,
    KeepAlive,
    OpenSession,
    Release,
    Renew,
    Tick,
    Undecodable,
)
from lockstate.requests import Remembered, content_digest, request_key
from lockstate.results import (
    BatchOutcome,
    Done,
    Granted,
    LockView,
    Outcome,
    Queued,
    Reason,
    Refused,
    Renewed,
    Result,
    SessionOpened,
    SessionView,
)
from lockstate.rules import Rules
from lockstate.state import State
from lockstate.tables import Hold, RequestKey

_NO_OUTCOME = frozenset(
    {
        Reason.INVALID_REQUEST,
        Reason.NAME_TOO_LONG,
        Reason.TTL_OUT_OF_RANGE,
        Reason.QUEUE_FULL,
        Reason.OVERLOADED,
    }
)
"""Refusals that are not remembered: the command must be corrected, or tried again later."""

_DONE = Done()


class LockMachine:
    """The replicated state machine."""

    def __init__(self, state: State | None = None) -> None:
        self.state = state or State()
        self._rules = Rules(self.state)

    # -- what the host asks ---------------------------------------------------------------------------------

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

    def next_deadline_ms(self) -> int | None:
        """Return when the next thing ends by itself (at the first `now_ms` above it), or None."""
        return self.state.deadlines.next_ms()

    def applied_seq(self, origin: str) -> int:
        """Return the highest sequence number applied for `origin`, 0 if none."""
        known = self.state.origins.get(origin)
        return known.last_seq if known is not None else 0

    def attempt(self, hold_id: str) -> Granted | Queued | None:
        """Return what became of an acquire: held, still waiting, or neither."""
        hold = self.state.holds.get(hold_id)
        if hold is not None:
            return self._rules.granted(hold)
        ticket = self.state.tickets.get(hold_id)
        return Queued(hold_id, views.position(self.state, ticket)) if ticket is not None else None

    def lock(self, name: str) -> LockView:
        """Return one lock as anybody may see it."""
        return views.lock_view(self.state, name)

    def locks(self, prefix: str, after: str, limit: int) -> tuple[list[LockView], str | None]:
        """Return a page of active locks in order of name, and the name to go on after, if there are more."""
        return views.lock_views(self.state, prefix, after, limit)

    def session(self, session_id: str) -> SessionView | None:
        """Return one session for who knows its id."""
        return views.session_view(self.state, session_id)

    def counts(self) -> dict[str, int]:
        """Return the sizes of the tables."""
        state = self.state
        return {
            "locks": len(state.locks),
            "holds": len(state.holds),
            "tickets": len(state.tickets),
            "sessions": len(state.sessions) - state.own_sessions_count,
            "requests": len(state.requests),
        }

    # -- apply ----------------------------------------------------------------------------------------------

    def apply(self, entry: Entry) -> Outcome:
        """Apply one committed entry. Deterministic; never raises, whatever the entry says.

        Time passes first: what is over by `now_ms` ends in order of (deadline, creation). Then the commands
        are applied in their order.
        """
        state = self.state
        state.revision += 1
        self._rules.events = []
        self._advance_time(entry.now_ms)
        batches = tuple([self._apply_batch(batch) for batch in entry.batches])
        return Outcome(state.revision, state.now_ms, batches, tuple(self._rules.events))

    def _advance_time(self, now_ms: int) -> None:
        """Let cluster time pass; it never goes back."""
        state = self.state
        state.now_ms = max(state.now_ms, now_ms)
        self._rules.expire_due()
        state.requests.prune(state.now_ms)

    def _apply_batch(self, batch: Batch) -> BatchOutcome:
        """Apply the commands of one origin; those already applied are left out (they came twice)."""
        origin = self.state.origin(batch.origin)
        origin.seen_ms = self.state.now_ms
        seqs: list[int] = []
        results: list[Result] = []
        for seq, command in zip(batch.seqs, batch.commands, strict=True):
            if seq > origin.last_seq:
                origin.last_seq = seq
                seqs.append(seq)
                results.append(self._apply_once(command))
        return BatchOutcome(batch.origin, tuple(seqs), tuple(results))

    def _apply_once(self, command: Command | Undecodable) -> Result:
        """Apply a command, or repeat the outcome of the request that it repeats."""
        if isinstance(command, Undecodable):
            return Refused(Reason.INVALID_REQUEST, "the command could not be decoded")
        key = request_key(command)
        if key is None or len(key[0]) > limits.NAME_BYTES_MAX:
            return self._apply_command(command, None)
        refused = limits.check_id("request_id", key[1])
        if refused is not None:
            return refused
        requests = self.state.requests
        digest = content_digest(command)
        remembered = requests.get(key)
        if remembered is not None:
            return self._repeat(remembered, digest, command)
        if requests.is_full:
            return Refused(
                Reason.OVERLOADED, "too many requests with a request_id within five minutes", (), 0, 1000
            )
        result = self._apply_command(command, key)
        if not (isinstance(result, Refused) and result.reason in _NO_OUTCOME):
            requests.remember(key, digest, self.state.now_ms, result)
        return result

    def _repeat(self, remembered: Remembered, digest: bytes, command: Command) -> Result:
        """Answer a repeated request with its first outcome; times that remain are those of now."""
        if remembered.digest != digest:
            return Refused(Reason.INVALID_REQUEST, "request_id: was used for a request with other content")
        first = remembered.result
        match command:
            case Acquire() if isinstance(first, Granted | Queued):
                return self._repeat_acquire(command, first)
            case Renew() if isinstance(first, Renewed):
                hold = self.state.holds.get(command.hold_id)
                return Renewed(first.token, views.remaining_ms(self.state, hold) if hold else 0)
            case OpenSession() if isinstance(first, SessionOpened):
                session = self._rules.client_session(first.session_id)
                left_ms = session.expires_at_ms - self.state.now_ms if session else 0
                return msgspec.structs.replace(first, expires_in_ms=left_ms)
        return first

    def _repeat_acquire(self, command: Acquire, first: Granted | Queued) -> Result:
        """Say what became of the first attempt. What it got or waits for now belongs to this one."""
        attempt = self.state.holds.get(first.hold_id) or self.state.tickets.get(first.hold_id)
        if attempt is None:
            assert isinstance(first, Granted), "a request that waits has its ticket"
            return msgspec.structs.replace(first, expires_in_ms=0)
        attempt.attempt_id, attempt.request = command.attempt_id, request_key(command)
        if isinstance(attempt, Hold):
            return self._rules.granted(attempt)
        return Queued(attempt.hold_id, views.position(self.state, attempt))

    def _apply_command(self, command: Command, key: RequestKey | None) -> Result:
        match command:
            case Acquire():
                return self._rules.acquire(command, key)
            case Release():
                return self._rules.release(command)
            case Renew():
                return self._rules.renew(command)
            case KeepAlive():
                return self._rules.keep_alive(command)
            case OpenSession():
                return self._rules.open_session(command)
            case CloseSession():
                return self._rules.close_session(command)
            case Cancel():
                return self._rules.cancel(command)
            case ForceRelease():
                return self._rules.force_release(command)
            case Tick() | Barrier():
                return _DONE
            case _:
                assert_never(command)
