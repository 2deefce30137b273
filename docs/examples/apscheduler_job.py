"""APScheduler on every machine, and each job once: of all schedulers one runs it in each period.

Run it with the nodes in HOLDFAST_NODES: for three schedulers, as on three machines, it is three o'clock.
"""

import sys
import threading
from datetime import UTC, datetime

from apscheduler.events import EVENT_JOB_ERROR, EVENT_JOB_EXECUTED, JobExecutionEvent
from apscheduler.schedulers.background import BackgroundScheduler

import holdfast

JOB = "examples/nightly-report"
GRACE_S = 3600
"""A machine that comes so late, as from sleep, still calls the job; a later one waits for the next night."""
MACHINES_COUNT = 3


# More than GRACE_S and what clocks differ by, and less than a day by as much.
@holdfast.once(JOB, every="12h")
def nightly_report() -> str:
    """Make the report: the work."""
    return "made"


def schedule(scheduler: BackgroundScheduler) -> None:
    """Say on each machine when the job is due."""
    scheduler.add_job(nightly_report, "cron", hour=3, id="nightly", misfire_grace_time=GRACE_S, coalesce=True)


def main() -> int:
    """Let three schedulers call the job, two times each; return 0 if it ran once."""
    called = threading.Semaphore(0)
    made: list[object] = []

    def count(event: JobExecutionEvent) -> None:
        made.extend(filter(None, [event.exception or event.retval]))
        called.release()

    schedulers = [BackgroundScheduler(timezone=UTC) for _ in range(MACHINES_COUNT)]
    for scheduler in schedulers:
        scheduler.add_listener(count, EVENT_JOB_EXECUTED | EVENT_JOB_ERROR)
        schedule(scheduler)
        scheduler.start()
    for _ in range(2):
        for scheduler in schedulers:
            scheduler.modify_job("nightly", next_run_time=datetime.now(UTC))
        for _ in schedulers:
            called.acquire()
    for scheduler in schedulers:
        scheduler.shutdown()
    print(f"called {2 * len(schedulers)} times: {made}")
    with holdfast.SyncClient() as client:
        client.admin.force_release(JOB, reason="the next run of this example is another night")
    return made != ["made"]


if __name__ == "__main__":
    sys.exit(main())
