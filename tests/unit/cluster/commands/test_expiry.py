"""The leader's alarm rings when a deadline is over, and again until that has an effect."""

from typing import cast

from cluster.commands.clock import ClusterClock
from cluster.commands.expiry import FORGET_PAUSE_MS, RETRY_MS, WAKE_MS_MAX, Expiry, forgetting_ms
from tests.support.virtual_loop import VirtualLoop


class World(VirtualLoop):
    """Loop and cluster clock at once, and an alarm that is recorded."""

    def __init__(self) -> None:
        super().__init__()
        self.rings: list[int] = []
        self.expiry = Expiry(self.as_loop, cast("ClusterClock", self), self.ring)

    def now_ms(self) -> int:
        """Return cluster time."""
        return self.at_ms

    def ring(self) -> None:
        """Record the alarm."""
        self.rings.append(self.at_ms)


def test_it_rings_when_time_has_passed_the_deadline() -> None:
    """At the deadline itself nothing is over yet; one millisecond later it is."""
    world = World()
    world.expiry.arm(1000)
    world.run_to(1000)
    assert world.rings == []
    world.run_to(1001)
    assert world.rings == [1001]


def test_it_rings_again_until_the_deadline_is_gone() -> None:
    """An entry may get lost with its leader's term: the alarm repeats until the state has moved on."""
    world = World()
    world.expiry.arm(100)
    world.run_to(101 + 3 * (RETRY_MS + 1))
    assert len(world.rings) == 4
    world.expiry.arm(None)
    world.run_to(10_000)
    assert len(world.rings) == 4


def test_an_earlier_deadline_brings_the_alarm_forward() -> None:
    """The earliest counts, and only one timer is set."""
    world = World()
    world.expiry.arm(5000)
    world.expiry.arm(1000)
    assert len(world.waiting) == 1
    world.run_to(1001)
    assert world.rings == [1001]


def test_a_later_deadline_costs_no_new_timer() -> None:
    """Renewals move deadlines thousands of times a second: the timer stays, and looks again when it rings."""
    world = World()
    for deadline_ms in range(1000, 3000):
        world.expiry.arm(deadline_ms)
    assert len(world.timers) == 1
    world.run_to(2999)
    assert world.rings == []
    world.run_to(3000)
    assert world.rings == [3000]


def test_a_far_deadline_is_looked_at_every_minute() -> None:
    """The sleep is bounded, the deadline is not."""
    world = World()
    world.expiry.arm(10 * WAKE_MS_MAX)
    assert world.waiting[0].at_ms == WAKE_MS_MAX
    world.run_to(10 * WAKE_MS_MAX + 1)
    assert world.rings == [10 * WAKE_MS_MAX + 1]


def test_an_overdue_deadline_rings_soon() -> None:
    """A new leader may find deadlines that are long over."""
    world = World()
    world.at_ms = 5000
    world.expiry.arm(100)
    world.run_to(5001)
    assert world.rings == [5001]


def test_stopping_and_disarming_end_it() -> None:
    """A node that leads no more, or stops, passes no time."""
    world = World()
    world.expiry.arm(100)
    world.expiry.arm(None)
    world.run_to(1000)
    world.expiry.arm(2000)
    world.expiry.stop()
    world.run_to(5000)
    assert world.rings == []
    assert world.waiting == []


def test_forgetting_waits_for_a_use_and_for_its_turn() -> None:
    """Nothing to forget asks for no entry; old outcomes for one, but not at once behind another entry."""
    assert forgetting_ms(None, 1000) is None
    assert forgetting_ms(300_000, 1000) == 300_000
    assert forgetting_ms(500, 1000) == 1000 + FORGET_PAUSE_MS
