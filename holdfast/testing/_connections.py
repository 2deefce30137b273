"""How clients reach a cluster in memory: HTTP as always, but over pipes and not over sockets."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Final

from aiohttp import ClientConnectionError, ClientRequest, ClientTimeout
from aiohttp.client_proto import ResponseHandler
from aiohttp.tracing import Trace
from msgspec import structs

from holdfast.operations.exchange import Attempt
from holdfast.operations.sending import Sending
from holdfast.testing._thread import ClusterClosed, NodeThread
from holdfast.transport.http import Connections, Connector

_NEVER_S: Final = 30 * 24 * 3600.0
"""Seconds after which an answer is given up: the node always answers, and the clock may stand still."""


class _PipeConnector(Connector):
    """A pool of connections to the node in the thread, whatever the URL says."""

    def __init__(self, thread: NodeThread) -> None:
        super().__init__()
        self._node_thread = thread

    async def _create_connection(
        self,
        req: ClientRequest,
        traces: list[Trace],
        timeout: ClientTimeout,  # noqa: ASYNC109 - theirs
    ) -> ResponseHandler:
        del req, traces, timeout  # there is one node, and nothing to wait for
        protocol = ResponseHandler(asyncio.get_running_loop())
        try:
            self._node_thread.connect(protocol)
        except ClusterClosed as error:
            raise ClientConnectionError(str(error)) from error
        return protocol


class MemoryConnections(Connections):
    """Sends attempts to the node in the thread. They take no time, and so are never given up."""

    def __init__(self, thread: NodeThread) -> None:
        super().__init__(lambda: _PipeConnector(thread))

    async def send(self, url: str, attempt: Attempt, sending: Sending) -> tuple[int, bytes]:
        """Make one attempt; return status and body of the answer. Raises NoAnswer."""
        return await super().send(url, structs.replace(attempt, give_up_s=_NEVER_S), sending)

    def stream(
        self, url: str, path: str, headers: dict[str, str], silence_s: float
    ) -> AsyncGenerator[tuple[int, bytes]]:
        """Ask for a stream, which may be silent for as long as the clock stands still. Raises NoAnswer."""
        return super().stream(url, path, headers, max(silence_s, _NEVER_S))
