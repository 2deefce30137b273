"""Requests about sessions and about the cluster."""

from typing import Final, Literal

from lockapi.requests.fields import (
    UNSET,
    Maybe,
    Reason,
    Removal,
    Ttl,
    Write,
    check,
    check_between,
    check_reason,
    invalid,
)
from lockapi.requests.ids import new_session_id
from lockstate.words import limits
from lockstate.words.commands import admin, sessions
from lockstate.words.ids import SessionId
from lockstate.words.kinds import ClusterAct

LOG_LEVEL_MS_MIN: Final = 1_000
LOG_LEVEL_MS_MAX: Final = 24 * 3_600_000
"""For how long a node may log from another level on than its settings say."""


class OpenSessionRequest(Write, kw_only=True):
    """Open a session."""

    ttl_ms: Ttl
    labels: dict[str, str] = {}

    def command(self) -> sessions.OpenSession:
        """Return the command, with a new session id."""
        check(limits.check_ttl(self.ttl_ms))
        if self.labels:
            check(limits.check_labels(self.labels))
        return sessions.OpenSession(new_session_id(), self.ttl_ms, self.labels, self.checked_id())


class CloseSessionRequest(Write, kw_only=True):
    """Close a session."""

    def command(self, session_id: str) -> sessions.CloseSession:
        """Return the command."""
        check(limits.check_id("session_id", session_id))
        return sessions.CloseSession(SessionId(session_id), self.checked_id())


class KeepAliveRequest(Write, kw_only=True):
    """Keep a session alive, with another ttl from now on if one is given.

    Repeating that is harmless, so its `request_id` is a name for logs only.
    """

    ttl_ms: Ttl | Maybe = UNSET

    def command(self, session_id: str) -> sessions.KeepAlive:
        """Return the command."""
        self.checked_id()
        check(limits.check_id("session_id", session_id))
        if self.ttl_ms is UNSET:
            return sessions.KeepAlive(SessionId(session_id))
        check(limits.check_ttl(self.ttl_ms))
        return sessions.KeepAlive(SessionId(session_id), self.ttl_ms)


class TransferRequest(Write, kw_only=True):
    """Hand leadership over, to the node `to` or to the most advanced one."""

    to: str | Maybe = UNSET
    reason: Reason

    def command(self) -> admin.RecordAct:
        """Return the record of it. Raises ProblemError."""
        return _record(self, ClusterAct.TRANSFER, self.to or "", "", self.reason)


class AddMemberRequest(Write, kw_only=True):
    """Add the node `id`, which listens for the others at `peer` (HOST:PORT)."""

    id: str
    peer: str
    reason: Reason

    def command(self) -> admin.RecordAct:
        """Return the record of it. Raises ProblemError."""
        return _record(self, ClusterAct.ADD, self.id, self.peer, self.reason)


class MoveMemberRequest(Write, kw_only=True):
    """Reach the node `id` at another address from now on; it keeps its data directory and its vote."""

    id: str
    peer: str
    reason: Reason

    def command(self) -> admin.RecordAct:
        """Return the record of it. Raises ProblemError."""
        return _record(self, ClusterAct.MOVE, self.id, self.peer, self.reason)


class RemoveMemberRequest(Removal, kw_only=True):
    """Remove a node. A face may take its id from elsewhere, so it may be missing here."""

    id: str | Maybe = UNSET

    def command(self, node_id: str, reason: str) -> admin.RecordAct:
        """Return the record of it. Raises ProblemError."""
        return _record(self, ClusterAct.REMOVE, node_id, "", reason)


class HoldRulesRequest(Write, kw_only=True):
    """Keep the cluster at the rules that it follows."""

    reason: Reason

    def command(self) -> admin.HoldRules:
        """Return the command. Raises ProblemError."""
        check_reason(self.reason)
        return admin.HoldRules(is_held=True, reason=self.reason, request_id=self.checked_id())


class ReleaseRulesRequest(Removal, kw_only=True):
    """Let the cluster follow newer rules once all nodes know them."""

    def command(self, reason: str) -> admin.HoldRules:
        """Return the command. Raises ProblemError."""
        check_reason(reason)
        return admin.HoldRules(is_held=False, reason=reason, request_id=self.checked_id())


class PreferLeaderRequest(Write, kw_only=True):
    """Let the node `id` lead whenever it can."""

    id: str
    reason: Reason

    def command(self) -> admin.PreferLeader:
        """Return the command. Raises ProblemError."""
        check(limits.check_id("id", self.id))
        check_reason(self.reason)
        return admin.PreferLeader(self.id, self.reason, self.checked_id())


class PreferNobodyRequest(Removal, kw_only=True):
    """Let whichever node is elected lead."""

    def command(self, reason: str) -> admin.PreferLeader:
        """Return the command. Raises ProblemError."""
        check_reason(reason)
        return admin.PreferLeader("", reason, self.checked_id())


class LogLevelRequest(Write, kw_only=True):
    """Let the node `node_id`, which is the one asked, log from this level on, for so long."""

    node_id: str
    level: Literal["debug", "info", "warning", "error"]
    for_ms: int = 600_000

    def check(self, node_id: str) -> None:
        """Refuse what is not for the node that was asked. Raises ProblemError."""
        self.checked_id()
        check_between("for_ms", self.for_ms, LOG_LEVEL_MS_MIN, LOG_LEVEL_MS_MAX)
        if self.node_id != node_id:
            raise invalid(f"node_id: {self.node_id!r}: this is node {node_id}: send it to the other one")


def _record(request: Write, act: ClusterAct, node_id: str, peer: str, reason: str) -> admin.RecordAct:
    check_reason(reason)
    return admin.RecordAct(act, node_id, peer, reason, request.checked_id())
