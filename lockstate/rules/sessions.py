"""Sessions: how they begin, live and end. And expiry: what ends because its time is over."""

from collections.abc import Callable
from typing import Final

from lockstate.reads.held import remaining_ms, revocations_of, revoked_of
from lockstate.reads.holders import holders_of
from lockstate.reads.parts import parts_of
from lockstate.rules.cells import Cells
from lockstate.rules.effects import Effects
from lockstate.rules.holds import admission, ends, waiting
from lockstate.rules.namespace_rules import check_ttl
from lockstate.rules.refusals import LEASE_EXPIRED, SESSION_EXPIRED, refuse_kind
from lockstate.tables import budget
from lockstate.tables.cells import Cell
from lockstate.tables.claim_table import Freed, weight_of
from lockstate.tables.deadlines import Timed
from lockstate.tables.delays import end_delay
from lockstate.tables.owners import order_in, public_name, session_name
from lockstate.tables.principals import bytes_of_labels
from lockstate.tables.rate_algorithms import Limiter
from lockstate.tables.rates import Place
from lockstate.tables.records import Ask, Delay, FrozenPrefix, Hold, Plea, Session, Ticket, names_of
from lockstate.words import limits
from lockstate.words.commands.holds import Renew
from lockstate.words.commands.overrides import ForceCloseSession
from lockstate.words.commands.sessions import CloseSession, KeepAlive, OpenSession
from lockstate.words.events import CellEventKind, EventKind, Left
from lockstate.words.ids import OwnerName
from lockstate.words.refusals import Reason, Refused
from lockstate.words.results import Renewed, Result, SessionClosed, SessionForced, SessionKept, SessionOpened
from lockstate.words.views import RevokedView

_TOLD: Final = {
    EventKind.EXPIRED: EventKind.SESSION_EXPIRED,
    EventKind.FORCED: EventKind.SESSION_FORCED,
}
"""The event of a session that its client did not close, by that of its holds."""
_LEFT: Final = {
    EventKind.RELEASED: Left.SESSION_CLOSED,
    EventKind.EXPIRED: Left.SESSION_EXPIRED,
    EventKind.FORCED: Left.SESSION_FORCED,
}
"""Why the waits of a session end, by the event of its holds."""


class Sessions:
    """Begins, extends and ends the sessions of one state."""

    def __init__(
        self,
        effects: Effects,
        cells: Cells,
        end_plea: Callable[[Plea], None],
        ask: Callable[[Ask], None],
        end_freeze: Callable[[FrozenPrefix], None],
    ) -> None:
        self._effects = effects
        self._end_plea, self._ask, self._end_freeze = end_plea, ask, end_freeze
        self._cells = cells
        self._state = effects.state

    def open(self, command: OpenSession) -> Result:
        """Open a session, unless its id is in use."""
        state = self._state
        refused = (
            limits.check_made_id("session_id", command.session_id)
            or limits.check_ttl(command.ttl_ms)
            or limits.check_labels(command.labels)
            or admission.check_unused(state, "session_id", command.session_id)
            or self.check_room(command)
        )
        if refused is not None:
            return refused
        owner = OwnerName(command.labels.get("owner") or public_name("session", command.session_id))
        order, expires_at_ms = state.take_order(), state.now_ms + command.ttl_ms
        state.add_session(
            Session(order, expires_at_ms, command.ttl_ms, command.session_id, owner, command.labels)
        )
        return SessionOpened(command.session_id, command.ttl_ms, command.ttl_ms)

    def check_room(self, command: OpenSession) -> Refused | None:
        """Refuse a session for which there is no room, or for which a quota has none."""
        state = self._state
        return (
            limits.check_count(len(state.sessions), limits.SESSIONS_COUNT_MAX, "sessions")
            or budget.check_room(state)
            or state.principals.check("sessions")
            or state.principals.check("bytes", bytes_of_labels(command.labels))
        )

    def keep_alive(self, command: KeepAlive) -> Result:
        """Start a session's ttl anew, perhaps with another length.

        As of a hold, a shorter one counts from the next keepalive on: what was promised stays promised.
        """
        refused = limits.check_ttl(command.ttl_ms) if command.ttl_ms else None
        session = self._state.sessions.get(command.session_id)
        if refused is not None or session is None:
            return refused or SESSION_EXPIRED
        if command.ttl_ms:
            self._state.ledger.change(session)
            session.ttl_ms = command.ttl_ms
        self._state.extend(session)
        revoked: tuple[RevokedView, ...] = ()
        until_ms = session.expires_at_ms
        if self._state.pleas:
            revoked, until_ms = revoked_of(self._state, session)
        return SessionKept(session.session_id, max(0, until_ms - self._state.now_ms), revoked)

    def close(self, command: CloseSession) -> Result:
        """End a session, its holds and its waits."""
        session = self._state.sessions.get(command.session_id)
        if session is None:
            return SESSION_EXPIRED
        return SessionClosed(self.end(session, EventKind.RELEASED))

    def force_close(self, command: ForceCloseSession) -> Result:
        """End the session of a public name, whoever has it. Its holds end as by force, with their delays."""
        refused = limits.check_text("reason", command.reason, limits.REASON_BYTES_MAX)
        if refused is not None:
            return refused
        session = self._state.sessions_in_order.get(order_in(command.session_name))
        if session is None or session_name(session) != command.session_name:
            return SESSION_EXPIRED
        released = self.end(session, EventKind.FORCED, command.reason)
        return SessionForced(command.session_name, session.owner, released)

    def renew(self, command: Renew) -> Result:
        """Start the lease of a hold anew.

        A shorter ttl counts from the next renewal on. If it cut the present lease short, a renewal that
        arrives late would take back time that a later, longer one has promised. Only an exact one does, whose
        client has to know that no other is under way. There is nothing to renew of a hold without a deadline.
        """
        hold = self._state.holds.get(command.hold_id)
        if hold is None:
            return LEASE_EXPIRED
        if command.kind is not None and hold.kind is not command.kind:
            return refuse_kind(self._state, hold, command.kind)
        refused = self.refuse_length(hold, command)
        if refused is not None:
            return refused
        if command.ttl_ms:
            self._state.ledger.change(hold)
            hold.ttl_ms = command.ttl_ms
        state = self._state
        if hold.is_endless:
            return self.renewed(hold, hold.token)
        lease = state.lease_of(hold)
        if command.exact:
            state.set_end(lease)
        else:
            state.extend(lease)
        if state.pleas:
            return self.renewed(hold, hold.token)
        return Renewed(hold.token, lease.expires_at_ms - state.now_ms)  # the same, without the calls

    def refuse_length(self, hold: Hold, command: Renew) -> Refused | None:
        """Refuse a length that the lease of a hold cannot get."""
        if not command.ttl_ms:
            return Refused(Reason.INVALID_REQUEST, "exact: needs a ttl_ms") if command.exact else None
        refused = limits.check_ttl(command.ttl_ms)
        if refused is not None:
            return refused
        if hold.session_id:
            return Refused(Reason.INVALID_REQUEST, "ttl_ms: this hold lives as long as its session")
        if hold.is_endless:
            return Refused(Reason.INVALID_REQUEST, "ttl_ms: this hold has no deadline")
        return check_ttl(self._state, names_of(hold), command.ttl_ms)

    def renewed(self, hold: Hold, token: int) -> Renewed:
        """Return what the holder of `hold`, which had `token`, is told of its lease, and of revocations."""
        return Renewed(token, remaining_ms(self._state, hold), revocations_of(self._state, hold))

    def end(self, session: Session, kind: EventKind, reason: str = "") -> tuple[str, ...]:
        """End a session with its waits and holds, then serve the waiters; return the names it held.

        Its tickets go first: none of them may be granted what its holds leave behind. With its stream go the
        waits that it numbered, also those without it or for another session: nobody would hear of the grants.
        """
        state, effects = self._state, self._effects
        numbered = state.streams.waiting(session.session_id)
        state.remove_session(session)
        freed: Freed = []
        for ticket in list(session.tickets.values()):
            freed += ends.end_wait(
                effects, ticket, _LEFT[kind], LEASE_EXPIRED if ticket.changes else SESSION_EXPIRED
            )
        # No entry may take long: what is beyond that goes when its time is over.
        left = limits.EXPIRIES_PER_ENTRY_MAX
        for ticket in [state.tickets[hold_id] for hold_id in numbered if hold_id in state.tickets]:
            if left <= 0:
                break
            left -= weight_of(ticket)
            freed += ends.end_wait(effects, ticket, _LEFT[kind], SESSION_EXPIRED)
        ended = list(session.holds.values())
        names = tuple([part.name for hold in ended for part in parts_of(hold)])
        for hold in ended:
            freed += ends.end(effects, hold, kind, reason)
        if kind in _TOLD:
            effects.tell_session(session, _TOLD[kind], reason)
        self._cells.end_session(
            session.session_id,
            CellEventKind.EXPIRED if kind is EventKind.EXPIRED else CellEventKind.DELETED,
        )
        state.principals.drop(session.session_id)
        waiting.serve(effects, freed)
        return names

    # -- time -----------------------------------------------------------------------------------------------

    def expire_due(self) -> None:
        """End everything whose deadline has passed, in order of (deadline, creation).

        One entry ends only a limited number of claims: when very many leases end at one moment, a node would
        do nothing else for long. What is left lives on until the next entry.
        """
        state = self._state
        left = limits.EXPIRIES_PER_ENTRY_MAX
        while left > 0 and (record := state.deadlines.due(state.now_ms)) is not None:
            left -= self._weight(state.holds[record.hold_id] if isinstance(record, Plea) else record)
            if isinstance(record, Session):
                left -= len(self._state.cells.of_session(record.session_id))
            self._expire(record)

    def _expire(self, record: Timed) -> None:
        """End what has passed its deadline."""
        state = self._state
        match record:
            case Hold():
                waiting.serve(self._effects, ends.end(self._effects, record, EventKind.EXPIRED))
            case Session():
                self.end(record, EventKind.EXPIRED)
            case Ticket():
                waiting.serve(self._effects, ends.end_wait(self._effects, record, Left.TIMED_OUT))
            case Delay():
                waiting.serve(self._effects, end_delay(state, record))
            case Cell():
                self._cells.remove((record,), CellEventKind.EXPIRED)
            case Plea():
                self._end_plea(record)
            case Ask():
                self._ask(record)
            case FrozenPrefix():
                self._end_freeze(record)
            case Place():
                state.rates.arrive(record)
            case _:
                assert isinstance(record, Limiter), "only these end by themselves"
                state.rates.end(record)

    def _weight(self, record: Timed) -> int:
        """Return how many claims end with a record."""
        match record:
            case Ticket():
                return weight_of(record) + len(self._state.pleas.of_tickets.get(record.order, ()))
            case Hold():
                return weight_of(record)
            case Session():
                return max(record.claims_count, 1)
            case Ask():
                wanted = parts_of(self._state.tickets[record.hold_id])
                return 1 + sum([len(holders_of(self._state, part.kind, part.name)) for part in wanted])
        return 1
