"""LockMachine and the naive model, side by side, on random histories."""

import re

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from lockstate import invariants, snapshot
from lockstate.codec import decode_entry, encode_command, encode_entry
from lockstate.commands import Acquire, Command, Entry, OpenSession
from lockstate.machine import LockMachine
from lockstate.results import Event, Granted, Outcome, Queued, Refused, Result
from tests.property import strategies
from tests.property.checkers import Referee
from tests.property.model import Model

COMMANDS_MAX = 4
"""Commands in one batch: enough to meet each other in it."""


def plain(value: object) -> str:
    """Return `value` as text, without the hashes in default owners."""
    return re.sub(r'"(session|hold)-(?!expired")[^"]*"', r'"\1-*"', msgspec.json.encode(value).decode())


def plain_result(result: Result) -> str:
    """Return `result` as text, without what the model leaves open: wording and hints."""
    if isinstance(result, Refused):
        result = msgspec.structs.replace(result, detail="", retry_after_ms=0)
    return plain(result)


def plain_events(events: list[Event] | tuple[Event, ...]) -> list[str]:
    """Return the events as text, those of each lock in their order.

    In which order different locks are told about within one entry is not part of the rules.
    """
    by_name = sorted(events, key=lambda event: event.name)
    return [plain((event.kind, event.name, event.owner, event.token)) for event in by_name]


class Lockstep(RuleBasedStateMachine):
    """Feeds the same bytes to two machines and the same commands to the model; they must always agree."""

    def __init__(self) -> None:
        super().__init__()
        self.machine = LockMachine()
        self.twin = LockMachine()
        self.model = Model()
        self.referee = Referee()
        self.now_ms = 1_000
        self.seqs = {"n1": 0, "n2": 0}
        self.hold_ids: list[str] = []
        self.requests: list[Command] = []
        """Commands that carried a request id."""
        self.last_bytes = b""
        self.hold_ids_made = 0

    # What may happen

    @rule(data=st.data(), count=st.integers(1, COMMANDS_MAX), pause_ms=st.sampled_from(strategies.PAUSES_MS))
    def acquire(self, data: st.DataObject, count: int, pause_ms: int) -> None:
        """Some ask for locks."""
        self.now_ms += pause_ms
        self._apply([("n1", [data.draw(strategies.acquires(self._new_hold_id())) for _ in range(count)])])

    @rule(data=st.data(), pause_ms=st.sampled_from(strategies.PAUSES_MS))
    def act(self, data: st.DataObject, pause_ms: int) -> None:
        """One asks for something else."""
        self.now_ms += pause_ms
        self._apply([("n1", [data.draw(strategies.others(self.hold_ids[-12:]))])])

    @precondition(lambda self: self.requests)
    @rule(data=st.data(), pause_ms=st.sampled_from(strategies.PAUSES_MS))
    def ask_again(self, data: st.DataObject, pause_ms: int) -> None:
        """One repeats a request, as after a lost answer: same content, new secret, new attempt."""
        self.now_ms += pause_ms
        request = data.draw(st.sampled_from(self.requests[-8:]))
        if isinstance(request, Acquire):
            attempt_id = data.draw(strategies.attempt_ids)
            request = msgspec.structs.replace(request, hold_id=self._new_hold_id(), attempt_id=attempt_id)
        elif isinstance(request, OpenSession):
            request = msgspec.structs.replace(request, session_id=data.draw(strategies.session_ids))
        self._apply([("n2", [request])])

    @rule(data=st.data(), count=st.integers(1, COMMANDS_MAX))
    def act_together(self, data: st.DataObject, count: int) -> None:
        """Two nodes ask for several things in one entry."""
        batches: list[tuple[str, list[Command]]] = []
        for origin in ("n1", "n2"):
            others = st.lists(strategies.others(self.hold_ids[-12:]), max_size=count)
            acquired: list[Command] = [data.draw(strategies.acquires(self._new_hold_id()))]
            batches.append((origin, acquired + data.draw(others)))
        self._apply(batches)

    @precondition(lambda self: self.model.deadlines())
    @rule(beyond_ms=st.sampled_from([0, 1]), data=st.data())
    def reach_a_deadline(self, beyond_ms: int, data: st.DataObject) -> None:
        """Time stands exactly at a deadline, or has just passed it, when an acquire comes."""
        ends_ms = [end_ms for end_ms, *_ in self.model.deadlines()]
        self.now_ms = max(self.now_ms, data.draw(st.sampled_from(ends_ms)) + beyond_ms)
        self._apply([("n1", [data.draw(strategies.acquires(self._new_hold_id()))])])

    @rule(back_ms=st.integers(0, 500))
    def tell_an_earlier_time(self, back_ms: int) -> None:
        """A new leader stamps an entry with a time that has passed already."""
        self._apply([], now_ms=max(0, self.now_ms - back_ms))

    @rule(command=strategies.bad_commands)
    def ask_nonsense(self, command: Command) -> None:
        """A command that no node should have let through is in the log."""
        self._apply([("n2", [command])])

    @rule()
    def repeat_the_last_entry(self) -> None:
        """A node sends what it has sent before, because it does not know that it was committed."""
        if self.last_bytes:
            self._apply_bytes(self.last_bytes)

    @rule(junk=st.binary(max_size=40))
    def apply_junk(self, junk: bytes) -> None:
        """Bytes that are no entry are in the log."""
        self._apply_bytes(junk)

    @rule()
    def restore(self) -> None:
        """The node restarts from its snapshot, in which nothing is missing."""
        data = snapshot.encode(self.machine)
        restored = snapshot.decode(data)
        assert snapshot.encode(restored) == data
        assert snapshot.digest(restored) == snapshot.digest(self.machine)
        self.machine = restored

    # What must hold

    @invariant()
    def state_is_sound(self) -> None:
        """What must always hold, holds."""
        invariants.check(self.machine)

    @invariant()
    def twins_are_equal(self) -> None:
        """The same bytes give the same state, with and without restarts."""
        assert snapshot.digest(self.machine) == snapshot.digest(self.twin)

    @invariant()
    def views_agree(self) -> None:
        """Readers see what the model says."""
        assert self.machine.revision == self.model.revision
        assert self.machine.now_ms == self.model.now_ms
        assert self.machine.next_token == self.model.next_token
        for name in strategies.NAMES:
            assert plain(self.machine.lock(name)) == plain(self.model.lock(name))
        for session_id in strategies.SESSION_IDS:
            assert plain(self.machine.session(session_id)) == plain(self.model.session(session_id))
        views, following = self.machine.locks("", "", 100)
        assert [view.name for view in views] == self.model.active_names()
        assert following is None

    # How

    def _new_hold_id(self) -> str:
        self.hold_ids_made += 1
        self.hold_ids.append(f"h{self.hold_ids_made}")
        return self.hold_ids[-1]

    def _apply(self, batches: list[tuple[str, list[Command]]], now_ms: int | None = None) -> None:
        encoded = []
        for origin, commands in batches:
            first = self.seqs[origin] + 1
            self.seqs[origin] += len(commands)
            seqs = list(range(first, first + len(commands)))
            self.requests += [command for command in commands if getattr(command, "request_id", "")]
            encoded.append((origin, seqs, [encode_command(command) for command in commands]))
        self.last_bytes = encode_entry(self.now_ms if now_ms is None else now_ms, encoded)
        self._apply_bytes(self.last_bytes)

    def _apply_bytes(self, data: bytes) -> None:
        entry = decode_entry(data)
        outcome = self.machine.apply(entry)
        assert self.twin.apply(entry) == outcome
        self.referee.watch(entry, outcome)
        expected = self.model.apply(entry)
        answers = [
            (batch.origin, seq, result)
            for batch in outcome.batches
            for seq, result in zip(batch.seqs, batch.results, strict=True)
        ]
        assert [a[:2] for a in answers] == [e[:2] for e in expected]
        for (_, _, result), (_, _, wanted) in zip(answers, expected, strict=True):
            assert plain_result(result) == plain_result(wanted), f"machine: {result}; model: {wanted}"
        assert plain_events(outcome.events) == plain_events(self.model.events)
        self._check_secrets(entry, outcome)

    def _check_secrets(self, entry: Entry, outcome: Outcome) -> None:
        """Check that waiters hear of their own grants, and that no owner shows a secret."""
        for event in outcome.events:
            if isinstance(event.result, Granted):
                assert (event.result.hold_id, event.result.token) == (event.hold_id, event.token)
            for secret in [*self.hold_ids, *strategies.SESSION_IDS]:
                assert secret not in event.owner.split("-")
        asked = {c.hold_id for batch in entry.batches for c in batch.commands if isinstance(c, Acquire)}
        for batch in outcome.batches:
            for result in batch.results:
                if isinstance(result, Queued):
                    assert result.hold_id in asked | set(self.hold_ids)


TestLockstep = Lockstep.TestCase
TestLockstep.settings = settings(stateful_step_count=40)
