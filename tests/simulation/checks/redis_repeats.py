"""Answers of the Redis face that were lost, and the commands that were sent again because of it.

What a node knows of its connections is seen on them: which commands came, which answers were written, and
when it heard that one was over. The log says whose a hold is: each connection gives itself a name, which its
holds carry. Nothing of `redis_api` is used. What docs/faces.md promises of lost answers is checked. Where it
promises nothing the reason is counted: a nil that has none of these reasons is a broken promise.
"""

import itertools
from collections import Counter, OrderedDict, deque
from dataclasses import dataclass, field
from typing import Final, NoReturn, TypeAlias

from lockstate.machine import LockMachine
from lockstate.words.commands.entries import Cancel, Command, Undecodable
from lockstate.words.commands.holds import Acquire, Release
from lockstate.words.events import EventKind
from lockstate.words.results import Cancelled, Granted, Released, Result
from tests.simulation.checks.grants import shorten
from tests.simulation.checks.model_replay import Step
from tests.simulation.checks.report import Report
from tests.support.redis_words import Value

VALUE_BYTES_MIN: Final = 16
"""Bytes of a value by which a node may know a client again."""
WITHIN_US: Final = 1_000_000
"""So long what was left waits for its client, by the clock of its node."""
GIVEN_BACK_US: Final = 4_000_000
"""Nothing that was left is there for longer in healthy times: the moment above, and one more try."""
OK: Final = "+OK"
SPACE: Final = "redis/0/"
"""What the names of all locks of clients of Redis begin with."""
KEPT: Final = 5_000
"""Connections and holds that are remembered."""

Key: TypeAlias = tuple[str, bytes, bool]
"""Name, value, and whether it is to have no deadline."""


@dataclass(slots=True, eq=False)
class _Connection:
    """One connection of a node's process. Its times are those of the node's clock."""

    process: str
    name: str = ""
    pending: "deque[_Take | None]" = field(default_factory=deque)
    """The commands that have not been answered; None is one that takes nothing."""
    takes: "list[_Take]" = field(default_factory=list)
    lost_us: int | None = None
    lost_true_us: int = 0


@dataclass(slots=True, eq=False)
class _Take:
    """One attempt to take a lock, as it came to a node."""

    connection: _Connection
    key: Key
    asked_us: int
    is_wait: bool = False
    """HF.ACQUIRE, which is withdrawn when its connection ends before its outcome."""
    hold: "_Hold | None" = None
    """What the log granted to it."""
    answered_us: int | None = None
    known_us: int | None = None
    """When its node knew what had become of it."""
    is_unknown: bool = False
    """Its node gave up waiting for the outcome."""

    def is_left(self, now_us: int) -> bool:
        """Whether its node knew by then that the connection had ended without the answer."""
        lost_us = self.connection.lost_us
        return self.answered_us is None and lost_us is not None and lost_us < now_us

    def is_over(self, now_us: int) -> bool:
        """Whether it was left by then, or answered."""
        return self.is_left(now_us) or (self.answered_us is not None and self.answered_us <= now_us)


@dataclass(slots=True, eq=False)
class _Hold:
    """A hold that the log granted."""

    take: _Take
    token: int
    told: _Take | None = None
    """Who was told that it has it."""
    is_over: bool = False
    is_ended_on_request: bool = False
    is_given_back: bool = False


class RedisRepeats:
    """All nodes' connections of clients of Redis, what was taken on them, and who believes to have it."""

    def __init__(self, report: Report) -> None:
        self.counts: Counter[str] = Counter()
        """What became of attempts, and why a client was told nil of a lock that had its own value."""
        self._report = report
        self._open: dict[tuple[str, int], _Connection] = {}
        self._named: OrderedDict[str, _Connection] = OrderedDict()
        self._holds: OrderedDict[int, _Hold] = OrderedDict()
        """By token."""
        self._tokens: OrderedDict[str, int] = OrderedDict()
        """By hold id."""
        self._owners: OrderedDict[str, str] = OrderedDict()
        """By hold id: the owner, which begins with the name of the connection."""
        self._newest: dict[tuple[str, bytes], _Hold] = {}
        self._takes: dict[str, dict[Key, list[_Take]]] = {}
        """By process of a node: what was asked there lately."""
        self._beliefs: dict[str, dict[str, tuple[int, int]]] = {}
        """By lock and client: until when, and the token of the hold."""

    # -- what a node sees on a connection -------------------------------------------------------------------

    def asked(self, process: str, number: int, words: list[bytes], local_us: int) -> None:
        """Record a command that has come."""
        connection = self._open.setdefault((process, number), _Connection(process))
        match [words[0].upper(), *words[1:]]:
            case [b"CLIENT", b"SETNAME", name]:
                connection.name = name.decode()
                self._named[connection.name] = connection
                shorten(self._named, KEPT)
                connection.pending.append(None)
            case [b"SET", key, value, *options]:
                self._take(connection, (SPACE + key.decode(), value, b"PX" not in options), local_us)
            case [b"HF.ACQUIRE", key, value, *_]:
                self._take(connection, (SPACE + key.decode(), value, False), local_us, is_wait=True)
            case _:
                connection.pending.append(None)

    def _take(self, connection: _Connection, key: Key, local_us: int, *, is_wait: bool = False) -> None:
        take = _Take(connection, key, local_us, is_wait)
        connection.pending.append(take)
        connection.takes.append(take)
        of_key = self._takes.setdefault(connection.process, {}).setdefault(key, [])
        of_key.append(take)
        del of_key[:-50]

    def answered(self, process: str, number: int, reply: Value, machine: LockMachine, local_us: int) -> None:
        """Check an answer that is written; `machine` is the state of its node."""
        take = self._open[process, number].pending.popleft()
        if take is None:
            return
        if reply == OK or isinstance(reply, int):
            self._granted(take, reply, machine, local_us)
        elif reply is None:
            self._refused(take, machine)
        else:
            self.counts["redis-errors"] += 1
        take.answered_us = local_us

    def lost(self, process: str, number: int, local_us: int, now_us: int) -> None:
        """Record that a node has heard of the end of a connection."""
        connection = self._open.pop((process, number), None)
        if connection is not None:
            connection.lost_us, connection.lost_true_us = local_us, now_us

    def known(self, process: str, hold_id: str, local_us: int, *, is_unknown: bool) -> None:
        """Record that a node has the outcome of an attempt, or has given up waiting for it."""
        hold = self._holds.get(self._tokens.get(hold_id, 0))
        if hold is not None and hold.take.connection.process == process:
            hold.take.known_us = local_us
            hold.take.is_unknown = hold.take.is_unknown or is_unknown

    def process_ended(self, process: str) -> None:
        """Forget what a process knew: no other will."""
        self._takes.pop(process, None)
        for place in [place for place in self._open if place[0] == process]:
            del self._open[place]

    # -- answers --------------------------------------------------------------------------------------------

    def _granted(self, take: _Take, reply: Value, machine: LockMachine, local_us: int) -> None:
        hold = take.hold or self._held(take.key, machine) or self._newest.get(take.key[:2])
        if hold is None:
            self._fail("redis-unheld", "a client was told that it has what nobody has", take)
        if hold.is_given_back:
            self._fail("redis-given-back", "a client was told that it has what was given back", take, hold)
        if reply not in (OK, hold.token):
            self._fail("redis-token", f"a client was told {reply!r} as its token", take, hold)
        if hold.take is not take:
            self._check_adoption(take, hold, local_us)
        if hold.told is not None:
            self._fail("redis-told-twice", "two attempts were told that they have one hold", take, hold)
        hold.told = take
        self.counts["redis-adopted" if hold.take is not take else "redis-taken"] += 1

    def _check_adoption(self, take: _Take, hold: _Hold, local_us: int) -> None:
        """Check that the hold of an earlier attempt may be a later one's."""
        first = hold.take
        if len(take.key[1]) < VALUE_BYTES_MIN:
            self._fail("redis-short", "a short value was taken for a proof", take, hold)
        if first.key != take.key:
            self._fail("redis-other", "a hold was adopted that was asked for otherwise", take, hold)
        if first.connection.process != take.connection.process or not first.is_left(local_us):
            self._fail(
                "redis-alive", "a hold was adopted whose connection is not known to be over", take, hold
            )

    def _refused(self, take: _Take, machine: LockMachine) -> None:
        """Find out why a client was told nil of what has its very value."""
        hold = self._held(take.key, machine)
        if hold is None or hold.take.key != take.key:
            self.counts["redis-refused"] += 1
            return
        reason = self._reason(take, hold)
        if not reason:
            self._fail(
                "redis-ghost", "a client was told nil of a hold of its own that nobody has", take, hold
            )
        self.counts[f"redis-nil-{reason}"] += 1

    def _reason(self, take: _Take, hold: _Hold) -> str:
        """Return why docs/faces.md promises this attempt nothing; "" if it does."""
        first = hold.take
        if hold.told is not None:
            return "was-told"
        if len(take.key[1]) < VALUE_BYTES_MIN:
            return "short-value"
        if first.connection.process not in self._takes:
            return "node-ended"
        if first.connection.process != take.connection.process:
            return "other-node"
        of_key = self._takes[take.connection.process][take.key]
        since = [one for one in of_key if first.asked_us <= one.asked_us <= take.asked_us]
        if not all(one.is_over(later.asked_us) for one, later in itertools.pairwise(since)):
            return "end-not-known"
        if first.is_unknown:
            return "outcome-unknown"
        lost_us = first.connection.lost_us or 0
        if first.is_wait and (first.known_us is None or lost_us <= first.known_us):
            return "withdrawn"
        left_us = max(lost_us, first.known_us or 0)
        return "too-late" if take.asked_us >= left_us + WITHIN_US else ""

    def _held(self, key: Key, machine: LockMachine) -> _Hold | None:
        """Return the hold of a name that has the value of an attempt, in the state of a node."""
        for view in machine.holders(key[0]):
            if view.value == key[1].decode():
                return self._holds.get(view.token)
        return None

    # -- the log --------------------------------------------------------------------------------------------

    def applied(self, step: Step) -> None:
        """Record what an entry granted and ended."""
        for answer in step.single_answers():
            self._given_back(answer.command, answer.result)
            if isinstance(answer.command, Acquire) and answer.command.name.startswith(SPACE):
                self._owners[answer.command.hold_id] = answer.command.owner
                shorten(self._owners, KEPT)
        for result in step.told():
            if isinstance(result, Granted) and result.name.startswith(SPACE):
                self._grant(result)
        for event in step.events:
            if event.kind in (EventKind.RELEASED, EventKind.FORCED, EventKind.EXPIRED):
                self._end(event.name, event.token, is_asked=event.kind is not EventKind.EXPIRED)

    def _grant(self, granted: Granted) -> None:
        connection = self._named.get(self._owners.get(granted.hold_id, "").partition("@")[0])
        if connection is None or granted.token in self._holds:
            return
        name_and_value = granted.name, granted.value.encode()
        for take in connection.takes:
            if take.key[:2] == name_and_value and take.answered_us is None and take.hold is None:
                hold = take.hold = _Hold(take, granted.token)
                self._holds[granted.token] = self._newest[name_and_value] = hold
                self._tokens[granted.hold_id] = granted.token
                shorten(self._holds, KEPT)
                shorten(self._tokens, KEPT)
                return

    def _given_back(self, command: Command | Undecodable, result: Result) -> None:
        """Check that what a node gives back by its id is nothing that a client was told of."""
        if not isinstance(command, Release | Cancel) or not isinstance(result, Released | Cancelled):
            return
        hold = self._holds.get(self._tokens.get(command.hold_id, 0))
        if hold is None or hold.is_over:
            return
        hold.is_given_back = True
        self.counts["redis-given-back"] += 1
        if hold.told is not None:
            self._fail("redis-given-back", "a hold was given back that a client has", hold.told, hold)

    def _end(self, name: str, token: int, *, is_asked: bool) -> None:
        hold = self._holds.get(token)
        if hold is None:
            return
        hold.is_over, hold.is_ended_on_request = True, is_asked
        beliefs = self._beliefs.get(name, {})
        for client in [client for client, (_, of) in beliefs.items() if is_asked and of == token]:
            # Whoever has the value may end it: this client's own release, or one of a client with a copy.
            del beliefs[client]

    def healthy(self, from_us: int, until_us: int) -> None:
        """Check that nothing is left of what a node knows nobody to have, at the end of a healthy stretch."""
        for hold in self._holds.values():
            of_key = self._takes.get(hold.take.connection.process, {}).get(hold.take.key, [])
            if hold.is_over or hold.told is not None or hold.take not in of_key:
                continue
            since = of_key[of_key.index(hold.take) :]
            lost_us = max([one.connection.lost_true_us for one in since])
            is_left = all(one.connection.lost_us is not None for one in since)
            if is_left and until_us - max(from_us, lost_us) > GIVEN_BACK_US:
                self._fail("redis-kept", "a hold was left, and is not given back", hold.take, hold)

    # -- beliefs --------------------------------------------------------------------------------------------

    def believes(self, client: str, connection_name: str, name: str, now_us: int, until_us: int) -> None:
        """Check that nobody else believes to have a lock that a client was just told it has."""
        take = next(one for one in reversed(self._named[connection_name].takes) if one.key[0] == name)
        hold = next(one for one in reversed(self._holds.values()) if one.told is take)
        if hold.is_ended_on_request:
            return
        beliefs = self._beliefs.setdefault(name, {})
        for other, (other_until_us, token) in beliefs.items():
            if other != client and other_until_us > now_us:
                self._fail(
                    "redis-two-holders",
                    f"{client} and {other} both believe in {name}, by {token}",
                    take,
                    hold,
                )
        beliefs[client] = (until_us, hold.token)

    def stopped_believing(self, client: str, name: str) -> None:
        """Record that a client is about to release, or knows that its time is over."""
        self._beliefs.get(name, {}).pop(client, None)

    def _fail(self, checker: str, sentence: str, take: _Take, hold: _Hold | None = None) -> NoReturn:
        first = hold.take if hold is not None else take
        self._report.fail(
            checker,
            sentence,
            key=take.key,
            asked_on=take.connection.name,
            asked_us=take.asked_us,
            process=take.connection.process,
            token=hold.token if hold is not None else 0,
            first_on=first.connection.name,
            first_asked_us=first.asked_us,
            first_lost_us=first.connection.lost_us,
            first_known_us=first.known_us,
        )
