"""Cluster time: goes on where the log ends, at the machine's rate, without what the process slept through."""

from hypothesis import given
from hypothesis import strategies as st

from cluster.commands.clock import STALL_COUNTED_MS_MAX, ClusterClock, SystemClock

MS = 1_000_000


class FakeClock:
    """A monotonic clock that is set by hand."""

    def __init__(self) -> None:
        self.at_ns = 5_000 * MS

    def now_ns(self) -> int:
        """Return the set time."""
        return self.at_ns


def test_a_leader_goes_on_from_the_end_of_its_log() -> None:
    """The first stamp is the base, whatever the machine's clock says, and then real time passes."""
    machine = FakeClock()
    clock = ClusterClock(machine)
    machine.at_ns += 10_000 * MS
    clock.start(1_000_000)
    assert clock.now_ms() == 1_000_000
    machine.at_ns += 40 * MS
    assert clock.now_ms() == 1_000_040


def test_the_time_between_two_leaderships_counts_against_nobody() -> None:
    """What passed before `start` is gone, also when the clock ran before."""
    machine = FakeClock()
    clock = ClusterClock(machine)
    clock.start(100)
    machine.at_ns += 30 * MS
    clock.now_ms()
    machine.at_ns += 60_000 * MS
    clock.start(130)
    assert clock.now_ms() == 130


def test_a_stall_counts_a_quarter_of_a_second_at_most() -> None:
    """A process that was stopped for an hour has lost 250 ms of everybody's lease."""
    machine = FakeClock()
    clock = ClusterClock(machine)
    clock.start(0)
    machine.at_ns += 3_600_000 * MS
    assert clock.now_ms() == STALL_COUNTED_MS_MAX == 250
    machine.at_ns += 250 * MS
    assert clock.now_ms() == 500


def test_parts_of_milliseconds_add_up() -> None:
    """Many quick looks lose nothing: each is rounded, their sum is not."""
    machine = FakeClock()
    clock = ClusterClock(machine)
    clock.start(0)
    for _ in range(1000):
        machine.at_ns += MS // 2
        clock.now_ms()
    assert clock.now_ms() == 500


@given(st.lists(st.integers(0, 10_000 * MS)))
def test_cluster_time_never_goes_back_nor_ahead_of_real_time(steps_ns: list[int]) -> None:
    """Each stamp is at least the last, and no more time passes than really did."""
    machine = FakeClock()
    clock = ClusterClock(machine)
    clock.start(77)
    began_ns, last_ms = machine.at_ns, 77
    for step_ns in steps_ns:
        machine.at_ns += step_ns
        now_ms = clock.now_ms()
        assert last_ms <= now_ms <= 77 + (machine.at_ns - began_ns) // MS
        last_ms = now_ms


def test_the_machines_clock_does_not_go_back() -> None:
    """It is monotonic."""
    clock = SystemClock()
    looks = [clock.now_ns() for _ in range(100)]
    assert looks == sorted(looks)


@given(st.lists(st.tuples(st.integers(0, 3_000 * MS), st.sampled_from(["look", "read", "lead"]))))
def test_others_read_a_clock_that_counts_everything(steps: list[tuple[int, str]]) -> None:
    """Stalls, changes of leadership and looks in between change nothing: it is the machine's clock."""
    machine = FakeClock()
    clock = ClusterClock(machine)
    for step_ns, act in steps:
        machine.at_ns += step_ns
        if act == "look":
            clock.now_ms()
        elif act == "lead":
            clock.start(123_456)
        else:
            assert clock.reading_us() == machine.at_ns // 1000
    assert clock.reading_us() == machine.at_ns // 1000


def test_others_read_what_is_stamped() -> None:
    """A leader whose cluster time ran fast would show it, whatever the reason."""

    class FastClock(ClusterClock):
        def now_ms(self) -> int:
            return super().now_ms() * 102 // 100

    machine = FakeClock()
    clock = FastClock(machine)
    clock.start(0)
    before_us = clock.reading_us()
    for _ in range(100):
        machine.at_ns += 100 * MS
        clock.now_ms()
    assert clock.reading_us() - before_us == 10_200_000
