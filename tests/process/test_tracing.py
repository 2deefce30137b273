"""Traces of real nodes at a collector: one trace over two nodes, and collectors that do not answer."""

import asyncio
import json
import re
import secrets
import signal
import socket
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import use_span

from holdfast import Client, SyncClient, wire
from holdfast.transport import http
from scripts.local_cluster import LocalCluster
from tests.process.nodes import Got, exit_code, followers, http_to, until, urls
from tests.support.collector import Collector, collecting

pytestmark = pytest.mark.process

STATE = "vendor=opaque"
GIVES_UP_S = 0.5
"""For how long nodes try to send a batch here."""
STOPS_S = 30.0


@pytest.fixture(scope="module")
def collector() -> Iterator[Collector]:
    """The collector of all nodes here."""
    with collecting() as one:
        yield one


@pytest.fixture(scope="module")
def cluster(collector: Collector, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Three nodes that send traces to it."""
    arguments = ["--otlp-endpoint", collector.url, "--log-format", "json"]
    with LocalCluster.up(tmp_path_factory.mktemp("traced"), extra_args=arguments) as started:
        yield started


def new_trace(*, is_sampled: bool = True) -> tuple[str, str, dict[str, str]]:
    """Return a trace id, the span id of who calls, and the headers of the call."""
    trace_id, span_id = secrets.token_hex(16), secrets.token_hex(8)
    parent = f"00-{trace_id}-{span_id}-{'01' if is_sampled else '00'}"
    return trace_id, span_id, {"traceparent": parent, "tracestate": STATE}


async def ask(
    cluster: LocalCluster, node_id: str, path: str, headers: dict[str, str], method: str = "POST", **body: Any
) -> Got:
    """Make one call to one node."""
    url = cluster.node(node_id).http + path
    async with (
        aiohttp.ClientSession() as client,
        client.request(method, url, json=body or None, headers=headers) as response,
    ):
        return Got(response.status, await response.json(content_type=None))


def lines(cluster: LocalCluster, node_id: str, trace_id: str) -> list[dict[str, Any]]:
    """Return the lines of a node's log about a trace."""
    text = cluster.log(node_id).read_text("utf-8")
    return [json.loads(line) for line in text.splitlines() if trace_id in line]


@pytest.mark.parametrize("wait_ms", [0, 2000])
async def test_one_trace_over_two_nodes(cluster: LocalCluster, collector: Collector, wait_ms: int) -> None:
    """A follower is asked and the leader does it: both parts are of the caller's trace. Two ways in."""
    leader = await asyncio.to_thread(cluster.leader)
    follower = (await asyncio.to_thread(followers, cluster))[0]
    trace_id, caller, headers = new_trace()
    name = f"secret-project/{secrets.token_hex(4)}"
    got = await ask(
        cluster, follower, wire.LOCK_ACQUIRE, headers, name=name, owner="o", ttl_ms=60_000, wait_ms=wait_ms
    )
    assert got.status == 200
    await until(lambda: len(collector.of_trace(trace_id)) == 3, "all three parts are there")
    found = collector.of_trace(trace_id)
    call = found[f"{follower} POST {wire.LOCK_ACQUIRE}"]
    command, lead = found[f"{follower} replicate Acquire"], found[f"{leader} lead"]
    assert (call.parent, command.parent, lead.parent) == (caller, call.span_id, command.span_id)
    assert {call.state, command.state, lead.state} == {STATE}
    assert (call.kind, command.kind, lead.kind) == (2, 3, 2), "server, client, server"
    assert call.attributes["http.route"] == wire.LOCK_ACQUIRE
    assert call.attributes["http.response.status_code"] == 200
    assert command.attributes["holdfast.leader"] == leader
    assert command.attributes["holdfast.revision"] == got.body["revision"]
    assert lead.attributes["holdfast.from"] == follower
    assert (command.events, lead.events) == (("sent", "committed"), ("proposed", "committed"))
    assert call.resource["service.name"] == "holdfast"
    assert name not in repr(found), "no name of a lock leaves the cluster"
    assert got.body["hold_id"] not in repr(found)


async def test_a_wait_and_a_read_are_parts_of_their_calls(
    cluster: LocalCluster, collector: Collector
) -> None:
    """At the leader itself: who waits in a queue is shown to wait there; a read rides on a barrier."""
    leader = await asyncio.to_thread(cluster.leader)
    name = secrets.token_hex(8)
    body: dict[str, Any] = {"name": name, "ttl_ms": 60_000, "wait_ms": 20_000}
    first = await ask(cluster, leader, wire.LOCK_ACQUIRE, {}, **body, owner="a")
    trace_id, _, headers = new_trace()
    second = asyncio.ensure_future(ask(cluster, leader, wire.LOCK_ACQUIRE, headers, **body, owner="b"))

    async with http_to(cluster) as plain:
        await until(lambda: plain.queue_length(leader, name), "it stands in the queue")
    await ask(cluster, leader, wire.LOCK_RELEASE, {}, hold_id=first.body["hold_id"])
    assert (await second).status == 200
    await until(lambda: len(collector.of_trace(trace_id)) == 3, "all three parts are there")
    found = collector.of_trace(trace_id)
    call, command = found[f"{leader} POST {wire.LOCK_ACQUIRE}"], found[f"{leader} replicate Acquire"]
    wait = found[f"{leader} wait in queue"]
    assert (command.parent, wait.parent) == (call.span_id, call.span_id)
    assert command.events == ("proposed", "committed")
    assert wait.took_ns <= call.took_ns

    trace_id, _, headers = new_trace()
    await ask(cluster, leader, wire.LOCK.format(name=name), headers, method="GET")
    await until(lambda: len(collector.of_trace(trace_id)) == 3, "call, read and barrier")
    assert set(collector.of_trace(trace_id)) == {
        f"{leader} GET {wire.LOCK}", f"{leader} read", f"{leader} barrier",
    }  # fmt: skip


async def test_a_refused_call_is_in_the_log_with_its_trace(
    cluster: LocalCluster, collector: Collector
) -> None:
    """Sampled or not; a malformed header is ignored, and the call is answered as any other."""
    trace_id, _, headers = new_trace()
    other_id, _, not_sampled = new_trace(is_sampled=False)
    for each in (headers, not_sampled):
        got = await ask(cluster, "n1", wire.LOCK_RENEW, each, hold_id="0" * 32)
        assert got.code == "lease-expired"
    for each_id in (trace_id, other_id):
        await until(partial(lines, cluster, "n1", each_id), "the line is there")
        (line,) = lines(cluster, "n1", each_id)
        assert (line["event"], line["trace_id"], line["status"]) == ("request", each_id, got.status)
    await until(lambda: len(collector.of_trace(trace_id)) >= 2, "the sampled one is recorded")
    call = collector.of_trace(trace_id)[f"n1 POST {wire.LOCK_RENEW}"]
    assert call.attributes["error.type"] == "lease-expired"
    assert call.attributes["holdfast.request_id"] == lines(cluster, "n1", trace_id)[0]["request_id"]
    assert not call.is_error, "a refusal is not a failure of the node"
    assert collector.of_trace(other_id) == {}
    for wrong in ("00-" + "0" * 32 + "-" + "1" * 16 + "-01", "x", headers["traceparent"].upper()):
        got = await ask(cluster, "n1", wire.LOCK_RENEW, {"traceparent": wrong}, hold_id="0" * 32)
        assert got.code == "lease-expired"


async def test_what_lasts_is_recorded_up_to_its_beginning(
    cluster: LocalCluster, collector: Collector
) -> None:
    """The span of a watch has ended while the watch goes on."""
    trace_id, caller, headers = new_trace()
    url = cluster.node("n1").http + wire.WATCH
    async with aiohttp.ClientSession() as client, client.get(url, headers=headers) as response:
        assert response.status == 200
        name = f"n1 GET {wire.WATCH}"
        await until(lambda: name in collector.of_trace(trace_id), "the span is there")
        assert collector.of_trace(trace_id)[name].parent == caller


@pytest.mark.parametrize("kind", ["tasks", "threads"])
async def test_a_call_of_the_client_is_a_part_of_its_callers_trace(
    cluster: LocalCluster, collector: Collector, kind: str
) -> None:
    """Within a span of OpenTelemetry, whichever client makes it; outside of one there is no header."""
    tracer = TracerProvider().get_tracer("test")
    with tracer.start_as_current_span("caller") as span:
        name, nodes = f"of-the-client/{kind}", urls(cluster)
        if kind == "tasks":
            async with Client(nodes) as client, client.lock(name):
                pass
        else:
            await asyncio.to_thread(lock_in_thread, nodes, name)
        inside = http.trace_headers()
    place = span.get_span_context()
    trace_id, caller = f"{place.trace_id:032x}", f"{place.span_id:016x}"
    assert inside == {"traceparent": f"00-{trace_id}-{caller}-{place.trace_flags:02x}"}
    assert http.trace_headers() == {}
    with use_span(span):
        assert http.trace_headers() == {}, "that has ended"

    def calls() -> set[str]:
        return {seen.name for seen in collector.of_trace(trace_id).values() if seen.parent == caller}

    await until(lambda: calls() >= {f"POST {wire.LOCK_ACQUIRE}", f"POST {wire.LOCK_RELEASE}"}, "both calls")


def lock_in_thread(nodes: list[str], name: str) -> None:
    """Take a lock and give it back."""
    with SyncClient(nodes) as client, client.lock(name):
        pass


@pytest.mark.parametrize("how", ["hangs", "refuses", "answers-500"])
async def test_a_collector_that_is_down_slows_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """Every call is answered at once, what cannot be sent is counted, and it is told once."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", str(GIVES_UP_S))
    with collecting() as broken, socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))  # nothing listens there
        broken.status = 500
        if how == "hangs":
            broken.hangs.set()
        url = broken.url if how != "refuses" else f"http://127.0.0.1:{silent.getsockname()[1]}"
        arguments = ["--otlp-endpoint", url, "--trace-share", "1"]
        with LocalCluster.up(tmp_path / "c", nodes=1, extra_args=arguments) as cluster:
            dropped: set[float] = set()

            async def is_dropped_twice() -> bool:
                got = await ask(cluster, "n1", wire.LOCK_RENEW, {}, hold_id="0" * 32)
                assert got.code == "lease-expired"
                dropped.add(await counted(cluster, "holdfast_spans_dropped_total"))
                return len(dropped) > 2

            await until(is_dropped_twice, "two batches were dropped")
            assert await counted(cluster, "holdfast_spans_exported_total") == 0
            assert broken.spans == []
            assert cluster.log("n1").read_text("utf-8").count("event=traces-not-sent") == 1
            if how == "answers-500":
                broken.status = 200
                assert await is_dropped_twice()
                await until(lambda: broken.spans, "spans come again")
                assert {span.parent for span in broken.spans if span.kind == 2} == {""}, "each begins a trace"
                assert not [span for span in broken.spans if wire.METRICS in span.name], "probes are left out"
                await until(
                    lambda: "event=traces-sent-again" in cluster.log("n1").read_text("utf-8"),
                    "the node says that they do",
                )
            if how == "hangs":
                cluster.send_signal("n1", signal.SIGTERM)
                assert exit_code(cluster, "n1", STOPS_S) == 0, "nor does the end wait for it"


async def counted(cluster: LocalCluster, name: str) -> float:
    """Return the sum of a counter of n1."""
    async with aiohttp.ClientSession() as client, client.get(cluster.node("n1").http + wire.METRICS) as got:
        text = await got.text()
    return sum(float(value) for value in re.findall(rf"^{name}(?:{{.*}})? (\S+)$", text, re.MULTILINE))
