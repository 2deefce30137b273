"""The cluster and this node: who leads, is it alive, is it ready, what does it count."""

from collections.abc import Sequence
from itertools import chain

from api import answers
from api.node import ServingNode
from api.problems import ProblemError
from api.requests.service import TransferRequest
from http_api.server.call import Call, Reply
from http_api.server.metrics import CONTENT_TYPE, RequestCounts, render
from http_api.server.routes import Handler, Route
from http_api.v1 import schema
from http_api.v1.openapi import make_document

_OK = answers.encode(answers.Health(ok=True))


async def get_cluster(node: ServingNode, call: Call) -> Reply:  # noqa: ARG001 - all handlers look alike
    """Return the cluster as this node sees it."""
    return Reply(answers.encode(node.status()))


async def transfer_leadership(node: ServingNode, call: Call) -> Reply:
    """Hand leadership to another node."""
    request = await schema.read(call, TransferRequest)
    to = request.to or None
    known = [peer.id for peer in node.status().nodes]
    if to is not None and to not in known:
        raise ProblemError("invalid-request", f"to: {to!r}; must be one of {', '.join(known)}")
    leader = await node.transfer_leadership(to, call.timeout_s)
    return Reply(answers.encode(answers.LeadershipTransferred(leader)))


async def get_livez(node: ServingNode, call: Call) -> Reply:  # noqa: ARG001
    """Say that the process answers."""
    return Reply(_OK)


async def get_readyz(node: ServingNode, call: Call) -> Reply:  # noqa: ARG001
    """Say whether this node can serve: it has caught up and knows a leader."""
    if node.is_shutting_down:
        raise ProblemError("shutting-down", "the node is shutting down")
    if not node.status().ready:
        raise ProblemError("not-ready", "the node has not caught up with a leader")
    return Reply(_OK)


def metrics_handler(counts: RequestCounts) -> Handler:
    """Return the handler of /metrics: the counters of the node and those of this face."""

    async def get_metrics(node: ServingNode, call: Call) -> Reply:  # noqa: ARG001
        """Return the counters in the text format of Prometheus."""
        return Reply(render(chain(node.metrics.samples(), counts.samples())), content_type=CONTENT_TYPE)

    return get_metrics


def openapi_handler(routes: Sequence[Route]) -> Handler:
    """Return the handler of /openapi.json, which describes `routes`, itself among them."""

    async def get_openapi(node: ServingNode, call: Call) -> Reply:  # noqa: ARG001
        """Return this API as an OpenAPI document."""
        return Reply(answers.encode(make_document(routes)))

    return get_openapi
