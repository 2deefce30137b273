"""How a node says why it does not let a peer in."""

from cluster.peers import objections

REMOVED = objections.removed("n3")


def test_only_the_removal_of_this_disk_is_final() -> None:
    """All else may be said by a node that is behind."""
    others = [
        objections.removed("n3", is_final=False),
        objections.not_a_member("n3"),
        objections.other_disk("n3", known="a" * 32, theirs="b" * 32),
        objections.other_cluster("n3", theirs="a" * 32, ours="b" * 32),
        objections.rules_too_old("n3", theirs=1, active=2),
        objections.other_group("n3", theirs=1, ours=0),
    ]
    assert (REMOVED.is_final, REMOVED.kind) == (True, "removed")
    assert [objection.is_final for objection in others] == [False] * len(others)
    kinds = ["not-a-member", "not-a-member", "other-disk", "other-cluster", "rules", "group"]
    assert [objection.kind for objection in others] == kinds
    assert all("n3" in objection.reason for objection in others)
