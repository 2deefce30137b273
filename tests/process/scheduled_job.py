"""A machine of test_apscheduler_job.py, whose job never ends.

    python -m tests.process.scheduled_job NAME SECONDS

It prints "running" when the job of this name runs, which is to do so once in so many seconds.
"""

import sys
import time

from apscheduler.schedulers.blocking import BlockingScheduler

import holdfast


def main(name: str, every: float) -> None:
    """Schedule, until it is killed."""

    @holdfast.once(name, every=every)
    def job() -> None:
        print("running", flush=True)
        time.sleep(600)

    scheduler = BlockingScheduler()
    scheduler.add_job(job)  # now
    scheduler.start()


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]))
