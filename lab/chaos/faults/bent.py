"""A node whose disk or clock is bent: it runs under the lab's library (shim) as long as the fault lasts."""

from abc import abstractmethod

from lab.chaos.faults.fault import Fault
from lab.chaos.faults.members import REASON
from lab.chaos.shim.control import ShimControl
from lab.chaos.targets.processes import ProcessTarget


class BentNode(Fault[ProcessTarget]):
    """Starts one node anew under the library, makes it lead every second time, and bends it.

    The others run as they always do, with the kernel's own syncs and clocks.
    """

    _hit: str | None = None
    control: ShimControl

    @abstractmethod
    def bend(self) -> None:
        """Say to `self.control` what is to happen."""

    def begin(self) -> list[str]:
        """Start it anew, and bend it once it is well."""
        target = self.target
        cluster = target.cluster
        node_id = self._hit = self.some_node()
        wants_leader = self.options.get("node") == "leader" or (
            "node" not in self.options and self.chance.random() < 0.5  # noqa: PLR2004
        )
        self.control = ShimControl(cluster.directory / f"{node_id}.shim")
        cluster.terminate(node_id)
        cluster.node_variables[node_id] = self.control.environment(target.library)
        cluster.start(node_id)
        target.wait_ready()
        if wants_leader:
            target.ask(
                node_id,
                "/v1/cluster/transfer-leadership",
                method="POST",
                body={"to": node_id, "reason": REASON},
            )
        self.bend()
        return [f"{node_id}, leading" if target.leader() == node_id else node_id]

    def end(self) -> None:
        """Start it without the library, whatever has become of it."""
        node_id, self._hit = self._hit, None
        if node_id is not None:
            cluster = self.target.cluster
            cluster.node_variables.pop(node_id, None)
            if hasattr(self, "control"):
                self.control.disk()
                self.control.close()
            cluster.terminate(node_id)
            cluster.start(node_id)
