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

SHARE_MIN: Final = 1 / 3
"""The share of tests that has to run."""
NO_TIME: Final = "no time is left"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Take the moment, and the order."""
    group = parser.getgroup("time budget")
    group.addoption("--not-after", type=float, metavar="UNIX_S", help="begin no test after this moment")
    group.addoption("--order", default="", metavar="TEXT", help="what the order of the files is drawn from")


def pytest_configure(config: pytest.Config) -> None:
    """Begin to count."""
    config.pluginmanager.register(Counting())


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Bring the files into the order that was chosen; the tests of a file stay together, and in theirs."""
    if order := config.getoption("--order"):
        items.sort(key=lambda item: hashlib.sha256(f"{order} {item.path.name}".encode()).digest())


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Leave a test out when the time is over, before anything of it is set up."""
    not_after_s = item.config.getoption("--not-after")
    if not_after_s is not None and time.time() > not_after_s:
        pytest.skip(NO_TIME)


class Counting:
    """Counts what was left out, where reports arrive: processes of pytest-xdist send theirs there."""

    def __init__(self) -> None:
        self.left_out: Counter[str] = Counter()
        self.count = 0

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count a test."""
        if report.when == "setup":
            self.count += 1
            if isinstance(report.longrepr, tuple) and report.longrepr[2] == f"Skipped: {NO_TIME}":
                self.left_out[report.location[0]] += 1

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Fail a run that left out too much."""
        if self.left_out.total() > (1 - SHARE_MIN) * self.count:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Name what was left out."""
        if self.left_out:
            total = self.left_out.total()
            terminalreporter.section(f"{total} tests NOT RUN: the time was over before they began")
            for path, count in sorted(self.left_out.items()):
                terminalreporter.write_line(f"NOT RUN {path}: {count}")
