"""Defects that let in who does not belong to the cluster, or let a configuration decide who does."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from msgspec import structs

import cluster.assembly
import cluster.peers.peering
from cluster.config import NodeConfig
from cluster.consensus import beginning, founding
from cluster.consensus.founding import Own, Peer, Progress
from cluster.consensus.member_list import MemberRecord, Members
from cluster.consensus.membership import Membership
from cluster.consensus.replica import Replica
from cluster.peers import entry_check
from cluster.peers.first_start import FirstStart
from cluster.peers.handshake import Objection, Particulars
from cluster.peers.peer_table import Standing, View
from cluster.peers.peering import Peering
from cluster.peers.shut_out import ShutOut
from cluster.storage import data_directory
from cluster.storage.cluster_record import ClusterRecord, Founding
from cluster.storage.data_directory import DataDir, Identity
from cluster.storage.files import Files
from cluster.storage.journal_format import LogEntry
from tests.simulation.mutations.mutation import Mutation, Surroundings, replaced, together

_WRONG_PEERS: Final = Surroundings(
    rates={"wrong-peers": 8.0, "kill": 1.0}, fault_s=(2.0, 8.0), settings={"compact_entries": 1_000}
)
_FIRST_START: Final = Surroundings(
    rates={"early-lost-disk": 1.0}, minutes=0.5, settings={"clients_count": 1, "start_s": 2.0}
)

STORED_LATE_S: Final = 0.02


def _contradicts_never(*_: object, **__: object) -> str:
    """Find nothing wrong with any configuration."""
    return ""


def _begin_as_configured(
    config: NodeConfig, _first: Members, *disk: Any, founded: Members | None, **means: Any
) -> Replica:
    """Let the configuration say with which nodes a cluster began that has begun."""
    peers = config.founders.items() if founded is not None else ()
    first = Members(
        {node_id: MemberRecord(str(address), is_voter=True) for node_id, address in sorted(peers)}
    )
    return Replica(config, first, *disk, founded=founded, **means)


def _follow_but_the_first(
    membership: Membership, last_index: int, term_at: Callable[[int], int | None], entries: Iterable[LogEntry]
) -> bool:
    """Look at all member lists in the log but that of the founding."""
    return _follow(membership, last_index, term_at, [entry for entry in entries if entry[1] > 2])


def _forget_refusal(_directory: DataDir, _reason: str) -> None:
    """Remember nothing."""


def _let_in_any_cluster(view: View, peer_id: str, theirs: Particulars, *, is_known: bool) -> Any:
    """Let in whoever belongs to another cluster."""
    if view.cluster_id != theirs.cluster_id:
        return Standing.MEMBER
    return entry_check.check(view, peer_id, theirs, is_known=is_known)


def _speaks_never(_peering: Peering, _peer_id: str, _theirs: Particulars) -> bool:
    """Take every process for the only one of its node."""
    return False


def _hear_nothing(_shut_out: ShutOut, _peer_id: str, _address: str, _objection: Objection) -> None:
    """Take part whatever voters say of this directory."""


def _forgets_nothing(_view: View, _theirs: Particulars) -> None:
    """Find no directory that had come further before."""


def _displaces_nobody(_view: View, _theirs: Particulars, *, began_alone: bool) -> bool:
    """Stay, whoever was here before."""
    del began_alone
    return False


def _load_any_identity(path: Path, node_id: str, files: Files, *, joins: bool) -> Identity:
    """Take a directory for that of this node, whosever it is."""
    file = path / data_directory.IDENTITY_NAME
    if not files.exists(file):
        return _load_identity(path, node_id, files, joins=joins)
    return structs.replace(data_directory._decode(file, Identity, files), node_id=node_id)


def _true_of_any_disk(own: Own, offered: Founding) -> str:
    """Find a founding true of this node, whichever disk that names."""
    named = offered.nodes[own.node_id].disk_id if own.node_id in offered.nodes else own.disk_id
    return _untrue(structs.replace(own, disk_id=named), offered)


def _founder_with_any_disk(_founding: Founding, _peer_id: str, _peer: Peer) -> bool:
    """Take the word of a founder with any disk."""
    return True


def _objects_to_no_disk(
    first_start: FirstStart, peer_id: str, theirs: Particulars, *, is_known: bool
) -> Objection | None:
    """Let a founder in whichever disk it comes with."""
    stored = first_start._progress.founding
    if stored is not None and peer_id in stored.nodes:
        theirs = structs.replace(theirs, disk_id=stored.nodes[peer_id].disk_id)
    return _founding_objection(first_start, peer_id, theirs, is_known=is_known)


def _complete_with_most(
    own: Own, progress: Progress, peers: Mapping[str, Peer], new_cluster_id: str
) -> Progress:
    """Be sure of a founding that a majority has stored."""
    known = _advance(own, progress, peers, new_cluster_id)
    if known.founding is None:
        return known
    is_most = len(known.stored_by) * 2 > len(known.founding.nodes)
    return structs.replace(known, is_complete=known.is_complete or is_most)


def _store_later(first_start: FirstStart, record: ClusterRecord) -> None:
    """Tell the peers at once what is stored a little later."""
    asyncio.get_running_loop().call_later(STORED_LATE_S, _store_founding, first_start, record)


_untrue: Final = founding._untrue
_advance: Final = founding.advance
_founding_objection: Final = FirstStart.objection
_store_founding: Final = FirstStart._store
_load_identity: Final = data_directory._load_identity
_follow: Final[Callable[..., bool]] = Membership.follow

FOUND_WITH_ANY_DISK: Final = together(
    replaced(founding, "_untrue", _true_of_any_disk),
    replaced(founding, "_is_founder", _founder_with_any_disk),
    replaced(FirstStart, "objection", _objects_to_no_disk),
)
"""The founding does not compare the disks of founders."""

BELONGING: Final = (
    Mutation(
        name="wrong-peers-accepted",
        sentence="A node starts with `peers` that contradict its log.",
        found_by=("peers-refused",),
        apply=replaced(beginning, "contradiction", _contradicts_never),
        surroundings=_WRONG_PEERS,
    ),
    Mutation(
        name="founders-from-configuration",
        sentence="The configuration says who began the cluster, not the first entry of the log.",
        found_by=("peers-refused", "raft-replay", "one-leader-per-term", "elected-by-majority"),
        apply=together(
            replaced(beginning, "contradiction", _contradicts_never),
            replaced(cluster.assembly, "Replica", _begin_as_configured),
            replaced(Membership, "follow", _follow_but_the_first),
        ),
        surroundings=_WRONG_PEERS,
    ),
    Mutation(
        name="refusal-not-remembered",
        sentence="A directory that was refused for good does not remember it.",
        found_by=("refused-returns",),
        apply=replaced(DataDir, "remember_refusal", _forget_refusal),
        surroundings=Surroundings(rates={"lost-disk": 10.0, "kill": 2.0}, fault_s=(8.0, 16.0)),
    ),
    Mutation(
        name="other-cluster-let-in",
        sentence="Nodes of another cluster with the same secret are let in.",
        found_by=("stranger-let-in",),
        apply=replaced(cluster.peers.peering, "check", _let_in_any_cluster),
        surroundings=Surroundings(
            rates={"other-cluster": 4.0, "kill": 0.5}, fault_s=(15.0, 30.0), settings={"clients_count": 1}
        ),
    ),
    Mutation(
        name="copies-take-turns",
        sentence="A process is let in while another one with the same data directory is connected and alive.",
        found_by=("stranger-let-in",),
        apply=replaced(Peering, "_speaks_already", _speaks_never),
        surroundings=Surroundings(rates={"copies": 10.0}, fault_s=(1.0, 4.0), settings={"clients_count": 1}),
    ),
    Mutation(
        name="copies-lead",
        sentence="A process that is told that it runs on a copy of a data directory goes on.",
        found_by=("copy-leads",),
        apply=replaced(ShutOut, "said", _hear_nothing),
        surroundings=Surroundings(
            rates={"all-copied": 4.0}, fault_s=(15.0, 20.0), settings={"clients_count": 1}
        ),
    ),
    Mutation(
        name="older-copy-let-in",
        sentence="A node is let in with a data directory that is older than the one it had.",
        found_by=("stranger-heard",),
        apply=replaced(entry_check, "_forgotten", _forgets_nothing),
        surroundings=Surroundings(rates={"older-copy": 6.0}, fault_s=(12.0, 16.0)),
    ),
    Mutation(
        name="directory-of-another-taken",
        sentence="A node takes the data directory of another one for its own.",
        found_by=("stranger-starts",),
        apply=replaced(data_directory, "_load_identity", _load_any_identity),
        surroundings=Surroundings(rates={"copies": 10.0}, fault_s=(1.0, 4.0), settings={"clients_count": 1}),
    ),
    Mutation(
        name="empty-member-stays",
        sentence="A member that lost its disk and its peers goes on as a cluster of its own.",
        found_by=("gives-way",),
        apply=replaced(cluster.peers.peering, "is_displacing", _displaces_nobody),
        surroundings=Surroundings(
            rates={"lost-alone": 4.0}, fault_s=(15.0, 30.0), settings={"clients_count": 1}
        ),
    ),
    Mutation(
        name="founding-with-any-disk",
        sentence="The founding does not compare the disks of founders.",
        found_by=("founding-true", "founder-stays-out"),
        apply=FOUND_WITH_ANY_DISK,
        surroundings=_FIRST_START,
    ),
    Mutation(
        name="founded-by-most",
        sentence="A founding is complete as soon as most founders have stored it.",
        found_by=("founded-by-all",),
        apply=replaced(founding, "advance", _complete_with_most),
        surroundings=_FIRST_START,
    ),
    Mutation(
        name="founding-told-first",
        sentence="A founder tells that it has stored the founding before that is on its disk.",
        found_by=("founded-by-all",),
        apply=replaced(FirstStart, "_store", _store_later),
        surroundings=_FIRST_START,
    ),
)
