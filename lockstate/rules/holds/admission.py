"""Whether there is room for a new hold, or for more of one: ids, counts, bytes and quotas."""

from collections.abc import Collection

from lockstate.rules.namespace_rules import names_asked
from lockstate.rules.values import texts_of
from lockstate.tables import budget
from lockstate.tables.principals import bytes_of_texts
from lockstate.tables.records import Hold, Session
from lockstate.tables.state import State
from lockstate.words import limits
from lockstate.words.commands.holds import Acquisition
from lockstate.words.refusals import Reason, Refused


def check_unused(state: State, field: str, secret: str) -> Refused | None:
    """Refuse an id that is in use already: ids are random, so whoever made this one made a mistake."""
    if secret in state.holds or secret in state.tickets or secret in state.sessions:
        return Refused(Reason.INVALID_REQUEST, f"{field}: is in use")
    return None


def check_room(
    state: State, session: Session | None, claims_count: int, new: Acquisition | None
) -> Refused | None:
    """Refuse the `new` hold that a command asks for if there is no room; or a change of one."""
    if (
        (session is None or session.claims_count + claims_count <= limits.SESSION_CLAIMS_MAX)
        and len(state.holds) < limits.HOLDS_COUNT_MAX
        and len(state.locks) + len(state.intents) < limits.RECORDS_COUNT_MAX
        and not state.is_tight
        and not state.principals.quotas
        and not state.spaces
    ):
        return None
    if session is not None and session.claims_count + claims_count > limits.SESSION_CLAIMS_MAX:
        held = f"the session has {session.claims_count} claims"
        return Refused(
            Reason.OVERLOADED, f"{held}; {limits.SESSION_CLAIMS_MAX} are allowed", (), 0, limits.RETRY_MS
        )
    return (
        limits.check_count(len(state.holds), limits.HOLDS_COUNT_MAX, "holds")
        or limits.check_count(len(state.claimed), limits.RECORDS_COUNT_MAX, "names")
        or budget.check_room(state)
        or (None if new is None else _check_quotas(state, new))
    )


def _check_quotas(state: State, new: Acquisition) -> Refused | None:
    """Refuse a new hold for which a quota has no room, of who asks or of a namespace."""
    names, said_bytes = names_asked(new), bytes_of_texts(*texts_of(new))
    return state.principals.check_named("holds", names, said_bytes) or (
        state.namespaces.check_named("holds", names, said_bytes)
    )


def check_added(state: State, hold: Hold, names: Collection[str]) -> Refused | None:
    """Refuse more names to a hold for which a quota has no room, of who asks or of a namespace."""
    return state.principals.check_named("holds", names) or state.namespaces.check_added(hold, names)


def check_texts(state: State, hold: Hold, note: str, value: str) -> Refused | None:
    """Refuse another note or value of a hold for which a quota has no room."""
    return state.principals.check_texts(hold, note, value) or (
        state.namespaces.check_texts(hold, state.tickets.get(hold.changing), note, value)
        if state.spaces
        else None
    )
