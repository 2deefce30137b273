"""A disk that is lost in the middle of the first start, of a cluster of its own."""

import shutil
import tempfile
import time
from pathlib import Path
from typing import ClassVar, Final

from lab.chaos.faults.fault import Fault
from lab.chaos.faults.founders import NODES, POLL_S, Founders
from lab.chaos.faults.members import add_member, remove_member
from lab.chaos.targets.processes import ProcessTarget
from lab.chaos.targets.target import Ability, LabFailure
from scripts.lib import cluster_file

MOMENT_S: Final = 2.0
"""Seconds after the start within which a disk is lost at the latest."""
SETTLE_S: Final = 90.0
"""Seconds within which the nodes serve, or say what to do."""
SURE_S: Final = 3.0
"""Seconds for which nodes may still come to an end by themselves after one has said what to do."""
REPAIRED_S: Final = 90.0


class FoundingDiskLost(Fault[ProcessTarget]):
    """A founder loses its disk before the founding is known to be complete."""

    name = "founding-disk-lost"
    text = "beside the cluster another one is founded; a founder's disk is lost in the middle, and repaired"
    needs: ClassVar[frozenset[Ability]] = frozenset({"processes", "directories"})
    lasts_s: ClassVar = (0.0, 0.0)
    gap_s_max = 1.0
    _founders: Founders | None = None
    _directory: Path | None = None

    def begin(self) -> list[str]:
        """Found a cluster, lose a disk at a random moment, and repair what has to be as documented.

        Options: `node`, who loses its disk; `stored`, after how many founders have stored the founding; else
        by time.
        """
        self._directory = Path(tempfile.mkdtemp(prefix="founding-", dir=self.target.cluster.directory))
        founders = self._founders = Founders(self._directory)
        victim = self.options.get("node") or self.chance.choice(NODES)
        stored = int(self.options.get("stored") or self.chance.choice((0, 1, 2, 3)))
        founders.start(*NODES)
        self._wait_moment(founders, stored)
        founders.lose_disk(victim)
        founders.start(victim)
        self._repair(founders, victim)
        return [victim]

    def end(self) -> None:
        """Remove the cluster."""
        founders, self._founders = self._founders, None
        if founders is not None:
            founders.stop()
        directory, self._directory = self._directory, None
        if directory is not None:
            shutil.rmtree(directory, ignore_errors=True)

    def _wait_moment(self, founders: Founders, stored: int) -> None:
        """Wait until so many founders have stored the founding; for a random while if it is 0."""
        deadline_s = time.monotonic() + SETTLE_S
        if not stored:
            time.sleep(self.chance.uniform(0.0, MOMENT_S))
        while founders.stored_count() < stored and time.monotonic() < deadline_s:
            time.sleep(0.001)

    def _repair(self, founders: Founders, victim: str) -> None:
        """Wait for the end, and do what docs/operating.md says. Raises LabFailure, PromiseBroken."""
        others = [node_id for node_id in NODES if node_id != victim]
        self._settle(founders, victim)
        if founders.are_ready(*NODES):
            how = "all have founded the cluster"
        elif founders.have_founded(*others):
            how = "the founding was complete: the node is replaced"
            founders.watch_until_ready(REPAIRED_S, *others)
            self._replace(founders, victim)
        elif founders.is_advice_given():
            how = "the founding had begun: all begin anew"
            founders.begin_anew()
        else:
            raise LabFailure(f"nobody says what to do after a lost disk:\n{founders.last_words()}")
        founders.watch_until_ready(REPAIRED_S, *NODES)
        self.say(f"{self.name} of {victim}: {how}")

    def _settle(self, founders: Founders, victim: str) -> None:
        """Watch until all serve, the victim has ended, or somebody has said what to do."""
        deadline_s = time.monotonic() + SETTLE_S
        while time.monotonic() < deadline_s:
            founders.witness()
            if founders.are_ready(*NODES):
                return
            if founders.is_advice_given() or not founders.cluster.is_alive(victim):
                deadline_s = min(deadline_s, time.monotonic() + SURE_S)
            time.sleep(POLL_S)

    def _replace(self, founders: Founders, victim: str) -> None:
        """Remove the node that lost its disk, and let it join anew."""
        cluster = founders.cluster
        remove_member(founders, victim)
        cluster.kill(victim)
        shutil.rmtree(cluster.data_dir(victim), ignore_errors=True)
        cluster_file.let_join(cluster.directory, victim)
        cluster.start(victim)
        add_member(founders, victim, cluster.node(victim).peer)
