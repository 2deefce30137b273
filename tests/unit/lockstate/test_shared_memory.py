"""What many holds have in common is there once: the texts and numbers that `scripts/bench memory` counts."""

import msgspec

from lockstate.machine import LockMachine
from lockstate.stored import snapshot
from lockstate.tables.records import Hold, Ticket
from lockstate.words import codec
from lockstate.words.commands.entries import Entry
from lockstate.words.commands.holds import Acquire, AddLocks, Convert
from lockstate.words.commands.streams import Numbered, ResumeStream
from lockstate.words.ids import AttemptId, HoldId, OwnerName, SessionId
from lockstate.words.modes import Mode
from lockstate.words.results import Granted
from lockstate.words.wanted import Wanted
from tests.unit.lockstate.machine_driver import EXCLUSIVE, SHARED, MachineDriver


def decoded(machine: LockMachine, *commands: Acquire | Convert) -> Entry:
    """Return an entry as a node gets it: every text and number of it is an object of its own."""
    encoded = [codec.encode_command(command) for command in commands]
    seqs = list(range(machine.applied_seq("n1") + 1, machine.applied_seq("n1") + 1 + len(commands)))
    data = codec.encode_entry(machine.now_ms + 1, [("n1", seqs, encoded)])
    return codec.decode_entry(data, machine.rules)


def acquire(name: str, mode: Mode = EXCLUSIVE, wait_ms: int = 0) -> Acquire:
    """Return an acquire with ids as nodes make them."""
    return Acquire(
        name, mode, HoldId(f"id of {name}"), AttemptId(f"id of {name}"), ttl_ms=60_000, wait_ms=wait_ms
    )


def check(machine: LockMachine) -> None:
    """Check what is shared."""
    first, second = [machine.state.holds[HoldId(f"id of {name}")] for name in ("a", "b")]
    for record in (first, second, *machine.state.tickets.values()):
        assert isinstance(record, Hold | Ticket)
        assert record.attempt_id is AttemptId(record.hold_id)
    assert first.ttl_ms is second.ttl_ms
    assert first.expires_at_ms is second.expires_at_ms
    assert (first.ttl_ms, first.expires_at_ms) == (60_000, first.since_ms + 60_000)


def test_neighbours_share_texts_and_numbers() -> None:
    """As they come in one entry, and after a restart."""
    driver = MachineDriver()
    machine = driver.machine
    machine.apply(decoded(machine, acquire("a", SHARED), acquire("b"), acquire("c", wait_ms=9)))
    change = Convert(HoldId("id of a"), SHARED, HoldId("x"), AttemptId("x"), wait_ms=9)
    machine.apply(decoded(machine, acquire("b", wait_ms=999), change))
    check(machine)
    check(LockMachine(snapshot.decode(snapshot.encode(machine.state))))


def test_the_requests_of_a_stream_share_the_id_of_their_session() -> None:
    """After a restart as before: busy clients have as many holds as requests, and one session."""
    driver = MachineDriver()
    driver.open("ann")
    session_id = SessionId("ann")
    driver.run(ResumeStream(session_id))
    frame = tuple([Acquire(one, EXCLUSIVE, HoldId(one), AttemptId(one), session_id) for one in "ab"])
    driver.run(Numbered(2, session_id, 1, 1, (), frame))
    wait = Acquire("a", EXCLUSIVE, HoldId("w"), AttemptId("w"), session_id, 0, OwnerName("bob"), 9)
    driver.run(Numbered(1, session_id, 1, 3, (), (wait,)))
    loaded = LockMachine(snapshot.decode(snapshot.encode(driver.machine.state))).state
    for state in (driver.machine.state, loaded):
        (session,) = state.sessions.values()
        records = (*state.holds.values(), *state.tickets.values())
        assert [record.request for record in records] == [("ann", 1), ("ann", 2), ("ann", 3)]
        for record in records:
            assert record.request is not None
            assert record.session_id is record.request[0] is session.session_id
            assert record.owner is session.owner or record.owner == "bob"
        stream = state.streams.get(session_id)
        assert stream is not None
        assert stream.session_id is session.session_id


def test_what_a_stream_keeps_of_a_grant_has_the_texts_of_its_hold() -> None:
    """As long as the hold is there, and under the name that was granted, after a restart as before."""
    driver = MachineDriver()
    driver.open("ann")
    session_id = SessionId("ann")
    driver.run(ResumeStream(session_id))
    frame = tuple([Acquire(one, EXCLUSIVE, HoldId(one), AttemptId(one), session_id) for one in ("a1", "b1")])
    driver.run(Numbered(2, session_id, 1, 1, (), frame))
    driver.release("b1")
    more = AddLocks(HoldId("a1"), (Wanted("c1", EXCLUSIVE),), HoldId("t1"), AttemptId("t1"))
    for _ in range(2):
        data = snapshot.encode(driver.machine.state)
        loaded = snapshot.decode(data)
        assert snapshot.encode(loaded) == data
        stream, hold = loaded.streams.get(session_id), loaded.holds[HoldId("a1")]
        assert stream is not None
        first, second = [kept.result for kept in stream.kept.values()]
        assert isinstance(first, Granted)
        assert isinstance(second, Granted)
        assert (first.hold_id, first.name, second.hold_id) == ("a1", "a1", "b1")
        assert first.hold_id is hold.hold_id
        assert (first.name is hold.name) == (hold.name == "a1")
        driver.run(more)
    assert not hold.name, "it has two"


def test_another_ttl_and_another_moment_are_their_own() -> None:
    """What was shared before is not taken for what is asked now."""
    machine = MachineDriver().machine
    machine.apply(decoded(machine, acquire("a"), msgspec.structs.replace(acquire("b"), ttl_ms=70_000)))
    machine.apply(decoded(machine, acquire("c")))
    ends = {
        hold.name: (hold.ttl_ms, hold.expires_at_ms - hold.since_ms) for hold in machine.state.holds.values()
    }
    assert ends == {"a": (60_000, 60_000), "b": (70_000, 70_000), "c": (60_000, 60_000)}
