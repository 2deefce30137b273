"""The cluster, health and metrics over HTTP."""

from holdfast import wire
from http_api.server.metrics import CONTENT_TYPE, render
from tests.support import http_contract
from tests.unit.http_api.serving import serving


async def test_the_cluster_is_shown() -> None:
    """Any node says who leads and how each node is doing."""
    async with serving() as served:
        got = await served.call("GET", wire.CLUSTER)
        assert got.status == 200
        assert tuple(got.body) == http_contract.ANSWER_FIELDS[f"GET {wire.CLUSTER}"]
        assert (got.body["node_id"], got.body["leader"]) == ("n1", "n1")
        assert tuple(got.body["nodes"][0]) == http_contract.NODE_FIELDS


async def test_leadership_is_handed_over() -> None:
    """The target may be named or left to the cluster; the answer names the new leader."""
    async with serving() as served:
        named = await served.call("POST", wire.CLUSTER_TRANSFER_LEADERSHIP, {"to": "n1", "reason": "by hand"})
        unnamed = await served.call("POST", wire.CLUSTER_TRANSFER_LEADERSHIP, {"reason": "by hand"})
        assert (named.body, unnamed.body) == ({"leader": "n1"}, {"leader": "n1"})
        assert served.node.transfers == ["n1", None]


async def test_a_leader_is_preferred() -> None:
    """It must be a member: the refusal names those that are. Both answers say which one was before."""
    async with serving() as served:
        path, why = wire.CLUSTER_PREFERRED_LEADER, {"reason": "it is near"}
        for wrong in ("n9", "", "n" * 65, "a\nb"):
            refused = await served.call("PUT", path, {"id": wrong, **why})
            assert (refused.status, refused.body["code"]) == (400, "invalid-request")
            assert refused.body["detail"].startswith("id: ")
        unnamed = await served.call("PUT", path, why)
        assert (unnamed.status, "id" in unnamed.body["detail"]) == (400, True)
        unreasoned = await served.call("PUT", path, {"id": "n1"})
        assert (unreasoned.status, "reason" in unreasoned.body["detail"]) == (400, True)
        first = await served.call("PUT", path, {"id": "n1", **why})
        again = await served.call("PUT", path, {"id": "n1", **why})
        ended = await served.call("DELETE", f"{path}?reason=by+hand")
        said = [(got.body["preferred"], got.body["was_preferred"]) for got in (first, again, ended)]
        assert said == [("n1", None), ("n1", "n1"), (None, "n1")]


async def test_ready_is_more_than_alive() -> None:
    """A node that has not caught up is alive and not ready."""
    async with serving() as served:
        assert (await served.call("GET", wire.READYZ)).status == 200
        served.node.is_ready = False
        got = await served.call("GET", wire.READYZ)
        assert (got.status, got.body["code"]) == (503, "not-ready")
        assert (await served.call("GET", wire.LIVEZ)).body == {"ok": True}
        served.node.told_troubles = ("the disk is slow",)
        got = await served.call("GET", wire.LIVEZ)
        assert (got.status, got.body) == (200, {"ok": True, "troubles": ["the disk is slow"]})


async def test_metrics_count_answers_by_route() -> None:
    """The node's metrics are followed by the answers of this face, by route and never by path."""
    async with serving() as served:
        await served.call("GET", "/v1/locks/a")
        await served.call("GET", "/v1/locks/b")
        await served.call("POST", "/coffee")
        got = await served.call("GET", wire.METRICS)
        assert got.headers["Content-Type"] == CONTENT_TYPE
        lines = got.body.decode().splitlines()
        assert 'test_commands_total{kind="a\\"b\\\\c"} 3' in lines
        assert "# TYPE holdfast_http_requests_total counter" in lines
        assert 'holdfast_http_requests_total{method="GET",route="/v1/locks/{name}",status="200"} 2' in lines
        assert 'holdfast_http_requests_total{method="-",route="-",status="404"} 1' in lines
        took = 'holdfast_http_request_seconds_{}method="GET",route="/v1/locks/{{name}}"{}'
        assert took.format("count{", "} 2") in lines
        assert took.format("bucket{", ',le="+Inf"} 2') in lines
        assert "coffee" not in got.body.decode()


def test_a_histogram_is_described_once() -> None:
    """Buckets, sum and count are one metric with one help line."""
    samples = [
        ("wait_seconds_bucket", "Waits.", "histogram", {"le": "+Inf"}, 2.0),
        ("wait_seconds_sum", "Waits.", "histogram", {}, 0.75),
        ("wait_seconds_count", "Waits.", "histogram", {}, 2),
    ]
    assert render(samples).decode().splitlines() == [
        "# HELP wait_seconds Waits.",
        "# TYPE wait_seconds histogram",
        'wait_seconds_bucket{le="+Inf"} 2',
        "wait_seconds_sum 0.75",
        "wait_seconds_count 2",
    ]
