"""Hears every fact of the nodes, writes it down, and tells the checkers."""

import hashlib
import zlib
from collections import Counter
from collections.abc import Callable
from typing import Any

import msgspec

from cluster.assembly import Parts
from cluster.consensus.member_list import Members
from cluster.consensus.messages import AppendEntries, Message, VoteRequest
from cluster.observing.event_log import Block, Position
from lockstate.words.versions import RULES_FIRST
from tests.simulation.checks.all_checkers import Checkers
from tests.simulation.checks.members import Appended
from tests.simulation.checks.report import Violation
from tests.simulation.world.event_loop import NodeLoop
from tests.simulation.world.machine import Process
from tests.simulation.world.raft_trace import RaftTrace
from tests.simulation.world.trace import Trace


class NodeObserver:
    """The facts of one world (machine.Facts)."""

    def __init__(self, checkers: Checkers, trace: Trace, raft: RaftTrace, now_us: Callable[[], int]) -> None:
        self.counts: Counter[str] = Counter()
        self.on_end: Callable[[Process, str, int], None] = _nothing
        self.leader: tuple[str, int] = ("", 0)
        self.rules_newest = RULES_FIRST
        """The newest rules that a node knows which is not of an older release."""
        self.rules_old: dict[str, int] = {}
        """The newest rules that nodes of an older release know."""
        self._checkers = checkers
        self._trace = trace
        self.raft = raft
        self._now_us = now_us

    def add(self, who: str, event: str, *facts: Any) -> None:
        """Write a line of the trace."""
        self._trace.add(self._now_us(), who, event, *facts)

    def fail(self, checker: str, sentence: str, **facts: Any) -> None:
        """Object, as the checkers do."""
        self._checkers.report.fail(checker, sentence, **facts)

    # -- machine.Facts --------------------------------------------------------------------------------------

    def rules_known(self, node_id: str) -> int:
        """Return the newest rules that a node's release knows."""
        return self.rules_old.get(node_id, self.rules_newest)

    def made(self, node_id: str, parts: Parts) -> None:
        """Record what a node read from its disk."""
        journal, machine = parts.journal, parts.machine
        term, voted_for = journal.term, journal.voted_for
        self.add(node_id, "recovered", term, voted_for, journal.first_index, journal.last_index)
        self._checkers.recovered(node_id, term, voted_for, journal)
        self.raft.recovered(node_id, parts)
        if machine.revision:
            self._checkers.restored(node_id, parts.replica.engine.applied_index, machine)

    def applied(self, node_id: str, parts: Parts, index: int, entry: bytes) -> None:
        """Record an applied entry."""
        term = parts.replica.log.term_at(index) or 0
        digest = hashlib.blake2b(entry, digest_size=6).hexdigest()
        self.add(node_id, "applied", index, term, parts.machine.revision, digest)
        self.raft.applied(node_id, index, term, entry)
        self.counts["entries"] = max(self.counts["entries"], parts.machine.revision)
        voters = _voters(parts.replica.membership.latest)
        if parts.replica.role.is_leader:
            self._checkers.members(voters)
            self._matched(node_id, parts)
        if parts.machine.rules > self._checkers.rules.newest:
            self.counts["rules-advances"] += 1
            known = {voter: self.rules_known(voter) for voter in voters}
            self._checkers.rules.follow(node_id, parts.machine.rules, known)
        self._checkers.applied(node_id, index, term, entry, parts.machine, self._events(parts))

    def _events(self, parts: Parts) -> Block:
        """Return what the newest entry told everybody."""
        blocks = parts.events.read(Position(parts.machine.revision), 1)
        return tuple(blocks[0]) if blocks else ()

    def _matched(self, node_id: str, parts: Parts) -> None:
        """Record what a leader believes of the others."""
        replica = parts.replica
        for peer_id in sorted(replica.membership.latest.nodes.keys() - {node_id}):
            self._checkers.matched(node_id, replica.role.term, peer_id, replica.engine.match_index(peer_id))

    def restored(self, node_id: str, parts: Parts) -> None:
        """Record a snapshot that was taken over."""
        self.add(node_id, "restored", parts.machine.revision)
        self.counts["snapshots-installed"] += 1
        self.raft.restored(node_id, parts)
        self._checkers.restored(node_id, 0, parts.machine)

    def connected(self, node_id: str, peer_id: str) -> None:
        """Nodes of the cluster may be connected."""

    def sent(self, node_id: str, parts: Parts, target: str, message: Message) -> None:
        """Record a Raft message."""
        told = _as_told(message)
        place = told.get("prevLogIdx", told.get("next_node_idx", told.get("last_log_index", "-")))
        entries = (message.entries or ()) if isinstance(message, AppendEntries) else ()
        self.add(node_id, "sent", target, told["type"], message.term, place, len(entries))
        self._checkers.sent(node_id, target, told)
        self._checkers.belonging.speaks(node_id, parts.peering._datadir.disk_id)
        self.raft.sent(node_id, target, told, entries)
        self._election(node_id, parts, target, message, told)

    def _election(
        self, node_id: str, parts: Parts, target: str, message: Message, told: dict[str, Any]
    ) -> None:
        """Record a step of an election."""
        replica, prevote, elections = parts.replica, parts.replica.prevote, self._checkers.elections
        silence_ms = prevote.leader_silence_s * 1000
        # Whom a node took for punctual may be deposed first. Which leader that is, the node must know itself.
        patience_ms = min(2.5 * parts._config.heartbeat_ms, parts._config.election_ms_min)
        hears_leader = not prevote._is_leader_cut_off and silence_ms < patience_ms
        elections.sent(node_id, target, told, hears_leader=replica.engine.is_leader or hears_leader)
        if isinstance(message, VoteRequest) and not message.transfer and replica.engine.is_candidate:
            elections.stands(node_id, message.term, _voters(replica.membership.latest))

    def received(self, node_id: str, source: str, message: Message) -> None:
        """Record a message that arrives."""
        told = _as_told(message)
        self.raft.received(node_id, source, told)
        self._checkers.liveness.heard(node_id, source, self._now_us())
        self._checkers.elections.received(node_id, source, told)

    def members_changed(self, node_id: str, parts: Parts) -> None:
        """Record a member list that a leader has just appended, or of another change."""
        replica = parts.replica
        self.add(node_id, "members", replica.membership.latest, replica.membership.committed)
        self.raft.counted(node_id, parts)
        latest = replica.membership.latest
        self._checkers.belonging.listed(
            node_id, latest.cluster_id, [member.disk_id for member in latest.nodes.values()]
        )
        lists = replica.membership._lists
        if not replica.role.is_leader or not lists._lists or lists._lists[-1][0] != parts.journal.last_index:
            return
        index, term, members = lists._lists[-1]
        index_before, _, before = lists._lists[-2] if len(lists._lists) > 1 else (0, 0, lists._base)
        if term == replica.role.term and index > replica.log.committed:
            committed = replica.log.committed
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
                    committed_term=replica.log.term_at(committed),
                )
            )

    def stored(self, node_id: str, parts: Parts, term: int, voted_for: str | None) -> None:
        """Record a sync, which has brought this term and vote to the disk: the node may have gone on."""
        journal = parts.journal
        self._checkers.stored(node_id, term, voted_for)
        self.raft.stored(node_id, term, voted_for, journal.synced_index)
        if journal.synced_index:
            # Else a snapshot was installed meanwhile: the log before it is still on the disk, the new one is
            # yet to be synced.
            self._checkers.synced(node_id, journal.synced_index, parts.replica.engine.term)
        # A node that is alone leads and commits in one tick, before anybody is told of its role.
        if voted_for == node_id and len(journal) and journal[-1][2] == term:
            self._checkers.acknowledged(node_id, journal.synced_index)

    def forked(self, node_id: str) -> None:
        """Record that a node begins to write a snapshot."""
        self.counts["forks"] += 1
        self.add(node_id, "forks")

    def snapshot_placed(self, node_id: str, before: bytes | None, after: bytes) -> None:
        """Record a snapshot that is put in the place of another one."""
        places = None if before is None else _place(before), _place(after)
        self.add(node_id, "places-snapshot", *places)
        if places[1] is not None:
            self._checkers.snapshot_files.placed(node_id, places[0], places[1])

    def led(self, node_id: str, parts: Parts) -> None:
        """Record which node leads."""
        replica = parts.replica
        self.add(node_id, "follows", replica.role.leader_id, replica.role.term, replica.role.is_leader)
        self.raft.counted(node_id, parts)
        self._checkers.follows(node_id, replica.role.term)
        if replica.role.is_leader:
            if self.leader[1] < replica.role.term:
                self.counts["leader-changes"] += 1
                self.leader = (node_id, replica.role.term)
            self._checkers.leads(node_id, replica.role.term, parts.journal)
            self._checkers.elections.leads(node_id, replica.role.term, _voters(replica.membership.latest))

    def record_stored(self, node_id: str, identity: bytes, record: bytes) -> None:
        """Record what a node knows of its cluster, and with which disk."""
        own, stored = checked_json(identity), checked_json(record)
        if own is None or stored is None or stored.get("founding") is None:
            return
        founding = stored["founding"]
        disks = {founder_id: founder["disk_id"] for founder_id, founder in founding["nodes"].items()}
        self.add(node_id, "founding", founding["cluster_id"], stored["is_complete"])
        self._checkers.belonging.stored(
            node_id, own["disk_id"], founding["cluster_id"], disks, is_complete=stored["is_complete"]
        )

    def started(self, process: Process) -> None:
        """Object to a node that has not seen that its disk is damaged."""
        self.add(process.machine.node_id, "started")
        self._checkers.belonging.started(process.machine.node_id)
        if process.machine.is_damaged:
            self.fail("damage-unnoticed", f"{process.machine.node_id} starts from a damaged disk")
        if process.files.misled:
            read = ", ".join(process.files.misled)
            self.fail("damage-unnoticed", f"{process.machine.node_id} starts although it misread {read}")

    def faulted(self, node_id: str, source: str, reason: str) -> None:
        """Object to a message that no correct node sends: nobody here changes what is in one."""
        self.add(node_id, "faults", source, reason)
        self.fail("peer-fault", f"{node_id} cuts {source} off: {reason}")

    def ended(self, process: Process, reason: str, exit_code: int) -> None:
        """Record that a process ended by itself."""
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


def _as_told(message: Message) -> dict[str, Any]:
    """Return a message in the words of the wire, without what it carries: checkers know no class of ours."""
    if isinstance(message, AppendEntries):
        message = msgspec.structs.replace(message, entries=[], chunk=msgspec.UNSET)
    told: dict[str, Any] = msgspec.msgpack.decode(msgspec.msgpack.encode(message))
    return told


def checked_json(content: bytes) -> dict[str, Any] | None:
    """Return what a JSON file of a data directory holds; None if there is none, or it is damaged."""
    try:
        stored = msgspec.json.decode(content, type=dict[str, msgspec.Raw])
        inner = stored["content"]
        is_sound = zlib.crc32(inner) == msgspec.json.decode(stored["crc32"])
    except (msgspec.DecodeError, KeyError):
        return None
    return msgspec.json.decode(inner, type=dict[str, Any]) if is_sound else None


def _voters(members: Members) -> frozenset[str]:
    """Return the voters, from the list itself."""
    return frozenset([node_id for node_id, member in members.nodes.items() if member.is_voter])


def _place(snapshot: bytes) -> tuple[int, int] | None:
    """Return index and term of the newest entry in the bytes of a snapshot file; None if they are damaged."""
    header_bytes = int.from_bytes(snapshot[12:16], "little")
    try:
        _, last, *_ = msgspec.msgpack.decode(snapshot[16 : 16 + header_bytes])
    except (msgspec.DecodeError, ValueError):
        return None
    return last[1], last[2]


def _nothing(_process: Process, _reason: str, _exit_code: int) -> None:
    """Do nothing."""
