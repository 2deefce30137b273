"""The API as an OpenAPI 3.1 document, made from the route table and the structs, so that it stays true."""

from collections.abc import Iterable, Sequence
from http import HTTPStatus

import msgspec

from cluster.build import this_build
from holdfast import wire
from holdfast.wire.answers import StillWaitingJson
from http_api.server.routes import Route
from http_api.v1.components import JsonObject, answer_schemas, ref, schemas_of
from lockapi.problems import Problem
from lockapi.requests.fields import WaitingRequest
from lockstate.words import limits

_PARAMETERS: dict[str, JsonObject] = {
    "session_id": {"in": "path", "schema": {"type": "string"}, "description": "The secret of the session."},
    "principal": {
        "in": "path",
        "schema": {"type": "string", "maxLength": limits.PRINCIPAL_BYTES_MAX},
        "description": 'The name of a principal, or "*" for each one without a quota of its own.',
    },
    "name": {
        "in": "path",
        "schema": {"type": "string", "maxLength": limits.NAME_BYTES_MAX},
        "description": "The name; its '/' may be percent-encoded or not.",
    },
    "key": {
        "in": "path",
        "schema": {"type": "string", "maxLength": limits.CELL_KEY_BYTES_MAX},
        "description": "The key of a cell; its '/' may be percent-encoded or not.",
    },
    "of-name": {
        "name": "name",
        "in": "query",
        "schema": {"type": "string", "maxLength": limits.NAME_BYTES_MAX},
        "description": "Only what happened to this name.",
    },
    "consistency": {
        "in": "query",
        "schema": {"type": "string", "enum": [wire.LINEARIZABLE, wire.STALE], "default": wire.LINEARIZABLE},
    },
    "prefix": {
        "in": "query",
        "schema": {"type": "string"},
        "description": "Only names, or keys, that start with this.",
    },
    "ticket": {
        "in": "path",
        "schema": {"type": "integer", "minimum": 1},
        "description": "The public number of a waiter.",
    },
    "owner": {
        "in": "query",
        "schema": {"type": "string", "maxLength": limits.OWNER_BYTES_MAX},
        "description": "Only what this owner has.",
    },
    "label": {
        "in": "query",
        "schema": {"type": "string"},
        "description": "NAME:VALUE; only of sessions with this label.",
    },
    "session_name": {
        "in": "query",
        "schema": {"type": "string"},
        "description": "The public name of a session: only what it has; no other condition.",
    },
    "held_longer_than_ms": {
        "in": "query",
        "schema": {"type": "integer", "minimum": 0},
        "description": "Only what is held, or waited for, longer than this.",
    },
    "no_deadline": {
        "in": "query",
        "schema": {"type": "boolean"},
        "description": "true: only what is held without a deadline; false: everything else.",
    },
    "all": {
        "in": "query",
        "schema": {"type": "boolean", "default": False},
        "description": "All of them: then there is no prefix. Without it the prefix is required.",
    },
    "since": {
        "in": "query",
        "schema": {"type": "string"},
        "description": "The id of an event, or a revision: continue after it; by default from now.",
    },
    "behind": {
        "in": "query",
        "schema": {"type": "integer", "minimum": 0, "maximum": limits.TOKEN_MAX},
        "description": "The number of a record: only later ones, oldest first.",
    },
    "by_operators": {
        "in": "query",
        "schema": {"type": "boolean", "default": False},
        "description": "Only what operators did to others, or set.",
    },
    "after": {"in": "query", "schema": {"type": "string"}, "description": "The `next` of the page before."},
    "reason": {"in": "query", "schema": {"type": "string"}, "description": "Why, if not in the body."},
    "id": {"in": "query", "schema": {"type": "string"}, "description": "The node, if not in the body."},
    "limit": {
        "in": "query",
        "schema": {"type": "integer", "minimum": 1, "maximum": limits.LIST_LIMIT_MAX},
    },
    "timeout": {
        "name": wire.HEADER_TIMEOUT_MS,
        "in": "header",
        "schema": {"type": "integer", "minimum": wire.TIMEOUT_MS_MIN, "maximum": wire.TIMEOUT_MS_MAX},
        "description": "Answer within this time, not counting waits in queues.",
    },
    "request-id": {
        "name": wire.HEADER_REQUEST_ID,
        "in": "header",
        "schema": {"type": "string"},
        "description": f"An id for logs; the answer has it, too. If it has more than"
        f" {wire.HEADER_REQUEST_ID_CHARS_MAX} characters, or any but visible ASCII, the node makes another.",
    },
}

_OF_ONE_LOCK = [{"required": [field]} for field in ("name", "mode", "scope")]
_ENDLESS = {"required": ["no_deadline"], "properties": {"no_deadline": {"const": True}}}
_OF_TWO = {"oneOf": [{"required": ["session_id"]}, {"required": ["ttl_ms"]}]}
_LEASE = {"oneOf": [{"required": ["session_id"]}, {"required": ["ttl_ms"]}, _ENDLESS]}
_BY_VALUE = [{"required": [field]} for field in ("name", "value")]
_HOLD = {
    "oneOf": [
        {"required": ["hold_id"], "not": {"anyOf": _BY_VALUE}},
        {"required": ["name", "value"], "not": {"required": ["hold_id"]}},
    ],
}
_LOCKS = {
    "oneOf": [{"required": ["name"]}, {"required": ["locks"], "not": {"anyOf": _OF_ONE_LOCK}}],
}
_OF_HEADS = (
    "invalid-request",
    "forbidden-host",
    "forbidden-origin",
    "unsupported-encoding",
    "expectation-failed",
)
"""What every call may be refused with, by its head alone."""
_VALUE = {"oneOf": [{"required": ["value"]}, {"required": ["value_base64"]}]}
_RULES: dict[str, list[JsonObject]] = {
    "AcquireRequest": [_LEASE, _LOCKS],
    "AcquirePermitsRequest": [_LEASE],
    "RenewRequest": [_HOLD],
    "ReleaseRequest": [_HOLD],
    "ReleasePermitsRequest": [_HOLD],
    "AcquireSeveralRequest": [_OF_TWO],
    "PutCellRequest": [_VALUE, {"not": {"required": ["session_id", "ttl_ms"]}}],
}
"""What a struct cannot express: exactly one of two fields."""


def make_document(routes: Sequence[Route]) -> JsonObject:
    """Return the document."""
    requests = schemas_of([route.takes for route in routes if route.takes is not None])
    for name, rules in _RULES.items():
        requests[name]["allOf"] = rules
    given = [kind for route in routes for kind in (route.gives, route.or_gives) if kind not in (None, dict)]
    schemas = dict(sorted((requests | answer_schemas([*given, StillWaitingJson, Problem])).items()))
    paths: JsonObject = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Holdfast",
            "version": this_build().version,
            "summary": "A distributed lock service.",
        },
        "paths": paths,
        "security": [{"token": []}, {}],
        "components": {
            "securitySchemes": {
                "token": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "A token of the nodes' tokens file, if they have one (--tokens).",
                }
            },
            "schemas": schemas,
            "parameters": {name: _parameter(name) for name in _PARAMETERS},
        },
    }


def _parameter(name: str) -> JsonObject:
    parameter: JsonObject = {"name": name, **_PARAMETERS[name]}
    return {**parameter, "required": True} if parameter["in"] == "path" else parameter


def _operation(route: Route) -> JsonObject:
    in_path = [
        name for name in ("session_id", "name", "ticket", "key", "principal") if f"{{{name}}}" in route.path
    ]
    in_query = ["of-name" if name == "name" else name for name in route.query]
    parameters = [*in_path, *in_query, "timeout", "request-id"]
    operation: JsonObject = {
        "operationId": route.handler.__name__,
        "summary": (route.handler.__doc__ or "").strip().splitlines()[0],
        "parameters": [{"$ref": f"#/components/parameters/{name}"} for name in parameters],
        "responses": {str(route.status): _success(route), **_accepted(route), **_refusals(route)},
    }
    if route.need.is_open:
        operation["security"] = []
    elif route.need.right is not None:
        operation["x-right"] = route.need.right
    if route.takes is not None:
        has_required = any(field.required for field in msgspec.structs.fields(route.takes))
        is_required = has_required or route.takes.__name__ in _RULES
        operation["requestBody"] = {
            "required": is_required,
            "content": {wire.JSON: {"schema": ref(route.takes)}},
        }
    return operation


def _success(route: Route) -> JsonObject:
    if route.status == HTTPStatus.SWITCHING_PROTOCOLS:
        return {"description": "A WebSocket, described in docs/stream.md"}
    if route.gives is None:
        if not route.media_type.startswith("text/"):
            return {"description": "Bytes", "content": {route.media_type: {}}}
        return {"description": "Text", "content": {route.media_type: {"schema": {"type": "string"}}}}
    schema = {"type": "object"} if route.gives is dict else ref(route.gives)
    if route.or_gives is not None:
        schema = {"anyOf": [schema, ref(route.or_gives)]}
    return {"description": "It is done", "content": {wire.JSON: {"schema": schema}}}


def _accepted(route: Route) -> JsonObject:
    """Return the answer to a request that was asked in slices, and goes on waiting."""
    if route.takes is None or not issubclass(route.takes, WaitingRequest):
        return {}
    content = {wire.JSON: {"schema": ref(StillWaitingJson)}}
    return {str(HTTPStatus.ACCEPTED): {"description": "It goes on waiting", "content": content}}


def _refusals(route: Route) -> JsonObject:
    """Return what can go wrong, by status; several codes may share one."""
    of_callers = () if route.need.is_open else ("unauthenticated", "forbidden", "too-many-requests")
    codes: Iterable[str] = (*_OF_HEADS, *of_callers, *route.problems, "internal")
    if route.takes is not None:
        codes = (*codes, "payload-too-large")
    by_status: dict[int, list[str]] = {}
    for code in codes:
        by_status.setdefault(wire.PROBLEMS[code].status, []).append(code)
    content = {wire.PROBLEM_JSON: {"schema": ref(Problem)}}
    return {
        str(status): {"description": ", ".join(by_status[status]), "content": content}
        for status in sorted(by_status)
    }
