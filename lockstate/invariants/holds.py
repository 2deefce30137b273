"""Sentences about holds: what they exclude, which tokens they have, where they are found."""

from collections import Counter
from itertools import combinations, pairwise

from lockstate.reads.parts import is_in_the_way, parts_of
from lockstate.tables import crowds
from lockstate.tables.claim_table import claims_of_hold
from lockstate.tables.crowds import is_known_by_value
from lockstate.tables.owners import wish_of
from lockstate.tables.pleas import key_of
from lockstate.tables.rare import PLAIN, of_hold
from lockstate.tables.records import Hold, Ticket, permits_in
from lockstate.tables.state import State
from lockstate.words.claims import claims_of, record_name
from lockstate.words.events import HELD_TOO_LONG
from lockstate.words.kinds import HoldKind
from lockstate.words.modes import CLAIMS, CONFLICTING, INTENTS, Mode, count, is_intent


def holders_are_compatible(state: State) -> None:
    """No two holds have claims on one record that conflict, and no semaphore gives more than it can."""
    claims: dict[str, list[tuple[int, Hold]]] = {}
    for hold in state.holds.values():
        for name, claim in claims_of_hold(hold):
            claims.setdefault(name, []).append((claim, hold))
    for name, standing in claims.items():
        for (claim, one), (other_claim, other) in combinations(standing, 2):
            if one is not other:
                assert other_claim not in CONFLICTING[claim], (
                    f"{name}: {one.token} and {other.token} conflict"
                )


def permits_are_counted(state: State) -> None:
    """A semaphore counts the permits of its holds and delays."""
    used = Counter[str]()
    for hold in state.holds.values():
        used.update(dict(permits_in(hold)))
    for delay in state.permit_delays.values():
        used[delay.name] += delay.permits
    for semaphore in state.semaphores.values():
        assert semaphore.used == used[semaphore.name], f"{semaphore.name}: counted {semaphore.used} permits"


def tokens_are_unique_and_given_out(state: State) -> None:
    """Every hold has a token of its own, below the next one; holds stand in order of their tokens."""
    tables = [state.holds, *[lock.holders for lock in state.claimed.records() if lock.holders]]
    for table in tables:
        tokens = [hold.token for hold in table.values()]
        assert all(a < b for a, b in pairwise(tokens)), "tokens do not rise"
        assert not tokens or tokens[-1] < state.next_token, "a token was not drawn from the counter"


def tables_agree(state: State) -> None:
    """Holds, tickets, locks, semaphores and sessions tell the same story from every side."""
    held = {hold.hold_id for lock in state.claimed.records() for hold in lock.all_holders()}
    held |= {hold_id for semaphore in state.semaphores.values() for hold_id in semaphore.holders}
    assert held == set(state.holds), "holds and what they are of disagree"
    of_sessions = {hold_id for session in state.sessions.values() for hold_id in session.holds}
    own = {hold.hold_id for hold in state.holds.values() if not hold.session_id}
    assert of_sessions | own == set(state.holds), "holds and sessions disagree"
    assert not any(hold.session_id and hold.ttl_ms for hold in state.holds.values()), (
        "a hold has a lease of its own, or a session"
    )
    endless_count = sum([hold.is_endless for hold in state.holds.values()])
    assert state.endless_count == endless_count, "holds without a deadline are miscounted"
    waiting = {hold_id for session in state.sessions.values() for hold_id in session.tickets}
    assert waiting == {ticket.hold_id for ticket in state.tickets.values() if ticket.session_id}, (
        "tickets and sessions disagree"
    )
    wishes = {
        (wish, ticket.hold_id) for ticket in state.tickets.values() if (wish := wish_of(ticket)) is not None
    }
    assert wishes == {(wish, hold_id) for wish, tickets in state.wishes.items() for hold_id in tickets}, (
        "tickets and wishes disagree"
    )
    changing = {hold.hold_id: hold.changing for hold in state.holds.values() if hold.changing}
    assert changing == {t.changes: t.hold_id for t in state.tickets.values() if t.changes}, (
        "changes and their holds disagree"
    )
    assert list(state.names.after("", inclusive=True)) == sorted(
        lock.name for lock in state.claimed.records()
    ), "the index of names is wrong"


def claims_are_counted(state: State) -> None:
    """The records count what holds, delays and tickets claim, and there are no other records."""
    held = Counter(claim for hold in state.holds.values() for claim in claims_of_hold(hold))
    for delay in state.delays.values():
        held.update(claims_of(delay.name, Mode.EXCLUSIVE, delay.scope))
    waiting = Counter(claim for ticket in state.tickets.values() for claim in claims_of_hold(ticket))
    for lock in state.claimed.records():
        for claim in CLAIMS:
            pair = lock.name, claim
            held_count = 0 if is_intent(claim) else held[pair]
            assert count(lock.held, claim) == held_count, f"{pair}: counted {count(lock.held, claim)} held"
            assert count(lock.waiting, claim) == waiting[pair], (
                f"{pair}: counted {count(lock.waiting, claim)} waiting"
            )
        assert lock.held or lock.waiting, f"{lock.name}: idle and remembered"
    for name, counts in state.claimed.all_intents():
        intents = {claim: count(counts, claim) for claim in CLAIMS if count(counts, claim)}
        assert intents == {claim: held[name, claim] for claim in INTENTS if held[name, claim]}, (
            f"{name}: counted {intents} intents"
        )
        assert intents, f"{name}: nothing is below and it is remembered"
    names = {name for name, _ in held | waiting}
    active = {lock.name for lock in state.claimed.records()} | {
        name for name, _ in state.claimed.all_intents()
    }
    assert names == active, "a claim has no record"
    assert len(names) == len(state.claimed), f"counted {len(state.claimed)} names, {len(names)} are active"
    for session in state.sessions.values():
        owned: list[Hold | Ticket] = [*session.holds.values(), *session.tickets.values()]
        counted = sum([len(claims_of_hold(record)) or 1 for record in owned])
        counted += sum([record.permits for record in owned if record.is_of_kinds])
        assert session.claims_count == counted, f"counted {session.claims_count} claims, there are {counted}"
        if session.by_owner is not None:
            by_owner = [(owner, one) for owner, held in session.by_owner.items() for one in held]
            held_by = [(hold.owner, hold_id) for hold_id, hold in session.holds.items()]
            assert sorted(by_owner) == sorted(held_by), "the holds of a session by owner are others"


def what_few_have_is_rare(state: State) -> None:
    """A record that has nothing rare has None; those that have something are counted."""
    records: list[Hold | Ticket] = [*state.holds.values(), *state.tickets.values()]
    assert all(record.rare != PLAIN for record in records), "nothing is kept as if it were something"
    rare_count = sum([record.rare is not None for record in records])
    assert state.rare_count == rare_count, f"counted {state.rare_count} records with something rare"
    for hold in state.holds.values():
        assert hold.rare == of_hold(hold.rare), "a hold has what only waits have"


def crowds_find_what_a_walk_finds(state: State) -> None:
    """A name that many hold has a crowd, of exactly its holders, by token and by value."""
    holders = {lock.name: list(lock.all_holders()) for lock in state.claimed.records()}
    for semaphore in state.semaphores.values():
        holders[record_name(HoldKind.SEMAPHORE, semaphore.name)] = list(semaphore.holders.values())
    crowded = {name for name, found in holders.items() if len(found) > crowds.SEARCHED_MAX}
    assert crowded <= state.crowds.rows.keys(), "many hold a name, and it has no crowd"
    for name, crowd in state.crowds.rows.items():
        found = holders.get(name, [])
        assert len(found) > crowds.SEARCHED_MAX // 2, f"{name}: few hold it, and it has a crowd"
        assert crowd.by_token() == found, f"{name}: the crowd has other holders"
        valued = [_place_by_value(state, hold) for hold in found if is_known_by_value(hold)]
        by_value = [_place_by_value(state, hold) for hold in crowd.by_value()]
        assert by_value == sorted(valued), f"{name}: the crowd has other values"


def _place_by_value(state: State, hold: Hold) -> tuple[str, str, int]:
    return hold.details.value, state.principals.of(hold), hold.token


def several_kinds_are_of_locks(state: State) -> None:
    """Only holds and tickets of several kinds have permits beside them."""
    records: list[Hold | Ticket] = [*state.holds.values(), *state.tickets.values()]
    for record in records:
        rare = record.details
        if rare.permits or rare.rates or rare.at_ms:
            assert record.is_of_kinds, f"{record.hold_id}: has permits and is of one kind"


def values_are_of_holds(state: State) -> None:
    """Only what has a value keeps one secret."""
    claimants: list[Hold | Ticket] = [*state.holds.values(), *state.tickets.values()]
    for one in claimants:
        assert not one.details.is_secret or (one.details.value and one.kind is not HoldKind.ELECTION), (
            "a secret of nothing"
        )


def pleas_are_of_holds(state: State) -> None:
    """What is to be given up is held, and in the way of the wait for which that was asked, if for one."""
    pleas = state.pleas
    for order, plea in pleas.rows.items():
        assert plea.order == order, "a plea is kept as another one"
        hold = state.holds.get(plea.hold_id)
        assert hold is not None, "a plea outlived its hold"
        assert (plea.kind, plea.name) in [(part.kind, part.name) for part in parts_of(hold)], (
            f"{plea.name}: a plea outlived the name that it hangs on"
        )
        assert pleas.of_hold(plea.hold_id)[key_of(plea)] is plea, "a plea is not found by its hold"
        if plea.ticket:
            ticket = state.tickets_in_order.get(plea.ticket)
            assert ticket is not None, "a plea outlived the wait for which it was made"
            assert is_in_the_way(hold, ticket, plea.kind, plea.name), "a plea for what is in nobody's way"
            assert pleas.of_tickets[plea.ticket][order] is plea, "a plea is not found by its wait"
        assert plea.is_told or plea.is_bound, "a plea is kept from its holder"
        assert plea.is_bound == (plea.reason == HELD_TOO_LONG), "a bound looks like a plea of somebody"
        assert not plea.is_bound or (plea.is_put_off and not plea.ticket), "a bound is put off, or for a wait"
    assert pleas.bounds_count == sum([plea.is_bound for plea in pleas.rows.values()]), "bounds are miscounted"
    assert list(pleas.rows) == sorted(pleas.rows), "pleas are kept out of order"
    assert sum(map(len, pleas.of_holds.values())) == len(pleas), "pleas and holds disagree"
    for_waits = [plea for plea in pleas.rows.values() if plea.ticket]
    assert sum(map(len, pleas.of_tickets.values())) == len(for_waits), "pleas and waits disagree"
    for hold_id, ask in pleas.asks.items():
        assert ask.hold_id == hold_id, "a wait asks as another one"
        ticket = state.tickets.get(hold_id)
        assert ticket is not None, "something asks for a wait that is over"
        assert ticket.details.asks is not None, "a wait asks that does not say so"
    orders = [ask.order for ask in pleas.asks.values()]
    assert orders == sorted(orders), "the waits that ask are kept out of order"
