"""A node's part in the founding: what it stores before it tells, whom it answers, and whom it lets in."""

import errno
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cluster.consensus.founding import News
from cluster.errors import NodeFailed
from cluster.peers.first_start import JOINS, FirstStart, FoundingMeans
from cluster.peers.handshake import Particulars
from cluster.peers.objections import Kind
from cluster.storage.cluster_record import ClusterRecord, Founder, Founding
from cluster.storage.data_directory import DataDir
from cluster.storage.journal import Journal

IDS = ("n1", "n2")
PEERS = {"n1": "h:1", "n2": "h:2"}


class Host:
    """A node with a founding: what it sent, what was stored then, and what broke it."""

    def __init__(self, directory: Path, node_id: str = "n1", **options: Any) -> None:
        self.datadir = DataDir.open(directory, node_id)
        self.told: list[tuple[str, News, ClusterRecord]] = []
        self.foundings: list[Founding] = []
        self.failure: Exception | None = None
        means = FoundingMeans(self._send, self.foundings.append, self._run)
        self.first_start = FirstStart(self.datadir, PEERS, means, **options)

    def _send(self, peer_id: str, news: News) -> None:
        self.told.append((peer_id, news, self.datadir.cluster))

    def _run(self, work: Callable[..., None], *args: object) -> None:
        try:
            work(*args)
        except Exception as error:  # noqa: BLE001 - the node's loop keeps it, too
            self.failure = error

    @property
    def last(self) -> News:
        """Return what was told last."""
        return self.told[-1][1]


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    """Return n1 of two founders, the author."""
    host = Host(tmp_path)
    yield host
    host.datadir.close()


def founded(host: Host) -> Founding:
    """Return what the host writes with n2."""
    return Founding(
        host.first_start._progress.founding.cluster_id if host.first_start._progress.founding else "",
        {"n1": Founder("h:1", host.datadir.disk_id), "n2": Founder("h:2", "disk-2")},
    )


def test_what_is_told_is_stored_before(host: Host) -> None:
    """The author tells nothing that is not on its disk, and takes part when n2 has stored the same."""
    first = host.first_start
    first.peer_up("n2", "disk-2")
    assert host.told == [("n2", News(IDS), ClusterRecord())]
    assert first.missing() == ["n2"]
    first.heard("n2", News(IDS))
    founding = founded(host)
    assert len(founding.cluster_id) == 32
    assert host.told[1:] == [
        ("n2", News(IDS, founding, ("n1",), cluster_id=founding.cluster_id), ClusterRecord(founding=founding))
    ]
    assert (host.foundings, first.is_waiting, host.datadir.cluster_id) == ([], True, "")
    first.heard("n2", News(IDS, founding, ("n2",), cluster_id=founding.cluster_id))
    assert (host.foundings, first.is_waiting, host.datadir.cluster_id) == (
        [founding],
        False,
        founding.cluster_id,
    )
    assert (host.last.is_complete, host.last.stored_by, first.missing()) == (True, IDS, [])
    assert host.told[-1][2].is_complete


def test_who_is_complete_answers_those_that_wait(host: Host) -> None:
    """News of one that waits are answered, and news of one that is complete are not: that would never end."""
    first = host.first_start
    first.peer_up("n2", "disk-2")
    first.heard("n2", News(IDS))
    first.heard("n2", News(IDS, founded(host), IDS, is_complete=True, cluster_id=founded(host).cluster_id))
    count = len(host.told)
    first.heard("n2", News(IDS, founded(host), IDS, is_complete=True, cluster_id=founded(host).cluster_id))
    assert len(host.told) == count
    first.peer_up("n2", "disk-2")
    first.heard("n2", News(IDS, founded(host), ("n2",)))
    assert len(host.told) == count + 1
    assert host.last.is_complete


def test_a_restart_goes_on_where_it_was(tmp_path: Path) -> None:
    """The same founding is told again: it is not written anew."""
    host = Host(tmp_path)
    host.first_start.peer_up("n2", "disk-2")
    host.first_start.heard("n2", News(IDS))
    founding = founded(host)
    host.datadir.close()
    Journal.open(tmp_path).close()
    again = Host(tmp_path)
    again.first_start.begin()
    again.first_start.peer_up("n2", "disk-2")
    assert again.last == News(IDS, founding, ("n1",), cluster_id=founding.cluster_id)
    again.datadir.close()


def test_a_disk_that_fails_stops_the_node_and_nothing_is_told(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What could not be stored is not known to anybody else."""

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(host.datadir, "store_cluster", full)
    host.first_start.peer_up("n2", "disk-2")
    host.first_start.heard("n2", News(IDS))
    assert isinstance(host.failure, NodeFailed)
    assert len(host.told) == 1
    assert host.first_start.is_waiting


def test_a_connection_that_ends_takes_with_it_what_was_told(host: Host) -> None:
    """A peer may come back as another, with another disk."""
    first = host.first_start
    first.peer_up("n2", "disk-2")
    first.peer_down("n2")
    first.heard("n2", News(IDS))
    assert host.datadir.cluster == ClusterRecord()
    first.peer_up("n2", "disk-new")
    first.heard("n2", News(IDS))
    stored = host.datadir.cluster.founding
    assert stored is not None
    assert stored.nodes["n2"].disk_id == "disk-new"


def test_who_founds_nothing_says_why(tmp_path: Path) -> None:
    """A founder that waits in vain for a node of another cluster is told; with a cluster id, what it is."""
    host = Host(tmp_path, joins=True)
    first = host.first_start
    first.begin()
    first.peer_up("n2", "disk-2")
    assert (host.told, first.is_waiting) == ([], False)
    first.heard("n2", News(IDS))
    assert host.last == News(IDS, objection=JOINS)
    first.belongs_to("c1")
    assert host.datadir.cluster == ClusterRecord(cluster_id="c1")
    first.heard("n2", News(IDS))
    assert host.last == News((), is_complete=True, cluster_id="c1")
    host.datadir.close()


def test_the_log_of_another_cluster_stops_the_node(tmp_path: Path) -> None:
    """A directory belongs to one cluster; what contradicts that was mixed by hand."""
    host = Host(tmp_path, joins=True)
    host.first_start.belongs_to("c1")
    host.first_start.belongs_to("c1")
    with pytest.raises(NodeFailed, match="the log is that of cluster c2, and the directory belongs to c1"):
        host.first_start.belongs_to("c2")
    host.datadir.close()


def test_whom_a_waiting_founder_lets_in(host: Host) -> None:
    """Founders with the disk that is stored, and who shows that the cluster runs; others are told why not."""
    first = host.first_start

    def kind(peer_id: str, disk_id: str, cluster_id: str = "", *, is_known: bool = True) -> str:
        theirs = Particulars(disk_id, "http://h", cluster_id=cluster_id)
        objection = first.objection(peer_id, theirs, is_known=is_known)
        return "" if objection is None else objection.kind

    assert kind("n2", "any disk") == ""
    assert kind("n9", "disk-9", is_known=False) == Kind.FOUNDERS_DIFFER
    first.peer_up("n2", "disk-2")
    first.heard("n2", News(IDS))
    cluster_id = founded(host).cluster_id
    assert kind("n2", "disk-2") == ""
    assert kind("n2", "disk-new") == Kind.OTHER_DISK
    assert kind("n9", "disk-9", cluster_id, is_known=False) == ""
    assert kind("n9", "disk-9", "another", is_known=False) == Kind.FOUNDERS_DIFFER
    first.heard("n2", News(IDS, founded(host), ("n2",)))
    assert kind("n2", "disk-new") == "", "from here on the members in the log decide"
