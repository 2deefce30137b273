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


def contradiction(
    configured: Mapping[str, object], members: Members, founders: Collection[str], *, joins: bool
) -> str:
    """Return what is wrong with `peers` in a directory whose log has the list `members`, "" if nothing is.

    `founders` are the ids that the cluster began with, as far as this directory knows. `configured` may name
    exactly these; or all present members, and besides them only nodes that were removed. A node that `joins`
    need not name all members.
    """
    ids, present = set(configured), set(members.nodes)
    known = present | set(founders) | set(members.removed.values())
    if not ids or not present or ids == set(founders) or (ids <= known and (joins or ids >= present)):
        return ""
    unknown = ids - known
    addresses = {node_id: member.peer for node_id, member in members.nodes.items()}
    what = f"the log does not know {_listed(unknown)}" if unknown else f"{_listed(present - ids)} is missing"
    return (
        f"peers: {format_peers({node_id: str(address) for node_id, address in configured.items()})!r}"
        f" contradicts the log of this node: {what}. Its members are {format_peers(addresses)!r}. Members are"
        " added and removed with `holdfast cluster add` and `remove`, never in the configuration: correct"
        " `peers`, or leave it out; nothing was changed (see 'The first start' in docs/operating.md)"
    )


def _listed(node_ids: Collection[str]) -> str:
    return ",".join(sorted(node_ids))
