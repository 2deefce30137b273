"""How the cluster of a node began, and whether `peers` of its configuration fits to what its log says. Pure.

Members are data: the newest list in the log counts. The configuration says only who founds a new cluster,
and where else a member may be dialed. One that speaks of another cluster than the log is a mistake, which
could cost a majority, so the node does not start with it.
"""

from collections.abc import Collection, Mapping
from typing import NamedTuple

from cluster.config import Address, NodeConfig, format_peers
from cluster.consensus import member_list
from cluster.consensus.member_list import Members
from cluster.errors import ConfigError, DataDirError
from cluster.storage.cluster_record import ClusterRecord


class Beginning(NamedTuple):
    """What counts while the log has no member list. A node that waits for its founding has neither."""

    founded: Members | None = None
    """The first entry of the log of a founded cluster."""
    joins: bool = False
    """Whether this node was made to join a cluster that was there before it."""


def beginning_of(record: ClusterRecord, *, joins: bool) -> Beginning:
    """Return how the cluster of a directory began."""
    if record.founding is not None and record.is_complete:
        return Beginning(member_list.founded(record.founding))
    return Beginning(joins=joins)


class Configured(NamedTuple):
    """What the configuration says of this node's cluster: `peers`, if given, and whether it has a secret."""

    peers: Mapping[str, object]
    has_secret: bool
    takes_peers: bool


def listed_members(record: ClusterRecord, newest: Members) -> Members:
    """Return the members that a directory knows of, however far it has come; none if it is new.

    `newest` is the list that counts.
    """
    if not newest.nodes and record.founding is not None:
        return member_list.founded(record.founding)
    return newest


def check_founded(config: NodeConfig, record: ClusterRecord, *, joins: bool, is_in_use: bool) -> None:
    """Refuse a directory `is_in_use` that does not know what its cluster began with. Raises DataDirError."""
    if is_in_use and not joins and not record.is_complete:
        raise DataDirError(
            f"{config.data_dir}: the directory was in use before its cluster was founded: files of"
            " different directories were mixed, or cluster.json is missing. Restore the directory"
            " from a copy made after the node's last stop (an older one is unsafe), or replace this node"
            " with a new one (new id, empty directory)"
        )


def check_configured(
    config: NodeConfig, record: ClusterRecord, newest: Members, *, joins: bool, has_list: bool
) -> None:
    """Refuse a configuration of another cluster than that in the data directory.

    `newest` is the list that counts; it `has_list` if the log has one. Raises ConfigError, DataDirError.
    """
    if record.cluster_id and newest.cluster_id not in ("", record.cluster_id):
        raise DataDirError(
            f"{config.data_dir}: the log is that of cluster {newest.cluster_id}, and the"
            f" directory belongs to {record.cluster_id}: files of different directories were mixed."
            " Restore the directory from a copy made after the node's last stop (an older one is unsafe)"
        )
    wrong = contradiction(
        Configured(config.peers, bool(config.secret), config.takes_peers),
        config.node_id,
        listed_members(record, newest),
        record.founding.nodes if record.founding is not None else (),
        joins=joins,
        has_list=has_list,
    )
    if wrong:
        raise ConfigError(wrong)


class Differing(NamedTuple):
    """The members, and the peers of a configuration that names others."""

    members: str
    configured: str


def differing(config: NodeConfig, newest: Members, *, joins: bool, has_list: bool) -> Differing | None:
    """Return how the members differ from the nodes that the configuration names, None if they do not."""
    listed = {node_id: member.peer for node_id, member in newest.nodes.items()}
    configured = {node_id: str(address) for node_id, address in config.peers.items()}
    if not has_list or not configured or joins or configured == listed:
        return None
    return Differing(format_peers(listed), format_peers(configured))


def listen_address(config: NodeConfig, newest: Members) -> Address:
    """Return where to listen for peers: if the configuration does not say it, where they look for us."""
    own = newest.nodes.get(config.node_id)
    return config.peer if config.is_peer_given or own is None else Address.parse(own.peer)


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
