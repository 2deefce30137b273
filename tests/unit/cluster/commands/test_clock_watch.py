"""A node judges its own clock by those of the others: only if most of them say so, and until most deny it."""

import logging

import pytest

from cluster.commands.clock_watch import PEERS_COUNT_MAX, ClockSaid, ClockWatch

S = 1_000_000
START_US = 5_000 * S


class Clocks:
    """Nodes with clocks of their own, which ping each other once a second over a fast network."""

    def __init__(self, **ppm: int) -> None:
        self.ppm = ppm
        self.at_us = dict.fromkeys(ppm, float(START_US))
        self.voters = frozenset(ppm)
        self.watches = {node_id: self.watch(node_id) for node_id in ppm}
        self.silent: set[str] = set()

    def watch(self, node_id: str) -> ClockWatch:
        """Return what a node that has just started knows."""
        return ClockWatch(node_id, lambda: int(self.at_us[node_id]), lambda: self.voters)

    def run_s(self, seconds: int) -> None:
        """Let time pass."""
        for _ in range(seconds):
            for node_id, watch in self.watches.items():
                said = watch.said()
                self._pass_us(200)
                for peer_id, other in self.watches.items():
                    if peer_id != node_id and not {node_id, peer_id} & self.silent:
                        other.heard(node_id, said)
            self._pass_us(S - 200 * len(self.watches))

    def _pass_us(self, duration_us: int) -> None:
        for node_id, ppm in self.ppm.items():
            self.at_us[node_id] += duration_us * (1 + ppm / S)

    def off(self) -> list[str]:
        """Return who has found that its clock is off."""
        return [node_id for node_id, watch in self.watches.items() if watch.is_off]


def test_the_one_that_differs_from_the_others_is_off(caplog: pytest.LogCaptureFixture) -> None:
    """It knows within a minute, says so to all, and says in the log what that means."""
    clocks = Clocks(a=100_000, b=100, c=-100)
    with caplog.at_level(logging.INFO):
        clocks.run_s(61)
    assert clocks.off() == ["a"]
    assert clocks.watches["a"].ppm == pytest.approx(100_000, rel=0.02)
    assert abs(clocks.watches["b"].ppm) < 400
    assert [clocks.watches["b"].is_fit(node_id) for node_id in "ac"] == [False, True]
    assert "event=clock-off ppm=" in caplog.text
    assert caplog.text.count("event=clock-differs peer=a ppm=") == 2


@pytest.mark.parametrize("ppm", [100_000, -100_000, 1_600, -1_600])
def test_fast_and_slow_are_off(ppm: int) -> None:
    """Leases would end early, or late."""
    clocks = Clocks(a=0, b=0, c=ppm, d=100, e=-100)
    clocks.run_s(61)
    assert clocks.off() == ["c"]


def test_it_is_well_again_when_it_runs_as_the_others_do(caplog: pytest.LogCaptureFixture) -> None:
    """And says so."""
    clocks = Clocks(a=20_000, b=0, c=0)
    clocks.run_s(61)
    assert clocks.off() == ["a"]
    clocks.ppm["a"] = 0
    with caplog.at_level(logging.INFO):
        clocks.run_s(61)
    assert clocks.off() == []
    assert clocks.watches["b"].is_fit("a")
    assert "event=clock-well" in caplog.text
    assert "event=clock-agrees peer=a" in caplog.text


@pytest.mark.parametrize(
    "ppm",
    [
        {"a": 50_000, "b": 0},
        {"a": 50_000, "b": 50_000, "c": 0, "d": 0},
        {"a": 900, "b": 0, "c": -900},
        {"a": 0},
    ],
    ids=["two", "halves", "near", "alone"],
)
def test_nobody_is_off_if_that_cannot_be_known(ppm: dict[str, int]) -> None:
    """Of two nodes either may be wrong, and so may either half."""
    clocks = Clocks(**ppm)
    clocks.run_s(90)
    assert clocks.off() == []


def test_the_one_in_the_middle_is_never_off() -> None:
    """So there is always a node that may lead."""
    clocks = Clocks(a=-30_000, b=0, c=30_000)
    clocks.run_s(90)
    assert clocks.off() == ["a", "c"]
    clocks = Clocks(a=30_000, b=50_000, c=0)
    clocks.run_s(90)
    assert clocks.off() == ["b", "c"]


def test_who_cannot_hear_the_others_goes_on_believing_what_it_knew() -> None:
    """Neither is it off because it hears nobody, nor is it well."""
    clocks = Clocks(a=20_000, b=0, c=0)
    clocks.run_s(61)
    clocks.silent = {"a"}
    clocks.run_s(100)
    assert clocks.off() == ["a"]
    clocks.silent = {"b"}
    clocks.run_s(100)
    assert clocks.off() == ["a"], "c still differs, and b may"


def test_only_voters_count() -> None:
    """Nodes that join, or were removed, have no say about a clock."""
    clocks = Clocks(a=20_000, b=0, c=0, d=20_000, e=20_000)
    clocks.voters = frozenset("abc")
    clocks.run_s(61)
    assert "a" in clocks.off()
    assert "b" not in clocks.off()
    assert clocks.watches["d"].ppm == pytest.approx(20_000, rel=0.05)


def test_an_old_reading_is_no_measure() -> None:
    """A peer that confirms what this node said long ago, or never, or in another run, is not listened to."""
    own_us = START_US
    watch = ClockWatch("a", lambda: own_us, lambda: frozenset("abc"))
    for second in range(100):
        own_us = START_US + second * S
        for sent_us in (own_us - 61 * S, own_us + S, -5):
            watch.heard("b", ClockSaid(own_us, {"a": (sent_us, own_us)}))
        watch.heard("b", ClockSaid(own_us, {"a": (own_us, own_us + S)}))
    assert list(watch.rates()) == []


def test_what_a_lost_peer_said_is_not_confirmed() -> None:
    """When it comes back it may be another run, on a machine that was started anew."""
    clocks = Clocks(a=0, b=0)
    clocks.run_s(2)
    watch = clocks.watches["a"]
    assert watch.said().heard.keys() == {"b"}
    watch.lost("b")
    assert watch.said().heard == {}


def test_memory_is_bounded() -> None:
    """However many nodes come and go."""
    watch = ClockWatch("a", lambda: START_US, lambda: frozenset("abc"))
    for number in range(10 * PEERS_COUNT_MAX):
        watch.heard(f"n{number}", ClockSaid(START_US, {}, is_off=True))
        watch.lost(f"n{number}")
    assert len(watch._meters) <= PEERS_COUNT_MAX
    assert len(watch._off) <= PEERS_COUNT_MAX
