"""How a hold enters all tables, leaves them, and gets other claims. Rules decide when."""

from typing import Final

from lockstate.tables import crowds
from lockstate.tables.claim_table import Freed, claims_of_hold
from lockstate.tables.deadlines import Lease
from lockstate.tables.records import NOTHING, Hold, permits_in
from lockstate.tables.state import State
from lockstate.words.claims import Claims, permits_of, record_name
from lockstate.words.kinds import HoldKind
from lockstate.words.modes import is_intent

_SEMAPHORE: Final = HoldKind.SEMAPHORE


def add_hold(state: State, hold: Hold, claims: Claims) -> Lease:
    """Add a hold with its claims and return its lease: itself if it has no session.

    A semaphore's hold has permits and no claims.
    """
    state.holds[hold.hold_id] = hold
    state.ledger.noted[hold] = 0
    if hold.rare is not None:
        state.rare_count += 1
    if state.owners or state.spaces:
        state.count_hold(hold, 1)
    if claims:
        state.claimed.add(claims, hold)
    if hold.permits:
        _take_permits(state, hold)
    if hold.ttl_ms:
        state.deadlines.add(hold)
        return hold
    session = state.sessions.get(hold.session_id)
    if session is None:
        assert not hold.session_id, "a hold does not outlive its session"
        state.endless_count += 1
        return hold
    session.claims_count += len(claims) or 1
    if session.holds is NOTHING or session.by_owner is not None:
        session.add_hold(hold)
    else:
        session.holds[hold.hold_id] = hold
    return session


def remove_hold(state: State, hold: Hold) -> Freed:
    """Take a hold out; return what became free. The caller forgets whose it was.

    Its semaphore stays, even if it is idle, until the queue has been served.
    """
    del state.holds[hold.hold_id]
    if state.owners or state.spaces:
        state.count_hold(hold, -1)
    if hold in state.ledger.noted:
        state.ledger.settled_sum -= state.ledger.noted.pop(hold)
    else:
        state.ledger.remove(hold)
    if hold.rare is not None:
        state.rare_count -= 1
    freed = _give_back_permits(state, hold) if hold.permits else []
    if state.pleas:
        state.pleas.drop_hold(hold.hold_id)
    claims = claims_of_hold(hold)
    if hold.ttl_ms:
        state.deadlines.remove(hold)
    elif session := state.sessions.get(hold.session_id):
        if session.by_owner is not None:
            session.remove_hold(hold)
        else:
            del session.holds[hold.hold_id]
        session.claims_count -= len(claims) or 1
    elif not hold.session_id:
        state.endless_count -= 1
    return state.claimed.remove(claims, hold) + freed if freed else state.claimed.remove(claims, hold)


def _take_permits(state: State, hold: Hold) -> None:
    """Count the permits of a hold.

    Those of one of several kinds are its session's claims, besides the first of what it has. So are its rate
    limits: where their moments are to come, each place is to be taken out when the session ends.
    """
    if hold.kind is _SEMAPHORE:  # the same as below, without the calls
        _join_semaphore(state, hold.name, hold.permits, hold)
        return
    for name, count in permits_in(hold):
        _join_semaphore(state, name, count, hold)
    if (session := state.sessions.get(hold.session_id)) is not None:
        session.claims_count += hold.permits


def _give_back_permits(state: State, hold: Hold) -> Freed:
    """Take the permits back, and what is reserved of rate limits; return what became free.

    A semaphore stays, even if it is idle, until its queue has been served.
    """
    if hold.kind is _SEMAPHORE:  # the same as below, without the calls
        _leave_semaphore(state, hold.name, hold.permits, hold)
        return [permits_of(hold.name)]
    permits = permits_in(hold)
    for name, count in permits:
        _leave_semaphore(state, name, count, hold)
    if (session := state.sessions.get(hold.session_id)) is not None:
        session.claims_count -= hold.permits
    state.rates.give_back(hold.hold_id, state.now_ms)
    return [permits_of(name) for name, _ in permits]


def _join_semaphore(state: State, name: str, permits: int, hold: Hold) -> None:
    semaphore = state.semaphores[name]
    semaphore.used += permits
    semaphore.holders[hold.hold_id] = hold
    if len(semaphore.holders) > crowds.SEARCHED_MAX or state.crowds.rows:
        state.crowds.joined(record_name(_SEMAPHORE, name), semaphore.holders, hold)


def _leave_semaphore(state: State, name: str, permits: int, hold: Hold) -> None:
    semaphore = state.semaphores[name]
    semaphore.used -= permits
    del semaphore.holders[hold.hold_id]
    if state.crowds.rows:
        state.crowds.left(record_name(_SEMAPHORE, name), hold, len(semaphore.holders))


def reclaim(state: State, hold: Hold, claims: Claims, token: int) -> Freed:
    """Give a hold other claims, which its fields are about to match, and `token`, which may be a new one.

    With a new token it moves behind all other holds.
    """
    old = claims_of_hold(hold)
    names = [name for name, claim in claims if not is_intent(claim)]
    gone = tuple([(name, claim) for name, claim in old if not is_intent(claim) and name not in names])
    # The new ones first, so that no record goes away in between.
    state.claimed.add(claims, None)
    freed = state.claimed.remove(gone, hold)
    freed += state.claimed.remove(tuple([pair for pair in old if pair not in gone]), None)
    session = state.sessions.get(hold.session_id)
    if session is not None:
        session.claims_count += len(claims) - len(old)
    if token != hold.token:
        _move_behind(state, hold, names, token, hold.name)
    return freed


def claim_more(state: State, hold: Hold, claims: Claims, token: int) -> None:
    """Give a hold the claims that it lacks of `claims`, which its locks are about to match, and `token`.

    The token is a new one, with which it moves behind all other holds. It has several names from now on.
    """
    old = claims_of_hold(hold)
    more = tuple([pair for pair in claims if pair not in old])
    session = state.sessions.get(hold.session_id)
    names = [name for name, claim in old if not is_intent(claim)]
    _move_behind(state, hold, names, token, "")
    state.claimed.add(more, hold)
    if session is not None:
        session.claims_count += len(more)


def _move_behind(state: State, hold: Hold, names: list[str], token: int, name: str) -> None:
    """Give a hold a new token, and so the last place of all holds, also on the `names` that it has.

    `name` is the only one of them, empty if there are several.
    """
    state.ledger.change(hold)
    for one in names:
        state.claimed.leave(state.locks[one], hold)
    hold.token, hold.name = token, name
    state.holds[hold.hold_id] = state.holds.pop(hold.hold_id)
    session = state.sessions.get(hold.session_id)
    if session is not None:
        session.remove_hold(hold)
        session.add_hold(hold)
    for one in names:
        state.claimed.join(state.locks[one], hold)
