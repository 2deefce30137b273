"""Runs scenarios on LockMachine: clients with names, times in seconds, traces that people can read.

    replicas 3                          before the first entry: this many machines are fed the same bytes
    at 4.0                              the cluster time of the commands that follow in this block
    C open ttl=3 [owner=, request=]     C acquire NAME [shared, ttl=, wait=, delay=, note=, owner=, request=]
    C keepalive / C close [request=]    C renew NAME [ttl=] / C release NAME / C cancel NAME [attempt=1]
    C force-release NAME reason= [delay=]
    time passes                         an entry without a command of a client
    show NAME                           what a reader of the lock sees
    C writes NAME                       C works on the resource that the lock protects, with its last token
    node 3 stops / node 3 catches up from node 1 / compare nodes

A client that has opened a session acquires for it unless it gives a ttl.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from holdfast import FencedResource, StaleToken
from lockstate import invariants, snapshot
from lockstate.codec import decode_entry, encode_command, encode_entry
from lockstate.commands import (
    Acquire,
    Cancel,
    CloseSession,
    Command,
    ForceRelease,
    KeepAlive,
    OpenSession,
    Release,
    Renew,
    Tick,
)
from lockstate.machine import LockMachine
from lockstate.modes import Mode
from lockstate.results import (
    Cancelled,
    Done,
    Event,
    EventKind,
    ForceReleased,
    Granted,
    Outcome,
    Queued,
    Refused,
    Released,
    Renewed,
    Result,
    SessionClosed,
    SessionKept,
    SessionOpened,
)
from tests.scenarios.script import Block

ORIGIN = "n1"


def seconds(ms: int) -> str:
    """Return a time or an interval as people read it."""
    return f"{ms // 1000}.{ms % 1000:03d}"


def milliseconds(text: str) -> int:
    """Return what `text` says in seconds."""
    return round(float(text) * 1000)


@dataclass
class Client:
    """What a client remembers between its calls."""

    name: str
    has_session: bool = False
    holds: dict[str, str] = field(default_factory=dict)
    """By lock: the hold id of the last acquire."""
    tokens: dict[str, int] = field(default_factory=dict)
    attempts: dict[str, int] = field(default_factory=dict)
    """By lock: how often it was tried."""


class Runner:
    """One scenario's world: replicas, clients, protected resources."""

    def __init__(self) -> None:
        self.machines = {1: LockMachine()}
        self.alive = {1}
        self.now_ms = 0
        self.seq = 0
        self.clients: dict[str, Client] = {}
        self.resources: dict[str, FencedResource] = {}
        self.askers: dict[str, Client] = {}
        """Who asked, by hold id."""

    def run(self, block: Block) -> list[str]:
        """Run a block and return the trace. Commands that follow each other form one entry."""
        asked: list[tuple[str, Command]] = []
        trace: list[str] = []
        for line in block.lines:
            try:
                action = self._read_line(line.split(), asked)
            except (ValueError, KeyError, IndexError) as error:
                raise ValueError(f"line {block.line_number}: cannot read {line!r}: {error}") from error
            if action is not None:
                trace += self._apply(asked) + action()
                asked.clear()
        return trace + self._apply(asked)

    def _read_line(
        self, words: list[str], asked: list[tuple[str, Command]]
    ) -> Callable[[], list[str]] | None:
        """Add to `asked`, or return what else the line wants done once that has been applied."""
        match words:
            case ["replicas", count]:
                self.machines = {number: LockMachine() for number in range(1, int(count) + 1)}
                self.alive = set(self.machines)
            case ["at", time]:
                self.now_ms = milliseconds(time)
            case ["time", "passes"]:
                asked.append(("", Tick()))
            case ["show", name]:
                return lambda: self._show(name)
            case [client, "writes", name]:
                return lambda: self._write(self._client(client), name)
            case ["node", number, "stops"]:
                return lambda: self._stop(int(number))
            case ["node", number, "catches", "up", "from", "node", other]:
                return lambda: self._catch_up(int(number), int(other))
            case ["compare", "nodes"]:
                return self._compare
            case [client, verb, *arguments]:
                asked.append((client, self._command(self._client(client), verb, arguments)))
            case _:
                raise ValueError("no such command")
        return None

    def _client(self, name: str) -> Client:
        return self.clients.setdefault(name, Client(name))

    # Commands

    def _command(self, client: Client, verb: str, arguments: list[str]) -> Command:
        name = arguments[0] if arguments and "=" not in arguments[0] else ""
        options = dict(argument.split("=", 1) for argument in arguments if "=" in argument)
        request_id = options.get("request", "")
        match verb:
            case "open":
                client.has_session = True
                labels = {"owner": options.get("owner", client.name)}
                return OpenSession(f"{client.name}-session", milliseconds(options["ttl"]), labels, request_id)
            case "keepalive":
                return KeepAlive(f"{client.name}-session")
            case "close":
                return CloseSession(f"{client.name}-session", request_id)
            case "acquire":
                return self._acquire(client, name, Mode.SHARED if "shared" in arguments else None, options)
            case "renew":
                return Renew(client.holds[name], milliseconds(options.get("ttl", "0")))
            case "release":
                return Release(client.holds[name], request_id)
            case "cancel":
                attempt = options.get("attempt", client.attempts[name])
                return Cancel(client.holds[name], f"attempt-{attempt}")
            case "force-release":
                delay_ms = milliseconds(options.get("delay", "0"))
                return ForceRelease(name, options["reason"].replace("_", " "), delay_ms, request_id)
        raise ValueError(f"no such verb: {verb}")

    def _acquire(self, client: Client, name: str, mode: Mode | None, options: dict[str, str]) -> Acquire:
        attempt = client.attempts.get(name, 0) + 1
        client.attempts[name] = attempt
        hold_id = f"{client.name}-{name}-{attempt}"
        self.askers[hold_id] = client
        client.holds[name] = hold_id
        for_session = client.has_session and "ttl" not in options
        return Acquire(
            name=name,
            mode=mode or Mode.EXCLUSIVE,
            hold_id=hold_id,
            attempt_id=f"attempt-{attempt}",
            session_id=f"{client.name}-session" if for_session else "",
            ttl_ms=0 if for_session else milliseconds(options["ttl"]),
            owner=options.get("owner", "" if for_session else client.name),
            wait_ms=milliseconds(options.get("wait", "0")),
            lock_delay_ms=milliseconds(options.get("delay", "0")),
            note=options.get("note", "").replace("_", " "),
            request_id=options.get("request", ""),
        )

    def _apply(self, asked: list[tuple[str, Command]]) -> list[str]:
        """Feed one entry to every living replica; they must all say the same."""
        if not asked:
            return []
        seqs = list(range(self.seq + 1, self.seq + len(asked) + 1))
        self.seq += len(asked)
        data = encode_entry(self.now_ms, [(ORIGIN, seqs, [encode_command(command) for _, command in asked])])
        outcomes = [self.machines[number].apply(decode_entry(data)) for number in sorted(self.alive)]
        for number in self.alive:
            invariants.check(self.machines[number])
        outcome = outcomes[0]
        assert all(other == outcome for other in outcomes), "replicas disagree"
        return self._describe(asked, outcome)

    # The trace

    def _describe(self, asked: list[tuple[str, Command]], outcome: Outcome) -> list[str]:
        trace = [f"revision {outcome.revision} at {seconds(outcome.now_ms)}"]
        trace += [f"  {self._describe_event(event)}" for event in outcome.events]
        for (client, command), result in zip(asked, outcome.batches[0].results, strict=True):
            if isinstance(command, Acquire):
                self._remember(self._client(client), command.name, result)
            if not isinstance(result, Done):
                trace.append(f"  {client} <- {describe_result(result)}")
        return trace

    def _remember(self, client: Client, name: str, result: Result) -> None:
        if isinstance(result, Granted | Queued):
            client.holds[name] = result.hold_id
        if isinstance(result, Granted):
            client.tokens[name] = result.token

    def _describe_event(self, event: Event) -> str:
        text = f"* {event.kind} {event.name} {event.mode or ''} {event.owner}"
        if event.token:
            text += f" token {event.token}"
        if event.reason:
            text += f" ({event.reason})"
        if event.kind is EventKind.WAIT_ENDED and isinstance(event.result, Refused):
            text += f": {event.result.reason}"
        if isinstance(event.result, Granted):
            self._remember(self.askers[event.hold_id], event.name, event.result)
        return " ".join(text.split())

    def _show(self, name: str) -> list[str]:
        view = self.machines[min(self.alive)].lock(name)
        trace = [f"{name} is {view.state}"]
        for holder in view.holders:
            note = f" ({holder.note})" if holder.note else ""
            left = seconds(holder.expires_in_ms)
            trace.append(f"  held by {holder.owner} {holder.mode} token {holder.token}, {left} s left{note}")
        for waiter in view.queue:
            waited = seconds(waiter.waited_ms)
            trace.append(f"  {waiter.position}. {waiter.owner} {waiter.mode}, waits for {waited} s")
        return trace

    def _write(self, client: Client, name: str) -> list[str]:
        resource = self.resources.setdefault(name, FencedResource())
        token = client.tokens[name]
        try:
            resource.check(token)
        except StaleToken:
            newest = resource.highest_token
            return [f"{client.name} writes with token {token}: refused, token {newest} was here before"]
        return [f"{client.name} writes with token {token}: accepted"]

    def _stop(self, number: int) -> list[str]:
        self.alive.remove(number)
        return []

    def _catch_up(self, number: int, other: int) -> list[str]:
        self.machines[number] = snapshot.decode(snapshot.encode(self.machines[other]))
        self.alive.add(number)
        return []

    def _compare(self) -> list[str]:
        first = self.machines[min(self.alive)]
        trace = []
        for number, machine in self.machines.items():
            same = "same" if snapshot.digest(machine) == snapshot.digest(first) else "another"
            dead = "" if number in self.alive else " (stopped)"
            trace.append(f"node {number}{dead}: revision {machine.revision}, {same} state")
        return trace


def describe_result(result: Result) -> str:  # noqa: C901 - one text for each kind
    """Return what a client is told, as text."""
    match result:
        case SessionOpened():
            return f"session opened for {seconds(result.expires_in_ms)} s"
        case SessionKept():
            return f"session kept for {seconds(result.expires_in_ms)} s"
        case SessionClosed():
            return f"session closed, released: {', '.join(result.released) or 'nothing'}"
        case Granted():
            left = seconds(result.expires_in_ms)
            return f"granted {result.name} {result.mode} token {result.token}, {left} s left"
        case Queued():
            return f"queued at position {result.position}"
        case Renewed():
            return f"renewed token {result.token} for {seconds(result.expires_in_ms)} s"
        case Released():
            return "released"
        case ForceReleased():
            ended = ", ".join(f"{holder.owner} token {holder.token}" for holder in result.released)
            return f"force-released: {ended or 'nothing'}"
        case Cancelled():
            return "cancelled" if result.undone else "nothing to cancel"
        case Done():
            return "done"
        case Refused():
            holders = ", ".join(f"{holder.owner} token {holder.token}" for holder in result.holders)
            return f"refused: {result.reason}" + (f" (held by {holders})" if holders else "")
