"""How many TLS handshakes begin: so many a second, and strangers take nothing from members."""

from cluster.peers.handshake_budget import BURST_COUNT, PER_S, HandshakeBudget

MEMBERS = frozenset({"10.0.0.1", "10.0.0.2"})


def begun(budget: HandshakeBudget, origin: str, count: int = 1000) -> int:
    """Return how many of so many handshakes begin."""
    return sum(budget.take(origin, MEMBERS) for _ in range(count))


def test_so_many_begin_at_once_and_then_so_many_a_second() -> None:
    """A share that rests is full again, and never fuller."""
    now_s = 5.0
    budget = HandshakeBudget(lambda: now_s)
    assert begun(budget, "10.0.0.1") == BURST_COUNT
    now_s += 0.5
    assert begun(budget, "10.0.0.1") == PER_S / 2
    now_s += 1000
    assert begun(budget, "10.0.0.1") == BURST_COUNT


def test_strangers_share_one_and_members_have_their_own() -> None:
    """However many addresses strangers have; one that was a member is a stranger."""
    budget = HandshakeBudget(lambda: 0.0)
    assert sum(begun(budget, f"192.0.2.{number}", 10) for number in range(200)) == BURST_COUNT
    assert begun(budget, "10.0.0.1") == begun(budget, "10.0.0.2") == BURST_COUNT
    assert not budget.take("10.0.0.1", frozenset())
