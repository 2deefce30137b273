"""A browser, and real nodes whose page it looks at."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts.local_cluster import LocalCluster
from tests.process.nodes import bring_all_back
from tests.support.known_cluster import LINES, KnownCluster
from tests.support.libraries import ModuleWithLibraries, skip_without

CALM = ("--election-ms-min", "2000", "--election-ms-max", "3000")
"""What nodes are told: a browser that takes both processors for a second deposes no leader."""


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Module:
    """Skip these tests where the library that drives the browser is missing."""
    return ModuleWithLibraries.from_parent(parent, path=module_path)


@pytest.fixture(scope="module")
def browser() -> Iterator[object]:
    """Debian's chromium, without a window.

    While the library runs it, no other event loop can run in this thread: so it ends with the file.
    """
    skip_without("playwright")
    from tests.ui import browsing  # noqa: PLC0415 - needs the library

    with browsing.chromium() as browser:
        yield browser


@pytest.fixture(scope="session")
def _open(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with LocalCluster.up(tmp_path_factory.mktemp("open"), extra_args=CALM) as cluster:
        yield cluster


@pytest.fixture
def cluster(_open: LocalCluster) -> LocalCluster:
    """Three healthy nodes that let everybody do everything."""
    bring_all_back(_open)
    return _open


@pytest.fixture(scope="session")
def known(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """A node that knows its callers."""
    folder = tmp_path_factory.mktemp("known")
    file = folder / "tokens"
    file.write_bytes(LINES)
    file.chmod(0o600)
    with KnownCluster.up(folder / "cluster", nodes=1, extra_args=["--tokens", str(file)]) as cluster:
        yield cluster
