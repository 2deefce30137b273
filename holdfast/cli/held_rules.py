"""What keeps a cluster at its rules: nodes that do not know newer ones, or an operator. No calls."""

from collections.abc import Iterator

from holdfast import wire
from holdfast.cli.printing import length
from holdfast.values.answers import ClusterInfo, NodeInfo


def rules_newest(info: ClusterInfo) -> int:
    """Return the newest rules that any node has said it knows."""
    return max([info.rules, *(node.rules for node in info.nodes)])


def rules_lines(info: ClusterInfo) -> list[str]:
    """Return who keeps the cluster at its rules, and what happens when that ends; nothing if nobody does."""
    hold, newest = info.rules_hold, rules_newest(info)
    if hold is None:
        return []
    by = f" by {hold.by}" if hold.by else ""
    lines = [f"rules {info.rules} have been held{by} for {length(hold.held_ms)}: {hold.reason}"]
    if newest > info.rules and not any(holding_back(info)):
        lines.append(
            f"the cluster can move to rules {newest}, with `holdfast cluster rules release`; then no way back"
        )
    return lines


def holding_back(info: ClusterInfo) -> Iterator[tuple[str, str]]:
    """Yield who keeps the cluster from advancing to the newest rules that a node knows, and why."""
    newest = rules_newest(info)
    if newest == info.rules:
        return
    for node in info.nodes:
        why = _why(node, newest)
        if why:
            yield node.id, why


def _why(node: NodeInfo, newest: int) -> str:
    if node.state == "unreachable":
        return "it cannot be reached: start it with the new release, or remove it"
    if node.rules < newest:
        return f"it runs {node.version or 'another version'}, which knows rules {node.rules}: upgrade it"
    return "it is joining" if node.state == wire.JOINING else ""
