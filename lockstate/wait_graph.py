"""The wait-for graph that a search for deadlocks has found: which tickets are stuck, and how they go round.

A ticket is stuck that cannot go even when everybody whose tickets are not stuck gives up everything: the
reduction of a general resource graph (Holt 1972, Some Deadlock Properties of Computer Systems).
"""

from collections import deque
from collections.abc import Iterator

import msgspec

from lockstate.claims import shown_name
from lockstate.ids import HoldId
from lockstate.owners import own_id, shown_owner
from lockstate.records import Ticket
from lockstate.results import CycleView


class Cycle(msgspec.Struct, frozen=True):
    """A deadlock that a waiter would close. Each step waits for the owner of the next one."""

    steps: tuple[CycleView, ...]
    is_of_conversions: bool
    """Whether it is two conversions that wait for each other."""


class Wait(msgspec.Struct, eq=False):
    """A ticket and the tickets it depends on, by id, each with the name where they meet.

    It needs all of `needed`; of the holders of permits it needs those back that `spare` does not do without.
    """

    ticket: Ticket
    needed: dict[HoldId, str]
    permits: list[tuple[int, list[HoldId]]]
    spare: int = 0

    def is_stuck(self, stuck: dict[HoldId, "Wait"]) -> bool:
        """Whether it cannot go as long as the `stuck` cannot."""
        return any(other in stuck for other in self.needed) or self._lacks_permits(stuck)

    def _lacks_permits(self, stuck: dict[HoldId, "Wait"]) -> bool:
        kept = sum([count for count, others in self.permits if any(other in stuck for other in others)])
        return kept > self.spare

    def in_the_way(self, stuck: dict[HoldId, "Wait"]) -> Iterator[tuple[HoldId, str]]:
        """Yield the stuck tickets that it depends on, with names."""
        for other, name in self.needed.items():
            if other in stuck:
                yield other, name
        for _, others in self.permits if self._lacks_permits(stuck) else ():
            for other in others:
                if other in stuck:
                    yield other, self.ticket.name


def reduce(waits: dict[HoldId, Wait]) -> None:
    """Take out every ticket that can go, until only those are left that cannot."""
    users: dict[HoldId, list[HoldId]] = {}
    for hold_id, wait in waits.items():
        for other in (*wait.needed, *[other for _, others in wait.permits for other in others]):
            users.setdefault(other, []).append(hold_id)
    to_look_at = deque(waits)
    while to_look_at:
        hold_id = to_look_at.popleft()
        if hold_id in waits and not waits[hold_id].is_stuck(waits):
            del waits[hold_id]
            to_look_at.extend(users.get(hold_id, ()))


def cycle(stuck: dict[HoldId, Wait], first: HoldId) -> Cycle | None:
    """Return a deadlock through `first`: two conversions if there are, else the shortest way back."""
    way = _pair(stuck, first) or _shortest(stuck, first)
    if not way:
        return None
    return Cycle(
        tuple([_step(stuck[hold_id].ticket, name) for hold_id, name in way]),
        is_of_conversions=len(way) == 2  # noqa: PLR2004 - two that wait for each other
        and all(stuck[hold_id].ticket.converts for hold_id, _ in way),
    )


def _pair(stuck: dict[HoldId, Wait], first: HoldId) -> list[tuple[HoldId, str]]:
    """Return the conversion `first` and another one that wait for each other; nothing if there is none."""
    if stuck[first].ticket.converts:
        for other, name in stuck[first].in_the_way(stuck):
            back = dict(stuck[other].in_the_way(stuck)).get(first)
            if other != first and stuck[other].ticket.converts and back is not None:
                return [(first, name), (other, back)]
    return []


def _shortest(stuck: dict[HoldId, Wait], first: HoldId) -> list[tuple[HoldId, str]]:
    """Return the shortest way from `first` back to it over the stuck; nothing if it only waits for them."""
    came_from: dict[HoldId, tuple[HoldId, str]] = {}
    reached = deque([first])
    while reached and first not in came_from:
        at = reached.popleft()
        for other, name in stuck[at].in_the_way(stuck):
            if other not in came_from:
                came_from[other] = (at, name)
                reached.append(other)
    way: list[tuple[HoldId, str]] = []
    at = first
    while first in came_from and (not way or at != first):
        at, name = came_from[at]
        way.append((at, name))
    return way[::-1]


def _step(ticket: Ticket, name: str) -> CycleView:
    owner = shown_owner(ticket.owner, own_id(ticket))
    return CycleView(owner, shown_name(name), ticket.kind)
