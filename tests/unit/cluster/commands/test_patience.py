"""Keepalives wait for company, but not for long, and not where nothing happens."""

import pytest

from cluster.commands import patience
from cluster.commands.patience import Patience
from tests.support.virtual_loop import VirtualLoop

WAIT_MS = round(patience.WAIT_S * 1000)


def new_patience() -> tuple[Patience, VirtualLoop, list[int]]:
    """Return one, its loop, and when it has woken somebody."""
    loop = VirtualLoop(100_000)
    woken: list[int] = []
    return Patience(loop.as_loop, lambda: woken.append(loop.at_ms)), loop, woken


def test_where_nothing_happened_nothing_waits() -> None:
    """At first, and again when the last entry is long ago."""
    waits, loop, _ = new_patience()
    seen = [waits.is_over]
    waits.proposed()
    seen.append(waits.is_over)
    loop.run_ms(WAIT_MS)
    assert [*seen, waits.is_over] == [True, False, True]


def test_what_waits_is_called_once_when_the_time_is_over() -> None:
    """However often it begins to wait. An entry in between has taken it along: the time begins anew."""
    waits, loop, woken = new_patience()
    waits.proposed()
    waits.wait()
    loop.run_ms(WAIT_MS // 2)
    waits.wait()
    waits.proposed()
    loop.run_ms(WAIT_MS * 5)
    assert woken == [100_000 + WAIT_MS // 2 + WAIT_MS]
    assert not loop.waiting
    waits.wait()
    loop.run_ms(1)
    assert len(woken) == 2, "it has waited already"


@pytest.mark.parametrize(
    ("took_ms", "waits_ms"), [(1, WAIT_MS - 1), (WAIT_MS, WAIT_MS), (70, 70), (9_000, 200)]
)
def test_behind_a_slow_entry_the_wait_is_longer(took_ms: int, waits_ms: int) -> None:
    """As long as it took, within a bound: so long its clients may take. One entry counts once."""
    waits, loop, _ = new_patience()
    waits.applied()
    seen = [waits.is_over]
    waits.proposed()
    loop.run_ms(took_ms)
    waits.applied()
    loop.run_ms(waits_ms - 1)
    waits.applied()
    seen.append(waits.is_over)
    loop.run_ms(1)
    assert [*seen, waits.is_over] == [True, False, True]


def test_a_node_that_stops_wakes_nobody() -> None:
    """Whether something waits or not."""
    waits, loop, woken = new_patience()
    waits.stop()
    waits.proposed()
    waits.wait()
    waits.stop()
    loop.run_ms(WAIT_MS * 5)
    assert not woken
