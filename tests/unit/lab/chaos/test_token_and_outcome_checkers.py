"""Tokens, outcomes and the end of a run: known-good histories pass, each planted mistake is found."""

from lab.chaos.checkers.catalogue import check_all
from lab.chaos.checkers.endings import equal_nodes, final_holds
from lab.chaos.checkers.outcomes import not_applied, one_outcome
from lab.chaos.checkers.tokens import fences, tokens_are_unique, tokens_in_real_time
from tests.unit.lab.chaos.histories import Script


def test_tokens_of_concurrent_grants_come_in_any_order() -> None:
    """Two grants that were asked for at one time may have their tokens either way."""
    script = Script()
    script.grant("h1", 2, 0, 5)
    script.grant("h2", 1, 3, 9, name="b")
    assert check_all(script.history) == []


def test_a_token_that_falls() -> None:
    """A grant asked for after a greater token was known, even of another name."""
    script = Script()
    script.grant("h1", 2, 0, 5)
    script.grant("h3", 3, 0, 50, name="c")
    script.grant("h2", 1, 6, 9, name="b")
    assert [found.operations for found in tokens_in_real_time(script.history)] == [(1, 3)]


def test_an_old_grant_that_is_told_late() -> None:
    """Whoever repeats a request hears of the grant that the first one got, though nobody heard of it then."""
    script = Script()
    script.add("acquire", "a", 0, 90, "unknown", owner="x", request="r")
    script.grant("h2", 6, 20, 30, name="b")
    script.grant("h1", 5, 95, 99, owner="x", request="r")
    assert tokens_in_real_time(script.history) == []
    script.grant("h3", 4, 95, 99, name="c", request="another")
    assert len(tokens_in_real_time(script.history)) == 1


def test_a_token_given_twice() -> None:
    """Two holds have one token."""
    script = Script()
    script.grant("h1", 2, 0, 5)
    script.grant("h2", 2, 0, 5, name="b")
    assert len(tokens_are_unique(script.history)) == 1


def test_a_hold_with_two_tokens() -> None:
    """The same hold is answered with another token."""
    script = Script()
    script.grant("h1", 2, 0, 5, session="s")
    script.grant("h1", 3, 6, 9, session="s")
    assert len(tokens_are_unique(script.history)) == 1


def test_a_fence_that_accepts_stale_tokens() -> None:
    """A smaller token after a greater one was accepted; concurrent ones may come in any order."""
    script = Script()
    script.add("advance", "r", 0, 5, token=7)
    script.add("advance", "r", 3, 9, token=6)
    script.add("advance", "s", 6, 9, token=5)
    assert fences(script.history) == []
    script.add("advance", "r", 6, 9, token=5)
    assert [found.operations for found in fences(script.history)] == [(1, 4)]


def test_a_fence_that_refuses_a_present_holder() -> None:
    """A refusal needs a greater token that somebody brought, if only with an unknown outcome."""
    script = Script()
    script.add("advance", "r", 0, 5, "unknown", token=8)
    script.add("advance", "r", 6, 9, "refused", code="stale-token", token=7)
    assert fences(script.history) == []
    script.add("advance", "s", 6, 9, "refused", code="stale-token", token=7)
    assert len(fences(script.history)) == 1


def test_a_refused_request_that_is_seen_to_hold() -> None:
    """Somebody whose only request was refused is a holder in an event, an answer or the final listing."""
    script = Script()
    script.refused("mallory", 0, 5)
    assert not_applied(script.history) == []
    script.add("watch-event", "w", 0, 6, result={"event": "granted", "owner": "mallory"})
    script.refused("alice", 0, 7, name="b")
    script.refused("bob", 8, 9, name="b").result["holders"] = [{"owner": "alice"}]
    script.refused("carol", 0, 5)
    script.listing(20, 21, ("a", "carol", 9))
    assert [found.operations[0] for found in not_applied(script.history)] == [1, 3, 5]


def test_a_queued_request_that_was_refused() -> None:
    """Who waited in vain was in the queue, and that is right."""
    script = Script()
    script.refused("alice", 0, 5)
    script.add("watch-event", "w", 0, 6, result={"event": "queued", "owner": "alice"})
    assert not_applied(script.history) == []


def test_a_request_with_two_outcomes() -> None:
    """The same request is granted twice, or refused after its grant; an unknown one proves nothing."""
    script = Script()
    script.grant("h1", 1, 0, 5, request="r")
    script.grant("h1", 1, 6, 9, request="r")
    script.add("acquire", "a", 10, 11, "unknown", request="r")
    assert one_outcome(script.history) == []
    script.grant("h2", 2, 10, 12, request="r")
    assert len(one_outcome(script.history)) == 1
    script.refused("x", 0, 1, request="q")
    script.grant("h3", 3, 2, 3, request="q")
    assert len(one_outcome(script.history)) == 1, "a refusal may come first, and be told late"
    script.refused("x", 3, 9, request="q")
    assert len(one_outcome(script.history)) == 1
    script.refused("x", 4, 9, request="q")
    assert len(one_outcome(script.history)) == 2


def test_an_acknowledged_hold_that_is_gone() -> None:
    """A hold that nobody gave up, and whose lease runs, is in the final listing."""
    script = Script()
    script.grant("h1", 1, 0, 5, ttl=1000)
    script.grant("h2", 2, 0, 5, name="b", ttl=10)
    script.listing(50, 60, ("a", "h1", 1))
    assert final_holds(script.history) == []
    script.listing(61, 62, ("a", "h1", 7))
    assert len(final_holds(script.history)) == 1


def test_an_acknowledged_release_that_is_gone() -> None:
    """A hold that was given up is not in the final listing; of one without an answer nobody knows."""
    script = Script()
    script.grant("h1", 1, 0, 5, ttl=1000)
    script.release("h1", 6, 9, "unknown")
    script.listing(50, 60, ("a", "h1", 1))
    assert final_holds(script.history) == []
    script.release("h1", 10, 12)
    assert len(final_holds(script.history)) == 1


def test_nodes_that_differ() -> None:
    """All nodes have one revision and one digest; the last word of each counts."""
    script = Script()
    script.node("n1", 6, "old")
    script.node("n1", 7, "x")
    script.node("n2", 7, "x")
    assert equal_nodes(script.history) == []
    script.node("n3", 7, "y")
    assert len(equal_nodes(script.history)) == 1
    script.node("n3", 6, "x")
    assert len(equal_nodes(script.history)) == 1


def test_nodes_that_tell_no_digest() -> None:
    """Nodes of an older version are compared by their revision alone."""
    script = Script()
    script.node("n1", 7, "x")
    script.node("n2", 7, "")
    assert equal_nodes(script.history) == []
    script.node("n3", 7, "y")
    assert len(equal_nodes(script.history)) == 1
