"""What the tests of the client share: both kinds of it, and a real node to talk to."""

import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager

import pytest

import holdfast
from tests.support.both_clients import KINDS, client_of
from tests.unit.http_api.serving import Served, serving

NewClient = Callable[..., AbstractAsyncContextManager[holdfast.Client]]


@pytest.fixture(params=KINDS)
def new_client(request: pytest.FixtureRequest) -> NewClient:
    """Make a client of each kind."""
    kind: str = request.param

    def make(nodes: str | list[str], **options: object) -> AbstractAsyncContextManager[holdfast.Client]:
        return client_of(kind, nodes, **options)

    return make


@contextlib.asynccontextmanager
async def a_node(*allow_priority: str) -> AsyncIterator[tuple[Served, str]]:
    """Give a real node with a real state machine, and its URL."""
    async with serving(allow_priority=allow_priority) as served:
        yield served, f"http://127.0.0.1:{served.port}"
