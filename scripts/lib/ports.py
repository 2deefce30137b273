"""Loopback ports for a cluster: HTTP from a base upwards, peers 100 above."""

import random
import socket
from pathlib import Path

HOST = "127.0.0.1"
PEER_OFFSET = 100
_LOWEST = 10_000


class PortsBusyError(Exception):
    """A port that is needed is in use."""


def of_cluster(base: int, nodes: int) -> list[tuple[int, int]]:
    """Return the HTTP and the peer port of each node."""
    return [(base + i, base + PEER_OFFSET + i) for i in range(nodes)]


def check_free(base: int, nodes: int) -> None:
    """Raise PortsBusyError unless all ports of the cluster can be listened on."""
    busy = [port for pair in of_cluster(base, nodes) for port in pair if not _is_free(port)]
    if busy:
        raise PortsBusyError(
            f"port {', '.join(map(str, busy))} in use; choose another --base-port, or 0 for free ones"
        )


def find_base(nodes: int) -> int:
    """Return a base whose ports are free now.

    They lie below the range from which the kernel serves outgoing connections: a node that is restarted
    must find its port as it left it.
    """
    limit = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    highest = max(_LOWEST + 1, limit - PEER_OFFSET - nodes)
    for _ in range(1000):
        base = random.randrange(_LOWEST, highest)
        if all(_is_free(port) for pair in of_cluster(base, nodes) for port in pair):
            return base
    raise PortsBusyError(f"no {2 * nodes} free ports between {_LOWEST} and {highest}")


def _is_free(port: int) -> bool:
    """Whether a port can be listened on. Connections that linger from an earlier listener do not matter."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True
