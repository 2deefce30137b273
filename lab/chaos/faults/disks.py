"""Disks that are slow, full, or fail, and what a loss of power leaves at the end of a log."""

import errno
import secrets
from typing import ClassVar, Final

from lab.chaos.faults.bent import BentNode
from lab.chaos.faults.fault import Fault
from lab.chaos.targets.processes import ProcessTarget
from lab.chaos.targets.target import Ability

TORN_BYTES_MAX: Final = 4096


class SlowDisk(BentNode):
    """Syncs that take long."""

    name = "slow-disk"
    text = "each sync of a node, the leader at times, takes 50 to 500 ms longer"
    needs: ClassVar[frozenset[Ability]] = frozenset({"disks"})
    lasts_s: ClassVar = (3.0, 8.0)
    gap_s_max = 4.0

    def bend(self) -> None:
        """Make them slow."""
        self.control.disk(delay_s=self.chance.uniform(0.05, 0.5))


class HangingDisk(BentNode):
    """Syncs that do not end for seconds."""

    name = "hanging-disk"
    text = "each sync of a node takes 5 s"
    needs: ClassVar[frozenset[Ability]] = frozenset({"disks"})
    lasts_s: ClassVar = (4.0, 8.0)
    gap_s_max = 4.0

    def bend(self) -> None:
        """Let them hang."""
        self.control.disk(delay_s=5.0)


class FailingDisk(BentNode):
    """Syncs that fail: the node must end, and lose nothing."""

    name = "failing-disk"
    text = "each sync of a node fails (EIO), so that it ends"
    needs: ClassVar[frozenset[Ability]] = frozenset({"disks"})
    gap_s_max = 4.0

    def bend(self) -> None:
        """Let them fail."""
        self.control.disk(sync_errno=errno.EIO)


class FullDisk(BentNode):
    """A disk on which nothing can grow."""

    name = "full-disk"
    text = "no file of a node can grow (ENOSPC)"
    needs: ClassVar[frozenset[Ability]] = frozenset({"disks"})
    lasts_s: ClassVar = (2.0, 6.0)
    gap_s_max = 4.0

    def bend(self) -> None:
        """Fill it."""
        self.control.disk(grow_errno=errno.ENOSPC)


class TornTail(Fault[ProcessTarget]):
    """What a write leaves that a loss of power has cut: some bytes of it behind the log."""

    name = "torn-tail"
    text = "a node is killed, and its log gets the torn begin of one more write"
    needs: ClassVar[frozenset[Ability]] = frozenset({"processes", "directories"})
    gap_s_max = 1.0
    _hit: str | None = None

    def begin(self) -> list[str]:
        """Kill it, and write behind the last byte that is not zero."""
        node_id = self._hit = self.some_node()
        self.target.kill(node_id)
        segments = sorted(self.target.cluster.data_dir(node_id).glob("journal-*.log"))
        with segments[-1].open("r+b") as file:
            end = len(file.read().rstrip(b"\0"))
            # Not at once behind it: a block may end with zeros of its own.
            file.seek(end + 64)
            file.write(secrets.token_bytes(self.chance.randrange(1, TORN_BYTES_MAX)))
        return [node_id]

    def end(self) -> None:
        """Start it."""
        node_id, self._hit = self._hit, None
        if node_id is not None:
            self.target.start(node_id)
