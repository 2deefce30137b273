"""Runs scenarios on LockMachine: clients with names, times in seconds, traces that people can read.

What clients can say is in `clients`. The rest of the language:

    replicas 3                      before the first entry: this many machines are fed the same bytes
    tell everything                 refusals from here on say all they know
    as ann C acquire ...            a command of a client that is the principal ann
    C+D open ttl=3                  the same of each of several clients
    at 4.0                          the cluster time of the commands that follow in this block
    time passes                     an entry without a command of a client
    through n2                      the commands from here on come from clients of this node, before: n1
    Leader abandons waits of n2     the node is gone, and its clients with it
    many 2500 C# acquire n-# ...    a command of as many clients, # is a number from 1 on
    show NAME                       what a reader of the lock sees
    show semaphore NAME / show election NAME / show session C
    list PREFIX [after=, limit=]    a page of the listing of locks
    audit [name=, client=, limit=]   what happened last
    check NAME token=               whether the token is that of a holder
    count holds                     the size of a table
    next deadline                   when something ends by itself
    C writes NAME                   C works on the resource that the lock protects, with its last token
    node 3 stops / node 3 catches up from node 1 / compare nodes
"""

from collections.abc import Callable, Iterator

from holdfast import FencedResource, StaleToken
from lockstate import invariants
from lockstate.machine import LockMachine
from lockstate.stored import snapshot
from lockstate.words.codec import decode_entry, encode_command, encode_entry
from lockstate.words.commands.entries import AbandonWaits, Command, OfSomebody, OnBehalf, Tick
from lockstate.words.events import EventKind, Left
from lockstate.words.ids import NO_SESSION
from lockstate.words.outcomes import Outcome
from lockstate.words.refusals import Refused
from lockstate.words.results import Done, Granted, Queued, Result
from tests.scenarios import trace_lines
from tests.scenarios.clients import Client, CommandParser, Line, milliseconds
from tests.scenarios.script import Block
from tests.scenarios.trace_lines import seconds
from tests.support.vocabulary import plain_command


class Runner:
    """What one scenario runs on: replicas, clients, protected resources."""

    def __init__(self) -> None:
        self.machines = {1: LockMachine()}
        self.alive = {1}
        self.now_ms = 0
        self.seq = 0
        self.origin = "n1"
        self.tells_everything = False
        self.parser = CommandParser()
        self.clients: dict[str, Client] = {}
        self.resources: dict[str, FencedResource] = {}

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
                trace += [*self._apply(asked), *action()]
                asked.clear()
        return trace_lines.shortened(trace + self._apply(asked))

    def commands_of(self, block: Block) -> list[Command]:
        """Return the commands of a block, which is not run."""
        asked: list[tuple[str, Command]] = []
        for line in block.lines:
            self._read_line(line.split(), asked)
        return [command for _, command in asked]

    def _read_line(
        self, words: list[str], asked: list[tuple[str, Command]]
    ) -> Callable[[], list[str]] | None:
        """Add to `asked`, or return what else the line wants done once that has been applied."""
        match words:
            case ["replicas", amount]:
                self.machines = {one: LockMachine() for one in range(1, int(amount) + 1)}
                self.alive = set(self.machines)
            case ["tell", "everything"]:
                self.tells_everything = True
            case ["at", time]:
                self.now_ms = milliseconds(time)
            case ["time", "passes"]:
                asked.append(("", Tick()))
            case ["Leader", "abandons", "waits", "of", node]:
                asked.append(("Leader", AbandonWaits(node)))
            case ["many", count, *rest]:
                for number in range(1, int(count) + 1):
                    self._read_line([word.replace("#", str(number)) for word in rest], asked)
            case ["as", principal, *rest]:
                asked += self._of_principal(principal, rest)
            case _:
                action = self._action(words)
                if action is not None:
                    return action
                clients, verb, *arguments = words
                asked += [
                    (client, self.parser.command(self._client(client), verb, arguments))
                    for client in clients.split("+")
                ]
        return None

    def _of_principal(self, principal: str, words: list[str]) -> list[tuple[str, Command]]:
        """Return what a line asks, as a principal asks it."""
        asked: list[tuple[str, Command]] = []
        self._read_line(words, asked)
        theirs: list[tuple[str, Command]] = []
        for client, command in asked:
            assert isinstance(command, OfSomebody), "a principal asks for what clients ask for"
            theirs.append((client, OnBehalf(principal, command)))
        return theirs

    def _action(self, words: list[str]) -> Callable[[], list[str]] | None:
        """Return what to do for a line that is not a command to the machine."""
        match words:
            case ["show" | "list" | "audit" | "check" | "count" | "next", *_]:
                return lambda: list(self._read_state(words))
            case ["through", node]:
                return lambda: self._go_through(node)
            case [client, "writes", name]:
                return lambda: self._write(self._client(client), name)
            case ["node", number, "stops"]:
                return lambda: self._stop(int(number))
            case ["node", number, "catches", "up", "from", "node", other]:
                return lambda: self._catch_up(int(number), int(other))
            case ["compare", "nodes"]:
                return self._compare
        return None

    def _go_through(self, node: str) -> list[str]:
        self.origin = node
        return []

    def _client(self, name: str) -> Client:
        return self.clients.setdefault(name, Client(name))

    # -- entries -------------------------------------------------------------------------------------------

    def _apply(self, asked: list[tuple[str, Command]]) -> list[str]:
        """Feed one entry to every living replica; they must all say the same."""
        if not asked:
            return []
        seqs = list(range(self.seq + 1, self.seq + len(asked) + 1))
        self.seq += len(asked)
        data = encode_entry(
            self.now_ms,
            [(self.origin, seqs, [encode_command(command) for _, command in asked])],
        )
        entry = decode_entry(data)
        outcomes = [self.machines[number].apply(entry) for number in sorted(self.alive)]
        for number in self.alive:
            invariants.check(self.machines[number].state)
        outcome = outcomes[0]
        assert all(other == outcome for other in outcomes), "replicas disagree"
        return [
            f"revision {outcome.revision} at {seconds(outcome.now_ms)}",
            *self._describe_events(outcome),
            *self._describe_results(asked, outcome),
        ]

    def _describe_events(self, outcome: Outcome) -> Iterator[str]:
        """Yield the events. Each lock of a wait for several has its own end, with the same refusal."""
        refusals = iter(
            [
                (settled.result, settled.hold_id)
                for settled in outcome.settled
                if isinstance(settled.result, Refused)
                for _ in self.parser.attempts[settled.hold_id].names
            ]
        )
        for event in outcome.events:
            refused = None
            if event.kind is EventKind.LEFT and event.reason != Left.SHARED:
                refused, hold_id = next(refusals)
                assert event.name in self.parser.attempts[hold_id].names, (
                    "the ends of waits come in their order"
                )
            yield f"  * {trace_lines.event_text(event, refused)}"
        for change in outcome.cell_events:
            version = f" version {change.version}" if change.version else ""
            yield f"  * {change.kind} {change.name}{version} at {change.mod_revision}"
        assert next(refusals, None) is None, "every refusal of a waiter is the end of a wait"
        for settled in outcome.settled:
            self._remember(settled.hold_id, settled.result)

    def _describe_results(self, asked: list[tuple[str, Command]], outcome: Outcome) -> Iterator[str]:
        for (client, whole), result in zip(asked, outcome.batches[0].results, strict=True):
            command = plain_command(whole)
            secret = getattr(command, "ticket_id", "") or getattr(command, "hold_id", "")
            attempt = self.parser.attempts.get(secret)
            if hasattr(command, "attempt_id"):
                self._remember(secret, result)
            if not isinstance(result, Done):
                names = attempt.names if attempt else ()
                text = trace_lines.result_text(result, names, fully=self.tells_everything)
                yield f"  {client} <- {text}"

    def _remember(self, secret: str, result: Result) -> None:
        """Record what an attempt brought its client."""
        attempt = self.parser.attempts.get(secret)
        if attempt is None:
            return
        client, is_conversion = attempt.client, secret in attempt.client.conversions.values()
        for name in attempt.names:
            if isinstance(result, Granted | Queued) and not is_conversion:
                client.holds[name] = result.hold_id
            if isinstance(result, Granted):
                client.tokens[name] = result.token
            if isinstance(result, Refused) and client.holds[name] == secret and name in attempt.before:
                client.holds[name] = attempt.before[name]

    # -- reads ---------------------------------------------------------------------------------------------

    def _read_state(self, words: list[str]) -> Iterator[str]:
        machine = self.machines[min(self.alive)]
        verb, line = words[0], Line.of(words[1:])
        match verb, line.words:
            case "show", ["semaphore", name]:
                yield from trace_lines.semaphore_lines(machine.semaphore(name))
            case "show", ["election", name]:
                yield from trace_lines.election_lines(machine.election(name))
            case "show", ["session", name]:
                yield from trace_lines.session_lines(machine.session(self._client(name).session_id))
            case "show", [name]:
                yield from trace_lines.lock_lines(machine.lock(name))
            case "list", [*prefix]:
                options = line.options
                limit = int(options.get("limit", "100"))
                views, after = machine.locks("".join(prefix), options.get("after", ""), limit)
                yield from (shown for view in views for shown in trace_lines.lock_lines(view))
                yield f"more after {after}" if after else "no more"
            case "audit", []:
                yield from self._audit(machine, line)
            case "check", [name]:
                token = int(line.options["token"])
                yield trace_lines.fence_line(name, token, machine.check_fence(name, token))
            case "count", [table]:
                yield f"{machine.counts()[table]} {table}"
            case _:
                yield self._next_deadline(machine)

    def _audit(self, machine: LockMachine, line: Line) -> Iterator[str]:
        options = line.options
        session_id = self._client(options["client"]).session_id if "client" in options else NO_SESSION
        found = machine.audit(options.get("name", ""), session_id, int(options.get("limit", "1000")))
        yield "the newest first:" if found else "nothing happened"
        yield from trace_lines.audit_lines(found)

    def _next_deadline(self, machine: LockMachine) -> str:
        deadline_ms = machine.next_deadline_ms()
        if deadline_ms is None:
            return "nothing ends by itself"
        was = "was" if deadline_ms < machine.now_ms else "is"
        return f"the next deadline {was} at {seconds(deadline_ms)}"

    def _write(self, client: Client, name: str) -> list[str]:
        resource = self.resources.setdefault(name, FencedResource())
        token = client.tokens[name]
        try:
            resource.check(token)
        except StaleToken:
            newest = resource.highest_token
            return [f"{client.name} writes with token {token}: refused, token {newest} was here before"]
        return [f"{client.name} writes with token {token}: accepted"]

    # -- replicas ------------------------------------------------------------------------------------------

    def _stop(self, number: int) -> list[str]:
        self.alive.remove(number)
        return []

    def _catch_up(self, number: int, other: int) -> list[str]:
        self.machines[number] = LockMachine(snapshot.decode(snapshot.encode(self.machines[other].state)))
        self.alive.add(number)
        return []

    def _compare(self) -> list[str]:
        first = self.machines[min(self.alive)]
        trace = []
        for number, machine in self.machines.items():
            same = "same" if snapshot.digest(machine.state) == snapshot.digest(first.state) else "another"
            dead = "" if number in self.alive else " (stopped)"
            trace.append(f"node {number}{dead}: revision {machine.revision}, {same} state")
        return trace
