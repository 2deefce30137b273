"""Clusters of real processes, repaired before each test that uses them; three are shared by all tests."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from scripts.local_cluster import LocalCluster
from tests.process.nodes import PATIENT, bring_all_back
from tests.support.libraries import ModuleWithLibraries

if TYPE_CHECKING:
    from tests.process.redis_nodes import RedisCluster

COMPACT_ENTRIES = 200


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Module:
    """Skip tests of recipes whose libraries are missing."""
    return ModuleWithLibraries.from_parent(parent, path=module_path)


@pytest.fixture(scope="session")
def _plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with LocalCluster.up(tmp_path_factory.mktemp("plain")) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def _compacting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    arguments = ["--compact-entries", str(COMPACT_ENTRIES)]
    with LocalCluster.up(tmp_path_factory.mktemp("compacting"), extra_args=arguments) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def _patient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with LocalCluster.up(tmp_path_factory.mktemp("patient"), extra_args=PATIENT) as cluster:
        yield cluster


@pytest.fixture
def patient(_patient: LocalCluster) -> LocalCluster:
    """Three healthy nodes that a machine which stalls for a second does not talk out of their leader."""
    bring_all_back(_patient)
    return _patient


@pytest.fixture
def cluster(_plain: LocalCluster) -> LocalCluster:
    """Three healthy nodes with the settings that everybody gets."""
    bring_all_back(_plain)
    return _plain


@pytest.fixture
def compacting(_compacting: LocalCluster) -> LocalCluster:
    """Three healthy nodes that compact their logs every 200 entries."""
    bring_all_back(_compacting)
    return _compacting


@pytest.fixture(scope="module")
def _nodes(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[RedisCluster]":
    from tests.process.redis_nodes import RedisCluster  # noqa: PLC0415 - redis is there only with the group dev

    with RedisCluster.of(tmp_path_factory.mktemp("redis")) as cluster:
        yield cluster


@pytest.fixture
def nodes(_nodes: "RedisCluster") -> "RedisCluster":
    """Three healthy nodes that serve clients of Redis as well; each file has its own."""
    bring_all_back(_nodes)
    return _nodes
