"""The commands about elections: exclusive locks with a value, for sessions only, with names of their own."""

from lockstate.rules.checks import check_attempt, invalid
from lockstate.rules.effects import Effects
from lockstate.rules.holds import admission, grants, reentry, waiting
from lockstate.rules.namespace_rules import if_held_of
from lockstate.rules.refusals import LEASE_EXPIRED, SESSION_EXPIRED, lock_held, refused_as_held
from lockstate.tables.queues import is_free
from lockstate.tables.rare import changed
from lockstate.tables.records import Hold, HoldOrTicket, RequestKey, Session, Ticket
from lockstate.words import limits
from lockstate.words.claims import claims_of, record_name
from lockstate.words.commands.holds import Campaign, Proclaim
from lockstate.words.ids import OwnerName, attempt_of
from lockstate.words.kinds import HoldKind, IfHeld
from lockstate.words.modes import Mode
from lockstate.words.refusals import Refused
from lockstate.words.results import Proclaimed, Result


class Elections:
    """Applies the commands about elections to one state."""

    def __init__(self, effects: Effects) -> None:
        self._effects = effects
        self._state = effects.state

    def campaign(self, command: Campaign, key: RequestKey | None = None) -> Result:
        """Let a session lead, or wait in the queue for it."""
        state, effects = self._state, self._effects
        refused = (
            limits.check_name(command.name)
            or check_attempt(command)
            or _check_value(command.value)
            or check_uncounted(command.if_held)
            or admission.check_unused(state, "hold_id", command.hold_id)
        )
        if refused is not None:
            return refused
        session = state.sessions.get(command.session_id)
        if session is None:
            return SESSION_EXPIRED
        owner = command.owner or session.owner
        if_held = if_held_of(state, command)
        held = self._led_already(session, command.name, owner)
        if held is not None:
            if if_held is IfHeld.REFUSE:
                return refused_as_held(held)
            refused = admission.check_texts(state, held, held.details.note, command.value)
            if refused is not None:
                return refused
            return reentry.renewed(effects, held, command.attempt_id, key, command.value)
        claims = claims_of(command.name, Mode.EXCLUSIVE, kind=HoldKind.ELECTION)
        refused = admission.check_room(state, session, 1, command)
        if refused is not None:
            return refused
        if is_free(state, claims):
            return grants.begin(effects, self._record(Hold, command, owner, key), claims, 0)
        if command.wait_ms == 0:
            return lock_held(state, claims)
        return waiting.wait(
            effects, self._record(Ticket, command, owner, key, if_held), claims, command.wait_ms
        )

    def _led_already(self, session: Session, name: str, owner: OwnerName) -> Hold | None:
        lock = self._state.locks.get(record_name(HoldKind.ELECTION, name))
        hold = lock.holder if lock is not None else None
        is_mine = hold is not None and (hold.session_id, hold.owner) == (session.session_id, owner)
        return hold if is_mine else None

    def _record(
        self,
        make: type[HoldOrTicket],
        command: Campaign,
        owner: OwnerName,
        key: RequestKey | None,
        if_held: IfHeld = IfHeld.RENEW,
    ) -> HoldOrTicket:
        """Return the hold that `command` asks for, or the ticket for it."""
        return make(
            0,
            0,
            0,
            command.hold_id,
            command.name,
            Mode.EXCLUSIVE,
            owner,
            command.session_id,
            self._state.now_ms,
            attempt_of(command.hold_id, command.attempt_id),
            key,
            kind=HoldKind.ELECTION,
            rare=changed(None, value=command.value, if_held=if_held),
        )

    def proclaim(self, command: Proclaim) -> Result:
        """Change the value of an election that a hold leads."""
        refused = _check_value(command.value)
        if refused is not None:
            return refused
        hold = self._state.holds.get(command.hold_id)
        if hold is None:
            return LEASE_EXPIRED
        if hold.kind is not HoldKind.ELECTION:
            return invalid("hold_id: leads no election")
        refused = admission.check_texts(self._state, hold, hold.details.note, command.value)
        if refused is not None:
            return refused
        reentry.proclaim(self._effects, hold, command.value)
        return Proclaimed(hold.token)


def check_uncounted(if_held: IfHeld | None) -> Refused | None:
    """Refuse a campaign that is to be counted: a leader resigns once."""
    if if_held is IfHeld.COUNT:
        return invalid("if_held: count: a leader resigns once; must be renew or refuse")
    return None


def _check_value(value: str) -> Refused | None:
    return limits.check_text("value", value, limits.VALUE_BYTES_MAX)
