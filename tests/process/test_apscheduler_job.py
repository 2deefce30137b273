"""docs/examples/apscheduler_job.py with real schedulers: after a period, after a death, and without nodes.

That a job runs once for all schedulers is what the example shows itself: test_docs.py.
"""

import contextlib
import os
import queue
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from apscheduler.events import EVENT_JOB_ERROR, EVENT_JOB_EXECUTED, JobExecutionEvent
from apscheduler.schedulers.background import BackgroundScheduler

import holdfast
from scripts.lib import ports
from scripts.local_cluster import LocalCluster
from tests.process.nodes import urls
from tests.support.processes import wait_until

pytestmark = pytest.mark.process

ROOT = Path(__file__).resolve().parents[2]
DEADLINE_S = 60.0
NAME = "tests/scheduled"
SHORT_S = 3.0
"""The period of a job whose machine dies."""


class Machine:
    """A scheduler with one job, which is due whenever a test says so."""

    def __init__(self, job: Callable[[], object]) -> None:
        self._outcomes: queue.Queue[object] = queue.Queue()
        self.scheduler = BackgroundScheduler(timezone=UTC)
        self.scheduler.add_listener(self._keep, EVENT_JOB_EXECUTED | EVENT_JOB_ERROR)
        self.scheduler.add_job(job, "cron", year=9999, id="job", misfire_grace_time=None)
        self.scheduler.start()

    def _keep(self, event: JobExecutionEvent) -> None:
        self._outcomes.put(event.exception or event.retval)

    def call(self) -> object:
        """Let the job be due, and return what it returned, or raised."""
        self.scheduler.modify_job("job", next_run_time=datetime.now(UTC))
        return self._outcomes.get(timeout=DEADLINE_S)


@contextlib.contextmanager
def machines(count: int, job: Callable[[], object]) -> Iterator[list[Machine]]:
    """Run several of them with one job."""
    with contextlib.ExitStack() as stack:
        running = []
        for _ in range(count):
            running.append(Machine(job))
            stack.callback(running[-1].scheduler.shutdown)
        yield running


@pytest.fixture
def client(cluster: LocalCluster) -> Iterator[holdfast.SyncClient]:
    """Return a client of three nodes; what a job kept of its period is given up at the end."""
    with holdfast.SyncClient(urls(cluster)) as client:
        yield client
        client.admin.force_release(NAME, reason="the test is over")


def test_each_period_has_one_run(client: holdfast.SyncClient) -> None:
    """Of all calls of a period one runs the job, on whatever machine; and so in the next one."""
    job = holdfast.once(NAME, every="1h", client=client)(lambda: "made")
    with machines(3, job) as running:
        for _ in range(2):
            outcomes = [machine.call() for machine in running * 2]
            assert (outcomes.count("made"), outcomes.count(None)) == (1, 5), outcomes
            client.admin.force_release(NAME, reason="as if an hour were over")


def test_a_machine_that_dies_in_its_run_had_it(cluster: LocalCluster, client: holdfast.SyncClient) -> None:
    """A run that was begun is not made up for by another machine in its period; the next one is run."""
    job = holdfast.once(NAME, every=SHORT_S, client=client)(lambda: "made")
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.process.scheduled_job", NAME, str(SHORT_S)],
        cwd=ROOT,
        env=os.environ | {"HOLDFAST_NODES": ",".join(urls(cluster))},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "running\n"
        (holder,) = client.inspect(NAME).holders
    finally:
        process.kill()
        process.communicate()
    with machines(1, job) as (machine,):
        wait_until(lambda: machine.call() == "made", "the next period has its run")
    assert client.inspect(NAME).holders[0].token > holder.token


def test_without_holdfast_no_job_runs(cluster: LocalCluster) -> None:
    """A call that no node answers is an error of that call; the scheduler goes on, and the next one runs."""
    (port,) = ports.reserve(1)
    nodes = [f"http://{ports.HOST}:{port}"]
    with holdfast.SyncClient(nodes, timeout=0.2) as unreachable, holdfast.SyncClient(urls(cluster)) as client:
        clients = [unreachable]
        job = holdfast.once(NAME, every="1h", client=lambda: clients[-1])(lambda: "made")
        with machines(1, job) as (machine,):
            assert isinstance(machine.call(), holdfast.Unavailable)
            clients.append(client)
            assert machine.call() == "made"
        client.admin.force_release(NAME, reason="the test is over")
