"""How late those were served that waited for the end of a lease."""

import itertools

import msgspec

from lab.chaos.checkers.holds import FOREVER_NS, by_name, holds
from lab.chaos.history import History


class LateLeases(msgspec.Struct, frozen=True, kw_only=True):
    """How late the next holders were, in seconds; zeros if nobody waited for the end of a lease."""

    count: int
    median_s: float
    worst_s: float


def late_leases(history: History) -> LateLeases:
    """Return how late those were served that waited for the end of a lease."""
    late_ns = sorted(late_leases_ns(history))
    if not late_ns:
        return LateLeases(count=0, median_s=0.0, worst_s=0.0)
    return LateLeases(
        count=len(late_ns), median_s=late_ns[len(late_ns) // 2] / 1e9, worst_s=late_ns[-1] / 1e9
    )


def late_leases_ns(history: History) -> list[int]:
    """Return by how much each holder that waited for the end of a lease was late, in ns, by name and time.

    Counted from the latest moment at which the lease may have begun, when its client heard of it: a lower
    bound. Clients that are bound to one node are left out: theirs may be down.
    """
    late = []
    for group in by_name(holds(history, drift=0.0), "lock").values():
        for before, after in itertools.pairwise(sorted(group, key=lambda hold: hold.token)):
            due_ns = before.granted_ns + before.grant.result["expires_in_ms"] * 1_000_000
            due_ns = max(due_ns, before.trusted_until_ns)
            if after.grant.bound:
                continue
            if before.let_go_ns == FOREVER_NS and after.asked_ns < due_ns < after.granted_ns:
                late.append(after.granted_ns - due_ns)
    return late
