"""Nodes that die, stop, or stand still."""

import time
from typing import ClassVar, Final

from lab.chaos.faults.fault import Fault
from lab.chaos.targets.target import Ability, Target

PROCESSES: Final[frozenset[Ability]] = frozenset({"processes"})


class _Down(Fault[Target]):
    """Nodes that are killed, and started again."""

    needs: ClassVar = PROCESSES
    is_asked: ClassVar = False
    """Whether they are asked to stop (SIGTERM) instead."""

    def nodes(self) -> list[str]:
        """Return who is to go."""
        raise NotImplementedError

    def begin(self) -> list[str]:
        """End them, one right after the other."""
        self._hit = self.nodes()
        for node_id in self._hit:
            if self.is_asked:
                self.target.terminate(node_id)
            else:
                self.target.kill(node_id)
        return self._hit

    def end(self) -> None:
        """Start them."""
        for node_id in getattr(self, "_hit", []):
            self.target.start(node_id)


class KillFollower(_Down):
    """A follower dies."""

    name = "kill-follower"
    text = "kill -9 of a follower"
    gap_s_max = 0.5

    def nodes(self) -> list[str]:
        """Return one follower."""
        return [self.chance.choice(self.target.followers())]


class KillLeader(_Down):
    """The leader dies."""

    name = "kill-leader"
    text = "kill -9 of the leader"
    weight = 2.0
    gap_s_max = 1.0

    def nodes(self) -> list[str]:
        """Return the leader."""
        return [self.target.leader()]


class KillMajority(_Down):
    """More nodes die than a cluster can do without."""

    name = "kill-majority"
    text = "kill -9 of a majority, the leader among them"
    gap_s_max = 10.0

    def nodes(self) -> list[str]:
        """Return the leader and as many followers as it takes."""
        leader, followers = self.target.leader(), self.target.followers()
        return [leader, *self.chance.sample(followers, (len(followers) + 1) // 2)]


class KillAll(_Down):
    """The power of the whole room fails."""

    name = "kill-all"
    text = "kill -9 of all nodes at once"
    gap_s_max = 10.0

    def nodes(self) -> list[str]:
        """Return all, in any order."""
        nodes = sorted(self.target.urls())
        self.chance.shuffle(nodes)
        return nodes


class StopLeader(_Down):
    """The leader is asked to stop, as at a restart of its machine."""

    name = "stop-leader"
    text = "SIGTERM to the leader, which hands over and ends"
    is_asked = True
    gap_s_max = 0.5

    def nodes(self) -> list[str]:
        """Return the leader."""
        return [self.target.leader()]


class _Paused(Fault[Target]):
    """A node that stands still: SIGSTOP, beyond every lease and election, and SIGCONT."""

    needs: ClassVar = PROCESSES
    lasts_s: ClassVar = (2.0, 8.0)

    def node(self) -> str:
        """Return who is to stand still."""
        raise NotImplementedError

    def begin(self) -> list[str]:
        """Stop it where it is."""
        self._hit = self.node()
        self.target.pause(self._hit)
        return [self._hit]

    def end(self) -> None:
        """Let it run on, believing what it believed."""
        if hasattr(self, "_hit"):
            self.target.resume(self._hit)


class PauseLeader(_Paused):
    """The leader stands still, and wakes up as one who believes to lead."""

    name = "pause-leader"
    text = "SIGSTOP of the leader, beyond leases and elections"
    weight = 2.0
    gap_s_max = 2.0

    def node(self) -> str:
        """Return the leader."""
        return self.target.leader()


class PauseFollower(_Paused):
    """A follower stands still."""

    name = "pause-follower"
    text = "SIGSTOP of a follower"
    gap_s_max = 0.5

    def node(self) -> str:
        """Return one follower."""
        return self.chance.choice(self.target.followers())


class RollingRestart(Fault[Target]):
    """Every node is stopped and started, one after the other, as for an upgrade."""

    name = "rolling-restart"
    text = "SIGTERM and start of one node after the other, each when the one before is ready"
    needs: ClassVar = PROCESSES
    lasts_s: ClassVar = (0.0, 0.0)
    gap_s_max = 1.0

    def begin(self) -> list[str]:
        """Go through all of them, the leader last."""
        order = [*self.target.followers(), self.target.leader()]
        self._started = False
        for node_id in order:
            self.target.terminate(node_id)
            self.target.start(node_id)
            self.target.wait_ready()
        return order

    def end(self) -> None:
        """Do nothing: all were started."""


class PauseBriefly(Fault[Target]):
    """The leader stands still again and again, each time for less than it takes to lose it for good."""

    name = "stutter"
    text = "the leader stands still for 50 to 300 ms, ten times"
    needs: ClassVar = PROCESSES
    lasts_s: ClassVar = (0.0, 0.0)
    gap_s_max = 2.0

    def begin(self) -> list[str]:
        """Stop and go."""
        leader = self.target.leader()
        for _ in range(10):
            try:
                self.target.pause(leader)
                time.sleep(self.chance.uniform(0.05, 0.3))
            finally:
                self.target.resume(leader)
            time.sleep(self.chance.uniform(0.05, 0.3))
        return [leader]

    def end(self) -> None:
        """Do nothing: it runs."""
