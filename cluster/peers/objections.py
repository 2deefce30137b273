"""Why a node does not let a peer in, by kind, and how it says so. Pure.

The kind is for programs: it decides whether the refused node stops (stop_rules). The text is for people, and
says what to do.
"""

import enum

from cluster.consensus.founding import ADVICE
from cluster.peers.handshake import LogPosition, Objection


class Kind(enum.StrEnum):
    """What is wrong with a peer. It travels as its value; one that is not known here stops nobody."""

    OTHER_DISK = "other-disk"
    """Its id is known with another data directory."""
    REMOVED = "removed"
    """This very data directory was removed from the cluster."""
    OTHER_CLUSTER = "other-cluster"
    """It belongs to another cluster."""
    NOT_A_MEMBER = "not-a-member"
    """The list of this node, which may be old, does not have it."""
    RULES = "rules"
    """It does not know the rules that the cluster follows."""
    GROUP = "group"
    """It belongs to another Raft group."""
    DUPLICATE = "duplicate"
    """Another process that uses its identity is connected, and alive."""
    OLDER_COPY = "older-copy"
    """Its data directory had come further before: it has forgotten what it promised since."""
    FOUNDERS_DIFFER = "founders-differ"
    """It founds another cluster than this node does: the founders of the two are not the same."""


def other_cluster(peer_id: str, *, theirs: str, ours: str) -> Objection:
    """Return what a node of another cluster is told."""
    return Objection(
        f"node {peer_id} belongs to the cluster {theirs[:8]}, and this node to {ours[:8]}: one of the two"
        " has a wrong address in its members or its `peers`, or a copy of another node's files (see 'Nodes of"
        " another cluster' in docs/operating.md)",
        kind=Kind.OTHER_CLUSTER,
    )


def other_disk(peer_id: str, *, known: str, theirs: str) -> Objection:
    """Return what a node is told whose id is known with another disk."""
    return Objection(
        f"node {peer_id} is known here with another data directory (disk {known[:8]}, now"
        f" {theirs[:8]}). A node that lost its disk may have voted and acknowledged what it"
        f" no longer knows, so it cannot come back as {peer_id}: restore its old data directory, or"
        " replace it by a node with a new id, with `holdfast cluster replace` (see 'A node lost its"
        " disk' in docs/operating.md)",
        kind=Kind.OTHER_DISK,
    )


def founding_disk(peer_id: str, *, known: str, theirs: str) -> Objection:
    """Return what a founder is told that comes with another disk before the cluster has ever run."""
    return Objection(
        f"node {peer_id} takes part in the founding of this cluster with disk {known[:8]}, and its data"
        f" directory now is disk {theirs[:8]}. {ADVICE}",
        kind=Kind.OTHER_DISK,
    )


def founders_differ(peer_id: str, founders: str) -> Objection:
    """Return what a node is told that this founder does not found a cluster with."""
    return Objection(
        f"node {peer_id} is not among the founders of this cluster, which are {founders} by `peers` of this"
        " node: correct `peers` on one of the two",
        kind=Kind.FOUNDERS_DIFFER,
    )


def duplicate(peer_id: str) -> Objection:
    """Return what a process is told in whose name another one speaks already."""
    return Objection(
        f"another process with the data directory of node {peer_id} is connected here and alive: one of the"
        " two runs on a copy of the directory. Stop the one that is not to live, then start the other one"
        " again (see 'Copies of a data directory' in docs/operating.md)",
        kind=Kind.DUPLICATE,
    )


def older_copy(peer_id: str, *, heard: LogPosition, theirs: LogPosition) -> Objection:
    """Return what a node is told whose data directory had come further before."""
    return Objection(
        f"the data directory of node {peer_id} is older than it was: it ends with entry {theirs.entry} in"
        f" term {theirs.term} and had come to entry {heard.entry} in term {heard.term}, so it has forgotten"
        " what it promised since. Do not delete anything yet: if this node alone was restored, replace it; if"
        " most nodes were, those that object have what was acknowledged (see 'Copies of a data directory' in"
        " docs/operating.md)",
        kind=Kind.OLDER_COPY,
    )


def removed(peer_id: str, *, is_final: bool = True) -> Objection:
    """Return what a removed node is told; `is_final` if it comes with the disk that was removed."""
    return Objection(
        f"node {peer_id} was removed from this cluster. To have it back, add it again and start it with"
        " an empty data directory and --join (see 'Changing the members' in docs/operating.md)",
        is_final,
        Kind.REMOVED if is_final else Kind.NOT_A_MEMBER,
    )


def not_a_member(peer_id: str) -> Objection:
    """Return what a node is told that the list does not have."""
    return Objection(
        f"node {peer_id} is not a member of this cluster: add it with `holdfast cluster add`, and"
        " start it with an empty data directory and --join",
        kind=Kind.NOT_A_MEMBER,
    )


def rules_too_old(peer_id: str, *, theirs: int, active: int) -> Objection:
    """Return what a node is told that does not know the active rules."""
    return Objection(
        f"node {peer_id} knows rules {theirs} and the cluster follows rules {active}: upgrade"
        f" {peer_id} to the release of the others (see 'Upgrading' in docs/operating.md)",
        kind=Kind.RULES,
    )


def other_group(peer_id: str, *, theirs: int, ours: int) -> Objection:
    """Return what a node of another Raft group is told."""
    return Objection(
        f"node {peer_id} belongs to Raft group {theirs}, and this node to {ours}", kind=Kind.GROUP
    )
