"""Snapshots: what is stored, what is refused, and that nothing is lost."""

import gc
from typing import Any

import msgspec
import pytest

from lockstate import invariants
from lockstate.machine import LockMachine
from lockstate.stored import snapshot
from lockstate.tables import fingerprint
from lockstate.words.codec import decode_entry, encode_command, encode_entry
from lockstate.words.commands.primitives import AdvanceFence, TakeRate
from lockstate.words.commands.sessions import OpenSession
from lockstate.words.ids import SessionId
from tests.unit.lockstate.machine_driver import EXCLUSIVE, SHARED, SUBTREE, UPDATE, MachineDriver, wanted


def _busy_driver() -> MachineDriver:
    """Return a driver in which every table has something."""
    driver = MachineDriver()
    driver.open("s1", "s2", ttl_ms=5000)
    driver.granted("a", session_id="s1", request_id="r1", mode=SHARED, lock_delay_ms=100)
    driver.granted("a", ttl_ms=50, mode=SHARED, lock_delay_ms=100)
    driver.queued("a", session_id="s1", owner="bob", request_id="r2")
    driver.granted(locks=wanted("t/x", "t/y") + wanted("t/z", mode=SHARED, scope=SUBTREE), session_id="s2")
    driver.queued("t", scope=SUBTREE, owner="eve")
    for _ in range(2):
        driver.granted("c", mode=SHARED, owner="ann", ttl_ms=3000)
    driver.converting("h6", EXCLUSIVE)
    driver.permitted("q", 3, 2, session_id="s1")
    driver.permitted("q", 3, ttl_ms=50, lock_delay_ms=100)
    driver.wanting("q", 3, 2, session_id="s2")
    driver.campaign("e/f", "s1", "here")
    driver.campaign("e/f", "s2", "there", wait_ms=500)
    driver.run(TakeRate("mail", 5, 1000))
    driver.run(AdvanceFence("disk", 2))
    driver.granted("u", mode=UPDATE, ttl_ms=50, lock_delay_ms=100, scope=SUBTREE)
    driver.pass_to(60)
    return driver


def test_a_restored_machine_is_equal() -> None:
    """Encoding what was decoded gives the same bytes, and so the same digest."""
    machine = _busy_driver().machine
    data = snapshot.encode(machine.state)
    restored = LockMachine(snapshot.decode(data))
    assert snapshot.encode(restored.state) == data
    assert snapshot.digest(restored.state) == snapshot.digest(machine.state)
    assert restored.counts() == machine.counts()
    assert restored.next_deadline_ms() == machine.next_deadline_ms()


def test_its_rows_are_decoded_in_as_many_steps_as_it_says() -> None:
    """So whoever waits for it can be told how far it is; names are sorted when all rows are there."""
    machine = _busy_driver().machine
    data = snapshot.encode(machine.state)
    steps, count = snapshot.decode_in_steps(data), snapshot.steps_count(data)
    assert count > 5
    for _ in range(count):
        next(steps)
    for _ in ("a part of the names", "where it is cut", "what lies between the cuts"):
        next(steps)
    with pytest.raises(StopIteration) as end:
        next(steps)
    assert snapshot.digest(end.value.value) == snapshot.digest(machine.state)
    with pytest.raises(snapshot.SnapshotError, match="not a snapshot"):
        snapshot.steps_count(data[:-1])


def test_a_restored_machine_goes_on() -> None:
    """What happens after a restart is what would have happened without it."""
    driver, restarted = _busy_driver(), _busy_driver()
    restarted.machine = LockMachine(snapshot.decode(snapshot.encode(restarted.machine.state)))
    for at_ms in (151, 161, 400, 501, 3001, 5001):
        assert driver.pass_to(at_ms) == restarted.pass_to(at_ms)
        assert driver.events == restarted.events
        assert driver.settled == restarted.settled
        assert snapshot.digest(driver.machine.state) == snapshot.digest(restarted.machine.state)
    assert snapshot.digest(driver.machine.state) == snapshot.digest(restarted.machine.state)


def test_every_part_of_the_state_is_in_the_digest() -> None:
    """A change to any table, even to time alone, changes the digest."""
    driver = MachineDriver()
    digests = [snapshot.digest(driver.machine.state)]
    for step in (
        lambda: driver.pass_to(1),
        lambda: driver.open("s1"),
        lambda: driver.granted("a"),
        lambda: driver.queued("a"),
        lambda: driver.granted("b", request_id="r"),
        lambda: driver.granted("c", scope=SUBTREE),
        lambda: driver.granted(locks=wanted("d", "e")),
        lambda: driver.convert("h1", SHARED),
        lambda: driver.permitted("q", 2),
        lambda: driver.resize("q", 3),
        lambda: driver.run(TakeRate("mail", 5, 1000)),
        lambda: driver.run(AdvanceFence("disk", 1)),
        lambda: driver.run(AdvanceFence("disk", 2)),
        lambda: driver.campaign("e", "s1", "here"),
        lambda: driver.campaign("e", "s1", "there"),
        lambda: driver.force("b", 500),
    ):
        step()
        digests.append(snapshot.digest(driver.machine.state))
    assert len(set(digests)) == len(digests)


def test_an_empty_machine_can_be_stored() -> None:
    """A machine without any state is a state."""
    assert LockMachine(snapshot.decode(snapshot.encode(LockMachine().state))).revision == 0


@pytest.mark.parametrize("number", [0, -1])
def test_a_format_that_never_was_is_refused(number: int) -> None:
    """It is not guessed at."""
    parts = _parts()
    parts[0] = number
    with pytest.raises(
        snapshot.SnapshotError, match=f"format {number}; this version reads formats from 1 on"
    ):
        LockMachine(snapshot.decode(msgspec.msgpack.encode(parts)))


def _parts() -> list[Any]:
    """Return the parts of a snapshot."""
    parts: list[Any] = msgspec.msgpack.decode(snapshot.encode(_busy_driver().machine.state))
    assert [parts[0], parts[5]] == [1, {"rules": 1}]
    return parts


@pytest.mark.parametrize(
    ("place", "value", "said"),
    [
        (0, 2, "format 2, which this release does not know: upgrade this node"),
        (5, {"rules": 2}, "rules 2, which this release does not know: upgrade this node"),
        (5, {"rules": 2, "colour": "red"}, "rules 2, which this release does not know: upgrade this node"),
    ],
)
def test_a_snapshot_of_a_later_release_is_told_from_damage(place: int, value: object, said: str) -> None:
    """The node that meets it must stop and be upgraded, whatever else the later release has stored."""
    parts = _parts()
    parts[place] = value
    with pytest.raises(snapshot.SnapshotTooNewError, match=said):
        LockMachine(snapshot.decode(msgspec.msgpack.encode(parts)))


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"rules": 1, "group": 3}, "it is of group 3 of 1"),
        ({"rules": 1, "groups_count": 4}, "it is of group 0 of 4"),
        ({"rules": 1, "colour": "red"}, "unknown field"),
        ({}, "missing required field"),
        ([], "not a snapshot"),
    ],
)
def test_fields_that_do_not_belong_there_are_refused(fields: object, said: str) -> None:
    """A field that the rules do not have would be lost with the next snapshot: it is not guessed at."""
    parts = _parts()
    parts[5] = fields
    with pytest.raises(snapshot.SnapshotError, match=said):
        LockMachine(snapshot.decode(msgspec.msgpack.encode(parts)))


@pytest.mark.parametrize("change", [-1, 1])
def test_another_number_of_tables_is_refused(change: int) -> None:
    """A snapshot has the tables of its format: one less or more is not guessed at."""
    parts = msgspec.msgpack.decode(snapshot.encode(LockMachine().state))
    count = len(parts[6])
    parts[6] = parts[6][:-1] if change < 0 else [*parts[6], []]
    with pytest.raises(snapshot.SnapshotError, match=f"{count + change} tables"):
        LockMachine(snapshot.decode(msgspec.msgpack.encode(parts)))


def test_every_table_is_stored() -> None:
    """A busy machine has rows in each table of its snapshot."""
    parts = msgspec.msgpack.decode(snapshot.encode(_busy_driver().machine.state))
    assert all(parts[5])


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xc0",
        b"\x91" * 100_000,
        snapshot.encode(LockMachine().state)[:-1],
        snapshot.encode(LockMachine().state) + b"\x00",
    ],
    ids=["nothing", "nil", "depth", "cut", "more"],
)
def test_junk_is_refused(data: bytes) -> None:
    """Bytes that are not a snapshot raise SnapshotError."""
    with pytest.raises(snapshot.SnapshotError, match="not a snapshot"):
        LockMachine(snapshot.decode(data))


def test_text_that_is_none_is_refused() -> None:
    """A snapshot with a broken text in it raises SnapshotError, as any other broken one."""
    driver = MachineDriver()
    driver.open("s1")
    data = snapshot.encode(driver.machine.state).replace(b"\xa2s1", b"\xa2\xff\xff")
    with pytest.raises(snapshot.SnapshotError):
        LockMachine(snapshot.decode(data))


def test_a_hold_without_its_session_is_refused() -> None:
    """A snapshot whose parts do not fit together raises SnapshotError."""
    driver = MachineDriver()
    driver.open("s1")
    driver.granted("a", session_id="s1")
    parts = msgspec.msgpack.decode(snapshot.encode(driver.machine.state))
    parts[6][0] = []
    with pytest.raises(snapshot.SnapshotError, match="inconsistent"):
        LockMachine(snapshot.decode(msgspec.msgpack.encode(parts)))


@pytest.mark.parametrize("now_ms", [2**63, 2**64 - 1, -(2**63)])
def test_any_time_can_be_stored(now_ms: int) -> None:
    """Whatever time an entry tells, the state after it can be stored and compared."""
    machine = LockMachine()
    command = encode_command(OpenSession(SessionId("s1"), 1000))
    machine.apply(decode_entry(encode_entry(now_ms, [("n1", [1], [command])])))
    assert LockMachine(snapshot.decode(snapshot.encode(machine.state))).now_ms == machine.now_ms


@pytest.mark.parametrize("group_rows", [1, 2, 1000])
def test_a_state_of_many_groups_is_sound(monkeypatch: pytest.MonkeyPatch, group_rows: int) -> None:
    """However the rows are grouped, every table and every index is rebuilt."""
    monkeypatch.setattr(snapshot, "GROUP_ROWS", group_rows)
    driver = _busy_driver()
    for number in range(50):
        driver.granted(
            f"name/{number * 7 % 50}", ttl_ms=5000, request_id=f"r-{number}", owner=f"o{number % 3}"
        )
    restored = LockMachine(snapshot.decode(snapshot.encode(driver.machine.state)))
    invariants.check(restored.state)
    assert snapshot.encode(restored.state) == snapshot.encode(driver.machine.state)
    assert restored.locks("", "", 1000) == driver.machine.locks("", "", 1000)


@pytest.mark.parametrize("group_rows", [1, 4, 1000])
def test_a_loaded_state_is_counted_as_the_one_that_was_stored(
    monkeypatch: pytest.MonkeyPatch, group_rows: int
) -> None:
    """Records of names that are held or only stand above, intents, claims of sessions, deadlines, marks.

    So it is where plain holds are among others, or none is.
    """
    monkeypatch.setattr(snapshot, "GROUP_ROWS", group_rows)
    driver = MachineDriver()
    driver.open("ann")
    session_id = SessionId("ann")
    for name in ("a/b/c", "a/b", "a/b/d", "e", "f/g/h/i"):
        driver.granted(name, session_id=session_id)
    driver.granted("s/t", mode=SHARED)
    driver.granted("s/t", mode=SHARED, session_id=session_id)
    driver.granted("s", mode=SHARED)
    driver.granted("s/u", session_id=session_id, scope=SUBTREE)
    for number in range(5):
        driver.granted(f"k/{number}")
    state = driver.machine.state
    loaded = snapshot.decode(snapshot.encode(state))
    invariants.check(loaded)
    assert fingerprint.of(loaded) == fingerprint.recomputed(loaded) == fingerprint.of(state)
    assert loaded.intents == state.intents
    assert {name: (lock.held, lock.holders_count) for name, lock in loaded.locks.items()} == {
        name: (lock.held, lock.holders_count) for name, lock in state.locks.items()
    }
    holders = [[*each.locks["s/t"].holders] for each in (loaded, state)]
    assert holders[0] == holders[1]
    assert len(holders[0]) == 2
    assert loaded.claimed.both_count == state.claimed.both_count > 0
    counts = [each.sessions[session_id].claims_count for each in (loaded, state)]
    assert counts[0] == counts[1]
    assert list(loaded.holds) == list(state.holds)
    assert loaded.deadlines.next_ms() == state.deadlines.next_ms()
    assert len(loaded.deadlines) == len(state.deadlines)


def test_decoding_takes_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host can do something else between two groups; the state comes with the last step."""
    monkeypatch.setattr(snapshot, "GROUP_ROWS", 10)
    driver = MachineDriver()
    for number in range(30):
        driver.granted(f"name/{number}")
    data = snapshot.encode(driver.machine.state)
    steps, steps_count, state = snapshot.decode_in_steps(data), 0, None
    while state is None:
        try:
            next(steps)
        except StopIteration as end:
            state = end.value
        steps_count += 1
    assert steps_count > 2 * 3, "a step for each group of sessions and of holds"
    assert snapshot.encode(state) == data


def test_the_collector_is_as_it_was() -> None:
    """Decoding switches the garbage collector off for its own time only, also when it fails."""
    for was_enabled in (True, False):
        (gc.enable if was_enabled else gc.disable)()
        try:
            LockMachine(snapshot.decode(snapshot.encode(LockMachine().state)))
            assert gc.isenabled() is was_enabled
            with pytest.raises(snapshot.SnapshotError):
                LockMachine(snapshot.decode(b"damage"))
            assert gc.isenabled() is was_enabled
        finally:
            gc.enable()


def test_equal_strings_are_one_after_a_restart() -> None:
    """The id of a session is kept once, and so is an owner given by it."""
    driver = MachineDriver()
    driver.run(OpenSession(SessionId("s1"), 500, {"owner": "somebody"}))
    driver.granted("a", owner="somebody")
    driver.granted("b", session_id="s1")
    driver.granted("c", session_id="s1", owner="somebody else")
    state = LockMachine(snapshot.decode(snapshot.encode(driver.machine.state))).state
    _, of_session, another = state.holds.values()
    assert of_session.owner is state.sessions[SessionId("s1")].owner
    assert of_session.session_id is another.session_id is state.sessions[SessionId("s1")].session_id
    assert another.owner == "somebody else"


def test_a_state_is_stored_without_what_can_be_derived() -> None:
    """Names, queues, claims and deadlines come back from the records alone."""
    machine = _busy_driver().machine
    restored = LockMachine(snapshot.decode(snapshot.encode(machine.state)))
    invariants.check(restored.state)
    names = list(machine.state.locks)
    assert sorted(restored.state.locks) == sorted(names)
    for name in names:
        assert restored.lock(name) == machine.lock(name)
    for session_id in ("s1", "s2"):
        assert restored.session(SessionId(session_id)) == machine.session(SessionId(session_id))
    assert restored.semaphore("q") == machine.semaphore("q")
    assert restored.election("e/f") == machine.election("e/f")
    assert restored.audit() == machine.audit()
