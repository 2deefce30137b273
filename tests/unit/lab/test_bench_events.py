"""The benchmark of a node's loop: it runs, small but for real, and finds what watchers are told wrongly."""

import argparse
import asyncio
import contextlib
import gc
import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cluster.node import Node
from http_api.v1 import event_text
from lab.bench import command as bench
from lab.bench import events
from lab.loads import node_load
from lab.loads.line_process import ROOT
from lab.loads.transcript import Reader, Told, Transcript, check, check_marks
from lab.loads.watch_step import endings
from lab.loads.watcher_process import WatcherProcess, WatchersFailure
from lab.measuring import open_files
from lab.measuring.pauses import PauseMeter
from tests.support.processes import processes_with, wait_until

DEADLINE_S = 60

WHOLE = [
    Told(2, "granted", "orders/a", 7),
    Told(3, "released", "orders/a", 7),
    Told(3, "granted", "orders/b", 8),
]


def text(told: Told, number: int = 0) -> bytes:
    """Return an event as it stands in the stream."""
    event_id = f"{told.revision}.{number}" if number else f"{told.revision}"
    data = {"revision": told.revision, "event": told.kind, "name": told.name, "token": told.token}
    return f"id: {event_id}\nevent: {told.kind}\ndata: {json.dumps(data)}\n\n".encode()


FIRST, SECOND, THIRD = text(WHOLE[0]), text(WHOLE[1], 1), text(WHOLE[2])
BEGINNING = b"retry: 1000\nid: 1\n\n"
HEARTBEAT = b": heartbeat\nid: 2\n\n"
CUT = b'event: cut\ndata: {"reason":"slow-reader"}\n\n'


def arguments(disk: Path, *flags: str) -> argparse.Namespace:
    """Return what the command line makes of `flags`."""
    return bench.build_parser().parse_args(["events", "--disk", str(disk), "--json", *flags])


@pytest.fixture
def as_before() -> Iterator[None]:
    """What a run changes of this process is as before afterwards."""
    limits, threshold = resource.getrlimit(resource.RLIMIT_NOFILE), gc.get_threshold()
    yield
    gc.set_threshold(*threshold)
    gc.unfreeze()
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)


pytestmark = pytest.mark.usefixtures("as_before")


def test_it_measures_and_tells(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """A small run has figures of everything, every watcher got every event, and nothing is left behind."""
    options = arguments(tmp_path, "--leases", "200", "--watchers", "0,3", "--seconds", "1")
    assert events.run(options) == 0
    found = json.loads(capsys.readouterr().out)
    leases = found["leases"]
    assert leases["leases"] == 200
    assert leases["gone_ms"] > 0
    assert found["bar"]["found"] == leases["meanwhile"]["worst_ms"] > 0
    nobody, live, mute = found["steps"]
    assert [(step["watchers"], step["is_mute"]) for step in (nobody, live, mute)] == [
        *((0, False), (3, False), (3, True)),
    ]
    assert all(step["cycles_per_s"] > 0 and step["pauses"]["worst_ms"] > 0 for step in found["steps"])
    assert (nobody["outcomes"], nobody["events"]) == ({}, 0)
    assert (live["outcomes"], live["watching_at_end"]) == ({"complete": 3}, 3)
    assert live["watched_per_s"] > 0
    assert sum(mute["outcomes"].values()) == 3
    assert mute["watched_per_s"] == 0
    assert [step["faults"] for step in found["steps"]] == [[], [], []]
    assert list(tmp_path.iterdir()) == []


def test_leases_are_longer_the_next_time(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """On a machine where the first lease ends before the last began, longer ones are tried."""
    plain = node_load.fill
    calls: list[float] = []

    async def slowly(node: Node, leases: int, ends_s: float, *, first: int) -> None:
        calls.append(ends_s)
        await plain(node, leases, ends_s if len(calls) > 1 else 0, first=first)
        await node_load.until(lambda: len(calls) > 1 or not node.machine.state.holds)

    monkeypatch.setattr(events, "fill", slowly)
    assert events.run(arguments(tmp_path, "--leases", "20", "--watchers", "0", "--seconds", "0.1")) == 0
    output = capsys.readouterr()
    assert json.loads(output.out)["leases"]["leases"] == 20
    assert len(calls) == 2
    assert "trying again with longer ones" in output.err


def test_a_missed_bar_counts_only_if_asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """With --check the exit code is 1 when leases stopped the loop for too long or were not measured."""

    def code(leases: dict[str, Any] | None, *flags: str) -> int:
        monkeypatch.setattr(events, "_measure", lambda _: {"leases": leases, "steps": []})
        return events.run(arguments(tmp_path, *flags))

    fast, slow = ({"leases": 200, "meanwhile": {"worst_ms": worst_ms}} for worst_ms in (100.0, 100.1))
    assert [code(leases) for leases in (fast, slow, None)] == [0, 0, 0]
    assert [code(leases, "--check") for leases in (fast, slow, None)] == [0, 1, 1]


def test_a_node_that_leaves_out_an_event_is_found(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """When the node does not tell of one event, the run names it and fails."""
    plain = event_text.with_ids
    lost: list[int] = []

    def with_ids(revision: int, bodies: list[tuple[int, bytes]]) -> bytes:
        if len(lost) == 0 and len(bodies) > 1:
            lost.append(revision)
            bodies = bodies[1:]
        return plain(revision, bodies)

    monkeypatch.setattr(event_text, "with_ids", with_ids)
    options = arguments(tmp_path, "--leases", "0", "--watchers", "2", "--seconds", "0.2")
    assert events.run(options) == 1
    output = capsys.readouterr()
    faults = json.loads(output.out)["steps"][0]["faults"]
    assert any("out of order" in fault for fault in faults)
    assert any("lost" in fault and f"revision={lost[0]}" in fault for fault in faults)
    assert faults[0] in output.err


@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_all_watchers_share_one_transcript(size: int) -> None:
    """In whatever pieces streams come, the transcript has the events, and each watcher its place in it."""
    transcript = Transcript()
    readers = [Reader(transcript) for _ in range(3)]
    stream = BEGINNING + FIRST + HEARTBEAT + SECOND + THIRD
    for reader, data in zip(readers, (stream, stream, BEGINNING + FIRST + CUT), strict=True):
        for start in range(0, len(data), size):
            reader.take(data[start : start + size])
    data = bytes(transcript.data)
    assert data == FIRST + SECOND + THIRD
    assert [reader.fault for reader in readers] == ["", "", ""]
    assert [reader.offset for reader in readers] == [len(data), len(data), len(FIRST)]
    assert [reader.cut for reader in readers] == ["", "", "slow-reader"]
    assert check(data, WHOLE, is_whole=True) == []
    assert check_marks(data, transcript.ends(), readers[0].marks) == []


def test_a_gap_of_one_watcher_is_found() -> None:
    """A watcher that misses an event that others got is found, and so is one that gets an event twice."""
    transcript = Transcript()
    good, gap, twice = (Reader(transcript) for _ in range(3))
    good.take(BEGINNING + FIRST + SECOND + THIRD)
    gap.take(BEGINNING + FIRST + THIRD)
    twice.take(BEGINNING + FIRST + FIRST)
    assert good.fault == ""
    assert gap.fault.startswith(f"at byte {len(FIRST)} another event")
    assert twice.fault.startswith(f"at byte {len(FIRST)} another event")


@pytest.mark.parametrize(
    ("data", "fault"),
    [
        (FIRST + THIRD, "lost, or sent too seldom"),
        (FIRST + text(WHOLE[1], 2) + THIRD, "out of order: 3.2 comes after 2"),
        (SECOND + THIRD + FIRST, "out of order: 2 comes after 3"),
        (FIRST + FIRST + SECOND + THIRD, "out of order: 2 comes after 2"),
        (FIRST + text(WHOLE[2], 1) + THIRD, "sent too often"),
        (FIRST + SECOND, "ends within a revision, with 3.1"),
        (FIRST + SECOND + THIRD.replace(b"id: 3", b"id: 4"), "say different things"),
        (FIRST + b"nonsense\n\n", "no event"),
        (b"", "lost, or sent too seldom"),
    ],
)
def test_a_wrong_transcript_is_found(data: bytes, fault: str) -> None:
    """What is lost, repeated, out of order, wrongly numbered or no event at all is named."""
    assert any(fault in found for found in check(data, WHOLE, is_whole=True))


def test_a_transcript_that_ends_early_must_be_right_up_to_there() -> None:
    """When every watcher was cut, what they got before that is checked, and what came after is not missed."""
    assert check(FIRST + SECOND, WHOLE, is_whole=False) == []
    assert check(b"", WHOLE, is_whole=False) == []
    assert check(SECOND + THIRD, WHOLE, is_whole=False) != []


def test_a_heartbeat_that_promises_too_much_is_found() -> None:
    """A heartbeat may not have the id of what was not sent yet, nor go back behind what was."""
    data, ends = FIRST + SECOND + THIRD, [len(FIRST), len(FIRST + SECOND), len(FIRST + SECOND + THIRD)]
    assert check_marks(data, ends, [(0, 1), (len(FIRST), 2), (len(data), 9)]) == []
    assert check_marks(data, ends, [(len(FIRST), 3)]) == ["the heartbeat 3 comes before the event 3"]
    assert check_marks(data, ends, [(len(data), 2)]) == ["the heartbeat 2 comes after the event 3"]


def test_how_watches_end_is_judged() -> None:
    """Live watchers have everything or were told why not; one that reads nothing may have been dropped."""
    judge = endings
    assert judge({"complete": 2, "cut: slow-reader": 1}, {"slow-reader": 1}, is_mute=False) == []
    assert judge({"lost": 2, "cut: slow-reader": 1, "behind": 1}, {"slow-reader": 4}, is_mute=True) == []
    assert judge({"lost": 1}, {"slow-reader": 1}, is_mute=False) != []
    assert judge({"behind": 1}, {}, is_mute=False) != []
    assert judge({"lost": 1}, {}, is_mute=True) != []
    assert judge({"complete": 1}, {"slow-reader": 1}, is_mute=True) != []
    assert judge({"cut: no-leader": 1}, {"no-leader": 1}, is_mute=False) != []


async def test_pauses_of_the_loop_are_seen() -> None:
    """The meter tells of a callback that kept the loop busy, once, and that it looked."""
    meter = PauseMeter()
    loop = asyncio.get_running_loop()
    end_s = time.monotonic() + 0.05
    while time.monotonic() < end_s:
        pass
    is_over = loop.create_future()
    loop.call_later(0.01, is_over.set_result, None)
    await is_over
    seen = meter.take()
    assert seen.worst_ms >= 45
    assert seen.worst_ms >= seen.p99_ms
    assert seen.looks > 1
    assert meter.take() == (0.0, 0.0, 0)
    meter.stop()


async def test_watchers_that_cannot_begin_are_told(tmp_path: Path) -> None:
    """Where no node listens, the failure says so, and the process is gone."""
    with pytest.raises(WatchersFailure, match="Connect call failed"):
        async with WatcherProcess.of(1, 1, "orders/", tmp_path / "transcript", is_mute=False):
            pass
    assert processes_with(str(tmp_path)) == {}


async def test_a_process_finds_the_packages_of_its_caller(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A better interpreter has those of this environment by its PYTHONPATH; so has what it starts."""
    (tmp_path / "installed_elsewhere.py").write_text("print('{}', flush=True)\ninput()\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    async with WatcherProcess.start("installed_elsewhere", []) as process:
        assert process.pid in processes_with("installed_elsewhere")


@contextlib.contextmanager
def watched_run(folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Start scripts/bench events and give it when its watchers' process has started."""
    command = [sys.executable, "-P", "-m", "lab.bench.command", "events", "--disk", str(folder)]
    command += ["--leases", "0", "--watchers", "2", "--seconds", "600"]
    with subprocess.Popen(
        command,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as process:
        try:
            wait_until(lambda: len(processes_with(str(folder))) >= 2, "the watchers start", DEADLINE_S)
            assert process.poll() is None
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_leaves_nothing_behind(number: signal.Signals, tmp_path: Path) -> None:
    """Ctrl-C or SIGTERM amid a step ends the watchers' process too, and removes the node's data."""
    with watched_run(tmp_path) as process:
        os.killpg(process.pid, number)  # as a terminal does, and a supervisor
        assert process.wait(DEADLINE_S) == 130
    assert processes_with(str(tmp_path)) == {}
    assert list(tmp_path.iterdir()) == []


def test_a_killed_run_takes_its_watchers_along(tmp_path: Path) -> None:
    """After SIGKILL amid a step the watchers' process ends, too."""
    with watched_run(tmp_path) as process:
        process.kill()
    wait_until(lambda: not processes_with(str(tmp_path)), "the watchers' process has ended", DEADLINE_S)


def test_too_few_open_files_are_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Where the hard limit is too low, the run says how many files it needs and which limit to raise."""
    monkeypatch.setattr(open_files, "raise_limit", lambda: 300)
    assert events.run(arguments(tmp_path, "--watchers", "101")) == 1
    assert "need 301 open files, and no more than 300 are allowed" in capsys.readouterr().err


@pytest.mark.parametrize("flags", [("--watchers", "1001"), ("--watchers=-1",), ("--leases=-1",)])
def test_numbers_out_of_range_are_refused(
    flags: tuple[str, ...], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """More watchers than a node takes, and less than none of anything, are refused."""
    with pytest.raises(SystemExit):
        arguments(tmp_path, *flags)
    assert flags[0].partition("=")[0] in capsys.readouterr().err
