"""The command `version`: what the client and each node run, and which rules the cluster follows."""

import argparse
from collections.abc import Iterator
from typing import Final

import msgspec

from holdfast import __version__, wire
from holdfast.cli.inspector import Inspector
from holdfast.cli.parsing import CommandParser
from holdfast.cli.printing import TABLE, Columns, field, length, print_lines, print_one, table
from holdfast.operations import cluster_operations
from holdfast.values.answers import ClusterInfo, NodeInfo

_NODES: Final[Columns] = {
    "ID": field("id"),
    "STATE": field("state"),
    "VERSION": lambda row: row.get("version") or "-",
    "RULES": lambda row: row.get("rules") or "-",
}


def add_parser(commands: CommandParser) -> None:
    """Describe the command."""
    commands.command(
        "version", "show what the client and the nodes run, and which rules the cluster follows", _version
    ).add_output()


async def _version(client: Inspector, arguments: argparse.Namespace) -> int:
    """Print the versions; that of the client even if no node answers."""
    if arguments.output == TABLE:
        print_lines([f"client {__version__}"])
    shown = await client.told(cluster_operations.cluster())
    info = msgspec.convert(shown, ClusterInfo)
    nodes, newest = shown.get("nodes", []), rules_newest(info)
    held_back = [{"id": node_id, "why": why} for node_id, why in holding_back(info)]
    told = {
        "client": __version__,
        "rules": info.rules,
        "rules_newest": newest,
        "held_back": held_back,
        "rules_hold": shown.get("rules_hold"),
        "nodes": [{name: row.get(name) for name in ("id", "state", "version", "rules")} for row in nodes],
    }
    lines = [
        *table(_NODES, nodes),
        f"rules {info.rules} are active, {newest} are the newest that a node knows",
    ]
    lines += [f"{each['id']} holds the advance to rules {newest} back: {each['why']}" for each in held_back]
    lines += rules_lines(info)
    print_one(told, lines, arguments.output)
    return 0


def rules_newest(info: ClusterInfo) -> int:
    """Return the newest rules that any node has said it knows."""
    return max([info.rules, *(node.rules for node in info.nodes)])


def rules_lines(info: ClusterInfo) -> list[str]:
    """Return who keeps the cluster at its rules, and what happens when that ends; nothing if nobody does."""
    hold, newest = info.rules_hold, rules_newest(info)
    if hold is None:
        return []
    by = f" by {hold.by}" if hold.by else ""
    lines = [f"rules {info.rules} are held{by} since {length(hold.held_ms)}: {hold.reason}"]
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
