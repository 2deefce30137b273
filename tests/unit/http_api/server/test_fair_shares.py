"""What is kept of many parties: nobody's newest items give way to those of a party that has more."""

import random
from collections import Counter

import pytest

from http_api.server.fair_shares import FairShares

Item = tuple[str, int]
"""A party and the number of its item."""


def shares_of(shares: FairShares[Item]) -> Counter[str]:
    """Return how many items each party has."""
    return Counter(party for party, _ in shares)


def test_who_is_loud_gives_way_to_who_is_not() -> None:
    """A party that comes all the time has what others leave; each item of another takes one of its oldest."""
    shares: FairShares[Item] = FairShares(10)
    shares.add("quiet", ("quiet", 0))
    for number in range(100):
        shares.add("loud", ("loud", number))
    assert list(shares) == [("quiet", 0), *(("loud", number) for number in range(91, 100))]
    for number in range(1, 5):
        shares.add("quiet", ("quiet", number))
    assert shares_of(shares) == {"quiet": 5, "loud": 5}
    for number in range(100, 200):
        shares.add("loud", ("loud", number))
    assert shares_of(shares) == {"quiet": 5, "loud": 5}
    assert ("quiet", 0) in shares


def test_parties_that_have_one_each_go_in_the_order_of_their_coming() -> None:
    """More parties than there are places: the newest ones are kept."""
    shares: FairShares[Item] = FairShares(3)
    for number in range(10):
        shares.add(f"p{number}", (f"p{number}", number))
    assert sorted(shares) == [("p7", 7), ("p8", 8), ("p9", 9)]
    assert len(shares) == 3


@pytest.mark.parametrize("seed", range(20))
def test_whatever_comes_the_bound_and_the_shares_are_kept(seed: int) -> None:
    """Never too many; each party has its newest, an equal share of them at least, as a naive model says."""
    chosen = random.Random(seed)
    count_max, parties = chosen.randint(1, 40), chosen.randint(1, 12)
    shares: FairShares[Item] = FairShares(count_max)
    came: Counter[str] = Counter()
    for _ in range(400):
        party = f"p{min(chosen.randrange(parties), chosen.randrange(parties))}"
        before = shares_of(shares)
        shares.add(party, (party, came[party]))
        came[party] += 1
        now = shares_of(shares)
        assert len(shares) == now.total() == min(came.total(), count_max)
        before[party] += 1
        for lost in before - now:
            assert before[lost] == max(before.values()), "only who has most gives way"
        for known in came:
            assert now[known] >= min(came[known], count_max // len(came))
            numbers = [number for name, number in shares if name == known]
            assert numbers == list(range(came[known] - now[known], came[known])), "its newest, in order"


def test_a_call_takes_as_long_with_many_parties() -> None:
    """Nobody looks through all of them: what is touched of the parties does not grow with their number."""
    shares: FairShares[Item] = FairShares(1000)
    for number in range(5000):
        shares.add(f"p{number}", (f"p{number}", number))
    assert len(shares) == len(shares_of(shares)) == 1000
    assert len(shares._items) == 1000
    assert set(shares._by_count) == {1}, "what nobody has is not kept"
