"""All checkers together: what the simulated world tells them, and to whom each fact goes.

They know neither the code under test nor the simulation, only facts. `Violation.checker` names the one that
objects:

    terms.py       one-leader-per-term, one-vote-per-term, vote-on-disk, term-on-disk
    logs.py        log-matching, leader-completeness, leader-append-only, committed-entry, apply-order
    elections.py   election-agreed, elected-by-majority, leader-kept
    members.py     one-change, sure-leader
    belonging.py   one-cluster, peers-refused, refused-returns, stranger-listed, founding-true, founding-kept,
                   founded-by-all, founded-first, founder-stays-out
    rules.py       rules-known
    durability.py  committed-by-majority, promise-on-disk, promise-kept, match-index
    states.py      equal-digest, model-state, model-events, streams-counted
    replies.py     reply, asked-once, not-applied, real-time, deadlock-real
    reads.py       read-fresh, read-view
    ledger.py      holds-exclude, permits-limit, one-leader, token-drawn, delay-kept, events-true
    queues.py      queue-told
    requests.py    one-outcome
    grants.py      tokens-rise, tokens-once
    order.py       first-come
    rates.py       rate-promise, rate-outside
    fences.py      fence-rises
    cells.py       cells-rise
    owners.py      foreign-refused
    streams.py     stream-once, stream-last, stream-epoch, stream-order, stream-wait
    beliefs.py     exclusion
    redis_repeats.py  redis-two-holders, redis-told-twice, redis-ghost, redis-short, redis-alive, redis-other,
                   redis-token, redis-unheld, redis-given-back, redis-kept
    leases.py      lease-early, lease-late
    waits.py       wait-left
    raft_replay.py raft-replay
    turns.py       in-turn
    told.py        wait-told
    liveness.py    lone-leader, leader-late, call-ends, call-in-time, outcome-known, log-bounded, disk-bounded
    snapshot_files.py  snapshot-newer, snapshot-committed

Linearizability is checked with the order of revisions as its witness: each answer is right at its place in
that order (reply, read-view), and the order respects real time (real-time, read-fresh).
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from cluster.observing.event_log import AnyEvent
from lockstate.machine import LockMachine
from lockstate.words.events import CellEvent, Event
from lockstate.words.ids import HoldId
from lockstate.words.results import Result
from tests.simulation.checks.beliefs import Beliefs
from tests.simulation.checks.belonging import Belonging
from tests.simulation.checks.cells import Cells
from tests.simulation.checks.durability import Durability
from tests.simulation.checks.elections import Elections
from tests.simulation.checks.fences import Fences
from tests.simulation.checks.grants import Tokens
from tests.simulation.checks.leases import Leases
from tests.simulation.checks.ledger import Ledger
from tests.simulation.checks.liveness import Liveness
from tests.simulation.checks.logs import Committed, Log, Logs
from tests.simulation.checks.members import Changes
from tests.simulation.checks.model_replay import Expected
from tests.simulation.checks.order import Order
from tests.simulation.checks.owners import Owners
from tests.simulation.checks.queues import Queues
from tests.simulation.checks.raft_replay import RaftReplay
from tests.simulation.checks.rates import Rates
from tests.simulation.checks.reads import Reads
from tests.simulation.checks.redis_repeats import RedisRepeats
from tests.simulation.checks.replies import Replies
from tests.simulation.checks.report import Report, Violation
from tests.simulation.checks.requests import Requests
from tests.simulation.checks.rules import Rules
from tests.simulation.checks.snapshot_files import SnapshotFiles
from tests.simulation.checks.states import States
from tests.simulation.checks.streams import Streams
from tests.simulation.checks.terms import Terms
from tests.simulation.checks.told import Told
from tests.simulation.checks.turns import Turns
from tests.simulation.checks.waits import Waits
from tests.simulation.workload.history import Belief, Call, FailureOutcome, History, Read, View

__all__ = ["Checkers", "Violation"]


class Checkers:
    """Takes facts in the order in which they happen; raises Violation, and keeps the first in `violation`.

    Args:
        node_ids: the members of the cluster.
        history: what the clients tell; the checkers watch it.
        now_us: returns true simulated time.
        rate_allowance: how far the rate of any clock may be off.
        latency_us: how much later than promised a lease may end in healthy stretches, for the simulated
            network and disks.
        election_s, compact_entries, segment_bytes: settings of the nodes, which bound what takes how long.
        digest_every: whole states are compared at every so many revisions.
    """

    def __init__(
        self,
        node_ids: Iterable[str],
        history: History,
        now_us: Callable[[], int],
        *,
        rate_allowance: float = 0.002,
        latency_us: int = 0,
        election_s: float = 1.0,
        compact_entries: int = 1_000,
        segment_bytes: int = 1 << 20,
        digest_every: int = 1000,
    ) -> None:
        report = self.report = Report()
        """Where all violations go; the world reports there, too, and hears of them."""
        self._now_us = now_us
        self._restored: set[tuple[str, int]] = set()
        self.expected = Expected()
        self.terms = Terms(report)
        self.elections = Elections(report)
        self.changes = Changes(report)
        self.belonging = Belonging(report)
        self.rules = Rules(report)
        self.committed = Committed(report)
        self.logs = Logs(report, self.committed)
        self.durability = Durability(report, node_ids)
        self.states = States(report, digest_every)
        self.replies = Replies(
            report, self.expected, lambda node_id, revision: (node_id, revision) in self._restored
        )
        self.reads = Reads(report, self.expected)
        self.requests = Requests(report, rate_allowance)
        self.tokens = Tokens(report)
        self.order = Order(report)
        self.ledger = Ledger(report)
        self.queues = Queues(report)
        self.fences = Fences(report)
        self.cells = Cells(report)
        self.owners = Owners(report, history.owned)
        self.streams = Streams(
            report,
            self.tokens,
            (self.order, self.fences, self.cells, self.owners),
            lambda node_id, revision: (node_id, revision) in self._restored,
        )
        self.rates = Rates(report, rate_allowance)
        self.beliefs = Beliefs(report)
        self.redis = RedisRepeats(report)
        self.leases = Leases(report, rate_allowance, latency_us)
        self.waits = Waits(report, self.expected.waiting_at)
        self.raft = RaftReplay(report)
        self.turns = Turns(report)
        self.told = Told(report)
        self.liveness = Liveness(
            report, election_s=election_s, compact_entries=compact_entries, segment_bytes=segment_bytes
        )
        self.snapshot_files = SnapshotFiles(report, self.committed)
        self._led_term = 0
        history.watchers.append(self)

    @property
    def violation(self) -> Violation | None:
        """Return the first violation, also when the teller of the fact swallowed it."""
        return self.report.violation

    @property
    def committed_index(self) -> int:
        """Return the highest index that any node has applied."""
        return self.committed.index

    # -- facts from nodes -----------------------------------------------------------------------------------

    def members(self, node_ids: Iterable[str]) -> None:
        """Tell which nodes count from now on."""
        self.durability.members(node_ids)

    def leads(self, node_id: str, term: int, log: Log) -> None:
        """Tell that a node leads: when it begins to, and later as often as you like."""
        self.durability.in_term(node_id, term)
        if term > self._led_term:
            self._led_term = term
            self.leases.leader_changed(self._now_us())
            self.waits.leader_changed(self._now_us())
        is_newest = self.terms.leads(node_id, term)
        self.logs.leads(node_id, term, log, is_newest=is_newest)

    def applied(  # noqa: PLR0917 - all that is known of it
        self,
        node_id: str,
        index: int,
        term: int,
        entry: bytes,
        machine: LockMachine,
        events: Sequence[AnyEvent],
    ) -> None:
        """Tell that a node has applied the entry at `index`: `machine` is its state just after it.

        `entry` is without the library's mark. Entries of the library itself are not told. To be told before
        any client hears of the entry.
        """
        is_first = self.committed.applied(node_id, index, term, entry, machine.revision)
        self.states.applied(node_id, machine)
        self.told.reached(node_id, machine.revision, self._now_us())
        if not is_first:
            return
        self.durability.committed(node_id, index, term)
        step = self.expected.replay(entry)
        # Checkers that need no model go first.
        of_cells = [event for event in events if isinstance(event, CellEvent)]
        of_holds = [event for event in events if isinstance(event, Event)]
        self.ledger.applied(step, of_holds)
        self.queues.applied(machine, of_holds)
        self.states.as_expected(node_id, machine, self.expected)
        self.expected.learn_names(machine)
        self.states.events_as_expected(node_id, of_holds, step.events)
        self.states.cells_as_expected(node_id, of_cells, step.cell_events)
        sent_us = self.replies.applied(step)
        self.leases.applied(step, sent_us, self._now_us())
        self.order.applied(step)
        self.streams.applied(step)
        self.told.applied(step)
        self.rates.applied(step)
        self.requests.abandoned(step.abandoned, self._now_us())
        self.beliefs.applied(step, self._now_us())
        self.redis.applied(step)
        self.reads.applied()

    def restored(self, node_id: str, index: int, machine: LockMachine) -> None:
        """Tell that a node took its state from a snapshot up to `index` (0: not known), own or sent."""
        self.committed.restored(node_id, index, machine.revision)
        self.states.same(node_id, machine)
        self._restored.add((node_id, machine.revision))
        self.told.began_anew(node_id)

    def sent(self, source: str, target: str, message: Mapping[str, Any]) -> None:
        """Tell that a Raft message leaves its node, behind everything that holds it back for the disk."""
        self.terms.sent(source, target, message)
        self.durability.sent(source, message)

    def follows(self, node_id: str, term: int) -> None:
        """Tell that a node knows the leader of a term."""
        self.durability.follows(node_id, term)

    def stored(self, node_id: str, term: int, voted_for: str | None) -> None:
        """Tell that term and vote are on a node's disk, synced. Before the messages that wait for it."""
        self.durability.in_term(node_id, term)
        self.terms.stored(node_id, term, voted_for)

    def synced(self, node_id: str, index: int, term: int | None = None) -> None:
        """Tell up to where a node's log is on disk in truth; again when it is cut. May be left out.

        `term` is the node's, if that may be newer than the one on its disk.
        """
        self.durability.synced(node_id, index, term)

    def acknowledged(self, node_id: str, index: int, term: int | None = None) -> None:
        """Tell that a node counts its own log as durable up to `index`: the *leader*, after each sync.

        What followers promise is taken from the messages that they send.
        """
        self.durability.acknowledged(node_id, index, term)

    def matched(self, leader_id: str, term: int, peer_id: str, index: int) -> None:
        """Tell up to where a leader believes a peer's log to be its own. May be left out."""
        self.durability.matched(leader_id, term, peer_id, index)

    def recovered(self, node_id: str, term: int, voted_for: str | None, log: Log) -> None:
        """Tell what a node read from its disk when it started, before it takes part."""
        self.told.began_anew(node_id)
        self.terms.stored(node_id, term, voted_for)
        self.durability.recovered(node_id, term, log)
        self.logs.recovered(node_id, log)

    def replaced(self, node_id: str) -> None:
        """Tell that a node's disk is lost for good. One that comes back under its name has an empty one."""
        self.terms.replaced(node_id)
        self.durability.replaced(node_id)
        self.logs.replaced(node_id)
        self.raft.event(("loses-disk", node_id))
        self.belonging.replaced(node_id)

    def compare_logs(self, logs: Mapping[str, Log]) -> None:
        """Tell the logs of all nodes that are alive, now and then: new entries cost most."""
        self.logs.compare(logs)

    def healthy(self, from_us: int, until_us: int, runs: Collection[str]) -> None:
        """Tell at its end that a stretch was healthy: a leader, all nodes up, no faults. In order of time.

        `runs` are the origins of all node processes that there were in it.
        """
        self.liveness.healthy(from_us, until_us)
        self.leases.healthy(from_us, until_us)
        self.waits.healthy(from_us, until_us, runs)
        self.redis.healthy(from_us, until_us)

    def finish(self, machines: Mapping[str, LockMachine]) -> None:
        """Tell the states of the nodes that are alive at the end."""
        for node_id, machine in machines.items():
            self.states.same(node_id, machine)
            if machine.revision == self.expected.revision:
                self.states.views_as_expected(node_id, machine, self.expected)

    # -- history.Watcher ------------------------------------------------------------------------------------

    def called(self, call: Call) -> None:
        """Record a command, before its node has it."""
        self.replies.called(call)
        self.tokens.called(call)
        self.fences.called(call)
        self.cells.called(call)
        self.streams.called(call)
        self.rates.called(call)

    def replied(self, call: Call, result: Result, revision: int, now_us: int) -> None:
        """Check a result. Checkers that look from outside go first: they need no log to object."""
        self.tokens.replied(call, result)
        self.requests.replied(call, result, now_us)
        self.order.replied(call, result)
        self.fences.replied(call, result)
        self.cells.replied(call, result)
        self.owners.replied(call, result)
        self.streams.replied(call, result, revision)
        self.rates.replied(call, result, now_us)
        self.replies.replied(call, result, revision)

    def ended(self, call: Call, number: int, result: Result, revision: int, now_us: int) -> None:  # noqa: ARG002 - as told
        """Check the end of a wait of a stream."""
        self.streams.ended(call, number, result, revision)

    def failed(self, call: Call, outcome: FailureOutcome, now_us: int) -> None:
        """Check an error, or note a client that gave up."""
        self.requests.failed(call, outcome, now_us)
        self.fences.failed(call)
        self.cells.failed(call)
        self.streams.failed(call)
        self.replies.failed(call, outcome)

    def read_called(self, read: Read) -> None:
        """Record a read, before its node has it."""
        self.reads.called(read)

    def read_replied(self, read: Read, value: View, revision: int) -> None:
        """Check what a read saw."""
        self.reads.replied(read, value, revision)

    def read_ended(self, read: Read) -> None:
        """Record a read without an answer."""
        self.reads.ended(read)

    def believes(self, belief: Belief) -> None:
        """Check a belief, new or prolonged."""
        self.beliefs.believes(belief)

    def stopped_believing(self, hold_id: HoldId, now_us: int) -> None:  # noqa: ARG002 - facts come in order
        """Record the end of a belief."""
        self.beliefs.stopped_believing(hold_id)
