"""The rules of the cluster on one node: what it can apply, and when the leader moves them on.

Rules are what commands do (lockstate/words/versions.py). All nodes must follow the same ones, so they move
by an entry of the log, and only when nobody is left behind: every member is connected and said in its
handshake that it knows the next rules, and nobody joins or leaves.
"""

import logging
from collections.abc import Callable, Generator

from cluster.commands.batcher import Batcher
from cluster.errors import NodeFailed
from lockstate.machine import LockMachine
from lockstate.stored import snapshot
from lockstate.words import codec
from lockstate.words.outcomes import Outcome
from lockstate.words.versions import RULES, UnknownVersionError

logger = logging.getLogger(__name__)


def apply_entry(machine: LockMachine, data: bytes) -> Outcome:
    """Apply a committed entry, and log it if the rules move. Raises NodeFailed if it must not be applied."""
    state = machine.state
    rules = state.rules
    try:
        entry = codec.decode_entry(data, rules)
    except UnknownVersionError as error:
        raise NodeFailed(str(error)) from error
    outcome = machine.apply(entry)
    if state.rules != rules:
        logger.info("event=rules-advance from=%d to=%d", rules, state.rules)
    return outcome


def decode_state(state: bytearray) -> Generator[None, None, LockMachine]:
    """Decode a received snapshot in steps. Raises SnapshotError, or NodeFailed if it is a newer one."""
    try:
        return LockMachine((yield from snapshot.decode_in_steps(state)))
    except snapshot.SnapshotTooNewError as error:
        raise NodeFailed(str(error)) from error


class RulesAdvance:
    """Moves the rules on when this node leads. One thread."""

    def __init__(self, batcher: Batcher, known_by_all: Callable[[], int]) -> None:
        """`known_by_all` returns the newest rules that every member is known to know.

        It returns 0 while that may change: on a node that does not lead or is not sure of its log, and while
        somebody joins, leaves or is not connected.
        """
        self._batcher = batcher
        self._known_by_all = known_by_all
        self._proposed_to = 0

    def role_changed(self) -> None:
        """Forget what was proposed: it may be lost, and a repetition has no effect."""
        self._proposed_to = 0

    def step(self, active: int, *, is_held: bool = False) -> bool:
        """Propose the rules behind the `active` ones once every member knows them; whether that was now.

        Not while an operator holds them: an entry that is on its way then moves nothing, so what was proposed
        is forgotten. Called after ticks.
        """
        if is_held:
            self._proposed_to = 0
            return False
        following = active + 1
        if following not in RULES or following == self._proposed_to or self._known_by_all() < following:
            return False
        logger.info("event=rules-proposed to=%d", following)
        self._proposed_to = following
        self._batcher.add_advance(following)
        return True
