"""docs/examples/celery_beat.py with real beats, a worker and Redis: one sends, and no run is sent twice."""

import contextlib
import itertools
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import celery
import pytest
import redis
from celery import beat

import holdfast
from docs.examples.celery_beat import LeaderScheduler, last_run
from holdfast.testing import Flaky, MemoryCluster
from scripts.lib import ports
from scripts.local_cluster import LocalCluster
from tests.process.nodes import urls
from tests.support import servers
from tests.support.processes import wait_until

pytestmark = pytest.mark.process

ROOT = Path(__file__).resolve().parents[2]
APP = "tests.process.beat_app"
SENT, DONE, STANDING_BY = "sent", "done", "standing by"
"""Where the app writes: it cannot be imported here, without a Redis."""
PERIOD = timedelta(seconds=1)
HOUR = timedelta(hours=1)


@pytest.fixture
def server() -> Iterator[servers.Server]:
    """Run an empty Redis."""
    with servers.redis_server() as server:
        yield server


@pytest.fixture
def store(server: servers.Server) -> Iterator[redis.Redis]:
    """Return what the app writes."""
    with redis.Redis.from_url(server.url, decode_responses=True) as store:
        yield store


@pytest.fixture
def client(cluster: LocalCluster) -> Iterator[holdfast.SyncClient]:
    """Return a client of three nodes."""
    with holdfast.SyncClient(urls(cluster)) as client:
        yield client


@contextlib.contextmanager
def running(
    cluster: LocalCluster, server: servers.Server, log: Path, *arguments: str
) -> Iterator[subprocess.Popen[bytes]]:
    """Run Celery in a process, which is gone afterwards."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "celery", "-A", APP, *arguments],
            cwd=ROOT,
            env=os.environ | {"HOLDFAST_NODES": ",".join(urls(cluster)), "REDIS_URL": server.url},
            stdout=output,
            stderr=output,
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def test_one_of_two_beats_sends_and_the_other_goes_on(
    cluster: LocalCluster, server: servers.Server, store: redis.Redis, tmp_path: Path
) -> None:
    """A paused leader is replaced, and sends nothing afterwards; so is a killed one. No run is sent twice."""
    scheduler = ["beat", "-S", f"{APP}:WritingScheduler"]

    def sent_by(process: subprocess.Popen[bytes]) -> int:
        return sum(str(line).startswith(f"{process.pid} ") for line in store.lrange(SENT, 0, -1))

    def wait_sent(process: subprocess.Popen[bytes], count: int, what: str) -> None:
        until = sent_by(process) + count
        wait_until(lambda: sent_by(process) >= until, what)

    worker = ["worker", "--pool=solo", "--without-gossip", "--without-mingle", "--without-heartbeat"]
    with (
        running(cluster, server, tmp_path / "worker", *worker),
        running(cluster, server, tmp_path / "first", *scheduler) as first,
    ):
        wait_sent(first, 1, "the first leads")
        wait_until(lambda: store.llen(DONE), "the worker works")
        with running(cluster, server, tmp_path / "second", *scheduler) as second:
            wait_until(lambda: store.sismember(STANDING_BY, str(second.pid)), "the second stands by")
            first.send_signal(signal.SIGSTOP)
            wait_sent(second, 2, "the second has gone on")
            first.send_signal(signal.SIGCONT)
            wait_until(lambda: store.sismember(STANDING_BY, str(first.pid)), "the first stands by")
            second.send_signal(signal.SIGKILL)
            second.wait()
            wait_sent(first, 2, "the first has gone on")
    found_due = sorted(datetime.fromisoformat(str(line).split()[1]) for line in store.lrange(SENT, 0, -1))
    assert all(later - earlier >= PERIOD for earlier, later in itertools.pairwise(found_due))
    done = store.lrange(DONE, 0, -1)
    assert len(done) == len(set(done)) <= len(found_due)


class ListingScheduler(LeaderScheduler):
    """Sends nowhere, and lists what it would have sent."""

    name = ("tests", "listing")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.sent: list[str] = []

    def apply_entry(self, entry: beat.ScheduleEntry, producer: Any = None) -> None:
        """List it."""
        del producer
        self.sent.append(str(entry.name))

    @property
    def entry(self) -> beat.ScheduleEntry:
        """The only one."""
        (entry,) = self.schedule.values()
        return entry


@pytest.fixture
def app(client: holdfast.SyncClient) -> Iterator[celery.Celery]:
    """Return an app with an hourly task, of which nothing is known in cells."""
    client.cells.delete((*ListingScheduler.name, "report"))
    app = celery.Celery("listing", broker="memory://", set_as_current=False)
    app.conf.beat_schedule = {"report": {"task": "report", "schedule": HOUR}}
    app.conf.update(timezone="Asia/Kolkata")
    yield app
    app.close()


def scheduler_of(app: celery.Celery, client: holdfast.SyncClient) -> ListingScheduler:
    """Return a scheduler with a client of ours."""
    scheduler = ListingScheduler(app)
    scheduler.client = client
    return scheduler


def test_another_leader_knows_when_a_task_is_due(app: celery.Celery, client: holdfast.SyncClient) -> None:
    """Also before its first run: the period began when the first leader saw the task."""
    first, second = scheduler_of(app, client), scheduler_of(app, client)
    first.entry.last_run_at = since = datetime.now(UTC) - HOUR / 2
    first.tick()
    first.step_down()
    second.tick()
    assert last_run(second.entry) == since
    assert last_run(second.entry).utcoffset() == timedelta(hours=5, minutes=30)  # as a crontab wants it
    assert first.sent == second.sent == []
    second.step_down()


def test_whoever_lost_the_lock_sends_nothing(app: celery.Celery, client: holdfast.SyncClient) -> None:
    """A leader whose lock was forced away, and which does not know it yet, leaves the run to the next one."""
    first, second = scheduler_of(app, client), scheduler_of(app, client)
    first.tick()
    client.cells.put((*first.name, "report"), (datetime.now(UTC) - HOUR).isoformat())
    client.admin.force_release(first.name, reason="a test")
    first.entry.last_run_at = datetime.now(UTC) - HOUR
    first._heap = None
    assert first.tick() == first.look_s
    second.tick()
    assert (first.sent, second.sent) == ([], ["report"])
    second.step_down()


@pytest.mark.parametrize("is_written", [True, False])
def test_a_lost_answer_sends_nothing_twice(
    app: celery.Celery, holdfast_memory: MemoryCluster, *, is_written: bool
) -> None:
    """A run of which nobody knows whether it is written down is not sent; it is later, if it was not."""
    flaky = Flaky(holdfast_memory)
    with flaky.sync_client(timeout=0.2) as client:
        scheduler = scheduler_of(app, client)
        client.cells.put((*scheduler.name, "report"), (datetime.now(UTC) - HOUR).isoformat())
        flaky.lose("cells/txn", applied=is_written, times=None)
        assert scheduler.tick() == scheduler.look_s
        flaky.heal()
        scheduler.tick()
        assert scheduler.sent == ([] if is_written else ["report"])
        scheduler.step_down()


def test_without_holdfast_a_run_is_late_and_not_lost(app: celery.Celery, client: holdfast.SyncClient) -> None:
    """While no node answers nothing is sent, and beat goes on; what was due is sent afterwards."""
    client.cells.put((*ListingScheduler.name, "report"), (datetime.now(UTC) - HOUR).isoformat())
    (port,) = ports.reserve(1)
    with holdfast.SyncClient(f"{ports.HOST}:{port}", timeout=0.2) as unreachable:
        scheduler = scheduler_of(app, unreachable)
        assert scheduler.tick() == scheduler.look_s
    assert scheduler.sent == []
    scheduler.client = client
    scheduler.tick()
    assert scheduler.sent == ["report"]
    scheduler.step_down()
