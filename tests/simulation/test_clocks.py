"""Whole clusters with clocks of different rates: a fast leader hands over, a healthy one is left alone."""

from typing import Any, Final
from unittest import mock

import msgspec
import pytest

import tests.simulation.run as simulation
from cluster.commands.clock_rate import ERROR_PPM_MAX
from tests.simulation.plan import Plan, make_plan
from tests.simulation.run import Report
from tests.simulation.world.scheduler import PPM
from tests.simulation.world.world import US, World

STEADY_S: Final = 20
"""When a clock begins to run at another rate: somebody leads by then."""
HAND_OVER_S_MAX: Final = 60
"""How long that may stay without effect: the block in which it happens, three spans of two, and a little."""


class WatchedWorld(World):
    """A world that writes down who leads, and in which the first leader's clock changes its rate."""

    drift_ppm = 0
    """How much faster than true time that clock runs then."""
    well_s = 0
    """When it runs well again; 0: never."""

    def __init__(self, plan: Plan, *_: Any) -> None:
        super().__init__(plan)
        self.led: list[tuple[float, str]] = []
        """From when on who led."""
        self.ever_off: set[str] = set()
        """Who has found its own clock to be off."""
        self.elected_off = 0
        """How often a node was found to lead that knew already that its clock is off."""
        self.errors_ppm: dict[tuple[str, str], float] = {}
        """How well the nodes know each other's rates: the last error of each about each."""
        self.culprit = ""
        made.append(self)

    def run_slice(self) -> None:
        """Let a little time pass, and look who leads."""
        super().run_slice()
        now_s = self.scheduler.now_us / US
        groups = {node_id: machine.parts for node_id, machine in self.machines.items()}
        running = {node_id: parts for node_id, parts in groups.items() if parts is not None}
        leaders = [node_id for node_id, parts in running.items() if parts.replica.role.is_leader]
        self.ever_off |= {node_id for node_id, parts in running.items() if parts.clocks.is_off}
        if len(leaders) == 1 and (not self.led or self.led[-1][1] != leaders[0]):
            self.led.append((now_s, leaders[0]))
            self.elected_off += running[leaders[0]].clocks.is_off
        for node_id, parts in running.items():
            self.errors_ppm |= {(node_id, peer_id): rate.error_ppm for peer_id, rate in parts.clocks.rates()}
        if not self.culprit and now_s >= STEADY_S and leaders and self.drift_ppm:
            self.culprit = leaders[0]
            self.set_rate(self.culprit, self.drift_ppm)
        if self.well_s and self.well_s <= now_s < self.well_s + 0.25:
            self.set_rate(self.culprit, 0)

    def set_rate(self, node_id: str, drift_ppm: int) -> None:
        """Let a clock run at another rate from now on."""
        clock, now_us = self.machines[node_id].clock, self.scheduler.now_us
        clock.stop(now_us)
        clock._rate_ppm = PPM + drift_ppm
        clock.go(now_us)


made: list[WatchedWorld] = []


def simulate(
    seed: int,
    simulated_s: float,
    *,
    drift_ppm: int = 0,
    well_s: int = 0,
    nodes: int = 3,
    faults: tuple[str, ...] = (),
    **changes: Any,
) -> tuple[WatchedWorld, Report]:
    """Run a world without clients."""
    plan = make_plan(seed, nodes, hostile=False, faults=faults)
    settings = {
        "clients_count": 0,
        "drift_ppm_max": 200,
        "upgraded_s": 0.0,
        "quiet_every_s": 1e6,
        "far_us": 0,
    }
    plan = msgspec.structs.replace(plan, **settings | changes)
    made.clear()
    with (
        mock.patch.object(simulation, "World", WatchedWorld),
        mock.patch.object(WatchedWorld, "drift_ppm", drift_ppm),
        mock.patch.object(WatchedWorld, "well_s", well_s),
    ):
        report = simulation.run(plan, simulated_s)
    assert not report.violation, report.violation
    return made[0], report


@pytest.mark.parametrize(("seed", "drift_ppm"), [(1, 100_000), (2, 100_000), (3, 2_000), (4, -5_000)])
def test_a_leader_whose_clock_is_off_hands_over(seed: int, drift_ppm: int) -> None:
    """10 % fast ends leases early by as much. Within a minute another node leads, and goes on leading."""
    world, _ = simulate(seed, 200, drift_ppm=drift_ppm)
    assert world.culprit == next(node_id for from_s, node_id in reversed(world.led) if from_s <= STEADY_S)
    after = [(from_s, node_id) for from_s, node_id in world.led if from_s > STEADY_S]
    assert len(after) == 1, "one change, and no way back"
    assert after[0][0] < STEADY_S + HAND_OVER_S_MAX


def test_a_node_whose_clock_is_off_leaves_elections_to_others() -> None:
    """It follows for as long as its clock is off, and may lead again when it is well."""
    world, _ = simulate(1, 700, drift_ppm=20_000, well_s=350, nodes=5, faults=("kill",), rates={"kill": 6.0})
    assert world.culprit in world.ever_off
    assert world.elected_off == 0
    led_late = {node_id for from_s, node_id in world.led if from_s > 420}
    assert world.culprit in led_late
    assert len(world.led) > 10


@pytest.mark.parametrize("seed", [1, 3])
def test_a_healthy_cluster_is_left_alone(seed: int) -> None:
    """200 ppm, jitter of a tenth of a second and nodes that are stopped every few seconds say nothing."""
    rates = {"pause": 8.0}
    world, report = simulate(
        seed, 400, faults=("pause",), rates=rates, fault_s=(0.05, 0.3), latency_us=2_000, jitter_us=100_000
    )
    assert report.faults["pause"] > 20
    assert not world.ever_off
    assert len(world.errors_ppm) == 6
    assert max(world.errors_ppm.values()) <= ERROR_PPM_MAX


def test_two_nodes_cannot_know() -> None:
    """One of two is off, and nobody can say which: nothing changes."""
    world, _ = simulate(1, 200, drift_ppm=50_000, nodes=2)
    assert [node_id for from_s, node_id in world.led if from_s > STEADY_S] == []
