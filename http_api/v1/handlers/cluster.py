"""The cluster and this node: who leads, is the node alive, is it ready, what does it count."""

import asyncio
from collections.abc import Callable, Sequence
from functools import cache
from itertools import chain

from msgspec import structs

from cluster.observing.status import ClusterStatus
from holdfast.wire.operators import HealthJson, LeaderPreferredJson, LeadershipTransferredJson, RulesHeldJson
from http_api.server.call import Call, Reply
from http_api.server.log_level import LogLevel
from http_api.server.metrics import CONTENT_TYPE, RequestCounts, render
from http_api.server.routes import Handler, Route
from http_api.v1 import schema
from http_api.v1.openapi import make_document
from lockapi import answers
from lockapi.gateway import CommandOutcome, Gateway
from lockapi.problems import ProblemError
from lockapi.requests.service import (
    HoldRulesRequest,
    PreferLeaderRequest,
    PreferNobodyRequest,
    ReleaseRulesRequest,
    TransferRequest,
)
from lockapi.turns import Turns
from lockstate.words.results import LeaderPreferred, RulesHeld

_DOCUMENT_REST_S = 0.002
"""Seconds between two of /openapi.json, large and made already: there are no more than 500 a second."""
_OK = answers.encode(HealthJson(ok=True))


def cluster_handler(connections: Callable[[], tuple[int, int]], log_level: LogLevel) -> Handler:
    """Return the handler of /v1/cluster: what the node says, with how many connections clients have here.

    And from which level on it logs.
    """

    async def get_cluster(gateway: Gateway, call: Call) -> Reply:  # noqa: ARG001 - all handlers look alike
        """Return the cluster as this node sees it."""
        status = status_of(gateway, connections)
        if status.own is not None:
            told = structs.replace(status.own, log_level=log_level.now, log_level_ms=log_level.ends_in_ms())
            status = structs.replace(status, own=told)
        return Reply(answers.encode(status))

    return get_cluster


def status_of(gateway: Gateway, connections: Callable[[], tuple[int, int]]) -> ClusterStatus:
    """Return what a node says, with how many connections its clients have."""
    status = gateway.node.status()
    if status.own is None:
        return status
    count, count_max = connections()
    own = structs.replace(status.own, connections=count, connections_max=count_max)
    return structs.replace(status, own=own)


async def transfer_leadership(gateway: Gateway, call: Call) -> Reply:
    """Hand leadership to another node."""
    request = await schema.read(call, TransferRequest)
    leader = await gateway.transfer_leadership(request.command(), call.timeout_s)
    return Reply(answers.encode(LeadershipTransferredJson(leader)))


async def prefer_leader(gateway: Gateway, call: Call) -> Reply:
    """Let a node lead whenever it can."""
    request = await schema.read(call, PreferLeaderRequest)
    return _preferred(request.id, await gateway.prefer_leader(request.command(), call.timeout_s))


async def prefer_nobody(gateway: Gateway, call: Call) -> Reply:
    """Let whichever node is elected lead."""
    request = await schema.read(call, PreferNobodyRequest)
    command = request.command(schema.body_or_query(call, "reason", request.reason))
    return _preferred(None, await gateway.prefer_leader(command, call.timeout_s))


def _preferred(node_id: str | None, outcome: CommandOutcome[LeaderPreferred]) -> Reply:
    result, revision, is_repeated = outcome
    answer = LeaderPreferredJson(preferred=node_id, was_preferred=result.was or None, revision=revision)
    return Reply(answers.told(answer, is_repeated=is_repeated))


async def hold_rules(gateway: Gateway, call: Call) -> Reply:
    """Keep the cluster at its rules."""
    command = (await schema.read(call, HoldRulesRequest)).command()
    result, revision, is_repeated = await gateway.submit(command, RulesHeld, call.timeout_s)
    answer = RulesHeldJson(rules=result.rules, held=True, was_held=result.was_held, revision=revision)
    return Reply(answers.told(answer, is_repeated=is_repeated))


async def release_rules(gateway: Gateway, call: Call) -> Reply:
    """Let the cluster follow newer rules as soon as all nodes know them."""
    request = await schema.read(call, ReleaseRulesRequest)
    command = request.command(schema.body_or_query(call, "reason", request.reason))
    result, revision, is_repeated = await gateway.submit(command, RulesHeld, call.timeout_s)
    answer = RulesHeldJson(rules=result.rules, held=False, was_held=result.was_held, revision=revision)
    return Reply(answers.told(answer, is_repeated=is_repeated))


async def get_livez(gateway: Gateway, call: Call) -> Reply:  # noqa: ARG001
    """Say that the process answers, and what is wrong with it nevertheless."""
    return Reply(answers.encode(HealthJson(ok=True, troubles=gateway.node.troubles())))


async def get_readyz(gateway: Gateway, call: Call) -> Reply:  # noqa: ARG001
    """Say whether this node can serve: it has caught up and knows a leader."""
    if gateway.node.is_shutting_down:
        raise ProblemError("shutting-down", "the node is shutting down")
    if not gateway.node.status().ready:
        raise ProblemError("not-ready", "the node has not caught up with a leader")
    return Reply(_OK)


def metrics_handler(counts: RequestCounts) -> Handler:
    """Return the handler of /metrics: the counters of the node and those of this face."""
    # Its own: while listings wait for each other in a long queue, this is what an operator looks at.
    turns = Turns()

    async def get_metrics(gateway: Gateway, call: Call) -> Reply:
        """Return the counters in the text format of Prometheus."""
        async with turns.turn(asyncio.get_running_loop().time() + call.timeout_s):
            samples = chain(gateway.node.metrics.samples(), counts.samples())
            return Reply(render(samples), content_type=CONTENT_TYPE)

    return get_metrics


def openapi_handler(routes: Sequence[Route]) -> Handler:
    """Return the handler of /openapi.json, which describes `routes`, itself among them."""

    @cache
    def document() -> bytes:
        """Return the document. It takes milliseconds to make, in which the node does nothing else: once."""
        return answers.encode(make_document(routes))

    turns = Turns(_DOCUMENT_REST_S)

    async def get_openapi(gateway: Gateway, call: Call) -> Reply:  # noqa: ARG001
        """Return this API as an OpenAPI document."""
        async with turns.turn(asyncio.get_running_loop().time() + call.timeout_s):
            return Reply(document())

    return get_openapi
