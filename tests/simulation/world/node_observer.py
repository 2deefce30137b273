"""Hears every fact of the nodes, writes it down, and tells the checkers."""

import hashlib
from collections import Counter
from collections.abc import Callable
from typing import Any

from cluster.consensus.guards import Message
from cluster.consensus.member_list import Members
from cluster.core import Core
from cluster.observing.event_log import Position
from lockstate.results import Event
from tests.simulation.checks.all_checkers import Checkers
from tests.simulation.checks.members import Appended
from tests.simulation.checks.report import Violation
from tests.simulation.world.event_loop import NodeLoop
from tests.simulation.world.machine import Process
from tests.simulation.world.trace import Trace


class NodeObserver:
    """The facts of one world (machine.Facts)."""

    def __init__(self, checkers: Checkers, trace: Trace, now_us: Callable[[], int]) -> None:
        self.counts: Counter[str] = Counter()
        self.on_end: Callable[[Process, str, int], None] = _nothing
        self.leader: tuple[str, int] = ("", 0)
        self._checkers = checkers
        self._trace = trace
        self._now_us = now_us

    def add(self, who: str, event: str, *facts: Any) -> None:
        """Write a line of the trace."""
        self._trace.add(self._now_us(), who, event, *facts)

    def fail(self, checker: str, sentence: str, **facts: Any) -> None:
        """Object, as the checkers do."""
        self._checkers.report.fail(checker, sentence, **facts)

    # -- machine.Facts --------------------------------------------------------------------------------------

    def made(self, node_id: str, core: Core) -> None:
        """Take note of what a node read from its disk."""
        journal, machine = core._journal, core.machine
        term, voted_for = journal.getCurrentTerm(), journal.getVotedForNodeId()
        self.add(node_id, "recovered", term, voted_for, journal.first_index, journal.last_index)
        self._checkers.recovered(node_id, term, voted_for, journal)
        if machine.revision:
            self._checkers.restored(node_id, core.replica._raft.applied_index, machine)

    def applied(self, node_id: str, core: Core, entry: bytes) -> None:
        """Take note of an applied entry: the library counts it only after it."""
        index = core.replica._raft.applied_index + 1
        term = core.replica.term_at(index) or 0
        digest = hashlib.blake2b(entry, digest_size=6).hexdigest()
        self.add(node_id, "applied", index, term, core.machine.revision, digest)
        self.counts["entries"] = max(self.counts["entries"], core.machine.revision)
        if core.replica.is_leader:
            self._checkers.members(_voters(core.replica.members))
            self._matched(node_id, core)
        self._checkers.applied(node_id, index, term, entry, core.machine, self._events(core))

    def _events(self, core: Core) -> tuple[Event, ...]:
        """Return what the newest entry told everybody."""
        blocks = core.events.read(Position(core.machine.revision), 1)
        return blocks[0] if blocks else ()

    def _matched(self, node_id: str, core: Core) -> None:
        """Take note of what a leader believes of the others."""
        replica = core.replica
        for peer_id in sorted(replica.members.nodes.keys() - {node_id}):
            self._checkers.matched(node_id, replica.term, peer_id, replica._raft.match_index(peer_id))

    def restored(self, node_id: str, core: Core) -> None:
        """Take note of a snapshot that was taken over."""
        self.add(node_id, "restored", core.machine.revision)
        self.counts["snapshots-installed"] += 1
        self._checkers.restored(node_id, 0, core.machine)

    def sent(self, node_id: str, core: Core, target: str, message: Message) -> None:
        """Take note of a Raft message."""
        kind = message["type"]
        place = message.get("prevLogIdx", message.get("next_node_idx", message.get("last_log_index", "-")))
        self.add(node_id, "sent", target, kind, message["term"], place, len(message.get("entries") or ()))
        self._checkers.sent(node_id, target, message)
        self._election(node_id, core, target, message)

    def _election(self, node_id: str, core: Core, target: str, message: Message) -> None:
        """Take note of a step of an election."""
        replica, prevote, elections = core.replica, core.replica._prevote, self._checkers.elections
        silence_ms = replica.leader_silence_s * 1000
        hears_leader = not prevote._is_leader_cut_off and silence_ms < core._config.election_ms_min
        elections.sent(node_id, target, message, hears_leader=replica.is_leader or hears_leader)
        is_asked_for = message.get("transfer", False)
        if message["type"] == "request_vote" and not is_asked_for and replica.is_candidate:
            elections.stands(node_id, message["term"], _voters(replica.members))

    def received(self, node_id: str, source: str, message: Message) -> None:
        """Take note of a vote that arrives."""
        self._checkers.elections.received(node_id, source, message)

    def members_changed(self, node_id: str, core: Core) -> None:
        """Take note of a member list that a leader has just appended, or of another change."""
        replica = core.replica
        self.add(node_id, "members", replica.members, replica.committed_members)
        lists = replica._membership._lists
        if not replica.is_leader or not lists._lists or lists._lists[-1][0] != core._journal.last_index:
            return
        index, term, members = lists._lists[-1]
        index_before, _, before = lists._lists[-2] if len(lists._lists) > 1 else (0, 0, lists._base)
        if term == replica.term and index > replica.committed:
            committed = replica.committed
            self.counts["member-changes"] += 1
            self._checkers.changes.appended(
                Appended(
                    leader_id=node_id,
                    term=term,
                    index=index,
                    voters=_voters(members),
                    index_before=index_before,
                    voters_before=_voters(before),
                    committed=committed,
                    committed_term=replica.term_at(committed),
                )
            )

    def stored(self, node_id: str, core: Core) -> None:
        """Take note of a synced journal."""
        journal = core._journal
        term, voted_for = journal.getCurrentTerm(), journal.getVotedForNodeId()
        self._checkers.stored(node_id, term, voted_for)
        self._checkers.synced(node_id, journal.synced_index)
        if core.replica.is_leader:
            self._checkers.acknowledged(node_id, journal.synced_index)

    def led(self, node_id: str, core: Core) -> None:
        """Take note of who leads."""
        replica = core.replica
        self.add(node_id, "follows", replica.leader_id, replica.term, replica.is_leader)
        if replica.is_leader:
            if self.leader[1] < replica.term:
                self.counts["leader-changes"] += 1
                self.leader = (node_id, replica.term)
            self._checkers.leads(node_id, replica.term, core._journal)
            self._checkers.elections.leads(node_id, replica.term, _voters(replica.members))

    def started(self, process: Process) -> None:
        """Object to a node that has not seen that its disk is damaged."""
        self.add(process.machine.node_id, "started")
        if process.machine.is_damaged:
            self.fail("damage-unnoticed", f"{process.machine.node_id} starts from a damaged disk")

    def ended(self, process: Process, reason: str, exit_code: int) -> None:
        """Take note that a process ended by itself."""
        self.add(process.machine.node_id, "exit", exit_code, reason)
        self.on_end(process, reason, exit_code)

    def uncaught(self, loop: NodeLoop, context: dict[str, Any]) -> None:
        """Object to an exception that nobody caught."""
        error = context.get("exception")
        if not isinstance(error, Violation):
            self.add(loop.name, "uncaught", repr(error))
            self.fail(
                "uncaught", f"{loop.name} does not catch what it raises: {context.get('message')} {error!r}"
            )


def _voters(members: Members) -> frozenset[str]:
    """Return who votes, from the list itself."""
    return frozenset([node_id for node_id, member in members.nodes.items() if member.is_voter])


def _nothing(_process: Process, _reason: str, _exit_code: int) -> None:
    """Do nothing."""
