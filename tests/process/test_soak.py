"""What the soak takes for a leak of memory, on a real node: what it keeps on purpose is none."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.chaos.run import Plan
from lab.chaos.soak import Sample, Soak, leaks
from lab.chaos.targets.processes import ProcessTarget
from tests.process.leaking_node import LEAK_BYTES, WRAPPER

pytestmark = pytest.mark.process

ROUNDS_COUNT = 300
NODE = "n1"


@pytest.fixture
def target(tmp_path: Path) -> Iterator[ProcessTarget]:
    """Return a cluster of one node."""
    target = ProcessTarget(1, tmp_path)
    try:
        target.open()
        yield target
    finally:
        target.close()


def samples_around_load(target: ProcessTarget) -> tuple[list[Sample], list[Sample]]:
    """Return what the node takes before and after some requests."""
    plan = Plan(seed=1, seconds=0, steps=[], workloads={}, faults={}, directory=Path())
    soak = Soak(target, plan, quiet_s=0, tell=print)
    before = soak.samples()
    for number in range(ROUNDS_COUNT):
        body = {"name": f"soak/{number % 7}", "owner": "somebody", "ttl_ms": 5000}
        answer = target.ask(NODE, "/v1/locks/acquire", method="POST", body=body)
        assert answer is not None
        assert answer[0] == 200, answer
        freed = {"hold_id": answer[1]["hold_id"]}
        answer = target.ask(NODE, "/v1/locks/release", method="POST", body=freed)
        assert answer is not None
        assert answer[0] == 200, answer
    return before, soak.samples()


def test_a_leak_is_told_from_what_is_kept_on_purpose(target: ProcessTarget) -> None:
    """A node under load keeps events and a log, as it tells; one that keeps more has a leak."""
    before, after = samples_around_load(target)
    assert after[0].kept_bytes > before[0].kept_bytes
    assert not [text for text in leaks(before, after) if "memory" in text]
    target.terminate(NODE)
    target.cluster.node_wrappers[NODE] = WRAPPER
    target.start(NODE)
    target.wait_ready()
    before, after = samples_around_load(target)
    grown_bytes = after[0].used_bytes - before[0].used_bytes
    assert grown_bytes > ROUNDS_COUNT * LEAK_BYTES, "the load made nothing leak"
    assert [text for text in leaks(before, after) if "bytes of memory" in text]
