"""What a sync of the journal costs, with the file kept ahead of the log and without.

Run by `scripts/bench journal`. Both ways take turns, because disks differ more from minute to minute
than the two from each other.
"""

import argparse
import json
import random
import shutil
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from cluster.storage.journal import Journal
from cluster.storage.segment_writer import PREPARED_BYTES, SEGMENT_BYTES, Sizes
from lab.bench import options

DESCRIPTION: Final = "Measure Journal.sync of one block, with and without space prepared ahead of the log."
_COLUMNS: Final = (
    ("mean_ms", "mean ms", "{:.3f}"),
    ("p50_ms", "p50", "{:.3f}"),
    ("p99_ms", "p99", "{:.3f}"),
    ("worst_ms", "worst", "{:.2f}"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of this benchmark."""
    options.add_number(parser, "--block", 4096, "size of the command in each block", metavar="BYTES")
    options.add_number(parser, "--syncs", 2000, "syncs per round")
    options.add_number(parser, "--rounds", 5, "rounds of each kind")
    options.add_number(parser, "--prepared", PREPARED_BYTES, "step of preparation", metavar="BYTES")
    options.add_disk(parser, "the journal is written")
    options.add_json(parser)


def _round(disk: Path, sizes: Sizes, syncs: int, command: bytes) -> list[float]:
    """Return how long each sync of a fresh journal took, in seconds."""
    directory = Path(tempfile.mkdtemp(prefix="holdfast-bench-", dir=disk))
    try:
        journal = Journal.open(directory, sizes=sizes)
        took_s = []
        for index in range(1, syncs + 1):
            journal.add(command, index, 1)
            began_s = time.perf_counter()
            journal.sync()
            took_s.append(time.perf_counter() - began_s)
        journal.close()
    finally:
        shutil.rmtree(directory)
    return took_s


def _figures(took_s: list[float]) -> dict[str, float]:
    took_s = sorted(took_s)
    return {
        "mean_ms": statistics.fmean(took_s) * 1000,
        "p50_ms": took_s[len(took_s) // 2] * 1000,
        "p99_ms": took_s[int(len(took_s) * 0.99)] * 1000,
        "worst_ms": took_s[-1] * 1000,
    }


def measure(disk: Path, block_bytes: int, syncs: int, rounds: int, prepared_bytes: int) -> dict[str, Any]:
    """Return the figures of both ways, and the ratio of their means in each round."""
    command = random.randbytes(block_bytes)
    ways = {"growing": Sizes(SEGMENT_BYTES, 0), "prepared": Sizes(SEGMENT_BYTES, prepared_bytes)}
    took_s: dict[str, list[float]] = {way: [] for way in ways}
    ratios = []
    for _ in range(rounds):
        means = {}
        for way, sizes in ways.items():
            of_round = _round(disk, sizes, syncs, command)
            took_s[way] += of_round
            means[way] = statistics.fmean(of_round)
        ratios.append(means["growing"] / means["prepared"])
    return {**{way: _figures(took) for way, took in took_s.items()}, "ratios": sorted(ratios)}


def run(options: argparse.Namespace) -> int:
    """Measure as `options` say and print; return the exit code."""
    found = measure(options.disk, options.block, options.syncs, options.rounds, options.prepared)
    if options.json:
        print(json.dumps(found, indent=2))
        return 0
    print(f"{'':10}" + "".join(f"{title:>10}" for _, title, _ in _COLUMNS))
    for way in ("growing", "prepared"):
        cells = (f"{form.format(found[way][name]):>10}" for name, _, form in _COLUMNS)
        print(f"{way:10}" + "".join(cells))
    low, middle, high = (found["ratios"][place] for place in (0, len(found["ratios"]) // 2, -1))
    print(f"prepared is {middle:.2f} times as fast (rounds: {low:.2f} to {high:.2f})")
    return 0
