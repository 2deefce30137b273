"""The bodies of calls about sessions and about the cluster."""

import secrets

from api.requests.fields import UNSET, Maybe, Request, Ttl, Write, check, invalid
from lockstate import commands, limits
from lockstate.ids import SessionId


class OpenSessionRequest(Write, kw_only=True):
    """Open a session."""

    ttl_ms: Ttl
    labels: dict[str, str] = {}

    def command(self) -> commands.OpenSession:
        """Return the command, with a new session id."""
        check(limits.check_ttl(self.ttl_ms))
        if self.labels:
            check(limits.check_labels(self.labels))
        return commands.OpenSession(
            SessionId(secrets.token_hex(16)), self.ttl_ms, self.labels, self.checked_id()
        )


class CloseSessionRequest(Write, kw_only=True):
    """Close a session."""

    def command(self, session_id: SessionId) -> commands.CloseSession:
        """Return the command."""
        return commands.CloseSession(session_id, self.checked_id())


class KeepAliveRequest(Write, kw_only=True):
    """Keep a session alive. Repeating that does no harm, so its `request_id` names it and no more."""


class TransferRequest(Request, kw_only=True):
    """Hand leadership over, to the node `to` or to the one that is furthest."""

    to: str | Maybe = UNSET


class AddMemberRequest(Request, kw_only=True):
    """Add the node `id`, which listens for the others at `peer` (HOST:PORT)."""

    id: str
    peer: str


class RemoveMemberRequest(Request, kw_only=True):
    """Remove a node: its id stands here or in the query."""

    id: str | Maybe = UNSET

    def node_id(self, in_query: str | None) -> str:
        """Return the id, which `in_query` may give instead. Raises ProblemError unless exactly one does."""
        if self.id is UNSET:
            if in_query is None:
                raise invalid("id: is required, in the body or the query")
            return in_query
        if in_query is not None:
            raise invalid("id: is given twice, in the body and the query")
        return self.id
