"""A small cluster at its first start, beside the one that clients use, and a witness of what it promises."""

import http.client
import itertools
import json
import shutil
import time
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from lab.chaos.faults.fault import PromiseBroken
from lab.chaos.targets.processes import LabCluster
from lab.chaos.targets.target import LabFailure, fetch
from scripts.lib import cluster_file, ports

NODES: Final = ("f1", "f2", "f3")
"""The founders: other names than the nodes of the clients have."""
FOUNDED: Final = "event=founded "
ADVICE: Final = "empty all their data directories"
"""Of the sentence that says what to do when the founding cannot go on."""
RECORD: Final = "cluster.json"
"""The file in a data directory that says how far the founding has come."""
LOCK: Final = {"name": "founding/one", "ttl_ms": 86_400_000}
"""What the witness asks every node for. It is never given back, so at most one may ever grant it."""
ASK_S: Final = 1.0
POLL_S: Final = 0.1


class Founders:
    """Three nodes that found a cluster, none of which runs yet. Used by one thread."""

    def __init__(self, directory: Path) -> None:
        """Write the files of the cluster into an empty directory."""
        pairs = ports.of_cluster(ports.find_base(len(NODES)), len(NODES))
        addresses = {
            node_id: (f"{ports.HOST}:{http_port}", f"{ports.HOST}:{peer_port}")
            for node_id, (http_port, peer_port) in zip(NODES, pairs, strict=True)
        }
        cluster_file.create_at(directory, addresses)
        self.cluster = LabCluster(directory)
        self._turns = itertools.count()
        self._leaders: dict[int, set[str]] = defaultdict(set)
        self.granted: list[str] = []
        """The nodes that have granted the lock."""

    # -- what is done to it ---------------------------------------------------------------------------------

    def start(self, *node_ids: str) -> None:
        """Start nodes."""
        for node_id in node_ids:
            self.cluster.start(node_id)

    def lose_disk(self, node_id: str) -> None:
        """Kill a node, and empty its directory."""
        self.cluster.kill(node_id)
        shutil.rmtree(self.cluster.data_dir(node_id), ignore_errors=True)

    def begin_anew(self) -> None:
        """Stop all nodes, empty all data directories, and start again. Raises PromiseBroken.

        Only what has promised nothing may be repaired in this way.
        """
        self.witness()
        if self.granted:
            raise PromiseBroken(f"{self.granted[0]} granted a lock, and no node says that it was founded")
        for node_id in NODES:
            self.lose_disk(node_id)
        self._leaders.clear()
        self.start(*NODES)

    def stop(self) -> None:
        """Kill all."""
        for node_id in NODES:
            self.cluster.kill(node_id)

    # -- how it does ----------------------------------------------------------------------------------------

    def urls(self) -> Mapping[str, str]:
        """Return the URL of each node."""
        return {node.id: node.http for node in self.cluster.nodes()}

    def ask(
        self, node_id: str, path: str, timeout_s: float = ASK_S, *, method: str = "GET", body: object = None
    ) -> tuple[int, Any] | None:
        """Send one request; None if unanswered, and no JSON is None, too."""
        answer = fetch(self.cluster.connection(node_id, timeout_s), path, method=method, body=body)
        if answer is None:
            return None
        try:
            return answer[0], json.loads(answer[1])
        except ValueError:
            return answer[0], None

    def stored_count(self) -> int:
        """Return how many nodes have stored something of the founding, as their disks say."""
        return sum((self.cluster.data_dir(node_id) / RECORD).exists() for node_id in NODES)

    def have_founded(self, *node_ids: str) -> bool:
        """Whether any of these nodes has ever said that the cluster is founded."""
        return any(FOUNDED in self._said(node_id) for node_id in node_ids)

    def is_advice_given(self) -> bool:
        """Whether any node has said what to do."""
        return any(ADVICE in self._said(node_id) for node_id in NODES)

    def are_ready(self, *node_ids: str) -> bool:
        """Whether these nodes serve, and name one leader."""
        answers = [self.ask(node_id, "/readyz") for node_id in node_ids]
        if any(answer is None or answer[0] != http.client.OK for answer in answers):
            return False
        leaders = {self._view(node_id).get("leader") for node_id in node_ids}
        return len(leaders) == 1 and None not in leaders

    def _view(self, node_id: str) -> dict[str, Any]:
        """Return the cluster as a node sees it, empty if it does not say."""
        match self.ask(node_id, "/v1/cluster"):
            case (200, dict() as view):
                return view
            case _:
                return {}

    def _said(self, node_id: str) -> str:
        """Return all that a node has logged."""
        log = self.cluster.log(node_id)
        return log.read_text(errors="replace") if log.exists() else ""

    # -- the witness ----------------------------------------------------------------------------------------

    def witness(self) -> None:
        """Ask every node who leads, and for the lock.

        Raises PromiseBroken for two leaders of a term, and for two holders.
        """
        for node_id in NODES:
            view = self._view(node_id)
            if view.get("leader") == node_id:
                self._leaders[view["term"]].add(node_id)
            self._acquire(node_id)
        for term, leaders in self._leaders.items():
            if len(leaders) > 1:
                raise PromiseBroken(f"{', '.join(sorted(leaders))} lead in term {term}")
        if len(self.granted) > 1:
            raise PromiseBroken(f"{' and '.join(self.granted)} granted one lock, which nobody gave back")

    def _acquire(self, node_id: str) -> None:
        """Ask a node for the lock, each time as somebody else."""
        body = LOCK | {"owner": f"witness-{next(self._turns)}"}
        answer = self.ask(node_id, "/v1/locks/acquire", method="POST", body=body)
        if answer is not None and answer[0] == http.client.OK:
            self.granted.append(node_id)

    def watch_until_ready(self, timeout_s: float, *node_ids: str) -> None:
        """Watch until these nodes serve and the lock was granted. Raises PromiseBroken, LabFailure."""
        deadline_s = time.monotonic() + timeout_s
        while not (self.are_ready(*node_ids) and self.granted):
            self.witness()
            if time.monotonic() > deadline_s:
                raise LabFailure(
                    f"{', '.join(node_ids)} are not ready {timeout_s:.0f} s after they were repaired as"
                    f" documented:\n{self.last_words()}"
                )
            time.sleep(POLL_S)
        self.witness()

    def last_words(self) -> str:
        """Return the ends of all logs."""
        return "\n".join(f"{node_id}:\n{self.cluster.log_tail(node_id)}" for node_id in NODES)
