"""The OpenAPI document: complete, consistent, and true to the words of holdfast.wire."""

import re
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from holdfast import wire
from holdfast.wire import answers, cells, held, listings, operators, shape
from http_api.server.metrics import RequestCounts
from http_api.server.refusal_trace import RefusalTrace
from http_api.server.routes import Route
from http_api.v1.handlers import cluster
from http_api.v1.openapi import make_document
from http_api.v1.table import make_routes
from lockapi import problems
from lockapi.requests.locks import WantedLock
from lockstate.tables.audit_record import AuditEvent
from scripts.local_cluster import PROJECT
from tests.support import http_contract
from tests.unit.http_api.serving import serving

EXTRA: dict[type[Any], set[str]] = {
    answers.GrantedJson: {*http_contract.GRANTED_EXTRA_FIELDS},
    answers.PermitsGrantedJson: {*http_contract.PERMITS_EXTRA_FIELDS},
    cells.CellJson: {*http_contract.CELL_EXTRA_FIELDS},
    answers.RenewedJson: {*http_contract.RENEWED_EXTRA_FIELDS},
    answers.SessionKeptJson: {*http_contract.KEPT_EXTRA_FIELDS},
    answers.ElectedJson: {*http_contract.ELECTED_EXTRA_FIELDS},
    answers.ReleasedJson: {*http_contract.RELEASED_EXTRA_FIELDS},
    held.TicketInfo: {*http_contract.TICKET_EXTRA_FIELDS},
    operators.FreezeInfo: {"ends_in_ms"},
    operators.FrozenJson: {"ends_in_ms"},
}
"""What is there where it applies."""

ROUTES = make_routes(RequestCounts(), RefusalTrace())
DOCUMENT = make_document(ROUTES)


def _references(value: Any) -> list[str]:
    """Return every `$ref` in a document."""
    if isinstance(value, dict):
        here = [value["$ref"]] if "$ref" in value else []
        return here + [ref for part in value.values() for ref in _references(part)]
    return [ref for part in value for ref in _references(part)] if isinstance(value, list | tuple) else []


async def test_it_is_served() -> None:
    """The node answers with its own description."""
    async with serving() as served:
        got = await served.call("GET", wire.OPENAPI)
        assert got.status == 200
        assert got.body == msgspec.to_builtins(DOCUMENT)
        assert got.body["openapi"] == "3.1.0"


async def test_it_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """All calls after the first one get the bytes that are there: making it stops a node for milliseconds."""
    made: list[int] = []

    def counted(routes: Sequence[Route]) -> dict[str, Any]:
        made.append(len(routes))
        return make_document(routes)

    monkeypatch.setattr(cluster, "make_document", counted)
    async with serving() as served:
        first, second = [await served.call("GET", wire.OPENAPI) for _ in range(2)]
    assert first.body == second.body == msgspec.to_builtins(DOCUMENT)
    assert made == [len(ROUTES)]


def test_every_route_is_in_it_and_nothing_else() -> None:
    """Document and route table name the same calls."""
    described = {(method.upper(), path) for path, item in DOCUMENT["paths"].items() for method in item}
    assert described == {(route.method, route.path) for route in ROUTES}


def test_every_operation_is_whole() -> None:
    """Each has a name of its own, a summary, its path parameters, and answers for success and failure."""
    operations = [
        (path, operation) for path, item in DOCUMENT["paths"].items() for operation in item.values()
    ]
    names = [operation["operationId"] for _, operation in operations]
    assert len(set(names)) == len(names)
    for path, operation in operations:
        assert operation["summary"]
        in_path = re.findall(r"{(\w+)}", path)
        given = [ref["$ref"].rpartition("/")[2] for ref in operation["parameters"]]
        assert given[: len(in_path)] == in_path
        statuses = set(operation["responses"])
        assert statuses & {"101", "200", "201"}
        assert {"400", "500"} <= statuses


def test_every_reference_leads_somewhere() -> None:
    """No `$ref` points at what is not there, and no component is left over."""
    references = set(_references(DOCUMENT))
    components = DOCUMENT["components"]
    known = {f"#/components/{kind}/{name}" for kind, parts in components.items() for name in parts}
    known.remove("#/components/securitySchemes/token")  # those are named, not referred to
    assert references == known


def test_every_route_is_on_the_page() -> None:
    """The page on HTTP has the method and the path of each route, so that people can read about it."""
    page = (PROJECT / "docs" / "http-api.md").read_text()
    assert [
        f"{route.method} {route.path}" for route in ROUTES if f"{route.method} {route.path}`" not in page
    ] == []


def test_bodies_have_the_fields_of_the_wire() -> None:
    """Requests and answers have the published fields."""
    for route in ROUTES:
        call = f"{route.method} {route.path}"
        takes = route.takes.__struct_encode_fields__ if route.takes else ()
        assert set(takes) == set(http_contract.REQUEST_FIELDS.get(call, ()))
        if call in http_contract.ANSWER_FIELDS:
            assert route.gives is not None
            extra = EXTRA.get(route.gives, set()) | {*http_contract.REPEATED_FIELDS}
            if "consistency" in route.query:
                extra = {"hidden", "revision", "lag_ms", *extra}
            assert set(route.gives.__struct_fields__) - extra == set(http_contract.ANSWER_FIELDS[call])
        if route.or_gives is not None:
            extra_fields = (*http_contract.SEVERAL_EXTRA_FIELDS, *http_contract.REPEATED_FIELDS)
            fields = (*http_contract.SEVERAL_FIELDS, *extra_fields)
            assert route.or_gives.__struct_fields__ == fields
    calls = {f"{route.method} {route.path}" for route in ROUTES}
    assert set(http_contract.REQUEST_FIELDS) | set(http_contract.ANSWER_FIELDS) <= calls


def test_bounds_are_told() -> None:
    """A reader of the document sees ranges, allowed words, and that unknown fields are refused."""
    acquire = DOCUMENT["components"]["schemas"]["AcquireRequest"]
    assert acquire["additionalProperties"] is False
    assert acquire["required"] == []
    assert acquire["properties"]["ttl_ms"]["minimum"] == 50
    assert acquire["properties"]["mode"]["default"] == "exclusive"
    assert acquire["properties"]["locks"]["maxItems"] == 64
    lease, locks = acquire["allOf"]
    assert [one["required"] for one in lease["oneOf"]] == [["session_id"], ["ttl_ms"], ["no_deadline"]]
    assert locks["oneOf"][0] == {"required": ["name"]}
    assert locks["oneOf"][1]["required"] == ["locks"]
    (hold,) = DOCUMENT["components"]["schemas"]["ReleaseRequest"]["allOf"]
    assert [one["required"] for one in hold["oneOf"]] == [["hold_id"], ["name", "value"]]
    assert "expires_in_ms" not in DOCUMENT["components"]["schemas"]["Granted"]["required"]
    body = DOCUMENT["paths"][wire.LOCK_ACQUIRE]["post"]["requestBody"]
    assert body["required"] is True


def test_answers_are_described_as_they_are_sent() -> None:
    """What is always there is required; null is said where it comes; what a reader puts in is not said."""
    schemas = DOCUMENT["components"]["schemas"]
    assert schemas["Holder"]["required"] == ["owner", "token", "note", "name"]
    assert schemas["DelaysLifted"]["required"] == ["lifted", "left_ms", "revision"]
    assert set(schemas["Quota"]["required"]) == set(schemas["Quota"]["properties"])
    lock = schemas["LockInfo"]
    assert lock["required"] == ["name", "state", "holders", "queue"]
    assert lock["properties"]["lag_ms"] == {"anyOf": [{"type": "integer"}, {"type": "null"}]}
    assert lock["properties"]["revision"] == {"type": "integer"}
    assert _references(schemas["Holder"]) == [
        f"#/components/schemas/{name}" for name in ("Mode", "Scope", "Revocation")
    ]
    answers_alone = [schema for name, schema in schemas.items() if not re.search("Request$|^Wanted", name)]
    assert not [
        said
        for schema in answers_alone
        for said in schema.get("properties", {}).values()
        if "default" in said
    ]


def test_words_are_those_of_the_wire() -> None:
    """Modes, scopes, kinds and algorithms are the published words."""
    schemas = DOCUMENT["components"]["schemas"]
    for name, words in (
        ("Mode", http_contract.MODES),
        ("Scope", http_contract.SCOPES),
        ("Kind", http_contract.KINDS),
        ("Algorithm", http_contract.ALGORITHMS),
    ):
        assert schemas[name]["enum"] == sorted(words)


def test_what_is_told_of_others_has_the_fields_of_the_wire() -> None:
    """Holders, waiters, leaders, events, cycles and problems carry the published fields."""
    waiter = {
        *http_contract.WAITER_FIELDS,
        *http_contract.PERMITS_WAITER_FIELDS,
        *http_contract.WAITER_EXTRA_FIELDS,
    }
    of_reads = {*http_contract.HOLDER_READ_FIELDS, *http_contract.REVOKED_FIELDS}
    of_reads |= {*http_contract.PRINCIPAL_FIELDS}
    holder = {*http_contract.HOLDER_FIELDS, *http_contract.PERMITS_HOLDER_FIELDS, *of_reads}
    holder |= {*http_contract.HOLDER_EXTRA_FIELDS}
    for kind, fields in (
        (held.Holder, holder),
        (held.HoldRow, {*holder, "kind"}),
        (held.Waiter, waiter),
        (held.WaitRow, {*waiter, "kind"}),
        (held.Leader, {*http_contract.LEADER_FIELDS, *of_reads}),
        (
            listings.SessionRow,
            {*http_contract.SESSION_ROW_FIELDS, *http_contract.PRINCIPAL_FIELDS},
        ),
        (listings.SemaphoreRow, {*http_contract.SEMAPHORE_ROW_FIELDS}),
        (listings.ElectionRow, {*http_contract.ELECTION_ROW_FIELDS}),
        (listings.RateLimitRow, {*http_contract.RATE_ROW_FIELDS, *http_contract.RATE_EXTRA_FIELDS}),
        (listings.FenceRow, {*http_contract.FENCE_ROW_FIELDS}),
        (operators.PrincipalInfo, {*http_contract.QUOTA_ROW_FIELDS, *shape.ReadAnswer.__struct_fields__}),
        (operators.Quota, {*http_contract.QUOTA_FIELDS}),
        (operators.NamespaceInfo, {*http_contract.NAMESPACE_ROW_FIELDS, *shape.ReadAnswer.__struct_fields__}),
        (operators.NamespaceSettings, {*http_contract.NAMESPACE_FIELDS}),
        (operators.NamespaceUsed, {*http_contract.NAMESPACE_USED_FIELDS}),
        (operators.FreezeInfo, {*http_contract.FREEZE_FIELDS, *shape.ReadAnswer.__struct_fields__}),
        (operators.LeftBelow, {*http_contract.LEFT_FIELDS}),
        (held.Revocation, {*http_contract.REVOCATION_FIELDS}),
        (held.CycleStepJson, {*http_contract.CYCLE_FIELDS}),
        (AuditEvent, {*http_contract.EVENT_FIELDS, *http_contract.EVENT_EXTRA_FIELDS}),
        (answers.HeldLockJson, {*http_contract.LOCK_FIELDS}),
        (WantedLock, {*http_contract.LOCK_FIELDS}),
        (problems.Problem, {*http_contract.PROBLEM_FIELDS, *http_contract.PROBLEM_EXTRA_FIELDS}),
    ):
        assert set(kind.__struct_fields__) == fields


def test_what_a_call_needs_of_its_caller_is_described() -> None:
    """A token, if the node wants one; the right that it needs; and what is answered to those without."""
    assert DOCUMENT["security"] == [{"token": []}, {}]
    scheme = DOCUMENT["components"]["securitySchemes"]["token"]
    assert (scheme["type"], scheme["scheme"]) == ("http", "bearer")
    for route in ROUTES:
        operation = DOCUMENT["paths"][route.path][route.method.lower()]
        assert operation.get("x-right") == (route.need.right.value if route.need.right else None)
        assert operation.get("security") == ([] if route.need.is_open else None)
        assert ("401" in operation["responses"]) is not route.need.is_open


def test_a_namespace_cannot_have_acquires_counted() -> None:
    """Its `if_held` has the words that are taken there: fewer than an acquire has."""
    schemas = DOCUMENT["components"]["schemas"]
    of_all = schemas["SetNamespaceRequest"]["properties"]["if_held"]
    of_one = schemas["AcquireRequest"]["properties"]["if_held"]
    assert (of_all["enum"], set(_references(of_all))) == (["refuse", "renew"], set(_references(of_one)))
    assert "enum" not in of_one
    assert set(schemas["IfHeld"]["enum"]) == {"count", "refuse", "renew"}
