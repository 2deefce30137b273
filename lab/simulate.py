"""The command line of scripts/simulate: whole clusters in one thread, from a seed, under faults.

The same seed and options give the same run, down to its hash. The world itself is in tests/simulation.
"""

import argparse
import contextlib
import json
import os
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tests.simulation.run import Report as RunReport

HASH_SEED: Final = "PYTHONHASHSEED"
"""Sets of the Raft library are walked in the order of hashes: runs repeat only when these do."""
ROOT: Final = Path(__file__).resolve().parents[1]
FAILED: Final = 1
INTERRUPTED: Final = 130
NODE_COUNTS: Final = (1, 3, 5)


def build_parser() -> argparse.ArgumentParser:
    """Describe the command line."""
    parser = argparse.ArgumentParser(
        prog="scripts/simulate",
        description="Run simulated clusters, one for each seed, and check every promise while everything "
        "goes wrong: kills, losses of power, full and failing disks, partitions, pauses, drifting clocks. "
        "Nodes, Raft library and state machine are the real ones; time, network and disks are simulated. "
        "Prints each broken promise with the seed that shows it and the end of its trace; the exit code is "
        "then 1.",
    )
    parser.add_argument(
        "--seed", type=_seeds, default=range(1, 11), metavar="N[..M]", help="one seed, or from N to M"
    )
    length = parser.add_mutually_exclusive_group()
    length.add_argument("--hours", type=float, metavar="H", help="simulated time for each seed")
    length.add_argument("--minutes", type=float, metavar="M", help="the same in minutes (default: 5)")
    parser.add_argument(
        "--nodes", type=int, choices=NODE_COUNTS, help="size of the cluster (default: the seed decides)"
    )
    parser.add_argument(
        "--hostile",
        action=argparse.BooleanOptionalAction,
        help="lose, repeat and delay whole Raft messages, as no real network does (default: on some seeds)",
    )
    parser.add_argument(
        "--faults", type=_names, metavar="NAME,...", help="only these kinds of faults, not those of the seed"
    )
    parser.add_argument(
        "--only-locks",
        action="store_true",
        help="clients ask for single locks only (default: on most seeds for everything the API has)",
    )
    parser.add_argument(
        "--streams",
        type=int,
        metavar="N",
        help="so many clients more, which number their commands on streams (default: the seed decides)",
    )
    parser.add_argument(
        "--redis",
        type=int,
        default=0,
        metavar="N",
        help="so many clients more, of the Redis face, which send commands again when answers are lost"
        " (default: none)",
    )
    parser.add_argument("--trace", type=Path, metavar="FILE", help="write the whole trace (of one seed)")
    parser.add_argument(
        "--raft-trace", type=Path, metavar="FILE", help="write the Raft trace (of one seed), one event a line"
    )
    parser.add_argument("--replay", type=Path, metavar="FILE", help="replay a Raft trace, and exit")
    parser.add_argument("--lines", type=int, default=60, metavar="N", help="lines of the trace at a failure")
    parser.add_argument("--keep-going", action="store_true", help="go on with the next seed after a failure")
    parser.add_argument("--list-faults", action="store_true", help="print the kinds of faults and exit")
    mutations = parser.add_argument_group(
        "mutations: is a deliberate defect found? exit code 0 if it is, 1 if not"
    )
    mutations.add_argument("--list-mutations", action="store_true", help="print the defects and exit")
    mutations.add_argument("--mutation", metavar="NAME", help="hunt for this defect, or for all")
    mutations.add_argument("--seeds", type=int, metavar="N", help="try so many seeds, instead of its budget")
    mutations.add_argument(
        "--swarm",
        type=_numbers,
        metavar="S,...",
        help="hunt in the worlds of plain seeds, for so many seconds a mutation in each round",
    )
    mutations.add_argument(
        "--results",
        type=Path,
        default=Path("swarm.jsonl"),
        metavar="FILE",
        help="where the results of --swarm are, and where a later run goes on (default: %(default)s)",
    )
    return parser


def _numbers(text: str) -> tuple[float, ...]:
    """Read numbers."""
    return tuple(map(float, text.split(",")))


def _seeds(text: str) -> range:
    """Read N or N..M."""
    first, _, last = text.partition("..")
    seeds = range(int(first), int(last or first) + 1)
    if not seeds:
        raise argparse.ArgumentTypeError(f"{text}: no seed is in that range")
    return seeds


def _names(text: str) -> tuple[str, ...]:
    """Read names of faults; none at all is allowed."""
    return tuple(filter(None, text.split(",")))


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    arguments = build_parser().parse_args(argv)
    if argv is None and os.environ.get(HASH_SEED) != "0":
        command = [sys.executable, "-P", "-m", "lab.simulate", *sys.argv[1:]]
        os.execve(sys.executable, command, {**os.environ, HASH_SEED: "0"})  # noqa: S606 - this program again
    # Imported here: the parser answers at once.
    from tests.simulation.mutations import command as mutations  # noqa: PLC0415
    from tests.simulation.plan import FAULTS  # noqa: PLC0415

    if arguments.list_faults:
        for name, meaning in FAULTS.items():
            print(f"{name:14} {meaning}")
        return 0
    if arguments.list_mutations:
        print(mutations.listed())
        return 0
    unknown = sorted(set(arguments.faults or ()) - set(FAULTS))
    if unknown:
        print(f"scripts/simulate: no such fault: {', '.join(unknown)}; see --list-faults", file=sys.stderr)
        return 2
    try:
        if arguments.replay is not None:
            return _replay(arguments.replay)
        if arguments.mutation:
            if arguments.swarm is not None:
                return mutations.run_swarm(arguments.mutation, arguments.swarm, arguments.results)
            return mutations.run(arguments.mutation, arguments.seeds)
        return _run_all(arguments)
    except KeyboardInterrupt:
        return INTERRUPTED


def _replay(path: Path) -> int:
    """Replay a Raft trace that was written before."""
    from tests.simulation.checks.raft_replay import RaftReplay  # noqa: PLC0415 - as above
    from tests.simulation.checks.report import Report, Violation  # noqa: PLC0415 - as above

    checker = RaftReplay(Report())
    try:
        with path.open() as lines:
            for line in lines:
                checker.event(json.loads(line))
    except Violation as violation:
        print(f"VIOLATION at event {checker.events_count}: {violation}")
        return FAILED
    print(f"{checker.events_count} events, and nothing that Raft forbids")
    return 0


def _run_all(arguments: argparse.Namespace) -> int:
    from tests.simulation.plan import make_plan, nodes_of  # noqa: PLC0415 - as above
    from tests.simulation.run import run  # noqa: PLC0415 - as above

    minutes = arguments.hours * 60 if arguments.hours is not None else arguments.minutes or 5.0
    reports: list[RunReport] = []
    try:
        for seed in arguments.seed:
            plan = make_plan(
                seed,
                arguments.nodes or nodes_of(seed),
                hostile=arguments.hostile,
                faults=arguments.faults,
                only_locks=arguments.only_locks,
                streams_count=arguments.streams,
                redis_count=arguments.redis,
            )
            with contextlib.ExitStack() as stack:
                file = stack.enter_context(arguments.trace.open("w")) if arguments.trace else None
                raft = arguments.raft_trace
                raft_file = stack.enter_context(raft.open("w")) if raft else None
                report = run(plan, minutes * 60, file, raft_file=raft_file)
            reports.append(report)
            print(_progress(report), flush=True)
            if report.violation:
                print(_failure(report, arguments, minutes), flush=True)
                if not arguments.keep_going:
                    break
    except KeyboardInterrupt:
        # Worlds that came to their end count, also when somebody stops a long run.
        print(_summary(reports))
        raise
    print(_summary(reports))
    return FAILED if any(report.violation for report in reports) else 0


def _progress(report: "RunReport") -> str:
    """Return one line about one seed."""
    return (
        f"seed {report.seed:>6}  {'FAILED' if report.violation else 'ok':6}"
        f" {report.simulated_s / 60:6.1f} min in {report.real_s:6.1f} s"
        f"  entries {report.counts.get('entries', 0):>7}  leaders {report.counts.get('leader-changes', 0):>4}"
        f"  commands {sum(report.commands.values()):>7}  faults {sum(report.faults.values()):>5}"
        f"  hash {report.trace_hash[:16]}"
    )


def _failure(report: "RunReport", arguments: argparse.Namespace, minutes: float) -> str:
    """Return what was broken, the end of the trace, and the line that repeats it."""
    again = [f"scripts/simulate --seed {report.seed} --nodes {report.nodes} --minutes {minutes:g}"]
    if arguments.hostile is not None:
        again.append("--hostile" if arguments.hostile else "--no-hostile")
    if arguments.only_locks:
        again.append("--only-locks")
    if arguments.streams is not None:
        again.append(f"--streams {arguments.streams}")
    if arguments.redis:
        again.append(f"--redis {arguments.redis}")
    if arguments.faults is not None:
        again.append(f"--faults '{','.join(arguments.faults)}'")
    return "\n".join(
        [
            "",
            *report.last_lines[-arguments.lines :],
            "",
            f"VIOLATION at {report.simulated_s:.6f} s, step {report.steps}: {report.violation}",
            f"repeat: {' '.join(again)} --trace FILE",
            "",
        ]
    )


def _summary(reports: "list[RunReport]") -> str:
    """Return the totals."""
    faults: Counter[str] = Counter()
    commands: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    for report in reports:
        faults.update(report.faults)
        commands.update(report.commands)
        counts.update(report.counts)
    simulated_s = sum(report.simulated_s for report in reports)
    real_s = sum(report.real_s for report in reports)
    processor_s = sum(report.processor_s for report in reports)
    failed = [str(report.seed) for report in reports if report.violation]
    speed = f"{simulated_s / max(real_s, 1e-9):.0f} simulated minutes per real minute"
    per_processor = f"{simulated_s / max(processor_s, 1e-9):.0f} per minute of processor"
    return "\n".join(
        [
            f"{len(reports)} seeds, {simulated_s / 3600:.2f} simulated hours in {real_s:.0f} s",
            f"{speed}, {per_processor}",
            f"faults ({sum(faults.values())}): {_listed(faults)}",
            f"commands ({sum(commands.values())}): {_listed(commands)}",
            f"nodes: {_listed(counts)}",
            *_percentiles(reports),
            f"violations: {len(failed)}{' in seeds ' + ', '.join(failed) if failed else ''}",
        ]
    )


def _percentiles(reports: "list[RunReport]") -> list[str]:
    """Return what took how long, or became how large: a line for each, with its percentiles."""
    figures: dict[str, list[float]] = {}
    for report in reports:
        for name, values in report.figures.items():
            figures.setdefault(name, []).extend(values)
    lines = []
    for name, values in sorted(figures.items()):
        values.sort()
        told = [f"p{share} {values[len(values) * share // 100]:.4g}" for share in (50, 90, 99)]
        lines.append(f"{name} ({len(values)}): {', '.join(told)}, at most {values[-1]:.4g}")
    return lines


def _listed(counts: Counter[str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items())) or "none"


if __name__ == "__main__":
    sys.exit(main())
