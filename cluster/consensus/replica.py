"""One node's part in Raft, made safe: guards at every message, promises after the sync, votes asked for.

A message or a tick goes in, and a `Ready` comes out: what is to be sent, applied, written. Nothing of that is
done here; `cluster/loop.py` does it, in the order that the fields of `Ready` state. An election starts only
after a majority agreed that there is no leader (prevote). Majorities are those of the newest member list in
the log (membership).

One thread. Whatever raises here has broken a promise or the disk: the node must stop, it must not retry.
"""

import logging
from collections.abc import Callable, Generator, Iterator
from typing import Final, NamedTuple

import msgspec

from cluster.consensus import bounds, guards, member_list
from cluster.consensus.admission import Gate, TwoLeadersError
from cluster.consensus.elections import Elections
from cluster.consensus.engine import FOUNDED_INDEX, FOUNDED_TERM, Engine
from cluster.consensus.library import RaftConfig
from cluster.consensus.library_words import EngineJournal
from cluster.consensus.member_list import Members, MembersUnreadable
from cluster.consensus.membership import Membership
from cluster.consensus.messages import (
    Acknowledgement,
    AppendEntries,
    Guarded,
    Message,
    NewerTerm,
    PreVoteGranted,
    PreVoteRequest,
    SnapshotPosition,
    Vote,
)
from cluster.consensus.prevote import PreVote
from cluster.consensus.ready import Ready, SnapshotDue
from cluster.consensus.snapshot_transfer import SnapshotTransfer
from cluster.storage.snapshot_store import Snapshot, SnapshotStore
from lockstate.stored.snapshot import SnapshotError

logger = logging.getLogger(__name__)

DecodeState = Callable[[bytearray], Generator[None, None, object]]
"""Decodes a state in steps of a few milliseconds, changing nothing. Raises SnapshotError."""


class Role(NamedTuple):
    """Who leads, as far as this node knows, and what it is itself."""

    leader_id: str | None
    term: int
    is_leader: bool
    is_candidate: bool


class Replica:
    """Proposes, replicates and commits, in the order of the log.

    It is driven from outside: `receive` for each message, `tick` when `Ready.wants_tick` or a proposal asks
    for it, in `news_due_in_s` and at least every half heartbeat, `propose` after a tick when `may_propose`.
    """

    def __init__(
        self,
        config: RaftConfig,
        first_members: Members,
        journal: EngineJournal,
        store: SnapshotStore,
        *,
        room_bytes: Callable[[str], int],
        decode_state: DecodeState,
        founded: Members | None = None,
        loaded: Snapshot | None = None,
    ) -> None:
        """Recover state and log from this disk. Raises DataDirError.

        `first_members` count until the log or a snapshot has others. `founded` is the list that the cluster
        began with: an empty log begins with it now. `loaded` is the snapshot of `store`, if the host has read
        it already.
        """
        self._journal = journal
        self._node_id = config.node_id
        self._decode_state = decode_state
        self._connected: set[str] = set()
        self._silence_s_max: Final = config.election_ms_max / 1000
        self._next_members: Members | None = None
        self._is_send_due = False
        self.is_proposing = True
        self.membership = Membership(config.node_id, first_members, Engine.members_in)
        # State and log are made to meet before the library sees either.
        snapshot = loaded or store.load()
        self.loaded_state: object = None
        """The state of the snapshot on this disk, for the host to take when it starts: as `loaded` has it
        decoded, or the bytes."""
        if snapshot is None:
            journal.begin_without_snapshot()
        else:
            self.loaded_state = snapshot.state if snapshot.decoded is None else snapshot.decoded
            journal.begin_at(snapshot.previous, snapshot.last)
            if snapshot.log_digest is not None:
                journal.continue_digests(snapshot.last, snapshot.log_digest)
            self.membership.restart(snapshot.members)
        last = snapshot.last if snapshot is not None else None
        applied_index = last[1] if last else 1
        self.engine = Engine(config, journal, room_bytes, applied_index=applied_index)
        self.log = journal
        self._transfer = SnapshotTransfer(
            store, self.engine, self.log, last=last, decode=self._decode_received
        )
        self.engine.use_snapshots(self._transfer)
        self._terms = bounds.TermBound(self.engine.term, self.engine.now_s())
        self._elections = Elections(config.node_id, self.engine.now_s)
        self._newer_from = ""
        self.prevote = PreVote(
            config.node_id,
            self.log,
            self.engine,
            self.membership,
            self._elections,
            leader_lost_after_s=config.election_ms_min / 1000,
            heartbeat_s=config.heartbeat_ms / 1000,
        )
        self._gate = Gate(
            self.log,
            self.engine,
            self.membership,
            self.prevote,
            rewind_pause_s=config.heartbeat_ms / 1000 / 2,
        )
        if founded is not None and self.log.last_index < FOUNDED_INDEX:
            self.engine.begin_founded(member_list.encode(founded))
        self.membership.follow(self.log.last_index, self.log.term_at, journal[:])
        self.membership.commit(self.log.committed)
        self._count_members()
        self.role = Role(None, 0, is_leader=False, is_candidate=False)
        self._hurry_alone()

    def _hurry_alone(self) -> None:
        """Stand at once if nobody else could lead."""
        if self.membership.is_alone:
            self.engine.election_deadline_s = 0.0

    @property
    def is_log_empty(self) -> bool:
        """Whether the log holds nothing that came from anybody."""
        return self.log.last_index <= 1

    def close(self) -> None:
        """Stop; the journal and the snapshot store stay the host's."""
        self._transfer.stop_sending()

    def _decode_received(self, state: bytearray, encoded: bytes) -> Generator[None, None, object]:
        """Decode what came before it counts: what this version cannot read must not replace what it has."""
        if encoded:
            try:
                member_list.decode(encoded)
            except MembersUnreadable as error:
                raise SnapshotError(str(error)) from error
        return (yield from self._decode_state(state))

    # -- what drives it -------------------------------------------------------------------------------------

    def peer_up(self, peer_id: str) -> bool:
        """Record that a peer can be reached; tell whether to tick soon, because this node leads.

        Its heartbeat asks for what was lost on the connection before.
        """
        self._connected.add(peer_id)
        self.engine.connected(peer_id)
        return self.engine.is_leader

    def peer_down(self, peer_id: str, *, is_replaced: bool = False) -> None:
        """Record that the connection with a peer has ended. If it led, look for another leader soon.

        Not if `is_replaced`, by another connection with it: then it is there, as far as anybody knows.
        """
        self._connected.discard(peer_id)
        self.engine.disconnected(peer_id)
        self._transfer.stop_sending_to(peer_id)
        self._gate.forget(peer_id)
        if peer_id != self.engine.leader_id:
            return
        if is_replaced:
            self.prevote.link_replaced()
        else:
            self.prevote.leader_cut_off()

    def receive(self, peer_id: str, message: Message) -> Ready:
        """Take one message from an authenticated peer through the guards to the library.

        Raises PeerFault, and has taken nothing, when no correct peer says that: its connection is to be cut.
        """
        engine = self.engine
        is_newer = message.term > engine.term
        bounds.check(message, self._terms.term_max(engine.now_s()) if is_newer else engine.term)
        self._newer_from = peer_id if is_newer else ""
        ready = Ready()
        match message:
            case PreVoteRequest():
                answer = self.prevote.answer(message)
                if answer is not None:
                    engine.sent.append((peer_id, answer))
            case PreVoteGranted():
                ready.wants_tick = self.prevote.count(peer_id, message)
            case NewerTerm():
                if message.term > engine.term:
                    engine.adopt_term(peer_id, message.term)
            case SnapshotPosition():
                # Go on at once: the library would wait until a heartbeat lets the peer ask.
                if self._transfer.take_position(peer_id, message):
                    engine.resume_sending(peer_id)
                    self._is_send_due = ready.wants_tick = True
            case _:
                self._pass_gate(peer_id, message, ready)
        ready.wants_tick |= engine.has_work
        return self._finish(ready)

    def _pass_gate(self, peer_id: str, message: Guarded, ready: Ready) -> None:
        """Hand the library what the guards make of a message."""
        try:
            admission = self._gate.admit(peer_id, message)
        except TwoLeadersError as error:
            # Which of the two it is can not be known here, so neither leads on: there will be a newer term.
            logger.error("event=two-leaders peer=%s detail=%r", peer_id, str(error))  # noqa: TRY400
            self.engine.adopt_term(peer_id, self.engine.term + 1)
            return
        ready.difference = admission.difference
        if admission.message is not None:
            if type(admission.message) is Vote and self.engine.is_candidate:
                self._elections.voted(peer_id)
            self.engine.receive(peer_id, admission.message)
            if type(admission.message) is AppendEntries:
                self.prevote.leader_heard()
                if not admission.only_adds:
                    self._follow(admission.message, ready)
                    ready.wants_tick |= self._transfer.is_checking
        if admission.is_send_due:
            self._is_send_due = ready.wants_tick = True
        reply = admission.reply
        if reply is not None:
            if type(reply) is Acknowledgement and self.engine.may_wait():
                reply = msgspec.structs.replace(reply, may_wait=True)
            self.engine.sent.append((peer_id, reply))

    def tick(self, *, has_entry: bool) -> Ready:
        """Commit, send heartbeats, stand for election, as far as it is due.

        `has_entry` tells whether the host has something to propose behind this tick.
        """
        ready = Ready()
        engine = self.engine
        self._newer_from = ""
        engine.sent += self.prevote.ask(self._connected)
        engine.has_proposal = self.is_proposing and (has_entry or self._next_members is not None)
        engine.tick()
        if self._is_send_due and engine.is_leader:
            engine.send_entries()
        self._is_send_due = False
        ready.wants_tick |= self._transfer.is_checking
        return self._finish(ready)

    def propose(self, entries: Iterator[bytes]) -> Ready:
        """Append what there is to propose to the log and send it, as long as few entries are under way.

        `entries` yields the host's next entry, stamped when it is asked for. Only behind a tick.
        """
        ready = Ready()
        if self._next_members is not None and self._may_lead():
            new, self._next_members = self._next_members, None
            self._append_members(new, ready)
        has_appended = False
        while self.may_propose:
            entry = next(entries, None)
            if entry is None:
                break
            self.engine.append(entry)
            has_appended = True
        if not has_appended:
            self.engine.send_due()
        return self._finish(ready)

    @property
    def is_writing_snapshot(self) -> bool:
        """Whether a child is writing the state."""
        return self._transfer.is_writing

    def write_snapshot(self, due: SnapshotDue, encode_state: Callable[[], bytes]) -> None:
        """Begin to write the state, in a forked child that calls `encode_state`. See Ready.snapshot."""
        self._transfer.begin_write(due, encode_state)

    def begin_founded(self, founded: Members) -> Ready:
        """Begin the log with the list of the founding, which counts at once. Only while the log is empty."""
        ready = Ready(are_members_changed=True, wants_tick=True)
        self.engine.begin_founded(member_list.encode(founded))
        self.membership.append(FOUNDED_INDEX, FOUNDED_TERM, founded)
        self.membership.commit(self.log.committed)
        self._count_members()
        self._hurry_alone()
        return self._finish(ready)

    # -- what it makes of that ------------------------------------------------------------------------------

    def _finish(self, ready: Ready) -> Ready:
        """Put into `ready` what the library said meanwhile."""
        engine = self.engine
        if engine.installed is not None:
            self._restart(ready)
        if engine.committed:
            self._hand_out(ready)
        if engine.snapshot_due is not None:
            (last, previous), engine.snapshot_due = engine.snapshot_due, None
            index = last[1]
            ready.snapshot = SnapshotDue(
                last, previous, self.membership.encoded_at(index), self.log.digest_at(index)
            )
        role = self.role
        if (
            role.leader_id != engine.leader_id
            or role.term != engine.term
            or role.is_leader != engine.is_leader
            or role.is_candidate != engine.is_candidate
        ):
            self._change_role(ready)
        is_dirty = self._journal.is_dirty
        if engine.sent:
            for peer_id, message in engine.take_sent():
                if peer_id not in self._connected:
                    continue
                if type(message) is Acknowledgement:
                    self._gate.acknowledging(peer_id, message)
                if is_dirty and (type(message) in guards.PROMISES or self.membership.is_alone):
                    # Who votes alone leads by a vote that nobody has heard of: it is on disk before a learner
                    # hears of the term, or a restart could lead in the same term with another log.
                    ready.promises.append((peer_id, message))
                else:
                    ready.messages.append((peer_id, message))
        ready.needs_sync = bool(ready.promises) or self._journal.wants_sync
        return ready

    def _hand_out(self, ready: Ready) -> None:
        """Sort what is committed: commands for the state machine, member lists for us."""
        committed, self.engine.committed = self.engine.committed, []
        for content, index, _ in committed:
            command = Engine.command_in(content)
            if command is not None:
                ready.committed.append((index, command))
            elif Engine.members_in(content) is not None:
                self.membership.commit(index)
                ready.are_members_changed = True
                logger.info("event=members-committed index=%d members=%s", index, self.membership.committed)

    def _restart(self, ready: Ready) -> None:
        """Begin anew behind the snapshot that the engine has just installed."""
        snapshot, self.engine.installed = self.engine.installed, None
        assert snapshot is not None, "asked for only after an installation"
        self.membership.restart(snapshot.members)
        self._count_members()
        ready.restored = snapshot.decoded
        ready.are_members_changed = True
        logger.info("event=snapshot-installed index=%d term=%d", snapshot.last[1], snapshot.last[2])

    def _change_role(self, ready: Ready) -> None:
        """Let go of what belongs to the role of before."""
        engine, was_leader = self.engine, self.role.is_leader
        self.role = Role(engine.leader_id, engine.term, engine.is_leader, engine.is_candidate)
        if engine.is_leader and not was_leader:
            logger.info("%s", self._elections.won(engine.term))
        elif was_leader and not engine.is_leader:
            stall_s = self.prevote.recent_stall_s()
            lost = self._elections.lost(engine.term, newer_from=self._newer_from, stall_s=stall_s)
            logger.info("%s", lost)
        if engine.is_candidate:
            self._elections.stood()
        self._transfer.stop_sending()
        self._next_members = None
        if not engine.is_leader:
            self.is_proposing = True
        ready.is_role_changed = True

    # -- proposals ------------------------------------------------------------------------------------------

    def _may_lead(self) -> bool:
        return self.engine.is_leader and self.is_proposing

    @property
    def may_propose(self) -> bool:
        """Whether this node leads and few entries are under way."""
        engine = self.engine
        in_flight = engine.journal.last_index - engine.commit_index
        return engine.is_leader and self.is_proposing and in_flight < engine.in_flight_max

    # -- members --------------------------------------------------------------------------------------------

    @property
    def may_change_members(self) -> bool:
        """Whether a change of the members may begin: one at a time, and by a leader that is sure of its log.

        The leader must have committed an entry of its own term: without that, two leaders in turn could each
        go on with a change that the other knows nothing of (Ongaro's correction of single-server changes).
        """
        committed = self.log.committed
        is_settled = self._next_members is None and self.membership.latest_index <= committed
        return self._may_lead() and is_settled and self.log.term_at(committed) == self.engine.term

    @property
    def has_members_to_propose(self) -> bool:
        """Whether a change of the members waits to be proposed."""
        return self._next_members is not None

    def change_members(self, new: Members) -> None:
        """Propose `new`, which differs from the present list by one node, behind the next tick.

        Only if `may_change_members`. The host makes that tick come soon.
        """
        assert self.may_change_members, "a change at the wrong time"
        self._next_members = new

    def _append_members(self, new: Members, ready: Ready) -> None:
        """Append a list as leader. It counts before it is sent."""
        index = self.engine.append_members(member_list.encode(new))
        self.membership.append(index, self.engine.term, new)
        self._count_members()
        ready.are_members_changed = True
        self.engine.send_entries()

    def _follow(self, message: AppendEntries, ready: Ready) -> None:
        """Find out whether a leader's entries brought another list, or cut one off."""
        entries = message.entries or ()
        if self.membership.follow(self.log.last_index, self.log.term_at, entries):
            self._count_members()
            ready.are_members_changed = True

    def _count_members(self) -> None:
        """Make the newest list count."""
        own = {self._node_id}
        voters, learners = self.membership.voters - own, self.membership.learners - own
        self.engine.set_members(voters, learners)
        self._transfer.members_changed(voters | learners)

    # -- questions about the others -------------------------------------------------------------------------

    def reachable(self) -> frozenset[str]:
        """Return the nodes that have answered this leader lately, itself included."""
        answering = {
            peer_id for peer_id in self._connected if self.engine.silence_s(peer_id) < self._silence_s_max
        }
        return frozenset(answering | {self._node_id})

    def caught_up(self, peer_id: str, goal: int | None = None) -> bool:
        """Whether a peer has all that is committed, or all up to `goal`, as far as this leader knows.

        Not one that needs a snapshot for the rest: that takes longer than what it has took to come.
        """
        commit_index = self.engine.commit_index
        needed = commit_index if goal is None else min(goal, commit_index)
        return self.engine.match_index(peer_id) >= max(needed, self.log.first_index)

    def most_caught_up(self, is_fit: Callable[[str], bool] = bool) -> str | None:
        """Return the connected voter fit to lead that has most of the leader's log, None if there is none.

        By default everybody is: an id is never empty.
        """
        voters = [peer_id for peer_id in self._connected & self.membership.voters if is_fit(peer_id)]
        return max(voters, key=lambda peer_id: (self.engine.match_index(peer_id), peer_id), default=None)

    def transfer(self, peer_id: str) -> Ready | None:
        """Ask `peer_id` to take over at once; None if it does not have the whole log yet."""
        is_voter = peer_id in self.membership.voters
        is_ready = is_voter and self.engine.match_index(peer_id) == self.engine.journal.last_index
        if not self.engine.is_leader or not is_ready:
            return None
        self.engine.transfer(peer_id)
        self._elections.handing_over(peer_id)
        return self._finish(Ready())
