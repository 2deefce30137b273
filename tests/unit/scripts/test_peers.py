"""What of `scripts/bench peers` needs none of the other systems: table, ratios, plot, processes, frames."""

import argparse
import asyncio
import json
import os
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import msgspec
import pytest

from scripts import bench, bench_peers, bench_smoke
from scripts.lib import guardian, processes
from scripts.lib.load import Tally
from scripts.local_cluster import ClusterFailure
from scripts.peers import closed_loop, etcd_grpc, grpc, measure, plot, report, system, zookeeper_client
from scripts.peers.closed_loop import Lean, StuckError, Worker
from scripts.peers.connection import Address
from scripts.peers.measure import Row
from scripts.peers.system import Running, Way, programs
from tests.support.processes import wait_until

HERE = Address("127.0.0.1", 7)


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

# --- figures


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
    assert measure.percentile_ms(times_s, 0.5) == pytest.approx(51)
    assert measure.percentile_ms(times_s, 0.99) == pytest.approx(100)
    assert measure.percentile_ms([], 0.5) == 0


def test_the_machine_and_families_are_seen() -> None:
    """What a grandchild burns is in the time of the machine and of the family, and of no other family."""
    child = subprocess.Popen(
        ["bash", "-c", f"{sys.executable} -c 'while True: pass' & wait"], start_new_session=True
    )
    try:
        wait_until(lambda: len(processes.family([child.pid])) == 2, "the grandchild runs")
        before, alone = measure.Used.now([child.pid]), measure.Used.now([])
        deadline_s = time.monotonic() + 10
        while (now := measure.Used.now([child.pid])).nodes_s < before.nodes_s + 0.1:
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


# --- the closed loop


class Echo:
    """A lean client without a server: it answers in the next turn of the loop, or never."""

    def __init__(self, *, is_mute: bool = False, fails_count: int = 0) -> None:
        self.is_mute = is_mute
        self.fails_count = fails_count
        self.held: list[bytes] = []
        self.is_closed = False

    def acquire(self, worker: Worker) -> None:
        """Grant, or refuse as often as told."""
        loop = asyncio.get_running_loop()
        if self.fails_count:
            self.fails_count -= 1
            loop.call_soon(worker.failed, "refused")
        elif not self.is_mute:
            loop.call_soon(worker.acquired, worker.name.encode())

    def release(self, worker: Worker, held: bytes) -> None:
        """Remember what is given back."""
        self.held.append(held)
        asyncio.get_running_loop().call_soon(worker.released)

    def close(self) -> None:
        """Remember that."""
        self.is_closed = True


def way(*clients: Echo, is_contended: bool = False) -> Way:
    """Return a way of asking them."""

    async def connect(_: int) -> Sequence[Lean]:
        return clients

    return Way("echo", "Echo", connect, is_contended)


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


# --- protocols


class Sink:
    """A transport that keeps what is written."""

    def __init__(self) -> None:
        self.data = b""

    def write(self, data: bytes) -> None:
        """Keep it."""
        self.data += data

    def close(self) -> None:
        """Nothing is open."""


def frames(data: bytes) -> list[tuple[int, int, int, bytes]]:
    """Return kind, flags, stream and payload of HTTP/2 frames."""
    found = []
    while data:
        size, kind, flags, stream = (
            struct.unpack("!I", b"\0" + data[:3])[0],
            *struct.unpack("!BBI", data[3:9]),
        )
        found.append((kind, flags, stream, data[9 : 9 + size]))
        data = data[9 + size :]
    return found


async def test_calls_respect_the_window_of_the_server() -> None:
    """What does not fit into the server's window waits until it opens, and nothing is lost."""
    client = grpc.Grpc()
    sink: Any = Sink()
    client.connection_made(sink)
    worker = Worker(Tally(), Echo(), "name", 0)
    sink.data = b""
    for _ in range(100):
        client.ask(worker, b"head", bytes(995), lambda _worker, _message: None)
    sent = [each for each in frames(sink.data) if each[0] == 0]
    assert len(sent) == 65  # of 1,000 bytes, into 65,535
    assert len(client.waiting()) == 100
    client.data_received(grpc.frame(8, 0, 0, struct.pack("!I", 10_000)))
    assert len([each for each in frames(sink.data) if each[0] == 0]) == 75
    client.data_received(grpc.frame(8, 0, 0, struct.pack("!I", 1 << 20)))
    calls = [each for each in frames(sink.data) if each[0] == 0]
    assert [stream for _, _, stream, _ in calls] == list(range(1, 200, 2))


async def test_answers_come_in_any_order_and_pieces() -> None:
    """Answers find their calls by stream; one without a message failed; pings and settings are answered."""
    client = grpc.Grpc()
    sink: Any = Sink()
    client.connection_made(sink)
    tally = Tally()
    worker = Worker(tally, Echo(), "name", 0)
    worker.begin = lambda: None  # type: ignore[method-assign]
    answers: list[bytes] = []
    for _ in range(3):
        client.ask(worker, b"", b"", lambda _, message: answers.append(message))
    sink.data = b""
    message = struct.pack("!BI", 0, 5) + b"hello"
    data = (
        grpc.frame(4, 0, 0, b"")
        + grpc.frame(6, 0, 0, b"pingpong")
        + grpc.frame(1, 4, 3, b"headers")
        + grpc.frame(0, 0, 3, message[:7])
        + grpc.frame(0, 0, 3, message[7:])
        + grpc.frame(1, 5, 3, b"trailers")
        + grpc.frame(1, 5, 1, b"grpc-status 5")
        + grpc.frame(3, 0, 5, struct.pack("!I", 7))
    )
    for at in range(len(data)):
        client.data_received(data[at : at + 1])
    assert answers == [b"hello"]
    assert tally.errors == ["refused: grpc-status 5", "reset: 7"]
    assert frames(sink.data) == [(4, 1, 0, b""), (6, 1, 0, b"pingpong")]
    assert client.waiting() == []


def test_protobuf_as_its_document_has_it() -> None:
    """The examples of the encoding's documentation: 150 in field 1, "testing" in field 2."""
    assert etcd_grpc.field(1, 150).hex() == "089601"
    assert etcd_grpc.field(2, b"testing").hex() == "120774657374696e67"
    assert etcd_grpc.varint(0) == b"\0"
    assert etcd_grpc.after_header(b"\x0a\x02ab\x10\x01") == b"\x10\x01"


def test_lists_of_jute() -> None:
    """A list has its length, and each string its own."""
    answer = struct.pack("!ii", 0, 2) + struct.pack("!i", 1) + b"a" + struct.pack("!i", 3) + b"bcd"
    assert zookeeper_client.children(answer) == [b"a", b"bcd"]
    assert zookeeper_client.error(struct.pack("!i", -101)) == -101


# --- processes


def test_programs_that_do_not_want_to_end_are_killed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Asked first, killed when the time is over; both have ended when the block is left by an error."""
    monkeypatch.setattr(system, "STOP_S", 0.3)
    log = tmp_path / "log"
    marks = []

    def run(trap: str) -> None:
        with programs("stubborn") as started:
            for name in ("a", "b"):
                line = f"trap '{trap}' TERM; echo {name} >> marks; while :; do read -t 0.05 < <(:); done"
                started.start(["bash", "-c", line], log)
            wait_until(lambda: (tmp_path / "marks").read_text().count("\n") == 2, "both have begun")
            marks.extend(started.pids)
            raise ZeroDivisionError

    for trap in ("", "echo asked; exit"):
        (tmp_path / "marks").write_text("")
        with pytest.raises(ZeroDivisionError):
            run(trap)
        assert not any(Path(f"/proc/{pid}").exists() for pid in marks)
    assert log.read_text().split() == ["asked", "asked"]


def test_a_program_that_ends_says_its_last_words(tmp_path: Path) -> None:
    """A system that does not start fails with the end of its log; so does one that never answers."""
    with programs("broken") as started:
        started.start(["bash", "-c", "echo cannot bind; exit 3"], tmp_path / "log")
        with pytest.raises(ClusterFailure, match="broken has ended; its last words:\ncannot bind"):
            started.wait(lambda: False)
    with programs("silent") as started:
        started.start(["sleep", "60"], tmp_path / "log")
        with pytest.raises(ClusterFailure, match="silent is not ready"):
            started.wait(lambda: False, timeout_s=0.1)


def test_the_newest_program_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of several versions the newest counts, 10 after 9; and what may not be run is not there."""
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    for version in ("9", "10"):
        folder = tmp_path / version / "bin"
        folder.mkdir(parents=True)
        (folder / "server").write_text("")
        (folder / "server").chmod(0o755)
        (folder / "manual").write_text("")
    pattern = f"{tmp_path.relative_to('/')}/*/bin"
    assert system.find_program("server", pattern) == str(tmp_path / "10" / "bin" / "server")
    assert system.find_program("manual", pattern) is None


# --- the command


class Fake:
    """A system without processes."""

    def __init__(self, name: str, *ways: Way, missing: Sequence[str] = (), is_broken: bool = False) -> None:
        self.name = name
        self.nodes = 1
        self.ways = list(ways)
        self.packages = list(missing)
        self.is_broken = is_broken

    def missing(self) -> list[str]:
        """Return what was said."""
        return self.packages

    @contextmanager
    def running(self, directory: Path, workers: int) -> Iterator[Running]:
        """Write something, or fail."""
        assert workers == 4
        (directory / "data").write_text("data")
        if self.is_broken:
            raise ClusterFailure("it does not start")
        yield Running([], self.ways)


def parse(*options: str) -> argparse.Namespace:
    """Return what the command line makes of options."""
    return bench.build_parser().parse_args(["peers", *options])


def measured(tmp_path: Path, *systems: Fake, options: Sequence[str] = ()) -> int:
    """Run the command with these systems."""
    (tmp_path / "disk").mkdir()
    arguments = parse("--workers", "4", "--seconds", "0.1", "--warm-up", "0", "--waiters", "2", *options)
    arguments.only = systems
    arguments.disk = tmp_path / "disk"
    with guardian.guarded():
        code = bench_peers.run(arguments)
    assert list(arguments.disk.iterdir()) == []
    return code


def test_the_command_prints_and_writes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Table, JSON and plot have all rows; what is not installed is named with its packages."""
    files = tmp_path / "found.json", tmp_path / "found.svg"
    ways = way(Echo())._replace(key="holdfast-http"), way(Echo(), is_contended=True)
    fakes = Fake("ours", *ways), Fake("other", missing=["other-server", "java"]), Fake("third", way(Echo()))
    options = ["--json", str(files[0]), "--plot", str(files[1]), "--rounds", "2"]
    assert measured(tmp_path, *fakes, options=options) == 0
    output = capsys.readouterr()
    assert "other is skipped: it is not installed; apt-get install other-server java" in output.err
    assert "round 2: Echo, one lock: 2 workers" in output.err
    assert "Own locks, 4 workers" in output.out
    assert "load of the machine: " in output.out
    found = json.loads(files[0].read_text())
    assert found["skipped"] == {"other": ["other-server", "java"]}
    assert [(each["way"], each["is_contended"]) for each in found["rows"]] == [
        *(("holdfast-http", False), ("echo", True), ("echo", False)),
    ]
    assert found["rows"][2]["ratios"]["holdfast-http"] > 0
    assert len(found["rounds"]) == 6
    assert found["machine"]["load_before"] >= 0
    assert ET.fromstring(files[1].read_text()).tag.endswith("svg")  # noqa: S314 - we have written it


def test_one_that_fails_does_not_stop_the_others(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A system that does not start is told, the next one is measured, and the exit code is 1."""
    assert measured(tmp_path, Fake("broken", is_broken=True), Fake("whole", way(Echo()))) == 1
    output = capsys.readouterr()
    assert "scripts/bench: broken: it does not start" in output.err
    assert "Echo " in output.out


@pytest.mark.parametrize(("fails_count", "missing", "code"), [(0, [], 0), (1, [], 1), (0, ["package"], 1)])
def test_the_exit_code_tells_of_errors(
    fails_count: int, missing: list[str], code: int, tmp_path: Path
) -> None:
    """An answer that was an error, and nothing measured at all, are failures."""
    fake = Fake("one", way(Echo(fails_count=fails_count)), missing=missing)
    assert measured(tmp_path, fake) == code


def test_options_are_checked(capsys: pytest.CaptureFixture[str]) -> None:
    """Unknown systems and too many workers are refused; systems run in their own order."""
    assert [each.name for each in parse("--only", "redis,holdfast").only] == ["holdfast", "redis"]
    assert len(parse().only) == 5
    for wrong in (["--only", "memcached"], ["--workers", "513"], ["--workers", "0"], ["--waiters=-1"]):
        with pytest.raises(SystemExit):
            parse(*wrong)
    assert "there are holdfast, etcd, zookeeper, redis, postgresql" in capsys.readouterr().err


def test_smoke_runs_all_steps_and_judges_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each step is a valid command line; a failure is kept while the others run; an interruption ends all."""
    done: list[str] = []

    def run(code_of: dict[str, int]) -> int:
        def of_step(argv: Sequence[str]) -> int:
            command: str = bench.build_parser().parse_args(argv).command
            done.append(command)
            return code_of.get(command, 0)

        done.clear()
        return bench_smoke.run(of_step)

    monkeypatch.setattr(bench_smoke, "has_peers", lambda: True)
    assert run({}) == 0
    assert done == ["http", "stream", "machine", "peers"]
    assert run({"stream": 1}) == 1
    assert len(done) == 4
    assert run({"stream": 130}) == 130
    assert done == ["http", "stream"]
    monkeypatch.setattr(bench_smoke, "has_peers", lambda: False)
    assert run({}) == 0
    assert done == ["http", "stream", "machine"]


def test_smoke_knows_whether_others_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """We alone are not enough to compare."""
    ours, other = Fake("holdfast"), Fake("redis", missing=["redis-server"])
    monkeypatch.setattr(bench_peers, "SYSTEMS", (ours, other))
    assert not bench_smoke.has_peers()
    other.packages = []
    assert bench_smoke.has_peers()
