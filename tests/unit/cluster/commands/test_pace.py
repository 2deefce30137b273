"""A leader fills its entries with what takes 50 ms by what its last entries took."""

import pytest

from cluster.commands.encoded_command import FREE
from cluster.commands.pace import ENTRY_S_MAX, Pace

ORDINARY = 1000 * FREE
"""The load of a thousand ordinary commands."""


def after(*entries: tuple[int, float]) -> Pace:
    """Return a pace that has measured entries, each with a load and the seconds that it took."""
    pace = Pace()
    for index, (load, took_s) in enumerate(entries):
        pace.proposed(index, load)
        pace.applied(index, took_s)
    return pace


def test_nothing_is_bounded_before_anything_was_measured() -> None:
    """What is not known is left to the estimate."""
    assert Pace().load_max is None
    assert after((ORDINARY, 0.0)).load_max is None


@pytest.mark.parametrize("slowness", [0.1, 1, 30])
def test_an_entry_may_have_what_takes_fifty_milliseconds(slowness: float) -> None:
    """Whatever a machine does in that time."""
    load_max = after((ORDINARY, 0.01 * slowness), (2 * ORDINARY, 0.02 * slowness)).load_max
    assert load_max == pytest.approx(ORDINARY * ENTRY_S_MAX / (0.01 * slowness), rel=0.05)


def test_commands_that_take_longer_than_their_load_says_are_few_in_the_next_entry() -> None:
    """A thousand that take a second are followed by 50 at the most, however cheap those before were."""
    pace = after(*[(ORDINARY, 0.01)] * 20, (ORDINARY, 1.0))
    assert pace.load_max is not None
    assert pace.load_max <= 0.055 * ORDINARY * 2


def test_one_slow_entry_is_soon_forgotten() -> None:
    """After a pause of the machine, or when many leases have ended at once: for a few entries."""
    pace = after((ORDINARY, 0.01), (FREE, 0.3))
    sizes = []
    for index in range(100, 106):
        assert pace.load_max is not None
        sizes.append(min(max(pace.load_max, FREE), 4 * ORDINARY))
        pace.proposed(index, sizes[-1])
        pace.applied(index, sizes[-1] / ORDINARY * 0.01)
    assert sizes[0] < ORDINARY / 5
    assert sizes[-1] > 2 * ORDINARY


def test_entries_of_others_are_not_measured() -> None:
    """What another leader proposed, or this one when it led before, has a load that is not known."""
    pace = after((ORDINARY, 0.01))
    known = pace.load_max
    pace.applied(7, 5.0)
    pace.proposed(8, ORDINARY)
    pace.clear()
    pace.applied(8, 5.0)
    assert pace.load_max == known
