"""Whole clusters, simulated from seeds: those that once found a bug, and fresh ones in every run.

HOLDFAST_SIM_SEEDS says how many fresh ones, HOLDFAST_SIM_FIRST which is the first (any, if it is not set).
"""

import os
import random
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[2]
FRESH_COUNT = int(os.environ.get("HOLDFAST_SIM_SEEDS", "20"))
FRESH_FIRST = int(os.environ.get("HOLDFAST_SIM_FIRST") or random.SystemRandom().randrange(10**6, 10**9))
SECONDS_MAX = 20
"""For one seed, on a slow and busy machine; many times what it needs."""
HASH = re.compile(r"hash ([0-9a-f]+)")


class Kept(NamedTuple):
    """A line of seeds.txt."""

    seed: str
    nodes: str
    minutes: str
    options: tuple[str, ...]

    def __str__(self) -> str:
        """Name the test."""
        return f"{self.seed}-{self.nodes}"


def kept_seeds() -> list[Kept]:
    """Return what seeds.txt says."""
    lines = (Path(__file__).parent / "seeds.txt").read_text("utf-8").splitlines()
    words = [line.partition("#")[0].split() for line in lines]
    return [
        Kept(seed, nodes, minutes, tuple(options)) for seed, nodes, minutes, *options in filter(None, words)
    ]


def simulate(*arguments: str, count: int = 1, hash_seed: str = "random") -> str:
    """Run scripts/simulate, which must find nothing; return what it printed."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": hash_seed}
    done = subprocess.run(
        [sys.executable, "-P", "-m", "lab.simulate", *arguments],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS_MAX * (count + 5),
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.mark.parametrize("kept", kept_seeds(), ids=str)
def test_kept_seed_finds_nothing(kept: Kept) -> None:
    """A world in which a bug once showed, or much happens, keeps every promise."""
    count = int(float(kept.minutes)) + 1
    simulate(
        "--seed", kept.seed, "--nodes", kept.nodes, "--minutes", kept.minutes, *kept.options, count=count
    )


@pytest.mark.parametrize("nodes", ["3", "5"])
def test_fresh_seeds_find_nothing(nodes: str) -> None:
    """Worlds that nobody has seen before keep every promise."""
    count = (FRESH_COUNT + 1) // 2
    seeds = f"{FRESH_FIRST}..{FRESH_FIRST + count - 1}"
    printed = simulate("--seed", seeds, "--nodes", nodes, "--minutes", "0.3", "--keep-going", count=count)
    assert len(HASH.findall(printed)) == count


def test_fresh_seeds_with_clients_of_redis_find_nothing() -> None:
    """What the Redis face promises of lost answers is kept in worlds that nobody has seen before."""
    seeds = f"{FRESH_FIRST}..{FRESH_FIRST + 2}"
    simulate("--seed", seeds, "--minutes", "0.2", "--redis", "5", "--keep-going", count=3)


def test_same_seed_is_the_same_run() -> None:
    """Processes with different hash seeds simulate the same worlds, alone or after others."""
    one = simulate("--seed", "21..24", "--minutes", "1", hash_seed="1", count=4)
    two = simulate("--seed", "21..24", "--minutes", "1", hash_seed="2", count=4)
    alone = simulate("--seed", "24", "--minutes", "1", hash_seed="3")
    redis = [simulate("--seed", "24", "--minutes", "0.2", "--redis", "5", hash_seed=seed) for seed in "12"]
    assert HASH.findall(redis[0]) == HASH.findall(redis[1])
    hashes = HASH.findall(one)
    assert hashes == HASH.findall(two)
    assert hashes[-1:] == HASH.findall(alone)
    assert len(set(hashes)) == 4


def test_trace_tells_everything(tmp_path: Path) -> None:
    """The trace in a file has what nodes, clients and the world did, in the order of time."""
    file = tmp_path / "trace.txt"
    simulate("--seed", "1", "--minutes", "0.5", "--trace", str(file))
    lines = file.read_text("utf-8").splitlines()
    told = {line.split()[2] for line in lines if not line.startswith(" ")}
    assert {"recovered", "started", "follows", "sent", "applied", "asks", "hears", "fault", "heal"} <= told
