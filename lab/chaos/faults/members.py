"""Members that come, go, and are replaced; leaders that hand over again and again; memory that is short."""

import resource
import shutil
import time
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final, Protocol

from lab.chaos.faults.fault import Fault
from lab.chaos.targets.processes import ProcessTarget
from lab.chaos.targets.target import Ability, LabFailure, Target
from scripts.lib import cluster_file

CHANGE_S: Final = 60.0
"""Seconds within which a change of the members is made."""
REASON: Final = "chaos"
"""Why the members change, as the audit has it."""
ROOM_BYTES: Final = 4 * 1024 * 1024


class Asked(Protocol):
    """A cluster whose nodes can be asked."""

    def urls(self) -> Mapping[str, str]:
        """Return the URL of each node."""

    def ask(
        self, node_id: str, path: str, timeout_s: float = ..., *, method: str = ..., body: object = ...
    ) -> tuple[int, Any] | None:
        """Send one request; None if unanswered."""


def add_member(target: Asked, node_id: str, peer: str) -> None:
    """Add a node that runs, and wait until it counts. Raises LabFailure."""
    _change(
        target,
        "POST",
        {"id": node_id, "peer": peer, "reason": REASON},
        lambda states: states.get(node_id) == "voter",
    )


def remove_member(target: Asked, node_id: str) -> None:
    """Remove a node, whether it runs or not. Raises LabFailure."""
    _change(target, "DELETE", {"id": node_id, "reason": REASON}, lambda states: node_id not in states)


def _change(
    target: Asked, method: str, body: dict[str, str], is_made: Callable[[dict[str, str]], bool]
) -> None:
    """Ask for a change, of any node that answers, until it is made."""
    deadline_s = time.monotonic() + CHANGE_S
    said: object = "no answer"
    while time.monotonic() < deadline_s:
        for asked in [node_id for node_id in target.urls() if node_id != body["id"]]:
            answer = target.ask(asked, "/v1/cluster/members", method=method, body=body, timeout_s=10.0)
            if answer is None:
                continue
            said = answer
            members = (answer[1] or {}).get("members")
            if members is not None and is_made({member["id"]: member["state"] for member in members}):
                return
        time.sleep(0.1)
    raise LabFailure(f"the members could not be changed ({method} {body}): {said}")


class TransferStorm(Fault[Target]):
    """Leadership is handed around."""

    name = "transfer-storm"
    text = "leadership is handed to a random node, ten times in a row"
    needs: ClassVar[frozenset[Ability]] = frozenset({"members"})
    lasts_s: ClassVar = (0.0, 0.0)
    gap_s_max = 1.0

    def begin(self) -> list[str]:
        """Ask for it; a refusal because one is under way is as good."""
        nodes = sorted(self.target.urls())
        for _ in range(10):
            asked, to = self.chance.choice(nodes), self.chance.choice(nodes)
            self.target.ask(
                asked, "/v1/cluster/transfer-leadership", method="POST", body={"to": to, "reason": REASON}
            )
            time.sleep(self.chance.uniform(0.0, 0.3))
        return nodes

    def end(self) -> None:
        """Do nothing: somebody leads."""


class MemberAdded(Fault[ProcessTarget]):
    """A node joins the running cluster, and leaves it again."""

    name = "member-added"
    text = "a further node joins, counts, and is removed at the end"
    needs: ClassVar[frozenset[Ability]] = frozenset({"members", "directories"})
    gap_s_max = 1.0
    _node_id: str | None = None

    def begin(self) -> list[str]:
        """Start it with an empty directory and add it."""
        cluster = self.target.cluster
        taken = {node.id for node in cluster.nodes()}
        node_id = next(f"n{number}" for number in range(len(taken) + 1, 99) if f"n{number}" not in taken)
        peer = cluster.make_node(node_id)
        self._node_id = node_id
        cluster.start(node_id)
        add_member(self.target, node_id, peer)
        return [node_id]

    def end(self) -> None:
        """Remove it, and all that is left of it."""
        node_id, self._node_id = self._node_id, None
        if node_id is not None:
            remove_member(self.target, node_id)
            cluster = self.target.cluster
            cluster.kill(node_id)
            cluster_file.forget_node(cluster.directory, node_id)
            shutil.rmtree(cluster.directory / node_id)


class LostDisk(Fault[ProcessTarget]):
    """A disk is lost; its node is replaced under its own id."""

    name = "lost-disk"
    text = "a node dies and its disk is emptied; started so it is refused; then it is replaced"
    needs: ClassVar[frozenset[Ability]] = frozenset({"members", "directories", "processes"})
    gap_s_max = 1.0
    _hit: str | None = None

    def begin(self) -> list[str]:
        """Lose it, and start the node as if nothing had happened: it must end by itself, refused."""
        cluster = self.target.cluster
        node_id = self._hit = self.some_node()
        cluster.kill(node_id)
        shutil.rmtree(cluster.data_dir(node_id))
        if node_id not in cluster_file.read(cluster.directory).get("joined", []):
            cluster.start(node_id)
            if not cluster.wait_exit(node_id, CHANGE_S):
                raise LabFailure(f"{node_id} has an empty disk and was not refused")
        return [node_id]

    def end(self) -> None:
        """Remove it, and let it join anew."""
        node_id, self._hit = self._hit, None
        if node_id is not None:
            cluster = self.target.cluster
            remove_member(self.target, node_id)
            cluster.kill(node_id)
            shutil.rmtree(cluster.data_dir(node_id), ignore_errors=True)
            cluster_file.let_join(cluster.directory, node_id)
            cluster.start(node_id)
            add_member(self.target, node_id, cluster.node(node_id).peer)


class MemoryLimit(Fault[ProcessTarget]):
    """A node gets hardly more memory than it has."""

    name = "memory-limit"
    text = "a node may take 4 MiB more than it has (RLIMIT_AS); what dies of it is started again"
    needs: ClassVar[frozenset[Ability]] = frozenset({"limits", "processes"})
    lasts_s: ClassVar = (2.0, 6.0)
    gap_s_max = 4.0
    _hit: str | None = None

    def begin(self) -> list[str]:
        """Set the limit on the running process."""
        node_id = self._hit = self.some_node()
        pid = self.target.cluster.node(node_id).pid
        limit = self._size_bytes(pid) + ROOM_BYTES
        resource.prlimit(pid, resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))
        return [node_id]

    def end(self) -> None:
        """Lift it, or start the node again if it has died of it."""
        node_id, self._hit = self._hit, None
        if node_id is None:
            return
        cluster = self.target.cluster
        if cluster.is_alive(node_id):
            unlimited = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
            resource.prlimit(cluster.node(node_id).pid, resource.RLIMIT_AS, unlimited)
        else:
            self.say(f"{node_id} died for want of memory")
        self.target.start(node_id)

    def _size_bytes(self, pid: int) -> int:
        """Return how much address space a process has."""
        with open(f"/proc/{pid}/statm") as file:  # noqa: PTH123 - one line of the kernel's
            return int(file.read().split()[0]) * resource.getpagesize()
