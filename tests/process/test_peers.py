"""The lean clients of `scripts/bench peers`, against the real programs, and how those end."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from lab.bench import peers
from lab.loads.load import Tally
from lab.peers import measure, shares
from lab.peers.closed_loop import Lean, Worker, end
from lab.peers.redis import Redis
from lab.peers.system import Running, System
from scripts.lib import guardian, processes
from tests.support.processes import wait_until

pytestmark = pytest.mark.process

ROOT = Path(__file__).resolve().parents[2]
DEADLINE_S = 60.0
WORKERS = 4


def installed(system: System) -> None:
    """Skip a test of what is not there."""
    if missing := system.missing():
        pytest.skip(f"{system.name} is not installed: apt-get install {' '.join(missing)}")


@contextlib.contextmanager
def empty_disk() -> Iterator[Path]:
    """Give a folder that everybody may pass: PostgreSQL refuses to be root."""
    with tempfile.TemporaryDirectory(prefix="holdfast-test-peers-", dir="/var/tmp") as name:
        Path(name).chmod(0o711)
        yield Path(name)


@pytest.fixture
def disk() -> Iterator[Path]:
    """A folder for one test."""
    with empty_disk() as path:
        yield path


class Up(NamedTuple):
    """A system that runs."""

    system: System
    running: Running


@pytest.fixture(scope="module", params=peers.SYSTEMS, ids=lambda system: system.name)
def up(request: pytest.FixtureRequest) -> Iterator[Up]:
    """Each system in turn; afterwards nothing is left of it."""
    system: System = request.param
    installed(system)
    with guardian.guarded(), empty_disk() as disk:
        with peers.own_directory(disk) as directory:
            with system.running(directory, WORKERS) as running:
                yield Up(system, running)
                family = processes.family(running.pids)
                assert family >= set(running.pids)
            assert not any(Path(f"/proc/{pid}").exists() for pid in running.pids)
        # A child of PostgreSQL's server may be a moment behind it.
        wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in family), "all have ended")
        assert list(disk.iterdir()) == []


class Asker(Worker):
    """A worker that is led by the hand: it asks once, and keeps the answer."""

    def __init__(self, lean: Lean, name: str) -> None:
        super().__init__(Tally(), lean, name, 0)
        self.answers: asyncio.Queue[tuple[str, bytes]] = asyncio.Queue()
        self.lean = lean

    def acquired(self, held: bytes) -> None:
        """Keep it."""
        self.answers.put_nowait(("acquired", held))

    def released(self) -> None:
        """Keep it."""
        self.answers.put_nowait(("released", b""))

    def failed(self, text: str) -> None:
        """Keep it."""
        self.answers.put_nowait(("failed", text.encode()))

    async def acquire(self) -> tuple[str, bytes]:
        """Return the answer."""
        self.lean.acquire(self)
        return await asyncio.wait_for(self.answers.get(), DEADLINE_S)

    async def release(self, held: bytes) -> tuple[str, bytes]:
        """Return the answer."""
        self.lean.release(self, held)
        return await asyncio.wait_for(self.answers.get(), DEADLINE_S)


async def test_a_held_lock_is_refused(up: Up) -> None:
    """A client that asks for a lock that another one has is refused, and gets it after the release."""
    for way in up.running.ways:
        if way.is_contended:
            continue
        # Connected twice: what shares one session is granted what it holds already.
        clients = [*await way.connect(1), *await way.connect(1)]
        first, second = (Asker(lean, "test-held") for lean in clients)
        said, held = await first.acquire()
        assert said == "acquired", held
        said, why = await second.acquire()
        assert (said, bool(why)) == ("failed", True)
        assert (await first.release(held))[0] == "released"
        said, held = await second.acquire()
        assert said == "acquired", held
        assert (await second.release(held))[0] == "released"
        for client in clients:
            client.close()


async def test_what_is_not_held_is_not_released(up: Up) -> None:
    """A release of what nobody holds is an error: no figure counts cycles that did nothing."""
    for way in up.running.ways:
        if way.is_contended:
            continue
        clients = await way.connect(1)
        asker = Asker(clients[0], "test-released")
        said, held = await asker.acquire()
        assert said == "acquired", held
        assert (await asker.release(held))[0] == "released"
        assert (await asker.release(held))[0] == "failed"
        for client in clients:
            client.close()


async def test_a_contended_lock_has_one_holder(up: Up) -> None:
    """Of all who want one lock, one has it at a time, and all have their turns."""
    inside: list[int] = []
    turns = [0] * WORKERS
    all_had_turns = asyncio.Event()

    class Watched(Worker):
        """A worker that tells when it holds the lock."""

        def acquired(self, held: bytes) -> None:
            inside.append(self.number)
            assert inside == [self.number]
            turns[self.number] += 1
            if min(turns) == 3:
                all_had_turns.set()
            asyncio.get_running_loop().call_later(0.001, self._leave, held)

        def _leave(self, held: bytes) -> None:
            inside.remove(self.number)
            super().acquired(held)

    for way in up.running.ways:
        if not way.is_contended:
            continue
        turns[:] = [0] * WORKERS
        all_had_turns.clear()
        tally = Tally()
        clients = await way.connect(WORKERS)
        workers = [
            Watched(tally, clients[number % len(clients)], "test-contended", number)
            for number in range(WORKERS)
        ]
        for worker in workers:
            worker.begin()
        await asyncio.wait_for(all_had_turns.wait(), DEADLINE_S)
        await end(tally, workers)
        assert (tally.errors, inside) == ([], [])
        assert max(turns) <= min(turns) + WORKERS
        for client in clients:
            client.close()


async def test_a_step_has_figures(up: Up) -> None:
    """A step in each way counts cycles, times and processors, and no errors."""
    said: list[str] = []
    for way in up.running.ways:
        row = await measure.step(
            way,
            up.system.nodes,
            up.running.pids,
            workers=WORKERS,
            warm_up_s=0.2,
            seconds=0.5,
            progress=said.append,
        )
        assert (row.errors_count, row.errors) == (0, [])
        assert row.cycles_per_s > 0
        assert row.acquire_p99_ms >= row.acquire_p50_ms > 0
        assert row.client_us_per_cycle > 0
        assert (row.way, row.workers, row.is_contended) == (way.key, WORKERS, way.is_contended)
    assert said == []


async def test_a_node_that_dies_is_an_error(disk: Path) -> None:
    """When a system dies amid a step, its workers end at once, and each counts an error."""
    system = Redis()
    installed(system)
    with (
        guardian.guarded(),
        peers.own_directory(disk) as directory,
        system.running(directory, WORKERS) as running,
    ):
        asyncio.get_running_loop().call_later(0.5, os.kill, running.pids[0], signal.SIGKILL)
        row = await measure.step(
            running.ways[0],
            1,
            running.pids,
            workers=WORKERS,
            warm_up_s=0.2,
            seconds=0.5,
            progress=lambda _: None,
        )
    assert row.errors_count == WORKERS
    assert "connection lost" in row.errors[0]


def started(system: System, disk: Path, *options: str) -> subprocess.Popen[str]:
    """Start scripts/bench peers with one system, and return when workers are at work."""
    command = [sys.executable, "-P", "-m", "lab.bench.command", "peers", "--only", system.name]
    command += ["--disk", str(disk), "--workers", "4", "--seconds", "600", *options]
    process = subprocess.Popen(
        command,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    assert process.stderr
    lines = []
    for line in process.stderr:
        lines.append(line)
        if "own locks: 4 workers" in line:
            return process
    raise AssertionError("".join(lines))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
@pytest.mark.parametrize("system", peers.SYSTEMS, ids=lambda system: system.name)
def test_an_interrupted_run_leaves_nothing(number: signal.Signals, system: System, disk: Path) -> None:
    """Ctrl-C and SIGKILL end all that was started, and remove its data."""
    installed(system)
    process = started(system, disk)
    assert process.stderr
    try:
        family = processes.family([process.pid]) - {process.pid}
        assert len(family) > system.nodes  # the nodes and the guard
        if number == signal.SIGKILL:
            process.kill()
        else:
            os.killpg(process.pid, number)
        assert process.wait(DEADLINE_S) == (-signal.SIGKILL if number == signal.SIGKILL else 130)
    finally:
        process.kill()
        process.stderr.close()
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in family), "all have ended")
    wait_until(lambda: not list(disk.iterdir()), "the data is removed")


def groups() -> set[Path]:
    """Return the control groups of runs."""
    return set(shares.hierarchy().glob("holdfast-bench-*"))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_groups_of_an_interrupted_run_are_removed(number: signal.Signals, disk: Path) -> None:
    """A server is in a group that limits it while it runs; however the run ends, the group is gone."""
    system = Redis()
    installed(system)
    try:
        with guardian.guarded():
            shares.try_out(0.5)
    except shares.NoGroupsError as error:
        pytest.skip(str(error))
    before = groups()
    process = started(system, disk, "--share", "0.5")
    assert process.stderr
    try:
        (group,) = groups() - before
        servers = [int(line) for line in (group / "cgroup.procs").read_text().split()]
        assert set(servers) < processes.family([process.pid])
        assert "redis-server" in Path(f"/proc/{servers[0]}/cmdline").read_text()
        process.send_signal(number)
        assert process.wait(DEADLINE_S) == (-signal.SIGKILL if number == signal.SIGKILL else 130)
    finally:
        process.kill()
        process.stderr.close()
    wait_until(lambda: not group.exists(), "the group is removed")
    wait_until(lambda: not list(disk.iterdir()), "the data is removed")
