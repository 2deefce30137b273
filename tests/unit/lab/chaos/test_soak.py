"""The soak: what it takes for a leak, and what ends it."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from lab.chaos import soak
from lab.chaos.checkers.violation import Violation
from lab.chaos.late_leases import LateLeases
from lab.chaos.run import HISTORY_FILE, Plan, Report
from lab.chaos.soak import Sample, Soak, kept_bytes, leaks, metric, used_bytes

MIB = 1024 * 1024
BEFORE = Sample(
    node="n1",
    used_bytes=50 * MIB,
    resident_bytes=80 * MIB,
    files=18,
    disk_bytes=2 * MIB,
    requests=0,
    term=1,
)


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"files": 29}, "open files"),
        ({"used_bytes": 83 * MIB}, "bytes of memory"),
        ({"used_bytes": 163 * MIB, "kept_bytes": 80 * MIB}, "bytes of memory"),
        ({"requests": 1}, "remembered requests"),
        ({"disk_bytes": 513 * MIB}, "bytes on the disk"),
    ],
)
def test_what_does_not_go_down_again_is_a_leak(change: dict[str, int], what: str) -> None:
    """A little more of files, memory and disk is none; what is told names the node and the bound."""
    little = {"files": 28, "used_bytes": 82 * MIB, "disk_bytes": 512 * MIB, "term": 90}
    kept = {"used_bytes": 162 * MIB, "kept_bytes": 80 * MIB}
    for harmless in (little, little | kept):
        assert leaks([BEFORE], [msgspec.structs.replace(BEFORE, **harmless)]) == []
    [found] = leaks([BEFORE], [msgspec.structs.replace(BEFORE, **change)])
    assert found.startswith("n1 has")
    assert what in found


def test_what_allocators_keep_free_is_no_leak() -> None:
    """However large a process has become: the memory in use counts, of small objects and of large ones."""
    assert leaks([BEFORE], [msgspec.structs.replace(BEFORE, resident_bytes=900 * MIB)]) == []
    assert used_bytes("holdfast_memory_blocks 1000\nholdfast_memory_malloc_bytes 500\n") == 88_500
    assert used_bytes("") == 0


def test_who_does_not_tell_its_memory_has_passed_nothing() -> None:
    """A node may be down in the end, or of a version without these metrics: nobody knows if it leaks."""
    [found] = leaks([BEFORE], [msgspec.structs.replace(BEFORE, used_bytes=0)])
    assert found == "n1 does not tell how much memory it uses"


def test_a_metric_without_labels_is_read() -> None:
    """A comment, another metric with the same beginning, and one that is missing are not it."""
    text = "# TYPE holdfast_term gauge\nholdfast_terms 9\nholdfast_term 3\n"
    assert metric(text, "holdfast_term") == 3
    assert metric(text, "holdfast_requests") == 0


def test_what_a_node_keeps_on_purpose_has_a_bound() -> None:
    """Events, log and state count as the node tells, up to what it may have: more of them is a leak, too."""
    usual = "holdfast_history_events 1000\nholdfast_log_entries 10\nholdfast_log_bytes 500\n"
    assert kept_bytes(usual + "holdfast_state_bytes 7\n") == 1000 * 700 + 10 * 400 + 500 + 7
    full = kept_bytes("holdfast_history_events 110000\n")
    assert kept_bytes("holdfast_history_events 100000\n") < full
    assert kept_bytes("holdfast_history_events 900000\n") == full
    assert kept_bytes("") == 0


def report(*, problems: list[str], violations: list[Violation]) -> Report:
    """Return what a round came to."""
    return Report(
        operations={"ok": 5},
        faults={},
        terms=1,
        gaps=[],
        late_leases=LateLeases(count=0, median_s=0.0, worst_s=0.0),
        violations=violations,
        problems=problems,
        seconds=1.0,
    )


class FakeTarget:
    """A target with one node that answers and takes next to nothing."""

    def __init__(self, directory: Path) -> None:
        self.cluster = SimpleNamespace(nodes=list, data_dir=lambda _: directory)


BROKEN = Violation(checker="overlap", text="two at once", operations=(1, 2), at_ns=5)


@pytest.mark.parametrize(
    ("rounds", "begun", "problems"),
    [
        ([report(problems=[], violations=[])] * 3, 3, []),
        ([report(problems=["a gap"], violations=[])] * 3, 3, []),
        ([report(problems=[], violations=[BROKEN])] * 3, 1, ["round 0 with seed 40 broke a promise"]),
    ],
)
async def test_only_a_broken_promise_ends_it_early(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, rounds: list[Report], begun: int, problems: list[str]
) -> None:
    """Rounds go on with fresh seeds; a gap is told with the seed, and a round that is not clean is kept."""
    seeds: list[int] = []
    told: list[str] = []
    clock = SimpleNamespace(now_s=0.0)

    async def one(target: Any, plan: Plan, tell: Callable[[str], None]) -> Report:
        del target, tell
        seeds.append(plan.seed)
        clock.now_s += plan.seconds
        (plan.directory / HISTORY_FILE).write_text("")
        return rounds[len(seeds) - 1]

    monkeypatch.setattr(soak, "run", one)
    monkeypatch.setattr(soak, "time", SimpleNamespace(monotonic=lambda: clock.now_s))
    target: Any = FakeTarget(tmp_path)
    plan = Plan(seed=40, seconds=900.0, steps=[], workloads={}, faults={}, directory=tmp_path)
    running = Soak(target, plan, quiet_s=0.0, tell=told.append)
    assert await running.run() == problems
    assert seeds == list(range(40, 40 + begun))
    kept = [(tmp_path / f"round-{number}" / HISTORY_FILE).exists() for number in range(begun)]
    assert kept == [one.exit_code != 0 for one in rounds[:begun]]
    if rounds[0].problems:
        assert told[:2] == ["round 0 with seed 40: a gap", "round 1 with seed 41: a gap"]
