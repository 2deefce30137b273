"""scripts/bench smoke: that the benchmarks run, and what they say here and now. Nobody judges the figures."""

import shlex
from collections.abc import Callable, Sequence
from typing import Final

from lab.bench import peers
from lab.peers import ours

INTERRUPTED: Final = 130
STEPS: Final = (
    "http --workers 1,64 --seconds 2",
    "stream --workers 1,256 --seconds 2",
    "sdk --seconds 2",
    "handoff --seconds 1",
    "failover --kills 1 --stops 0 --transfers 1",
    "memory --locks 20000 --leases 2000 --gather 1",
    "growth --locks 10000 --sessions 500 --watchers 50 --streams 100 --workers 64 --seconds 1",
    "fairness --only listing,busy --seconds 1",
)
WITH_PEERS: Final = "peers --workers 64 --seconds 2 --warm-up 1"
"""Run as well if at least one of the other systems is installed."""
DESCRIPTION: Final = (
    "Run, one after the other and for a few seconds each: "
    + "; ".join(STEPS)
    + f"; and, if one of the systems that it knows is installed, {WITH_PEERS}. The figures are printed and"
    " not judged: the exit code is 1 only if something could not be measured, or an answer was an error."
)


def run(bench: Callable[[Sequence[str]], int]) -> int:
    """Call scripts/bench with each of the steps; return the exit code."""
    code = 0
    for step in (*STEPS, *([WITH_PEERS] if has_peers() else [])):
        print(f"=== scripts/bench {step}", flush=True)
        found = bench(shlex.split(step))
        if found == INTERRUPTED:
            return found
        code = code or found
    return code


def has_peers() -> bool:
    """Whether one of the other systems is installed."""
    return any(system.name != ours.NAME and not system.missing() for system in peers.SYSTEMS)
