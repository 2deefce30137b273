"""JSON bodies, paths and queries of version 1: how they are read, and how wrong ones are explained.

Every problem names the field. What the bodies mean is in lockapi/requests.
"""

import difflib
import json
import re
from typing import Any, Final, TypeVar

import msgspec

from holdfast import wire
from http_api.server.call import Call
from lockapi import cursors
from lockapi.problems import ProblemError
from lockapi.requests.fields import UNSET, WORDS, Maybe, Request, Write, check, invalid
from lockapi.sight import AuditQuery
from lockstate.reads.listings import Whose, is_session_name
from lockstate.words import limits
from lockstate.words.ids import SessionId

LIST_LIMIT_DEFAULT = 100
"""Things that a read shows when the client does not say how many."""

R = TypeVar("R", bound=Request)


# -- bodies -----------------------------------------------------------------------------------------------


async def read(call: Call, kind: type[R]) -> R:
    """Return the body of `call` as a `kind`. Raises ProblemError."""
    body = await call.body_bytes()
    if not body:
        if any(field.required for field in msgspec.structs.fields(kind)):
            raise invalid("body: must be a JSON object, and is empty")
        return kind()
    request = decode(body, kind)
    if isinstance(request, Write) and request.request_id is not UNSET:
        call.command_id = request.request_id
    return request


_DECODERS: Final[dict[type[Request], msgspec.json.Decoder[Any]]] = {}
"""By kind of body, each made at its first use."""


def decode(body: bytes, kind: type[R]) -> R:
    """Decode a JSON object. Raises ProblemError, which names the field."""
    try:
        decoder = _DECODERS[kind]
    except KeyError:
        decoder = _DECODERS[kind] = msgspec.json.Decoder(kind)
    try:
        request: R = decoder.decode(body)
        keys = _KEY.findall(body)
        if len(keys) != len(set(keys)) or b"\\u" in body:
            json.loads(body, object_pairs_hook=_refuse_repetitions)
    except msgspec.ValidationError as exc:
        raise _explained(str(exc), kind) from None
    except (ValueError, RecursionError) as exc:
        raise invalid(f"body: is not valid JSON: {exc}") from None
    return request


_KEY = re.compile(rb'"([^"\\]*)"\s*:')
"""What may be a key, for a cheap search for repeated ones, which msgspec accepts. It never misses one."""


def _refuse_repetitions(pairs: list[tuple[str, object]]) -> None:
    keys: set[str] = set()
    for key, _ in pairs:
        if key in keys:
            raise invalid(f"{key}: is given twice")
        keys.add(key)


_AT = re.compile(r"(.*?)(?: - at `\$\.?(.*)`)?")
_FIELD_NAMED = re.compile(r"Object (missing required field|contains unknown field) `(.*)`")


def _explained(message: str, kind: type[Request]) -> ProblemError:
    """Return a message of msgspec as a problem that begins with the path of the field."""
    found = _AT.fullmatch(message)
    assert found is not None, "every text matches"
    problem, path = found[1], (found[2] or "").replace("[...]", "")
    if named := _FIELD_NAMED.fullmatch(problem):
        problem_kind, field = named.groups()
        where = f"{path}.{field}" if path else field
        if problem_kind.startswith("missing"):
            return invalid(f"{where}: is required")
        return invalid(f"{where}: unknown field{'' if path else _nearest(field, kind)}")
    words = WORDS.get(path.rpartition(".")[2])
    allowed = f"; must be one of {', '.join(words)}" if words else ""
    return invalid(f"{path or 'body'}: {problem}{allowed}")


_MISSPELT_MAX: Final = 32
"""Longer names are compared with no field: the time that takes grows with the square of the length."""


def _nearest(name: str, kind: type[Request]) -> str:
    """Return a question for the field of `kind` that is nearest to `name`, nothing if none is near."""
    known = [field.encode_name for field in msgspec.structs.fields(kind)]
    near = difflib.get_close_matches(name, known, 1) if len(name) <= _MISSPELT_MAX else []
    return f"; did you mean {near[0]}?" if near else ""


# -- paths and queries ------------------------------------------------------------------------------------


def is_stale(call: Call) -> bool:
    """Return whether a stale read was asked for. Raises ProblemError."""
    value = call.query_values.get("consistency", wire.LINEARIZABLE)
    if value not in (wire.LINEARIZABLE, wire.STALE):
        raise invalid(f"consistency: {value!r}; must be {wire.LINEARIZABLE} or {wire.STALE}")
    return value == wire.STALE


def page(call: Call) -> tuple[str, str, int]:
    """Return prefix, after and limit of a listing. Raises ProblemError."""
    values = call.query_values
    prefix, after = values.get("prefix", ""), cursors.name_of(values.get("after", ""))
    check(limits.check_text("prefix", prefix, limits.NAME_BYTES_MAX))
    check(limits.check_text("after", after, cursors.BYTES_MAX))
    return prefix, after, limit(call, limits.LIST_LIMIT_MAX)


def whose(call: Call) -> Whose:
    """Return which holds and waits are meant by a query. Raises ProblemError."""
    values = call.query_values
    owner, principal = values.get("owner", ""), values.get("principal", "")
    check(limits.check_text("owner", owner, limits.OWNER_BYTES_MAX))
    check(limits.check_text("principal", principal, limits.PRINCIPAL_BYTES_MAX))
    return Whose(owner, _label(call), held_longer_than_ms(call), _flag(call, "no_deadline"), principal)


def _flag(call: Call, field: str) -> bool | None:
    text = call.query_values.get(field)
    if text not in (None, "true", "false"):
        raise invalid(f"{field}: {text!r}; must be true or false")
    return None if text is None else text == "true"


def _label(call: Call) -> tuple[str, str] | None:
    text = call.query_values.get("label")
    if text is None:
        return None
    name, colon, value = text.partition(":")
    if not name or not colon:
        raise invalid(f"label: {text!r}; must be NAME:VALUE")
    check(limits.check_text("label", name, limits.LABEL_BYTES_MAX))
    check(limits.check_text("label", value, limits.LABEL_BYTES_MAX))
    return name, value


def held_longer_than_ms(call: Call) -> int:
    """Return for how long something must have been held to be shown, 0 for all. Raises ProblemError."""
    return number(call, "held_longer_than_ms", limits.TOKEN_MAX, default=0)


def session_name_in_query(call: Call) -> str | None:
    """Return the public name of a session in the query, if there is one. Raises ProblemError."""
    text = call.query_values.get("session_name")
    if text is not None and not is_session_name(text):
        raise invalid(f"session_name: {text!r}; must be such as s-17")
    return text


def ticket_number(call: Call) -> int:
    """Return the number of a ticket in the path. Raises ProblemError."""
    return _whole_number("ticket", call.path_value, 1, limits.TOKEN_MAX)


def number(call: Call, field: str, largest: int, *, default: int) -> int:
    """Return a number of the query, 0 to `largest`. Raises ProblemError."""
    text = call.query_values.get(field)
    return default if text is None else _whole_number(field, text, 0, largest)


def _whole_number(field: str, text: str, smallest: int, largest: int) -> int:
    is_number = text.isascii() and text.isdigit() and len(text) <= len(str(largest))
    if not is_number or not smallest <= int(text) <= largest:
        raise invalid(f"{field}: {text!r}; must be {smallest} to {largest}")
    return int(text)


def page_of_cells(call: Call) -> tuple[bytes, bytes, int]:
    """Return prefix, after and limit of a listing of cells. Raises ProblemError."""
    values = call.query_values
    after = cursors.key_of(values.get("after", ""))
    if after is None or len(after) > limits.CELL_KEY_BYTES_MAX:
        raise invalid("after: is not the `next` of a page of cells")
    prefix = values.get("prefix", "").encode()
    if len(prefix) > limits.CELL_KEY_BYTES_MAX:
        raise invalid(f"prefix: {len(prefix)} bytes; at most {limits.CELL_KEY_BYTES_MAX} are allowed")
    return prefix, after, limit(call, limits.LIST_LIMIT_MAX)


def prefix_or_all(call: Call) -> tuple[str, bool]:
    """Return the prefix in the query, "" if there is none, and whether all are meant. Raises ProblemError."""
    return call.query_values.get("prefix", ""), bool(_flag(call, "all"))


def audit_query(call: Call) -> AuditQuery:
    """Return which records of the audit are wanted. Raises ProblemError."""
    text = call.query_values.get("behind")
    behind = None if text is None else _whole_number("behind", text, 0, limits.TOKEN_MAX)
    return AuditQuery(limit(call, limits.AUDIT_LIMIT_MAX), behind, bool(_flag(call, "by_operators")))


def limit(call: Call, largest: int) -> int:
    """Return how many things a read is to show. Raises ProblemError."""
    text = call.query_values.get("limit")
    if text is None:
        return LIST_LIMIT_DEFAULT
    return _whole_number("limit", text, 1, largest)


def name(call: Call) -> str:
    """Return the name in the path. Raises ProblemError."""
    check(limits.check_name(call.path_value))
    return call.path_value


def prefix(call: Call) -> str:
    """Return the prefix in the path, which stands for all below it. Raises ProblemError."""
    check(limits.check_prefix(call.path_value))
    return call.path_value


def key(call: Call) -> bytes:
    """Return the key in the path. Raises ProblemError."""
    key_bytes = call.path_value.encode()
    check(limits.check_key(key_bytes))
    return key_bytes


def name_in_query(call: Call) -> str:
    """Return the name in the query, empty if there is none. Raises ProblemError."""
    value = call.query_values.get("name")
    if value is None:
        return ""
    check(limits.check_name(value))
    return value


def session_id(call: Call) -> SessionId:
    """Return the session id in the path. Raises ProblemError."""
    check(limits.check_id("session_id", call.path_value))
    return SessionId(call.path_value)


def body_or_query(call: Call, field: str, in_body: str | Maybe) -> str:
    """Return a field of a DELETE, whose body not everything on the way passes on.

    Raises ProblemError unless exactly one of body and query gives it.
    """
    in_query = call.query_values.get(field)
    if in_body is UNSET:
        if in_query is None:
            raise invalid(f"{field}: is required, in the body or the query")
        return in_query
    if in_query is not None:
        raise invalid(f"{field}: is given twice, in the body and the query")
    return in_body
