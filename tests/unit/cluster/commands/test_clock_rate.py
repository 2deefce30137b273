"""The rate of a peer's clock: bounds that hold under every delay, and no verdict without grounds."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.commands.clock_rate import (
    ERROR_PPM_MAX,
    POINTS_COUNT_MAX,
    PPM,
    SPANS_COUNT,
    ClockVerdict,
    Rate,
    RateMeter,
)

S = 1_000_000


class Pair:
    """Two clocks, and pings between them once a second, each with a delay of its own. Theirs may change."""

    def __init__(self, ppm: float = 0.0) -> None:
        self.meter = RateMeter()
        self.own_us = 7_000 * S
        self._theirs_us = 3.0e9
        self.ppm = ppm
        self.came: tuple[int, int] | None = None
        """Our newest reading that came to the peer, and what its clock showed."""
        self.rates: list[Rate] = []

    def pass_us(self, duration_us: int) -> None:
        """Let time pass on both clocks."""
        self.own_us += duration_us
        self._theirs_us += duration_us * (1 + self.ppm / PPM)

    def second(self, there_us: int, back_us: int, *, is_lost: bool = False) -> None:
        """Send a ping there, and one back half a second later; `is_lost`: this one does not come."""
        sent_us = self.own_us
        self.pass_us(there_us)
        self.came = (sent_us, int(self._theirs_us) + 1)
        self.pass_us(S // 2)
        said_us = int(self._theirs_us)
        self.pass_us(back_us)
        if not is_lost:
            if self.meter.heard(self.own_us, said_us) and self.meter.rate is not None:
                self.rates.append(self.meter.rate)
            self.meter.confirmed(*self.came)
        self.pass_us(max(0, S // 2 - there_us - back_us))

    def run_s(self, seconds: int, delay_us: int = 300) -> None:
        """Let seconds pass with equal delays."""
        for _ in range(seconds):
            self.second(delay_us, delay_us)

    def jump_us(self, jump_us: int) -> None:
        """Let their clock jump: their machine was suspended, or ours."""
        self._theirs_us += jump_us


@pytest.mark.parametrize(
    ("ppm", "verdict"),
    [
        (0, ClockVerdict.WELL),
        (200, ClockVerdict.WELL),
        (-200, ClockVerdict.WELL),
        (1_500, ClockVerdict.FAST),
        (-1_500, ClockVerdict.SLOW),
        (100_000, ClockVerdict.FAST),
        (-100_000, ClockVerdict.SLOW),
    ],
)
def test_a_rate_is_known_within_a_minute(ppm: int, verdict: ClockVerdict) -> None:
    """On a fast network, to a quarter of what matters."""
    pair = Pair(ppm)
    pair.run_s(60)
    assert pair.meter.verdict is verdict
    assert pair.meter.rate is not None
    assert abs(pair.meter.rate.ppm - ppm) <= pair.meter.rate.error_ppm + 1
    assert pair.meter.rate.error_ppm <= ERROR_PPM_MAX


def test_three_spans_have_to_agree() -> None:
    """Before that nothing is known; a clock that begins to run fast is found as soon again."""
    pair = Pair()
    pair.run_s(35)
    assert len(pair.rates) == SPANS_COUNT - 1
    found = []
    for ppm, seconds in ((0, 0), (0, 20), (50_000, 20), (50_000, 30), (0, 60)):
        pair.ppm = ppm
        pair.run_s(seconds)
        found.append(pair.meter.verdict)
    assert found == [
        ClockVerdict.UNKNOWN,
        ClockVerdict.WELL,
        ClockVerdict.WELL,
        ClockVerdict.FAST,
        ClockVerdict.WELL,
    ]


@pytest.mark.parametrize("jump_us", [2 * S, -400_000, 3600 * S])
def test_a_clock_that_jumps_is_not_off(jump_us: int) -> None:
    """A machine that was suspended, or migrated, has a clock that jumps once: one span is spoiled."""
    pair = Pair()
    pair.run_s(47)
    pair.jump_us(jump_us)
    for _ in range(60):
        pair.run_s(1)
        assert pair.meter.verdict is ClockVerdict.WELL


def test_another_clock_begins_anew() -> None:
    """A machine that was started anew shows less than before: nothing is compared across that."""
    pair = Pair()
    pair.run_s(60)
    spans = len(pair.rates)
    pair.jump_us(-2_000 * S)
    pair.run_s(25)
    assert all(abs(rate.ppm) < ERROR_PPM_MAX for rate in pair.rates)
    pair.run_s(10)
    assert len(pair.rates) > spans


def test_a_slow_network_takes_longer() -> None:
    """With 200 ms there and back a span of 10 s says little: it goes on until it says enough."""
    pair = Pair(1_500)
    pair.run_s(60, delay_us=100_000)
    assert pair.meter.rate is None
    pair.run_s(1800, delay_us=100_000)
    assert pair.meter.verdict is ClockVerdict.FAST


def test_a_large_difference_is_seen_on_a_slow_network_too() -> None:
    """It needs no fine measure."""
    pair = Pair(100_000)
    pair.run_s(60, delay_us=100_000)
    assert pair.meter.verdict is ClockVerdict.FAST


def test_a_network_that_never_says_enough_says_nothing() -> None:
    """After ten minutes a span ends without a verdict."""
    pair = Pair()
    pair.run_s(3 * 700, delay_us=240_000)
    assert pair.meter.verdict is ClockVerdict.UNKNOWN
    assert [rate.verdict for rate in pair.rates] == [ClockVerdict.UNKNOWN] * SPANS_COUNT
    assert all(abs(rate.ppm) <= rate.error_ppm for rate in pair.rates)


def test_without_an_echo_there_is_no_rate() -> None:
    """A peer of an older release, or one that does not hear us, cannot be measured: delays may grow."""
    meter = RateMeter()
    for second in range(300):
        assert not meter.heard(second * S, second * S * 9 // 10)
    assert meter.rate is None


def test_points_are_bounded() -> None:
    """A peer that pings a thousand times a second costs no more than one that does so slowly."""
    meter = RateMeter()
    for number in range(10 * POINTS_COUNT_MAX):
        meter.heard(number, number)
        meter.confirmed(number, number)
    assert meter._block is not None
    assert len(meter._block.floors) == len(meter._block.ceilings) == POINTS_COUNT_MAX


def test_a_rate_that_changes_within_a_span_says_nothing() -> None:
    """Of bounds that contradict each other nothing is said."""
    assert Rate(5_000.0, -5_000.0).verdict is ClockVerdict.UNKNOWN
    assert Rate(2_000.0, 1_500.0).verdict is ClockVerdict.FAST
    assert Rate(-1_500.0, -2_000.0).verdict is ClockVerdict.SLOW


@settings(max_examples=150, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    ppm=st.integers(-200, 200),
    jitter_us=st.sampled_from([0, 1_000, 50_000, 900_000, 4 * S]),
    stall_share=st.sampled_from([0.0, 0.02, 0.2]),
    lost_share=st.sampled_from([0.0, 0.5]),
)
def test_no_delay_makes_a_false_alarm(
    seed: int, ppm: int, jitter_us: int, stall_share: float, lost_share: float
) -> None:
    """Whatever the network and stopped processes do to the pings, a good clock is never taken for a bad one.

    And every bound holds.
    """
    chance = random.Random(seed)
    pair = Pair(ppm)
    for second in range(300):
        # Delays that grow for a while look like a rate to whoever looks at one direction only.
        queue_us = 20_000 * (second % 60)
        stall_us = chance.randrange(10 * S) if chance.random() < stall_share else 0
        pair.second(
            chance.randint(0, jitter_us) + queue_us + stall_us,
            chance.randint(0, jitter_us) + queue_us,
            is_lost=chance.random() < lost_share,
        )
    assert pair.meter.verdict in (ClockVerdict.UNKNOWN, ClockVerdict.WELL)
    for rate in pair.rates:
        assert rate.at_least_ppm <= ppm + 2
        assert rate.at_most_ppm >= ppm - 2


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    ppm=st.one_of(st.integers(20_000, 200_000), st.integers(-200_000, -20_000)),
    jitter_us=st.sampled_from([1_000, 50_000]),
    jumps=st.booleans(),
)
def test_a_clock_that_is_off_is_found(seed: int, ppm: int, jitter_us: int, jumps: bool) -> None:  # noqa: FBT001
    """Jitter and a suspended machine delay that, and do not hide it."""
    chance = random.Random(seed)
    pair = Pair(ppm)
    for second in range(150):
        if jumps and second == 40:
            pair.jump_us(-chance.randrange(S))
        pair.second(chance.randint(0, jitter_us), chance.randint(0, jitter_us))
    assert pair.meter.verdict is (ClockVerdict.FAST if ppm > 0 else ClockVerdict.SLOW)
