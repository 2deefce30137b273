"""Replicas for the tests of this folder: one that follows, one that leads, and what makes others."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.replica_parts import LibraryClock
from tests.unit.cluster.consensus.one_replica import Site


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> LibraryClock:
    """Return the library's clock."""
    return LibraryClock().install(monkeypatch)


@pytest.fixture
def follower(tmp_path: Path, clock: LibraryClock) -> Iterator[Site]:
    """Return n2, which has heard nobody yet."""
    site = Site(tmp_path / "n2", clock, "n2")
    yield site
    site.close()


@pytest.fixture
def leader(tmp_path: Path, clock: LibraryClock) -> Iterator[Site]:
    """Return n1, which leads in term 1 and has committed the first entry of it."""
    site = Site(tmp_path / "n1", clock, "n1")
    site.lead()
    site.commit()
    yield site
    site.close()


@pytest.fixture
def make(tmp_path: Path, clock: LibraryClock) -> Iterator[Callable[..., Site]]:
    """Return what makes sites with other members or on the directory of an earlier one."""
    sites: list[Site] = []

    def made(node_id: str = "n1", **settings: object) -> Site:
        site = Site(tmp_path / node_id, clock, node_id, **settings)  # type: ignore[arg-type]
        sites.append(site)
        return site

    yield made
    for site in sites:
        site.close()
