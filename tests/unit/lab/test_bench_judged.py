"""The benchmarks that are judged by bars: what they judge, how they tell it, and their options."""

import argparse
import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from lab.bench import command as bench
from lab.bench import failover, fairness, growth, handoff, secure, sizing
from lab.loads.grant_load import longest_gap_s
from lab.measuring import bars, findings
from lab.measuring.findings import Found, Judged, Row
from scripts.local_cluster import LocalCluster

NO_CLUSTER = cast("LocalCluster", None)
MACHINE = {"cpus": 2}


def parse(*argv: str) -> argparse.Namespace:
    """Return what the command line makes of arguments."""
    return bench.build_parser().parse_args(argv)


def met(found: Sequence[bars.Bar]) -> list[bool | None]:
    """Return which bars are met."""
    return [bar["is_met"] for bar in found]


# -- how it is told -----------------------------------------------------------------------------------------


def benchmark(found: Found) -> Judged:
    """Return one that finds this."""

    async def measure(cluster: LocalCluster, arguments: argparse.Namespace) -> Found:
        del cluster, arguments
        await asyncio.sleep(0)
        return found

    def add_arguments(parser: argparse.ArgumentParser) -> None:
        findings.add_check(parser)

    def table(rows: Sequence[Row]) -> list[str]:
        return findings.table(rows, (("head", "figure", "{:.1f}"), ("none", "missing", "{}")))

    return Judged("made-up", "help", "description", add_arguments, measure, table)


def told(found: Found, *, is_json: bool = False, is_checked: bool = False) -> int:
    """Run a benchmark that finds this, and return the exit code."""
    options = argparse.Namespace(json=is_json, check=is_checked)
    return findings.run(benchmark(found), NO_CLUSTER, options, MACHINE)


ROWS: list[Row] = [
    {"title": "first", "figure": 1.25, "others_percent": 3.0},
    {"title": "the second", "figure": None, "others_percent": 41.6},
]


def test_a_table_bars_and_the_load_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    """Each row and each bar has a line, and the last line says what others did."""
    assert told(Found(ROWS, [bars.at_most("the bar", 1.0, 2.0)], [])) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["head", "none"]
    assert lines[1].split() == ["first", "1.2"]
    assert lines[2].split() == ["the", "second"]
    assert lines[3] == "met: the bar (1)"
    assert "others took up to 42 %" in lines[4]


def test_json_has_everything(capsys: pytest.CaptureFixture[str]) -> None:
    """With --json the output is one document with machine, rows and bars."""
    assert told(Found(ROWS, [bars.at_most("the bar", 1.0, 2.0)], []), is_json=True) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["command"], found["rows"]) == ("made-up", ROWS)
    assert found["bars"] == [{"bar": "the bar", "found": 1.0, "is_met": True}]
    assert {"cpus", "load_before", "load_after"} == set(found["machine"])


def test_the_exit_code_tells_of_errors_and_if_asked_of_bars(capsys: pytest.CaptureFixture[str]) -> None:
    """A missed or unmeasured bar counts with --check only, an error always."""
    good, missed = bars.at_most("b", 1.0, 2.0), bars.at_most("b", 3.0, 2.0)
    unknown = bars.at_most("b", None, 2.0)
    for judged, code in ((good, 0), (missed, 1), (unknown, 1)):
        assert told(Found([], [judged], []), is_checked=True) == code
        assert told(Found([], [judged], [])) == 0
    assert told(Found([], [good], ["lost"])) == 1
    assert "scripts/bench: error: lost" in capsys.readouterr().err


# -- what is judged -----------------------------------------------------------------------------------------


def test_hand_offs_are_judged_with_all_waiters_only() -> None:
    """900 grants a second are enough, and say nothing with fewer waiters."""

    def row(per_s: float, workers: int) -> Row:
        return {"title": "HTTP", "cycles_per_s": per_s, "workers": workers}

    assert met(handoff._bars([row(900.0, 16), row(899.0, 16), row(900.0, 4)])) == [True, False, None]


def test_failovers_are_judged_by_kind() -> None:
    """Kills have a median and a worst gap, planned changes one; few times or clients do not count."""

    def row(title: str, median_ms: float, worst_ms: float, times: int = 10, clients: int = 16) -> Row:
        figures = {"median_ms": median_ms, "worst_ms": worst_ms}
        return {"title": title, "times": times, "clients": clients, **figures}

    kill, stop, transfer = failover.KILL, failover.STOP, failover.TRANSFER
    good = [row(kill, 200.0, 400.0), row(stop, 1.0, 50.0), row(transfer, 1.0, 50.0)]
    assert met(failover._bars(good)) == [True, True, True, True]
    bad = [row(kill, 201.0, 401.0), row(stop, 1.0, 51.0), row(transfer, 1.0, 51.0)]
    assert met(failover._bars(bad)) == [False, False, False, False]
    assert met(failover._bars([row(kill, 1.0, 1.0, times=9)])) == [None, None, None, None]
    assert met(failover._bars([row(kill, 1.0, 1.0, clients=15)])) == [None, None, None, None]


def test_a_gap_reaches_from_the_change_to_the_end() -> None:
    """The longest time without a grant counts from the change itself, and to the end of the look."""
    moments_s = [0.5, 0.9, 1.4, 1.5, 1.6]
    assert longest_gap_s(moments_s, 1.0, 1.6) == pytest.approx(0.4)
    assert longest_gap_s(moments_s, 1.0, 3.0) == pytest.approx(1.4)
    assert longest_gap_s([], 1.0, 3.0) == pytest.approx(2.0)


def test_growth_is_judged_in_full_only() -> None:
    """Shares have bars of their own; fewer locks, sessions, watchers or workers are not judged."""

    def rows(share: float, count: int) -> list[Row]:
        keys = [subject.key for subject in growth.SUBJECTS]
        of = {"share_percent": share, "count": count, "node_bytes_per_lock": 1024.0}
        return [{"key": key, **of} for key in keys]

    def judged(share: float, count: int, workers: int = 256) -> list[bool | None]:
        return met(growth._bars(rows(share, count), workers))

    assert judged(90.0, 1_000_000) == [True] * 6
    assert judged(80.0, 1_000_000) == [True, True, True, False, True, True]
    assert judged(69.9, 1_000_000) == [False, False, False, False, False, True]
    assert judged(90.0, 999) == [None, None, True, True, None, None]
    assert judged(90.0, 10_000) == [True, True, True, True, None, None]
    assert judged(90.0, 1_000_000, workers=16) == [None] * 5 + [True]
    assert met(growth._bars([], 256)) == [None] * 6


def step(per_s: float, errors: Sequence[str] = ()) -> Row:
    """Return the figures of a step of load."""
    return {
        "cycles_per_s": per_s,
        "acquire_p99_ms": 9.0,
        "server_us_per_cycle": 100.0,
        "others_percent": per_s / 1000,
        "errors": list(errors),
    }


def test_a_share_is_of_what_was_before_and_after() -> None:
    """It is compared with the mean of both, or with what was before alone; errors of all steps count."""
    judged = growth.Growth(NO_CLUSTER, parse("growth"))
    judged._add("sessions", "sessions", 7, [step(1000.0), step(900.0, ["oh"]), step(2000.0)])
    beside = growth._mean([step(600.0), step(1200.0, ["late"])])
    judged._add("locks", "locks", 9, [step(1000.0), beside])
    both, alone = judged.rows
    assert (both["share_percent"], both["after_per_s"], both["others_percent"]) == (60.0, 2000.0, 2.0)
    assert (alone["share_percent"], alone["after_per_s"]) == (90.0, None)
    assert (both["worst_percent"], alone["worst_percent"]) == (None, 60.0)
    assert judged.errors == ["sessions: oh", "locks: late"]


def victim(p99_ms: float, acquires: int = 100, theirs_per_s: float = 5.0) -> dict[str, Any]:
    """Return what a victim saw."""
    times = {"p50_ms": 1.0, "p99_ms": p99_ms, "worst_ms": p99_ms, "acquires": acquires}
    return {**times, "theirs_per_s": theirs_per_s, "others_percent": 0.0, "errors": []}


def test_a_victim_is_compared_with_itself_alone() -> None:
    """Five times its p99 alone are allowed; what was left out is not judged."""
    listing, metrics = fairness.CROWDS[:2]
    good = fairness._row(listing, victim(2.0, theirs_per_s=0.0), victim(10.0))
    bad = fairness._row(metrics, victim(2.0, theirs_per_s=0.0), victim(10.1))
    assert (good["errors"], good["ratio"]) == ([], 5.0)
    assert met(fairness._bars([good, bad])) == [True, False, None, None, None, None]


def test_a_victim_that_got_little_is_not_judged() -> None:
    """The slowest of a few acquires is no 99th percentile, alone or beside others."""
    crowd = fairness.CROWDS[0]
    for alone, beside in ((100, 99), (99, 100)):
        row = fairness._row(crowd, victim(2.0, acquires=alone), victim(10.1, acquires=beside))
        assert (row["errors"], row["ratio"], met(fairness._bars([row]))[0]) == ([], 5.05, None)


def test_a_step_in_which_nothing_happened_has_no_ratio() -> None:
    """A victim that got nothing, and others that did nothing, are errors and not a figure."""
    crowd = fairness.CROWDS[0]
    starved = fairness._row(crowd, victim(2.0), victim(0.0, acquires=0))
    assert starved["ratio"] is None
    assert any("no lock at all" in error for error in starved["errors"])
    idle = fairness._row(crowd, victim(2.0), victim(2.0, theirs_per_s=0.0))
    assert any("no answer at all" in error for error in idle["errors"])


def test_what_tls_costs_is_the_share_of_medians() -> None:
    """One slow round of either changes nothing; a load that is too small is not judged."""
    rows = [
        {"title": title, "cycles_per_s": float(each), "workers": 256}
        for title, figures in (
            ("in the clear", (1000, 10, 1000)),
            ("TLS and tokens", (850, 850, 9000)),
        )
        for each in figures
    ]
    assert met(secure._bars(rows)) == [True]
    rows[3]["cycles_per_s"] = rows[4]["cycles_per_s"] = 849.0
    assert met(secure._bars(rows)) == [False]
    assert met(secure._bars([{**row, "workers": 4} for row in rows])) == [None]


# -- options ------------------------------------------------------------------------------------------------


def test_options_are_checked(capsys: pytest.CaptureFixture[str]) -> None:
    """Unknown names and numbers below 0 are refused; named kinds are run in their own order."""
    assert [crowd.key for crowd in parse("fairness", "--only", "busy,listing").only] == ["listing", "busy"]
    assert len(parse("fairness").only) == 6
    for wrong in (["fairness", "--only", "coffee"], ["growth", "--locks=-1"], ["memory", "--locks", "0"]):
        with pytest.raises(SystemExit):
            parse(*wrong)
    assert "there are listing, metrics, openapi, audit, deep, busy" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["handoff", "failover", "memory", "growth", "fairness"])
def test_help_says_what_is_measured(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    """--help tells what is measured, for how long, and the bars."""
    with pytest.raises(SystemExit) as ended:
        parse(command, "--help")
    assert ended.value.code == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "The bar" in said
    assert "--check" in said
    assert "--json" in said
    assert any(word in said for word in ("minutes", "--seconds"))


def test_a_running_cluster_is_not_broken_or_filled() -> None:
    """The modes that kill nodes or leave locks behind take no running cluster."""
    assert parse("handoff", "--dir", "here").dir == Path("here")
    assert parse("fairness", "--dir", "here").dir == Path("here")
    for command in ("failover", "growth"):
        with pytest.raises(SystemExit):
            parse(command, "--dir", "here")


@pytest.mark.parametrize("text", ["", "5", "5/1", "0/1/1", "5/-1/1", "x/1/1", "9/1/1,5/1/1"])
def test_sizes_that_cannot_be_measured(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Locks stay held from one size to the next, so each has at least as many."""
    with pytest.raises(SystemExit, match="2"):
        parse("sizing", "--sizes", text)
    assert "--sizes" in capsys.readouterr().err
    assert parse("sizing", "--sizes", "5/0/0,5/1/2").sizes == (sizing.Size(5, 0, 0), sizing.Size(5, 1, 2))


@pytest.mark.parametrize(
    "words", [("--times", "100,500"), ("--times", "x"), ("--requests", "0"), ("--losses", "x")]
)
def test_regions_that_cannot_be_measured(words: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    """The command line names what is wrong."""
    with pytest.raises(SystemExit, match="2"):
        parse("regions", *words)
    assert words[0] in capsys.readouterr().err
    assert parse("regions", "--times", "100,500,1000").times == (100, 500, 1000)
