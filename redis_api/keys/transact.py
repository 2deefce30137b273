"""From commands on an overlay to one transaction of the log: run, compare, apply, and run again if need be.

A program runs on a state of this node, and what it changed becomes one `TransactCells`, in which everything
that it read is compared. If a compare fails, another change came first: the program runs again on a newer
state. So a program that changes something may run on whatever state this node has: an old one makes it run
again, and nothing worse. One that only reads, or looks at a time that is left, runs on a state that is not
older than the call.
"""

import asyncio
import random
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import AsyncExitStack
from typing import Final, TypeVar

from lockapi.problems import ProblemError
from lockapi.requests.cells import transaction
from lockstate.machine import LockMachine
from lockstate.words.limits import TRANSACTION_PARTS_MAX
from lockstate.words.results import Transacted
from redis_api.keys.data_table import DATA
from redis_api.keys.overlay import Overlay
from redis_api.protocol.errors import IN_THE_WAY, CommandRefused, TooMuch
from redis_api.protocol.resp import Reply
from redis_api.shared.client import Client

TRIES_COUNT_MAX: Final = 64
"""How often a program runs before the client is told to try again, if that takes less than half of the time
that a request may take."""
PAUSE_S: Final = 0.001
"""Seconds before a program runs for the third time; each further pause may be twice as long."""
PAUSE_S_MAX: Final = 0.05
"""Seconds of one pause, at most."""

T = TypeVar("T")


async def call(client: Client, words: Sequence[bytes], *, writes: bool = True) -> Reply:
    """Carry out one command on keys; an error of any kind is a Failure. Raises ProblemError, ClusterError."""
    return await transact(client, lambda overlay: overlay.call(words), may_write=writes)


async def transact(
    client: Client,
    program: Callable[[Overlay], T],
    *,
    known: Collection[bytes] = (),
    may_write: bool = True,
) -> T:
    """Run a program, apply what it changed in one step, and return what it returned.

    It runs several times if other changes come first, so it must do nothing but call its overlay, and it
    keeps this node from all other work while it runs. `known` are values that the client itself has sent: a
    hold with one of them is its own. What the program raises is raised, and nothing is applied. Raises
    CommandRefused, ProblemError, ClusterError.
    """
    deadline_s = time.monotonic() + client.timeout_s
    gives_up_s = deadline_s - client.timeout_s / 2  # later there would be no time to hear what became of it
    turns = client.face.turns
    async with AsyncExitStack() as turn:
        has_turn = False
        for number in range(TRIES_COUNT_MAX):
            if number > 1:
                await asyncio.sleep(_pause_s(number - 2))
                if time.monotonic() > gives_up_s:
                    break
            # What came first has been applied here by now, so the state of this node will do again.
            overlay, result = await _run(client, program, known, deadline_s, on_own_state=may_write)
            if not has_turn and overlay.changed and (number or turns.is_taken(overlay.changed[0])):
                waiting = turns.turn(
                    overlay.changed[0], gives_up_s - time.monotonic(), is_contended=bool(number)
                )
                try:
                    await turn.enter_async_context(waiting)
                except TimeoutError:
                    break
                has_turn = True
                overlay, result = await _run(client, program, known, deadline_s, on_own_state=may_write)
            if not overlay.changed or await _apply(client, overlay, deadline_s):
                return result
    raise CommandRefused("other clients change the same keys all the time; nothing was applied", "BUSY")


async def _run(
    client: Client,
    program: Callable[[Overlay], T],
    known: Collection[bytes],
    deadline_s: float,
    *,
    on_own_state: bool,
) -> tuple[Overlay, T]:
    """Run a program on the state that this node has, if that will do, or on a new one."""
    node = client.gateway.node

    def run(machine: LockMachine) -> tuple[Overlay, T | Exception]:
        overlay = Overlay(client, machine, DATA, known)
        try:
            return overlay, program(overlay)
        except Exception as error:  # noqa: BLE001 - nothing of a client may stop the node, which calls this
            return overlay, error

    if on_own_state and not node.has_failed:
        overlay, result = run(node.machine)
        if isinstance(result, TooMuch):
            raise result  # the node stood still once for it, which is enough
        if overlay.changed and not overlay.needs_new_state and not isinstance(result, Exception):
            return overlay, result
    overlay, result = await client.gateway.read(run, _left_s(deadline_s))
    if isinstance(result, Exception):
        raise result
    return overlay, result


async def _apply(client: Client, overlay: Overlay, deadline_s: float) -> bool:
    """Apply what was changed, if all that was read is still so; return whether it is."""
    compares, operations = overlay.compares(), overlay.operations()
    if max(len(compares), len(operations)) > TRANSACTION_PARTS_MAX:
        raise CommandRefused(
            f"{len(compares)} things to compare and {len(operations)} to change in one step; at most"
            f" {TRANSACTION_PARTS_MAX} are allowed: two of the first for a key that is new"
        )
    command = transaction(compares, operations)
    try:
        outcome = await client.gateway.submit(command, Transacted, _left_s(deadline_s))
    except ProblemError as problem:
        # A lock that is free as compares see it may be wanted or frozen: then the program sees that, too.
        if problem.code not in IN_THE_WAY:
            raise
        return False
    if outcome.result.succeeded:
        overlay.was_applied()
    return outcome.result.succeeded


def _pause_s(number: int) -> float:
    """Return the seconds of a pause that has so many before it: half of a bound or more, by chance."""
    bound_s: float = min(PAUSE_S * 2**number, PAUSE_S_MAX)
    return random.uniform(0.5, 1) * bound_s  # noqa: S311 - no secret


def _left_s(deadline_s: float) -> float:
    """Return the seconds that are left, of which there are always some: the node says that it is too late."""
    return max(deadline_s - time.monotonic(), 0.001)
