"""Which part of its log a leader may take for committed."""

import itertools

import pytest

from cluster.consensus.commit_rule import majority_index


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5])
def test_more_than_half_have_it_and_no_more_could_be_said(count: int) -> None:
    """For all that the voters may have: a majority has the index, and none has the next one."""
    for own, *others in itertools.product(range(4), repeat=count):
        index = majority_index(own, others)
        have = [each >= index for each in (own, *others)]
        have_more = [each > index for each in (own, *others)]
        assert 2 * sum(have) > count
        assert 2 * sum(have_more) <= count


def test_the_leaders_own_copy_counts_like_any_other() -> None:
    """As far as it was synced: two followers commit what the leader's own disk does not have yet."""
    assert majority_index(0, [7, 5]) == 5
    assert majority_index(9, [5, 0]) == 5
    assert majority_index(9, [0, 0]) == 0
