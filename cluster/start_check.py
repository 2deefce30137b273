"""Whether a node could start where it is to start: by the steps of a start, of which none changes anything.

A start makes the same checks (node.py), each in the same function. `http_api/checking.py` tells what was
found.
"""

import os
from contextlib import closing, suppress
from pathlib import Path
from typing import NamedTuple

from cluster.config import Address, NodeConfig
from cluster.consensus.beginning import (
    Differing,
    check_configured,
    check_founded,
    differing,
    listed_members,
    listen_address,
)
from cluster.consensus.member_list import Members
from cluster.errors import DataDirError
from cluster.refounding import survivor
from cluster.storage.cluster_record import ClusterRecord
from cluster.storage.data_directory import IDENTITY_NAME, DataDir, in_use
from cluster.storage.files import LookingFiles


class Directory(NamedTuple):
    """What a data directory says."""

    is_new: bool
    """Whether no node has had it yet, or it is yet to be made."""
    is_running: bool
    """Whether a process has it now. It is that of this node: one of another node is refused."""
    joins: bool
    record: ClusterRecord
    newest: Members = Members()
    """The newest member list of the log, which is not read while a process writes it."""
    is_log_empty: bool = True

    @property
    def cluster_id(self) -> str:
        """The cluster that it belongs to, empty while that is not known."""
        return self.record.cluster_id or self.newest.cluster_id

    def differing(self, config: NodeConfig) -> Differing | None:
        """Return how the members differ from the nodes of the configuration, None if they do not."""
        return differing(config, self.newest, joins=self.joins, has_list=bool(self.newest.nodes))

    def listens_at(self, config: NodeConfig) -> Address:
        """Return where the node would listen for its peers."""
        return listen_address(config, listed_members(self.record, self.newest))


def check_unused(path: Path) -> None:
    """Raise DataDirError if a process has this data directory. What cannot be looked at is not in use."""
    files = LookingFiles()
    with suppress(OSError):
        os.close(files.lock(path))
    if files.is_locked:
        raise in_use(path)


def look_at_directory(config: NodeConfig) -> Directory:
    """Look at a data directory, and change nothing. Raises StartupError where a start would."""
    path, files = config.data_dir, LookingFiles()
    try:
        files.check_writable(path)
        is_new = not files.exists(path / IDENTITY_NAME)
    except OSError as error:
        raise DataDirError(f"{path}: the data directory cannot be used: {error}") from None
    with closing(DataDir.open(path, config.node_id, joins=config.join, files=files)) as datadir:
        found = Directory(is_new, files.is_locked, datadir.identity.joins, datadir.cluster)
    if is_new or files.is_locked:
        return found
    with survivor(path, files) as left:
        found = found._replace(newest=left.newest_list(), is_log_empty=left.last.entry <= 1)
        check_founded(config, found.record, joins=found.joins, is_in_use=left.is_in_use)
    has_list = bool(found.newest.nodes)
    check_configured(config, found.record, found.newest, joins=found.joins, has_list=has_list)
    return found
