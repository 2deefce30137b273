"""Processor time: what nodes and client have used up to a moment, and what others took meanwhile."""

import contextlib
import os
import time
from collections.abc import Collection
from pathlib import Path
from typing import Final, NamedTuple

from scripts.lib import processes

_BUSY: Final = slice(0, 3)
"""Of the fields of the line `cpu` of /proc/stat: user, nice, system; idle, iowait; irq, softirq, steal."""
_STEAL: Final = 7
_FIELDS: Final = 8


class Used(NamedTuple):
    """Processor seconds used up to a moment."""

    at_s: float
    nodes_s: float
    client_s: float
    machine_s: float

    @classmethod
    def now(cls, pids: Collection[int], helpers: Collection[int] = ()) -> "Used":
        """Look at the machine, this process and its helpers, and the nodes `pids` with all they started."""
        client_s = time.process_time() + _of_family(helpers)
        return cls(time.perf_counter(), _of_family(pids), client_s, machine_s())

    def others_percent(self, before: "Used", also_s: float = 0.0) -> float:
        """Return which share of all processors others used since `before`: the machine was not ours alone.

        `also_s` is what further processes of ours used meanwhile.
        """
        ours_s = self.nodes_s - before.nodes_s + self.client_s - before.client_s + also_s
        others_s = max(0.0, self.machine_s - before.machine_s - ours_s)
        return others_s / max(self.at_s - before.at_s, 1e-9) / (os.cpu_count() or 1) * 100


def _of_family(pids: Collection[int]) -> float:
    """Return what these processes have used, and those that they have started, as far as they run."""
    found_s = 0.0
    for pid in processes.family(pids) if pids else ():
        with contextlib.suppress(OSError):  # it has ended since
            found_s += processes.cpu_s(pid)
    return found_s


def machine_s() -> float:
    """Return the processor time that this machine has used since its start, or its host has kept from it."""
    fields = [int(field) for field in Path("/proc/stat").read_text().splitlines()[0].split()[1 : 1 + _FIELDS]]
    return (sum(fields[_BUSY]) + fields[_STEAL]) / os.sysconf("SC_CLK_TCK")
