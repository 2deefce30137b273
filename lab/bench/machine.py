"""What the state machine alone can do: commands decoded and applied, without a log, a disk or a network.

Run by `scripts/bench machine`. One process, its garbage collector as a node has it.
"""

import argparse
import gc
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, Self

from http_api.__main__ import calm_collector
from lab.bench import options
from lab.loads.machine_feed import Feed, Load, check_results
from lab.loads.machine_loads import FLAT_LEASE, FLAT_SESSION, all_loads
from lab.measuring import bars
from lockstate.words.codec import decode_entry
from lockstate.words.commands.entries import Command, Tick
from lockstate.words.commands.holds import Acquire
from lockstate.words.commands.sessions import CloseSession, OpenSession
from lockstate.words.ids import SessionId
from lockstate.words.limits import SESSION_CLAIMS_MAX, TTL_MS_MAX
from lockstate.words.modes import Mode

DESCRIPTION: Final = (
    "Measure the state machine alone: one process decodes and applies encoded entries of about 500 commands "
    "while other locks are held. A figure is the median of several rounds, which take turns, with the "
    "lowest and the highest in parentheses. A cycle is what one client does: acquire and release, unless a "
    "load says otherwise. 'slower' compares the last column with the first, each round relative to work "
    "without any lock that was done right before and after it, because a disturbed machine is slower at "
    "both. A million locks take some minutes and 2 GiB of memory."
)
PAIRS_PER_S_MIN: Final = 200_000
"""Uncontended pairs of acquire and release per second that one node must do, decoding included."""
SLOWER_MAX: Final = 2.0
"""Factor by which a pair may be slower when as many locks are held as the largest level has."""
APPLY_MS_MAX: Final = 100.0
"""How long one entry may stop a node when many leases end at once, in ms: followers wait for a heartbeat."""
LEVELS: Final = (1, 1_000, 1_000_000)
DUE_COUNT: Final = 100_000
PROGRESS_S: Final = 10.0
FIXED_WORDS: Final = 10_000
"""How much the fixed work is: some milliseconds."""

Clock = Callable[[], float]


class Figure(NamedTuple):
    """What several rounds came to, per second; `relative` is the median for each piece of fixed work."""

    median: float
    low: float
    high: float
    relative: float

    @classmethod
    def of(cls, rounds: Sequence[tuple[float, float]]) -> Self:
        """Summarize rounds: what each came to, and what the fixed work did at that time."""
        values = [value for value, _ in rounds]
        relative = statistics.median(value / fixed for value, fixed in rounds)
        return cls(statistics.median(values), min(values), max(values), relative)

    def __str__(self) -> str:
        """Return the figure with its spread, in thousands."""
        return f"{self.median / 1000:.1f} ({self.low / 1000:.0f}-{self.high / 1000:.0f})"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of this benchmark."""
    parser.add_argument(
        "--levels",
        type=_levels,
        metavar="N,N,...",
        help="how many other locks are held (default: 1,1000,1000000; quick: 1,1000,20000)",
    )
    parser.add_argument("--rounds", type=int, metavar="N", help="rounds of each load (default: 7; quick: 3)")
    parser.add_argument(
        "--commands", type=int, metavar="N", help="commands per round (default: 20000; quick: 4000)"
    )
    parser.add_argument("--due", type=int, metavar="N", help="how many leases end at once (default: 100000)")
    parser.add_argument("--only", default="", metavar="TEXT", help="only loads with TEXT in their names")
    parser.add_argument(
        "--cpu-time",
        action="store_true",
        help="measure processor time instead of elapsed time, for a machine that others use too",
    )
    parser.add_argument("--quick", action="store_true", help="a rough run within half a minute")
    parser.add_argument("--check", action="store_true", help="exit code 1 if a bar is missed or not measured")
    options.add_json(parser)


def _levels(text: str) -> tuple[int, ...]:
    """Read numbers of locks."""
    levels = tuple(int(part) for part in text.split(","))
    if list(levels) != sorted(set(levels)) or levels[0] < 0:
        raise argparse.ArgumentTypeError(f"{text}: each number must be above the one before it")
    return levels


def _say(text: str) -> None:
    print(f"bench: {text}", file=sys.stderr, flush=True)


class Plan(NamedTuple):
    """What is measured."""

    levels: tuple[int, ...]
    rounds: int
    commands_count: int
    due_count: int
    loads: list[Load]
    clock: Clock

    @classmethod
    def of(cls, options: argparse.Namespace) -> Self:
        """Return what the flags ask for."""
        default = cls(LEVELS, 7, 20_000, DUE_COUNT, [], time.perf_counter)
        if options.quick:
            default = cls((1, 1_000, 20_000), 3, 4_000, 10_000, [], time.perf_counter)
        return cls(
            options.levels or default.levels,
            options.rounds or default.rounds,
            options.commands or default.commands_count,
            options.due or default.due_count,
            [load for load in all_loads() if options.only in load.name],
            time.process_time if options.cpu_time else time.perf_counter,
        )


# -- measuring ----------------------------------------------------------------------------------------------


def _run_round(feed: Feed, load: Load, commands_count: int, clock: Clock) -> float:
    """Run one round of a load; return cycles per second."""
    feed.apply_all(load.begin(feed))
    entries, _, cycles = load.round(feed, commands_count)
    apply = feed.machine.apply
    began_s = clock()
    for entry in entries:
        apply(decode_entry(entry))
    took_s = clock() - began_s
    _tidy(feed, load)
    return cycles / took_s


def _warm_up(feed: Feed, load: Load, commands_count: int) -> None:
    """Run one round that is not timed, and make sure that the load does what it says."""
    before = _held(feed)
    feed.apply_all(load.begin(feed))
    entries, expected, _ = load.round(feed, commands_count)
    batches = [batch for entry in entries for batch in feed.machine.apply(decode_entry(entry)).batches]
    check_results(load.name, expected, batches)
    _tidy(feed, load)
    if _held(feed) != before:
        raise RuntimeError(f"{load.name}: left something behind: {_held(feed)}, not {before}")


def _tidy(feed: Feed, load: Load) -> None:
    feed.apply_all(load.end())
    if load.pause_ms:
        feed.pass_time(load.pause_ms)


def _held(feed: Feed) -> dict[str, int]:
    """Return the sizes of what a load must leave as it was. Fences are for ever."""
    return {table: count for table, count in feed.machine.counts().items() if table != "fences"}


def _fixed_work(clock: Clock) -> float:
    """Do the same as ever, with no lock in it; return how often a second that could be done."""
    began_s = clock()
    words = {f"word-{number}": number for number in range(FIXED_WORDS)}
    assert sum(words[word] for word in sorted(words)) == sum(range(FIXED_WORDS))
    return 1 / (clock() - began_s)


def _measure_level(feed: Feed, plan: Plan) -> tuple[dict[str, Figure], list[float]]:
    """Return what each load came to, and how fast the machine was in between."""
    for load in plan.loads:
        _warm_up(feed, load, plan.commands_count)
    found: dict[str, list[tuple[float, float]]] = {load.name: [] for load in plan.loads}
    all_fixed = []
    for number in range(plan.rounds):
        fixed = _fixed_work(plan.clock)
        for load in plan.loads:
            per_s = _run_round(feed, load, plan.commands_count, plan.clock)
            before, fixed = fixed, _fixed_work(plan.clock)
            found[load.name].append((per_s, (before + fixed) / 2))
            all_fixed.append(fixed)
        _say(f"round {number + 1} of {plan.rounds}")
    return {name: Figure.of(rounds) for name, rounds in found.items()}, all_fixed


def _apply_ms(feed: Feed, entry: bytes, clock: Clock) -> float:
    """Return how long one entry takes."""
    began_s = clock()
    feed.machine.apply(decode_entry(entry))
    return (clock() - began_s) * 1000


def _fill(feed: Feed, count: int, clock: Clock) -> list[float]:
    """Acquire so many more locks; return how long each entry took."""
    took_ms = []
    last_said_s = time.monotonic()
    for entry in feed.entries(feed.hold(count)):
        took_ms.append(_apply_ms(feed, entry, clock))
        if time.monotonic() - last_said_s > PROGRESS_S:
            last_said_s = time.monotonic()
            _say(f"{feed.machine.counts()['holds']} locks are held")
    return took_ms


def _let_expire(feed: Feed, count: int, clock: Clock) -> list[float]:
    """Let so many leases end in one moment; return how long each entry took until all were gone."""
    before = feed.machine.counts()["holds"]
    end_ms = feed.now_ms + 3_600_000
    feed.apply_all(feed.hold(count, end_ms))
    assert feed.machine.counts()["holds"] == before + count, "all were granted"
    feed.now_ms = end_ms
    took_ms = []
    while feed.machine.counts()["holds"] > before:
        took_ms.append(_apply_ms(feed, feed.entry([Tick()]), clock))
    return took_ms


def _close_session(feed: Feed, clock: Clock) -> float:
    """Return how long it takes to end a session with as many locks as one may have."""
    session_id = SessionId(feed.new_id())
    commands: list[Command] = [OpenSession(session_id, TTL_MS_MAX)]
    for _ in range(SESSION_CLAIMS_MAX):
        name = f"job-{feed.next_number()}"
        commands.append(Acquire(name, Mode.EXCLUSIVE, *feed.new_hold_ids(), session_id=session_id))
    feed.apply_all(commands)
    before = feed.machine.counts()["holds"]
    took_ms = _apply_ms(feed, feed.entry([CloseSession(session_id)]), clock)
    assert feed.machine.counts()["holds"] == before - SESSION_CLAIMS_MAX, "all were held, and none is"
    return took_ms


# -- the whole ----------------------------------------------------------------------------------------------


def measure(plan: Plan) -> dict[str, Any]:
    """Return all figures."""
    feed = Feed()
    calm_collector()
    figures: dict[str, dict[int, Figure]] = {load.name: {} for load in plan.loads}
    fixed: list[float] = []
    fill_ms: list[float] = []
    for level in plan.levels:
        fill_ms += _fill(feed, level - feed.machine.counts()["holds"], plan.clock)
        _say(f"{level} locks are held")
        of_level, fixed_here = _measure_level(feed, plan)
        fixed += fixed_here
        for name, figure in of_level.items():
            figures[name][level] = figure
    _say(f"{plan.due_count} leases end at once")
    found = {
        "machine": {
            "cpus": os.cpu_count(),
            "load": os.getloadavg()[0],
            "python": platform.python_version(),
            "gc": gc.get_threshold(),
        },
        "levels": plan.levels,
        "figures": figures,
        "fixed": {"low": min(fixed), "median": statistics.median(fixed), "high": max(fixed)},
        "fill_ms": _spread_ms(fill_ms),
        "due_count": plan.due_count,
        "due_ms": _spread_ms(_let_expire(feed, plan.due_count, plan.clock)),
        "close_session_ms": _close_session(feed, plan.clock),
    }
    return {**found, "bars": _bars(plan, found)}


def _spread_ms(took_ms: Sequence[float]) -> dict[str, float]:
    """Return what many entries took."""
    ordered = sorted(took_ms)
    return {
        "entries": len(ordered),
        "median_ms": ordered[len(ordered) // 2],
        "p99_ms": ordered[int(len(ordered) * 0.99)],
        "longest_ms": ordered[-1],
    }


def _bars(plan: Plan, found: dict[str, Any]) -> list[dict[str, Any]]:
    """Say of each bar what was found, and whether it is met; None if it was not measured."""
    found_bars = []
    few, many = plan.levels[0], plan.levels[-1]
    for name in (FLAT_SESSION, FLAT_LEASE):
        figure = found["figures"].get(name, {})
        per_s = figure[few].median if figure and few <= 1 else None
        text = f"{name}: {PAIRS_PER_S_MIN} pairs/s while {few} is held"
        found_bars.append(bars.at_least(text, per_s, PAIRS_PER_S_MIN))
        slower = figure[few].relative / figure[many].relative if figure and many >= LEVELS[-1] else None
        text = f"{name}: at most {SLOWER_MAX:g} times slower while {LEVELS[-1]} are held"
        found_bars.append(bars.at_most(text, slower, SLOWER_MAX))
    longest_ms = found["due_ms"]["longest_ms"] if plan.due_count >= DUE_COUNT else None
    text = f"no entry over {APPLY_MS_MAX:g} ms while {DUE_COUNT} leases end at once"
    return [*found_bars, bars.at_most(text, longest_ms, APPLY_MS_MAX)]


def _print(plan: Plan, found: dict[str, Any]) -> None:
    few, many = plan.levels[0], plan.levels[-1]
    print("thousands of cycles a second, while so many other locks are held")
    print(f"{'':32}" + "".join(f"{level:>22,}" for level in plan.levels) + f"{'slower':>9}")
    for name, figure in found["figures"].items():
        cells = "".join(f"{figure[level]!s:>22}" for level in plan.levels)
        print(f"{name:32}{cells}{figure[few].relative / figure[many].relative:>8.2f}x")
    fixed = found["fixed"]
    print(f"the machine: {found['machine']}")
    print(
        "its noise, the same work without any lock, per second:"
        f" lowest {fixed['low']:.0f}, median {fixed['median']:.0f}, highest {fixed['high']:.0f}"
    )
    for text, key in (
        ("acquiring all of them", "fill_ms"),
        (f"{plan.due_count} leases end at once", "due_ms"),
    ):
        took = found[key]
        print(
            f"{text}: {took['entries']} entries, median {took['median_ms']:.2f} ms,"
            f" 99th percentile {took['p99_ms']:.2f} ms, longest {took['longest_ms']:.1f} ms"
        )
    print(f"a session of {SESSION_CLAIMS_MAX} locks ends in {found['close_session_ms']:.1f} ms")
    print("\n".join(bars.lines(found["bars"])))


def run(options: argparse.Namespace) -> int:
    """Measure as `options` say and print; return the exit code."""
    plan = Plan.of(options)
    if not plan.loads:
        _say(f"no load has {options.only!r} in its name")
        return 2
    found = measure(plan)
    if options.json:
        print(json.dumps(_plain(found), indent=2))
    else:
        _print(plan, found)
    return 1 if options.check and not bars.are_met(found["bars"]) else 0


def _plain(found: Any) -> Any:
    """Return the same with figures as objects of JSON."""
    if isinstance(found, Figure):
        return found._asdict()
    if isinstance(found, dict):
        return {str(key): _plain(value) for key, value in found.items()}
    return [_plain(value) for value in found] if isinstance(found, list | tuple) else found
