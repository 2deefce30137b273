"""A cluster that an earlier release began gets its cluster id, once every member can read a list with one.

Until then its nodes have their first members from their configurations. The leader writes the list of format
2 when the rules that know it are active, all members are connected and their disks are known. From its commit
on this cluster is like one that was founded.
"""

import logging
import secrets
from collections.abc import Callable
from typing import Final

from cluster.consensus import member_list
from cluster.consensus.member_list import FORMAT
from cluster.consensus.replica import Replica
from cluster.storage.cluster_record import CLUSTER_ID_BYTES

RULES_WITH_CLUSTER: Final = 3
"""From these rules on a list may carry a cluster id: every member reads it."""

logger = logging.getLogger(__name__)


class Adoption:
    """Writes the first list with a cluster id when this node leads. One thread."""

    def __init__(
        self, replica: Replica, disk_ids: Callable[[], dict[str, str]], rules: Callable[[], int]
    ) -> None:
        """`disk_ids` returns those of this node and of those it has met, `rules` the active ones."""
        self._replica = replica
        self._disk_ids = disk_ids
        self._rules = rules

    def step(self) -> bool:
        """Propose the list if it is time, and tell whether it was. Called after ticks."""
        replica = self._replica
        present = replica.membership.latest
        if (
            present.format != FORMAT
            or not replica.role.is_leader
            or self._rules() < RULES_WITH_CLUSTER
            or not replica.may_change_members
        ):
            return False
        disk_ids = self._disk_ids()
        if present.learners or not present.nodes.keys() <= replica.reachable() & disk_ids.keys():
            return False
        new = member_list.with_cluster(present, secrets.token_hex(CLUSTER_ID_BYTES), disk_ids)
        logger.info("event=cluster-named cluster=%s members=%s", new.cluster_id, new)
        replica.change_members(new)
        return True
