"""The founding of the cluster on one node: tells the peers what it has stored, and stores what they tell.

What is decided is in consensus/founding.py. Nothing is told before it is on the disk.
"""

import logging
import secrets
import time
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from msgspec import structs

from cluster.consensus import founding
from cluster.consensus.founding import News, Own, Peer, Progress
from cluster.errors import NodeFailed
from cluster.peers import objections
from cluster.peers.handshake import Objection, Particulars
from cluster.storage.cluster_record import CLUSTER_ID_BYTES, ClusterRecord, Founding
from cluster.storage.data_directory import DataDir

JOINS: Final = "it was started with --join"
"""Why a node founds nothing."""
LONELY_S: Final = 5.0
"""Seconds that a node which others can reach listens before it founds a cluster alone.

Its `peers` may have been lost together with its disk. The nodes that know it as a member of theirs dial it
within three pings and a little; then it founds nothing (entry_check.is_displacing)."""
NEW_S: Final = 600.0
"""Seconds for which a cluster that was founded alone still gives way to one that knows this node otherwise.
An older one does not: somebody else's wrong address must not end it."""

logger = logging.getLogger(__name__)


class FoundingMeans(NamedTuple):
    """What the founding needs of the node."""

    send: Callable[[str, News], object]
    """Sends news to a connected peer."""
    founded: Callable[[Founding], None]
    """Takes part from now on: the founding is complete, and that is on the disk."""
    run: Callable[..., None]
    """Calls a function with arguments; whatever it raises ends the node."""


class FirstStart:
    """One node's part in the founding of its cluster. One thread."""

    def __init__(
        self, datadir: DataDir, configured: Mapping[str, str], means: FoundingMeans, *, joins: bool = False
    ) -> None:
        """Be founded by `configured`, with their addresses; a node that `joins` founds nothing."""
        self._datadir = datadir
        self.founders: Final = configured
        """Where the founders listen, by node id."""
        self._own = Own(datadir.identity.node_id, datadir.disk_id, configured)
        self._means = means
        self._joins = joins
        self._progress = Progress.of(datadir.cluster, self._own.node_id)
        self._peers: dict[str, Peer] = {}
        self._said: list[str] = []
        self._founded_alone_s: float | None = None

    @property
    def is_waiting(self) -> bool:
        """Whether this node must not take part yet: it founds a cluster, and is not sure of all others."""
        return not self._joins and not self._progress.is_complete

    @property
    def began_alone(self) -> bool:
        """Whether this node is about to be a cluster of its own, or has become one just now."""
        founded_s = self._founded_alone_s
        is_new = founded_s is not None and time.monotonic() - founded_s < NEW_S
        return self.is_alone or is_new

    @property
    def is_alone(self) -> bool:
        """Whether this node waits to be a cluster of its own."""
        return self.is_waiting and self._own.configured.keys() == {self._own.node_id}

    def missing(self) -> list[str]:
        """Return the founders that are not known to have stored the founding."""
        return sorted(self._own.configured.keys() - self._progress.stored_by - {self._own.node_id})

    def waits_for(self) -> list[str]:
        """Return what keeps the founding from going on although the peers are there. For people."""
        return list(self._said) if self.is_waiting else []

    def objection(self, peer_id: str, theirs: Particulars, *, is_known: bool) -> Objection | None:
        """Return why a peer is not let in while this node waits, None if the founding has nothing against it.

        A stranger may have joined the cluster that this founder is the last to know of.
        """
        if not self.is_waiting:
            return None
        stored = self._progress.founding
        if not is_known and (stored is None or theirs.cluster_id != stored.cluster_id):
            return objections.founders_differ(peer_id, founding.listed(self._own.configured))
        founder = stored.nodes.get(peer_id) if stored is not None else None
        if founder is not None and founder.disk_id != theirs.disk_id:
            return objections.founding_disk(peer_id, known=founder.disk_id, theirs=theirs.disk_id)
        return None

    def begin(self) -> None:
        """Go on with what is known: a node alone has nobody to wait for."""
        if self.is_waiting:
            self._means.run(self._go_on)

    def belongs_to(self, cluster_id: str) -> None:
        """Store the cluster id that the log has. Raises NodeFailed, also if this directory has another."""
        record = self._datadir.cluster
        if not record.cluster_id:
            self._store(structs.replace(record, cluster_id=cluster_id))
        elif record.cluster_id != cluster_id:
            raise NodeFailed(
                f"the log is that of cluster {cluster_id}, and the directory belongs to {record.cluster_id}:"
                " files of different directories were mixed"
            )

    def peer_up(self, peer_id: str, disk_id: str) -> None:
        """Tell a peer that has just connected what is stored here."""
        if not self.is_waiting:
            return
        self._peers[peer_id] = Peer(disk_id)
        self._means.send(peer_id, self._news())
        self._explain()

    def peer_down(self, peer_id: str) -> None:
        """Forget what a peer told: it may come back as another."""
        self._peers.pop(peer_id, None)

    def heard(self, peer_id: str, news: News) -> None:
        """Take what a connected peer tells."""
        if self.is_waiting:
            if peer_id in self._peers:
                self._peers[peer_id] = Peer(self._peers[peer_id].disk_id, news)
                self._means.run(self._go_on)
        elif not news.is_complete:
            self._means.send(peer_id, self._news())

    def _news(self) -> News:
        if self._progress.founding is not None:
            return founding.news(self._own, self._progress)
        cluster_id = self._datadir.cluster_id
        if cluster_id:
            return News((), is_complete=True, cluster_id=cluster_id)
        return News(tuple(sorted(self._own.configured)), objection=JOINS if self._joins else "")

    def _go_on(self) -> None:
        """Store what follows from what is known, then tell everybody. Raises NodeFailed."""
        progress = founding.advance(
            self._own, self._progress, self._peers, secrets.token_hex(CLUSTER_ID_BYTES)
        )
        if progress == self._progress:
            self._explain()
            return
        self._store(progress.record())
        self._progress = progress
        news = self._news()
        for peer_id in self._peers:
            self._means.send(peer_id, news)
        self._explain()
        if progress.is_complete:
            assert progress.founding is not None
            if len(progress.founding.nodes) == 1:
                self._founded_alone_s = time.monotonic()
            logger.info(
                "event=founded cluster=%s members=%s",
                progress.founding.cluster_id,
                founding.listed(progress.founding.nodes),
            )
            self._peers.clear()
            self._means.founded(progress.founding)

    def _store(self, record: ClusterRecord) -> None:
        try:
            self._datadir.store_cluster(record)
        except OSError as error:
            raise NodeFailed(f"the data directory cannot be written: {error}") from error

    def _explain(self) -> None:
        """Say what keeps the founding from going on, once for each change of it."""
        said = founding.objections(self._own, self._progress, self._peers)
        if said != self._said:
            self._said = said
            for why in said:
                logger.warning("event=founding-waits detail=%r", why)
