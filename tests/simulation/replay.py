"""The committed entries, done once more by the naive model: what must have come of each command.

The model of the property tests is the expected state. Here it only becomes fast enough for hours of entries,
and tells what happened in it: ends of waits, beginnings and ends of leases. Nothing of the machine is used.
"""

from dataclasses import dataclass, field
from typing import Any

import msgspec

from lockstate import limits
from lockstate.codec import decode_entry
from lockstate.commands import Cancel, Command, Undecodable
from lockstate.results import (
    EventKind,
    ForceReleased,
    HolderView,
    LockView,
    Refused,
    Result,
    SessionView,
    WaiterView,
)
from tests.property.model import Model, without_holders
from tests.property.model_records import Hold, Lease, Session, Ticket

PURGE_MS = 60_000
"""Forgotten requests are swept out so often; who looks one up looks at its age."""


@dataclass(slots=True, frozen=True)
class Answer:
    """A command that had its effect in an entry, and its result."""

    node_id: str
    command: Command | Undecodable
    result: Result


@dataclass(slots=True)
class Step:
    """What one entry did. Leases by `Lease.created`; one may begin (or begin anew) and end in one step."""

    revision: int
    now_ms: int
    answers: list[Answer] = field(default_factory=list)
    wait_ends: list[tuple[str, Result]] = field(default_factory=list)
    """By hold id; those who wait for it on any connection are told this."""
    leases_begun: dict[int, int] = field(default_factory=dict)
    """The ttl in milliseconds."""
    leases_ended: list[tuple[int, bool]] = field(default_factory=list)
    """Whether it expired."""
    voided: list[str] = field(default_factory=list)
    """Holds that ended because somebody asked for it: released, closed, cancelled or by force."""


class Expected(Model):
    """The model, which notes what it does, and looks things up where the model walks through its lists."""

    def __init__(self) -> None:
        super().__init__()
        self.step = Step(0, 0)
        self._purge_at_ms = 0

    def replay(self, data: bytes) -> Step:
        """Apply one committed entry and return what it did."""
        entry = decode_entry(data)
        step = self.step = Step(self.revision + 1, max(self.now_ms, entry.now_ms))
        by_place = {
            (batch.origin, seq): command
            for batch in entry.batches
            for seq, command in zip(batch.seqs, batch.commands, strict=True)
        }
        step.answers = [
            Answer(origin.rpartition(".")[0], by_place[origin, seq], result)
            for origin, seq, result in self.apply(entry)
        ]
        return step

    def locks(self, prefix: str, after: str, limit: int) -> tuple[list[LockView], str | None]:
        """Return a page of active locks, and where to go on, as readers see it."""
        names = [name for name in self.active_names() if name.startswith(prefix) and name > after]
        page = [self.lock(name) for name in names[:limit]]
        return page, page[-1].name if len(names) > limit else None

    # -- what the model does, noted -------------------------------------------------------------------------

    def _lease(self, ttl_ms: int) -> Lease:
        lease = super()._lease(ttl_ms)
        self.step.leases_begun[lease.created] = ttl_ms
        return lease

    def _restart(self, lease: Lease) -> int:
        ttl_ms = super()._restart(lease)
        self.step.leases_begun[lease.created] = ttl_ms
        return ttl_ms

    def _end_hold(self, hold: Hold, kind: EventKind, lock_delay_ms: int) -> None:
        if not hold.session_id:
            self.step.leases_ended.append((hold.lease.created, kind is EventKind.EXPIRED))
        if kind is not EventKind.EXPIRED:
            self.step.voided.append(hold.hold_id)
        super()._end_hold(hold, kind, lock_delay_ms)

    def _end_session(self, session: Session, kind: EventKind) -> tuple[str, ...]:
        self.step.leases_ended.append((session.lease.created, kind is EventKind.EXPIRED))
        return super()._end_session(session, kind)

    def _conclude(self, ticket: Ticket, result: Result) -> None:
        self.step.wait_ends.append((ticket.acquire.hold_id, result))
        request = self.requests.get(ticket.request) if ticket.request else None
        if request is not None and request.result is None and request.hold_id == ticket.acquire.hold_id:
            request.result = without_holders(result)
            request.outcome_ms = self.now_ms

    def _cancel(self, command: Cancel) -> Result:
        for ticket in self.tickets:
            if (ticket.acquire.hold_id, ticket.attempt_id) == (command.hold_id, command.attempt_id):
                told = self._refuse_held(ticket.acquire.name)
                told = msgspec.structs.replace(told, queue_length=told.queue_length - 1)
                self.step.wait_ends.append((command.hold_id, told))
        return super()._cancel(command)

    # -- the same, faster -----------------------------------------------------------------------------------

    def _expire_first_due(self) -> bool:
        is_due = (
            any(session.lease.expires_at_ms < self.now_ms for session in self.sessions)
            or any(hold.lease.expires_at_ms < self.now_ms for hold in self.holds)
            or any(ticket.deadline_ms < self.now_ms for ticket in self.tickets)
            or any(delay.until_ms < self.now_ms for delay in self.delays.values())
        )
        return is_due and super()._expire_first_due()

    def _forget_old_requests(self) -> None:
        if self.now_ms >= self._purge_at_ms:
            self._purge_at_ms = self.now_ms + PURGE_MS
            super()._forget_old_requests()

    def _run(self, command: Command | Undecodable) -> Result:
        key = self._request_key(command)
        request = self.requests.get(key) if key else None
        is_old = request is not None and self.now_ms > request.outcome_ms + limits.REQUEST_AGE_MS
        if key is not None and is_old and request is not None and request.result is not None:
            del self.requests[key]
        return super()._run(command)


# -- comparing ----------------------------------------------------------------------------------------------


def plain(value: Any) -> Any:
    """Return a result or view without what the model leaves open: wording, hints, hashes of owners."""
    match value:
        case HolderView() | WaiterView():
            return msgspec.structs.replace(value, owner=_plain_owner(value.owner))
        case LockView():
            holders, queue = plain(value.holders), plain(value.queue)
            return msgspec.structs.replace(value, holders=holders, queue=queue)
        case SessionView():
            holds, tickets = plain(value.holds), plain(value.tickets)
            owner = _plain_owner(value.owner)
            return msgspec.structs.replace(value, owner=owner, holds=holds, tickets=tickets)
        case Refused():
            holders = plain(value.holders)
            return msgspec.structs.replace(value, detail="", retry_after_ms=0, holders=holders)
        case ForceReleased():
            return ForceReleased(plain(value.released))
        case tuple() | list():
            return tuple([plain(item) for item in value])
    return value


def _plain_owner(owner: str) -> str:
    kind, dash, _ = owner.partition("-")
    return kind + dash if kind in ("hold", "session") else owner
