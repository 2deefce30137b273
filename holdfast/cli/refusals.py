"""The command `refusals`: what the nodes have refused because of who asked. Each remembers only its own."""

import argparse
import sys
from datetime import UTC, datetime
from typing import Final

import msgspec

from holdfast import _cluster_operations
from holdfast._values import RefusedAttempt
from holdfast.cli import exit_codes
from holdfast.cli.inspector import PAGE, Inspector
from holdfast.cli.printing import print_line, print_table
from holdfast.cli.reading import count

SHOWN: Final = 100
"""How many are shown unless the command line says otherwise."""
_COLUMNS: Final = ("TIME", "NODE", "PRINCIPAL", "ADDRESS", "CODE", "CALL", "DETAIL")


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Describe the command."""
    refusals = commands.add_parser(
        "refusals",
        help="show what was refused because of who asked: wrong tokens, rights that lack",
        description="Show which attempts the nodes have refused because of who asked: a wrong token, a right"
        " that lacks, a foreign web page; the newest last. Each node in --nodes is asked, because each"
        " remembers only what it has refused itself, since it was started. Needs the right admin.",
    )
    refusals.add_argument(
        "--limit", type=count, default=SHOWN, help=f"the newest so many, at most {PAGE} (default: {SHOWN})"
    )
    refusals.add_argument("--json", action="store_true", help="one JSON document in each line")


async def run(client: Inspector, arguments: argparse.Namespace) -> int:
    """Ask all nodes and print what they tell, in the order of their clocks. Raises LockError if none does.

    The exit code says whether all nodes of the cluster are among them.
    """
    members = {node.id for node in (await client.cluster()).nodes}
    answers, failures = await client.ask_each(
        _cluster_operations.refusals(arguments.limit),
        lambda answers: members <= {answer.node_id for answer in answers},
    )
    if not answers:
        raise failures[0]
    told = {answer.node_id: answer.refusals for answer in answers}  # one node may have several URLs
    rows = [(attempt, node_id) for node_id, attempts in told.items() for attempt in attempts]
    rows.sort(key=lambda row: (row[0].unix_ms, row[1], row[0].number))
    _print(rows[-arguments.limit :], as_json=arguments.json)
    silent = sorted(members - told.keys())
    if silent:
        text = (
            f"{', '.join(silent)} did not tell what was refused there; are all nodes in --nodes, and running?"
        )
        print(f"holdfast: {text}", file=sys.stderr)
    return exit_codes.UNAVAILABLE if silent else 0


def _print(rows: list[tuple[RefusedAttempt, str]], *, as_json: bool) -> None:
    if as_json:
        for attempt, node_id in rows:
            print_line({"node_id": node_id, **msgspec.to_builtins(attempt)})
        return
    print_table(
        _COLUMNS,
        [
            (
                _time(attempt.unix_ms),
                node_id,
                attempt.principal or "-",
                attempt.address or "-",
                attempt.code,
                f"{attempt.method} {attempt.route}" if attempt.route != "-" else "-",
                attempt.detail,
            )
            for attempt, node_id in rows
        ],
    )


def _time(unix_ms: int) -> str:
    """Return a time of a node's clock, as its log has it."""
    return (
        datetime.fromtimestamp(unix_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    )
