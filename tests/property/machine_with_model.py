"""A machine and the model, fed with the same entries and compared after each."""

from collections import Counter
from random import Random
from typing import Any, get_args
from zlib import crc32

import msgspec
import pytest

from lockstate import invariants
from lockstate.machine import LockMachine
from lockstate.rules.plain_locks import PlainLocks
from lockstate.stored import snapshot
from lockstate.tables.owners import session_name
from lockstate.words.codec import decode_entry, encode_command, encode_entry, entry_format
from lockstate.words.commands.admin import SetNamespace
from lockstate.words.commands.entries import Command, Entry, OfSomebody, OnBehalf
from lockstate.words.commands.holds import Acquire, Acquisition, Change
from lockstate.words.commands.primitives import TakeRate
from lockstate.words.commands.sessions import OpenSession
from lockstate.words.commands.streams import Numbered, ResumeStream
from lockstate.words.ids import NO_SESSION, HoldId
from lockstate.words.outcomes import Outcome
from lockstate.words.results import Queued, Result
from lockstate.words.settings import NamespaceSettings
from lockstate.words.versions import ENTRY_FORMATS, UnknownVersionError
from tests.property import compare, random_commands, situations
from tests.property.model import apply
from tests.property.model_changes import due
from tests.property.model_records import ModelState
from tests.property.referee import Referee
from tests.support.vocabulary import plain_command

RECENT = 8
PRINCIPALS = ("", "ann", "bob")
"""Who may ask, nobody among them: nodes need not know."""
COMMANDS_MAX = 4
"""Commands in one batch, at most: enough that they meet each other in it."""


class NothingIsPlain(PlainLocks):
    """Leaves everything to the general way."""

    __slots__ = ()

    def run(self, *_: Any) -> list[Result]:
        """Carry out nothing."""
        return []


def plain_of(machine: LockMachine) -> PlainLocks:
    """Return what carries out the plain commands of a machine."""
    plain: PlainLocks = machine._acts[Acquire].__self__  # type: ignore[attr-defined]
    return plain


def without_short_ways() -> LockMachine:
    """Return a machine to which no command is plain."""
    machine = LockMachine()
    plain_of(machine).__class__ = NothingIsPlain
    return machine


class MachineWithModel:
    """Feeds the same bytes to two machines and the same commands to the model; they must always agree.

    One of the two restarts at times, the other one knows no short ways.

    Each method is something that may happen, by the chance of `rng`.
    """

    def __init__(self, principals: tuple[str, ...] = PRINCIPALS) -> None:
        """Who asks is one of `principals`, "" for nobody known."""
        self.principals = principals
        self.machine = LockMachine()
        self.twin = without_short_ways()
        self.state = ModelState()
        self.referee = Referee()
        self.now_ms = 1_000
        self.seqs = dict.fromkeys(random_commands.ORIGINS, 0)
        self.ids: list[str] = []
        """Every hold id and ticket id that was made."""
        self.requests: list[Any] = []
        """Commands that carried a request id."""
        self.frames: list[Numbered] = []
        """The newest frames of streams."""
        self.last_bytes = b""
        self.applied: list[str] = []
        """Everything that was applied, to be shown when the two differ."""
        self.seen: Counter[str] = Counter()

    # What may happen

    def wish(self, rng: Random) -> None:
        """Some clients ask for locks, permits or elections."""
        self._pause(rng)
        count = rng.randint(1, COMMANDS_MAX)
        commands = [random_commands.wish(rng, self._new_hold_id("h")) for _ in range(count)]
        commands = [random_commands.asking(rng, self.state, command) for command in commands]
        self._apply([(rng.choice(random_commands.ORIGINS), commands)])

    def let_waits_ask(self) -> None:
        """Waits for most names may ask by themselves, and have a priority, until a namespace is set anew."""
        settings = NamespaceSettings(priority=True, ask_after_ms_min=0)
        commands: list[Command] = [SetNamespace(name, settings) for name in random_commands.NAMESPACES]
        self._apply([(random_commands.ORIGINS[0], commands)])

    def change_locks(self, rng: Random) -> None:
        """Clients change locks in transactions, one or two in one entry."""
        commands: list[Command] = [
            random_commands.lock_transaction(rng, self.state) for _ in range(rng.randint(1, 2))
        ]
        commands = [random_commands.asking(rng, self.state, command) for command in commands]
        self._apply([(rng.choice(random_commands.ORIGINS), commands)])

    def rush(self, rng: Random) -> None:
        """Two clients want the same rate, one after the other."""
        ask = rng.choice([random_commands.rush, random_commands.insist])
        commands = ask(rng, self._new_hold_id("h"), self._new_hold_id("h"))
        self._apply([(rng.choice(random_commands.ORIGINS), commands)])

    def convert(self, rng: Random) -> None:
        """Some clients ask for what they hold in another mode."""
        self._pause(rng)
        count = rng.randint(1, 2)
        commands = [random_commands.conversion(rng, self.state, self._new_hold_id("t")) for _ in range(count)]
        self._apply([(rng.choice(random_commands.ORIGINS), commands)])

    def add(self, rng: Random) -> None:
        """Some clients ask for more locks for what they hold."""
        self._pause(rng)
        count = rng.randint(1, 2)
        commands = [random_commands.addition(rng, self.state, self._new_hold_id("t")) for _ in range(count)]
        self._apply([(rng.choice(random_commands.ORIGINS), commands)])

    def cross(self, rng: Random) -> None:
        """A party that is waited for asks for what its waiters hold."""
        crossing = situations.crossings(self.state)
        if crossing:
            wait_ms = rng.choice([3000, 3000, 3000, 0])
            command = msgspec.structs.replace(
                rng.choice(crossing), hold_id=self._new_hold_id("h"), wait_ms=wait_ms
            )
            self._apply([(rng.choice(random_commands.ORIGINS), [command])])

    def act(self, rng: Random) -> None:
        """One client asks for something else."""
        self._pause(rng)
        self._apply([("n1", [random_commands.other(rng, self.state)])])

    def act_together(self, rng: Random) -> None:
        """Two nodes ask for several things in one entry."""
        batches: list[tuple[str, list[Command]]] = []
        for origin in random_commands.ORIGINS:
            count = rng.randint(0, COMMANDS_MAX)
            commands = [random_commands.other(rng, self.state) for _ in range(count)]
            batches.append((origin, [random_commands.wish(rng, self._new_hold_id("h")), *commands]))
        self._apply(batches)

    def ask_again(self, rng: Random) -> None:
        """A client repeats a request, as after a lost answer: the same content, mostly with new ids."""
        if not self.requests:
            return
        self._pause(rng)
        request = rng.choice(self.requests[-RECENT:])
        attempt_id = rng.choice(random_commands.ATTEMPT_IDS)
        if isinstance(request, Acquisition):
            hold_id = self._new_hold_id("h") if rng.randrange(8) else request.hold_id
            request = msgspec.structs.replace(request, hold_id=hold_id, attempt_id=attempt_id)
        elif isinstance(request, Change):
            ticket_id = self._new_hold_id("t") if rng.randrange(8) else request.ticket_id
            request = msgspec.structs.replace(request, ticket_id=ticket_id, attempt_id=attempt_id)
        elif isinstance(request, TakeRate):
            request = msgspec.structs.replace(request, attempt_id=attempt_id)
        elif isinstance(request, OpenSession):
            request = msgspec.structs.replace(request, session_id=rng.choice(random_commands.SESSION_IDS))
        self._apply([(rng.choice(random_commands.ORIGINS), [request])])

    def resume(self, rng: Random) -> None:
        """A client opens a connection for what its session numbers, perhaps over another one of its own."""
        self._apply([("n1", [ResumeStream(rng.choice(random_commands.SESSION_IDS))])])

    def send_a_frame(self, rng: Random) -> None:
        """A client sends commands that it has numbered: mostly the next ones, over its newest connection."""
        self._pause(rng)
        frame = random_commands.frame(rng, self.state, self._new_hold_id)
        if frame is None:
            self.resume(rng)
            return
        self._keep(frame)
        self._apply([(rng.choice(random_commands.ORIGINS), [frame])])

    def send_a_frame_again(self, rng: Random) -> None:
        """A client sends what it has sent before: over the same connection, or over a new one."""
        if self.frames:
            self._pause(rng)
            frame = rng.choice(self.frames)
            self._keep(frame)
            commands: list[Command] = []
            if rng.randrange(2):
                commands.append(ResumeStream(frame.session_id))
                stream = self.state.streams.get(frame.session_id)
                frame = msgspec.structs.replace(frame, epoch=stream.epoch + 1 if stream else 1)
            self._apply([(rng.choice(random_commands.ORIGINS), [*commands, frame])])

    def _keep(self, frame: Numbered) -> None:
        """Keep a frame that is sent, and none that gave its numbers to other commands, as no client does."""
        numbers = range(frame.first, frame.first + len(frame.commands))
        others = [
            other
            for other in self.frames[-RECENT:]
            if other.session_id != frame.session_id
            or not set(numbers).intersection(range(other.first, other.first + len(other.commands)))
        ]
        self.frames = [*others, frame]

    def come_back(self, rng: Random) -> None:
        """Sessions that have ended are opened again."""
        known = [session.session_id for session in self.state.sessions]
        missing = [session_id for session_id in random_commands.SESSION_IDS if session_id not in known]
        self._apply([("n2", [random_commands.opening(rng, session_id) for session_id in missing])])

    def reach_a_deadline(self, rng: Random) -> None:
        """A client asks exactly at one of the next deadlines, or just after it."""
        ends_ms = [end_ms for end_ms, *_ in due(self.state)][:COMMANDS_MAX]
        if ends_ms:
            self.now_ms = max(self.now_ms, rng.choice(ends_ms) + rng.randrange(2))
        self._apply([("n1", [random_commands.wish(rng, self._new_hold_id("h"))])])

    def tell_an_earlier_time(self, rng: Random) -> None:
        """A new leader stamps an entry with a time that has passed already."""
        self._apply([], now_ms=max(0, self.now_ms - rng.randrange(500)))

    def ask_nonsense(self, rng: Random) -> None:
        """A command that no node should have let through is in the log."""
        self._apply([("n2", [rng.choice(random_commands.BAD_COMMANDS)])])

    def repeat_the_last_entry(self, _: Random) -> None:
        """A node sends what it has sent before, because it does not know that it was committed."""
        if self.last_bytes:
            self._apply_bytes(self.last_bytes)

    def apply_junk(self, rng: Random) -> None:
        """Bytes that are not an entry are in the log; nodes refuse those that look like another release's."""
        data = rng.randbytes(rng.randrange(40))
        if entry_format(data) in {0, *ENTRY_FORMATS}:
            self._apply_bytes(data)
        else:
            with pytest.raises(UnknownVersionError):
                decode_entry(data)

    def restore(self, _: Random) -> None:
        """The node restarts from its snapshot, and nothing is missing."""
        data = snapshot.encode(self.machine.state)
        restored = LockMachine(snapshot.decode(data))
        assert snapshot.encode(restored.state) == data, "a restored machine is stored as it was"
        assert snapshot.digest(restored.state) == snapshot.digest(self.machine.state)
        self.machine = restored

    def step(self, rng: Random) -> None:
        """Let something happen, and check what must hold then. An error shows what led to it."""
        try:
            rng.choice(_STEPS)(self, rng)
            if len(self.state.sessions) < len(random_commands.SESSION_IDS) and rng.randrange(3) == 0:
                self.come_back(rng)
        except AssertionError as error:
            error.add_note("\n".join(self.applied))
            raise

    # How

    def _new_id(self, kind: str) -> str:
        self.ids.append(f"{kind}{len(self.ids) + 1}")
        return self.ids[-1]

    def _new_hold_id(self, kind: str) -> HoldId:
        return HoldId(self._new_id(kind))

    def _pause(self, rng: Random) -> None:
        self.now_ms += rng.choice(random_commands.PAUSES_MS)

    def _apply(self, batches: list[tuple[str, list[Command]]], now_ms: int | None = None) -> None:
        encoded = []
        for origin, commands in batches:
            commands = [self._of_somebody(command) for command in commands]  # noqa: PLW2901 - as it is sent
            first = self.seqs[origin] + 1
            self.seqs[origin] += len(commands)
            seqs = list(range(first, first + len(commands)))
            self.requests += [plain for plain in map(plain_command, commands) if plain.request_id]
            encoded.append((origin, seqs, [encode_command(command) for command in commands]))
        self.last_bytes = encode_entry(
            self.now_ms if now_ms is None else now_ms,
            encoded,
        )
        self._apply_bytes(self.last_bytes)

    def _of_somebody(self, command: Command) -> Command:
        """Return a command as its client sends it: mostly as the principal whose is what it names.

        Who that is depends on nothing but the command and what is there, so that a history can be repeated.
        """
        if not isinstance(command, get_args(OfSomebody)):
            return command
        chance = crc32(encode_command(command))
        named = self.state.hold(getattr(command, "hold_id", random_commands.MISSING_HOLD_ID))
        whose = named or self.state.session(getattr(command, "session_id", NO_SESSION))
        if whose is not None and chance % 16:
            # A frame of somebody's session need not say whose; a frame of nobody's says who sends it.
            of_frame = "" if whose.principal else self.principals[chance // 32 % len(self.principals)]
            principal = of_frame if isinstance(command, Numbered) else whose.principal
        else:
            if command.request_id:
                chance = crc32(command.request_id.encode("utf-8", "surrogatepass"))
            principal = self.principals[chance // 32 % len(self.principals)]
        return OnBehalf(principal, command) if principal else command

    def _apply_bytes(self, data: bytes) -> None:
        self.apply_entry(decode_entry(data))

    def apply_entry(self, entry: Entry) -> Outcome:
        """Apply an entry to all, compare them, and return what became of it."""
        self.applied += [f"at {entry.now_ms}"] + [
            f"    {command}" for batch in entry.batches for command in batch.commands
        ]
        outcome = self.machine.apply(entry)
        assert self.twin.apply(entry) == outcome, "the same bytes have the same outcome"
        self.state.repeated = 0
        expected = apply(self.state, entry)
        assert sum(len(batch.repeated) for batch in outcome.batches) == self.state.repeated
        compare.check_outcome(outcome, expected, self.state)
        self.referee.watch(entry, outcome)
        self.seen.update(situations.seen(self.state, _answers(outcome)))
        self._tell_public_names()
        self._check_secrets(outcome)
        compare.check_views(self.machine, self.state)
        assert snapshot.digest(self.machine.state) == snapshot.digest(self.twin.state), (
            "restarts change nothing"
        )
        invariants.check(self.machine.state)
        return outcome

    def _tell_public_names(self) -> None:
        """Tell the model the public names of sessions and tickets, under which operators know them."""
        for session in self.state.sessions:
            session.public_name = session_name(self.machine.state.sessions[session.session_id])
        for ticket in self.state.tickets:
            ticket.number = self.machine.state.tickets[ticket.ticket_id].order

    def _check_secrets(self, outcome: Outcome) -> None:
        """Check that no owner shows a secret, and that waits have ids that were asked with."""
        for event in outcome.events:
            for secret in [*self.ids, *random_commands.SESSION_IDS]:
                assert secret not in event.owner.split("-")
        for result in _answers(outcome):
            if isinstance(result, Queued):
                assert result.hold_id in self.ids


def _answers(outcome: Outcome) -> list[Result]:
    results = [result for batch in outcome.batches for result in batch.results]
    return results + [one for result in results for one in compare.parts(result) if one is not result]


_STEPS = (
    [MachineWithModel.wish] * 12
    + [MachineWithModel.cross] * 10
    + [MachineWithModel.convert] * 8
    + [MachineWithModel.add] * 6
    + [MachineWithModel.act] * 8
    + [MachineWithModel.act_together] * 4
    + [MachineWithModel.ask_again] * 4
    + [MachineWithModel.reach_a_deadline] * 4
    + [MachineWithModel.send_a_frame] * 6
    + [MachineWithModel.send_a_frame_again] * 4
    + [MachineWithModel.restore] * 2
    + [
        MachineWithModel.rush,
        MachineWithModel.ask_nonsense,
        MachineWithModel.repeat_the_last_entry,
        MachineWithModel.tell_an_earlier_time,
        MachineWithModel.apply_junk,
    ]
)
