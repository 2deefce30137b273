"""Disk work in a thread: done in order, told in the event loop's thread, ended with the node."""

import asyncio
import threading

import pytest

from cluster.storage.disk_work import Job, WorkInPlace, WorkThread

DEADLINE_S = 20.0


async def until_ended(jobs: int, told: list[str]) -> None:
    """Wait until so many jobs have ended."""
    async with asyncio.timeout(DEADLINE_S):
        while len(told) < jobs:  # noqa: ASYNC110 - told by another thread
            await asyncio.sleep(0.001)


async def test_jobs_are_done_in_order_while_the_loop_goes_on() -> None:
    """The thread does them, the loop hears of each, and nothing waits for one that hangs."""
    work, is_free = WorkThread(asyncio.get_running_loop().call_soon_threadsafe), threading.Event()
    done: list[str] = []
    told: list[str] = []

    def job(name: str) -> Job:
        def do() -> None:
            assert is_free.wait(DEADLINE_S)
            done.append(f"{name} in {threading.current_thread().name}")

        return Job(do, lambda: told.append(f"{name} in {threading.current_thread().name}"))

    jobs = [job("first"), job("second")]
    for each in jobs:
        work.start(each)
    for _ in range(10):
        await asyncio.sleep(0)
    assert not any(each.is_done for each in jobs)
    is_free.set()
    await until_ended(2, told)
    assert done == ["first in disk-work", "second in disk-work"]
    assert told == [f"{name} in {threading.current_thread().name}" for name in ("first", "second")]
    for each in jobs:
        each.check()
    work.close()
    work.close()


@pytest.mark.parametrize("error", [OSError("the disk failed"), MemoryError()])
async def test_a_failure_is_raised_where_it_is_asked_for(error: BaseException) -> None:
    """Whatever it is; and the next job is done all the same."""
    work = WorkThread(asyncio.get_running_loop().call_soon_threadsafe)
    told: list[str] = []

    def fail() -> None:
        raise error

    failing, next_one = (Job(do, lambda: told.append("ended")) for do in (fail, lambda: None))
    work.start(failing)
    work.start(next_one)
    await until_ended(2, told)
    with pytest.raises(type(error)) as caught:
        failing.check()
    assert caught.value is error
    next_one.check()
    work.close()


def test_in_place_it_is_done_at_once() -> None:
    """And told before `start` returns."""
    told: list[str] = []
    work = WorkInPlace()
    job = Job(lambda: told.append("done"), lambda: told.append("ended"))
    work.start(job)
    assert job.is_done
    assert told == ["done", "ended"]
    work.close()


def test_the_end_waits_for_what_is_under_way() -> None:
    """Also when the event loop has gone: nobody is told then, and nothing is left running."""
    loop = asyncio.new_event_loop()
    work, is_begun, is_free = WorkThread(loop.call_soon_threadsafe), threading.Event(), threading.Event()
    done: list[str] = []

    def do() -> None:
        is_begun.set()
        assert is_free.wait(DEADLINE_S)
        done.append("done")

    def never() -> None:
        raise AssertionError

    job = Job(do, never)
    work.start(job)
    assert is_begun.wait(DEADLINE_S)
    loop.close()
    threading.Timer(0.05, is_free.set).start()
    work.close()
    assert done == ["done"]
    assert job.is_done
