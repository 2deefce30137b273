"""Why an operation was not done: what each node has said or done last, and what to look at next. No I/O."""

from collections.abc import Mapping, Sequence
from typing import Final

NOT_A_NODE: Final = "not-a-node"
"""The code of an answer that no Holdfast node gives."""

NEXT_STEPS: Final[Mapping[str, str]] = {
    "unavailable": "Do nodes run at these URLs, and can this machine reach them?",
    "no-leader": "More than half of the nodes have to run and to reach each other: see `holdfast status`.",
    "shutting-down": "Is the cluster being stopped?",
    "overloaded": "The cluster has more to do than it can: ask less, or later.",
    "queue-full": "Too many wait for this already: ask later.",
    "upgrade-pending": "Restart the nodes that still run the release before.",
    NOT_A_NODE: "Is this the port for clients, which is 7700 unless --http says otherwise?",
}
"""What to do about the last reason, by its code."""


class Reasons:
    """What each of the nodes that were asked has said or done last."""

    def __init__(self, urls: Sequence[str]) -> None:
        self._urls = urls
        self._by_node: dict[int, str] = {}

    def note(self, node: int, detail: str) -> None:
        """Note why this node has not done it."""
        url = self._urls[node] if node < len(self._urls) else f"node {node + 1}"
        self._by_node[node] = detail if detail.startswith(url) else f"{url}: {detail}"

    def last_of(self, node: int) -> str:
        """Return why this node has not done it; empty if it was not asked."""
        return self._by_node.get(node, "")

    def told(self, code: str) -> str:
        """Return all of them, with the next step for the last one, which has this code."""
        all_of_them = "; ".join(self._by_node[node] for node in sorted(self._by_node))
        step = NEXT_STEPS.get(code, "")
        return f"{all_of_them}. {step}" if step else all_of_them
