"""The command `refusals`: what the nodes have refused because of who asked. Each remembers only its own."""

import argparse
from typing import Final

from holdfast.cli import exit_codes
from holdfast.cli.inspector import PAGE, Inspector
from holdfast.cli.parsing import CommandParser, count
from holdfast.cli.printing import Columns, field, moment, print_rows, say, to_row
from holdfast.operations import cluster_operations

SHOWN: Final = 100
"""How many are shown unless the command line says otherwise."""
_COLUMNS: Final[Columns] = {
    "TIME": lambda row: moment(row["unix_ms"]),
    "NODE": field("node_id"),
    "PRINCIPAL": lambda row: row["principal"] or "-",
    "ADDRESS": lambda row: row["address"] or "-",
    "CODE": field("code"),
    "CALL": lambda row: f"{row['method']} {row['route']}" if row["route"] != "-" else "-",
    "DETAIL": field("detail"),
}


def add_parser(commands: CommandParser) -> None:
    """Describe the command."""
    refusals = commands.command(
        "refusals",
        "show calls that were refused because of their caller: wrong tokens, missing rights",
        _refusals,
        description="Show the calls that the nodes have refused because of their caller: a wrong token, a"
        " missing right, a foreign web page; the newest last. Each node in --nodes is asked, because each"
        " remembers only its own refusals since its start. Needs the right admin.",
    )
    refusals.add_argument(
        "--limit",
        metavar="N",
        type=count,
        default=SHOWN,
        help=f"the newest N, at most {PAGE} (default: {SHOWN})",
    )
    refusals.add_output()


async def _refusals(client: Inspector, arguments: argparse.Namespace) -> int:
    """Ask all nodes and print what they tell, in the order of their clocks. Raises LockError if none does.

    The exit code says whether all nodes of the cluster are among them.
    """
    members = {node.id for node in (await client.cluster()).nodes}
    answers, failures = await client.ask_each(
        cluster_operations.refusals(arguments.limit),
        lambda answers: members <= {answer.node_id for answer in answers},
    )
    if not answers:
        raise failures[0]
    told = {answer.node_id: answer.refusals for answer in answers}  # one node may have several URLs
    rows = [{"node_id": node_id, **to_row(each)} for node_id, attempts in told.items() for each in attempts]
    rows.sort(key=lambda row: (row["unix_ms"], row["node_id"], row["number"]))
    print_rows(rows[-arguments.limit :], _COLUMNS, arguments.output)
    silent = sorted(members - told.keys())
    if silent:
        say(f"no answer from {', '.join(silent)}; are all nodes in --nodes, and running?")
    return exit_codes.UNAVAILABLE if silent else 0
