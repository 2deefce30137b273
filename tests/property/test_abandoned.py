"""Many waits that end in one command: machine and model name the same numbers in every refusal.

Each refusal says how many still wait. Waits end in order of arrival, and nobody is served in between, so the
numbers count down; a wait that came back through another node keeps its place.
"""

from random import Random
from unittest.mock import patch

import msgspec
import pytest

from lockstate.machine import LockMachine
from lockstate.words import limits
from lockstate.words.commands.entries import AbandonWaits, Batch, Command, Entry
from lockstate.words.commands.holds import Acquire, AcquirePermits, Convert, MayWait
from lockstate.words.commands.sessions import OpenSession
from lockstate.words.ids import AttemptId, HoldId, SessionId
from lockstate.words.modes import Mode, Scope
from lockstate.words.outcomes import Outcome
from lockstate.words.results import Granted
from lockstate.words.wanted import Wanted
from tests.property import compare
from tests.property.model import apply
from tests.property.model_records import ModelState

NAMES = ("a", "a/b", "a/b/c", "e")
ORIGINS = ("n1", "n2")
SESSIONS = tuple(SessionId(f"s{number}") for number in range(6))
WAIT_MS = 20_000
TTL_MS = 60_000


class Pair:
    """A machine and the model, fed with the same commands and compared after each."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.machine = LockMachine()
        self.state = ModelState()
        self.seqs = dict.fromkeys(ORIGINS, 0)
        self.held: list[HoldId] = []
        self.asked: list[MayWait] = []

    def run(self, origin: str, command: Command, now_ms: int) -> Outcome:
        """Apply one command that came through `origin`."""
        self.seqs[origin] += 1
        entry = Entry(now_ms, (Batch(origin, (self.seqs[origin],), (command,)),))
        outcome = self.machine.apply(entry)
        compare.check_outcome(outcome, apply(self.state, entry), self.state)
        results = [result for batch in outcome.batches for result in batch.results]
        self.held += [result.hold_id for result in results if isinstance(result, Granted)]
        return outcome

    def wish(self, number: int) -> MayWait:
        """Return something that somebody asks for, in a session or with a lease, or asked for before."""
        rng, dice = self.rng, self.rng.random()
        if self.asked and dice < 0.15:
            again = rng.choice(self.asked)
            return msgspec.structs.replace(again, attempt_id=AttemptId(f"a{number}"))
        hold_id, attempt_id, key = HoldId(f"h{number}"), AttemptId(f"a{number}"), f"request-{number}"
        session_id = rng.choice(SESSIONS) if rng.random() < 0.5 else SessionId("")
        ttl_ms = 0 if session_id else TTL_MS
        mode, scope = rng.choice(list(Mode)), rng.choice(list(Scope))
        command: MayWait
        if self.held and dice < 0.3:
            command = Convert(rng.choice(self.held), mode, hold_id, attempt_id, WAIT_MS, key)
        elif dice < 0.5:
            permits = rng.randint(1, 3)
            command = AcquirePermits("pool", 3, permits, hold_id, attempt_id, session_id, ttl_ms)
            command = msgspec.structs.replace(command, wait_ms=WAIT_MS, request_id=key)
        else:
            several = dice < 0.7
            command = Acquire("" if several else rng.choice(NAMES), mode, hold_id, attempt_id, session_id)
            locks = tuple(Wanted(name, mode) for name in rng.sample(NAMES, 2)) if several else ()
            command = msgspec.structs.replace(
                command, ttl_ms=ttl_ms, wait_ms=WAIT_MS, request_id=key, scope=scope, locks=locks
            )
        self.asked.append(command)
        return command


@pytest.mark.parametrize("seed", range(60))
def test_waits_that_end_together_are_refused_with_the_same_numbers(seed: int) -> None:
    """Whatever waits for what, the refusals of all waits of a node that is gone are those of the model."""
    rng = Random(seed)
    pair = Pair(rng)
    for session_id in SESSIONS:
        pair.run(ORIGINS[0], OpenSession(session_id, TTL_MS, {"owner": session_id}), 1000)
    for number in range(rng.randint(8, 24)):
        pair.run(rng.choice(ORIGINS), pair.wish(number), 1000 + number)
    waiting = len(pair.state.tickets)
    ended = 0
    for origin in rng.sample(ORIGINS, 2):
        with patch.object(limits, "ABANDONED_PER_COMMAND_MAX", rng.choice([2, 1000])):
            while any(ticket.origin == origin for ticket in pair.state.tickets):
                ended += len(pair.run(ORIGINS[0], AbandonWaits(origin), 2000).settled)
    assert ended == waiting
