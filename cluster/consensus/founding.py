"""How a new cluster begins: its founders agree on what they are, durably, before anybody votes. Pure.

Each founder is configured with the same ids. The one with the smallest id, the *author*, writes the founding
when it is connected with all others and each has told that it has none: a random cluster id, and for each
founder its address and its disk id. Each founder stores it, if it is true of itself, and tells all others
what it has stored. It is *complete* when every founder has stored it, and only then does a node take part.

So whenever any node takes part, every founder has the disk ids of all on its own disk, and whoever comes
back with another disk is recognised by every other one (decision 13).

Nothing is stored or sent here: `advance` returns what a node knows next, which it stores before it says so.
"""

from collections.abc import Collection, Mapping
from typing import Final

import msgspec

from cluster.config import Address
from cluster.storage.cluster_record import ClusterRecord, Founder, Founding
from lockstate.words.versions import GROUP, GROUPS_COUNT

CLUSTER_ID_LENGTH_MAX: Final = 64
"""The characters of a cluster id, at most; this release makes ids of half as many."""
ADVICE: Final = (
    "No node of this cluster was ever ready unless one that still has its directory has logged event=founded;"
    " only if none of these has: stop all nodes, empty all their data directories, and start them again (see"
    " 'The first start' in docs/operating.md)"
)
"""What an operator is told when a founding cannot go on."""


class News(msgspec.Struct, frozen=True, array_like=True):
    """What a node tells a peer about the founding.

    `configured` are the ids of the founders in its configuration, `founding` what it has stored, and
    `stored_by` those that are known to have stored the same. `is_complete` says that the cluster
    `cluster_id` runs, and that the sender belongs to it. `objection`, if any, says why the sender founds
    nothing at all.
    """

    configured: tuple[str, ...]
    founding: Founding | None = None
    stored_by: tuple[str, ...] = ()
    is_complete: bool = False
    cluster_id: str = ""
    objection: str = ""


class Own(msgspec.Struct, frozen=True):
    """This node: its id, its disk, and the founders in its configuration, with their addresses."""

    node_id: str
    disk_id: str
    configured: Mapping[str, str]


class Peer(msgspec.Struct, frozen=True):
    """A connected peer that has proven itself: its disk, and what it told last on this connection."""

    disk_id: str
    news: News | None = None


class Progress(msgspec.Struct, frozen=True):
    """How far the founding has come on one node.

    `founding` and `is_complete` are on its disk; `stored_by` is told anew after each start.
    """

    founding: Founding | None = None
    stored_by: frozenset[str] = frozenset()
    is_complete: bool = False

    @classmethod
    def of(cls, record: ClusterRecord, node_id: str) -> "Progress":
        """Return what a node knows when it starts."""
        stored_by = frozenset({node_id} if record.founding is not None else ())
        return cls(record.founding, stored_by, record.is_complete)

    def record(self) -> ClusterRecord:
        """Return what must be on the disk before anybody hears of it."""
        cluster_id = self.founding.cluster_id if self.founding is not None and self.is_complete else ""
        return ClusterRecord(cluster_id=cluster_id, founding=self.founding, is_complete=self.is_complete)


def advance(own: Own, progress: Progress, peers: Mapping[str, Peer], new_cluster_id: str) -> Progress:
    """Return what this node knows next; `new_cluster_id` is that of the cluster if it founds it now.

    To be stored before it is told to anybody. `peers` are those connected now.
    """
    if progress.is_complete:
        return progress
    founding = progress.founding or _offered(own, peers) or _written(own, peers, new_cluster_id)
    if founding is None:
        return progress
    stored_by = progress.stored_by | {own.node_id}
    is_complete = False
    for peer_id, peer in peers.items():
        news = peer.news
        if news is None or not _is_founder(founding, peer_id, peer):
            continue
        if news.founding == founding:
            stored_by |= {peer_id, *news.stored_by}
        is_complete |= news.is_complete and news.cluster_id == founding.cluster_id
    stored_by = stored_by.intersection(founding.nodes)
    return Progress(founding, stored_by, is_complete or stored_by == founding.nodes.keys())


def _is_founder(founding: Founding, peer_id: str, peer: Peer) -> bool:
    """Whether a peer's word counts: not if it has another disk than the founding says.

    One that is not a founder joined later, and knows only that the cluster runs.
    """
    founder = founding.nodes.get(peer_id)
    return founder is None or founder.disk_id == peer.disk_id


def _offered(own: Own, peers: Mapping[str, Peer]) -> Founding | None:
    """Return the founding that peers have stored, if there is one only and it is true of this node."""
    offered = [
        peer.news.founding
        for peer in peers.values()
        if peer.news is not None and peer.news.founding is not None
    ]
    is_one = all(founding == offered[0] for founding in offered)
    return offered[0] if offered and is_one and not _untrue(own, offered[0]) else None


def _untrue(own: Own, founding: Founding) -> str:
    """Return what keeps this node from storing a founding, "" if nothing does."""
    if founding.nodes.keys() != own.configured.keys():
        return (
            f"cluster {founding.cluster_id[:8]} is being founded by {listed(founding.nodes)}, and `peers` of"
            f" {own.node_id} names {listed(own.configured)}: correct `peers`"
        )
    if _is_nonsense(founding):
        return f"not a valid founding: {founding}"
    disk_id = founding.nodes[own.node_id].disk_id
    if disk_id != own.disk_id:
        return (
            f"cluster {founding.cluster_id[:8]} is being founded with disk {disk_id[:8]} of {own.node_id},"
            f" and its data directory now is disk {own.disk_id[:8]}. {ADVICE}"
        )
    return ""


def _is_nonsense(founding: Founding) -> bool:
    """Whether a founding is none that any node of this release writes: it would be in the log for ever."""
    disk_ids = {founder.disk_id for founder in founding.nodes.values()}
    try:
        for founder in founding.nodes.values():
            Address.parse(founder.peer)
    except ValueError:
        return True
    is_named = 0 < len(founding.cluster_id) <= CLUSTER_ID_LENGTH_MAX
    is_ours = (founding.group, founding.groups_count) == (GROUP, GROUPS_COUNT)
    return not is_named or not is_ours or "" in disk_ids or len(disk_ids) < len(founding.nodes)


def _written(own: Own, peers: Mapping[str, Peer], cluster_id: str) -> Founding | None:
    """Return the founding that this node writes, None unless it is the author and all others are ready."""
    others = own.configured.keys() - {own.node_id}
    if own.node_id != min(own.configured) or not all(_is_ready(own, peers.get(other)) for other in others):
        return None
    disk_ids = {other: peers[other].disk_id for other in others} | {own.node_id: own.disk_id}
    if len(set(disk_ids.values())) < len(disk_ids):
        return None
    return Founding(
        cluster_id,
        {node_id: Founder(own.configured[node_id], disk_ids[node_id]) for node_id in sorted(own.configured)},
    )


def _is_ready(own: Own, peer: Peer | None) -> bool:
    """Whether a peer is connected, and has told that it is as new as this node and wants the same."""
    if peer is None or peer.news is None:
        return False
    news = peer.news
    is_new = news.founding is None and not news.is_complete and not news.objection
    return is_new and set(news.configured) == own.configured.keys()


def news(own: Own, progress: Progress) -> News:
    """Return what this node tells its peers."""
    founding = progress.founding
    return News(
        tuple(sorted(own.configured)),
        founding,
        tuple(sorted(progress.stored_by)),
        progress.is_complete,
        founding.cluster_id if founding is not None else "",
    )


def objections(own: Own, progress: Progress, peers: Mapping[str, Peer]) -> list[str]:
    """Return what keeps the founding from going on although the peers are there. For people."""
    found = []
    for peer_id, peer in sorted(peers.items()):
        told = peer.news
        if told is None:
            continue
        if told.objection:
            found.append(f"{peer_id} founds nothing: {told.objection}")
        elif told.is_complete and told.founding is None:
            found.append(
                f"{peer_id} belongs to cluster {told.cluster_id[:8]}, which is running: to join it, start"
                f" {own.node_id} with --join"
            )
        elif told.founding is None and set(told.configured) != own.configured.keys():
            found.append(
                f"`peers` of {peer_id} names {listed(told.configured)}, and `peers` of {own.node_id} names"
                f" {listed(own.configured)}: correct one of them"
            )
        elif told.founding is not None and progress.founding not in (None, told.founding):
            found.append(
                f"{peer_id} has stored the founding of cluster {told.founding.cluster_id[:8]}, and"
                f" {own.node_id} that of another. {ADVICE}"
            )
        elif told.founding is not None and progress.founding is None and (why := _untrue(own, told.founding)):
            found.append(why)
    return found + _shared_disks(own, peers)


def _shared_disks(own: Own, peers: Mapping[str, Peer]) -> list[str]:
    """Return which nodes have one disk id: a directory was copied, and copies must not both take part."""
    nodes_by_disk: dict[str, list[str]] = {own.disk_id: [own.node_id]}
    for peer_id, peer in sorted(peers.items()):
        nodes_by_disk.setdefault(peer.disk_id, []).append(peer_id)
    return [
        f"the data directories of {listed(node_ids)} are copies of one another (disk {disk_id[:8]}): give"
        " each node an empty one of its own"
        for disk_id, node_ids in sorted(nodes_by_disk.items())
        if len(node_ids) > 1
    ]


def listed(node_ids: Collection[str]) -> str:
    """Return node ids for people."""
    return ",".join(sorted(node_ids)) or "nobody"
