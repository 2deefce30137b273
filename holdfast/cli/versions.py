"""The command `version`: what the client and each node run, and which rules the cluster follows."""

import argparse
from typing import Final

import msgspec

from holdfast import __version__
from holdfast.cli.held_rules import holding_back, rules_lines, rules_newest
from holdfast.cli.inspector import Inspector
from holdfast.cli.parsing import CommandParser
from holdfast.cli.printing import TABLE, Columns, field, print_lines, print_one, table
from holdfast.operations import cluster_operations
from holdfast.values.answers import ClusterInfo

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
