"""How the cluster of a node began, and whether `peers` of its configuration fits to what its log says. Pure.

Members are data: the newest list in the log counts. The configuration says only who founds a new cluster,
and where else a member may be dialed. One that speaks of another cluster than the log is a mistake, which
could cost a majority, so the node does not start with it.
"""

from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

from cluster.config import format_peers
from cluster.consensus import member_list
from cluster.consensus.member_list import Members
from cluster.storage.cluster_record import ClusterRecord

JOINS: Final = "it was started with --join"
EARLIER: Final = (
    "it belongs to a cluster that an earlier release began. A node that has no part in that yet joins it with"
    " a new id, by `holdfast cluster add` and --join"
)


class Beginning(NamedTuple):
    """What counts while the log has no member list.

    `first` is the list of a cluster that an earlier release began: its nodes have it from their
    configurations. `founded` is the first entry of the log of a founded cluster. `objection` says why this
    node founds no cluster. None of them is there while a node waits for its founding.
    """

    first: Members = Members()
    founded: Members | None = None
    objection: str = ""

    @property
    def joins(self) -> bool:
        """Whether this node was made to join a cluster that was there before it."""
        return self.objection == JOINS


def beginning_of(
    record: ClusterRecord, configured: Mapping[str, object], *, joins: bool, is_in_use: bool
) -> Beginning:
    """Return how the cluster of a directory began; `is_in_use` if it has a log, a vote or a snapshot."""
    if record.founding is not None:
        return Beginning(founded=member_list.founded(record.founding) if record.is_complete else None)
    if joins:
        return Beginning(objection=JOINS)
    if record.cluster_id:
        return Beginning(objection=EARLIER)
    if is_in_use:
        return Beginning(member_list.founders(configured), objection=EARLIER)
    return Beginning()


class Configured(NamedTuple):
    """What the configuration says of this node's cluster: `peers`, if given, and whether it has a secret."""

    peers: Mapping[str, object]
    has_secret: bool
    takes_peers: bool


def met_founders(
    node_id: str, known: Collection[str], configured: Collection[str], *, joins: bool, has_log: bool
) -> list[str]:
    """Return the founders of a cluster that an earlier release began, as far as a directory knows them.

    `known` are the peers whose disks it remembers. It had met all founders before anything came into its log;
    until then, without a log, `configured` may also name those that it has yet to meet.
    """
    met = sorted({node_id, *known})
    if joins or not (has_log or (known and not set(met) <= set(configured))):
        return []
    return met


def listed_members(record: ClusterRecord, newest: Members, beginning: Beginning, disks: Members) -> Members:
    """Return the members that a directory knows of, however far it has come; none if it is new.

    `newest` is the list that counts. In a cluster of an earlier release that is the configuration's as long
    as no member was changed, so those count whose disks are known here: `disks`. So they do before the node
    has voted: what a founding of this release stores is another file.
    """
    if not newest.nodes and record.founding is not None:
        return member_list.founded(record.founding)
    return disks if newest == beginning.first else newest


def contradiction(
    configured: Configured,
    node_id: str,
    members: Members,
    founders: Collection[str],
    *,
    joins: bool,
    has_list: bool,
) -> str:
    """Return what is wrong with the configuration for a directory that knows `members`, "" if nothing is.

    `founders` are the ids that the cluster began with, as far as this directory knows. `peers` may name
    exactly these; or all present members, and besides them only nodes that were removed. A node that `joins`
    need not name all members. Without `peers` the log tells them all, if it `has_list`.
    """
    ids, present = set(configured.peers), set(members.nodes)
    if present - {node_id} and not configured.has_secret:
        return (
            f"secret: none is given, and the cluster of this node has the members {_addresses(members)!r}:"
            " give it their secret (--secret-file)"
        )
    if present - {node_id} and not configured.takes_peers:
        return f"peer: needs a port above 0; the members are {_addresses(members)!r}"
    if not ids and not has_list and present - {node_id}:
        return f"peers: none are given, and no log names the founders {_listed(present)} yet: give them"
    known = present | set(founders) | set(members.removed.values())
    if not ids or not present or ids == set(founders) or (ids <= known and (joins or ids >= present)):
        return ""
    told = format_peers({each: str(address) for each, address in configured.peers.items()})
    unknown = _listed(ids - known)
    what = f"{unknown} is unknown there" if unknown else f"{_listed(present - ids)} is missing"
    return (
        f"peers: {told!r} contradicts what this node has stored, where the members are"
        f" {_addresses(members)!r}: {what}. Members are added and removed with `holdfast cluster add` and"
        " `remove`, never in the configuration. Correct `peers`, or leave it out (see 'The first start' in"
        " docs/operating.md)"
    )


def _addresses(members: Members) -> str:
    return format_peers({node_id: member.peer for node_id, member in members.nodes.items()})


def _listed(node_ids: Collection[str]) -> str:
    return ",".join(sorted(node_ids))
