"""Whom a node lets in, and how far. Pure: what is known here and what a peer says, in; a verdict, out.

A member is its node id *and* its data directory: one that comes back with another disk may have voted and
acknowledged what it no longer knows. The check of the disk is never switched off by what the peer claims
to know. The list of this node may be old, though, so a peer may be right and this node behind. Then the
peer must prove that it belongs to the same cluster, by what only its members can know: the cluster id, which
a node has from the founding of its cluster or from a leader.

What a copied directory says is all true, so a copy cannot be told from its original here; see duplicates. A
copy that is older than its original was, when it spoke last, is known by how far its journal goes.
"""

from cluster.peers import objections
from cluster.peers.handshake import LogPosition, Objection, Particulars
from cluster.peers.peer_table import Standing, View


def check(view: View, peer_id: str, theirs: Particulars, *, is_known: bool) -> Objection | Standing:
    """Return what is wrong with a peer that knows the secret, or what is taken from it.

    `is_known` tells whether this node has it among its peers.
    """
    if view.cluster_id and theirs.cluster_id and view.cluster_id != theirs.cluster_id:
        return objections.other_cluster(peer_id, theirs=theirs.cluster_id, ours=view.cluster_id)
    if theirs.disk_id in view.committed.removed:
        return objections.removed(peer_id)
    standing = _check_member(view, peer_id, theirs, is_known=is_known)
    forgotten = _forgotten(view, theirs)
    if isinstance(standing, Standing) and forgotten is not None:
        own = LogPosition(theirs.term, theirs.last_index)
        return objections.older_copy(peer_id, heard=forgotten, theirs=own)
    if isinstance(standing, Standing) and theirs.rules < view.rules:
        return objections.rules_too_old(peer_id, theirs=theirs.rules, active=view.rules)
    return standing


def _forgotten(view: View, theirs: Particulars) -> LogPosition | None:
    """Return where the disk of a peer had come to, if it does not reach that now.

    What is committed stays for ever. What was acknowledged to the leader of a term stays in that term: a
    newer leader may replace it.
    """
    heard = LogPosition(*view.heard.get(theirs.disk_id, (0, 0)))
    if theirs.term < heard.term or theirs.last_index < heard.entry:
        return heard
    term, entry = view.acknowledged
    is_short = theirs.term == term and theirs.last_index < entry
    return view.acknowledged if entry and (theirs.term < term or is_short) else None


def _check_member(view: View, peer_id: str, theirs: Particulars, *, is_known: bool) -> Objection | Standing:
    """Return what is wrong with the id and the disk of a peer of this or of no cluster."""
    if not view.latest.nodes and not view.cluster_id:
        # With an empty log it has nothing to lose: it takes the cluster of the first leader.
        is_member = is_known or theirs.members_version
        return Standing.MEMBER if is_member else objections.not_a_member(peer_id)
    is_ours = bool(view.cluster_id) and theirs.cluster_id == view.cluster_id
    is_ahead = is_ours and theirs.members_version > view.committed.version
    if not is_known:
        if is_ahead:
            return Standing.MEMBER
        if peer_id in view.committed.removed.values():
            return objections.removed(peer_id, is_final=False)
        return objections.not_a_member(peer_id)
    disks = view.disks(peer_id)
    if not disks or theirs.disk_id in disks:
        return Standing.MEMBER
    if is_ahead:
        return Standing.LEADER_ONLY
    return objections.other_disk(peer_id, known=min(disks), theirs=theirs.disk_id)


def is_displacing(view: View, theirs: Particulars, *, began_alone: bool) -> bool:
    """Whether this node, a cluster of its own or about to be, has the place of a member of another one.

    That cluster counts on a node with this id, reached it at this address, and knows its disk, which is not
    this one: it was lost, and the node was started with an empty directory and without its peers.
    `began_alone` tells whether that can be: a cluster that is older was only reached by a wrong address.
    """
    if not began_alone or not theirs.cluster_id or theirs.cluster_id == view.cluster_id:
        return False
    return len(view.latest.voters) <= 1 and theirs.your_disk_id not in ("", view.disk_id)
