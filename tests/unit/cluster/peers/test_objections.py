"""How a node says why it does not let a peer in."""

import pytest

from cluster.peers import objections
from cluster.peers.handshake import PROTOCOL_SEALED, Objection
from cluster.peers.objections import Kind

REMOVED = objections.removed("n3")


@pytest.mark.parametrize("is_frame", [True, False])
def test_a_signed_kind_is_believed(*, is_frame: bool) -> None:
    """From the protocol on in which it is signed, wherever it comes from."""
    assert objections.believed(REMOVED, PROTOCOL_SEALED, is_frame=is_frame) is REMOVED


def test_a_kind_that_nobody_signed_is_not_believed() -> None:
    """Older releases sign in a handshake that something is final, and nothing in frames."""
    older = PROTOCOL_SEALED - 1
    assert objections.believed(REMOVED, older, is_frame=False) == REMOVED
    forged = Objection("reason", kind=Kind.REMOVED)
    assert objections.believed(forged, older, is_frame=False) == Objection("reason")
    assert objections.believed(REMOVED, older, is_frame=True) == Objection(REMOVED.reason)


def test_only_the_removal_of_this_disk_is_final() -> None:
    """All else may be said by a node that is behind."""
    others = [
        objections.removed("n3", is_final=False),
        objections.not_a_member("n3"),
        objections.other_disk("n3", known="a" * 32, theirs="b" * 32),
        objections.other_cluster("n3", theirs="a" * 32, ours="b" * 32),
        objections.rules_too_old("n3", theirs=1, active=2),
        objections.other_group("n3", theirs=1, ours=0),
        objections.of_no_cluster("n3"),
    ]
    assert (REMOVED.is_final, REMOVED.kind) == (True, "removed")
    assert [objection.is_final for objection in others] == [False] * len(others)
    kinds = ["not-a-member", "not-a-member", "other-disk", "other-cluster", "rules", "group", "not-a-member"]
    assert [objection.kind for objection in others] == kinds
    assert all("n3" in objection.reason for objection in others)
