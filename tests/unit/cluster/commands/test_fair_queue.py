"""The fair queue: small before large, nobody for ever, and each lane in its order."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.commands.fair_queue import FairQueue, QueueTurn

LARGE = 1000


def drained(queue: FairQueue[str]) -> list[str]:
    """Take out everything; return it in its order."""
    return [queue.pop() for _ in range(len(queue))]


def test_what_costs_the_same_comes_in_order_of_arrival() -> None:
    """An empty queue is one that keeps the order."""
    queue = FairQueue[str]()
    for item in "abc":
        queue.add(QueueTurn(), item)
    assert queue.first() == "a"
    assert drained(queue) == ["a", "b", "c"]
    assert len(queue) == 0


def test_what_is_small_passes_what_is_large() -> None:
    """However much of that is there already."""
    queue = FairQueue[str]()
    for number in range(100):
        queue.add(QueueTurn(LARGE), f"large {number}")
    queue.pop()
    queue.add(QueueTurn(), "small")
    assert queue.pop() == "small"
    assert queue.pop() == "large 1"


def test_what_is_large_is_not_passed_for_ever() -> None:
    """While two wait, and small items never cease to come, it waits for twice as much of them as it costs."""
    queue = FairQueue[str]()
    queue.add(QueueTurn(LARGE, "l"), "large")
    passed = 0
    queue.add(QueueTurn(), "small")
    while queue.pop() == "small":
        passed += 1
        queue.add(QueueTurn(), "small")
    assert LARGE < passed <= 2 * LARGE


def test_a_lane_keeps_its_order() -> None:
    """What is small waits behind what is large of its own lane, which others pass."""
    queue = FairQueue[str]()
    queue.add(QueueTurn(LARGE, "a"), "a1")
    queue.add(QueueTurn(0, "a"), "a2")
    queue.add(QueueTurn(0, "b"), "b1")
    assert [queue.has(lane) for lane in ("a", "b", "c", "")] == [True, True, False, False]
    assert drained(queue) == ["b1", "a1", "a2"]
    assert not queue.has("a")


def test_who_shares_has_one_share_with_all_its_lanes() -> None:
    """Somebody else's large item is behind one of them and not behind all; what is small is not counted."""
    queue = FairQueue[str]()
    for number in range(10):
        queue.add(QueueTurn(LARGE, f"lane {number}", "ann"), f"ann {number}")
    queue.add(QueueTurn(LARGE, "", "bob"), "bob")
    queue.add(QueueTurn(0, "", "ann"), "small")
    assert drained(queue)[:4] == ["small", "ann 0", "bob", "ann 1"]


@pytest.mark.parametrize("much", [1, 100, 3000])
def test_what_somebody_has_waiting_makes_nobody_else_wait_longer(much: int) -> None:
    """It is one share of the time, however many items that is."""
    queue = FairQueue[str]()
    for number in range(much):
        queue.add(QueueTurn(LARGE, "", "ann"), f"ann {number}")
    queue.add(QueueTurn(2 * LARGE, "", "eve"), "eve")
    queue.add(QueueTurn(LARGE, "", "bob"), "bob")
    passed = 0
    while (item := queue.pop()) != "eve":
        passed += 1
        if item == "bob":
            queue.add(QueueTurn(LARGE, "", "bob"), "bob")
    assert passed <= 8
    assert queue.count_of("ann") >= much - 8
    assert [queue.count_of("eve"), queue.count_of("")] == [0, 0]


def test_a_share_begins_anew_when_nothing_of_it_waits() -> None:
    """Nobody pays for what was done while nobody else wanted anything."""
    queue = FairQueue[str]()
    for number in range(10):
        queue.add(QueueTurn(LARGE, "", "ann"), f"ann {number}")
    drained(queue)
    queue.add(QueueTurn(LARGE, "", "ann"), "ann")
    queue.add(QueueTurn(LARGE, "", "bob"), "bob")
    assert drained(queue) == ["ann", "bob"]


def test_what_is_not_wanted_any_more_leaves_nothing() -> None:
    """The rest keeps its order, and lanes of which nothing is left are empty."""
    queue = FairQueue[str]()
    for number, (lane, sharer) in enumerate((("a", "ann"), ("b", "bob"), ("a", "ann"), ("", ""))):
        queue.add(QueueTurn(LARGE + number, lane, sharer), f"{lane}{number}")
    queue.keep(lambda item: not item.startswith("b"))
    assert not queue.has("b")
    assert queue.has("a")
    queue.add(QueueTurn(LARGE, "", "bob"), "bob")
    assert drained(queue) == ["a0", "bob", "3", "a2"]


@given(
    st.lists(
        st.one_of(
            st.none(),
            st.builds(
                QueueTurn,
                st.sampled_from([0, 0, 1, 9]),
                st.sampled_from(["", "a", "b"]),
                st.sampled_from("xyz"),
            ),
        ),
        max_size=60,
    )
)
def test_nothing_is_lost_and_lanes_keep_their_order(steps: list[QueueTurn | None]) -> None:
    """Whatever comes and goes in between."""
    queue = FairQueue[tuple[str, int]]()
    come: list[tuple[str, int]] = []
    gone: list[tuple[str, int]] = []
    for number, turn in enumerate(steps):
        if turn is not None:
            come.append((turn.lane, number))
            queue.add(turn, come[-1])
        elif len(queue):
            first = queue.first()
            gone.append(queue.pop())
            assert gone[-1] == first
        for lane in "ab":
            assert queue.has(lane) == any(item[0] == lane and item not in gone for item in come)
    gone += [queue.pop() for _ in range(len(queue))]
    assert sorted(gone) == sorted(come)
    for lane in "ab":
        assert [item for item in gone if item[0] == lane] == [item for item in come if item[0] == lane]
