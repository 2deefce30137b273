"""Values of what is to be done."""

from cluster.consensus.messages import NewerTerm, Vote
from cluster.consensus.ready import Ready
from tests.unit.cluster.consensus.one_replica import is_empty


def test_nothing_to_do_is_shared_by_nobody() -> None:
    """Each value has lists of its own."""
    first, second = Ready(), Ready()
    first.messages.append(("n2", NewerTerm(term=1)))
    first.committed.append((1, b""))
    first.promises.append(("n2", Vote(term=1)))
    assert is_empty(second)
