"""The tables together: what the moves of the state keep consistent."""

import sys
from collections import Counter

import pytest

from lockstate import invariants
from lockstate.machine import LockMachine
from lockstate.stored import snapshot
from lockstate.tables import claim_table
from lockstate.tables.owners import public_name, shown_owner
from lockstate.tables.state import State
from lockstate.words import limits
from lockstate.words.commands.entries import Batch, Entry
from lockstate.words.commands.holds import Acquire
from lockstate.words.ids import NO_OWNER, AttemptId, HoldId, OwnerName, SessionId
from tests.unit.lockstate.machine_driver import EXCLUSIVE, SHARED, SUBTREE, MachineDriver


def test_a_public_name_is_stable_and_short() -> None:
    """The same secret gives the same name on every node; another secret, another name."""
    assert public_name("session", "s1") == public_name("session", "s1")
    assert public_name("session", "s1") != public_name("session", "s2")
    assert len(public_name("hold", "x" * 64)) == len("hold-") + 8


def test_a_public_name_exists_for_any_text() -> None:
    """Text that is not valid Unicode has a public name as well."""
    assert public_name("hold", "\ud800").startswith("hold-")


def test_an_owner_that_was_not_given_is_named_after_the_hold() -> None:
    """An owner that was given is shown as it is; without one, others see a name made from the hold's id."""
    assert shown_owner(OwnerName("ann"), SessionId("h1")) == "ann"
    assert shown_owner(NO_OWNER, SessionId("h1")) == public_name("hold", "h1")


def test_orders_rise() -> None:
    """Each creation has the next number."""
    state = State()
    assert [state.take_order() for _ in range(3)] == [1, 2, 3]


def _active(driver: MachineDriver) -> set[str]:
    state = driver.machine.state
    return set(state.locks) | set(state.intents)


def test_a_name_is_counted_once() -> None:
    """What is held, wanted and has something held below it is one active name, whatever ends first."""
    driver = MachineDriver()
    state = driver.machine.state
    counts = [len(state.claimed)]
    driver.granted("a", mode=SHARED)
    driver.granted("a/b", mode=SHARED)
    counts.append(len(state.claimed))
    ticket = driver.queued("a", scope=SUBTREE)
    driver.release("h1")
    driver.release("h2")
    counts.append(len(state.claimed))
    driver.release(ticket.hold_id)
    driver.granted("a/b")
    driver.granted("a")
    counts.append(len(state.claimed))
    driver.release("h4")
    counts.append(len(state.claimed))
    assert counts == [0, 2, 1, 2, 1]


def test_a_ticket_keeps_its_records() -> None:
    """A name that is only wanted is active too, with its ancestors, until the wait ends."""
    driver = MachineDriver()
    driver.granted("a", scope=SUBTREE)
    driver.queued("a/b/c", wait_ms=100)
    assert set(driver.machine.state.locks) == {"a", "a/b", "a/b/c"}
    driver.pass_to(101)
    assert set(driver.machine.state.locks) == {"a"}


def test_the_longest_silent_origin_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of origins that were silent equally long, the first by name goes."""
    monkeypatch.setattr(limits, "ORIGINS_COUNT_MAX", 2)
    state = State()
    for name in ("n2", "n1", "n3"):
        state.origin(name)
    assert set(state.origins) == {"n2", "n3"}


@pytest.mark.parametrize(("name", "names_count"), [("n{}", 30_000), ("n{}/lock", 60_000)])
def test_large_tables_do_not_grow_in_one_entry(
    monkeypatch: pytest.MonkeyPatch, name: str, names_count: int
) -> None:
    """Of many locks the holds, the records and the intents stand in tables that are made anew one by one."""
    monkeypatch.setattr(claim_table, "APART_FROM", 5_000)
    machine, grown = LockMachine(), Counter[int]()
    for first in range(0, 30_000, 50):
        before = _sizes(machine.state)
        numbers = range(first + 1, first + 51)
        commands = [
            Acquire(name.format(number), EXCLUSIVE, HoldId(f"h{number}"), AttemptId("a"), ttl_ms=1000)
            for number in numbers
        ]
        machine.apply(Entry(0, (Batch("n1", tuple(numbers), tuple(commands)),)))
        if first > 10_000:
            after = _sizes(machine.state)
            grown[sum(old != new for old, new in zip(before, after, strict=True))] += 1
    assert grown[1] >= 2
    assert set(grown) == {0, 1}
    assert (machine.counts()["holds"], machine.counts()["locks"]) == (30_000, names_count)
    assert len(list(machine.state.claimed.records())) == 30_000
    assert len(machine.locks("", "", 1000)[0]) == 1000
    restored = LockMachine(snapshot.decode(snapshot.encode(machine.state)))
    assert (restored.bytes_count, restored.counts()) == (machine.bytes_count, machine.counts())
    invariants.check(restored.state)


def _sizes(state: State) -> list[int]:
    return [sys.getsizeof(table) for table in (state.holds, state.locks, state.intents)]
