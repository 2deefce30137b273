"""One node's part in Raft, made safe: guards at every message, promises after the sync, votes asked for.

Every message between the library and the wire passes `guards`, in both directions. Messages that promise
something durable are held until the journal is synced. An election starts only after a majority agreed that
there is no leader (PreVote).

One thread. Whatever raises here has broken a promise or the disk: the node must stop, it must not retry.
"""

import logging
from collections.abc import Iterable
from typing import Final, Protocol

from cluster import guards
from cluster.guards import Message
from cluster.journal import Journal
from cluster.raft import SERIALIZER_STATES, Raft, RaftConfig
from cluster.snapshot_transfer import SnapshotTransfer
from cluster.snapshots import SnapshotStore

logger = logging.getLogger(__name__)

RETAINED_DIVISOR: Final = 4
"""After compaction, compact_entries / 4 older entries stay: who was away briefly needs no snapshot. They take
no more than LOG_BYTES_MAX / 4, or large ones would ask for the next compaction at once."""
LOG_BYTES_MAX: Final = 128 << 20
"""Memory the log may take before it is compacted whatever its count."""
PRE_VOTE_PAUSE_S: Final = 0.05
"""One of these passes after a broken connection to the leader, and between pre-votes, and one more for each
node whose turn is earlier."""
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

    def restore_state(self, state: bytes) -> None:
        """Replace the state machine. Raises when the bytes are no state."""

    def leadership_changed(self) -> None:
        """Take note that leader, term or own role changed."""

    def tick_ended(self) -> None:
        """Take note that a tick has ended: call `sync` when `needs_sync`."""


class RaftReplica:
    """Proposes, replicates, commits and applies, in the order of the log.

    It is driven from outside: `receive` for each message, `tick` when one of them or a proposal asks for it
    (`wants_tick`) and at least every half heartbeat.
    """

    def __init__(
        self, config: RaftConfig, peer_ids: Iterable[str], journal: Journal, store: SnapshotStore, host: Host
    ) -> None:
        """Recover state and log from this disk. Raises DataDirError."""
        self._host = host
        self._journal = journal
        self._peer_ids = frozenset(peer_ids)
        self._connected: set[str] = set()
        self._held: list[tuple[str, Message]] = []
        self._voters: set[str] = set()
        self._voters_term = 0
        self._pre_votes: set[str] = set()
        self._pre_vote_term = 0
        self._leader_heard_s = float("-inf")
        self._is_leader_cut_off = False
        self._rewinds: dict[str, tuple[int, float]] = {}
        self._leader_lost_after_s = config.election_ms_min / 1000
        self._rewind_pause_s = config.heartbeat_ms / 1000 / 2
        self._node_id = config.node_id
        self._seen: tuple[object, ...] = ()
        self._is_transfer = False
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
        last = snapshot.last if snapshot is not None else None
        self._retained = config.compact_entries // RETAINED_DIVISOR
        self._raft = Raft(
            config,
            sorted(self._peer_ids),
            journal,
            self,
            retained=self._retained,
            applied_index=last[1] if last else 1,
        )
        self._transfer = SnapshotTransfer(store, host.encode_state, self, states=SERIALIZER_STATES, last=last)
        self._raft.use_serializer(self._transfer)

    def close(self) -> None:
        """Stop; the journal and the snapshot store stay the host's."""
        self._transfer.stop_sending()

    # -- the log (guards.LogView) and the roles -------------------------------------------------------------

    @property
    def last_index(self) -> int:
        """Return the index of the newest entry of the log."""
        return self._journal.last_index

    @property
    def committed(self) -> int:
        """Return the highest index known to be committed."""
        return max(self._raft.commit_index, self._raft.applied_index)

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
        return 0.0 if self._raft.is_leader else self._raft.now_s() - self._leader_heard_s

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
            self._is_leader_cut_off = True
            self._raft.election_deadline_s = min(self._raft.election_deadline_s, self._soon_s())

    def receive(self, peer_id: str, message: Message) -> None:
        """Take one message from an authenticated peer through the guards to the library.

        Raises GuardViolationError when a peer would rewrite committed history.
        """
        kind = message.get("type")
        if kind == "pre_vote":
            self._answer_pre_vote(peer_id, message)
        elif kind == "pre_vote_granted":
            self._count_pre_vote(peer_id, message)
        elif kind == "newer_term":
            if message["term"] > self._raft.term:
                self._raft.adopt_term(peer_id, message["term"])
        elif guards.is_known(message):
            admitted, reply = self._admit(peer_id, message)
            if admitted is not None:
                self._raft.receive(peer_id, admitted)
                if kind == "append_entries":
                    self._leader_heard_s = self._raft.now_s()
                    self._is_leader_cut_off = False
                    self._pre_votes.clear()
            if reply is not None:
                self.send(peer_id, reply)
        else:
            logger.warning("event=message-dropped peer=%s type=%r reason=unknown", peer_id, kind)
        self._after_message()

    def _admit(self, peer_id: str, message: Message) -> guards.Admission:
        """Choose the guard for a message."""
        term = self._raft.term
        match message["type"]:
            case "append_entries":
                return guards.admit_append(message, self, term)
            case "next_node_idx":
                return guards.Admission(self._admit_acknowledgement(peer_id, message))
            case "request_vote":
                is_alive = self._leader_is_alive()
                return guards.Admission(guards.admit_vote_request(message, leader_is_alive=is_alive))
            case "response_vote":
                return guards.Admission(self._admit_vote(peer_id, message))
            case _:
                return guards.Admission(message)

    def _admit_acknowledgement(self, peer_id: str, message: Message) -> Message | None:
        admitted = guards.admit_acknowledgement(message, self, self._raft.term)
        if admitted is None or not admitted["reset"] or not self._raft.is_leader:
            return admitted
        index, now_s = admitted["next_node_idx"], self._raft.now_s()
        last_index, last_s = self._rewinds.get(peer_id, (0, float("-inf")))
        is_old_news = index == last_index or index <= self._raft.match_index(peer_id)
        if is_old_news and now_s - last_s < self._rewind_pause_s:
            return guards.without_rewind(admitted)
        self._rewinds[peer_id] = (index, now_s)
        return admitted

    def _admit_vote(self, peer_id: str, message: Message) -> Message | None:
        if self._voters_term != self._raft.term:
            self._voters_term, self._voters = self._raft.term, set()
        admitted = guards.admit_vote(peer_id, message, self._raft.term, self._voters)
        if admitted is not None:
            self._voters.add(peer_id)
        return admitted

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
        self._hold_back_election()
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

    def apply(self, entry: bytes) -> None:
        """Pass on a committed entry."""
        self._host.apply(entry)

    def will_propose(self) -> bool:
        """Whether this node leads, few entries are under way, and the host has something to propose."""
        return self._may_propose() and self._host.has_entry()

    def _may_propose(self) -> bool:
        in_flight = self._journal.last_index - self._raft.commit_index
        return self._raft.is_leader and self.is_proposing and in_flight < self.in_flight_max

    def propose(self) -> None:
        """Append the host's next entries to the log and send them, as long as few are under way."""
        while self._may_propose():
            entry = self._host.next_entry()
            if entry is None:
                return
            self._raft.append(entry)
            if not self._peer_ids:
                # Alone there is no acknowledgement to wait for: the next tick commits.
                self.wants_tick = True

    def _note_leadership(self) -> None:
        seen = (self.leader_id, self.term, self.is_leader)
        if seen != self._seen:
            self._seen = seen
            self._transfer.stop_sending()
            if not self.is_leader:
                self.is_proposing = True
            self._host.leadership_changed()

    # -- elections (H11) ------------------------------------------------------------------------------------

    def _leader_is_alive(self) -> bool:
        """Whether there is a leader that this node would not see deposed."""
        is_heard = not self._is_leader_cut_off and self.leader_silence_s < self._leader_lost_after_s
        return self._raft.is_leader or is_heard

    def _hold_back_election(self) -> None:
        """Ask for pre-votes when the library is about to start an election that nobody has agreed to."""
        raft = self._raft
        if raft.is_leader or not self._peer_ids or raft.election_deadline_s >= raft.now_s():
            return
        if raft.is_transfer_pending or self._pre_vote_is_won():
            return
        raft.election_deadline_s = self._soon_s()
        self._pre_votes = set()
        self._pre_vote_term = raft.term + 1
        request = {
            "type": "pre_vote",
            "term": self._pre_vote_term,
            "last_log_index": self.last_index,
            "last_log_term": self.term_at(self.last_index) or 0,
        }
        for peer_id in sorted(self._connected):
            self._host.send(peer_id, request)

    def _soon_s(self) -> float:
        """Return a moment shortly ahead, another one on every node: two at once would split the votes."""
        others = sorted(self._peer_ids - {self.leader_id})
        turn = sum(peer_id < self._node_id for peer_id in others)
        return self._raft.now_s() + PRE_VOTE_PAUSE_S * (1 + turn + self._raft.random() / 2)

    def _pre_vote_is_won(self) -> bool:
        """Whether a majority, this node included, would vote for the next term."""
        cluster_size = len(self._peer_ids) + 1
        return self._pre_vote_term == self._raft.term + 1 and 2 * (len(self._pre_votes) + 1) > cluster_size

    def _answer_pre_vote(self, peer_id: str, message: Message) -> None:
        if guards.grants_pre_vote(message, self, self._raft.term, leader_is_alive=self._leader_is_alive()):
            self._host.send(peer_id, {"type": "pre_vote_granted", "term": message["term"]})
        elif message["term"] <= self._raft.term:
            self._host.send(peer_id, guards.tell_term(self._raft.term))

    def _count_pre_vote(self, peer_id: str, message: Message) -> None:
        if message["term"] != self._pre_vote_term or self._leader_is_alive():
            return
        self._pre_votes.add(peer_id)
        if self._pre_vote_is_won():
            self._raft.election_deadline_s = 0.0
            self.wants_tick = True

    # -- leadership transfer --------------------------------------------------------------------------------

    def most_caught_up(self) -> str | None:
        """Return the connected peer that has most of the leader's log, None if no peer is connected."""
        return max(
            self._connected, key=lambda peer_id: (self._raft.match_index(peer_id), peer_id), default=None
        )

    def transfer(self, peer_id: str) -> bool:
        """Ask `peer_id` to take over at once; False if it does not have the whole log yet."""
        if not self._raft.is_leader or self._raft.match_index(peer_id) != self.last_index:
            return False
        self._raft.transfer(peer_id)
        return True

    # -- snapshots ------------------------------------------------------------------------------------------

    def retained_from(self, index: int) -> int:
        """Return the first entry that stays when everything before `index` is in a snapshot."""
        return self._journal.tail_start(index, self._retained, LOG_BYTES_MAX // RETAINED_DIVISOR)

    def install_snapshot(self) -> None:
        """Take over a snapshot that a leader sent and that has been verified: state, log and positions."""
        snapshot = self._transfer.take_received()
        self._host.restore_state(snapshot.state)
        self._journal.clear()
        self._journal.add(*snapshot.previous)
        self._journal.add(*snapshot.last)
        self._raft.note_installed(snapshot.last[1])
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
