"""The wait-for graph that a search for deadlocks has found: which tickets are stuck, and the cycle they form.

A ticket is stuck if it cannot go even when all parties without a stuck ticket give up everything they have.
This is the reduction of a general resource graph (Holt 1972, Some Deadlock Properties of Computer Systems).
"""

from collections import deque
from collections.abc import Container, Iterator

import msgspec

from lockstate.tables.owners import own_id, shown_owner
from lockstate.tables.records import Ticket
from lockstate.words.claims import semaphore_of, shown_name
from lockstate.words.ids import HoldId
from lockstate.words.kinds import HoldKind
from lockstate.words.refusals import CycleView


class Cycle(msgspec.Struct, frozen=True):
    """A deadlock that a waiter would close. The owner of each step waits for the owner of the next."""

    steps: tuple[CycleView, ...]
    is_of_conversions: bool
    """Whether it is two conversions that wait for each other."""


class Pool(msgspec.Struct, eq=False):
    """The semaphore of a name that a ticket wants permits of.

    `permits` lists numbers of permits, each with the tickets that keep them from coming back: the ticket can
    go while those kept are not more than `spare`.
    """

    name: str
    spare: int
    permits: list[tuple[int, list[HoldId]]] = msgspec.field(default_factory=list)

    def lacks_permits(self, stuck: Container[HoldId]) -> bool:
        """Whether there are not enough permits as long as the `stuck` keep theirs."""
        kept = sum([count for count, others in self.permits if any(other in stuck for other in others)])
        return kept > self.spare


class Wait(msgspec.Struct, eq=False):
    """A ticket and the tickets it depends on, by id, each with the name of the record where they meet.

    All of `needed` must go before it can, and there must be permits in each of its `pools`. The name of a
    semaphore is the stand-in for its permits among claims (`claims.permits_of`).
    """

    ticket: Ticket
    needed: dict[HoldId, str]
    pools: list[Pool]

    def is_stuck(self, stuck: dict[HoldId, "Wait"]) -> bool:
        """Whether the ticket cannot go as long as the `stuck` cannot."""
        return any(other in stuck for other in self.needed) or any(
            pool.lacks_permits(stuck) for pool in self.pools
        )

    def in_the_way(self, stuck: dict[HoldId, "Wait"]) -> Iterator[tuple[HoldId, str]]:
        """Yield the stuck tickets that the ticket depends on, each with the name where they meet."""
        for other, name in self.needed.items():
            if other in stuck:
                yield other, name
        for pool in [pool for pool in self.pools if pool.lacks_permits(stuck)]:
            for _, others in pool.permits:
                for other in others:
                    if other in stuck:
                        yield other, pool.name


def reduce(waits: dict[HoldId, Wait]) -> None:
    """Remove every ticket that can go, until only the stuck are left."""
    users: dict[HoldId, list[HoldId]] = {}
    for hold_id, wait in waits.items():
        keeping = [other for pool in wait.pools for _, others in pool.permits for other in others]
        for other in (*wait.needed, *keeping):
            users.setdefault(other, []).append(hold_id)
    to_look_at = deque(waits)
    while to_look_at:
        hold_id = to_look_at.popleft()
        if hold_id in waits and not waits[hold_id].is_stuck(waits):
            del waits[hold_id]
            to_look_at.extend(users.get(hold_id, ()))


def cycle(stuck: dict[HoldId, Wait], first: HoldId) -> Cycle | None:
    """Return a deadlock through `first`: one of two conversions if there is one, else the shortest."""
    path = _pair(stuck, first) or _shortest(stuck, first)
    if not path:
        return None
    return Cycle(
        tuple([_step(stuck[hold_id].ticket, name) for hold_id, name in path]),
        is_of_conversions=len(path) == 2  # noqa: PLR2004 - two that wait for each other
        and all(stuck[hold_id].ticket.is_conversion for hold_id, _ in path),
    )


def _pair(stuck: dict[HoldId, Wait], first: HoldId) -> list[tuple[HoldId, str]]:
    """Return the conversion `first` and another that wait for each other; nothing if there is none."""
    if stuck[first].ticket.is_conversion:
        for other, name in stuck[first].in_the_way(stuck):
            back = dict(stuck[other].in_the_way(stuck)).get(first)
            if other != first and stuck[other].ticket.is_conversion and back is not None:
                return [(first, name), (other, back)]
    return []


def _shortest(stuck: dict[HoldId, Wait], first: HoldId) -> list[tuple[HoldId, str]]:
    """Return the shortest path of stuck tickets from `first` back to it; nothing if there is none."""
    came_from: dict[HoldId, tuple[HoldId, str]] = {}
    reached = deque([first])
    while reached and first not in came_from:
        hold_id = reached.popleft()
        for other, name in stuck[hold_id].in_the_way(stuck):
            if other not in came_from:
                came_from[other] = (hold_id, name)
                reached.append(other)
    path: list[tuple[HoldId, str]] = []
    hold_id = first
    while first in came_from and (not path or hold_id != first):
        hold_id, name = came_from[hold_id]
        path.append((hold_id, name))
    return path[::-1]


def _step(ticket: Ticket, name: str) -> CycleView:
    owner = shown_owner(ticket.owner, own_id(ticket))
    if semaphore := semaphore_of(name):
        return CycleView(owner, semaphore, HoldKind.SEMAPHORE)
    return CycleView(owner, shown_name(name), ticket.kind)
