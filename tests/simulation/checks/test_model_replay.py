"""The replay says what the machine says, on long random histories; and what it costs does not grow."""

from random import Random

import msgspec
import pytest

from lockstate.words.commands.entries import AbandonWaits, Cancel, Command
from lockstate.words.commands.holds import Acquire, Change, MayWait, Proclaim, PutOff, Release, Renew
from lockstate.words.commands.overrides import ForceRelease
from lockstate.words.commands.primitives import TakeRate
from lockstate.words.commands.sessions import CloseSession, KeepAlive, OpenSession
from lockstate.words.ids import NO_SESSION, AttemptId, HoldId, OwnerName, SessionId
from lockstate.words.kinds import Algorithm, HoldKind
from lockstate.words.modes import Mode
from lockstate.words.results import ForceReleased, Queued
from lockstate.words.views import HolderView
from lockstate.words.wanted import Uncommon
from tests.property import random_commands
from tests.simulation.checks.comparable import plain
from tests.simulation.checks.scripted_cluster import ScriptedCluster
from tests.simulation.workload.history import ReadLocks
from tests.support.vocabulary import VOCABULARY, another_attempt

ENTRIES = 1500
PAUSES_MS = [0, 5, 50, 400, 400, 3000]
SHORT_PAUSES_MS = [0, 0, 1, 5, 5, 50, 400]
"""Milliseconds between entries. Leases of the varied commands are short."""
PREFIXES = {"hold_id": "h", "ticket_id": "h", "attempt_id": "a", "session_id": "s"}
"""What the ids of a crowd begin with."""


class Crowd:
    """Clients that do anything, and are answered as soon as there is an answer."""

    def __init__(self, cluster: ScriptedCluster, random: Random, *, is_varied: bool = False) -> None:
        self._story = cluster
        self._is_varied = is_varied
        self._random = random
        self._made = 0
        self._requests: list[Command] = []
        self._waiting: dict[str, list[tuple[int, Command]]] = {}
        self._cancels: list[Command] = []

    def act(self) -> None:
        """Put a few commands into one entry, and answer them."""
        cluster, random = self._story, self._random
        pauses_ms = (
            SHORT_PAUSES_MS if self._is_varied else [*PAUSES_MS, 60_000 if random.random() < 0.05 else 1]
        )
        cluster.pass_ms(random.choice(pauses_ms))
        commands = [self._command() for _ in range(random.randint(1, 3))]
        numbers = [cluster.call(command, node_id="b") for command in commands]
        cancels, self._cancels = self._cancels, []
        read = cluster.history.call_read("reader", "c", ReadLocks(), cluster.now_us)
        cluster.wait_ends.clear()
        revision = cluster.commit(*commands, *cancels, node_id="b")
        for number, command, result in zip(numbers, commands, cluster.results.values(), strict=False):
            if isinstance(result, Queued):
                self._waiting.setdefault(result.hold_id, []).append((number, command))
            elif isinstance(command, MayWait) and random.random() < 0.1:
                of_hold = "" if isinstance(command, Change) else getattr(result, "hold_id", "")
                self._leave(number, command, of_hold)
            else:
                cluster.history.reply(number, cluster.now_us, result, revision)
        cluster.results.clear()
        for hold_id, (ended, told) in cluster.wait_ends.items():
            for number, _ in self._waiting.pop(hold_id, ()):
                cluster.history.reply(number, cluster.now_us, told, ended)
        cluster.history.reply_read(read, cluster.now_us, ReadLocks().ask(cluster.machine), revision)
        if self._waiting and random.random() < 0.2:
            hold_id = random.choice(list(self._waiting))
            waiting = self._waiting[hold_id]
            self._leave(*waiting.pop(random.randrange(len(waiting))), hold_id)
            if not waiting:
                del self._waiting[hold_id]

    def _leave(self, number: int, command: Command, hold_id: str) -> None:
        """Let a client go away; its node takes back what it asked for."""
        assert isinstance(command, MayWait), "nobody else is waited for"
        self._story.history.gone(number, self._story.now_us)
        if hold_id:
            self._cancels.append(Cancel(HoldId(hold_id), command.attempt_id))

    def _command(self) -> Command:
        random = self._random
        if self._requests and random.random() < 0.15:
            return self._again(random.choice(self._requests[-20:]))
        command = self._new_command()
        if getattr(command, "request_id", ""):
            self._requests.append(command)
        return command

    def _again(self, command: Command) -> Command:
        return another_attempt(command, lambda field: self._new_id(PREFIXES[field]))

    def _new_command(self) -> Command:
        random = self._random
        request_id = self._new_id("r") if random.random() < 0.6 else ""
        if self._is_varied and random.random() < 0.9:
            return self._varied(request_id)
        name = random.choice("xyz")
        old = HoldId(f"h{random.randint(max(0, self._made - 60), self._made)}")
        session_id = SessionId(f"s{random.randint(max(0, self._made - 60), self._made)}")
        sessions = [session.session_id for session in self._story.checkers.expected.state.sessions]
        holds = [hold.hold_id for hold in self._story.checkers.expected.state.holds]
        match random.randint(0, 8):
            case 0:
                return OpenSession(
                    SessionId(self._new_id("s")), random.choice([50, 5000, 90_000]), {}, request_id
                )
            case 1:
                return KeepAlive(random.choice([session_id, *sessions]))
            case 2:
                return CloseSession(random.choice([session_id, *sessions]), request_id)
            case 3:
                return Release(random.choice([old, *holds]), request_id)
            case 4:
                return Renew(random.choice([old, *holds]), random.choice([0, 0, 2000, 20]), request_id)
            case 5:
                return ForceRelease(name, "why", random.choice([0, 300]), request_id)
        in_session = sessions and random.random() < 0.5
        return Acquire(
            name,
            random.choice(list(Mode)),
            HoldId(self._new_id("h")),
            AttemptId(self._new_id("a")),
            session_id=random.choice(sessions) if in_session else NO_SESSION,
            ttl_ms=0 if in_session else random.choice([50, 1000, 9000, 9000]),
            owner=OwnerName(random.choice(["", "me", "you"])),
            wait_ms=random.choice([0, 100, 5000, 90_000]),
            request_id=request_id,
            uncommon=random.choice([None, None, Uncommon(lock_delay_ms=700)]),
        )

    def _varied(self, request_id: str) -> Command:
        """Return any command: as for the property tests, and requests to a rate limit."""
        random, state = self._random, self._story.checkers.expected.state
        new_id = HoldId(self._new_id("h"))
        command: Command
        led = [hold.hold_id for hold in state.holds if hold.kind is HoldKind.ELECTION]
        asked = [plea.hold for plea in state.pleas]
        match random.randint(0, 8):
            case 8 if led and random.random() < 0.5:
                command = Proclaim(random.choice(led), random.choice(["v1", "v2"]))
            case 8 if asked:
                hold = random.choice(asked)
                command = PutOff(hold.hold_id, hold.kind)
            case 0 | 1 | 2:
                command = random_commands.wish(random, new_id)
            case 3 | 4:
                command = random_commands.conversion(random, state, new_id)
            case 5 | 6:
                command = random_commands.other(random, state)
            case _:
                algorithm, cost = random.choice(list(Algorithm)), random.randint(1, 3)
                wait_ms = random.choice([0, 100, 5000])
                command = TakeRate("r", random.choice([2, 3]), 1000, algorithm, cost, wait_ms)
        if isinstance(command, Cancel | AbandonWaits):  # nodes send them, no client does
            return self._varied(request_id)
        if VOCABULARY[type(command)].scope is None:
            return command
        return msgspec.structs.replace(command, request_id=request_id)

    def _new_id(self, kind: str) -> str:
        self._made += 1
        return f"{kind}{self._made}"


def test_the_replay_agrees_with_the_machine() -> None:
    """Every answer, every end of a wait, every view and every state is the same, entry by entry."""
    cluster = ScriptedCluster(digest_every=1)
    crowd = Crowd(cluster, Random(7))
    for _ in range(ENTRIES):
        crowd.act()
    outcomes = cluster.history.outcomes
    kinds = {"granted", "queued", "renewed", "released", "forcereleased", "sessionopened", "lock-held"}
    assert kinds - set(outcomes) == {"queued"}, "everything happened, and nobody was told to be queued"
    assert cluster.checkers.reads.checked_count == ENTRIES


def test_the_replay_agrees_on_the_whole_vocabulary() -> None:
    """So it is for conversions, several locks, permits, elections, rates and fences."""
    cluster = ScriptedCluster(digest_every=1)
    crowd = Crowd(cluster, Random(8), is_varied=True)
    kinds = {"resized", "proclaimed", "ratetaken", "fenceadvanced", "revoked", "putoffto"}
    kinds |= {"no-permits", "limit-mismatch", "wrong-kind"}
    for number in range(4 * ENTRIES):
        crowd.act()
        if number >= ENTRIES and kinds <= set(cluster.history.outcomes):
            break
    else:
        pytest.fail(f"never happened: {kinds - set(cluster.history.outcomes)}")


def test_memory_is_bounded() -> None:
    """After thousands of settled commands the checkers remember a few: those whose outcome is open."""
    cluster = ScriptedCluster(digest_every=100)
    crowd = Crowd(cluster, Random(8))
    for _ in range(ENTRIES):
        crowd.act()
    assert len(cluster.checkers.replies) < 100
    assert len(cluster.checkers.expected.state.requests) < 1000
    assert len(cluster.checkers.leases) < 100


def test_what_the_model_leaves_open_is_left_out() -> None:
    """Default owners are compared without their hashes, given ones as they are."""
    one, other = (ForceReleased((HolderView(OwnerName(f"hold-{n}"), Mode.SHARED, 1, 0, ""),)) for n in (1, 2))
    assert plain(one) == plain(other)
    me, you = (ForceReleased((HolderView(OwnerName(name), Mode.SHARED, 1, 0, ""),)) for name in ("me", "you"))
    assert plain(me) != plain(you)
