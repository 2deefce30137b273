"""What all tests share: how `async def` tests run, how hard Hypothesis searches, what ends with the run."""

import asyncio
import inspect
import logging
import os
import signal
from collections.abc import Iterator

import hypothesis
import pytest

from scripts.lib import guardian

ASYNC_TEST_DEADLINE_S = 240
"""A test that hangs fails; no test waits as long as this."""

hypothesis.settings.register_profile("dev", deadline=None, max_examples=50)
hypothesis.settings.register_profile("ci", deadline=None, max_examples=100, print_blob=True)
hypothesis.settings.register_profile("nightly", deadline=None, max_examples=5000, print_blob=True)
hypothesis.settings.load_profile(
    os.environ.get("HYPOTHESIS_PROFILE", "ci" if os.environ.get("CI") else "dev")
)


def pytest_configure() -> None:
    """Let interrupts be heard: a script's background jobs ignore them, and so would all that tests start."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGQUIT, signal.SIG_DFL)


@pytest.fixture(scope="session", autouse=True)
def _nothing_outlives_the_run() -> Iterator[None]:
    """All processes that tests have started end with the run, also when it is killed."""
    with guardian.guarded():
        yield


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run an `async def` test to its end in an event loop of its own; leave other tests to pytest."""
    test = pyfuncitem.obj
    if not inspect.iscoroutinefunction(test):
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in inspect.signature(test).parameters}
    asyncio.run(asyncio.wait_for(test(**arguments), ASYNC_TEST_DEADLINE_S))
    return True


@pytest.fixture(autouse=True)
def _log_levels_as_before() -> Iterator[None]:
    """Undo what a test did to the levels of loggers: the next one may look at log lines."""
    loggers = [logging.getLogger(name) for name in ("", "cluster", "http_api")]
    levels = [logger.level for logger in loggers]
    yield
    for logger, level in zip(loggers, levels, strict=True):
        logger.setLevel(level)
