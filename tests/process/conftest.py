"""Clusters of real processes. Three are shared by all tests here, and repaired before each that uses them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts.local_cluster import LocalCluster
from tests.process.nodes import PATIENT, bring_all_back
from tests.support.libraries import ModuleWithLibraries

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
