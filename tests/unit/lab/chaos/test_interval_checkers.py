"""Intervals on the clients' clock: what overlaps or ends early is found, what may be right is not."""

from lab.chaos.checkers.catalogue import check_all
from lab.chaos.checkers.intervals import early_leases, overlaps, revived
from tests.unit.lab.chaos.histories import Script


def test_one_holder_after_the_other() -> None:
    """A lock that is released, and one whose lease is over, may go on."""
    script = Script()
    script.grant("h1", 1, 0, 5)
    script.release("h1", 20, 30)
    script.grant("h2", 2, 10, 21)
    script.grant("h3", 3, 50, 111)
    assert check_all(script.history) == []


def test_two_holders_at_a_time() -> None:
    """Two confirmed intervals of one lock overlap: who heard second heard before the first let go."""
    script = Script()
    one = script.grant("h1", 1, 0, 5)
    two = script.grant("h2", 2, 2, 10)
    script.release("h1", 20, 30)
    [found] = overlaps(script.history)
    assert found.operations == (one.id, two.id)
    assert "two holders for 10.0 ms" in found.text


def test_a_later_holder_far_behind_a_short_one() -> None:
    """A long hold is compared with all that come in it, not only with its neighbour."""
    script = Script()
    script.grant("h1", 1, 0, 5, ttl=10_000)
    script.grant("h2", 2, 2, 10, ttl=12)
    script.grant("h3", 3, 500, 510)
    assert [found.operations for found in overlaps(script.history)] == [(1, 2), (1, 3)]


def test_other_names_do_not_meet() -> None:
    """Two locks may be held at a time."""
    script = Script()
    script.grant("h1", 1, 0, 5)
    script.grant("h2", 2, 0, 5, name="b")
    assert check_all(script.history) == []


def test_modes_that_go_together() -> None:
    """Shared ones and one for update hold together, two for update do not."""
    script = Script()
    script.grant("h1", 1, 0, 5, mode="shared")
    script.grant("h2", 2, 0, 6, mode="update")
    script.grant("h3", 3, 0, 7, mode="shared")
    assert overlaps(script.history) == []
    script.grant("h4", 4, 0, 8, mode="update")
    assert [found.operations for found in overlaps(script.history)] == [(2, 4)]


def test_permits_within_the_limit() -> None:
    """Permits add up to the limit and no further; those given back count no longer."""
    script = Script()
    for number in range(2):
        script.grant(f"h{number}", number + 1, 0, 5, kind="sem-acquire", permits=2, limit=4)
    script.release("h0", 9, 12, kind="sem-release")
    script.grant("h2", 3, 6, 10, kind="sem-acquire", permits=2, limit=4)
    assert overlaps(script.history) == []
    script.grant("h3", 4, 6, 11, kind="sem-acquire", permits=1, limit=4)
    assert "5 permits" in overlaps(script.history)[0].text


def test_early_end_of_a_lease() -> None:
    """The next holder hears of its grant before the lease of the silent one has run out."""
    script = Script()
    script.grant("h1", 1, 0, 5)
    script.grant("h2", 2, 1, 90)
    assert "early" in early_leases(script.history)[0].checker


def test_a_renewal_makes_a_lease_longer() -> None:
    """What was late enough for the lease is early for its renewal; an unknown renewal promises nothing."""
    script = Script()
    script.grant("h1", 1, 0, 5)
    script.renew("h1", 50, 60, outcome="unknown")
    script.grant("h2", 2, 1, 120, ttl=1000)
    assert early_leases(script.history) == []
    script.renew("h1", 50, 60)
    assert len(early_leases(script.history)) == 1


def test_a_renewal_that_hears_too_early_of_the_end() -> None:
    """A holder is told that its lease is over while it should run."""
    script = Script()
    script.grant("h1", 1, 0, 5)
    script.renew("h1", 80, 85, outcome="refused", code="lease-expired")
    assert len(early_leases(script.history)) == 1


def test_a_renewal_behind_a_release() -> None:
    """Who has asked for the release itself is rightly told that it is over."""
    script = Script()
    script.grant("h1", 1, 0, 5)
    script.release("h1", 70, 75, "unknown")
    script.renew("h1", 80, 85, outcome="refused", code="lease-expired")
    assert early_leases(script.history) == []


def test_an_answer_that_came_late() -> None:
    """A grant that its client heard of after its lease proves nothing against the holder of that time."""
    script = Script()
    script.grant("h2", 2, 140, 150)
    script.grant("h1", 1, 0, 160)
    assert early_leases(script.history) == []
    assert overlaps(script.history) == []


def test_a_released_hold_is_renewed() -> None:
    """A renewal is granted after the acknowledged release; one that was under way is nobody's fault."""
    script = Script()
    script.grant("h1", 1, 0, 5)
    script.release("h1", 10, 20)
    script.renew("h1", 15, 30)
    assert revived(script.history) == []
    script.renew("h1", 21, 30)
    assert len(revived(script.history)) == 1


def test_the_end_of_a_session_ends_its_holds() -> None:
    """A hold of a session counts until its client asks to close the session."""
    script = Script()
    script.grant("h1", 1, 0, 5, session="s")
    script.add("session-close", "c", 10, 20, session="s")
    script.grant("h2", 2, 1, 11)
    assert overlaps(script.history) == []
    script.grant("h3", 3, 1, 12)
    assert len(overlaps(script.history)) == 1


def test_a_reentrant_grant_is_one_hold() -> None:
    """The same hold again does not count twice, and lasts as long as the last answer says."""
    script = Script()
    script.grant("h1", 1, 0, 5, session="s")
    script.grant("h1", 1, 50, 55, session="s")
    assert check_all(script.history) == []
    script.grant("h2", 2, 60, 130)
    assert len(early_leases(script.history)) == 1


def test_an_old_outcome_makes_no_lease_longer() -> None:
    """A repeated request whose hold is over by then is told so: nothing follows for the time before."""
    script = Script()
    script.grant("h1", 1, 0, 5, request="r")
    script.grant("h2", 2, 110, 120)
    script.grant("h1", 1, 1, 310, request="r").result |= {"expires_in_ms": 0, "sent_ns": 300_000_000}
    assert check_all(script.history) == []
