"""Changes of the members over HTTP."""

from typing import Any

import pytest

from cluster.errors import MemberChangePending, MemberChangeRefused, MemberNotFound, TransferFailed
from holdfast import wire
from tests.support import http_contract
from tests.unit.http_api.serving import serving

ADD = {"id": "n4", "peer": "10.0.0.4:7800", "reason": "by hand"}
REMOVE = {"id": "n4", "reason": "by hand"}


async def test_a_node_is_added_and_removed() -> None:
    """Both calls answer with all members; a new one is joining; repeating an addition changes nothing."""
    async with serving() as served:
        added = await served.call("POST", wire.CLUSTER_MEMBERS, ADD)
        assert added.status == 200
        assert tuple(added.body) == http_contract.ANSWER_FIELDS[f"POST {wire.CLUSTER_MEMBERS}"]
        assert all(tuple(member) == http_contract.MEMBER_FIELDS for member in added.body["members"])
        assert added.body["members"][1] == {"id": "n4", "peer": "10.0.0.4:7800", "state": "joining"}
        assert (await served.call("POST", wire.CLUSTER_MEMBERS, ADD)).body == added.body
        removed = await served.call("DELETE", wire.CLUSTER_MEMBERS, REMOVE)
        assert [member["id"] for member in removed.body["members"]] == ["n1"]
        assert removed.body["members"][0]["state"] in http_contract.MEMBER_STATES


async def test_a_node_is_moved() -> None:
    """It answers with all members; nobody moves whom the cluster does not have, or to nowhere."""
    async with serving() as served:
        await served.call("POST", wire.CLUSTER_MEMBERS, ADD)
        moved = await served.call("PATCH", wire.CLUSTER_MEMBERS, {**ADD, "peer": "10.0.0.9:7800"})
        assert moved.status == 200
        assert tuple(moved.body) == http_contract.ANSWER_FIELDS[f"PATCH {wire.CLUSTER_MEMBERS}"]
        assert moved.body["members"][1] == {"id": "n4", "peer": "10.0.0.9:7800", "state": "joining"}
        unknown = await served.call("PATCH", wire.CLUSTER_MEMBERS, {**ADD, "id": "n9"})
        assert (unknown.status, unknown.body["code"]) == (404, "member-not-found")
        wrong = await served.call("PATCH", wire.CLUSTER_MEMBERS, {**ADD, "peer": "10.0.0.9"})
        assert (wrong.status, wrong.body["code"]) == (400, "invalid-request")
        assert wrong.body["detail"].startswith("peer: ")


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", wire.CLUSTER_MEMBERS, ADD),
        ("PATCH", wire.CLUSTER_MEMBERS, ADD),
        ("DELETE", wire.CLUSTER_MEMBERS, REMOVE),
        ("POST", wire.CLUSTER_TRANSFER_LEADERSHIP, {"to": "n1", "reason": "by hand"}),
    ],
)
async def test_a_request_id_names_the_call(method: str, path: str, body: dict[str, Any]) -> None:
    """As in every other write it may be there, and is checked."""
    async with serving() as served:
        await served.call("POST", wire.CLUSTER_MEMBERS, ADD)
        short = await served.call(method, path, {**body, "request_id": "short"})
        assert (short.status, short.body["code"]) == (400, "invalid-request")
        got = await served.call(method, path, {**body, "request_id": "request-number-01"})
        assert (got.status, got.headers[wire.HEADER_REQUEST_ID]) == (200, "request-number-01")


async def test_the_node_to_be_removed_may_stand_in_the_query() -> None:
    """Some clients send no body with DELETE."""
    async with serving() as served:
        await served.call("POST", wire.CLUSTER_MEMBERS, ADD)
        removed = await served.call("DELETE", f"{wire.CLUSTER_MEMBERS}?id=n4&reason=x")
        assert [member["id"] for member in removed.body["members"]] == ["n1"]


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"peer": "10.0.0.4:7800", "reason": "r"}, "id"),
        ({"id": "n4", "reason": "r"}, "peer"),
        ({"id": "n4", "peer": "10.0.0.4:7800"}, "reason"),
        ({**ADD, "reason": ""}, "reason"),
        ({**ADD, "reason": "\n"}, "reason"),
        ({**ADD, "reason": "r" * 1025}, "reason"),
        ({"id": "", "peer": "10.0.0.4:7800", "reason": "r"}, "id"),
        ({"id": "-n4", "peer": "10.0.0.4:7800", "reason": "r"}, "id"),
        ({"id": "n 4", "peer": "10.0.0.4:7800", "reason": "r"}, "id"),
        ({"id": "n" * 64, "peer": "10.0.0.4:7800", "reason": "r"}, "id"),
        ({"id": 4, "peer": "10.0.0.4:7800", "reason": "r"}, "id"),
        ({"id": "n4", "peer": "10.0.0.4", "reason": "r"}, "peer"),
        ({"id": "n4", "peer": "10.0.0.4:0", "reason": "r"}, "peer"),
        ({"id": "n4", "peer": "10.0.0.4:65536", "reason": "r"}, "peer"),
        ({"id": "n4", "peer": ":7800", "reason": "r"}, "peer"),
        ({"id": "n4", "peer": "0.0.0.0:7800", "reason": "r"}, "peer"),
        ({"id": "n4", "peer": "[::]:7800", "reason": "r"}, "peer"),
        ({"id": "n4", "peer": "::1:7800", "reason": "r"}, "peer"),
        ({"id": "n4", "peer": "http://10.0.0.4:7800", "reason": "r"}, "peer"),
        ({**ADD, "voter": True}, "voter"),
    ],
)
async def test_a_wrong_addition_names_its_field(fields: dict[str, object], field: str) -> None:
    """An id that is not one, or an address that others cannot reach, is 400, and nothing is added."""
    async with serving() as served:
        got = await served.call("POST", wire.CLUSTER_MEMBERS, fields)
        assert (got.status, got.body["code"]) == (400, "invalid-request")
        assert got.body["detail"].startswith(f"{field}: ")
        assert list(served.node.members.nodes) == ["n1"]


@pytest.mark.parametrize(
    ("query", "body"),
    [
        ("", None),
        ("", {}),
        ("?id=&reason=r", None),
        ("?id=n4", REMOVE),
        ("", {"id": "n/4", "reason": "r"}),
    ],
)
async def test_a_wrong_removal_names_the_id(query: str, body: dict[str, str] | None) -> None:
    """The id stands in the body or in the query, once, and is one."""
    async with serving() as served:
        got = await served.call("DELETE", wire.CLUSTER_MEMBERS + query, body)
        assert (got.status, got.body["code"]) == (400, "invalid-request")
        assert got.body["detail"].startswith("id: ")


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (MemberChangeRefused("would lose the quorum"), 409),
        (MemberChangePending("one at a time"), 409),
        (MemberNotFound("no such node"), 404),
        (TransferFailed("nobody took over"), 503),
    ],
)
async def test_a_refused_change_has_its_reason(error: MemberChangeRefused, status: int) -> None:
    """Refusals have a code for programs and the cluster's reason for people."""
    async with serving() as served:
        served.node.failure = error
        got = await served.call("DELETE", wire.CLUSTER_MEMBERS, REMOVE)
        assert (got.status, got.body["code"], got.body["detail"]) == (status, error.code, str(error))
        assert got.body["outcome"] == "not-applied"
        assert got.body.get("retry_after_ms", 0) == error.retry_after_ms


async def test_the_deadline_reaches_the_node() -> None:
    """A change may take as long as the client says."""
    async with serving() as served:
        headers = {wire.HEADER_TIMEOUT_MS: "1234"}
        await served.call("POST", wire.CLUSTER_MEMBERS, ADD, headers=headers)
        first, *others = served.node.timeouts_s
        assert first == 1.234
        assert all(1 < timeout_s <= 1.234 for timeout_s in others), "what is left of it"
        assert len(others) == 2


async def test_who_asked_and_why_is_in_the_audit() -> None:
    """Newest first, before anything came of it; the reason of a removal may stand in the query."""
    async with serving() as served:
        await served.call("POST", wire.CLUSTER_MEMBERS, ADD)
        await served.call("PATCH", wire.CLUSTER_MEMBERS, {**ADD, "peer": "10.0.0.9:7800"})
        await served.call("DELETE", f"{wire.CLUSTER_MEMBERS}?id=n4&reason=old")
        await served.call("POST", wire.CLUSTER_TRANSFER_LEADERSHIP, {"reason": "slow"})
        events = (await served.call("GET", wire.AUDIT)).body["events"]
    told = [(event["event"], event["value"], event["reason"], event["name"]) for event in events]
    assert told == [
        ("transfer-asked", "{}", "slow", ""),
        ("member-remove-asked", '{"id":"n4"}', "old", ""),
        ("member-move-asked", '{"id":"n4","peer":"10.0.0.9:7800"}', "by hand", ""),
        ("member-add-asked", '{"id":"n4","peer":"10.0.0.4:7800"}', "by hand", ""),
    ]
    assert not {"kind", "token"} & events[0].keys()


@pytest.mark.parametrize("body", [None, {}, {"to": "n1"}, {"reason": ""}])
async def test_a_transfer_says_why(body: dict[str, str] | None) -> None:
    """Without a reason leadership stays where it is."""
    async with serving() as served:
        got = await served.call("POST", wire.CLUSTER_TRANSFER_LEADERSHIP, body)
        assert (got.status, got.body["code"]) == (400, "invalid-request")
        assert served.node.transfers == []
