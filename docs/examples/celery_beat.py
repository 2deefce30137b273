"""Celery beat on several machines: only the leader sends, another one goes on, and no run is sent twice.

Start each with `celery -A shop beat -S celery_beat:LeaderScheduler`, and the nodes in HOLDFAST_NODES. Run by
itself this shows two of them, without a broker.
"""

import contextlib
import functools
import itertools
import logging
import sys
import time
from datetime import datetime, timedelta
from typing import Any

import celery
from celery import beat

import holdfast

RUNS_COUNT = 2
PERIOD = timedelta(seconds=1)
logger = logging.getLogger(__name__)


class LeaderScheduler(beat.Scheduler):
    """Sends only under a lock, and writes down each run before it sends it.

    Its schedule is `beat_schedule`. It keeps no file: the times of the last runs are in cells.
    """

    name: tuple[str, ...] = ("celery", "beat", "shop")
    """The lock, and the prefix of its cells. Give each app its own: only one beat with this name sends."""
    lease_s = 10.0
    """Seconds after which another one sends if the leader has died."""
    look_s = 1.0
    """Seconds after which the others look again whether the lock is free."""
    _hold: holdfast.SyncHold | None = None

    @functools.cached_property
    def client(self) -> holdfast.SyncClient:
        """The client of this process, made when it is first used."""
        return holdfast.SyncClient(timeout=5)

    def tick(self, *args: Any, **kwargs: Any) -> float:
        """Send what is due, if it is the leader; return for how long to sleep."""
        try:
            if self._leads():
                return super().tick(*args, **kwargs)
        except holdfast.LockError as error:
            logger.warning("sends nothing: %s", error)
            self.step_down()
        return self.look_s

    def reserve(self, entry: beat.ScheduleEntry) -> Any:
        """Write down that a run is ours, which is then sent. Raises LeaseLost if it is another one's."""
        assert self._hold is not None
        following = next(entry)
        marked = self.client.cells.transact(
            compare=[holdfast.StillHeld(self._hold)],
            then=[holdfast.CellPut(self._key(entry), last_run(following).isoformat())],
        )
        if not marked.succeeded:
            raise holdfast.LeaseLost("another one sends", "lease-expired")
        self.schedule[str(entry.name)] = following
        return following

    def step_down(self) -> None:
        """Let another one lead, and look anew at what has run before leading again."""
        hold, self._hold, self._heap = self._hold, None, None
        if hold is not None:
            with contextlib.suppress(holdfast.LockError):  # then its lease ends by itself
                hold.release()

    def _leads(self) -> bool:
        if self._hold is not None and self._hold.is_valid:
            return True
        self._hold = self.client.lock(self.name, ttl=self.lease_s).try_acquire()
        if self._hold is None:
            return False
        for entry in self.schedule.values():
            cell = self.client.cells.get(self._key(entry))
            if cell is None:  # it is new: its first period begins now
                self.client.cells.put(self._key(entry), last_run(entry).isoformat(), if_version=0)
            else:  # in the zone of the app: a crontab compares hours as they are written
                entry.last_run_at = datetime.fromisoformat(cell.text).astimezone(self.app.timezone)
        self._heap = None  # when each is due is to be computed anew
        logger.info("leads with token %s", self._hold.token)
        return True

    def _key(self, entry: beat.ScheduleEntry) -> tuple[str, ...]:
        return (*self.name, str(entry.name))


def last_run(entry: beat.ScheduleEntry) -> datetime:
    """Return the time of a task's last run, or the time since which Celery knows it."""
    assert entry.last_run_at is not None
    return entry.last_run_at


def main() -> int:
    """Let two schedulers meet, and one of them go; return 0 if each run was sent once."""
    app = celery.Celery("shop", broker="memory://")
    app.conf.beat_schedule = {"report": {"task": "shop.report", "schedule": PERIOD}}
    sent: list[tuple[str, datetime]] = []

    class Telling(LeaderScheduler):
        name = ("examples", f"beat-{time.time_ns()}")
        who = ""

        def apply_entry(self, entry: beat.ScheduleEntry, producer: Any = None) -> None:
            sent.append((self.who, last_run(self.schedule[str(entry.name)])))
            super().apply_entry(entry, producer)

    first, second = Telling(app), Telling(app)
    first.who, second.who = "first", "second"
    for leader, others in ((first, [second]), (second, [])):
        before = len(sent)
        while len(sent) < before + RUNS_COUNT:
            for scheduler in (leader, *others):
                scheduler.tick()
            time.sleep(0.1)
        print(f"sent by {', '.join(who for who, _ in sent[before:])}")
        leader.step_down()  # as at its end
    twice = sum(later - earlier < PERIOD for (_, earlier), (_, later) in itertools.pairwise(sent))
    print(f"sent twice in a period: {twice}")
    return twice


if __name__ == "__main__":
    sys.exit(main())
