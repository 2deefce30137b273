"""Loopback ports for a cluster: HTTP from a base upwards, peers 100 above, clients of Redis 200 above.

Ports that are found here are reserved for this process until it ends. A port that was only looked at is free
for everybody until somebody listens on it, and of two runs at the same time both would take it.
"""

import fcntl
import os
import random
import socket
from collections.abc import Sequence
from functools import cache
from pathlib import Path

HOST = "127.0.0.1"
PEER_OFFSET = 100
REDIS_OFFSET = 200
_LOWEST = 10_000
_HIGHEST = 65_535
_TRIES_COUNT = 1000
_reserved: set[int] = set()
"""What this process has reserved: its own locks would not keep it from taking a port twice."""


class PortsBusyError(Exception):
    """A port that is needed is in use."""


def of_cluster(base: int, nodes: int) -> list[tuple[int, int]]:
    """Return the HTTP and the peer port of each node."""
    return [(base + i, base + PEER_OFFSET + i) for i in range(nodes)]


def for_redis(base: int, nodes: int) -> list[int]:
    """Return the port of each node for clients of Redis."""
    return [base + REDIS_OFFSET + i for i in range(nodes)]


def check_free(base: int, nodes: int, others: Sequence[int] = ()) -> None:
    """Raise PortsBusyError unless all ports of the cluster, and these, can be listened on."""
    wanted = [port for pair in of_cluster(base, nodes) for port in pair]
    busy = [port for port in (*wanted, *others) if not _is_free(port)]
    if busy:
        raise PortsBusyError(
            f"port {', '.join(map(str, busy))} in use; choose another --base-port, or 0 for free ones"
        )


def find_base(nodes: int) -> int:
    """Return a base whose ports are free now, and reserved for this process until it ends.

    They lie below the range from which the kernel serves outgoing connections: a node that is restarted
    must find its port as it left it.
    """
    outgoing = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    needed = PEER_OFFSET + nodes
    # Where outgoing connections may have any port there is nothing below, and luck has to do.
    end = (outgoing if outgoing - needed > _LOWEST else _HIGHEST + 1) - needed
    for _ in range(_TRIES_COUNT):
        base = random.randrange(_LOWEST, end)
        wanted = [port for pair in of_cluster(base, nodes) for port in pair]
        if _reserve(wanted):
            if all(map(_is_free, wanted)):
                return base
            _give_back(wanted)
    raise PortsBusyError(f"no {2 * nodes} free ports between {_LOWEST} and {end + needed}")


def reserve(count: int) -> list[int]:
    """Return ports that are free now, and reserved for this process until it ends."""
    return [port for port, _ in of_cluster(find_base(count), count)]


def _reserve(wanted: list[int]) -> bool:
    """Lock these ports against other processes; whether that succeeded for all. Else none is locked."""
    if not _reserved.isdisjoint(wanted):
        return False
    taken: list[int] = []
    for port in wanted:
        try:
            fcntl.lockf(_locks(), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
        except OSError:
            _give_back(taken)
            return False
        taken.append(port)
        _reserved.add(port)
    return True


def _give_back(taken: list[int]) -> None:
    for port in taken:
        fcntl.lockf(_locks(), fcntl.LOCK_UN, 1, port)
        _reserved.discard(port)


@cache
def _locks() -> int:
    """Open the file in which each byte stands for a port.

    The kernel frees the locks of a process when it ends, however that happens, and also if it closes any
    descriptor of this file: so there is only this one, until the end. A forked child has no locks.
    """
    # Not TMPDIR: all runs of a user must meet here, and some have a folder of their own.
    path = Path("/tmp") / f"holdfast-ports-{os.getuid()}"  # noqa: S108 - opened as below, it is nobody else's
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)


def _is_free(port: int) -> bool:
    """Whether a port can be listened on. Connections that linger from an earlier listener do not matter."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True
