"""Failures of the world, as exceptions. Each says whether the command may have been applied.

ClusterError
 +-- NoLeader          not applied   no leader was reachable before the deadline
 +-- Overloaded        not applied   a bounded queue is full; try again after `retry_after_ms`
 +-- ShuttingDown      not applied   this node is stopping; ask another
 +-- TransferFailed    not applied   leadership could not be handed over
 +-- MemberChangeRefused  not applied   the cluster would lose its quorum, or the change makes no sense
 |    +-- MemberChangePending   another change is under way; try again
 |    +-- MemberNotFound        no member has this id
 +-- OutcomeUnknown    unknown       it was sent and no outcome came before the deadline
      +-- WaitCutOff   unknown       it waits in a queue of which this node hears nothing any more
StartupError                         the node refuses to start; the message says what to do
 +-- AddressInUse                    another process listens where this node is to listen
 +-- ConfigError                     a wrong flag, variable or file entry
 +-- DataDirError                    a data directory that is in use, damaged or somebody else's
 |    +-- DataDirUnknown             one that another release wrote
 +-- IdentityRefused                 a peer knows this node id with another data directory, or as removed
NodeFailed                           this node broke and must stop: disk, damage, or a bug of ours
 +-- StateDiverged                   its state is not that of the majority
 +-- LogDiverged                     its log is not that of the majority
 +-- StateDamaged                    its state is not what its changes made of it
PeerFault                            a peer said what no correct node says: its connection is cut
 +-- PeerContradicts                 it says that other entries are committed than are committed here
"""

import errno
from collections.abc import Iterator
from typing import Final


class ClusterError(Exception):
    """A command that got no result. `outcome` is "not-applied" or "unknown"; `code` is the public code."""

    code: str
    outcome: str = "not-applied"
    retry_after_ms: int = 0


class NoLeader(ClusterError):
    """No leader was reachable before the deadline; the command was never proposed."""

    code = "no-leader"
    retry_after_ms = 500


class Overloaded(ClusterError):
    """A bounded queue is full; nothing was applied."""

    code = "overloaded"
    retry_after_ms = 100


class ShuttingDown(ClusterError):
    """This node is stopping; nothing was applied."""

    code = "shutting-down"
    retry_after_ms = 100


class TransferFailed(ClusterError):
    """Leadership could not be handed over; the leader is the same as before."""

    code = "transfer-failed"
    retry_after_ms = 500


class MemberChangeRefused(ClusterError):
    """The member list stays as it is; the message says why."""

    code = "member-change-refused"


class MemberChangePending(MemberChangeRefused):
    """One change at a time: another one is not committed yet."""

    code = "member-change-pending"
    retry_after_ms = 200


class MemberNotFound(MemberChangeRefused):
    """No member has this id."""

    code = "member-not-found"


class OutcomeUnknown(ClusterError):
    """The command was sent and may or may not be applied; repeat it with the same request id."""

    code = "outcome-unknown"
    outcome = "unknown"


class WaitCutOff(OutcomeUnknown):
    """A request waits in a queue, and this node has known no leader for long; the ticket may live on."""


class StartupError(Exception):
    """The node refuses to start. The message is for the operator; `exit_code` is the process's."""

    exit_code = 1


class AddressInUse(StartupError):
    """Another process listens at an address that this node is to listen at."""


class ConfigError(StartupError):
    """A wrong flag, environment variable or file entry."""

    exit_code = 2


class DataDirError(StartupError):
    """The data directory is in use, damaged, or belongs to another node."""

    exit_code = 3


class DataDirUnknown(DataDirError):
    """Another release wrote the data directory, in a way that this one does not read. It was not touched."""

    exit_code = 2


class IdentityRefused(StartupError):
    """A peer knows this node id with another data directory: this node may have voted and forgotten it."""

    exit_code = 4


class NodeFailed(Exception):
    """This node broke and must stop; it acknowledged nothing that it could not keep."""

    exit_code = 70


class StateDiverged(NodeFailed):
    """The state of this node is not that of the majority at the same revision."""


class LogDiverged(NodeFailed):
    """The log of this node is not that of the majority up to the same entry."""


class StateDamaged(NodeFailed):
    """The state in memory is not what its changes have made of it; it must not get to disk."""

    def __init__(self) -> None:
        super().__init__(
            "the state in memory is damaged: its records are not what the changes of them add up to. No"
            " snapshot was written of it. Start this node again: it makes its state anew of snapshot and log."
            " Test its memory (see 'Nodes that differ' in docs/operating.md)"
        )


_NO_SPACE: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
_NO_FILES: Final = frozenset({errno.EMFILE, errno.ENFILE})


def is_explained(error: BaseException) -> bool:
    """Whether the message of a failure says what an operator needs. Anything else is a bug, or unforeseen."""
    return isinstance(error, NodeFailed | StartupError) or any(
        isinstance(each, OSError | MemoryError) for each in _chain(error)
    )


def advice_on(error: BaseException) -> str:
    """Return what to do about a failure; empty if its own message says that."""
    if isinstance(error, AddressInUse):
        return "Stop what listens there (`ss -ltnp` shows it), or choose another address"
    for cause in _chain(error):
        if isinstance(cause, MemoryError):
            return (
                "memory ran out: give this node more, or a smaller --state-bytes-max, and start it again; it"
                " has everything that it acknowledged on its disk"
            )
        if isinstance(cause, OSError) and cause.errno in _NO_SPACE:
            return (
                "the disk is full: make room on it, and start this node again; nothing that was acknowledged"
                " is lost"
            )
        if isinstance(cause, OSError) and cause.errno in _NO_FILES:
            return (
                "too many files are open: raise the limit of this node (`LimitNOFILE=` of its unit, or"
                " `ulimit -n`) or, if it is that of the whole machine, `sysctl fs.file-max`, and start this"
                " node again; nothing that was acknowledged is lost"
            )
        if isinstance(cause, PermissionError):
            return (
                "Some file there belongs to another user, as after a start or a restore as root: give all of"
                " them to the user of the node (`chown -R`)"
            )
        if isinstance(cause, OSError):
            return (
                "the disk failed: see what the kernel's log says of it; if it is sound, start this node"
                " again, else replace the node (see 'A node lost its disk' in docs/operating.md)"
            )
    return ""


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and what it was raised from."""
    present: BaseException | None = error
    while present is not None:
        yield present
        present = present.__cause__


class PeerFault(Exception):
    """A peer said what no correct node says; nothing was taken from it. Its connection must be cut.

    One peer's word must not stop this node: it may be the peer that is broken.
    """


class PeerContradicts(PeerFault):
    """A peer says that other entries are committed than are committed here. One of the two is wrong."""
