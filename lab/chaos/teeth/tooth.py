"""One thing that is wrong on purpose, and the cluster that has it: somebody must object."""

from collections.abc import Callable, Mapping
from typing import ClassVar, Final

import msgspec

from lab.chaos.checkers.catalogue import check_all
from lab.chaos.checkers.violation import Violation
from lab.chaos.defective_node import wrapper
from lab.chaos.history import History, HistoryWriter
from lab.chaos.lab import Lab, Workload
from lab.chaos.targets.processes import ProcessTarget
from lab.chaos.targets.target import READY_S, LabFailure
from lab.chaos.teeth.repeating_proxy import RepeatingProxy

NODE: Final = "n1"
"""The one that is wrong."""
FAILED: Final = "event=node-failed"
"""What a node logs that ends because of what it is itself, such as a state that others do not have."""


class Tooth(msgspec.Struct, frozen=True, kw_only=True):
    """Something that is wrong, and under what load and faults it does harm soon."""

    name: str
    sentence: str
    """What is wrong."""
    workloads: tuple[type[Workload], ...]
    schedule: str = ""
    """The faults of each round, as a file of them."""
    round_s: float = 8.0
    """How long clients run before checkers look; then the next round begins."""
    mutation: str = ""
    """The defect of the node, from the simulation's list."""
    repeats: bool = False
    """Whether a proxy in front of the node repeats answers."""
    objections: Callable[[History], list[Violation]] = check_all
    is_sound: bool = False
    """Nothing is wrong: nobody may object."""


class ToothTarget(ProcessTarget):
    """Three nodes, of which one may be wrong, or may be reached through a proxy that is."""

    name: ClassVar = "processes"

    def __init__(self, tooth: Tooth) -> None:
        super().__init__(nodes=3)
        self._tooth = tooth
        self._proxy: RepeatingProxy | None = None

    def open(self) -> None:
        """Start the nodes, and make one wrong."""
        super().open()
        try:
            if self._tooth.mutation:
                self.cluster.node_wrappers[NODE] = wrapper(self._tooth.mutation)
                self.cluster.terminate(NODE)
                self.cluster.start(NODE)
            self.wait_ready()
            if self._tooth.repeats:
                self._proxy = RepeatingProxy(self.urls()[NODE])
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Stop everything."""
        proxy, self._proxy = self._proxy, None
        if proxy is not None:
            proxy.close()
        super().close()

    def lab(self, history: HistoryWriter, *, seed: int, scale: float) -> Lab:
        """Return the cluster as clients see it: one node through the proxy, if there is one."""
        nodes: Mapping[str, str] = self.urls()
        if self._proxy is not None:
            nodes = dict(nodes) | {NODE: self._proxy.url}
        return Lab(nodes, history, seed=seed, scale=scale)

    def verdict_of_the_cluster(self) -> str:
        """Return which node has ended by itself and why, empty if none has."""
        if self._cluster is None:
            return ""
        for node in self._cluster.nodes():
            log = self._cluster.log(node.id)
            text = log.read_text(errors="replace") if log.exists() else ""
            for line in text.splitlines():
                if FAILED in line:
                    return f"{node.id} has ended: {line}"
        return ""

    def wait_ready(self, timeout_s: float = READY_S) -> None:
        """Wait for all nodes, but not for one that the cluster has stopped. Raises LabFailure."""
        if self.verdict_of_the_cluster():
            raise LabFailure(self.verdict_of_the_cluster())
        super().wait_ready(timeout_s)
