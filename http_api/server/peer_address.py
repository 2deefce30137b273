"""Where a connection comes from, as logs and lists show it."""

import asyncio
import socket
from typing import Final

UNIX: Final = "unix"
"""What stands for the address of all connections over a Unix socket: they have none."""


def address_of(transport: asyncio.BaseTransport | None) -> str:
    """Return the address of the other side, without its port; empty if that is not known any more."""
    if transport is None:
        return ""
    peer = transport.get_extra_info("peername")
    if isinstance(peer, tuple):
        return str(peer[0])
    connected = transport.get_extra_info("socket")
    return UNIX if connected is not None and connected.family == socket.AF_UNIX else ""
