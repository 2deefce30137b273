"""The app of test_celery_beat.py: a task that is due every second; its beats and its worker write down a lot.

    celery -A tests.process.beat_app beat -S tests.process.beat_app:WritingScheduler
    celery -A tests.process.beat_app worker

The Redis in REDIS_URL is the broker, and where they write.
"""

import os
from typing import Any

import redis
from celery import Celery, Task, beat

from docs.examples.celery_beat import LeaderScheduler, last_run

SENT = "sent"
"""Each run, by the process that sent it: when it was found to be due."""
DONE = "done"
"""Each message that the worker got."""
STANDING_BY = "standing by"
"""Processes that have looked, and do not send."""

REDIS_URL = os.environ["REDIS_URL"]
store = redis.Redis.from_url(REDIS_URL, decode_responses=True)
app = Celery("beat_app", broker=REDIS_URL)
app.conf.beat_schedule = {"tick": {"task": "tick", "schedule": 1.0}}


class WritingScheduler(LeaderScheduler):
    """Writes down what it sends, before it does."""

    name = ("tests", "beat")
    lease_s = 2.0
    look_s = 0.2

    def tick(self, *args: Any, **kwargs: Any) -> float:
        """Tell also that another one leads."""
        sleep_s = super().tick(*args, **kwargs)
        if self._hold is None:
            store.sadd(STANDING_BY, os.getpid())
        return sleep_s

    def apply_entry(self, entry: beat.ScheduleEntry, producer: Any = None) -> None:
        """Write down, and send."""
        store.rpush(SENT, f"{os.getpid()} {last_run(self.schedule[str(entry.name)]).isoformat()}")
        super().apply_entry(entry, producer)


@app.task(name="tick", bind=True)
def tick(self: "Task[[], None]") -> None:
    """Be done."""
    store.rpush(DONE, str(self.request.id))
