"""A plugin of pytest for runs that have to end, on slow machines too.

Load it with `pytest -p tests.support.time_budget --not-after UNIX_S`. No test begins after that moment; those
that did not are named in the end. Files come in an order that the caller chooses, so that it is not always
the same ones that are left out. A run that left out more than two thirds fails: it says too little.
"""

import hashlib
import time
from collections import Counter
from typing import Final

import pytest

NOT_RUN: Final = pytest.StashKey[Counter[str]]()
"""How many tests of each file were not run."""
SHARE_MIN: Final = 1 / 3
"""The share of tests that has to run."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Take the moment, and the order."""
    group = parser.getgroup("time budget")
    group.addoption("--not-after", type=float, metavar="UNIX_S", help="begin no test after this moment")
    group.addoption("--order", default="", metavar="TEXT", help="what the order of the files is drawn from")


def pytest_configure(config: pytest.Config) -> None:
    """Begin to count."""
    config.stash[NOT_RUN] = Counter()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Bring the files into the order that was chosen; the tests of a file stay together, and in theirs."""
    if order := config.getoption("--order"):
        items.sort(key=lambda item: hashlib.sha256(f"{order} {item.path.name}".encode()).digest())


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Leave a test out when the time is over, before anything of it is set up."""
    not_after_s = item.config.getoption("--not-after")
    if not_after_s is not None and time.time() > not_after_s:
        item.config.stash[NOT_RUN][item.location[0]] += 1
        pytest.skip("no time is left")


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail a run that left out too much."""
    left_out = session.config.stash[NOT_RUN].total()
    if left_out > (1 - SHARE_MIN) * session.testscollected:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Name what was left out."""
    not_run = config.stash[NOT_RUN]
    if not_run:
        terminalreporter.section(f"{not_run.total()} tests NOT RUN: the time was over before they began")
        for path, count in sorted(not_run.items()):
            terminalreporter.write_line(f"NOT RUN {path}: {count}")
