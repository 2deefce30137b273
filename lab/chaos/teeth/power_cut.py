"""A power cut that takes away what one node had not synced, at the moment when that matters most."""

import shutil
import time
from typing import ClassVar, Final

from lab.chaos.faults.bent import BentNode
from lab.chaos.targets.target import POLL_S, Ability, LabFailure

HANG_S: Final = 60.0
"""Each sync takes longer than all of this: what is written from now on is not synced."""
LAST_SYNC_S: Final = 0.3
"""Until then a sync that was under way has ended."""
UNSYNCED_S: Final = 1.5
SERVED_S: Final = 2.0
ELECTED_S: Final = 40.0


class PowerCut(BentNode):
    """A follower's disk hangs, it alone is left to acknowledge what the leader sends, and its power fails.

    Its directory becomes what it was when the last sync ended, which is what a disk may keep. Then the leader
    stands still: the others are a majority that has only those new entries that were synced.
    """

    name = "power-cut"
    text = "a follower, the only one that hears the leader, loses what it had not synced"
    needs: ClassVar[frozenset[Ability]] = frozenset({"disks", "processes", "directories"})
    lasts_s: ClassVar = (0.0, 0.0)
    weight = 0.0
    gap_s_max = 30.0

    def bend(self) -> None:
        """Do all of it. Raises LabFailure when the node leads, or the two elect nobody."""
        target, node_id = self.target, self._hit
        assert node_id is not None
        leader = target.leader()
        if leader == node_id:
            raise LabFailure(f"{node_id} leads: let another one lead before its power is cut")
        others = [other for other in target.urls() if other not in (node_id, leader)]
        data = target.cluster.data_dir(node_id)
        synced = data.with_name("synced")
        for other in others:
            target.kill(other)  # one that is only stopped would find in its sockets what it missed
        self.control.disk(delay_s=HANG_S)
        time.sleep(LAST_SYNC_S)
        shutil.copytree(data, synced)
        time.sleep(UNSYNCED_S)
        target.kill(node_id)
        target.pause(leader)
        try:
            shutil.rmtree(data)
            synced.rename(data)
            self.control.disk()
            for down in (node_id, *others):
                target.start(down)
            self._wait_for_leader([node_id, *others])
            time.sleep(SERVED_S)
        finally:
            target.resume(leader)

    def end(self) -> None:
        """Start whoever is down."""
        super().end()
        for node_id in self.target.urls():
            self.target.start(node_id)

    def _wait_for_leader(self, node_ids: list[str]) -> None:
        """Wait until one of some nodes leads."""
        deadline_s = time.monotonic() + ELECTED_S
        while time.monotonic() < deadline_s:
            for node_id in node_ids:
                view = self.target.status(node_id)
                if view is not None and view["leader"] == node_id:
                    return
            time.sleep(POLL_S)
        raise LabFailure(f"none of {', '.join(node_ids)} has led for {ELECTED_S:.0f} s")
