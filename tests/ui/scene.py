"""A cluster in which much is going on: what pages and pictures show."""

import http.client
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from holdfast import wire
from scripts.local_cluster import ASK_S, LocalCluster
from tests.ui.browsing import call

LONG_MS: Final = 3_600_000
MARKUP: Final = "<img src=x onerror=document.title='hit'>"
"""What somebody would call a lock to run a script in an operator's browser."""


class Scene:
    """What clients hold and wait for. A wait lasts until the scene ends."""

    def __init__(self, cluster: LocalCluster) -> None:
        self.cluster = cluster
        self._waits: list[http.client.HTTPConnection] = []

    def session(self, **labels: str) -> str:
        """Open a session."""
        return str(call(self.cluster, "POST", wire.SESSIONS, ttl_ms=LONG_MS, labels=labels)["session_id"])

    def hold(self, name: str, owner: str, session_id: str = "", **fields: Any) -> Any:
        """Acquire a lock, in a session or with a lease of its own."""
        lives = {"session_id": session_id} if session_id else {"ttl_ms": LONG_MS}
        return call(self.cluster, "POST", wire.LOCK_ACQUIRE, name=name, owner=owner, **lives, **fields)

    def wait(self, path: str, **body: Any) -> None:
        """Begin to wait, and do not look at the answer."""
        connection = self.cluster.connection("n1", ASK_S)
        self._waits.append(connection)
        connection.request("POST", path, json.dumps({"wait_ms": LONG_MS, **body}))

    def end(self) -> None:
        """Give up all waits, end all sessions and holds, and thaw what is frozen."""
        for connection in self._waits:
            connection.close()
        for row in call(self.cluster, "GET", f"{wire.SESSIONS}?limit=1000")["sessions"]:
            body = {"session_name": row["session_name"], "reason": "the scene is over"}
            call(self.cluster, "POST", wire.SESSION_FORCE_CLOSE, **body)
        while rows := call(self.cluster, "GET", f"{wire.LOCKS}?limit=1000")["locks"]:
            for name in [row["name"] for row in rows if row["holders"]]:
                call(self.cluster, "POST", wire.LOCK_FORCE_RELEASE, name=name, reason="the scene is over")
        for frozen in call(self.cluster, "GET", wire.FREEZES)["freezes"]:
            path = wire.FREEZE.format(name=frozen["prefix"])
            call(self.cluster, "DELETE", path, reason="the scene is over")


@contextmanager
def playing(cluster: LocalCluster) -> Iterator[Scene]:
    """Return an empty scene, whatever was left of an earlier one; it is tidied up afterwards."""
    scene = Scene(cluster)
    scene.end()
    try:
        yield scene
    finally:
        scene.end()


def fill(scene: Scene) -> None:
    """Let there be something on every page."""
    billing, reports, deploy, search = (
        scene.session(app=app, host=f"rack-{number}")
        for number, app in enumerate(("billing", "reports", "deploy", "search"))
    )
    for number in range(4):
        earlier = scene.hold("db/migrate", f"billing-{number}", note="schema 41 to 42")
        call(scene.cluster, "POST", wire.LOCK_RELEASE, hold_id=earlier["hold_id"])
    scene.hold("db/migrate", "billing-7", billing, note="schema 42 to 43")
    scene.hold("db/users/42", "reports-1", reports)
    scene.hold("jobs/nightly", "deploy-2", deploy)
    scene.hold("files/2026/11", "search-0", search, mode="shared")
    scene.hold("files/2026/11", "reports-1", reports, mode="shared")
    scene.wait(wire.LOCK_ACQUIRE, name="jobs/nightly", owner="billing-7", session_id=billing)
    for owner, session_id in (("reports-1", reports), ("search-0", search)):
        scene.wait(wire.LOCK_ACQUIRE, name="db/migrate", owner=owner, session_id=session_id)
    for number in range(3):
        scene.wait(wire.LOCK_ACQUIRE, name="db/migrate", owner=f"web-{number}:312", ttl_ms=LONG_MS)
    for name, limit, permits, session_id in (("gpu", 8, 3, billing), ("licences", 5, 5, deploy)):
        body: dict[str, Any] = {"name": name, "limit": limit, "permits": permits, "session_id": session_id}
        call(scene.cluster, "POST", wire.SEMAPHORE_ACQUIRE, **body)
    scene.wait(wire.SEMAPHORE_ACQUIRE, name="licences", permits=2, session_id=search)
    campaign: dict[str, Any] = {
        "name": "scheduler",
        "value": "10.0.0.5:8080",
        "session_id": deploy,
        "owner": "deploy-2",
    }
    call(scene.cluster, "POST", wire.ELECTION_CAMPAIGN, **campaign)
    call(scene.cluster, "POST", wire.RATE_TAKE, name="mail/user-7", limit=100, window_ms=LONG_MS)
    call(scene.cluster, "PUT", wire.CELL.format(key="app/release"), value="v42")
    call(scene.cluster, "PUT", wire.NAMESPACE.format(name="jobs"), holds=100, reason="as agreed")
    call(scene.cluster, "PUT", wire.FREEZE.format(name="reports"), reason="the disk is moved")
    call(scene.cluster, "PUT", wire.QUOTA.format(principal="ci"), sessions=50, reason="as agreed")
