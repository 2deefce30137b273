"""One node's part in Raft, made safe: guards at every message, promises after the sync, votes asked for.

Every message between the library and the wire passes `guards`, in both directions. Messages that promise
something durable are held until the journal is synced. An election starts only after a majority agreed that
there is no leader (prevote). Majorities are those of the newest member list in the log (members).

One thread. Whatever raises here has broken a promise or the disk: the node must stop, it must not retry.
"""

import logging
from collections.abc import Generator
from typing import Final, Protocol

from cluster.consensus import guards, member_list
from cluster.consensus.admission import Gate
from cluster.consensus.engine import SERIALIZER_STATES, Raft, RaftConfig
from cluster.consensus.guards import Message
from cluster.consensus.member_list import Members, MembersUnreadable
from cluster.consensus.membership import Membership
from cluster.consensus.prevote import PreVote
from cluster.consensus.snapshot_send import POSITION
from cluster.consensus.snapshot_transfer import SnapshotTransfer
from cluster.storage.journal import Journal
from cluster.storage.snapshot_store import SnapshotStore
from lockstate.snapshot import SnapshotError

logger = logging.getLogger(__name__)

RETAINED_DIVISOR: Final = 4
"""After compaction, compact_entries / 4 older entries stay: who was away briefly needs no snapshot. They take
no more than LOG_BYTES_MAX / 4, or large ones would ask for the next compaction at once."""
LOG_BYTES_MAX: Final = 128 << 20
"""Memory the log may take before it is compacted whatever its count."""
IN_FLIGHT_MAX: Final = 1
"""Entries proposed and not yet committed. Few means large batches: what arrives meanwhile shares the next."""


class Host(Protocol):
    """What the replica asks of the node it works for. All calls come from the loop's thread."""

    def send(self, peer_id: str, message: Message) -> None:
        """Send a Raft message to a connected peer; it may get lost."""

    def link_has_room(self, peer_id: str) -> bool:
        """Whether bulk data may be sent to the peer now."""

    def has_entry(self) -> bool:
        """Whether `next_entry` has something to propose."""

    def next_entry(self) -> bytes | None:
        """Return the next entry to propose, stamped now, or None. Called on the leader only."""

    def apply(self, entry: bytes) -> None:
        """Apply one committed entry. Must not raise for anything the entry says."""

    def encode_state(self) -> bytes:
        """Return the state machine as bytes; called in a forked child."""

    def decode_state(self, state: bytearray) -> Generator[None, None, object]:
        """Decode a state in steps of a few milliseconds, changing nothing. Raises SnapshotError."""

    def restore_state(self, state: object) -> None:
        """Replace the state machine by what `decode_state` made, or by that of encoded bytes.

        Raises when the bytes are no state.
        """

    def leadership_changed(self) -> None:
        """Take note that leader, term or own role changed."""

    def members_changed(self) -> None:
        """Take note that another member list counts now, or that one is committed."""

    def tick_ended(self) -> None:
        """Take note that a tick has ended: call `sync` when `needs_sync`."""


class RaftReplica:
    """Proposes, replicates, commits and applies, in the order of the log.

    It is driven from outside: `receive` for each message, `tick` when one of them or a proposal asks for it
    (`wants_tick`) and at least every half heartbeat.
    """

    def __init__(
        self, config: RaftConfig, first_members: Members, journal: Journal, store: SnapshotStore, host: Host
    ) -> None:
        """Recover state and log from this disk. Raises DataDirError.

        `first_members` are those the cluster began with; they count until the log or a snapshot has others.
        """
        self._host = host
        self._journal = journal
        self._node_id = config.node_id
        self._membership = Membership(first_members, Raft.members_in)
        self._next_members: Members | None = None
        self._connected: set[str] = set()
        self._held: list[tuple[str, Message]] = []
        self._silence_s_max = config.election_ms_max / 1000
        self._seen: tuple[object, ...] = ()
        self._is_transfer = False
        self._is_send_due = False
        self.is_proposing = True
        self.in_flight_max = IN_FLIGHT_MAX
        self.wants_tick = False
        # State and log are made to meet before the library sees either.
        snapshot = store.load()
        if snapshot is None:
            journal.begin_without_snapshot()
        else:
            host.restore_state(snapshot.state)
            journal.begin_at(snapshot.previous, snapshot.last)
            self._membership.restart(snapshot.members)
        last = snapshot.last if snapshot is not None else None
        self._retained = config.compact_entries // RETAINED_DIVISOR
        applied_index = last[1] if last else 1
        self._raft = Raft(config, journal, self, retained=self._retained, applied_index=applied_index)
        self._prevote = PreVote(config.node_id, self, self._raft, config.election_ms_min / 1000)
        self._gate = Gate(self, self._raft, self._prevote, rewind_pause_s=config.heartbeat_ms / 1000 / 2)
        self._transfer = SnapshotTransfer(
            store,
            host.encode_state,
            self,
            states=SERIALIZER_STATES,
            members=self._membership.encoded_at,
            last=last,
            decode=self._decode_received,
        )
        self._raft.use_serializer(self._transfer)
        self._membership.follow(self.last_index, self.term_at, journal[:])
        self._membership.commit(self.committed)
        self._set_members()
        if self.voters == {config.node_id}:
            # Nobody else could lead.
            self._raft.election_deadline_s = 0.0

    def close(self) -> None:
        """Stop; the journal and the snapshot store stay the host's."""
        self._transfer.stop_sending()

    # -- the log (guards.LogView) and the roles -------------------------------------------------------------

    @property
    def last_index(self) -> int:
        """Return the index of the newest entry of the log."""
        return self._journal.last_index

    @property
    def log_length(self) -> int:
        """Return how many entries the log holds."""
        return len(self._journal)

    @property
    def committed(self) -> int:
        """Return the highest index known to be committed."""
        return max(self._raft.commit_index, self._raft.applied_index)

    @property
    def applied_index(self) -> int:
        """Return the index of the last entry applied here; in `Host.apply`, of the one before."""
        return self._raft.applied_index

    def term_at(self, index: int) -> int | None:
        """Return the term of the entry at `index`, None if it is not in the log."""
        position = index - self._journal.first_index
        return self._journal[position][2] if 0 <= position < len(self._journal) else None

    def newest_entry(self) -> bytes | None:
        """Return the newest command in the log, committed or not; None if there is none."""
        return self._raft.newest_entry()

    @property
    def term(self) -> int:
        """Return the current term."""
        return self._raft.term

    @property
    def is_leader(self) -> bool:
        """Whether this node leads, as far as it knows."""
        return self._raft.is_leader

    @property
    def is_candidate(self) -> bool:
        """Whether this node is standing for election."""
        return self._raft.is_candidate

    @property
    def leader_id(self) -> str | None:
        """Return who leads, as far as this node knows."""
        return self._raft.leader_id

    @property
    def leader_silence_s(self) -> float:
        """Return how long nothing was heard from a leader; 0 on the leader, infinite if never."""
        return self._prevote.leader_silence_s

    @property
    def lag_s(self) -> float:
        """Return how long there was no leader for this node, itself included; infinite if never."""
        return self._prevote.lag_s

    @property
    def connected(self) -> frozenset[str]:
        """Return the peers that can be reached."""
        return frozenset(self._connected)

    # -- members --------------------------------------------------------------------------------------------

    @property
    def members(self) -> Members:
        """Return the newest member list in the log, committed or not: the one that counts."""
        return self._membership.latest

    @property
    def committed_members(self) -> Members:
        """Return the newest member list that is known to be committed."""
        return self._membership.committed

    @property
    def is_first_members(self) -> bool:
        """Whether the members are still those that the cluster began with."""
        return self._membership.is_first

    @property
    def voters(self) -> frozenset[str]:
        """Return who votes and counts for a majority."""
        return self._membership.latest.voters

    @property
    def may_change_members(self) -> bool:
        """Whether a change of the members may begin: one at a time, and by a leader that is sure of its log.

        The leader must have committed an entry of its own term: without that, two leaders in turn could each
        go on with a change that the other knows nothing of (Ongaro's correction of single-server changes).
        """
        committed = self.committed
        is_settled = self._next_members is None and self._membership.latest_index <= committed
        return self._may_lead() and is_settled and self.term_at(committed) == self._raft.term

    def change_members(self, new: Members) -> None:
        """Propose `new`, which differs from the present list by one node. Only if `may_change_members`."""
        assert self.may_change_members, "a change at the wrong time"
        self._next_members = new
        self.wants_tick = True

    def reachable(self) -> frozenset[str]:
        """Return who has answered this leader lately, itself included."""
        answering = {
            peer_id for peer_id in self._connected if self._raft.silence_s(peer_id) < self._silence_s_max
        }
        return frozenset(answering | {self._node_id})

    def caught_up(self, peer_id: str, goal: int | None = None) -> bool:
        """Whether a peer has all that is committed, or all up to `goal`, as far as this leader knows.

        Not one that needs a snapshot for the rest: that takes longer than what it has took to come.
        """
        needed = self._raft.commit_index if goal is None else min(goal, self._raft.commit_index)
        return self._raft.match_index(peer_id) >= max(needed, self._journal.first_index)

    def members_committed(self) -> None:
        """Take note that the next entry, a member list, is committed."""
        index = self._raft.applied_index + 1
        self._membership.commit(index)
        logger.info("event=members-committed index=%d members=%s", index, self.committed_members)
        self._host.members_changed()

    def _append_members(self, new: Members) -> None:
        """Append a list as leader. It counts before it is sent."""
        index = self._raft.append_members(member_list.encode(new))
        self._membership.append(index, self._raft.term, new)
        self._count_members()
        self._raft.send_entries()

    def _count_members(self) -> None:
        """Make the newest list count."""
        self._set_members()
        self._host.members_changed()

    def _set_members(self) -> None:
        new = self._membership.latest
        self._raft.set_members(new.voters - {self._node_id}, new.learners - {self._node_id})

    # -- messages in ----------------------------------------------------------------------------------------

    def peer_up(self, peer_id: str) -> None:
        """Take note that a peer can be reached."""
        self._connected.add(peer_id)
        self._raft.connected(peer_id)

    def peer_down(self, peer_id: str) -> None:
        """Take note that a peer cannot be reached. If it led, look for another leader soon."""
        self._connected.discard(peer_id)
        self._held = [(to, message) for to, message in self._held if to != peer_id]
        self._raft.disconnected(peer_id)
        self._transfer.stop_sending_to(peer_id)
        if peer_id == self.leader_id:
            self._prevote.leader_cut_off()

    def receive(self, peer_id: str, message: Message) -> None:
        """Take one message from an authenticated peer through the guards to the library.

        Raises GuardViolationError when a peer would rewrite committed history.
        """
        kind = message.get("type")
        if kind == "pre_vote":
            self._prevote.answer(peer_id, message)
        elif kind == "pre_vote_granted":
            self.wants_tick |= self._prevote.count(peer_id, message)
        elif kind == "newer_term":
            self._adopt_term(peer_id, message["term"])
        elif kind == POSITION:
            self._position_told(peer_id, message)
        elif guards.is_known(message):
            admitted, reply = self._gate.admit(peer_id, message)
            if admitted is not None:
                self._raft.receive(peer_id, admitted)
                if kind == "append_entries":
                    self._prevote.leader_heard()
                    entries = admitted.get("entries", ())
                    if self._membership.follow(self.last_index, self.term_at, entries):
                        self._count_members()
            if reply is not None:
                self.send(peer_id, reply)
        else:
            logger.warning("event=message-dropped peer=%s type=%r reason=unknown", peer_id, kind)
        self._after_message()

    def _adopt_term(self, peer_id: str, term: int) -> None:
        if term > self._raft.term:
            self._raft.adopt_term(peer_id, term)

    def _position_told(self, peer_id: str, message: Message) -> None:
        """Go on with a snapshot at once: the library would wait until a heartbeat lets the peer ask."""
        if self._transfer.take_position(peer_id, message):
            self._raft.resume_sending(peer_id)
            self._is_send_due = self.wants_tick = True

    def _after_message(self) -> None:
        """Decide whether a tick is needed: something to sync, to apply, to commit, or to take over."""
        raft = self._raft
        has_uncommitted = raft.is_leader and raft.commit_index < self._journal.last_index
        has_unapplied = raft.commit_index > raft.applied_index
        if self._journal.is_dirty or has_unapplied or has_uncommitted or raft.is_transfer_pending:
            self.wants_tick = True
        self._note_leadership()

    # -- messages out ---------------------------------------------------------------------------------------

    def send(self, peer_id: str, message: Message) -> None:
        """Send, or hold until the sync what promises that something is on disk.

        Entries for which the connection has no room are left out, as if they got lost: the next heartbeat
        makes the peer ask for them. The library would send a long log at once, and the link would break.
        """
        if peer_id not in self._connected:
            return
        if message.get("entries") and not self._host.link_has_room(peer_id):
            return
        message = guards.stamp_outbound(message, self._raft.term, is_transfer=self._is_transfer)
        if message["type"] in guards.PROMISES and self._journal.is_dirty:
            self._held.append((peer_id, message))
        else:
            self._host.send(peer_id, message)

    def send_at_once(self, peer_id: str, message: Message) -> None:
        """Send a message that promises nothing."""
        self._host.send(peer_id, message)

    def sync(self) -> None:
        """Make everything durable, then let out what was held for it. Raises JournalError."""
        self._journal.sync()
        held, self._held = self._held, []
        for peer_id, message in held:
            self._host.send(peer_id, message)

    @property
    def needs_sync(self) -> bool:
        """Whether something waits for the disk."""
        return self._journal.is_dirty or bool(self._held)

    # -- ticks ----------------------------------------------------------------------------------------------

    def tick(self) -> None:
        """Let the library commit, apply, send, propose and stand for election. Ends in Host.tick_ended."""
        self.wants_tick = False
        self._prevote.hold_back()
        if self._journal.bytes_count > LOG_BYTES_MAX:
            self._raft.force_compaction()
        # The library forgets why it stands for election before it asks for votes.
        self._is_transfer = self._raft.is_transfer_pending
        self._raft.tick()
        self._is_transfer = False
        self._note_leadership()

    def tick_ended(self) -> None:
        """Pass on that the library's tick is over."""
        self._host.tick_ended()

    def may_stand(self) -> bool:
        """Whether this node may start an election, now that its patience has ended."""
        return self._prevote.may_stand

    def apply(self, entry: bytes) -> None:
        """Pass on a committed entry."""
        self._host.apply(entry)

    def will_propose(self) -> bool:
        """Whether this node leads, few entries are under way, and there is something to propose."""
        return self._may_propose() and (self._host.has_entry() or self._next_members is not None)

    def _may_lead(self) -> bool:
        return self._raft.is_leader and self.is_proposing

    def _may_propose(self) -> bool:
        in_flight = self._journal.last_index - self._raft.commit_index
        return self._may_lead() and in_flight < self.in_flight_max

    def propose(self) -> None:
        """Append the host's next entries to the log and send them, as long as few are under way."""
        if self._is_send_due and self._raft.is_leader:
            self._raft.send_entries()
        self._is_send_due = False
        if self._next_members is not None and self._may_lead():
            new, self._next_members = self._next_members, None
            self._append_members(new)
        while self._may_propose():
            entry = self._host.next_entry()
            if entry is None:
                break
            self._raft.append(entry)
        if self.voters == {self._node_id} and self._raft.commit_index < self._journal.last_index:
            # Alone there is no acknowledgement to wait for: the next tick commits.
            self.wants_tick = True

    def _note_leadership(self) -> None:
        seen = (self.leader_id, self.term, self.is_leader)
        if seen != self._seen:
            self._seen = seen
            self._transfer.stop_sending()
            self._next_members = None
            if not self.is_leader:
                self.is_proposing = True
            self._host.leadership_changed()

    # -- leadership transfer --------------------------------------------------------------------------------

    def most_caught_up(self) -> str | None:
        """Return the connected voter that has most of the leader's log, None if none is connected."""
        voters = self._connected & self.voters
        return max(voters, key=lambda peer_id: (self._raft.match_index(peer_id), peer_id), default=None)

    def transfer(self, peer_id: str) -> bool:
        """Ask `peer_id` to take over at once; False if it does not have the whole log yet."""
        is_ready = peer_id in self.voters and self._raft.match_index(peer_id) == self.last_index
        if not self._raft.is_leader or not is_ready:
            return False
        self._raft.transfer(peer_id)
        return True

    # -- snapshots ------------------------------------------------------------------------------------------

    def retained_from(self, index: int) -> int:
        """Return the first entry that stays when everything before `index` is in a snapshot."""
        return self._journal.tail_start(index, self._retained, LOG_BYTES_MAX // RETAINED_DIVISOR)

    def _decode_received(self, state: bytearray, encoded: bytes) -> Generator[None, None, object]:
        """Decode what came before it counts: what this version cannot read must not replace what it has."""
        if encoded:
            try:
                member_list.decode(encoded)
            except MembersUnreadable as error:
                raise SnapshotError(str(error)) from error
        return (yield from self._host.decode_state(state))

    def install_snapshot(self) -> None:
        """Take over a snapshot that a leader sent and that has been verified: state, log and positions."""
        snapshot = self._transfer.take_received()
        self._host.restore_state(snapshot.decoded)
        self._journal.clear()
        self._journal.add(*snapshot.previous)
        self._journal.add(*snapshot.last)
        self._raft.note_installed(snapshot.last[1])
        self._membership.restart(snapshot.members)
        self._count_members()
        logger.info("event=snapshot-installed index=%d term=%d", snapshot.last[1], snapshot.last[2])

    def decline_snapshot(self, index: int) -> None:
        """Tell the leader that everything up to `index` is here already."""
        leader_id = self.leader_id
        if leader_id is not None:
            self.send(leader_id, guards.acknowledge(index))

    def link_has_room(self, peer_id: str) -> bool:
        """Whether bulk data may be sent to the peer now."""
        return self._host.link_has_room(peer_id)

    def pause_sending(self, peer_id: str) -> None:
        """Send a peer no snapshot until it asks again."""
        self._raft.pause_sending(peer_id)
