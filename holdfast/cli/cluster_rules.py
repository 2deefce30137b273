"""The command `cluster rules`: whether the cluster follows newer rules as soon as all nodes know them."""

import argparse

from holdfast.cli.inspector import Inspector
from holdfast.cli.parsing import CommandParser
from holdfast.cli.printing import print_one
from holdfast.operations import cluster_operations


def add_parser(cluster: CommandParser) -> None:
    """Describe the commands, below `cluster`."""
    rules = cluster.command(
        "rules",
        "decide when the cluster follows newer rules, after which there is no way back",
        description="Decide when the cluster follows newer rules. It does so by itself once all nodes know"
        " them, and from then on no older release can run in it. See also `holdfast version`.",
    )
    hold = rules.command("hold", "keep to the rules of now, even when all nodes know newer ones", _hold)
    release = rules.command("release", "follow newer rules once all nodes know them", _release)
    for parser in (hold, release):
        parser.add_reason()
        parser.add_output()


async def _hold(client: Inspector, arguments: argparse.Namespace) -> int:
    """Hold the rules, and print which these are."""
    answer = await client.told(cluster_operations.hold_rules(arguments.reason, is_held=True))
    still = "still " if answer["was_held"] else ""
    text = f"rules {answer['rules']} are {still}held, until `holdfast cluster rules release`"
    print_one(answer, [text], arguments.output)
    return 0


async def _release(client: Inspector, arguments: argparse.Namespace) -> int:
    """Release the rules, and print which these are; newer ones follow by themselves."""
    answer = await client.told(cluster_operations.hold_rules(arguments.reason, is_held=False))
    said = "are released" if answer["was_held"] else "were not held"
    print_one(answer, [f"rules {answer['rules']} {said}; see `holdfast version`"], arguments.output)
    return 0
