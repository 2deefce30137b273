"""What unit tests share: a node that is a cluster of its own does not listen for others first."""

import pytest


@pytest.fixture(autouse=True)
def _founds_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cluster.peers.first_start.LONELY_S", 0.0)
