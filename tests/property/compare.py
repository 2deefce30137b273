"""What must be equal in the machine and in the model, and what the rules leave open.

Left open are the wording of details and which of several cycles is named. In which order different locks are
told about within one entry is not part of the rules either; of each lock, events come in their order.
"""

import re

import msgspec

from lockstate.ids import NO_SESSION
from lockstate.machine import LockMachine
from lockstate.modes import Mode, Scope
from lockstate.owners import shown_owner
from lockstate.results import Event, EventKind, Granted, Outcome, Reason, Refused, Result, Settled
from tests.property import model_views, random_commands
from tests.property.model_changes import due
from tests.property.model_deadlock import check_cycle
from tests.property.model_records import ModelState

DEADLOCKS = {Reason.DEADLOCK, Reason.CONVERSION_DEADLOCK}
AUDIT_LIMIT = 1000


def plain(value: object) -> str:
    """Return `value` as text, without the digests in default owners."""
    if isinstance(value, Event):
        value = msgspec.structs.replace(value, owner=shown_owner(value.owner, value.session_id))
    return re.sub(r'"(session|hold)-(?!expired")[^"]*"', r'"\1-*"', msgspec.json.encode(value).decode())


def plain_result(result: Result) -> str:
    """Return `result` as text, without what the rules leave open."""
    if isinstance(result, Granted) and result.locks:
        result = msgspec.structs.replace(result, mode=Mode.EXCLUSIVE, scope=Scope.NODE)
    if isinstance(result, Refused):
        result = msgspec.structs.replace(result, detail="", cycle=())
    return f"{type(result).__name__} {plain(result)}"


def plain_events(events: list[Event] | tuple[Event, ...]) -> list[str]:
    """Return the events as text, those of each lock in their order, and the internal ones behind them."""
    public = sorted(
        (event for event in events if event.kind is not EventKind.WAIT_ENDED), key=lambda e: (e.of, e.name)
    )
    ends = sorted(plain(event) for event in events if event.kind is EventKind.WAIT_ENDED)
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
        if isinstance(result, Refused) and isinstance(wanted, Refused) and result.reason in DEADLOCKS:
            _check_cycle_named(result, wanted, state)
    _check_equal(plain_events(outcome.events), plain_events(state.events))
    _check_equal(plain_settled(outcome.settled), plain_settled(state.settled))


def _check_cycle_named(result: Refused, wanted: Refused, state: ModelState) -> None:
    """Check that a cycle is a real one. The refusal of a repeated request has none."""
    if wanted.detail:
        ticket, edges = state.deadlocks[int(wanted.detail)]
        check_cycle(ticket, edges, result.cycle)
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
    assert sorted(machine.waiting_origins()) == sorted({ticket.origin for ticket in state.tickets})
    ends = due(state)
    assert machine.next_deadline_ms() == (ends[0][0] if ends else None)
    for name in random_commands.NAMES:
        _check_equal([plain(machine.lock(name))], [plain(model_views.lock_view(state, name))])
        for token in (0, 1, state.next_token - 1):
            assert machine.check_fence(name, token) == model_views.fence_view(state, name, token)
    for name in random_commands.SEMAPHORES:
        _check_equal([plain(machine.semaphore(name))], [plain(model_views.semaphore_view(state, name))])
    for name in random_commands.ELECTIONS:
        _check_equal([plain(machine.election(name))], [plain(model_views.election_view(state, name))])
    for session_id in random_commands.SESSION_IDS:
        _check_equal(
            [plain(machine.session(session_id))], [plain(model_views.session_view(state, session_id))]
        )
    _check_pages(machine, state)
    _check_audit(machine, state)


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


def _check_audit(machine: LockMachine, state: ModelState) -> None:
    """Check the audit of each name and each session, newest first."""
    for name in (*random_commands.NAMES, ""):
        for session_id in (*random_commands.SESSION_IDS, NO_SESSION):
            if name or session_id:
                events = machine.audit(name, session_id, AUDIT_LIMIT)
                known = model_views.audit(state, name, session_id)[:AUDIT_LIMIT]
                _check_equal(plain_events(events[::-1]), plain_events(known[::-1]))
