"""Fixtures for pytest, there wherever Holdfast is installed. Nothing is imported before their first use.

They need holdfast-node. A test that asks for one where that is missing fails, and is told what to install:
if it were skipped, nobody would see that something is not tested any more.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from holdfast.testing import LoopbackCluster, MemoryCluster


@pytest.fixture
def holdfast_memory() -> "Iterator[MemoryCluster]":
    """Give each test a cluster in memory, with a clock that stands still until `advance`."""
    try:
        from holdfast.testing import MemoryCluster  # noqa: PLC0415 - with the first use
    except ImportError as error:
        pytest.fail(str(error), pytrace=False)
    with MemoryCluster() as cluster:
        yield cluster


@pytest.fixture(scope="session")
def holdfast_cluster(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[LoopbackCluster]":
    """Give all tests of the run one cluster of three real nodes on loopback, in real time."""
    try:
        from holdfast.testing import LoopbackCluster  # noqa: PLC0415 - with the first use
    except ImportError as error:
        pytest.fail(str(error), pytrace=False)
    with LoopbackCluster(tmp_path_factory.mktemp("holdfast")) as cluster:
        yield cluster
