"""The history of events: what it keeps, where it begins, and who is told that it grew."""

import asyncio

import pytest

from cluster.observing.event_log import EventLog, EventsCompacted, Position, events_count_max
from lockstate.words.events import Event, EventKind
from lockstate.words.ids import OwnerName, SessionId
from lockstate.words.modes import Mode


def event(revision: int, name: str = "n", kind: EventKind = EventKind.GRANTED) -> Event:
    """Return an event of an entry."""
    return Event(revision, 1_000 + revision, kind, name, Mode.EXCLUSIVE, OwnerName("o"), 1, SessionId("s"), 0)


def log_of(*revisions: int, count_max: int = 100, each: int = 1) -> EventLog:
    """Return a log with `each` events of each revision."""
    log = EventLog(asyncio.get_running_loop(), count_max)
    for revision in revisions:
        log.append(tuple(event(revision, f"n{number}") for number in range(each)))
    return log


def revisions(log: EventLog, since: int | Position, count_max: int = 1_000) -> list[int]:
    """Return the revisions of which there is something behind a revision or a place."""
    position = Position.behind(since) if isinstance(since, int) else since
    return [block[0].revision for block in log.read(position, count_max)]


class Notes:
    """A follower that writes down what it is told."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def log_grew(self) -> None:
        """Note it."""
        self.told.append("grew")

    def log_restarted(self) -> None:
        """Note it."""
        self.told.append("restarted")

    def log_ended(self) -> None:
        """Note it."""
        self.told.append("ended")


async def test_what_is_behind_a_revision_is_read_in_order() -> None:
    """A place behind a revision is followed by every later entry that had events, and by no other."""
    log = log_of(3, 4, 9, 12)
    assert revisions(log, 0) == [3, 4, 9, 12]
    assert revisions(log, 3) == [4, 9, 12]
    assert revisions(log, 5) == [9, 12]
    assert revisions(log, 12) == revisions(log, 99) == []
    assert log.newest == Position.behind(12)


async def test_a_place_within_a_revision_is_followed_by_the_rest_of_it() -> None:
    """A place behind the N-th event of a revision begins with that revision, and orders its events."""
    log = log_of(3, 4, each=3)
    position = Position(3, 2)
    assert revisions(log, position) == [3, 4]
    assert position < Position(3, 3) < Position.behind(3) == Position(4)
    assert (position.known_revision, Position.behind(3).known_revision) == (3, 3)


async def test_the_oldest_entries_go_first_and_the_log_says_from_where_it_is_complete() -> None:
    """Beyond its bound the log drops whole entries, and refuses to be read from before them."""
    log = log_of(1, 2, 5, 7, count_max=6, each=2)
    assert (len(log), log.oldest) == (6, 1)
    log.append((event(8),))
    assert (len(log), log.oldest) == (5, 2)
    assert revisions(log, 2) == [5, 7, 8]
    for place in (1, 0, Position(2, 1)):
        with pytest.raises(EventsCompacted) as gone:
            revisions(log, place)
        assert gone.value.oldest == 2


async def test_an_entry_larger_than_the_log_is_kept() -> None:
    """The newest entry is never dropped: whoever follows closely misses nothing."""
    log = log_of(1, count_max=2)
    log.append(tuple(event(2) for _ in range(5)))
    assert revisions(log, 1) == [2]
    log.append((event(3),))
    assert (revisions(log, 2), len(log), log.oldest) == ([3], 1, 2)


async def test_a_reader_takes_some_at_a_time() -> None:
    """A read ends with the entry that makes its measure full, and always has one entry."""
    log = log_of(1, 2, 3, 4, each=2)
    assert revisions(log, 0, 1) == [1]
    assert revisions(log, 0, 3) == [1, 2]
    assert revisions(log, 2, 4) == [3, 4]


async def test_a_restored_snapshot_begins_a_new_history() -> None:
    """Behind a snapshot nothing older can be resumed from, though this node had seen some of it."""
    log = log_of(1, 2)
    notes = Notes()
    log.follow(notes)
    log.restart(10)
    assert notes.told == ["restarted"]
    assert (len(log), log.oldest, log.newest) == (0, 10, Position.behind(10))
    with pytest.raises(EventsCompacted):
        revisions(log, 9)
    log.append((event(11),))
    assert revisions(log, 10) == [11]


async def test_followers_are_told_once_for_many_entries() -> None:
    """News of several entries comes in one call, in a later run of the loop; without events none comes."""
    log, notes = log_of(), Notes()
    log.follow(notes)
    log.append(())
    await asyncio.sleep(0)
    assert not notes.told
    log.append((event(1),))
    log.append((event(2),))
    assert not notes.told
    await asyncio.sleep(0)
    assert notes.told == ["grew"]
    log.end()
    log.unfollow(notes)
    log.append((event(3),))
    await asyncio.sleep(0)
    assert notes.told == ["grew", "ended"]


@pytest.mark.parametrize(
    ("state_bytes_max", "kept"), [(4 << 30, 100_000), (100_000_000, 10_000), (16 << 20, 1_677), (1, 1_000)]
)
def test_a_node_with_little_memory_keeps_fewer_events(state_bytes_max: int, kept: int) -> None:
    """The history must not be larger than the state that it tells of."""
    assert events_count_max(state_bytes_max) == kept


async def test_pressure_is_how_soon_something_is_dropped() -> None:
    """Nothing presses while the log has room, nor who has read it all; who has read nothing is at its end."""
    assert log_of(count_max=4).pressure(Position(1)) == 0
    assert log_of(1, 2, count_max=4).pressure(Position(1)) == 0.5
    full = log_of(*range(1, 9), count_max=4)
    shares = [full.pressure(Position(revision)) for revision in (9, 8, 7, 5, 1)]
    assert shares == [0, 0.25, 0.5, 1, 1]
