"""What one message or one tick leads to, as a value: nothing of it has happened when the replica returns it.

After etcd-io/raft (`node.go: Ready`). The comments of the fields are the host's contract; `cluster/loop.py`
keeps it.
"""

import msgspec

from cluster.consensus.log_digest import Difference, Digest
from cluster.consensus.messages import Message
from cluster.storage.journal_format import LogEntry


class SnapshotDue(msgspec.Struct, frozen=True):
    """A snapshot to be written: the last two entries in it, and member list and log digest as of `last`."""

    last: LogEntry
    previous: LogEntry
    members: bytes
    log_digest: Digest | None = None


class Ready(msgspec.Struct, kw_only=True):
    """What is to be done, in the order of the fields."""

    restored: object | None = None
    """The state of an installed snapshot, as the host's decoder made it. Replace the state machine by it
    BEFORE anything else."""

    difference: Difference | None = None
    """The sender has another history than this log. Its message had no effect and gets no answer; ask the
    others who is right."""

    is_role_changed: bool = False
    """Leader, term or own role changed. Tell the clients' side BEFORE an entry is stamped for the new term,
    and BEFORE `committed` is applied."""

    messages: list[tuple[str, Message]] = []
    """Peer and message, in the order in which they must leave. They promise nothing durable, so they travel
    BEFORE the sync: the followers' disks work while ours does."""

    committed: list[tuple[int, bytes]] = []
    """Index and command of entries that a majority has on disk. Apply them in this order, each exactly once,
    BEFORE the next message or tick is handed in. If one cannot be applied the node must stop."""

    are_members_changed: bool = False
    """Another member list counts, or one is committed. Adjust the links BEFORE the next tick."""

    snapshot: SnapshotDue | None = None
    """Begin to write the state as it is AFTER `committed` was applied and BEFORE anything else is: the log
    before it will go."""

    promises: list[tuple[str, Message]] = []
    """Messages that claim something is on this disk (entries, a vote). They must not leave BEFORE the journal
    was synced after this value was returned. If their connection breaks first, drop them."""

    needs_sync: bool = False
    """The journal has unsynced changes, or promises wait. Sync soon, and tick behind the sync if the replica
    `has_work`."""

    wants_tick: bool = False
    """There is more to do than a message can: commit, apply, take over, go on with a snapshot. Tick soon."""
