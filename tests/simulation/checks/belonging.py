"""Who belongs to the cluster: one cluster id, and nobody takes part who must not.

What docs/operating.md promises: a node whose `peers` contradict its log does not start, a directory that was
refused for good never takes part again, and no node of another cluster is ever counted. In the first
start nobody takes part before every founder has stored the same founding, which is true of its disk, and
nothing of that is ever undone.
"""

from collections.abc import Collection, Mapping

from tests.simulation.checks.report import Report


class Belonging:
    """What is known of the directories and configurations of the nodes."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._cluster_id = ""
        self._refused: set[str] = set()
        self._contradicting: dict[str, Collection[str]] = {}
        self._strange_disks: dict[str, str] = {}
        self._stored: dict[str, tuple[str, bool]] = {}
        """Which founding each disk has stored, and whether as a complete one."""
        self.founders: dict[str, str] = {}
        """The disks of the founders, since any of them took part."""

    def founded_anew(self) -> None:
        """Record that all directories were emptied before any node had taken part."""
        self._cluster_id = ""
        self._refused.clear()
        self._stored.clear()
        self.founders.clear()

    def replaced(self, node_id: str) -> None:
        """Record that a node has another disk than before."""
        self._refused.discard(node_id)

    def refused(self, node_id: str) -> None:
        """Record that a node ended because its directory was refused for good."""
        self._refused.add(node_id)

    def configured(self, node_id: str, peers: Collection[str], *, is_contradicting: bool) -> None:
        """Record the ids in the `peers` that a node is started with from now on."""
        self._contradicting.pop(node_id, None)
        if is_contradicting:
            self._contradicting[node_id] = peers

    def strange_disk(self, disk_id: str, whose: str) -> None:
        """Record a disk that belongs to another cluster."""
        self._strange_disks[disk_id] = whose

    def started(self, node_id: str) -> None:
        """Check that a node may take part that does."""
        if node_id in self._refused:
            self._report.fail("refused-returns", f"{node_id} starts on a directory that was refused for good")
        if node_id in self._contradicting:
            peers = ",".join(sorted(self._contradicting[node_id]))
            self._report.fail(
                "peers-refused", f"{node_id} starts, and its peers, {peers}, contradict its log"
            )

    def stored(
        self, node_id: str, disk_id: str, cluster_id: str, disks: Mapping[str, str], *, is_complete: bool
    ) -> None:
        """Check what a node has stored of the founding: `disks` are those of the founders in it."""
        fail, told = self._report.fail, f"the founding of cluster {cluster_id[:8]}"
        if disks.get(node_id) != disk_id:
            fail("founding-true", f"{node_id} stores {told}, which names another disk than it has")
        before_id, was_complete = self._stored.get(disk_id, (cluster_id, False))
        if before_id != cluster_id or (was_complete and not is_complete):
            fail("founding-kept", f"{node_id} stores {told}, and had stored that of {before_id[:8]}")
        self._stored[disk_id] = cluster_id, is_complete
        if is_complete:
            missing = [
                founder
                for founder, known in sorted(disks.items())
                if self._stored.get(known, ("", False))[0] != cluster_id
            ]
            if missing:
                fail("founded-by-all", f"{node_id} takes part in {told}, not stored by {','.join(missing)}")
            if self.founders and self.founders != disks:
                fail("one-cluster", f"{node_id} completes {told}, and another one was complete before")
            self.founders = dict(disks)

    def speaks(self, node_id: str, disk_id: str) -> None:
        """Check a node that speaks of the log: the founding is complete, and it has the disk named there."""
        if not self.founders:
            self._report.fail("founded-first", f"{node_id} takes part before the cluster was founded")
        elif self.founders.get(node_id, disk_id) != disk_id:
            self._report.fail(
                "founder-stays-out", f"{node_id} takes part with another disk than it founded with"
            )

    def listed(self, node_id: str, cluster_id: str, disk_ids: Collection[str]) -> None:
        """Check the member list that counts for a node: its cluster id, and the disks that it has."""
        if cluster_id:
            self._cluster_id = self._cluster_id or cluster_id
            if cluster_id != self._cluster_id:
                self._report.fail(
                    "one-cluster",
                    f"{node_id} is of cluster {cluster_id[:8]}, others of {self._cluster_id[:8]}",
                )
        for disk_id in disk_ids:
            if disk_id in self._strange_disks:
                whose = self._strange_disks[disk_id]
                self._report.fail("stranger-listed", f"{node_id} has the disk of {whose} in its member list")
