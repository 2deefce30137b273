"""What stands in the way of a node that is to join is told while it does."""

import pytest

from cluster.peers import objections
from cluster.peers.objections_met import FRESH_S_MAX, ObjectionsMet

OTHER_CLUSTER = objections.other_cluster("n4", theirs="a" * 32, ours="b" * 32)


def test_what_lasts_is_told_until_it_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """What passes by itself, and what was met long ago, is not."""
    now_s = 100.0
    monkeypatch.setattr("cluster.peers.objections_met.time.monotonic", lambda: now_s)
    found = ObjectionsMet()
    found.met("n4", objections.not_a_member("n4"), is_ours=True)
    assert found.why_not_joining("n4") == ""
    found.met("n4", OTHER_CLUSTER, is_ours=False)
    assert found.why_not_joining("n4") == OTHER_CLUSTER.reason
    assert found.why_not_joining("n5") == ""
    found.met("n4", objections.not_a_member("n4"), is_ours=True)
    assert found.why_not_joining("n4") == OTHER_CLUSTER.reason, "of two that speak, one says more"
    now_s += FRESH_S_MAX
    assert found.why_not_joining("n4") == ""
    found.met("n4", OTHER_CLUSTER, is_ours=False)
    found.gone("n4")
    assert found.why_not_joining("n4") == ""
