"""Fixtures for pytest, there wherever Holdfast is installed. Nothing is imported before their first use.

They need holdfast-node. A test that asks for one where that is missing fails, and is told what to install:
if it were skipped, nobody would see that something is not tested any more.
"""

import importlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from holdfast.testing import LoopbackCluster, MemoryCluster


@pytest.fixture
def holdfast_memory() -> "Iterator[MemoryCluster]":
    """Give each test a cluster in memory, with a clock that stands still until `advance`.

    Meanwhile decorators that are given no client use it.
    """
    with (
        _class("MemoryCluster")() as cluster,
        cluster.sync_client() as for_threads,
        _use(cluster.client(), for_threads),
    ):
        yield cluster


@pytest.fixture(scope="session")
def holdfast_cluster(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[LoopbackCluster]":
    """Give all tests of the run one cluster of three real nodes on loopback, in real time.

    From then on decorators that are given no client use it.
    """
    with (
        _class("LoopbackCluster")(tmp_path_factory.mktemp("holdfast")) as cluster,
        cluster.sync_client() as for_threads,
        _use(cluster.client(), for_threads),
    ):
        yield cluster


def _class(name: str) -> Any:
    """Return a class of holdfast.testing, imported now; fail the test with the reason if that cannot be."""
    testing = importlib.import_module("holdfast.testing")
    try:
        return getattr(testing, name)
    except ImportError as error:
        reason = str(error)
    pytest.fail(reason, pytrace=False)  # behind the handler: in it, pytest would print the reason twice


def _use(*clients: Any) -> Any:
    """Return what lets decorators use these clients while a block runs; imported now."""
    return importlib.import_module("holdfast").use(*clients)
