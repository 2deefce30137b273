"""Requests about sessions and about the cluster."""

from lockapi.requests.fields import UNSET, Maybe, Ttl, Write, check
from lockapi.requests.ids import new_session_id
from lockstate.words import commands, limits
from lockstate.words.ids import SessionId


class OpenSessionRequest(Write, kw_only=True):
    """Open a session."""

    ttl_ms: Ttl
    labels: dict[str, str] = {}

    def command(self) -> commands.OpenSession:
        """Return the command, with a new session id."""
        check(limits.check_ttl(self.ttl_ms))
        if self.labels:
            check(limits.check_labels(self.labels))
        return commands.OpenSession(new_session_id(), self.ttl_ms, self.labels, self.checked_id())


class CloseSessionRequest(Write, kw_only=True):
    """Close a session."""

    def command(self, session_id: str) -> commands.CloseSession:
        """Return the command."""
        check(limits.check_id("session_id", session_id))
        return commands.CloseSession(SessionId(session_id), self.checked_id())


class KeepAliveRequest(Write, kw_only=True):
    """Keep a session alive, with another ttl from now on if one is given.

    Repeating that is harmless, so its `request_id` is a name for logs only.
    """

    ttl_ms: Ttl | Maybe = UNSET

    def command(self, session_id: str) -> commands.KeepAlive:
        """Return the command."""
        self.checked_id()
        check(limits.check_id("session_id", session_id))
        if self.ttl_ms is UNSET:
            return commands.KeepAlive(SessionId(session_id))
        check(limits.check_ttl(self.ttl_ms))
        return commands.KeepAlive(SessionId(session_id), self.ttl_ms)


class ClusterRequest(Write, kw_only=True):
    """Base of requests about the cluster. They are safe to repeat, so a `request_id` is for logs only."""


class TransferRequest(ClusterRequest, kw_only=True):
    """Hand leadership over, to the node `to` or to the most advanced one."""

    to: str | Maybe = UNSET


class AddMemberRequest(ClusterRequest, kw_only=True):
    """Add the node `id`, which listens for the others at `peer` (HOST:PORT)."""

    id: str
    peer: str


class MoveMemberRequest(ClusterRequest, kw_only=True):
    """Reach the node `id` at another address from now on; it keeps its data directory and its vote."""

    id: str
    peer: str


class RemoveMemberRequest(ClusterRequest, kw_only=True):
    """Remove a node. A face may take its id from elsewhere, so it may be missing here."""

    id: str | Maybe = UNSET
