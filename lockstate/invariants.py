"""What must be true at every revision: one function for each sentence.

Tests and checkers call this; a node at work never does.
"""

from collections import Counter
from itertools import chain, combinations, pairwise

from lockstate.reads.parts import is_in_the_way, parts_of
from lockstate.tables import budget, crowds, fingerprint
from lockstate.tables.cells import size_of
from lockstate.tables.claim_table import claims_of_hold
from lockstate.tables.crowds import is_known_by_value
from lockstate.tables.deadlines import Timed
from lockstate.tables.namespaces import NamespaceUsage
from lockstate.tables.owners import wish_of
from lockstate.tables.pleas import key_of
from lockstate.tables.principals import Usage
from lockstate.tables.queues import can_go
from lockstate.tables.rare import PLAIN, of_hold
from lockstate.tables.records import Delay, Hold, Ticket, each_lock, permits_in, precedence
from lockstate.tables.state import State
from lockstate.words.claims import claims_of, parent, record_name
from lockstate.words.commands import Algorithm
from lockstate.words.modes import CLAIMS, CONFLICTING, INTENTS, Mode, count, is_intent
from lockstate.words.results import HELD_TOO_LONG, HoldKind, Queued


def check(state: State) -> None:
    """Check every sentence; raise AssertionError naming the first that does not hold."""
    for sentence in SENTENCES:
        sentence(state)


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


def nobody_waits_in_vain(state: State) -> None:
    """A waiter that no hold, no earlier waiter, no delay and no freeze is in the way of was let through."""
    for ticket in state.tickets.values():
        if ticket.kind is HoldKind.SEMAPHORE:
            semaphore = state.semaphores[ticket.name]
            is_first = next(iter(semaphore.queue.values())) is ticket
            fits = semaphore.used + ticket.permits <= semaphore.limit and can_go(state, ticket, ())
            assert not (is_first and fits), f"{ticket.name}: the first waiter could have its permits"
        else:
            assert not can_go(state, ticket, claims_of_hold(ticket)), (
                f"waiter {ticket.order} could be granted"
            )


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


def principals_are_counted(state: State) -> None:
    """Whose something is is known of what is there and of nothing else, and how much each has."""
    of = state.principals.rows
    own = {
        record.hold_id for record in (*state.holds.values(), *state.tickets.values()) if not record.session_id
    }
    assert of.keys() <= state.sessions.keys() | own, "what is gone still belongs to somebody"
    assert all(key in state.cells for key in state.principals.cells), "a cell that is gone counts"
    assert state.principals.fences.keys() <= state.fences.keys(), "a fence that is gone counts"
    assert not state.principals.asking, "a command is over, and somebody is still asking"
    sessions = Counter(of[session_id] for session_id in state.sessions if session_id in of)
    holds = Counter(who for who, _ in _names_of_principals(state))
    waits = Counter(state.principals.of(ticket) for ticket in state.tickets.values())
    waits.update(place.principal for place in state.rates.places.values())
    cells, fences = (Counter(table.values()) for table in (state.principals.cells, state.principals.fences))
    rates = Counter(limiter.principal for limiter in state.rates.all())
    size_bytes = _bytes_of_principals(state)
    known = {principal for principal in (*sessions, *holds, *waits, *cells, *fences, *rates) if principal}
    counted = {
        who: Usage(
            sessions[who], holds[who], waits[who], cells[who], fences[who], rates[who], size_bytes[who]
        )
        for who in known
    }
    assert state.principals.usage == counted, "what principals have is miscounted"


def namespaces_are_counted(state: State) -> None:
    """A namespace counts what lies in it and was made since it was set, and nothing else."""
    table = state.namespaces
    assert table.fences.keys() <= state.fences.keys(), "a fence that is gone counts in a namespace"
    assert table.usage.keys() == table.rows.keys(), "what is in no namespace is counted"
    for prefix, namespace in table.rows.items():
        has = {
            hold.hold_id
            for hold in state.holds.values()
            if hold.token >= namespace.since_token and _lies_in(prefix, hold)
        }
        waits = [
            ticket
            for ticket in state.tickets.values()
            if ticket.order >= namespace.since_order and _lies_in(prefix, ticket)
        ]
        wanted = [one for one in waits if not one.is_conversion]
        entering = [one for one in wanted if one.changes not in has]
        delays = [
            delay
            for delay in _delays(state)
            if delay.order >= namespace.since_order and f"{delay.name}/".startswith(f"{prefix}/")
        ]
        cells = [
            cell
            for cell in state.cells.all()
            if cell.create_revision >= namespace.since_cells_revision
            and (cell.key + b"/").startswith(f"{prefix}/".encode())
        ]
        fences = [
            resource
            for resource, order in table.fences.items()
            if order >= namespace.since_order and f"{resource}/".startswith(f"{prefix}/")
        ]
        held: list[Hold | Ticket] = [state.holds[hold_id] for hold_id in has]
        names = [name for record in (*held, *wanted) for name in _names(record)]
        names = [name for name in names if f"{name}/".startswith(f"{prefix}/")]
        names += [delay.name for delay in delays]
        held += [state.holds[one.changes] if one.changes else one for one in entering]
        size_bytes = sum([_bytes_said(record) for record in held])
        size_bytes += sum([size_of(cell) for cell in cells])
        places, rates = (
            [
                one
                for one in every
                if one.order >= namespace.since_order and f"{one.name}/".startswith(f"{prefix}/")
            ]
            for every in (state.rates.places.values(), state.rates.all())
        )
        size_bytes += len("".join([*names, *fences, *[limiter.name for limiter in rates]]).encode())
        counted = NamespaceUsage(
            len(names),
            len(waits) + len(places),
            len(cells),
            len(fences),
            len(rates),
            size_bytes,
        )
        assert table.usage[prefix] == counted, f"{prefix}: {table.usage[prefix]} is counted, not {counted}"


def _lies_in(prefix: str, record: Hold | Ticket) -> bool:
    """Whether a namespace covers any name of a hold or a ticket."""
    return any(f"{name}/".startswith(f"{prefix}/") for name in _names(record))


def _names(record: Hold | Ticket) -> list[str]:
    """Return the names that a hold has or a ticket wants, of locks and of permits."""
    locks = [lock.name for lock in each_lock(record)] if record.kind is not HoldKind.SEMAPHORE else []
    return locks + [name for name, _ in permits_in(record)]


def _delays(state: State) -> list[Delay]:
    return [*state.delays.values(), *state.permit_delays.values()]


def _names_of_principals(state: State) -> list[tuple[str, str]]:
    """Return each name that is held, waited for or delayed, with whose it is; those of nobody, too."""
    records: list[Hold | Ticket] = [*state.holds.values()]
    records += [ticket for ticket in state.tickets.values() if not ticket.is_conversion]
    names = [(state.principals.of(record), name) for record in records for name in _names(record)]
    return names + [(delay.principal, delay.name) for delay in _delays(state)]


def _bytes_of_principals(state: State) -> Counter[str]:
    """Return how many bytes each principal keeps in the state; those of nobody are counted, too."""
    principals, counted = state.principals, Counter[str]()
    names = _names_of_principals(state)
    names += [(principal, resource) for resource, principal in principals.fences.items()]
    names += [(limiter.principal, limiter.name) for limiter in state.rates.all()]
    for principal, name in names:
        counted[principal] += len(name.encode())
    for session in state.sessions.values():
        labels = "".join([*session.labels, *session.labels.values()])
        counted[principals.rows.get(session.session_id, "")] += len(labels.encode())
    records: list[Hold | Ticket] = [*state.holds.values(), *state.tickets.values()]
    for record in records:
        if not (isinstance(record, Ticket) and record.changes):
            counted[principals.of(record)] += _bytes_said(record)
    for cell in state.cells.all():
        counted[principals.cells.get(cell.key, "")] += len(cell.key + cell.value)
    return counted


def _bytes_said(record: Hold | Ticket) -> int:
    return len((record.details.note + record.details.value).encode())


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


def queues_are_right(state: State) -> None:
    """Every ticket stands once in the queue of each of its claims, in order, and can be found from above."""
    queued = Counter[tuple[str, int, str]]()
    for lock in state.claimed.records():
        for slot, queue in (lock.queues or {}).items():
            places = [precedence(ticket) for ticket in queue.values()]
            assert places, f"{lock.name}: an empty queue is remembered"
            assert all(a < b for a, b in pairwise(places)), f"{lock.name}: out of order"
            queued.update((lock.name, slot, hold_id) for hold_id in queue)
        for name in lock.below or ():
            assert state.locks[name].waiting, f"{lock.name}: nobody waits at {name}"
        above = state.locks.get(parent(lock.name))
        if lock.waiting and above is not None:
            assert lock.name in (above.below or ()), f"{lock.name}: not to be found from above"
    wanted = Counter(
        (name, claim + ticket.lane, ticket.hold_id)
        for ticket in state.tickets.values()
        for name, claim in claims_of_hold(ticket)
    )
    assert queued == wanted, "queues and tickets disagree"
    tables = [semaphore.queue for semaphore in state.semaphores.values()]
    for table in (*tables, *state.wishes.values()):
        places = [precedence(ticket) for ticket in table.values()]
        assert all(a < b for a, b in pairwise(places)), "permits or wishes: out of order"


def what_few_have_is_rare(state: State) -> None:
    """A record that has nothing rare has None; those that have something are counted."""
    records: list[Hold | Ticket] = [*state.holds.values(), *state.tickets.values()]
    assert all(record.rare != PLAIN for record in records), "nothing is kept as if it were something"
    rare_count = sum([record.rare is not None for record in records])
    assert state.rare_count == rare_count, f"counted {state.rare_count} records with something rare"
    for hold in state.holds.values():
        assert hold.rare == of_hold(hold.rare), "a hold has what only waits have"


def priorities_are_of_tickets(state: State) -> None:
    """No change of a hold, and no wait for an election, has a priority; those that have one are counted."""
    for ticket in state.tickets.values():
        assert not (ticket.changes and ticket.steps), "a change of a hold has a priority"
        assert not (ticket.kind is HoldKind.ELECTION and ticket.steps), "elections know no priorities"
    ranked_count = sum(ticket.steps != 0 for ticket in state.tickets.values())
    assert state.ranked_count == ranked_count, f"counted {state.ranked_count} tickets with a priority"


def permits_are_queued_for_in_order(state: State) -> None:
    """Every ticket stands in the queues of the semaphores it wants, and holders by token."""
    wanted = sorted(
        [(name, precedence(ticket)) for ticket in state.tickets.values() for name, _ in permits_in(ticket)]
    )
    held = sorted([(name, hold.token) for hold in state.holds.values() for name, _ in permits_in(hold)])
    semaphores = sorted(state.semaphores.values(), key=lambda semaphore: semaphore.name)
    queued = [(one.name, precedence(ticket)) for one in semaphores for ticket in one.queue.values()]
    assert queued == wanted, f"permits: {queued} are queued, {wanted} are wanted"
    holders = [(one.name, hold.token) for one in semaphores for hold in one.holders.values()]
    assert holders == held, f"permits: {holders} are holders, {held} are held"


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


def idle_things_are_forgotten(state: State) -> None:
    """What nobody holds, wants or delays is not remembered."""
    for semaphore in state.semaphores.values():
        assert not semaphore.is_idle, f"{semaphore.name}: idle and remembered"
    assert all(state.party_tickets.values()), "parties without a ticket are remembered"
    assert all(state.wishes.values()), "wishes without a ticket are remembered"


def everything_timed_is_scheduled(state: State) -> None:
    """Everything that ends by itself is among the deadlines, and nothing else is."""
    timed: list[Timed] = [*state.sessions.values(), *state.tickets.values()]
    timed += [hold for hold in state.holds.values() if hold.ttl_ms]
    timed += [*state.delays.values(), *state.permit_delays.values(), *state.pleas.rows.values()]
    timed += state.pleas.asks.values()
    timed += [cell for cell in state.cells.all() if cell.ttl_ms]
    timed += [freeze for freeze in state.freezes.values() if freeze.expires_at_ms]
    timed += [*state.rates.all(), *state.rates.places.values()]
    assert len(state.deadlines) == len(timed), "deadlines and tables disagree"
    first = min((record.expires_at_ms for record in timed), default=None)
    next_ms = state.deadlines.next_ms()
    assert first is None or (next_ms is not None and next_ms <= first), "an end was not scheduled"


def cells_are_in_order(state: State) -> None:
    """Cells are found by key, in order and by session; their bytes are counted; revisions were given out."""
    cells = state.cells.all()
    assert [cell.key for cell in state.cells.below(b"", b"")] == sorted(cell.key for cell in cells), (
        "the index of keys is wrong"
    )
    for cell in cells:
        assert state.cells.get(cell.key) is cell, f"{cell.key!r}: is kept under another key"
        assert 0 < cell.create_revision <= cell.mod_revision <= state.cells.revision, (
            f"{cell.key!r}: revisions"
        )
        assert not (cell.session_id and cell.ttl_ms), f"{cell.key!r}: two leases"
        assert bool(cell.order) == bool(cell.expires_at_ms) == bool(cell.ttl_ms), f"{cell.key!r}: its lease"
    of_sessions = {
        (session_id, key) for session_id in state.sessions for key in state.cells.of_session(session_id)
    }
    assert of_sessions == {(cell.session_id, cell.key) for cell in cells if cell.session_id}, (
        "cells and sessions disagree"
    )
    counted = sum([len(cell.key) + len(cell.value) for cell in cells])
    assert state.cells.content_bytes == counted, f"counted {state.cells.content_bytes} bytes of cells"


def places_are_to_come(state: State) -> None:
    """A rate limit with places has admitted what is due, its copy all; places are found by what they have."""
    rates = state.rates
    assert not rates.stale, "places were given back, and copies not made anew"
    for limiter in rates.all():
        key = (limiter.name, limiter.algorithm, limiter.window_ms)
        places = [place for place in rates.places.values() if place.key == key]
        # In a fixed window all moments are as good: one that another limit made late in it may be passed.
        step_ms = limiter.window_ms if limiter.algorithm is Algorithm.FIXED_WINDOW else 1
        moments = [place.expires_at_ms // step_ms for place in places]
        assert moments == sorted(moments), f"{limiter.name}: places are out of order"
        assert rates.places_count(key) == len(places), f"{limiter.name}: places are miscounted"
        ahead, known = limiter.copy(), rates.get(key)
        for place in places:
            ahead.admit(place.expires_at_ms, place.limit, place.cost)
        assert known is not None, f"{limiter.name}: it is not found"
        assert known.told() == ahead.told(), f"{limiter.name}: its copy is wrong"
        assert (known is limiter) == (not places), f"{limiter.name}: a copy without a place"
    ids = {(one, place.order) for place in rates.places.values() for one in place.ids if one}
    assert ids == {(one, place.order) for one, found in rates.by_id.items() for place in found}, (
        "ids of places"
    )
    requests = {place.request for place in rates.places.values() if place.request is not None}
    assert requests == rates.by_request.keys(), "requests of places"


def streams_are_right(state: State) -> None:
    """Streams are those of sessions; they keep numbers in order, and know which of their numbers wait."""
    waiting = {ticket.request for ticket in state.tickets.values() if ticket.origin == ""}
    kept_count = 0
    for session_id, _, last in state.streams.dump():
        stream = state.streams.get(session_id)
        assert stream is not None
        assert session_id in state.sessions, "a stream outlived its session"
        # What is fresh stays so: to look at it as it is stored would change it.
        runs = [range(first, first + len(results)) for first, _, results in stream.fresh]
        numbers = [*stream.rows, *chain.from_iterable(runs)]
        assert numbers == sorted(set(numbers)), "numbers are kept out of order"
        assert all(0 < number <= last for number in numbers), "a number is kept that did not come yet"
        assert not runs or (numbers[-1] == last and stream in state.ledger.noted), (
            "what is fresh is the newest"
        )
        assert stream.kept_count == len(numbers), "numbers of a stream"
        assert stream.rows_bytes == sum(kept.size_bytes for kept in stream.rows.values()), "bytes of a stream"
        kept_count += len(numbers)
        for number in numbers:
            is_queued = number in stream.rows and isinstance(stream.rows[number].result, Queued)
            assert is_queued == ((session_id, number) in waiting), f"{number}: does it wait?"
    assert kept_count == state.streams.kept_count, "what streams keep is miscounted"


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


def freezes_are_of_prefixes(state: State) -> None:
    """A freeze is kept under its prefix, and began before now."""
    assert state.freezes.in_order == sorted(state.freezes), "frozen prefixes and their order disagree"
    for prefix, freeze in state.freezes.items():
        assert freeze.prefix == prefix, "a freeze is kept for another prefix"
        assert freeze.since_ms <= state.now_ms, f"{prefix}: is frozen from some later time on"


def values_are_of_holds(state: State) -> None:
    """Only what has a value keeps one secret."""
    claimants: list[Hold | Ticket] = [*state.holds.values(), *state.tickets.values()]
    for one in claimants:
        assert not one.details.is_secret or (one.details.value and one.kind is not HoldKind.ELECTION), (
            "a secret of nothing"
        )


def the_fingerprint_is_kept_up(state: State) -> None:
    """The sums of marks are those of the records that are there."""
    assert fingerprint.of(state) == fingerprint.recomputed(state), "a change of a record is not in the sums"


def the_bytes_are_counted(state: State) -> None:
    """What the state is counted as taking is what its records are."""
    assert budget.bytes_of(state) == budget.recounted(state), "a change of a record is not in the bytes"


SENTENCES = (
    holders_are_compatible,
    permits_are_counted,
    tokens_are_unique_and_given_out,
    nobody_waits_in_vain,
    tables_agree,
    principals_are_counted,
    namespaces_are_counted,
    claims_are_counted,
    queues_are_right,
    what_few_have_is_rare,
    priorities_are_of_tickets,
    permits_are_queued_for_in_order,
    crowds_find_what_a_walk_finds,
    several_kinds_are_of_locks,
    idle_things_are_forgotten,
    everything_timed_is_scheduled,
    cells_are_in_order,
    places_are_to_come,
    streams_are_right,
    pleas_are_of_holds,
    freezes_are_of_prefixes,
    values_are_of_holds,
    the_fingerprint_is_kept_up,
    the_bytes_are_counted,
)
