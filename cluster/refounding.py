"""A new cluster out of a state that is left: the data directory of its first node.

The state comes from a backup, or from the directory of a stopped node whose cluster has lost its majority.
The new cluster has an id of its own, so no directory of the old one can take part in it. It begins with one
voter and serves when a majority of its nodes has joined (member_list.restored; decision 24).

No directory that is there is written to, but for what any start does with a torn last write.
"""

import contextlib
import logging
import secrets
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from cluster.commands.rules import apply_entry
from cluster.consensus import member_list
from cluster.consensus.beginning import listed_members
from cluster.consensus.engine import Engine
from cluster.consensus.library_words import EngineJournal
from cluster.consensus.log_digest import MEMBERS_MARK
from cluster.consensus.member_list import Members, MembersUnreadable
from cluster.errors import DataDirError
from cluster.storage.cluster_record import CLUSTER_ID_BYTES, ClusterRecord
from cluster.storage.data_directory import DataDir, owner_of
from cluster.storage.files import Files
from cluster.storage.journal_format import LogEntry
from cluster.storage.recovery import list_segments, recover
from cluster.storage.snapshot_format import Snapshot, SnapshotDamaged, read_snapshot, write_snapshot
from cluster.storage.snapshot_store import SNAPSHOT_NAME
from lockstate.machine import LockMachine
from lockstate.rules.restoring import TOKENS_SKIPPED, Restoration
from lockstate.stored import snapshot as stored
from lockstate.words import limits

__all__ = ["TOKENS_SKIPPED"]

logger = logging.getLogger(__name__)

TOKEN_LEAST_MAX: Final = limits.TOKEN_MAX // 2
"""The highest token at which an operator may let tokens go on."""
_LIBRARYS_FIRST: Final = 1
"""The index of the entry that every log begins with."""
_DIGEST_DIGITS: Final = 16
"""Digits of a cluster id that are 64 bits: the digest of a log whose history nobody else has."""
_NOTHING_ENTRY: Final = 2
"""A log begins behind it of which joining nodes need the snapshot: they have the first entry themselves."""
_MAY_BE_THERE: Final = frozenset({"lost+found"})
"""What file systems put into the root of an empty disk."""


class Place(NamedTuple):
    """An entry of a log: a state is not newer."""

    entry: int
    term: int


class Seed(NamedTuple):
    """What a new cluster is made of: a state that is not newer than an entry, and the nodes that it had."""

    machine: LockMachine
    behind: Place
    peers: Mapping[str, str]
    source: str
    """Where it comes from, for people."""

    @property
    def highest_token(self) -> int:
        """Return the newest fencing token that it knows."""
        return self.machine.next_token - 1


class Terms(NamedTuple):
    """What becomes of the state (see lockstate/rules/restoring.py)."""

    keeps_holds: bool = False
    token_min: int = 0


_USUAL: Final = Terms()


class Founded(NamedTuple):
    """The new cluster: its id, the revision that it begins with, its first token, and what the audit says."""

    cluster_id: str
    revision: int
    next_token: int
    record: str


class Survivor(NamedTuple):
    """What the directory of a stopped node has of its cluster."""

    path: Path
    node_id: str
    cluster_id: str
    last: Place
    commit_index: int
    """Up to where the log is known here to be committed. What follows may be, too."""
    written_s: float
    """When the journal was written last, in seconds of Unix time."""
    loaded: Snapshot | None
    behind: list[LogEntry]
    """The entries behind the snapshot, or behind the first entry."""
    record: ClusterRecord
    is_in_use: bool
    """Whether there is anything that the node has said to anybody, or heard."""

    @property
    def uncertain_count(self) -> int:
        """Return how many entries are not known to be committed."""
        return max(self.last.entry - self.commit_index, 0)

    def seed(self) -> Seed:
        """Return the state with all entries applied, and the newest members. Raises DataDirError.

        Also what is not known to be committed is applied: it may have been acknowledged.
        """
        machine, members = self.state()
        peers = {node_id: member.peer for node_id, member in members.nodes.items()}
        if self.node_id not in peers:
            raise DataDirError(
                f"{self.path}: {self.node_id} was removed from its cluster, whose members are"
                f" {', '.join(peers)}: use the directory of one of these"
            )
        source = (
            f"the directory of {self.node_id} in cluster {self.cluster_id}, up to log entry"
            f" {self.last.entry} of term {self.last.term}"
        )
        return Seed(machine, self.last, peers, source)

    def state(self) -> tuple[LockMachine, Members]:
        """Return what `seed` is made of. Raises DataDirError."""
        try:
            machine = LockMachine(stored.decode(self.loaded.state)) if self.loaded else LockMachine()
        except stored.SnapshotError as error:
            raise DataDirError(f"{self.path}: this version cannot use the snapshot: {error}") from error
        for content, _, _ in self.behind:
            command = Engine.command_in(content)
            if command is not None:
                apply_entry(machine, command)
        return machine, listed_members(self.record, self.newest_list())

    def newest_list(self) -> Members:
        """Return the newest member list in log or snapshot; one without nodes if there is none.

        Raises DataDirError.
        """
        found = [self.loaded.members] if self.loaded is not None and self.loaded.members else []
        lists = (Engine.members_in(content) for content, _, _ in self.behind)
        found += [encoded for encoded in lists if encoded is not None]
        return self._list(found[-1]) if found else Members()

    def _list(self, encoded: bytes) -> Members:
        try:
            return member_list.decode(encoded)
        except MembersUnreadable as error:
            raise DataDirError(f"{self.path}: {error}") from error


@contextlib.contextmanager
def survivor(path: Path, files: Files | None = None) -> Iterator[Survivor]:
    """Lock the directory of a stopped node, and give what it has. Raises DataDirError, IdentityRefused."""
    files = files or Files()
    node_id = owner_of(path, files)
    written_s = max([segment.path.stat().st_mtime for segment in list_segments(path, files)], default=0.0)
    datadir = DataDir.open(path, node_id, files=files)
    try:
        view = recover(path, files, logger, datadir.disk_id)
        loaded = _loaded(path, files)
        behind = _behind(path, view.entries, loaded)
        last = behind[-1][1:] if behind else loaded.last[1:] if loaded else (_LIBRARYS_FIRST, 0)
        yield Survivor(
            path,
            node_id,
            datadir.cluster_id,
            Place(last[0], last[1]),
            max(view.commit_index, loaded.last[1] if loaded else 0),
            written_s,
            loaded,
            behind,
            datadir.cluster,
            is_in_use=bool(last[0] > 1 or view.term > 0 or loaded is not None or datadir.known),
        )
    except OSError as error:
        raise DataDirError(f"{path}: the data directory cannot be read: {error}") from error
    finally:
        datadir.close()


def _loaded(path: Path, files: Files) -> Snapshot | None:
    """Return the snapshot of a directory, if it has one."""
    file = path / SNAPSHOT_NAME
    if not files.exists(file):
        return None
    fd = files.open_to_read(file)
    try:
        return read_snapshot(fd, files)
    except SnapshotDamaged as error:
        raise DataDirError(f"{file}: the snapshot cannot be used: {error}") from error
    finally:
        files.close(fd)


def _behind(path: Path, entries: list[LogEntry], loaded: Snapshot | None) -> list[LogEntry]:
    """Return the entries behind the snapshot, as Journal.begin_at finds them. Raises DataDirError."""
    first = entries[0][1] if entries else _LIBRARYS_FIRST
    needed = loaded.previous[1] if loaded is not None else _LIBRARYS_FIRST
    if first > needed:
        raise DataDirError(
            f"{path}: the journal begins at entry {first}, and what is before it is missing: the snapshot is"
            " of another time, or gone"
        )
    if loaded is None:
        return entries[1:]
    position = needed - first
    is_same_log = entries[position : position + 2] == [loaded.previous, loaded.last]
    return entries[position + 2 :] if is_same_log else []


def of_backup(state: bytes, behind: Place, peers: Mapping[str, str], source: str) -> Seed:
    """Return the state of a backup. Raises ValueError if this version cannot use it."""
    try:
        return Seed(LockMachine(stored.decode(state)), behind, peers, source)
    except stored.SnapshotError as error:
        raise ValueError(f"this version cannot use the state in it: {error}") from error


def of_nothing(peers: Mapping[str, str]) -> Seed:
    """Return a state in which nothing ever was."""
    return Seed(LockMachine(), Place(_NOTHING_ENTRY, 0), peers, "an empty cluster")


def check_empty(path: Path, files: Files | None = None) -> None:
    """Refuse a directory that has anything in it. Raises DataDirError."""
    files = files or Files()
    try:
        found = set(files.names(path)) - _MAY_BE_THERE if files.exists(path) else set()
    except OSError as error:
        raise DataDirError(f"{path}: the directory cannot be read: {error}") from error
    if found:
        raise DataDirError(
            f"{path}: is not empty (it has {', '.join(sorted(found)[:3])}): name a directory that is, or move"
            " what is there away"
        )


def found(path: Path, node_id: str, seed: Seed, terms: Terms = _USUAL, files: Files | None = None) -> Founded:
    """Make the data directory of the first node of a new cluster; return what that begins with.

    Its log begins behind that of the old one, so joining nodes need its snapshot. Durable before return.
    Raises DataDirError.
    """
    files = files or Files()
    check_empty(path, files)
    machine = seed.machine
    machine.restore(Restoration(f"from {seed.source}", terms.keeps_holds, terms.token_min))
    (record,) = machine.audit(limit=1)
    cluster_id = secrets.token_hex(CLUSTER_ID_BYTES)
    datadir = DataDir.open(path, node_id, joins=True, files=files)
    try:
        members = member_list.restored(node_id, datadir.disk_id, seed.peers, cluster_id)
        encoded = member_list.encode(members)
        entry, term = seed.behind.entry + 1, seed.behind.term + 1
        previous = (MEMBERS_MARK + encoded, entry, term)
        last = (MEMBERS_MARK + encoded, entry + 1, term)
        digest = int(cluster_id[:_DIGEST_DIGITS], 16)
        unfinished = path / f"{SNAPSHOT_NAME}.0.tmp"
        state = stored.encode(machine.state)
        write_snapshot(unfinished, Snapshot(previous, last, state, encoded, log_digest=digest), files)
        files.rename(unfinished, path / SNAPSHOT_NAME)
        files.fsync_dir(path)
        journal = EngineJournal.open(path, datadir.disk_id, files=files)
        journal.begin_at(previous, last)
        journal.set_vote(term, None)
        journal.record_commit(last[1])
        journal.close()
        datadir.store_cluster(ClusterRecord(cluster_id=cluster_id))
    except OSError as error:
        raise DataDirError(f"{path}: the data directory cannot be written: {error}") from error
    finally:
        datadir.close()
    return Founded(cluster_id, machine.revision, machine.next_token, record.reason)
