"""What goes to another process and what does not: errors arrive whole, clients and their secrets stay."""

import asyncio
import copy
import multiprocessing
import multiprocessing.pool
import pickle
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor
from typing import Any, cast

import pytest

import holdfast
from holdfast.transport.access import Access
from tests.unit.holdfast.conftest import a_node

TOKEN = "f00dbabe" * 6
PROBLEM = {"code": "lock-held", "holders": [{"owner": "web-1:312", "token": 51}]}
WORKER_S = 60.0
"""Seconds that a worker process may take, its start included."""

ARGUMENTS: dict[type[holdfast.LockError], tuple[object, ...]] = {
    holdfast.LockError: ("anything",),
    holdfast.RateLimited: ("mails", 2.5),
    holdfast.StaleToken: (33, 34),
    holdfast.Unavailable: ("nobody answers", "no-leader"),
    holdfast.TlsRefused: ("the certificate has ended",),
    holdfast.OutcomeUnknown: ("no answer came", "5f2c"),
    holdfast.LeaseLost: ("the lock 'report' is lost", "expired"),
}
"""What errors are made with, but for refusals: those take a code, a detail and the problem document."""


def exported_errors() -> list[type[BaseException]]:
    """Return all exception classes that the package exports."""
    exported = (getattr(holdfast, name) for name in holdfast.__all__)
    return [kind for kind in exported if isinstance(kind, type) and issubclass(kind, BaseException)]


def made(kind: type[BaseException]) -> BaseException:
    """Return an error with something in all that it can say."""
    assert issubclass(kind, holdfast.LockError)
    return kind(*ARGUMENTS.get(kind, ("lock-held", "web-1:312 has it", PROBLEM)))


WAYS: dict[str, Callable[[Any], Any]] = {
    "pickle": lambda error: pickle.loads(pickle.dumps(error)),  # noqa: S301 - our own
    "oldest pickle": lambda error: pickle.loads(pickle.dumps(error, protocol=0)),  # noqa: S301
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", exported_errors())
def test_an_error_arrives_whole(kind: type[BaseException], way: str) -> None:
    """Every exported error keeps its class, its text, its attributes and its notes."""
    error = made(kind)
    error.add_note("while the report was made")
    again = WAYS[way](error)
    assert type(again) is kind
    assert again is not error
    assert (str(again), again.args) == (str(error), error.args)
    assert vars(again) == vars(error)


def try_lock(url: str) -> int:
    """Try to lock what somebody else has; return the token. Runs in a worker process."""
    with holdfast.SyncClient(url) as client:
        return client.acquire("report", wait=0.05, renew=False).token


@pytest.mark.parametrize("kind", ["ProcessPoolExecutor", "multiprocessing.Pool"])
async def test_a_worker_s_timeout_is_a_lock_timeout(kind: str) -> None:
    """A LockTimeout that ends a worker's task is raised as such by the pool, which goes on."""
    spawn = multiprocessing.get_context("spawn")
    async with a_node() as (_, url), holdfast.Client(url) as client:
        await client.acquire("report", wait=0, renew=False)
        if kind == "ProcessPoolExecutor":
            with ProcessPoolExecutor(1, mp_context=spawn) as executor:
                await _expect_timeout(lambda: executor.submit(try_lock, url))
                assert await asyncio.wrap_future(executor.submit(abs, -1)) == 1
        else:
            with spawn.Pool(1) as pool:
                await _expect_timeout(lambda: _as_future(pool, url))
                assert await asyncio.to_thread(pool.apply_async(abs, (-1,)).get, WORKER_S) == 1


async def _expect_timeout(submit: Callable[[], Future[int]]) -> None:
    with pytest.raises(holdfast.LockTimeout) as raised:
        await asyncio.wait_for(asyncio.wrap_future(submit()), WORKER_S)
    assert raised.value.code == "lock-held"
    assert raised.value.problem["holders"]


def _as_future(pool: multiprocessing.pool.Pool, url: str) -> "Future[int]":
    future: Future[int] = Future()
    pool.apply_async(try_lock, (url,), callback=future.set_result, error_callback=future.set_exception)
    return future


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("of", ["Client", "SyncClient", "its transport", "its token", "a lock"])
def test_a_client_stays_in_its_process(of: str, way: str) -> None:
    """Clients, and all that has their token, refuse to be pickled and copied and say what to do instead."""
    asynchronous = holdfast.Client("127.0.0.1:1", token=TOKEN)
    transport = asynchronous._transport
    whole: dict[str, object] = {
        "Client": asynchronous,
        "SyncClient": holdfast.SyncClient("127.0.0.1:1", token=TOKEN),
        "its transport": transport,
        "its token": cast("Access", transport.access),
        "a lock": asynchronous.lock("report"),
    }
    if of == "a lock" and way == "copy":
        return  # a shallow copy of a description stays here
    with pytest.raises(TypeError, match="make a client in each process"):
        WAYS[way](whole[of])
