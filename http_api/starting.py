"""A node while it starts: it can be stopped, and the service manager hears that it goes on."""

import asyncio
from typing import TYPE_CHECKING, Final

from cluster.build import this_build
from cluster.config import NodeConfig
from cluster.config_sources import WrongValueError
from cluster.node import Node
from http_api import service_manager

if TYPE_CHECKING:
    from http_api.otlp import SpanExport

_EXTENDED_S: Final = 60
"""Seconds that the service manager is asked to wait for the next word of a node that reads its state."""


async def started(node: Node, stop_asked: asyncio.Event) -> bool:
    """Start the node; whether that was done before it was told to stop. Raises StartupError."""
    node.loading.on_progress = _tell_progress
    starting = asyncio.ensure_future(node.start())
    stopping = asyncio.ensure_future(stop_asked.wait())
    await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if not starting.done():
        starting.cancel()
        await asyncio.wait({starting})
    if starting.cancelled():
        return False
    starting.result()
    return True


def _tell_progress(how_far: str) -> None:
    service_manager.tell(f"STATUS={how_far}", f"EXTEND_TIMEOUT_USEC={_EXTENDED_S * 1_000_000}")


def export_of(config: NodeConfig) -> "SpanExport | None":
    """Return what sends traces to a collector, None if there is none. Raises ConfigError."""
    if not config.otlp_endpoint:
        return None
    try:
        from http_api.otlp import SpanExport  # noqa: PLC0415 - an extra, which takes time and memory
    except ModuleNotFoundError as missing:
        allowed = f"needs a package that is missing ({missing.name}): pip install 'holdfast-node[tracing]'"
        raise WrongValueError("otlp_endpoint", config.otlp_endpoint, allowed) from None
    return SpanExport(config.otlp_endpoint, config.node_id, this_build().version)
