"""What a lab's cluster can do and have done to it. Everything here blocks: the lab calls it from a thread."""

import http.client
import json
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Final, Literal
from urllib.parse import urlsplit

from lab.chaos.history import HistoryWriter
from lab.chaos.lab import Lab

Ability = Literal["processes", "limits", "disks", "clocks", "members", "directories", "network", "containers"]
"""What faults need: signals to nodes; bounds on memory; slow, full and failing disks; clocks that are wrong;
changes of the members; files and command lines of nodes; a network that can be cut; containers."""

ASK_S: Final = 2.0
READY_S: Final = 90.0
POLL_S: Final = 0.05


class LabFailure(Exception):
    """The lab cannot be built or repaired. The message says what to do."""


class Target(ABC):
    """A cluster that clients speak to and faults break.

    A fault uses only what `abilities` has; what this machine cannot do is in `lacking`, with the reason.
    """

    name: ClassVar[str]

    def __init__(self) -> None:
        self.abilities: frozenset[Ability] = frozenset()
        self.lacking: dict[Ability, str] = {}

    # -- the cluster ----------------------------------------------------------------------------------------

    @abstractmethod
    def open(self) -> None:
        """Build it and wait until it serves. Raises LabFailure; what was built is taken down again."""

    @abstractmethod
    def close(self) -> None:
        """Take everything down. Idempotent, and right after a half-way `open`."""

    @abstractmethod
    def urls(self) -> Mapping[str, str]:
        """Return the URL of each node, as clients reach it."""

    @abstractmethod
    def log_tail(self, node_id: str) -> str:
        """Return the last lines that a node has logged."""

    def save_logs(self, directory: Path) -> None:
        """Keep what the nodes have said, as far as it is known here, as NODE.log in a directory."""
        for node_id in self.urls():
            (directory / f"{node_id}.log").write_text(self.log_tail(node_id))

    def lab(self, history: HistoryWriter, *, seed: int, scale: float) -> Lab:
        """Return the cluster as the clients of this target see it."""
        return Lab(self.urls(), history, seed=seed, scale=scale)

    def ask(
        self,
        node_id: str,
        path: str,
        timeout_s: float = ASK_S,
        *,
        method: str = "GET",
        body: object = None,
    ) -> tuple[int, Any] | None:
        """Send one request on a way that no fault cuts; None if unanswered, and no JSON is None, too."""
        answer = fetch(self.connection(node_id, timeout_s), path, method=method, body=body)
        if answer is None:
            return None
        try:
            return answer[0], json.loads(answer[1])
        except ValueError:
            return answer[0], None

    def ask_text(self, node_id: str, path: str, timeout_s: float = ASK_S) -> str | None:
        """Send one GET as `ask` does; return the body as text."""
        answer = fetch(self.connection(node_id, timeout_s), path)
        return None if answer is None else answer[1].decode(errors="replace")

    def connection(self, node_id: str, timeout_s: float) -> http.client.HTTPConnection:
        """Return a connection for one request to a node, on a way that no fault cuts; not yet open."""
        return http.client.HTTPConnection(urlsplit(self.urls()[node_id]).netloc, timeout=timeout_s)

    # -- single nodes, for those with the ability "processes" ------------------------------------------------

    def kill(self, node_id: str) -> None:
        """End a node at once. One that does not run stays so."""
        raise NotImplementedError

    def terminate(self, node_id: str) -> None:
        """Ask a node to stop and wait until it has."""
        raise NotImplementedError

    def start(self, node_id: str) -> None:
        """Start a node that does not run; does not wait for it."""
        raise NotImplementedError

    def pause(self, node_id: str) -> None:
        """Hold a node where it is."""
        raise NotImplementedError

    def resume(self, node_id: str) -> None:
        """Let a paused node run on. Others are not touched."""
        raise NotImplementedError

    # -- what is true now -----------------------------------------------------------------------------------

    def status(self, node_id: str) -> dict[str, Any] | None:
        """Return the cluster as a node sees it; None if it does not say."""
        match self.ask(node_id, "/v1/cluster"):
            case (200, dict() as view):
                return view
            case _:
                return None

    def leader(self, timeout_s: float = 30.0) -> str:
        """Return who leads: who says so in the newest term. Waits for one. Raises LabFailure."""
        deadline_s = time.monotonic() + timeout_s
        while True:
            views = [(node_id, self.status(node_id)) for node_id in self.urls()]
            leading = [
                (view["term"], node_id) for node_id, view in views if view and view["leader"] == node_id
            ]
            if leading:
                return str(max(leading)[1])
            if time.monotonic() > deadline_s:
                raise LabFailure(f"no node has led for {timeout_s:.0f} s")
            time.sleep(POLL_S)

    def followers(self) -> list[str]:
        """Return all nodes but the leader, in order."""
        leader = self.leader()
        return [node_id for node_id in sorted(self.urls()) if node_id != leader]

    def wait_ready(self, timeout_s: float = READY_S) -> None:
        """Wait until every node is ready and all name one leader. Raises LabFailure with the last words."""
        deadline_s = time.monotonic() + timeout_s
        while (reason := self._not_ready()) is not None:
            if time.monotonic() > deadline_s:
                node_id, text = reason
                raise LabFailure(
                    f"after {timeout_s:.0f} s {text}; last words of {node_id}:\n{self.log_tail(node_id)}"
                )
            time.sleep(POLL_S)

    def _not_ready(self) -> tuple[str, str] | None:
        """Return a node that is not ready, and in which way."""
        leaders: dict[str, str] = {}
        for node_id in self.urls():
            answer = self.ask(node_id, "/readyz")
            if answer is None or answer[0] != http.client.OK:
                return node_id, f"{node_id} is not ready ({answer[0] if answer else 'no answer'})"
            leaders[node_id] = str((self.status(node_id) or {}).get("leader"))
        if len(set(leaders.values())) > 1 or "None" in leaders.values():
            return next(iter(leaders)), f"the nodes agree on no leader: {leaders}"
        return None


def fetch(
    connection: http.client.HTTPConnection, path: str, *, method: str = "GET", body: object = None
) -> tuple[int, bytes] | None:
    """Send one request and close the connection; return status and body, or None if unanswered."""
    sent = None if body is None else json.dumps(body)
    try:
        connection.request(method, path, sent, {"Content-Type": "application/json"} if sent else {})
        response = connection.getresponse()
        return response.status, response.read()
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()
