"""Handing leadership over: nothing is proposed meanwhile, the successor is asked once, and an end comes."""

import asyncio
from collections.abc import Callable
from typing import cast

from cluster.consensus.handover import ATTEMPTS_MAX, Handover, Handovers
from cluster.consensus.messages import TakeOver
from cluster.consensus.ready import Ready
from cluster.consensus.replica import Replica, Role

LONG_S = 3_600.0
"""A time, in seconds, that no test waits for."""
SHORT_S = 0.01
"""A time, in seconds, after which a test is to go on."""
LEADING = Role("n1", 3, is_leader=True, is_candidate=False)
FOLLOWING = Role("n2", 4, is_leader=False, is_candidate=False)


class _Leader:
    """A replica that leads, and followers that have what the test says; and the node around it."""

    def __init__(self, *, timeout_s: float = LONG_S) -> None:
        self.role = LEADING
        self.is_proposing = True
        self.up = {"n2", "n3"}
        self.caught_up: set[str] = set()
        self.asked: list[str] = []
        self.acted: list[Ready] = []
        self.ticks_requested = 0
        replica = cast("Replica", self)
        self.handovers = Handovers(
            replica, self.up.__contains__, self.acted.append, self._request_tick, timeout_s
        )

    def _request_tick(self) -> None:
        self.ticks_requested += 1

    def transfer(self, peer_id: str) -> Ready | None:
        if peer_id not in self.caught_up:
            return None
        self.asked.append(peer_id)
        return Ready(messages=[(peer_id, TakeOver(term=3))])

    def most_caught_up(self, is_fit: Callable[[str], bool] = bool) -> str | None:
        return max(filter(is_fit, self.up), default=None)


def begun(leader: _Leader, to: str = "n2") -> Handover:
    """Return a handover that has just begun."""
    handover = leader.handovers.begin(to)
    assert handover is not None
    return handover


async def test_nothing_is_proposed_while_leadership_is_handed_over() -> None:
    """So the successor's log can become as long; a tick is asked for, in which it goes on."""
    leader = _Leader()
    begun(leader)
    assert not leader.is_proposing
    assert leader.ticks_requested == 1
    assert leader.acted == []


async def test_the_successor_is_asked_once_and_when_it_has_everything() -> None:
    """Each step looks; what the question leads to is acted on like anything else."""
    leader = _Leader()
    begun(leader)
    leader.handovers.step()
    assert leader.asked == []
    leader.caught_up.add("n2")
    for _ in range(3):
        leader.handovers.step()
    assert leader.asked == ["n2"]
    assert leader.acted == [Ready(messages=[("n2", TakeOver(term=3))])]


async def test_it_is_over_when_this_node_leads_no_more() -> None:
    """Whoever leads now; the role of a follower proposes nothing anyway, so that is left alone."""
    leader = _Leader()
    handover = begun(leader)
    leader.role = FOLLOWING
    leader.handovers.step()
    assert await handover.wait()
    assert handover.is_ended
    leader.handovers.step()
    assert leader.acted == []


async def test_another_term_of_this_node_ends_it_too() -> None:
    """It led, lost leadership and leads again: what was begun before is over."""
    leader = _Leader()
    handover = begun(leader)
    leader.role = LEADING._replace(term=5)
    leader.handovers.step()
    assert await handover.wait()


async def test_a_successor_that_does_not_take_over_lets_this_node_go_on() -> None:
    """In time it proposes again, and says that it failed."""
    leader = _Leader(timeout_s=SHORT_S)
    assert not await begun(leader).wait()
    assert leader.is_proposing
    leader.caught_up.add("n2")
    leader.handovers.step()
    assert leader.asked == [], "it is not asked any more"


async def test_there_is_one_at_a_time() -> None:
    """Who asks for another one meanwhile gets the one under way; after its end a new one may begin."""
    leader = _Leader(timeout_s=SHORT_S)
    first = begun(leader)
    assert leader.handovers.begin("n3") is first
    await first.wait()
    second = begun(leader, "n3")
    assert second is not first
    assert not leader.is_proposing


async def test_only_a_leader_hands_over_and_only_to_who_is_connected() -> None:
    """Else nothing begins, and proposals go on."""
    leader = _Leader()
    assert leader.handovers.begin("n9") is None
    leader.role = FOLLOWING
    assert leader.handovers.begin("n2") is None
    assert leader.is_proposing
    assert leader.ticks_requested == 0


async def test_the_most_caught_up_is_chosen() -> None:
    """Nobody is, where nobody is connected."""
    leader = _Leader()
    chosen = leader.handovers.begin_with_most_caught_up()
    assert chosen is not None
    assert chosen[0] == "n3"
    alone = _Leader()
    alone.up.clear()
    assert alone.handovers.begin_with_most_caught_up() is None


async def test_a_stopping_leader_tries_only_so_often() -> None:
    """Then it stops all the same: the others elect a leader without it."""
    leader = _Leader(timeout_s=SHORT_S)
    await leader.handovers.hand_over()
    assert leader.ticks_requested == ATTEMPTS_MAX
    assert leader.is_proposing


async def test_a_stopping_leader_is_done_when_another_leads() -> None:
    """And a node that does not lead has nothing to hand over."""
    leader = _Leader()
    stopping = asyncio.create_task(leader.handovers.hand_over())
    await asyncio.sleep(0)
    leader.role = FOLLOWING
    leader.handovers.step()
    await stopping
    assert leader.ticks_requested == 1
    await leader.handovers.hand_over()
    assert leader.ticks_requested == 1
