"""When a node stands for election: whose word it needs, when it asks, and whom it holds for alive."""

import math
from collections.abc import Callable

import pytest

from cluster.consensus.messages import NewerTerm, PreVoteGranted, PreVoteRequest, TakeOver, VoteRequest
from cluster.consensus.prevote import PRE_VOTE_PAUSE_S
from tests.support.replica_parts import LibraryClock
from tests.unit.cluster.consensus.one_replica import FOUR, THREE, Site, members_of

BOTH = {"n1", "n3"}
"""The peers of n2."""


def question(site: Site, term: int = 1) -> PreVoteRequest:
    """Return the question of a node whose log is as good as this one's."""
    _, index, last_term = site.last
    return PreVoteRequest(term=term, last_log_index=index, last_log_term=last_term)


def lose_patience(site: Site) -> None:
    """Let so much time pass that no leader is believed to be alive, and ask."""
    site.clock.now_s += 2
    site.replica.prevote.ask(BOTH)


# -- asking -------------------------------------------------------------------------------------------------


def test_nobody_is_asked_before_the_patience_ends(follower: Site, clock: LibraryClock) -> None:
    """A node that has just started waits as if it had heard a leader."""
    prevote = follower.replica.prevote
    clock.now_s += 0.4
    assert prevote.ask(BOTH) == []
    clock.now_s += 0.7
    assert prevote.ask(BOTH) == [("n1", question(follower)), ("n3", question(follower))]


def test_an_unfit_node_leaves_the_election_to_others(follower: Site, clock: LibraryClock) -> None:
    """For a while: perhaps nobody else can win."""
    prevote = follower.replica.prevote
    prevote.is_unfit = True
    for _ in range(4):
        clock.now_s += 1.1
        assert prevote.ask(BOTH) == []
        assert not follower.replica.engine.may_stand
    clock.now_s += 0.7
    assert prevote.ask(BOTH) == [("n1", question(follower)), ("n3", question(follower))]


def test_an_unfit_node_counts_from_the_last_leader(follower: Site, clock: LibraryClock) -> None:
    """Each leader that is heard lets it wait anew."""
    prevote = follower.replica.prevote
    prevote.is_unfit = True
    clock.now_s += 4.9
    prevote.leader_heard()
    clock.now_s += 4.9
    assert prevote.ask(BOTH) == []


def test_an_unfit_node_takes_over_when_it_is_asked_to(follower: Site) -> None:
    """The leader, or an operator, knows what it does."""
    follower.replica.prevote.is_unfit = True
    follower.follow()
    follower.replica.receive("n1", TakeOver(term=1))
    stood = [type(message) for _, message in follower.replica.tick(has_entry=False).promises]
    assert stood == [VoteRequest, VoteRequest]


def test_an_unfit_node_alone_leads(make: Callable[..., Site]) -> None:
    """Nobody else could."""
    site = make("n1", members=members_of(["n1"]))
    site.replica.prevote.is_unfit = True
    assert site.replica.prevote.ask(set()) == []
    assert site.replica.engine.may_stand


def test_only_connected_voters_are_asked(make: Callable[..., Site], clock: LibraryClock) -> None:
    """A learner's word counts for nothing, and who is not connected cannot hear."""
    site = make("n2", members=FOUR)
    clock.now_s += 2
    assert site.replica.prevote.ask({"n1", "n4"}) == [("n1", question(site))]


def test_a_learner_asks_nobody(make: Callable[..., Site], clock: LibraryClock) -> None:
    """It may not lead, so it never stands, not even if it is asked to take over."""
    site = make("n4", members=FOUR)
    clock.now_s += 2
    assert site.replica.prevote.ask(set(THREE)) == []
    assert not site.replica.prevote.count("n1", PreVoteGranted(term=1))
    assert not site.replica.prevote.may_stand


def test_a_leader_asks_nobody(leader: Site, clock: LibraryClock) -> None:
    """Whatever time has passed."""
    clock.now_s += 2
    assert leader.replica.prevote.ask({"n2", "n3"}) == []


def test_after_a_pause_it_is_asked_again(follower: Site, clock: LibraryClock) -> None:
    """Questions get lost, and peers lose patience later; between two rounds there is a pause."""
    lose_patience(follower)
    assert follower.replica.prevote.ask(BOTH) == []
    clock.now_s += 3 * PRE_VOTE_PAUSE_S
    assert len(follower.replica.prevote.ask(BOTH)) == 2


def test_the_turns_of_the_nodes_are_staggered(
    make: Callable[..., Site], clock: LibraryClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When the leader is gone the others' next rounds are a pause apart, so that votes are not split."""
    sites = [make(node_id) for node_id in ("n2", "n3")]
    for site in sites:
        monkeypatch.setattr(site.replica.engine, "random", lambda: 0.5)
        site.follow("n1")
        site.replica.peer_down("n1")
    first, second = (site.replica.engine.election_deadline_s for site in sites)
    assert first == pytest.approx(clock.now_s + 1.25 * PRE_VOTE_PAUSE_S)
    assert second - first == pytest.approx(PRE_VOTE_PAUSE_S)


# -- counting -----------------------------------------------------------------------------------------------


def test_a_majority_lets_it_stand(make: Callable[..., Site]) -> None:
    """Of five, two others have to agree; the same one twice is one."""
    site = make("n2", members=members_of(["n1", "n2", "n3", "n4", "n5"]))
    prevote = site.replica.prevote
    lose_patience(site)
    assert not prevote.count("n1", PreVoteGranted(term=1))
    assert not prevote.count("n1", PreVoteGranted(term=1))
    before = prevote.may_stand
    assert prevote.count("n4", PreVoteGranted(term=1))
    assert (before, prevote.may_stand) == (False, True)
    assert site.replica.engine.election_deadline_s == 0.0, "the next tick stands for election"


def test_a_strangers_word_does_not_count(follower: Site) -> None:
    """Only voters are a majority."""
    lose_patience(follower)
    assert not follower.replica.prevote.count("n9", PreVoteGranted(term=1))


def test_an_answer_to_another_round_does_not_count(follower: Site, clock: LibraryClock) -> None:
    """Neither one for another term, nor what was said before the questions were asked again."""
    prevote = follower.replica.prevote
    lose_patience(follower)
    assert not prevote.count("n1", PreVoteGranted(term=2))
    assert prevote.count("n1", PreVoteGranted(term=1))
    follower.replica.receive("n3", NewerTerm(term=5))
    assert not prevote.may_stand, "the term that they agreed to is over"
    clock.now_s += 2
    prevote.ask(BOTH)
    assert not prevote.count("n1", PreVoteGranted(term=1))
    assert prevote.count("n1", PreVoteGranted(term=6))


def test_a_majority_agrees_in_one_round(make: Callable[..., Site]) -> None:
    """Who agreed before the questions were asked again may have heard a leader since."""
    site = make("n2", members=members_of(["n1", "n2", "n3", "n4", "n5"]))
    prevote = site.replica.prevote
    agreed = []
    for peer_ids in (["n1"], ["n4", "n5"]):
        lose_patience(site)
        agreed += [prevote.count(peer_id, PreVoteGranted(term=1)) for peer_id in peer_ids]
    assert agreed == [False, False, True]


def test_a_leader_that_speaks_ends_the_round(follower: Site) -> None:
    """Whoever agreed before has to be asked again."""
    prevote = follower.replica.prevote
    lose_patience(follower)
    prevote.count("n1", PreVoteGranted(term=1))
    prevote.leader_heard()
    assert not prevote.may_stand
    assert not prevote.count("n1", PreVoteGranted(term=1))


def test_a_node_alone_needs_nobody(make: Callable[..., Site]) -> None:
    """There is nobody else who could lead."""
    assert make("n1", members=members_of(["n1"])).replica.prevote.may_stand


def test_the_leaders_own_wish_is_enough(follower: Site) -> None:
    """Who is asked to take over asks nobody; when the connection breaks, the wish is forgotten."""
    follower.follow()
    follower.replica.receive("n1", TakeOver(term=1))
    before = follower.replica.prevote.may_stand
    follower.replica.peer_down("n1")
    assert (before, follower.replica.prevote.may_stand) == (True, False)


def test_a_takeover_allows_one_election_only(follower: Site, clock: LibraryClock) -> None:
    """Whoever lost it and followed another leader asks again when its patience ends, and requests no vote."""
    follower.follow()
    follower.replica.receive("n1", TakeOver(term=1))
    stood = [type(message) for _, message in follower.replica.tick(has_entry=False).promises]
    follower.journal.sync()
    follower.follow("n3", term=3)
    clock.now_s += 2
    asked = follower.replica.tick(has_entry=False)
    assert stood == [VoteRequest, VoteRequest]
    assert asked.messages == [(peer_id, question(follower, term=4)) for peer_id in ("n1", "n3")]
    assert (asked.promises, follower.replica.role.term) == ([], 3)


def test_a_patience_that_ends_within_a_tick_requests_no_vote(follower: Site, clock: LibraryClock) -> None:
    """What an earlier takeover allowed is over, even if only the library's look at the clock is late."""
    follower.follow()
    follower.replica.receive("n1", TakeOver(term=1))
    follower.replica.tick(has_entry=False)
    follower.journal.sync()
    follower.follow("n3", term=3)
    clock._reading_s = 0.001
    follower.replica.engine.election_deadline_s = clock.now_s + 0.0015
    follower.replica.tick(has_entry=False)
    assert follower.replica.engine.election_deadline_s < clock.now_s
    assert follower.replica.role.term == 3


# -- answering ----------------------------------------------------------------------------------------------


def test_a_yes_needs_a_lost_leader_and_a_good_log(follower: Site, clock: LibraryClock) -> None:
    """There is no answer at all as long as a leader is alive here, or for a log that lacks something."""
    follower.follow()
    follower.replica.receive("n1", follower.append([1]))
    prevote, asked = follower.replica.prevote, question(follower, term=2)
    poor = PreVoteRequest(term=2, last_log_index=1, last_log_term=1)
    assert prevote.answer(asked) is None
    clock.now_s += 0.6
    assert prevote.answer(asked) == PreVoteGranted(term=2)
    assert prevote.answer(poor) is None


@pytest.mark.parametrize("term", [3, 4])
def test_a_sender_that_is_behind_is_told_the_term(follower: Site, term: int) -> None:
    """It asks for a term that has begun already, and would ask for ever."""
    follower.follow(term=4)
    assert follower.replica.prevote.answer(question(follower, term)) == NewerTerm(term=4)


# -- whom it holds for alive --------------------------------------------------------------------------------


def test_a_leader_is_alive_while_it_is_heard(follower: Site, clock: LibraryClock) -> None:
    """For the shortest patience, on a connection that is still there."""
    prevote = follower.replica.prevote
    assert (prevote.leader_silence_s, prevote.lag_s) == (math.inf, math.inf)
    clock.now_s += 2
    follower.follow()
    alive = []
    for passed_s in (0.4, 0.2):
        clock.now_s += passed_s
        alive.append(prevote.leader_is_alive)
    assert alive == [True, False]
    assert prevote.leader_silence_s == pytest.approx(0.6)
    follower.follow()
    heard = prevote.leader_is_alive
    follower.replica.peer_down("n1")
    assert (heard, prevote.leader_is_alive) == (True, False)


def test_a_leader_hears_itself(leader: Site, clock: LibraryClock) -> None:
    """It has no silence to wait out; when it leads no more, its own leadership was the last one."""
    prevote = leader.replica.prevote
    leader.replica.tick(has_entry=False)
    assert (prevote.leader_silence_s, prevote.leader_is_alive) == (0.0, True)
    leader.replica.receive("n2", NewerTerm(term=7))
    clock.now_s += 0.25
    assert prevote.leader_silence_s == math.inf
    assert prevote.lag_s == pytest.approx(0.25)


# -- a leader that keeps time -------------------------------------------------------------------------------


def hear_for(site: Site, clock: LibraryClock, seconds: float, every_s: float = 0.1) -> None:
    """Let a follower hear its leader n1 again and again."""
    for _ in range(round(seconds / every_s)):
        clock.now_s += every_s
        site.follow("n1")


def tick_for(site: Site, clock: LibraryClock, seconds: float) -> bool:
    """Let a follower tick as it does when it hears nothing; tell whether it asks for pre-votes."""
    end_s, has_asked = clock.now_s + seconds, False
    while clock.now_s < end_s:
        clock.now_s = min(clock.now_s + 0.05, end_s)
        has_asked |= site.replica.prevote.ask(BOTH) != []
    return has_asked


def asks_after(site: Site, clock: LibraryClock, seconds: float) -> bool:
    """Whether a follower asks for pre-votes so long after it has heard its leader."""
    return tick_for(site, clock, seconds)


def hear_late(site: Site, clock: LibraryClock, seconds: float) -> None:
    """Let a follower that does not stand still hear its leader n1 after a pause."""
    tick_for(site, clock, seconds)
    site.follow("n1")


def test_a_leader_that_kept_time_is_lost_soon(follower: Site, clock: LibraryClock) -> None:
    """Two and a half heartbeats of silence end the patience with it, and a vote against it is heard."""
    hear_for(follower, clock, 1.5)
    assert not asks_after(follower, clock, 0.24)
    assert follower.replica.prevote.leader_is_alive
    assert asks_after(follower, clock, 0.03)
    assert not follower.replica.prevote.leader_is_alive


def test_a_new_leader_is_given_the_configured_patience(follower: Site, clock: LibraryClock) -> None:
    """Nobody knows yet whether it keeps time."""
    hear_for(follower, clock, 0.4)
    assert not asks_after(follower, clock, 0.45)
    assert follower.replica.prevote.leader_is_alive


@pytest.mark.parametrize(("pause_s", "patience_s"), [(0.22, 0.33), (0.24, 0.36), (0.45, 0.5)])
def test_patience_grows_with_the_pauses_of_a_leader(
    follower: Site, clock: LibraryClock, pause_s: float, patience_s: float
) -> None:
    """Half as much again as the longest of them, up to the configured patience; for a while."""
    hear_for(follower, clock, 1.5)
    hear_late(follower, clock, pause_s)
    hear_late(follower, clock, 0.21)
    hear_for(follower, clock, 5.0)
    assert not asks_after(follower, clock, patience_s - 0.01)
    assert follower.replica.prevote.leader_is_alive
    assert asks_after(follower, clock, 0.03)
    hear_for(follower, clock, 16.0)
    assert asks_after(follower, clock, 0.27)


def test_pauses_that_are_past_are_forgotten(follower: Site, clock: LibraryClock) -> None:
    """A shorter one that comes later counts for itself."""
    hear_for(follower, clock, 1.5)
    hear_late(follower, clock, 0.45)
    hear_for(follower, clock, 11.0)
    hear_late(follower, clock, 0.22)
    assert asks_after(follower, clock, 0.36)


def test_a_node_that_stood_still_does_not_blame_the_leader(follower: Site, clock: LibraryClock) -> None:
    """What was said meanwhile waits to be read: nobody is asked, and patience is as short as before."""
    hear_for(follower, clock, 1.5)
    clock.now_s += 0.4
    assert follower.replica.prevote.ask(BOTH) == []
    follower.follow("n1")
    clock.now_s += 0.4
    follower.follow("n1")
    assert asks_after(follower, clock, 0.27)


def test_a_connection_that_was_broken_is_no_pause_of_the_leader(follower: Site, clock: LibraryClock) -> None:
    """When it is there again, the leader has to keep time for a while, as a new one has."""
    hear_for(follower, clock, 1.5)
    follower.replica.peer_down("n1")
    clock.now_s += 0.3
    follower.replica.peer_up("n1")
    follower.follow("n1")
    hear_for(follower, clock, 0.4)
    assert not asks_after(follower, clock, 0.45)
    follower.follow("n1")
    hear_for(follower, clock, 11.0)
    assert asks_after(follower, clock, 0.27)


def test_a_replaced_link_is_no_loss_of_the_leader(follower: Site, clock: LibraryClock) -> None:
    """The leader is there, by another connection: nobody asks, and who asks gets no yes."""
    hear_for(follower, clock, 1.5)
    follower.replica.peer_down("n1", is_replaced=True)
    follower.replica.peer_up("n1")
    clock.now_s += 3 * PRE_VOTE_PAUSE_S
    assert follower.replica.tick(has_entry=False).messages == []
    request = PreVoteRequest(term=2, last_log_index=99, last_log_term=1)
    assert follower.replica.receive("n3", request).messages == []


def test_a_leader_that_is_silent_on_a_replaced_link_is_lost(follower: Site, clock: LibraryClock) -> None:
    """A new connection does not say that it still leads: another run of it may have made that."""
    hear_for(follower, clock, 1.5)
    follower.replica.peer_down("n1", is_replaced=True)
    follower.replica.peer_up("n1")
    assert asks_after(follower, clock, 0.27)


def test_a_replaced_link_is_no_pause_of_the_leader(follower: Site, clock: LibraryClock) -> None:
    """It had stalled, most likely: what was not heard meanwhile makes patience with the leader no longer."""
    hear_for(follower, clock, 1.5)
    assert not tick_for(follower, clock, 0.24)
    follower.replica.peer_down("n1", is_replaced=True)
    follower.replica.peer_up("n1")
    follower.follow("n1")
    hear_for(follower, clock, 0.6)
    assert asks_after(follower, clock, 0.27)


def test_after_a_replaced_link_the_leader_has_to_keep_time_again(follower: Site, clock: LibraryClock) -> None:
    """As a new one has."""
    hear_for(follower, clock, 1.5)
    follower.replica.peer_down("n1", is_replaced=True)
    follower.replica.peer_up("n1")
    follower.follow("n1")
    hear_for(follower, clock, 0.4)
    assert not asks_after(follower, clock, 0.45)


def test_the_second_in_turn_leaves_the_first_question_to_the_first(
    make: Callable[..., Site], clock: LibraryClock
) -> None:
    """When a leader that kept time falls silent, its followers ask a pause apart."""
    _, second = sites = [make("n2"), make("n3")]
    for _ in range(15):
        clock.now_s += 0.1
        for site in sites:
            site.follow("n1")
    for _ in range(3):
        clock.now_s += 0.09
        asked = [site.replica.prevote.ask({"n1", "n2", "n3"} - {site.node_id}) for site in sites]
    assert asked[0] != []
    assert asked[1] == []
    clock.now_s += PRE_VOTE_PAUSE_S
    assert second.replica.prevote.ask({"n1", "n2"}) != []


def test_a_silent_leader_is_asked_about_in_a_hurry_only_once(follower: Site, clock: LibraryClock) -> None:
    """Further questions have the usual pause between them."""
    hear_for(follower, clock, 1.5)
    assert asks_after(follower, clock, 0.27)
    assert not asks_after(follower, clock, PRE_VOTE_PAUSE_S / 2)


def test_who_has_agreed_to_an_election_does_not_ask_for_another(follower: Site, clock: LibraryClock) -> None:
    """Two candidates at once would split the votes: then the configured patience counts again."""
    hear_for(follower, clock, 1.5)
    clock.now_s += 0.255
    assert follower.replica.prevote.answer(question(follower, term=2)) == PreVoteGranted(term=2)
    assert not asks_after(follower, clock, 0.1)


def test_who_has_voted_does_not_hurry(follower: Site, clock: LibraryClock) -> None:
    """In a newer term somebody else is about to lead."""
    hear_for(follower, clock, 1.5)
    clock.now_s += 0.255
    _, index, last_term = follower.last
    follower.replica.receive("n3", VoteRequest(term=2, last_log_index=index, last_log_term=last_term))
    assert follower.replica.engine.term == 2
    assert not asks_after(follower, clock, 0.1)
