"""What must be equal in the machine and in the model, and what the rules leave open.

Left open are the wording of details and which of several cycles is named. In which order different locks are
told about within one entry is not part of the rules either; of each lock, events come in their order.
"""

import re
from collections.abc import Callable, Sequence
from typing import TypeVar

import msgspec

from holdfast.cli.audit_chain import ChainCheck
from lockstate.machine import LockMachine
from lockstate.reads import listings
from lockstate.reads.listings import Whose
from lockstate.tables import audit
from lockstate.tables.owners import shown_owner
from lockstate.words.events import Event, EventKind
from lockstate.words.ids import NO_SESSION, SessionId
from lockstate.words.kinds import HoldKind
from lockstate.words.limits import HOLDERS_SHOWN_MAX
from lockstate.words.modes import Mode, Scope
from lockstate.words.outcomes import Outcome, Settled
from lockstate.words.refusals import Reason, Refused
from lockstate.words.results import Granted, GrantedSeveral, NumberedDone, Result, Transacted
from lockstate.words.views import Holdings, HoldView, WaiterView
from tests.property import (
    model_attempts,
    model_cells,
    model_namespaces,
    model_principals,
    model_views,
    random_commands,
)
from tests.property.model_changes import due
from tests.property.model_deadlock import check_cycle
from tests.property.model_records import Hold, ModelState, Ticket

DEADLOCKS = {Reason.DEADLOCK, Reason.CONVERSION_DEADLOCK}
AUDIT_LIMIT = 1000
CHAIN_CHECKED = 16
"""Records of the audit whose hashes are checked after each entry."""

Row = TypeVar("Row")


def plain(value: object) -> str:
    """Return `value` as text, without the digests in default owners; of tickets only that there is one."""
    if isinstance(value, Event):
        owner = shown_owner(value.owner, value.session_id)
        value = msgspec.structs.replace(value, owner=owner, ticket=bool(value.ticket))
    text = re.sub(r'"(session|hold)-(?!expired")[^"]*"', r'"\1-*"', msgspec.json.encode(value).decode())
    return re.sub(r'"s-[0-9]+"', '"s-*"', re.sub(r"(true|false),[0-9]+,\"", r'\1,0,"', text))


def plain_result(result: Result) -> str:
    """Return `result` as text, without what the rules leave open."""
    if isinstance(result, Granted) and (result.locks or isinstance(result, GrantedSeveral)):
        result = msgspec.structs.replace(result, mode=Mode.EXCLUSIVE, scope=Scope.NODE)
    if isinstance(result, Refused):
        result = msgspec.structs.replace(result, detail="", cycle=())
    if isinstance(result, NumberedDone):
        refused = "" if result.refused is None else result.refused.reason
        return f"{[plain_result(each) for each in result.results]} {refused}"
    if isinstance(result, Transacted):
        return _without_digests(repr(result))
    return f"{type(result).__name__} {plain(result)}"


def parts(result: Result) -> tuple[Result, ...]:
    """Return the results of a frame, or the one result."""
    return result.results if isinstance(result, NumberedDone) else (result,)


def plain_events(events: Sequence[Event]) -> list[str]:
    """Return the events as text, those of each lock in their order, and the internal ones behind them."""
    public = sorted(
        (event for event in events if event.kind is not EventKind.LEFT), key=lambda e: (e.of, e.name)
    )
    ends = sorted(plain(event) for event in events if event.kind is EventKind.LEFT)
    return [plain(event) for event in public] + ends


def plain_settled(settled: list[Settled] | tuple[Settled, ...]) -> list[str]:
    """Return the ends of waits as text."""
    return sorted(f"{end.hold_id}: {plain_result(end.result)}" for end in settled)


def check_outcome(outcome: Outcome, expected: list[tuple[str, int, Result]], state: ModelState) -> None:
    """Check that the machine did with an entry what the model did."""
    answers = [
        (batch.origin, seq, result)
        for batch in outcome.batches
        for seq, result in zip(batch.seqs, batch.results, strict=True)
    ]
    assert [a[:2] for a in answers] == [e[:2] for e in expected]
    for (_, _, result), (_, _, wanted) in zip(answers, expected, strict=True):
        assert plain_result(result) == plain_result(wanted), f"machine: {result}; model: {wanted}"
        for one, model_one in zip(parts(result), parts(wanted), strict=True):
            if isinstance(one, Refused) and isinstance(model_one, Refused) and one.reason in DEADLOCKS:
                _check_cycle_named(one, model_one, state)
    _check_equal(plain_events(outcome.events), plain_events(state.events))
    assert outcome.cell_events == tuple(state.cell_events), (outcome.cell_events, state.cell_events)
    _check_equal(plain_settled(outcome.settled), plain_settled(state.settled))


def _check_cycle_named(result: Refused, wanted: Refused, state: ModelState) -> None:
    """Check that a cycle is a real one. The refusal of a repeated request has none."""
    if wanted.detail:
        _, edges, starts = state.deadlocks[int(wanted.detail)]
        check_cycle(edges, starts, result.cycle)
    else:
        assert not result.cycle, "holders and cycles of that time are not remembered"


def _check_equal(of_machine: list[str], of_model: list[str]) -> None:
    only_machine = [event for event in of_machine if event not in of_model]
    only_model = [event for event in of_model if event not in of_machine]
    assert of_machine == of_model, f"machine: {only_machine or of_machine}; model: {only_model or of_model}"


def check_views(machine: LockMachine, state: ModelState) -> None:
    """Check that readers of the machine see what the model says."""
    assert (machine.revision, machine.now_ms) == (state.revision, state.now_ms)
    assert machine.next_token == state.next_token
    assert sorted(machine.waiting_origins()) == sorted(model_attempts.origins(state) - {""})
    _check_counts(machine, state)
    _check_rates(machine, state)
    ends = due(state)
    assert machine.next_deadline_ms() == (ends[0][0] if ends else None)
    for name in random_commands.NAMES:
        _check_equal([plain(machine.lock(name))], [plain(model_views.lock_view(state, name))])
    for name in random_commands.SEMAPHORES:
        _check_equal([plain(machine.semaphore(name))], [plain(model_views.semaphore_view(state, name))])
    for name in random_commands.ELECTIONS:
        _check_equal([plain(machine.election(name))], [plain(model_views.election_view(state, name))])
    for session_id in random_commands.SESSION_IDS:
        _check_equal(
            [plain(machine.session(session_id))], [plain(model_views.session_view(state, session_id))]
        )
        _check_stream(machine, state, session_id)
    names = (*random_commands.NAMES, *random_commands.SEMAPHORES, *random_commands.ELECTIONS)
    for name in dict.fromkeys(names):
        for token in (0, 1, state.next_token - 1):
            for kind in (None, *HoldKind):
                found = machine.check_fence(name, token, kind)
                assert found == model_views.fence_view(state, name, token, kind)
    _check_pages(machine, state)
    _check_listings(machine, state)
    _check_holdings(machine, state)
    _check_tickets(machine, state)
    _check_cells(machine, state)
    _check_principals(machine, state)
    _check_namespaces(machine, state)
    _check_audit(machine, state)


def _check_rates(machine: LockMachine, state: ModelState) -> None:
    """Check the rate limits that are not whole, and their places."""
    rates = machine.state.rates
    found = [
        (one.name, one.algorithm, one.window_ms, one.expires_at_ms, one.principal) for one in rates.all()
    ]
    assert sorted(found) == sorted([(*rate.key, rate.whole_ms, rate.principal) for rate in state.rates])
    places = [(one.name, one.expires_at_ms, sorted(one.ids), one.principal) for one in rates.places.values()]
    known = [(rate.key[0], one.at_ms, sorted(one.ids), one.principal) for rate, one in state.places()]
    assert sorted(places) == sorted(known), (places, known)


def _check_counts(machine: LockMachine, state: ModelState) -> None:
    """Check the sizes of the tables that the model has, too."""
    known = {
        "holds": len(state.holds),
        "tickets": len(state.tickets),
        "sessions": len(state.sessions),
        "requests": len(state.requests),
        "semaphores": len(state.limits),
        "fences": len(state.fences),
        "cells": len(state.cells),
        "streams": len(state.streams),
        "holds_without_deadline": sum(hold.lease is None and not hold.session_id for hold in state.holds),
    }
    counts = machine.counts()
    assert {name: counts[name] for name in known} == known


def _all_pages(read: Callable[[str, int], tuple[list[Row], str | None]], limit: int) -> list[Row]:
    """Return the rows of all pages."""
    rows: list[Row] = []
    after: str | None = ""
    while after is not None:
        page, after = read(after, limit)
        assert len(page) <= limit
        rows += page
    return rows


def _check_listings(machine: LockMachine, state: ModelState) -> None:
    """Check the lists of semaphores, elections, fences and sessions, in pages of one and of many."""
    now, limit = machine.state, 1 + state.revision % 2 * 99
    semaphores = _all_pages(lambda after, most: listings.semaphores(now, "", after, most), limit)
    assert [row.name for row in semaphores] == sorted(state.limits)
    for row in semaphores:
        view = model_views.semaphore_view(state, row.name)
        assert (row.limit, row.available) == (view.limit, view.available)
        assert (row.holders_count, row.queue_length) == (len(view.holders), len(view.queue))
        _check_equal([plain(row.holders)], [plain(view.holders[:HOLDERS_SHOWN_MAX])])
    things: list[Hold | Ticket] = [*state.holds, *state.tickets]
    led = {thing.locks[0].name for thing in things if thing.kind is HoldKind.ELECTION}
    elections = _all_pages(lambda after, most: listings.elections(now, "", after, most), limit)
    assert [row.name for row in elections] == sorted(led)
    for election in elections:
        seen = model_views.election_view(state, election.name)
        _check_equal([plain(election.leader)], [plain(seen.leader)])
        assert (election.value, election.queue_length) == (seen.value, len(seen.queue))
    fences = _all_pages(lambda after, most: listings.fences(now, "", after, most), limit)
    assert [(row.name, row.highest_token) for row in fences] == sorted(state.fences.items())
    sessions = _all_pages(lambda after, most: listings.sessions(now, Whose(), after, most), limit)
    _check_equal([plain(row) for row in sessions], [plain(row) for row in model_views.session_rows(state)])
    for row_of_one, session in zip(sessions, state.sessions, strict=True):
        found = machine.holdings_of(row_of_one.session_name)
        known = model_views.session_view(state, session.session_id)
        assert found is not None
        assert known is not None
        _check_equal([plain(found)], [plain(Holdings(known.holds, known.tickets))])


def _check_holdings(machine: LockMachine, state: ModelState) -> None:
    """Check what some hold and wait for, in pages of one name and of many."""
    limit = 1 + state.revision % 2 * 99
    conditions = [
        Whose(),
        Whose(owner="ann"),
        Whose(label=("owner", "ann")),
        Whose(longer_than_ms=500),
        Whose(principal="ann"),
    ]
    for whose in conditions:
        holds: list[HoldView] = []
        tickets: list[WaiterView] = []
        after: str | None = ""
        while after is not None:
            page = listings.holdings(machine.state, whose, "", after, limit)
            holds, tickets, after = [*holds, *page.holds], [*tickets, *page.tickets], page.next
        wanted = model_views.holdings(state, whose)
        _check_equal([plain(Holdings(tuple(holds), tuple(tickets)))], [plain(wanted)])


def _check_tickets(machine: LockMachine, state: ModelState) -> None:
    """Check that waiters have numbers in order of arrival, and what is shown of each by its number."""
    numbers = [machine.state.tickets[ticket.ticket_id].order for ticket in state.tickets]
    assert numbers == sorted(set(numbers))
    for number, ticket in zip(numbers, state.tickets, strict=True):
        view = listings.ticket(machine.state, number)
        assert view is not None
        assert view.ticket == number
        shown = msgspec.structs.replace(view, ticket=0)
        _check_equal([plain(shown)], [plain(model_views.ticket_view(state, ticket))])
    assert listings.ticket(machine.state, max(numbers, default=0) + 1) is None


def _check_pages(machine: LockMachine, state: ModelState) -> None:
    """Check the whole list of locks, and the pages of a part of it."""
    active = model_views.active_names(state)
    views, following = machine.locks("", "", 100)
    _check_equal(
        [plain(view) for view in views], [plain(model_views.lock_view(state, name)) for name in active]
    )
    assert following is None
    below = [name for name in active if name.startswith("a/")]
    found: list[str] = []
    after: str | None = ""
    while after is not None:
        views, after = machine.locks("a/", after, 1)
        found += [view.name for view in views]
    assert found == below


def _check_cells(machine: LockMachine, state: ModelState) -> None:
    """Check every cell, the list of them, and the pages of a part of it."""
    assert machine.cells_revision == state.cells_revision
    cells = [model_cells.cell_view(state, cell) for cell in model_cells.in_order(state)]
    known = [_without_digests(repr(cell)) for cell in cells]
    views, following = machine.cells(b"", b"", 100)
    assert ([_without_digests(repr(view)) for view in views], following) == (known, None)
    for key in random_commands.KEYS:
        cell, view = state.cell(key), machine.cell(key)
        assert (cell is None) == (view is None)
    below = [view.key for view in views if view.key.startswith(b"c/")]
    found: list[bytes] = []
    after: bytes | None = b""
    while after is not None:
        page, after = machine.cells(b"c/", after, 1)
        found += [view.key for view in page]
    assert found == below


def _check_principals(machine: LockMachine, state: ModelState) -> None:
    """Check how much each principal has, and may have."""
    rows = _all_pages(lambda after, most: listings.principals(machine.state, after, most), 100)
    wanted = model_principals.rows(state)
    assert rows == wanted, (rows, wanted)


def _check_namespaces(machine: LockMachine, state: ModelState) -> None:
    """Check how much there is in each namespace."""
    limit = 1 + state.revision % 2 * 99
    rows = _all_pages(lambda after, most: listings.namespaces(machine.state, "", after, most), limit)
    wanted = model_namespaces.rows(state)
    assert rows == wanted, (rows, wanted)


def _without_digests(text: str) -> str:
    """Return cells as text without the digests in default owners."""
    return re.sub(r"'session-[^']*'", "'session-*'", text)


def _check_stream(machine: LockMachine, state: ModelState, session_id: SessionId) -> None:
    """Check what is known of the stream of a session."""
    stream, view = state.streams.get(session_id), machine.stream(session_id)
    assert (stream is None) == (view is None)
    if stream is not None and view is not None:
        assert (view.epoch, view.last, view.kept_count) == (stream.epoch, stream.last, len(stream.kept))


def _check_audit(machine: LockMachine, state: ModelState) -> None:
    """Check the audit of each name and each session, newest first, and that its newest records are linked."""
    rows = [msgspec.to_builtins(audit.row(*one)) for one in machine.audit_records(limit=CHAIN_CHECKED)][::-1]
    check = ChainCheck()
    assert [text for row in rows for text in check.look(row)] == []
    for name in (*random_commands.NAMES, ""):
        for session_id in (*random_commands.SESSION_IDS, NO_SESSION):
            if name or session_id:
                events = machine.audit(name, session_id, AUDIT_LIMIT)
                known = model_views.audit(state, name, session_id)[:AUDIT_LIMIT]
                _check_equal(plain_events(events[::-1]), plain_events(known[::-1]))
