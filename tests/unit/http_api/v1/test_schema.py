"""Reading JSON: which requests bodies become, and where in a body a problem is."""

import json
import re

import pytest

from holdfast import wire
from http_api.server.metrics import RequestCounts
from http_api.server.refusal_trace import RefusalTrace
from http_api.server.routes import Route
from http_api.v1 import schema
from http_api.v1.table import make_routes
from lockapi.problems import ProblemError
from lockapi.requests.locks import AcquireRequest, WantedLock
from lockstate.words.kinds import Algorithm
from lockstate.words.modes import Mode, Scope
from tests.support import http_contract
from tests.unit.http_api.serving import serving


def test_a_body_becomes_its_request() -> None:
    """Fields that are missing are left unset, and words become what they stand for."""
    body = b'{"ttl_ms":1000,"locks":[{"name":"b","mode":"update","scope":"subtree"},{"name":"a"}]}'
    wanted = [WantedLock(name="b", mode=Mode.UPDATE, scope=Scope.SUBTREE), WantedLock(name="a")]
    assert schema.decode(body, AcquireRequest) == AcquireRequest(ttl_ms=1000, locks=wanted)


def test_the_words_of_the_wire_are_those_of_the_commands() -> None:
    """The published words are those of the state machine."""
    assert tuple(Mode) == http_contract.MODES
    assert tuple(Scope) == http_contract.SCOPES
    assert tuple(Algorithm) == http_contract.ALGORITHMS


@pytest.mark.parametrize(
    ("body", "detail"),
    [
        (b'{"locks":[{"name":"a","name":"b"}],"ttl_ms":1000}', "name: is given twice"),
        (b'{"locks":[{"name":"a"}],"locks":[{"name":"b"}],"ttl_ms":1000}', "locks: is given twice"),
        (b'{"locks":[{"name":"a"},{"nom":"b"}],"ttl_ms":1000}', "locks[1].nom: unknown field"),
        (b'{"locks":[{"mode":"shared"}],"ttl_ms":1000}', "locks[0].name: is required"),
        (b'{"locks":[{"name":"a","mode":"x"}],"ttl_ms":1}', "locks[0].mode: Invalid enum value"),
    ],
)  # fmt: skip
def test_a_problem_within_a_list_says_where(body: bytes, detail: str) -> None:
    """The detail begins with the index of the entry and its field."""
    with pytest.raises(ProblemError) as caught:
        schema.decode(body, AcquireRequest)
    assert caught.value.code == "invalid-request"
    assert caught.value.detail.startswith(detail)


@pytest.mark.parametrize(
    ("field", "detail"),
    [
        ("ttl", "ttl: unknown field; did you mean ttl_ms?"),
        ("wait", "wait: unknown field; did you mean wait_ms?"),
        ("colour", "colour: unknown field"),
        ("ttl_ms" * 10_000, f"{'ttl_ms' * 10_000}: unknown field"),  # too long to be compared with anything
    ],
)
def test_a_misspelt_field_is_answered_with_the_nearest(field: str, detail: str) -> None:
    """A newcomer reads what to write instead, and no long name costs the node time."""
    with pytest.raises(ProblemError) as caught:
        schema.decode(json.dumps({"name": "a", field: 1}).encode(), AcquireRequest)
    assert caught.value.detail == detail


def test_names_may_occur_in_several_entries() -> None:
    """Every entry of a list may have the same fields."""
    body = b'{"locks":[{"name":"a","mode":"shared"},{"name":"b","mode":"shared"}],"ttl_ms":1000}'
    assert len(schema.decode(body, AcquireRequest).command().locks) == 2


async def test_every_removal_takes_its_reason_from_the_body_or_the_query() -> None:
    """Not everything on the way passes on the body of a DELETE; both at once, and neither, are refused."""
    removals = [route for route in make_routes(RequestCounts(), RefusalTrace()) if _takes_reason(route)]
    assert all("reason" in route.query for route in removals)
    assert len(removals) == 8
    async with serving() as served:
        for route in removals:
            path = re.sub(r"\{\w+\}", "jobs", route.path)
            said = {"all": "all=true&", "id": "id=n4&"}
            meant = "".join(text for what, text in said.items() if what in route.query)
            for body, query, status in (
                ({"reason": "over"}, "", 200),
                (None, "reason=over", 200),
                ({"reason": "over"}, "reason=over", 400),
                (None, "", 400),
            ):
                await served.call("POST", wire.CLUSTER_MEMBERS, {"id": "n4", "peer": "h:1", "reason": "new"})
                got = await served.call("DELETE", f"{path}?{meant}{query}", body)
                assert got.status == status, (route.path, body, query, got.body)


def _takes_reason(route: Route) -> bool:
    """Whether this is a removal that says why."""
    fields = () if route.takes is None else route.takes.__struct_fields__
    return route.method == "DELETE" and "reason" in fields
