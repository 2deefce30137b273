"""scripts/bench regions: three nodes far from each other, and what a request takes by where the leader is.

Each node is in a network namespace of its own; a switch of the lab delays the packets between them.
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from lab.bench import options
from lab.chaos.netns.links import CUT, Rule
from lab.chaos.netns.network import between
from lab.chaos.targets.netns import NetnsTarget
from lab.chaos.targets.target import LabFailure
from lab.loads.load import percentile_ms
from lab.measuring import this_machine
from lab.measuring.findings import say
from scripts.local_cluster import ClusterFailure

NODES: Final = ("n1", "n2", "n3")
NEAR_MS, FAR_MS = 35.0, 80.0
TIMES_MS: Final = (300, 1500, 3000)
"""Heartbeat, and the shortest and longest election: for round trips of 160 ms."""
REQUESTS: Final = 50
LOSSES: Final = 3
ASK_S: Final = 30.0
POLL_S: Final = 0.05
DESCRIPTION: Final = (
    "Start three nodes with a network between them in which a packet takes as long as between regions: one"
    " way, so much between n1 and n2, and so much from either to n3. One client in the region of each node"
    " acquires and releases locks at that node, one request after the other, with each of the nodes as"
    " leader: the table has the median and the 99th percentile of an acquire. Then the leader n1 is cut off,"
    " and killed, some times each: how long an acquire takes that a client of n2 asks for at that moment."
    " Needs root and /dev/net/tun."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of this benchmark."""
    options.add_number(parser, "--near", NEAR_MS, "n1 to n2", read=float, metavar="MS")
    options.add_number(parser, "--far", FAR_MS, "n1 or n2 to n3", read=float, metavar="MS")
    parser.add_argument(
        "--times",
        type=_times,
        default=TIMES_MS,
        metavar="MS,MS,MS",
        help="heartbeat, shortest and longest election of the nodes"
        f" (default: {','.join(map(str, TIMES_MS))})",
    )
    options.add_number(parser, "--requests", REQUESTS, "for each cell", read=_count)
    options.add_number(parser, "--losses", LOSSES, "of each kind", read=_count)
    options.add_json(parser)


def _times(text: str) -> tuple[int, ...]:
    times = tuple(int(part) for part in text.split(","))
    if len(times) != len(TIMES_MS):
        raise argparse.ArgumentTypeError(f"{text}: say heartbeat, shortest and longest election")
    return times


def _count(text: str) -> int:
    count = int(text)
    if count < 1:
        raise argparse.ArgumentTypeError(f"{text}: must be 1 or more")
    return count


class Regions:
    """One run: a cluster of three regions."""

    def __init__(self, target: NetnsTarget, arguments: argparse.Namespace) -> None:
        self._target = target
        self._arguments = arguments
        self._count = 0

    def spread(self) -> None:
        """Put the nodes into their regions."""
        near, far = self._arguments.near, self._arguments.far
        for key, links, delay_ms in (
            ("near", between(["n1"], ["n2"]), near),
            ("far", between(["n1", "n2"], ["n3"]), far),
        ):
            self._target.network.change(key, links, Rule(delay_ms=delay_ms))

    def requests(self) -> list[dict[str, Any]]:
        """Return a row for each leader and client."""
        rows = []
        for leader in NODES:
            self._lead(leader)
            for client in NODES:
                say(f"{leader} leads, a client asks {client}")
                took_s = sorted(self._acquire(client) for _ in range(self._arguments.requests))
                p50_ms, p99_ms = percentile_ms(took_s, 0.50), percentile_ms(took_s, 0.99)
                rows.append({"leader": leader, "client": client, "p50_ms": p50_ms, "p99_ms": p99_ms})
        return rows

    def losses(self) -> list[dict[str, Any]]:
        """Return a row for each way in which the leader n1 is lost."""
        ways: tuple[tuple[str, Callable[[], None], Callable[[], None]], ...] = (
            ("cut off", self._cut, lambda: self._target.network.clear("cut")),
            ("killed", lambda: self._target.kill("n1"), lambda: self._target.start("n1")),
        )
        rows = []
        for title, lose, bring_back in ways:
            took_ms = []
            for number in range(1, self._arguments.losses + 1):
                say(f"the leader is {title}, {number} of {self._arguments.losses}")
                self._lead("n1")
                self._acquire("n2")
                lose()
                took_ms.append(1000 * self._acquire("n2"))
                bring_back()
                self._target.wait_ready()
            rows.append({"lost": title, "median_ms": statistics.median(took_ms), "worst_ms": max(took_ms)})
        return rows

    def _cut(self) -> None:
        self._target.network.change("cut", between(["n1"], ["n2", "n3"]), CUT)

    def _lead(self, node_id: str) -> None:
        """Let a node lead. Raises LabFailure."""
        self._ask(node_id, "/v1/cluster/transfer-leadership", {"to": node_id, "reason": "a measurement"})
        self._target.wait_ready()

    def _acquire(self, node_id: str) -> float:
        """Acquire a lock at a node and release it; return how many seconds the former took."""
        self._count += 1
        wanted = {"name": f"regions/{self._count}", "owner": "bench", "ttl_ms": 60_000}
        began_s = time.monotonic()
        answer = self._ask(node_id, "/v1/locks/acquire", wanted)
        took_s = time.monotonic() - began_s
        self._ask(node_id, "/v1/locks/release", {"hold_id": answer["hold_id"]})
        return took_s

    def _ask(self, node_id: str, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """Post a request from the region of a node, again while there is no leader. Raises LabFailure."""
        request = {**body, "request_id": f"regions-{self._count}-{path}"}
        deadline_s = time.monotonic() + ASK_S
        while True:
            answer = self._target.ask(node_id, path, method="POST", body=request, timeout_s=ASK_S)
            if answer is not None and answer[0] == 200:  # noqa: PLR2004 - a status of HTTP
                return dict(answer[1])
            if time.monotonic() > deadline_s:
                raise LabFailure(f"{path} at {node_id}: {answer}")
            time.sleep(POLL_S)


def run(arguments: argparse.Namespace) -> int:
    """Measure and print; return the exit code. To be called inside `guardian.guarded()`."""
    machine: dict[str, Any] = {"load_before": this_machine.load()}
    heartbeat, shortest, longest = map(str, arguments.times)
    extra = ("--heartbeat-ms", heartbeat, "--election-ms-min", shortest, "--election-ms-max", longest)
    target = NetnsTarget(len(NODES), extra_args=extra)
    try:
        target.open()
        try:
            regions = Regions(target, arguments)
            regions.spread()
            rows, losses = regions.requests(), regions.losses()
        finally:
            target.close()
    except (LabFailure, ClusterFailure, OSError) as error:
        print(f"scripts/bench: {error}", file=sys.stderr)
        return 1
    machine["load_after"] = this_machine.load()
    if arguments.json:
        document = {"command": "regions", "machine": machine, "rows": rows, "losses": losses}
        print(json.dumps(document, indent=2))
    else:
        print("\n".join(_lines(rows, losses)))
        print(f"load of the machine: {machine['load_before']} before, {machine['load_after']} after")
    return 0


def _lines(rows: Sequence[dict[str, Any]], losses: Sequence[dict[str, Any]]) -> list[str]:
    """Return the tables for people."""
    lines = ["acquire, p50 and p99 in ms" + "".join(f"{f'client at {client}':>18}" for client in NODES)]
    for leader in NODES:
        cells = [f"{row['p50_ms']:.0f} {row['p99_ms']:.0f}" for row in rows if row["leader"] == leader]
        lines.append(f"{f'{leader} leads':<26}" + "".join(f"{cell:>18}" for cell in cells))
    lines += [
        f"an acquire when the leader is {row['lost']}: {row['median_ms']:.0f} ms in the median,"
        f" {row['worst_ms']:.0f} ms at worst"
        for row in losses
    ]
    return lines
