"""The benchmark of memory and of the pauses of a large node: small, but for real."""

import argparse
import gc
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.bench import command as bench
from lab.bench import memory
from lab.measuring import state_bytes


def arguments(disk: Path, *flags: str) -> argparse.Namespace:
    """Return what the command line makes of `flags`."""
    return bench.build_parser().parse_args(["memory", "--disk", str(disk), *flags])


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    """The collector is set as before afterwards."""
    threshold = gc.get_threshold()
    yield
    gc.set_threshold(*threshold)
    gc.unfreeze()


def test_it_measures_and_tells(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """A small run has figures of everything, judges none of them, and leaves nothing behind."""
    options = arguments(tmp_path, "--locks", "3000", "--leases", "200", "--gather", "0.1", "--json")
    assert memory.run(options) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["locks"], found["leases"]) == (3000, 200)
    figures = found["figures"]
    assert set(figures) == {key for key, _, _ in memory._ROWS}
    assert all(figure > 0 for figure in figures.values())
    assert [bar["is_met"] for bar in found["bars"]] == [None] * 6
    assert [bar["found"] for bar in found["bars"]][:3] == [
        figures["state_plain_bytes"],
        figures["state_streamed_bytes"],
        figures["node_bytes"],
    ]
    assert 0 <= found["machine"]["others_percent"] <= 100
    assert list(tmp_path.iterdir()) == []


def test_bars_are_judged_with_all_locks_and_leases() -> None:
    """A figure at its bar meets it; with fewer leases only their pause is not judged."""
    good = {
        "state_plain_bytes": 600.0,
        "state_streamed_bytes": 600.0,
        "node_bytes": 1024.0,
        "grow_worst_ms": 50.0,
        "write_worst_ms": 50.0,
        "end_worst_ms": 50.0,
    }
    bad = {key: value + 0.1 for key, value in good.items()}

    def met(figures: dict[str, float], locks: int, leases: int) -> list[bool | None]:
        return [bar["is_met"] for bar in memory._bars(figures, locks, leases)]

    assert met(good, 1_000_000, 100_000) == [True] * 6
    assert met(bad, 1_000_000, 100_000) == [False] * 6
    assert met(good, 1_000_000, 99_999) == [True] * 5 + [None]
    assert met(good, 999_999, 100_000) == [None] * 6


def test_more_memory_for_a_lock_is_seen() -> None:
    """Names of three parts, with owners, take more than flat ones; neither is free."""
    plain, owned = (memory._state_bytes(kind, 20_000) for kind in (state_bytes.PLAIN, state_bytes.OWNED))
    assert 100 < plain < owned < 10_000


def test_a_state_that_cannot_be_measured_is_told() -> None:
    """When the process that measures fails, its last words are in the error."""
    with pytest.raises(OSError, match="KeyError"):
        memory._state_bytes("nonsense", 1)
