"""The end of a run: all nodes come to one revision, and there they are equal."""

import time
from typing import Any, Final

import msgspec

from lab.chaos.history import HistoryWriter, NodeState
from lab.chaos.lab import now_ns
from lab.chaos.targets.target import POLL_S, Target

EQUAL_S: Final = 30.0
"""Seconds within which all nodes come to one revision when nobody asks anything of them any more."""


class Ending(msgspec.Struct, kw_only=True):
    """How the cluster was left."""

    term: int
    problems: list[str]


def wait_equal(target: Target, history: HistoryWriter, timeout_s: float = EQUAL_S) -> Ending:
    """Wait until all nodes are at one revision, record what they are there, and tell what was not reached."""
    deadline_s = time.monotonic() + timeout_s
    while True:
        views = {node_id: target.status(node_id) for node_id in target.urls()}
        revisions = {view["revision"] if view else None for view in views.values()}
        if (len(revisions) == 1 and None not in revisions) or time.monotonic() > deadline_s:
            break
        time.sleep(POLL_S)
    problems = []
    if len(revisions) > 1 or None in revisions:
        said = ", ".join(f"{key} {view['revision'] if view else 'silent'}" for key, view in views.items())
        problems.append(f"after {timeout_s:.0f} s without clients the nodes are not at one revision: {said}")
    for node_id, view in views.items():
        if view is not None:
            history.write(_state(node_id, view))
    return Ending(
        term=max((int(view["term"]) for view in views.values() if view), default=0), problems=problems
    )


def _state(node_id: str, view: dict[str, Any]) -> NodeState:
    return NodeState(
        node=node_id,
        revision=int(view["revision"]),
        digest=str(view.get("digest", "")),
        at_ns=now_ns(),
        role="leader" if view["leader"] == node_id else "follower",
    )
