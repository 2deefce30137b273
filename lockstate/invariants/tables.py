"""Sentences about all other tables: cells, rates, streams, freezes, deadlines, and the sums of everything."""

from itertools import chain

from lockstate.tables import budget, fingerprint
from lockstate.tables.deadlines import Timed
from lockstate.tables.state import State
from lockstate.words.kinds import Algorithm
from lockstate.words.results import Queued


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


def freezes_are_of_prefixes(state: State) -> None:
    """A freeze is kept under its prefix, and began before now."""
    assert state.freezes.in_order == sorted(state.freezes), "frozen prefixes and their order disagree"
    for prefix, freeze in state.freezes.items():
        assert freeze.prefix == prefix, "a freeze is kept for another prefix"
        assert freeze.since_ms <= state.now_ms, f"{prefix}: is frozen from some later time on"


def the_fingerprint_is_kept_up(state: State) -> None:
    """The sums of marks are those of the records that are there."""
    assert fingerprint.of(state) == fingerprint.recomputed(state), "a change of a record is not in the sums"


def the_bytes_are_counted(state: State) -> None:
    """What the state is counted as taking is what its records are."""
    assert budget.bytes_of(state) == budget.recounted(state), "a change of a record is not in the bytes"
