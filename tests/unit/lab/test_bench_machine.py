"""The benchmark of the state machine: its loads do what their names say, and its bars are judged."""

import argparse
import json

import pytest

from lab.bench import command as bench
from lab.bench import machine
from lab.loads.machine_feed import Feed, Load, check_results
from lab.loads.machine_loads import FLAT_SESSION, all_loads
from lockstate.words.ids import HoldId
from lockstate.words.outcomes import BatchOutcome
from lockstate.words.results import Granted, Queued

TINY = ["--levels", "1,30", "--rounds", "1", "--commands", "60", "--due", "40"]


def arguments(*flags: str) -> argparse.Namespace:
    """Return what the command line makes of `flags`."""
    return bench.build_parser().parse_args(["machine", *flags])


@pytest.mark.parametrize("load", all_loads(), ids=lambda load: load.name)
def test_a_load_does_what_it_says(load: Load) -> None:
    """Every command of a load has the result it is meant to have, and nothing of it is left behind."""
    feed = Feed()
    feed.apply_all(feed.hold(5))
    machine._warm_up(feed, load, 1200)
    assert feed.machine.counts()["holds"] == 5
    cycles = max(60 // len(load.expects) // load.weight, 1) * load.weight
    assert machine._run_round(feed, load, 60, iter((1.0, 3.0)).__next__) == pytest.approx(cycles / 2)


def test_a_load_that_does_something_else_is_found() -> None:
    """A result of another kind, or one too few, ends the benchmark: its figures would mean nothing."""
    waits = Queued(HoldId("h"), 1)
    with pytest.raises(RuntimeError, match="and not to Granted"):
        check_results("acquire", [Granted], [BatchOutcome("o", (1,), (waits,))])
    with pytest.raises(RuntimeError, match="1 results of 2"):
        check_results("acquire", [Queued, Queued], [BatchOutcome("o", (1,), (waits,))])


def test_it_measures_and_tells(capsys: pytest.CaptureFixture[str]) -> None:
    """A run prints a figure of every load at every level; what was not measured does not meet its bar."""
    assert machine.run(arguments(*TINY, "--json")) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["levels"] == [1, 30]
    assert set(found["figures"]) == {load.name for load in all_loads()}
    assert all(figure[level]["median"] > 0 for figure in found["figures"].values() for level in ("1", "30"))
    assert found["due_ms"]["entries"] >= 1
    assert [bar["is_met"] is None for bar in found["bars"]] == [False, True, False, True, True]


def test_a_missed_bar_counts_only_if_asked(capsys: pytest.CaptureFixture[str]) -> None:
    """The exit code is 1 with --check when a bar was missed or not measured, and else 0."""
    only = [*TINY, "--only", FLAT_SESSION]
    assert machine.run(arguments(*only)) == 0
    assert "not measured: no entry over 100 ms" in capsys.readouterr().out
    assert machine.run(arguments(*only, "--check")) == 1


def test_bars_are_judged() -> None:
    """A pair may take twice as long beside a million locks, and a slower one misses the bar."""
    plan = machine.Plan.of(arguments("--levels", "1,1000000"))
    fast = machine.Figure(250_000, 1, 1, 10.0)

    def met(slow_relative: float, longest_ms: float) -> list[bool | None]:
        figures = {FLAT_SESSION: {1: fast, 1_000_000: fast._replace(relative=slow_relative)}}
        found = {"figures": figures, "due_ms": {"longest_ms": longest_ms}}
        return [bar["is_met"] for bar in machine._bars(plan, found)]

    assert met(5.0, 100.0) == [True, True, None, None, True]
    assert met(4.9, 100.1) == [True, False, None, None, False]


@pytest.mark.parametrize("text", ["5,1", "-1", "a", "1,1"])
def test_levels_have_to_rise(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Levels that do not rise are refused: locks are only ever added."""
    with pytest.raises(SystemExit):
        arguments(f"--levels={text}")
    assert "--levels" in capsys.readouterr().err
