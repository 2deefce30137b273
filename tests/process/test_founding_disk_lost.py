"""The fault of the chaos lab that loses a founder's disk in the middle of the first start, on real nodes."""

import random
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lab.chaos.faults.founding import FoundingDiskLost
from tests.process.nodes import slow

pytestmark = pytest.mark.process

HOWS = {
    "all have founded the cluster",
    "the founding was complete: the node is replaced",
    "the founding had begun: all begin anew",
}


@pytest.fixture
def target(tmp_path: Path) -> Iterator[Any]:
    """Return a target with a directory, and no cluster: the fault needs none."""
    return SimpleNamespace(cluster=SimpleNamespace(directory=tmp_path))


@pytest.mark.parametrize(("victim", "stored"), [slow("f1", "1"), ("f3", "3")])
def test_a_lost_founder_is_repaired_as_documented(
    target: Any, tmp_path: Path, victim: str, stored: str
) -> None:
    """Whatever has come of the founding, which a moment decides; afterwards nothing is left of it."""
    told: list[str] = []
    options = {"node": victim, "stored": stored}
    fault = FoundingDiskLost(target, random.Random(1), options, told.append)
    try:
        assert fault.begin() == [victim]
    finally:
        fault.end()
    [said] = told
    assert said.removeprefix(f"founding-disk-lost of {victim}: ") in HOWS
    assert list(tmp_path.iterdir()) == []
