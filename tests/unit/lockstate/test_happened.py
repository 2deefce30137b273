"""Events of plain locks are made when somebody reads them, and say what was so when they happened."""

import gc
from collections.abc import Sequence
from itertools import combinations

import pytest

from lockstate.machine import LockMachine
from lockstate.tables import happened
from lockstate.tables.happened import NewestEvents, told_in
from lockstate.words.commands.cells import PutCell
from lockstate.words.commands.entries import Batch, Entry
from lockstate.words.commands.holds import Acquire, Convert, Release
from lockstate.words.commands.overrides import ForceRelease
from lockstate.words.events import Event, EventKind
from lockstate.words.ids import AttemptId, HoldId
from lockstate.words.modes import Mode
from lockstate.words.wanted import Uncommon
from tests.unit.lockstate.machine_driver import MachineDriver


def granted_and_changed() -> tuple[MachineDriver, Sequence[Event]]:
    """Return a machine, and the unread events of a grant; its hold has another token since."""
    driver = MachineDriver()
    driver.run(Acquire("a/b", Mode.EXCLUSIVE, HoldId("h1"), AttemptId("h1"), ttl_ms=60_000))
    events = driver.events
    for mode in (Mode.SHARED, Mode.EXCLUSIVE):
        driver.run(Convert(HoldId("h1"), mode, HoldId(f"t-{mode}"), AttemptId("a1")))
    return driver, events


def test_what_is_read_late_says_what_was_so() -> None:
    """A conversion gives a hold a new token; its grant goes on to have the first."""
    driver, events = granted_and_changed()
    (hold,) = driver.machine.state.holds.values()
    assert [type(told) for told in told_in(events)] == [happened.PlainGrant]
    assert (events[0].token, hold.token) == (1, 2)
    assert [event.token for event in driver.machine.audit()] == [2, 1, 1]


def test_what_was_read_is_an_event_from_then_on() -> None:
    """One event is made when it is asked for, all when they are gone through: the next reader finds them."""
    _, events = granted_and_changed()
    assert events[:1] == [events[0]]
    assert told_in(events) != (events[0],)
    assert tuple(events) == told_in(events)


def test_the_garbage_collector_does_not_go_through_what_is_kept() -> None:
    """Neither as it was told nor as events: a full collection would take longer than a heartbeat."""
    _, events = granted_and_changed()
    for _ in ("as told", "as events"):
        gc.collect()  # which is when a tuple is found to be of nothing that could be in a cycle
        assert not any(map(gc.is_tracked, (events, told_in(events), *told_in(events))))
        list(events)


def test_events_are_equal_by_what_they_say() -> None:
    """To any sequence of the same events, and to nothing else."""
    _, events = granted_and_changed()
    _, same = granted_and_changed()
    others: list[object] = [same, (events[0],), (), 1]
    assert [events == other for other in others] == [True, True, False, False]


@pytest.mark.parametrize(("is_secret", "shown"), [(False, "v"), (True, "")])
def test_a_secret_value_is_not_told(*, is_secret: bool, shown: str) -> None:
    """Neither with the grant nor with the end."""
    driver = MachineDriver()
    said = Uncommon(value="v", is_secret=is_secret)
    acquire = Acquire("a", Mode.EXCLUSIVE, HoldId("h1"), AttemptId("h1"), ttl_ms=1000, uncommon=said)
    driver.run_all([acquire, Release(HoldId("h1"))])
    assert [(event.kind, event.value) for event in driver.events] == [
        (EventKind.GRANTED, shown),
        (EventKind.RELEASED, shown),
    ]


def newest(*entries: int) -> tuple[NewestEvents, list[Event]]:
    """Return the events of entries of so many plain locks, one of them forced in each; and all of them."""
    kept, every = NewestEvents(), list[Event]()
    for count in entries:
        driver = MachineDriver()
        ids = [f"h{number}" for number in range(count)]
        driver.run_all(
            [Acquire(one, Mode.EXCLUSIVE, HoldId(one), AttemptId(one), ttl_ms=1000) for one in ids]
        )
        kept.extend(driver.events)
        every += driver.events
        driver.run_all([ForceRelease("h0", "why"), *[Release(HoldId(one)) for one in ids[1:]]])
        kept.extend(driver.events)
        every += driver.events
    return kept, every


@pytest.mark.parametrize("gone", range(11))
def test_the_oldest_go_first(gone: int) -> None:
    """In the middle of an entry's events, too; what is left has its places from 0 on."""
    kept, every = newest(2, 3)
    kept.drop(gone)
    every = every[gone:]
    assert len(kept) == len(every)
    assert list(kept) == every
    assert list(reversed(kept)) == every[::-1]
    assert [kept[place] for place in range(len(kept))] == every
    assert [kept[place] for place in range(-len(kept), 0)] == every
    for first, behind in combinations(range(len(kept) + 1), 2):
        assert list(kept.between(first, behind)) == every[first:behind]
    assert list(kept.between(len(kept), len(kept))) == []


def test_entries_without_events_take_no_place() -> None:
    """However many come, as while everybody begins to wait: that is not audited."""
    kept, every = newest(2)
    for _ in range(5):
        kept.extend([])
    assert list(kept) == every
    assert len(kept._blocks) == 2


@pytest.mark.parametrize("count", range(9))
def test_what_is_of_no_plain_lock_is_found_among_the_oldest(count: int) -> None:
    """Its place is that among what is left."""
    kept, every = newest(2, 3)
    kept.drop(2)
    forced = [(place, event) for place, event in enumerate(every[2:]) if event.kind is EventKind.FORCED]
    found = list(kept.oldest_others(count))
    assert [one for one in found if one in forced] == [one for one in forced if one[0] < count]


def test_nothing_of_plain_locks_is_looked_at_among_the_oldest() -> None:
    """An entry of nothing else is passed over, and so is what is plain beside something else."""
    driver, kept = MachineDriver(), NewestEvents()
    acquires = [Acquire(one, Mode.EXCLUSIVE, HoldId(one), AttemptId(one), ttl_ms=1000) for one in ("a", "b")]
    driver.run_all(acquires)
    kept.extend(driver.events)
    driver.run_all([Release(HoldId("a")), ForceRelease("b", "why")])
    kept.extend(driver.events)
    assert [(place, event.kind) for place, event in kept.oldest_others(4)] == [(3, EventKind.FORCED)]


def test_an_entry_without_locks_has_no_events() -> None:
    """Not later either, when others have some."""
    driver = MachineDriver()
    driver.pass_to(5)
    none = driver.events
    driver.run(Acquire("a", Mode.EXCLUSIVE, HoldId("h1"), AttemptId("h1"), ttl_ms=1000), 6)
    assert (len(none), len(driver.events)) == (0, 1)
    assert told_in((driver.events[0],)) == (driver.events[0],)


def test_events_of_cells_stand_behind_the_others() -> None:
    """Who watches is told of both, of one entry at once."""
    acquire = Acquire("a", Mode.EXCLUSIVE, HoldId("h1"), AttemptId("h1"), ttl_ms=1000)
    outcome = LockMachine().apply(Entry(1, (Batch("n1", (1, 2), (PutCell(b"k", b"v"), acquire)),)))
    assert [event.name for event in outcome.all_events] == ["a", "k"]
