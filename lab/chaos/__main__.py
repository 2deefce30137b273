"""`scripts/chaos`: break a cluster while clients use it, and see whether a promise breaks."""

import argparse
import asyncio
import os
import secrets
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from lab.chaos import report, schedule
from lab.chaos.faults.catalogue import FAULTS
from lab.chaos.faults.fault import Fault
from lab.chaos.history import History, HistoryFailure, read_history
from lab.chaos.lab import Workload
from lab.chaos.run import HISTORY_FILE, TIMELINE_FILE, OwnFault, Plan, Report, judged, run
from lab.chaos.schedule import ScheduleFailure, Step
from lab.chaos.soak import Soak
from lab.chaos.targets import compose_project
from lab.chaos.targets.compose import ComposeTarget
from lab.chaos.targets.netns import NetnsTarget
from lab.chaos.targets.processes import ProcessTarget, leftovers
from lab.chaos.targets.somewhere import SomewhereTarget
from lab.chaos.targets.target import LabFailure, Target
from lab.chaos.timeline import write_timeline
from lab.chaos.workloads.catalogue import WORKLOADS
from lab.chaos.workloads.reach import Reach
from scripts.lib import guardian

LAB_FAILED: Final = 2
"""The exit code when the lab could not be built, or was asked for what there is not."""

CLIENTS: Final = {"redis-py": "redis/0/", "pottery": "redis/0/redlock:"}
"""The libraries for Redis that `--client` knows, with how the names of their locks begin. They are imported
only when one is asked for."""

GAVE_TOO_MUCH: Final = 3
"""The exit code for a budget that was not kept."""

EPILOG: Final = """\
exit codes: 0 clean; 1 a promise was broken; 2 the lab could not be built; 3 a gap above the budget, or
undecided

examples:
  scripts/chaos                                       a minute of all that can be done to local processes
  scripts/chaos --minutes 10 --seed 7                 the same schedule again
  scripts/chaos --only kill-leader,pause-leader
  scripts/chaos --target compose --minutes 5          containers (after deploy/build-image)
  scripts/chaos --client redis-py                     locks of an unmodified library for Redis
  scripts/chaos list                                  all faults and what they need
  scripts/chaos check DIR                             check a recorded history again
  scripts/chaos timeline DIR                          look at it in a browser
  scripts/chaos --prove                               somebody objects to all that is wrong on purpose
  scripts/chaos --target http://a:7700,http://b:7700  clients and checkers only; break it yourself
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return the exit code."""
    options = _parser().parse_args(arguments)
    try:
        return int(options.work(options))
    except (LabFailure, ScheduleFailure, HistoryFailure, OSError) as error:
        print(f"chaos: {error}", file=sys.stderr)
        return LAB_FAILED
    except KeyboardInterrupt:
        print("chaos: stopped; everything that was started is gone", file=sys.stderr)
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="scripts/chaos",
        description=__doc__,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(work=_run)
    parser.add_argument(
        "--target",
        default="processes",
        help="processes (the default), netns, compose, or the URLs of nodes with commas",
    )
    parser.add_argument("--nodes", type=int, default=3, help="how many nodes are started (default 3)")
    parser.add_argument("--minutes", type=float, default=1.0, help="how long clients run (default 1)")
    parser.add_argument("--seed", type=int, help="of schedule and clients (default: a new one)")
    parser.add_argument("--only", type=_words, help="only these faults (or teeth), with commas")
    parser.add_argument(
        "--prove",
        action="store_true",
        help="break rules on purpose, all or --only some: exit code 0 only if each is noticed",
    )
    parser.add_argument("--no-faults", action="store_true", help="break nothing")
    parser.add_argument("--schedule", type=Path, help="a file of faults instead of a drawn schedule")
    parser.add_argument("--workloads", type=_words, help=f"only some of: {', '.join(WORKLOADS)}")
    parser.add_argument(
        "--client",
        choices=CLIENTS,
        help="clients of Redis with this library, beside `reach`, instead of all workloads",
    )
    parser.add_argument("--clients", type=float, default=1.0, help="times the usual number (default 1)")
    parser.add_argument("--budget-factor", type=float, default=1.0, help="times the usual longest gaps")
    parser.add_argument("--dir", type=Path, help="where the history is kept (default: a new directory)")
    parser.add_argument(
        "--at",
        action="append",
        type=_own_fault,
        default=[],
        metavar="SECONDS:COMMAND",
        help="run a command of yours at that time; may be given several times",
    )
    commands = parser.add_subparsers(title="commands", metavar="")
    soaked = commands.add_parser(
        "soak", help="everything mixed for long, then a time without load: leaks fail"
    )
    soaked.add_argument("--minutes", type=float, default=60.0, help="of load (default 60)")
    soaked.add_argument("--quiet-minutes", type=float, default=10.0, help="without load (default 10)")
    soaked.add_argument("--nodes", type=int, default=3, help="how many nodes (default 3)")
    soaked.add_argument("--seed", type=int, help="of the first round (default: a new one)")
    soaked.add_argument("--clients", type=float, default=1.0, help="times the usual number (default 1)")
    soaked.add_argument("--budget-factor", type=float, default=1.0, help="times the usual longest gaps")
    soaked.add_argument("--dir", type=Path, help="where reports are kept (default: a new directory)")
    soaked.set_defaults(work=_soak)
    cleaned = commands.add_parser(
        "clean", help="remove what killed labs have left: temporary directories, containers"
    )
    cleaned.set_defaults(work=_clean)
    listed = commands.add_parser("list", help="list all faults and workloads")
    listed.set_defaults(work=_list)
    checked = commands.add_parser("check", help="check a recorded history again")
    checked.add_argument("path", type=Path, help="a history, or the directory of a run")
    checked.set_defaults(work=_check)
    drawn = commands.add_parser("timeline", help="make a page for a browser of a recorded history")
    drawn.add_argument("path", type=Path, help="a history, or the directory of a run")
    drawn.set_defaults(work=_timeline)
    return parser


def _own_fault(text: str) -> OwnFault:
    """Return a command of the user and when it runs."""
    seconds, colon, command = text.partition(":")
    try:
        at_s = float(seconds)
    except ValueError:
        at_s = -1.0
    if not colon or not command.strip() or not 0 <= at_s < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not SECONDS:COMMAND")
    return OwnFault(at_s, command.strip())


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _run(options: argparse.Namespace) -> int:
    """Build the lab, run, report."""
    if options.prove:
        # Only now: the product and the defects of the simulation take longer to import than the lab.
        from lab.chaos.teeth.command import run_teeth  # noqa: PLC0415

        return run_teeth(options.only, options.seed, options.dir)
    seed = secrets.randbelow(10**6) if options.seed is None else options.seed
    faults = _picked(FAULTS, options.only, "fault")
    workloads = _workloads(options)
    target = _target(options)
    directory = options.dir or Path(f"chaos-{os.getpid()}-{seed}")
    with guardian.guarded():
        try:
            target.open()
            possible = {name: fault for name, fault in faults.items() if fault.needs <= target.abilities}
            steps = _steps(options, seed, possible)
            directory.mkdir(parents=True, exist_ok=True)
            print(report.first_line(target, seed, possible, faults), flush=True)
            plan = Plan(
                seed=seed,
                seconds=60 * options.minutes,
                steps=steps,
                workloads=workloads,
                faults=possible,
                directory=directory,
                scale=options.clients,
                budget_factor=options.budget_factor,
                own_faults=options.at,
            )
            (directory / "schedule").write_text(schedule.written(steps))
            try:
                result = asyncio.run(run(target, plan, lambda text: print(text, flush=True)))
            finally:
                target.save_logs(directory)
        finally:
            target.close()
    (directory / "report.json").write_bytes(msgspec.json.format(msgspec.json.encode(result)))
    print(report.text(result, directory), flush=True)
    return result.exit_code


def _soak(options: argparse.Namespace) -> int:
    """Run a soak."""
    seed = secrets.randbelow(10**6) if options.seed is None else options.seed
    directory = options.dir or Path(f"soak-{os.getpid()}-{seed}")
    target = ProcessTarget(options.nodes)
    with guardian.guarded():
        try:
            target.open()
            faults = {name: fault for name, fault in FAULTS.items() if fault.needs <= target.abilities}
            print(report.first_line(target, seed, faults, FAULTS), flush=True)
            plan = Plan(
                seed=seed,
                seconds=60 * options.minutes,
                steps=[],
                workloads=WORKLOADS,
                faults=faults,
                directory=directory,
                scale=options.clients,
                budget_factor=options.budget_factor,
            )
            soak = Soak(
                target, plan, quiet_s=60 * options.quiet_minutes, tell=lambda text: print(text, flush=True)
            )
            problems = asyncio.run(soak.run())
        finally:
            target.close()
    for each in soak.reports:
        print(report.text(each, directory))
    for problem in problems:
        print(f"problem: {problem}")
    worst = max((each.exit_code for each in soak.reports), key=lambda code: (code == 1, code), default=0)
    return worst or (GAVE_TOO_MUCH if problems else 0)


def _clean(options: argparse.Namespace) -> int:
    """Remove directories and Compose projects of labs whose process is gone. Raises LabFailure."""
    del options
    for path in leftovers():
        print(f"removing {path}")
        shutil.rmtree(path, ignore_errors=True)
    if shutil.which("docker") is not None:
        for name in compose_project.leftovers():
            print(f"removing the containers, networks and volumes of {name}")
            compose_project.remove(name)
    return 0


def _workloads(options: argparse.Namespace) -> dict[str, type[Workload]]:
    """Return the workloads that were asked for. Raises LabFailure."""
    if options.client is None:
        return _picked(WORKLOADS, options.workloads, "workload")
    try:
        from lab.chaos.workloads.redis_locks import LIBRARIES  # noqa: PLC0415
    except ImportError as error:
        raise LabFailure(f"--client needs the libraries of the group `faces`: {error}") from error
    return {options.client: LIBRARIES[options.client], Reach.name: Reach}


def _target(options: argparse.Namespace) -> Target:
    """Return what is to be broken. Raises LabFailure."""
    if options.client is not None and options.target != "processes":
        raise LabFailure(
            "--client works with --target processes alone: other nodes serve no clients of Redis"
        )
    if options.target == "processes":
        return ProcessTarget(options.nodes, redis_names=CLIENTS.get(options.client, ""))
    if options.target == "netns":
        return NetnsTarget(options.nodes)
    if options.target == "compose":
        return ComposeTarget(options.nodes)
    if "/" in options.target or ":" in options.target:
        return SomewhereTarget(_words(options.target))
    raise LabFailure(
        f"there is no target {options.target!r}; take processes, netns, compose, or the URLs of nodes"
    )


def _steps(options: argparse.Namespace, seed: int, faults: Mapping[str, type[Fault[Any]]]) -> list[Step]:
    """Return the schedule."""
    if options.no_faults:
        return []
    if options.schedule is not None:
        return schedule.parse(options.schedule.read_text(), faults)
    return schedule.draw(seed, faults, 60 * options.minutes)


def _picked(all_: Mapping[str, Any], names: Sequence[str] | None, what: str) -> dict[str, Any]:
    """Return what was asked for, all if nothing was. Raises LabFailure."""
    if names is None:
        return dict(all_)
    unknown = [name for name in names if name not in all_]
    if unknown:
        raise LabFailure(f"there is no {what} {unknown[0]!r}; there are {', '.join(all_)}")
    return {name: all_[name] for name in names}


def _list(options: argparse.Namespace) -> int:
    """Print all faults and workloads."""
    del options
    print("faults (and what the target must be able to do):")
    for name, fault in sorted(FAULTS.items()):
        print(f"  {name:18} {fault.text} [{', '.join(sorted(fault.needs))}]")
    print("workloads:")
    for name, workload in WORKLOADS.items():
        print(f"  {name:18} {(workload.__doc__ or '').splitlines()[0]}")
    return 0


def _check(options: argparse.Namespace) -> int:
    """Check a history again."""
    path = _history_file(options)
    history, result = _judged_again(path)
    if result.exit_code != 0:
        write_timeline(history, result.violations, path.parent / TIMELINE_FILE)
    print(report.text(result, path.parent), flush=True)
    return result.exit_code


def _timeline(options: argparse.Namespace) -> int:
    """Make the page of a history, clean or not."""
    path = _history_file(options)
    history, result = _judged_again(path)
    page = path.with_name(TIMELINE_FILE)
    write_timeline(history, result.violations, page)
    print(page)
    return 0


def _history_file(options: argparse.Namespace) -> Path:
    """Return the history that is meant by a file or a directory."""
    path: Path = options.path
    return path / HISTORY_FILE if path.is_dir() else path


def _judged_again(path: Path) -> tuple[History, Report]:
    """Return a recorded history and what it comes to."""
    history = read_history(path)
    workloads: dict[str, type[Workload]] = {}
    plan = Plan(
        seed=0,
        seconds=0,
        steps=[],
        workloads=workloads,
        faults=FAULTS,
        directory=path.parent,
        budget_factor=float(history.header.details.get("budget_factor", 1.0)),
    )
    return history, judged(history, plan, [], 0, (history.end_ns - history.begin_ns) / 1e9)


if __name__ == "__main__":
    sys.exit(main())
