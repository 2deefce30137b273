"""Data directories of nodes whose cluster was founded."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from cluster.storage.cluster_record import ClusterRecord, Founder, Founding
from cluster.storage.data_directory import DataDir

CLUSTER_ID: Final = "c" * 32


def disks_of(directory: Path, node_ids: Iterable[str]) -> dict[str, str]:
    """Make the data directories of these nodes in `directory`; return their disk ids."""
    disks = {}
    for node_id in node_ids:
        datadir = DataDir.open(directory / node_id, node_id)
        disks[node_id] = datadir.disk_id
        datadir.close()
    return disks


def store_founding(
    datadir: DataDir, addresses: Mapping[str, object], disks: Mapping[str, str]
) -> ClusterRecord:
    """Store that nodes with these addresses and disks founded a cluster; return what the directory knows.

    A node without a disk in `disks` gets the name of one.
    """
    founders = {
        node_id: Founder(str(peer), disks.get(node_id, f"disk-{node_id}"))
        for node_id, peer in sorted(addresses.items())
    }
    founding = Founding(CLUSTER_ID, founders)
    datadir.store_cluster(ClusterRecord(cluster_id=CLUSTER_ID, founding=founding, is_complete=True))
    return datadir.cluster
