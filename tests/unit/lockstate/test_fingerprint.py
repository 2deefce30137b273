"""The fingerprint of a state: it shows every difference of what is stored, and nothing else."""

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from lockstate import invariants
from lockstate.machine import LockMachine
from lockstate.rules import rates
from lockstate.stored import snapshot
from lockstate.tables import fingerprint, marks
from lockstate.tables.deadlines import Deadlines, Timed
from lockstate.tables.holds import remove_hold
from lockstate.tables.state import State
from lockstate.words import limits
from lockstate.words.commands.entries import Batch, Entry
from lockstate.words.commands.holds import Acquire
from lockstate.words.commands.primitives import AdvanceFence, TakeRate
from lockstate.words.commands.sessions import OpenSession
from lockstate.words.ids import AttemptId, HoldId, SessionId
from lockstate.words.kinds import Algorithm, HoldKind
from lockstate.words.modes import Mode, Scope
from tests.unit.lockstate.machine_driver import SHARED, MachineDriver

DERIVED = {"algorithm", "holds", "tickets", "claims_count", "by_owner", "dead", "moments_ms", "sums"}
"""Fields that are not stored, and the log of a sliding window, which has a test of its own."""


def _machine() -> LockMachine:
    """Return a machine with a row in every table."""
    driver = MachineDriver()
    driver.open("s1", ttl_ms=60_000)
    driver.granted("a", mode=SHARED, ttl_ms=60_000, owner="ann", request_id="r1")
    driver.granted("a", mode=SHARED, ttl_ms=60_000)
    driver.queued("a", session_id="s1")
    driver.permitted("q", 3, ttl_ms=60_000)
    driver.converting("h1", Mode.EXCLUSIVE)
    driver.granted("d", ttl_ms=100, lock_delay_ms=60_000)
    driver.permitted("p", 1, ttl_ms=100, lock_delay_ms=60_000)
    for algorithm in Algorithm:
        driver.run(TakeRate("mail", 5, 60_000, algorithm, 2))
    driver.draw(7)
    driver.run(AdvanceFence("disk", 7))
    driver.pass_to(101)
    return driver.machine


def _records(state: State) -> Iterator[tuple[str, Any]]:
    """Yield a record of each table, with the table's name."""
    tables: dict[str, dict[Any, Any]] = {
        "sessions": state.sessions,
        "holds": state.holds,
        "tickets": state.tickets,
        "delays": state.delays,
        "permit_delays": state.permit_delays,
        "requests": dict(state.requests.dump()),
        "origins": state.origins,
    }
    yield from ((name, next(iter(table.values()))) for name, table in tables.items())
    yield from ((type(limiter).__name__, limiter) for limiter in state.rates.all())


def _another(value: Any) -> Any:
    """Return another value of about the same kind."""
    match value:
        case Mode():
            return next(mode for mode in Mode if mode is not value)
        case Scope():
            return next(scope for scope in Scope if scope is not value)
        case HoldKind():
            return next(kind for kind in HoldKind if kind is not value)
        case bool() | int():
            return value + 1
        case str():
            return value + "x"
        case bytes():
            return value[:-1] + bytes([value[-1] ^ 1])
        case dict():
            return {**value, "x": "y"}
        case tuple() | None:
            return ("x", "y")
    return msgspec.structs.replace(value, token=value.token + 1)


def _planted() -> list[tuple[str, str]]:
    """Return all fields of all records that are stored."""
    return [
        (table, field)
        for table, record in _records(_machine().state)
        for field in record.__struct_fields__
        if field not in DERIVED
    ]


@pytest.mark.parametrize(("table", "field"), _planted(), ids="-".join)
def test_every_field_of_every_record_counts(table: str, field: str) -> None:
    """Two states that differ in one field of one record have different fingerprints."""
    machine = _machine()
    state = machine.state
    before = fingerprint.recomputed(state)
    record = dict(_records(state))[table]
    setattr(record, field, _another(getattr(record, field)))
    assert fingerprint.recomputed(state) != before


def _drop_session(state: State) -> None:
    state.sessions.clear()


def _drop_hold(state: State) -> None:
    del state.holds[HoldId("h2")]


def _drop_request(state: State) -> None:
    state.requests._requests.clear()


def _raise_fence(state: State) -> None:
    state.fences["disk"] += 1


def _add_fence_of_0(state: State) -> None:
    state.fences["other"] = 0


def _widen_semaphore(state: State) -> None:
    state.semaphores["q"].limit += 1


def _rename_origin(state: State) -> None:
    state.origins["n2"] = state.origins.pop("n1")


def _draw_token(state: State) -> None:
    state.next_token += 1


def _draw_order(state: State) -> None:
    state.next_order += 1


def _pass_time(state: State) -> None:
    state.now_ms += 1


def _other_rules(state: State) -> None:
    state.rules += 1


def _other_revision(state: State) -> None:
    state.revision += 1


def _lose_a_deadline(state: State) -> None:
    state.deadlines.remove(state.sessions[SessionId("s1")])


@pytest.mark.parametrize(
    "plant",
    [
        _drop_session,
        _drop_hold,
        _drop_request,
        _raise_fence,
        _add_fence_of_0,
        _widen_semaphore,
        _rename_origin,
        _draw_token,
        _draw_order,
        _pass_time,
        _other_rules,
        _other_revision,
        _lose_a_deadline,
    ],
)
def test_rows_and_counters_count(plant: Any) -> None:
    """A missing row, another number and another name are differences, too."""
    machine = _machine()
    before = fingerprint.recomputed(machine.state)
    plant(machine.state)
    assert fingerprint.recomputed(machine.state) != before


def test_a_planted_difference_shows_when_the_record_goes() -> None:
    """What changed behind the back of the sums is found as soon as a command touches the record."""
    sound, damaged = _machine(), _machine()
    assert sound.fingerprint == damaged.fingerprint, "a node asks for it after each entry"
    damaged.state.holds[HoldId("h2")].token += 4
    assert (sound.is_sound, damaged.is_sound) == (True, False)
    assert damaged.fingerprint == sound.fingerprint, "nothing was recomputed yet"
    for machine in (sound, damaged):
        remove_hold(machine.state, machine.state.holds[HoldId("h2")])
    assert damaged.fingerprint != sound.fingerprint


def test_a_loaded_state_has_the_fingerprint_of_the_stored_one() -> None:
    """The fingerprint is not stored, and a restart does not change it."""
    machine = _machine()
    restored = LockMachine(snapshot.decode(snapshot.encode(machine.state)))
    assert restored.fingerprint == machine.fingerprint == fingerprint.recomputed(restored.state)


def test_two_machines_with_the_same_entries_agree_and_others_do_not() -> None:
    """The fingerprint says which entries were applied, and not by whom."""
    one, other = _machine(), _machine()
    assert one.fingerprint == other.fingerprint
    other.state.add_session(_session())
    assert one.fingerprint != other.fingerprint


def _session() -> Any:
    driver = MachineDriver()
    driver.run(OpenSession(SessionId("another"), limits.TTL_MS_MAX))
    return driver.machine.state.sessions[SessionId("another")]


@pytest.mark.parametrize("shifts", [(1, -1), (1, -2, 1), (1, -3, 3, -1)])
def test_deadlines_that_are_wrong_together_show(shifts: tuple[int, ...]) -> None:
    """Errors that add up to nothing, as after an exchange, are errors nevertheless."""
    right, wrong = Deadlines(), Deadlines()
    for order, shift in enumerate(shifts, 1000):
        right.add(Timed(order, 5_000))
        wrong.add(Timed(order, 5_000 + shift))
    assert right.sum != wrong.sum


def test_a_log_of_a_sliding_window_shows_what_is_in_it() -> None:
    """Windows that admitted other amounts, or at other times, differ; a stored and loaded one does not."""

    def told(*taken: tuple[int, int]) -> int:
        state, loaded = State(), State()
        for at_ms, cost in taken:
            state.now_ms = at_ms
            rates.take(state, TakeRate("mail", 5, 1_000, Algorithm.SLIDING_WINDOW, cost))
        loaded.rates.load(state.rates.dump())
        assert loaded.ledger.sum == state.ledger.sum == state.rates.recomputed_sum()
        return state.ledger.sum

    histories = [
        ((10, 1), (20, 2)),
        ((10, 1), (20, 1)),
        ((10, 1), (21, 2)),
        ((10, 3),),
        ((10, 1), (20, 2), (1_015, 1)),
    ]
    assert len({told(*history) for history in histories}) == len(histories)


def test_a_mark_that_fails_for_want_of_memory_leaves_the_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also a read makes up the sum of marks: whatever becomes of it, the hold ends when it was to end."""
    machine = LockMachine()
    acquire = Acquire("a", Mode.EXCLUSIVE, HoldId("h1"), AttemptId("a1"), ttl_ms=1000)
    machine.apply(Entry(0, (Batch("n1", (1,), (acquire,)),)))
    with monkeypatch.context() as patch:
        patch.setattr(marks, "_encode", _out_of_memory)
        with pytest.raises(MemoryError):
            _ = machine.fingerprint
    assert machine.state.holds[HoldId("h1")].expires_at_ms == machine.next_deadline_ms() == 1000
    assert machine.is_sound
    invariants.check(machine.state)
    machine.apply(Entry(1001))
    assert not machine.state.holds


def _out_of_memory(_: object) -> bytes:
    raise MemoryError
