"""The commands of sessions."""

from lockstate.words.commands.base import WithoutRequestId, WithRequestId
from lockstate.words.ids import SessionId


class OpenSession(WithRequestId, frozen=True, tag=1):
    """Open a session that lives for `ttl_ms` after its last keepalive."""

    session_id: SessionId
    ttl_ms: int
    labels: dict[str, str] = {}
    request_id: str = ""


class KeepAlive(WithoutRequestId, frozen=True, tag=2):
    """Start the session's ttl anew, with another length from now on if `ttl_ms` is not 0."""

    session_id: SessionId
    ttl_ms: int = 0


class CloseSession(WithRequestId, frozen=True, tag=3):
    """End a session: release its holds, end its waits."""

    session_id: SessionId
    request_id: str = ""
