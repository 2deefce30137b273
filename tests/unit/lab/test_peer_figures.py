"""The figures of `scripts/bench peers`: how a step counts, ratios, table and plot."""

import os
import signal
import subprocess
import sys
import time
from typing import Any
from xml.etree import ElementTree as ET

import msgspec
import pytest

from lab.loads.load import Tally, percentile_ms
from lab.measuring.used import Used
from lab.peers import closed_loop, measure, plot, report
from lab.peers.closed_loop import StuckError
from lab.peers.measure import Row
from lab.peers.system import Way
from scripts.lib import processes
from tests.support.processes import wait_until
from tests.unit.lab.peer_parts import Echo, way


def row(way: str, cycles_per_s: float, *, is_contended: bool = False, **more: Any) -> Row:
    """Return figures of a way."""
    found = Row(
        way=way,
        title=f"The {way}",
        nodes=3,
        is_contended=is_contended,
        workers=16 if is_contended else 256,
        seconds=5.0,
        cycles_per_s=cycles_per_s,
        acquire_p50_ms=1.25,
        acquire_p99_ms=9.5,
        nodes_us_per_cycle=100.0,
        client_us_per_cycle=10.0,
        others_percent=3.0,
        errors_count=0,
        errors=[],
    )
    return msgspec.structs.replace(found, **more)


OURS = [row("holdfast-http", 6000.0), row("holdfast-stream", 20_000.0)]
ROWS = [
    *OURS,
    row("holdfast-stream", 800.0, is_contended=True),
    row("etcd-grpc", 4000.0, title="etcd, gRPC"),
    row("etcd-grpc", 200.0, is_contended=True, title="etcd, gRPC"),
]


def test_ratios_say_how_many_times_ours_does() -> None:
    """A ratio is our cycles by those of the row, of the same test only."""
    assert report.ratios(ROWS, ROWS[3]) == {"holdfast-http": 1.5, "holdfast-stream": 5.0}
    assert report.ratios(ROWS, ROWS[4]) == {"holdfast-stream": 4.0}
    assert report.ratios(ROWS, ROWS[0])["holdfast-http"] == 1.0
    assert report.ratios(ROWS[3:], ROWS[3]) == {}
    assert report.ratios(ROWS, row("redis", 0.0)) == {}


def test_the_table_has_a_line_for_each_way() -> None:
    """Own locks and the contended one are apart, and what cannot be compared has a dash."""
    lines = report.table(ROWS)
    assert lines[0].startswith("Own locks, 256 workers")
    assert lines[0].split()[-4:] == ["HTTP", "is", "stream", "is"]
    assert lines[3].split() == [
        "etcd,",
        "gRPC",
        "3",
        "4000",
        "1.25",
        "9.50",
        "100",
        "10",
        "3",
        "1.50x",
        "5.00x",
    ]
    assert lines[4] == ""
    assert lines[5].startswith("One lock, 16 waiters")
    assert "grants/s" in lines[5]
    assert lines[7].split() == ["etcd,", "gRPC", "3", "200", "1.25", "9.50", "100", "10", "3", "-", "4.00x"]
    assert len(lines) == 8
    assert len({len(line) for line in lines[:4]}) == 1
    assert report.table([]) == []
    assert len(report.table(ROWS[2:3])) == 2


def test_numbers_of_workers_are_apart() -> None:
    """Steps with one worker are compared with each other, and have a table and bars of their own."""
    single = row("holdfast-http", 500.0, workers=1), row("etcd-grpc", 250.0, workers=1)
    rows = [single[0], *ROWS, single[1]]
    assert report.ratios(rows, single[1]) == {"holdfast-http": 2.0}
    assert report.ratios(rows, ROWS[3])["holdfast-http"] == 1.5
    assert [len(each) for each in report.by_test(rows)] == [2, 3, 2]
    assert [line.split("  ")[0] for line in report.table(rows) if "worker" in line or "waiters" in line] == [
        *("Own locks, 1 worker", "Own locks, 256 workers", "One lock, 16 waiters"),
    ]
    assert len(report.medians(rows)) == 7
    assert plot.svg(rows, []).count('class="title"') == 3


def test_a_step_beside_a_busy_processor_is_apart() -> None:
    """It is compared with others of its kind only, and its title says so."""
    beside = row("etcd-grpc", 250.0, workers=1, is_beside_busy=True)
    rows = [row("holdfast-http", 500.0, workers=1), beside]
    assert report.ratios(rows, beside) == {}
    assert [each[0].test.title for each in report.by_test(rows)] == [
        *("Own locks, 1 worker", "Own locks, 1 worker, beside a busy processor"),
    ]


def test_the_latency_of_one_worker_is_drawn() -> None:
    """Each row has two bars, the 99th percentile pale behind the median, to the scale of the longest."""
    rows = [
        row("holdfast-http", 800.0, workers=1, acquire_p50_ms=0.5, acquire_p99_ms=1.0),
        row("redis", 900.0, workers=1, acquire_p50_ms=0.25, acquire_p99_ms=2.0),
    ]
    root = ET.fromstring(plot.svg(rows, []))  # noqa: S314 - we have written it
    space = "{http://www.w3.org/2000/svg}"
    bars = [(bar.attrib["class"], float(bar.attrib["width"]) / 330) for bar in root.findall(f"{space}rect")]
    assert [kind for kind, _ in bars] == ["ours", "ours p99", "peer", "peer p99"]
    assert [length for _, length in bars] == pytest.approx([0.25, 0.5, 0.125, 1.0], abs=0.01)
    texts = [element.text for element in root.findall(f"{space}text")]
    assert texts[0] == "Own locks, 1 worker: how long an acquire takes (pale: 99th percentile)"
    assert "0.50 ms, p99 1.00 ms" in texts


def test_rounds_become_medians() -> None:
    """Of several rounds each figure is the median, errors are added, and own and contended stay apart."""
    rounds = [
        row("redis", 100.0, acquire_p50_ms=3.0),
        row("redis", 7.0, is_contended=True),
        row("redis", 900.0, acquire_p50_ms=1.0, errors_count=2, errors=["a", "b"]),
        row("redis", 300.0, acquire_p50_ms=2.0, errors_count=1, errors=["c"]),
    ]
    own, contended = report.medians(rounds)
    assert (own.cycles_per_s, own.acquire_p50_ms, own.workers) == (300.0, 2.0, 256)
    assert (own.errors_count, own.errors) == (3, ["a", "b", "c"])
    assert contended == rounds[1]


def test_percentiles() -> None:
    """They are of the ordered times, in milliseconds; of none at all they are 0."""
    times_s = [number / 1000 for number in range(1, 101)]
    assert percentile_ms(times_s, 0.5) == pytest.approx(51)
    assert percentile_ms(times_s, 0.99) == pytest.approx(100)
    assert percentile_ms([], 0.5) == 0


def test_the_machine_and_families_are_seen() -> None:
    """What a grandchild burns is in the time of the machine and of the family, and of no other family."""
    child = subprocess.Popen(
        ["bash", "-c", f"{sys.executable} -c 'while True: pass' & wait"], start_new_session=True
    )
    try:
        wait_until(lambda: len(processes.family([child.pid])) == 2, "the grandchild runs")
        before, alone = Used.now([child.pid]), Used.now([])
        deadline_s = time.monotonic() + 10
        while (now := Used.now([child.pid])).nodes_s < before.nodes_s + 0.1:
            assert time.monotonic() < deadline_s
            time.sleep(0.05)
        assert now.machine_s - before.machine_s > 0.05
        assert now.at_s > before.at_s
        assert alone.nodes_s == 0.0
    finally:
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()
    assert processes.family([child.pid]) == set()


def test_the_plot_is_drawn_to_scale() -> None:
    """The SVG is well-formed, has a bar for each row, the longest for the most cycles, and escapes texts."""
    text = plot.svg([*ROWS[:4], row("redis", 0.0, title="<&>", nodes=1)], ["a & b"])
    root = ET.fromstring(text)  # noqa: S314 - we have written it
    space = "{http://www.w3.org/2000/svg}"
    bars = root.findall(f"{space}rect")
    lengths = [float(bar.attrib["width"]) for bar in bars]
    kinds = [bar.attrib["class"] for bar in bars]
    assert len(bars) == 5
    assert lengths[0] / lengths[1] == pytest.approx(0.3, abs=0.01)
    assert lengths[2] / lengths[1] == pytest.approx(0.2, abs=0.01)
    assert lengths[3] == 0.0
    assert lengths[4] == lengths[1]  # the only one of its test
    assert kinds == ["ours", "ours", "peer", "peer", "ours"]
    texts = [element.text for element in root.findall(f"{space}text")]
    assert "<&> (1 node)" in texts
    assert texts[-1] == "a & b"
    height = float(root.attrib["height"])
    assert all(float(element.attrib["y"]) < height for element in root if "y" in element.attrib)


async def figures(one: Way, workers: int, seconds: float = 0.1) -> Row:
    """Run a step."""
    return await measure.step(
        one, 1, [], workers=workers, warm_up_s=0.0, seconds=seconds, progress=lambda _: None
    )


async def test_workers_have_locks_of_their_own_or_one() -> None:
    """Workers share the clients in turn; each has its own name, unless the lock is contended."""
    first, second = Echo(), Echo()
    found = await figures(way(first, second), 3)
    assert found.cycles_per_s > 0
    assert (set(first.held), set(second.held)) == ({b"peers-0", b"peers-2"}, {b"peers-1"})
    assert first.is_closed
    assert second.is_closed
    contended = Echo()
    assert (await figures(way(contended, is_contended=True), 3)).is_contended
    assert set(contended.held) == {b"peers-contended"}


async def test_errors_are_counted_and_do_not_stop_a_worker() -> None:
    """A refusal is an error, also in the warm-up, and the worker tries again."""
    found = await figures(way(Echo(fails_count=2)), 1)
    assert (found.errors_count, found.errors) == (2, ["refused", "refused"])
    assert found.cycles_per_s > 0


async def test_a_mute_system_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who never answers fails the step, by number, and the clients are closed all the same."""
    monkeypatch.setattr(closed_loop, "DRAIN_S", 0.05)
    mute = Echo(is_mute=True)
    with pytest.raises(StuckError, match="2 of 2 workers"):
        await figures(way(mute), 2)
    assert mute.is_closed


async def test_progress_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step that is longer than a while says how far it is, and how fast."""
    monkeypatch.setattr(measure, "PROGRESS_S", 0.05)
    said: list[str] = []
    await measure._pass(1.2, Tally(), said.append)
    assert said
    assert all(text.endswith("0 a second") for text in said)
    assert said[0].startswith("0 of 1 s: ")
