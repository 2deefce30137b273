"""Whom the certificate of a node names, and whether that is whom this node means. Pure.

A certificate of a node has a URI among its names (subjectAltName):

    holdfast://CLUSTER/NODE_ID

CLUSTER is the cluster id, 32 hexadecimal digits; or a name that the operator has chosen, because there is no
cluster id before the first start. Nobody configures that name: it is the one in a node's own certificate. So
a peer has to show the id of this cluster, or a name that this node's own certificate has as well. What looks
like an id and is not that of this cluster counts for nothing, as soon as this node knows its own.
"""

import hashlib
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from cluster.peers.cuts import Cut

_URI: Final = re.compile(
    r"holdfast://([A-Za-z0-9][A-Za-z0-9._-]{0,62})/([A-Za-z0-9][A-Za-z0-9._-]{0,62})", re.ASCII
)
_CLUSTER_ID: Final = re.compile(r"[0-9a-f]{32}", re.ASCII)


class PeerName(NamedTuple):
    """One name of a certificate: a node of a cluster."""

    cluster: str
    node_id: str


Names = frozenset[PeerName]


class Shown(NamedTuple):
    """What the two sides of a link with TLS have shown each other."""

    names: Names
    """Whom the certificate of the other side names."""
    theirs: str
    """The digest of that certificate."""
    ours: str
    """The digest of the certificate that this side has shown."""
    serial: int = -1
    """The serial number of the certificate of the other side."""


def digest_of(certificate: bytes) -> str:
    """Return what tells one certificate (its bytes in DER form) from all others."""
    return hashlib.sha256(certificate).hexdigest()


def names_in(certificate: Mapping[str, Any]) -> Names:
    """Return whom a certificate names, in the form of ssl.SSLSocket.getpeercert; there may be several."""
    uris = (str(value) for kind, value in certificate.get("subjectAltName", ()) if kind == "URI")
    found = (_URI.fullmatch(uri) for uri in uris)
    return frozenset(PeerName(*match.groups()) for match in found if match is not None)


def clusters_of(names: Names, node_id: str, cluster_id: str) -> frozenset[str]:
    """Return by which names of its cluster these name a node; `cluster_id` is empty while it is not known."""
    named = (name.cluster for name in names if name.node_id == node_id)
    return frozenset(
        cluster for cluster in named if not cluster_id or cluster == cluster_id or not is_cluster_id(cluster)
    )


def is_cluster_id(cluster: str) -> bool:
    """Whether this is a cluster id, and not a name that somebody has chosen."""
    return _CLUSTER_ID.fullmatch(cluster) is not None


def fault_in(shown: Names, node_id: str, ours: frozenset[str]) -> tuple[Cut, str] | None:
    """Return what is wrong with the certificate of a peer that is to be `node_id`, None if nothing is.

    `ours` are the names of this cluster, by which this node's own certificate calls it, and its id.
    """
    if node_id not in (name.node_id for name in shown):
        return Cut.CERTIFICATE_NODE, f"its certificate names {told(shown)}, and not node {node_id}"
    if not any(name.cluster in ours for name in shown if name.node_id == node_id):
        known = ", ".join(sorted(ours)) or "none"
        reason = f"its certificate names {told(shown)}, and this cluster is called {known}"
        return Cut.CERTIFICATE_CLUSTER, reason
    return None


def told(names: Iterable[PeerName]) -> str:
    """Write whom a certificate names."""
    uris = sorted(f"holdfast://{name.cluster}/{name.node_id}" for name in names)
    return ", ".join(uris) or "no node (no URI holdfast://CLUSTER/NODE_ID)"
