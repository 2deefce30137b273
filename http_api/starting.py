"""A node while it starts: it can be stopped, and the service manager hears that it goes on."""

import asyncio
from typing import Final

from cluster.node import Node
from http_api import service_manager

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
