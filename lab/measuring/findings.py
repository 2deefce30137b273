"""Benchmarks of a cluster that are judged by bars: how each is described, run and told."""

import argparse
import asyncio
import json
import sys
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, NamedTuple

import uvloop

from lab.measuring import bars, this_machine
from lab.measuring.bars import Bar
from scripts.local_cluster import LocalCluster

Row = dict[str, Any]
"""What one step found; `others_percent` is the share of all processors that other programs took."""


class Found(NamedTuple):
    """What a benchmark found."""

    rows: list[Row]
    bars: list[Bar]
    errors: list[str]
    """What was answered with an error, or is not as it must be: the figures are not good then."""


class Judged(NamedTuple):
    """A benchmark of a cluster."""

    name: str
    help: str
    description: str
    add_arguments: Callable[[argparse.ArgumentParser], None]
    measure: Callable[[LocalCluster, argparse.Namespace], Coroutine[Any, Any, Found]]
    table: Callable[[Sequence[Row]], list[str]]


def say(text: str) -> None:
    """Tell how far it is."""
    print(f"bench: {text}", file=sys.stderr, flush=True)


def add_check(parser: argparse.ArgumentParser) -> None:
    """Add the flag by which bars count."""
    parser.add_argument("--check", action="store_true", help="exit code 1 if a bar is missed or not measured")


def table(rows: Sequence[Row], columns: Sequence[tuple[str, str, str]]) -> list[str]:
    """Return a table of rows with a `title`; a column is its head, the key of its figures, and their form.

    What a row has no figure of is left empty.
    """
    width = max((len(row["title"]) for row in rows), default=0) + 2
    lines = [" " * width + "".join(f"{head:>13}" for head, _, _ in columns)]
    for row in rows:
        cells = ["" if row.get(key) is None else form.format(row[key]) for _, key, form in columns]
        lines.append(f"{row['title']:<{width}}" + "".join(f"{cell:>13}" for cell in cells))
    return lines


def run(
    benchmark: Judged, cluster: LocalCluster, arguments: argparse.Namespace, machine: dict[str, Any]
) -> int:
    """Measure a cluster and print; return the exit code."""
    machine = {**machine, "load_before": this_machine.load()}
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        found = runner.run(benchmark.measure(cluster, arguments))
    machine["load_after"] = this_machine.load()
    if arguments.json:
        document = {"command": benchmark.name, "machine": machine, "rows": found.rows, "bars": found.bars}
        print(json.dumps(document, indent=2))
    else:
        print("\n".join([*benchmark.table(found.rows), *bars.lines(found.bars)]))
        print(_load(machine, found.rows))
    return exit_code(found, is_checked=arguments.check)


def exit_code(found: Found, *, is_checked: bool) -> int:
    """Print what was wrong; return 1 if anything was, or with `is_checked` if a bar is not met."""
    for error in found.errors:
        print(f"scripts/bench: error: {error}", file=sys.stderr)
    return 1 if found.errors or (is_checked and not bars.are_met(found.bars)) else 0


def _load(machine: dict[str, Any], rows: Sequence[Row]) -> str:
    others = max((row["others_percent"] for row in rows), default=0.0)
    return (
        f"load of the machine: {machine['load_before']} before, {machine['load_after']} after;"
        f" others took up to {others:.0f} % of its processors"
    )
