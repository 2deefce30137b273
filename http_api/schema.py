"""JSON bodies and query values to commands. Every problem names the field; secrets are made here."""

import json
import re
import secrets
from typing import Annotated, Literal, TypeVar

import msgspec

from holdfast import wire
from http_api.call import Call
from http_api.problems import ProblemError, refusal
from lockstate import commands, limits
from lockstate.modes import Mode
from lockstate.results import Refused

LIST_LIMIT_DEFAULT = 100

# Bounds are told to readers of /openapi.json here, and kept by lockstate.limits, which also knows the codes.
Name = Annotated[str, msgspec.Meta(extra_json_schema={"minLength": 1, "maxLength": limits.NAME_BYTES_MAX})]
Id = Annotated[str, msgspec.Meta(extra_json_schema={"minLength": 1, "maxLength": limits.ID_CHARS_MAX})]
Ttl = Annotated[
    int, msgspec.Meta(extra_json_schema={"minimum": limits.TTL_MS_MIN, "maximum": limits.TTL_MS_MAX})
]
Wait = Annotated[int, msgspec.Meta(extra_json_schema={"minimum": 0, "maximum": limits.WAIT_MS_MAX})]
LockDelay = Annotated[
    int, msgspec.Meta(extra_json_schema={"minimum": 0, "maximum": limits.LOCK_DELAY_MS_MAX})
]
Maybe = msgspec.UnsetType


class Request(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Base of all bodies; as itself, the body of a call that takes none."""


class Write(Request, kw_only=True):
    """A body that may carry the id by which a repetition gets the first outcome."""

    request_id: Id | Maybe = msgspec.UNSET

    def checked_id(self) -> str:
        """Return the id, "" when there is none. Raises ProblemError."""
        if self.request_id is msgspec.UNSET:
            return ""
        _check(limits.check_id("request_id", self.request_id))
        return self.request_id


class OpenSessionRequest(Write, kw_only=True):
    """Open a session."""

    ttl_ms: Ttl
    labels: dict[str, str] = {}

    def command(self) -> commands.OpenSession:
        """Return the command, with a new session id."""
        _check(limits.check_ttl(self.ttl_ms))
        if self.labels:
            _check(limits.check_labels(self.labels))
        return commands.OpenSession(secrets.token_hex(16), self.ttl_ms, self.labels, self.checked_id())


class CloseSessionRequest(Write, kw_only=True):
    """Close a session."""

    def command(self, session_id: str) -> commands.CloseSession:
        """Return the command."""
        return commands.CloseSession(session_id, self.checked_id())


class KeepAliveRequest(Write, kw_only=True):
    """Keep a session alive. Repeating that does no harm, so its `request_id` names it and no more."""


class AcquireRequest(Write, kw_only=True):
    """Acquire a lock, for a session or with a lease of its own: exactly one of `session_id` and `ttl_ms`."""

    name: Name
    session_id: Id | Maybe = msgspec.UNSET
    ttl_ms: Ttl | Maybe = msgspec.UNSET
    owner: str = ""
    mode: Mode = Mode.EXCLUSIVE
    scope: Literal["node"] = "node"
    wait_ms: Wait = 0
    lock_delay_ms: LockDelay = 0
    note: str = ""

    def command(self) -> commands.Acquire:
        """Return the command, with new ids for the hold and the attempt."""
        _check(limits.check_name(self.name))
        session_id, ttl_ms = self._owned_by()
        if self.owner:
            _check(limits.check_text("owner", self.owner, limits.OWNER_BYTES_MAX))
        if self.wait_ms:
            _check(limits.check_range("wait_ms", self.wait_ms, limits.WAIT_MS_MAX))
        if self.lock_delay_ms:
            _check(limits.check_range("lock_delay_ms", self.lock_delay_ms, limits.LOCK_DELAY_MS_MAX))
        if self.note:
            _check(limits.check_text("note", self.note, limits.NOTE_BYTES_MAX))
        made = secrets.token_hex(32)
        return commands.Acquire(
            self.name,
            self.mode,
            made[:32],
            made[32:],
            session_id,
            ttl_ms,
            self.owner,
            self.wait_ms,
            self.lock_delay_ms,
            self.note,
            self.checked_id(),
        )

    def _owned_by(self) -> tuple[str, int]:
        """Return session id and ttl, of which one is given."""
        if self.session_id is msgspec.UNSET:
            if self.ttl_ms is msgspec.UNSET:
                raise _invalid("session_id or ttl_ms: one of the two is required")
            _check(limits.check_ttl(self.ttl_ms))
            return "", self.ttl_ms
        if self.ttl_ms is not msgspec.UNSET:
            raise _invalid("session_id and ttl_ms: only one of the two is allowed")
        _check(limits.check_id("session_id", self.session_id))
        return self.session_id, 0


class RenewRequest(Write, kw_only=True):
    """Start the lease of a hold anew."""

    hold_id: Id
    ttl_ms: Ttl | Maybe = msgspec.UNSET

    def command(self) -> commands.Renew:
        """Return the command."""
        _check(limits.check_id("hold_id", self.hold_id))
        ttl_ms = 0
        if self.ttl_ms is not msgspec.UNSET:
            _check(limits.check_ttl(self.ttl_ms))
            ttl_ms = self.ttl_ms
        return commands.Renew(self.hold_id, ttl_ms, self.checked_id())


class ReleaseRequest(Write, kw_only=True):
    """Give a hold back."""

    hold_id: Id

    def command(self) -> commands.Release:
        """Return the command."""
        _check(limits.check_id("hold_id", self.hold_id))
        return commands.Release(self.hold_id, self.checked_id())


class ForceReleaseRequest(Write, kw_only=True):
    """End every hold of a lock. The reason is kept for those who ask why."""

    name: Name
    reason: str
    lock_delay_ms: LockDelay = 0

    def command(self) -> commands.ForceRelease:
        """Return the command."""
        _check(limits.check_name(self.name))
        if not self.reason:
            raise _invalid("reason: must not be empty")
        _check(limits.check_text("reason", self.reason, limits.REASON_BYTES_MAX))
        _check(limits.check_range("lock_delay_ms", self.lock_delay_ms, limits.LOCK_DELAY_MS_MAX))
        return commands.ForceRelease(self.name, self.reason, self.lock_delay_ms, self.checked_id())


class TransferRequest(Request, kw_only=True):
    """Hand leadership over, to the node `to` or to the one that is furthest."""

    to: str | Maybe = msgspec.UNSET


class AddMemberRequest(Request, kw_only=True):
    """Add the node `id`, which listens for the others at `peer` (HOST:PORT)."""

    id: str
    peer: str


class RemoveMemberRequest(Request, kw_only=True):
    """Remove a node: its id stands here or in the query."""

    id: str | Maybe = msgspec.UNSET

    def node_id(self, call: Call) -> str:
        """Return the id. Raises ProblemError when it is not given exactly once."""
        in_query = call.query_values.get("id")
        if self.id is msgspec.UNSET:
            if in_query is None:
                raise _invalid("id: is required, in the body or the query")
            return in_query
        if in_query is not None:
            raise _invalid("id: is given twice, in the body and the query")
        return self.id


R = TypeVar("R", bound=Request)


_DECODERS = {
    kind: msgspec.json.Decoder(kind)
    for kind in (
        Request,
        OpenSessionRequest,
        CloseSessionRequest,
        KeepAliveRequest,
        AcquireRequest,
        RenewRequest,
        ReleaseRequest,
        ForceReleaseRequest,
        TransferRequest,
        AddMemberRequest,
        RemoveMemberRequest,
    )
}
_OPTIONAL_BODIES = frozenset(
    kind for kind in _DECODERS if not any(field.required for field in msgspec.structs.fields(kind))
)


async def read(call: Call, kind: type[R]) -> R:
    """Return the body of `call` as a `kind`. Raises ProblemError."""
    body = await call.body_bytes()
    if not body:
        if kind not in _OPTIONAL_BODIES:
            raise _invalid("body: must be a JSON object, and is empty")
        return kind()
    request = decode(body, kind)
    if isinstance(request, Write) and request.request_id is not msgspec.UNSET:
        call.command_id = request.request_id
    return request


def decode(body: bytes, kind: type[R]) -> R:
    """Decode a JSON object. Raises ProblemError, which names the field."""
    try:
        request = _DECODERS[kind].decode(body)
        keys = _KEY.findall(body)
        if len(keys) != len(set(keys)) or b"\\u" in body:
            json.loads(body, object_pairs_hook=_refuse_repetitions)
    except msgspec.ValidationError as exc:
        raise _told(str(exc)) from None
    except (ValueError, RecursionError) as exc:
        raise _invalid(f"body: is no valid JSON: {exc}") from None
    assert isinstance(request, kind)
    return request


# What may be a key, for a cheap look for repetitions, which msgspec lets pass. May see too many, not too few.
_KEY = re.compile(rb'"([^"\\]*)"\s*:')


def _refuse_repetitions(pairs: list[tuple[str, object]]) -> None:
    keys: set[str] = set()
    for key, _ in pairs:
        if key in keys:
            raise _invalid(f"{key}: is given twice")
        keys.add(key)


_FIELD_AT = re.compile(r"(.*) - at `\$\.?(.*)`")
_FIELD_NAMED = re.compile(r"Object (missing required field|contains unknown field) `(.*)`")


def _told(message: str) -> ProblemError:
    """Return a message of msgspec with the field in front."""
    if found := _FIELD_NAMED.match(message):
        missing, field = found.groups()
        if field == "locks":
            return ProblemError("not-found", "locks: several locks at once come with a later version")
        return _invalid(f"{field}: {'is required' if missing.startswith('missing') else 'unknown field'}")
    if not (found := _FIELD_AT.fullmatch(message)):
        return _invalid(f"body: {message}")
    problem, path = found.groups()
    field = re.split(r"[.\[]", path)[0]
    allowed = {"mode": "; must be one of " + ", ".join(Mode), "scope": "; must be node"}
    return _invalid(f"{field}: {problem}{allowed.get(field, '')}")


def consistency(call: Call) -> bool:
    """Return whether a stale read was asked for. Raises ProblemError."""
    value = call.query_values.get("consistency", wire.LINEARIZABLE)
    if value not in (wire.LINEARIZABLE, wire.STALE):
        raise _invalid(f"consistency: {value!r}; must be {wire.LINEARIZABLE} or {wire.STALE}")
    return value == wire.STALE


def page(call: Call) -> tuple[str, str, int]:
    """Return prefix, after and limit of a listing. Raises ProblemError."""
    values = call.query_values
    prefix, after, limit = values.get("prefix", ""), values.get("after", ""), values.get("limit")
    _check(limits.check_text("prefix", prefix, limits.NAME_BYTES_MAX))
    _check(limits.check_text("after", after, limits.NAME_BYTES_MAX))
    if limit is None:
        return prefix, after, LIST_LIMIT_DEFAULT
    is_number = limit.isascii() and limit.isdigit() and len(limit) <= len(str(limits.LIST_LIMIT_MAX))
    if not is_number or not 1 <= int(limit) <= limits.LIST_LIMIT_MAX:
        raise _invalid(f"limit: {limit!r}; must be 1 to {limits.LIST_LIMIT_MAX}")
    return prefix, after, int(limit)


def lock_name(call: Call) -> str:
    """Return the name in the path. Raises ProblemError."""
    _check(limits.check_name(call.path_value))
    return call.path_value


def session_id(call: Call) -> str:
    """Return the session id in the path. Raises ProblemError."""
    _check(limits.check_id("session_id", call.path_value))
    return call.path_value


def _check(refused: Refused | None) -> None:
    if refused is not None:
        raise refusal(refused)


def _invalid(detail: str) -> ProblemError:
    return ProblemError("invalid-request", detail)
