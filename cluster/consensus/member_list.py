"""Who belongs to the cluster: the member list as a value, and the changes it allows. Pure.

The list stands in the log as an entry of its own, and counts from the moment it is *in* the log, committed or
not (Ongaro's dissertation, section 4.1). Each change adds, promotes or removes one node, so that any majority
of the old list and any of the new one share a node. A node that joins is a *learner* first: it gets the log
and counts for nothing until it has caught up (section 4.2.1).
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final

import msgspec
from msgspec import structs

from cluster.config import NODES_COUNT_MAX
from cluster.errors import MemberChangeRefused, MemberNotFound
from cluster.storage.cluster_record import PLACEMENT_FIRST, SLOTS_ALL, Founding
from cluster.storage.journal_format import LogEntry
from lockstate.words.versions import GROUP, GROUPS_COUNT

FORMAT: Final = 1
"""The format of lists in the log and in snapshots."""
REMOVED_COUNT_MAX: Final = 64
"""So many removed disks are remembered, to tell them why they are not let in. Forgetting one costs the reason
only: it is still not let in."""
UNKNOWN_DISK: Final = "unknown disk of"
"""Stands for the disk of a node that was removed before anybody met it. No disk id has a space."""


class MemberRecord(msgspec.Struct, frozen=True, array_like=True):
    """One node: its peer address, whether it votes and counts, and its disk id ("" until somebody met it)."""

    peer: str
    is_voter: bool
    disk_id: str = ""


class Members(msgspec.Struct, frozen=True, array_like=True):
    """The member list. `removed` maps the disk ids of nodes that were removed to their node ids.

    A removed disk stays removed: its node may come back under its id, but only with an empty directory.
    `version` counts the changes since the cluster began. `cluster_id` is made at the founding and never
    changes; see storage.cluster_record.Founding for the fields behind it.

    A restored cluster begins with one voter, and `is_forming` until more than half of its nodes vote: before
    that it serves nobody. A node takes part in one cluster only. So if others of these nodes were restored as
    well, by mistake or of another file, only one of these clusters ever serves (decision 24).
    """

    nodes: dict[str, MemberRecord] = {}
    removed: dict[str, str] = {}
    version: int = 0
    format: int = FORMAT
    cluster_id: str = ""
    group: int = GROUP
    groups_count: int = GROUPS_COUNT
    slots: tuple[tuple[int, int], ...] = SLOTS_ALL
    placement_version: int = PLACEMENT_FIRST
    is_forming: bool = False

    @property
    def serves(self) -> bool:
        """Whether the cluster takes requests: not while it forms, after a restore."""
        return not self.is_forming

    @property
    def voters(self) -> frozenset[str]:
        """Return the nodes that vote and count for a majority."""
        return frozenset(node_id for node_id, member in self.nodes.items() if member.is_voter)

    @property
    def learners(self) -> frozenset[str]:
        """Return the nodes that are only catching up."""
        return frozenset(self.nodes) - self.voters

    def __str__(self) -> str:
        """List the nodes, for people."""
        return ",".join(
            f"{node_id}{'' if member.is_voter else '(joining)'}" for node_id, member in self.nodes.items()
        )

    def disk_id(self, node_id: str) -> str:
        """Return the disk id that the list knows of a node, "" if none."""
        member = self.nodes.get(node_id)
        return member.disk_id if member is not None else ""


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Members)


class MembersUnreadable(Exception):
    """These bytes are not a member list that this version knows."""


def encode(members: Members) -> bytes:
    """Return the list as bytes."""
    return _encoder.encode(members)


def decode(data: bytes) -> Members:
    """Return the list that `data` is. Raises MembersUnreadable."""
    try:
        members: Members = _decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise MembersUnreadable(f"no member list of this version: {error}") from error
    if members.format != FORMAT:
        raise MembersUnreadable(f"a member list of format {members.format}; this version reads {FORMAT}")
    if members.group != GROUP:
        raise MembersUnreadable(f"a member list of Raft group {members.group}")
    return members


def founded(founding: Founding) -> Members:
    """Return the list that a founded cluster begins with: the first entry of its log."""
    return Members(
        {
            node_id: MemberRecord(founder.peer, is_voter=True, disk_id=founder.disk_id)
            for node_id, founder in sorted(founding.nodes.items())
        },
        cluster_id=founding.cluster_id,
        group=founding.group,
        groups_count=founding.groups_count,
        slots=founding.slots,
        placement_version=founding.placement_version,
    )


def restored(node_id: str, disk_id: str, peers: Mapping[str, str], cluster_id: str) -> Members:
    """Return the list that a restored cluster begins with: one voter, and `peers` that are to join it."""
    nodes = {
        peer_id: MemberRecord(
            peer, is_voter=peer_id == node_id, disk_id=disk_id if peer_id == node_id else ""
        )
        for peer_id, peer in sorted(peers.items())
    }
    return _formed(Members(nodes, cluster_id=cluster_id, is_forming=True))


def _formed(members: Members) -> Members:
    """Return a list that forms no longer once more than half of its nodes vote."""
    is_forming = members.is_forming and not has_majority(members.nodes, members.voters)
    return structs.replace(members, is_forming=is_forming)


def has_majority(voters: Collection[str], those: Collection[str]) -> bool:
    """Whether `those` contain more than half of `voters`."""
    return 2 * len(set(voters) & set(those)) > len(voters)


# -- changes: a list in, a list out; MemberChangeRefused says what is wrong with it --------------------------


def with_learner(members: Members, node_id: str, peer: str) -> Members:
    """Return the list with a new node that is to catch up."""
    if len(members.nodes) >= NODES_COUNT_MAX:
        raise MemberChangeRefused(f"there are {NODES_COUNT_MAX} nodes already, as many as a cluster may have")
    for other, member in members.nodes.items():
        if other == node_id:
            raise MemberChangeRefused(
                f"{node_id} is a member already, at {member.peer}. If it is elsewhere now, with its data"
                " directory, move it: `holdfast cluster move`; if it has a new directory, remove it first"
            )
        if member.peer == peer:
            raise MemberChangeRefused(f"{peer} is the address of {other}")
    return _with(members, {**members.nodes, node_id: MemberRecord(peer, is_voter=False)})


def moved(members: Members, node_id: str, peer: str) -> Members:
    """Return the list with a node at another address: the same node, with its disk and its vote.

    Majorities are the same before and after. Raises MemberNotFound.
    """
    member = _member(members, node_id)
    for other, known in members.nodes.items():
        if other != node_id and known.peer == peer:
            raise MemberChangeRefused(f"{peer} is the address of {other}")
    return _with(members, {**members.nodes, node_id: structs.replace(member, peer=peer)})


def promoted(members: Members, node_id: str, disk_id: str) -> Members:
    """Return the list with a learner made a voter, whose disk all shall know from now on."""
    learner = members.nodes[node_id]
    assert not learner.is_voter, f"{node_id} votes already"
    return _with(
        members, {**members.nodes, node_id: MemberRecord(learner.peer, is_voter=True, disk_id=disk_id)}
    )


def without(members: Members, node_id: str, disk_id: str, reachable: Collection[str]) -> Members:
    """Return the list without a node, if those that stay have a majority that can be reached.

    `disk_id` is the node's, "" if it is not known. Raises MemberNotFound.
    """
    member = _member(members, node_id)
    remaining = members.voters - {node_id}
    if member.is_voter and not remaining:
        raise MemberChangeRefused(f"{node_id} is the only node that votes: nothing would be left")
    if member.is_voter and not has_majority(remaining, reachable):
        raise MemberChangeRefused(
            f"without {node_id} the cluster would lose its quorum: of {_listed(remaining)} only"
            f" {_listed(remaining & set(reachable)) or 'none'} can be reached"
        )
    removed = dict(members.removed)
    removed[disk_id or member.disk_id or f"{UNKNOWN_DISK} {node_id}"] = node_id
    kept = dict(list(removed.items())[-REMOVED_COUNT_MAX:])
    nodes = {other: kept_member for other, kept_member in members.nodes.items() if other != node_id}
    return _with(structs.replace(members, removed=kept), nodes)


def _member(members: Members, node_id: str) -> MemberRecord:
    """Return a node of the list. Raises MemberNotFound."""
    member = members.nodes.get(node_id)
    if member is None:
        raise MemberNotFound(
            f"no member is called {node_id!r}; there are {', '.join(sorted(members.nodes)) or 'none'}"
        )
    return member


def can_promote(members: Members, node_id: str, reachable: Collection[str]) -> bool:
    """Whether the voters, with this learner among them, would have a majority that can be reached."""
    return has_majority(members.voters | {node_id}, reachable)


def _with(members: Members, nodes: dict[str, MemberRecord]) -> Members:
    """Return the list with other nodes, in order of their ids."""
    nodes = dict(sorted(nodes.items()))
    return _formed(structs.replace(members, nodes=nodes, version=members.version + 1))


def _listed(node_ids: Iterable[str]) -> str:
    return ", ".join(sorted(node_ids))


# -- the lists of a log --------------------------------------------------------------------------------------


class MembersLog:
    """The member lists in a node's log, so that the newest one is known after every append and every cut.

    `base` is the list before all of them: that of the snapshot, or the one that the cluster began with.
    """

    def __init__(self, base: Members) -> None:
        self._base = base
        self._lists: list[tuple[int, int, Members]] = []

    @property
    def latest(self) -> Members:
        """Return the newest list in the log: the one that counts."""
        return self._lists[-1][2] if self._lists else self._base

    @property
    def latest_index(self) -> int:
        """Return where the newest list stands in the log; 0 if it is the base."""
        return self._lists[-1][0] if self._lists else 0

    def at(self, index: int) -> Members:
        """Return the list that counted when the log ended at `index`."""
        for known, _, members in reversed(self._lists):
            if known <= index:
                return members
        return self._base

    def append(self, index: int, term: int, members: Members) -> None:
        """Record a list at the end of the log."""
        self._lists.append((index, term, members))

    def follow(
        self,
        last_index: int,
        term_at: Callable[[int], int | None],
        entries: Iterable[LogEntry],
        parse: Callable[[bytes], Members | None],
    ) -> None:
        """Bring this up to date after the log was cut and `entries` were perhaps appended.

        `last_index` and `term_at` (None: compacted) tell what the log holds now. A list that was cut off is
        forgotten.
        """
        while self._lists:
            index, term, _ = self._lists[-1]
            if index <= last_index and term_at(index) in (None, term):
                break
            self._lists.pop()
        for command, index, term in entries:
            members = parse(command)
            if members is not None and index > self.latest_index and term_at(index) == term:
                self.append(index, term, members)

    def committed(self, index: int) -> None:
        """Forget lists that can never count again: everything up to `index` is committed."""
        while len(self._lists) > 1 and self._lists[1][0] <= index:
            self._base = self._lists.pop(0)[2]

    def restart(self, base: Members) -> None:
        """Begin anew behind a snapshot with the list `base`."""
        self._base = base
        self._lists.clear()
