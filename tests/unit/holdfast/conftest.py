"""What the tests of the client share: both kinds of it, and a real node to talk to."""

import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager

import pytest

import holdfast
from holdfast.stream.stream_link import LABELS
from lockstate.tables.records import Session
from tests.support.both_clients import KINDS, WAYS, client_of
from tests.unit.http_api.serving import Served, serving

NewClient = Callable[..., AbstractAsyncContextManager[holdfast.Client]]


@pytest.fixture(params=KINDS)
def new_client(request: pytest.FixtureRequest) -> NewClient:
    """Make a client of each kind."""
    return _maker(request.param)


@pytest.fixture(params=[(kind, way) for kind in KINDS for way in WAYS], ids="-".join)
def new_client_of_each_way(request: pytest.FixtureRequest) -> NewClient:
    """Make a client of each kind, which goes over HTTP or over a stream."""
    return _maker(*request.param)


def _maker(kind: str, way: str = "") -> NewClient:
    def make(nodes: str | list[str], **options: object) -> AbstractAsyncContextManager[holdfast.Client]:
        return client_of(kind, nodes, way=way, **options)

    return make


@contextlib.asynccontextmanager
async def a_node(*allow_priority: str) -> AsyncIterator[tuple[Served, str]]:
    """Give a real node with a real state machine, and its URL."""
    async with serving(allow_priority=allow_priority) as served:
        yield served, f"http://127.0.0.1:{served.port}"


def sessions_of(served: Served) -> list[Session]:
    """Return the sessions at a node, but for those of the streams of clients."""
    return [each for each in served.node.machine.state.sessions.values() if each.labels != LABELS]
