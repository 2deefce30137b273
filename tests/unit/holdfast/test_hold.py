"""Leases: how long a right can be relied on by the client's own clock."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.values.lease import Lease


@given(asked_at_s=st.floats(0, 1e9), expires_in_ms=st.integers(0, 24 * 3600 * 1000))
def test_a_lease_is_valid_for_less_than_the_cluster_says(asked_at_s: float, expires_in_ms: int) -> None:
    """Validity counts from before the request, less a rounding and an allowance for a slow clock."""
    lease = Lease(asked_at_s, expires_in_ms)
    granted_s = lease.valid_until_s - asked_at_s
    assert 0 <= granted_s <= max(0.0, (expires_in_ms - 1) / 1000 * 0.9981) + 1e-6
    assert lease.remaining_s(asked_at_s + expires_in_ms / 1000 + 1e-6) == 0
    assert lease.renew_at_s <= max(asked_at_s + 0.01, lease.valid_until_s)


@pytest.mark.parametrize(
    ("expires_in_ms", "valid_ms"), [(0, 0), (1, 0), (50, 48), (1000, 997), (30_000, 29_939)]
)
def test_lease_examples(expires_in_ms: int, valid_ms: int) -> None:
    """One millisecond and one part in 500, rounded up, are taken off."""
    assert Lease(5.0, expires_in_ms).remaining_s(5.0) == pytest.approx(valid_ms / 1000)
