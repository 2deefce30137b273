"""SENTINEL: by which clients find a node that serves. Every node is asked, and each answers only of itself.

Every node takes every command, so each that serves is the master for whoever asks it, at the address at which
it was reached. One that does not serve says so, and the client asks the next one. No node tells of others: it
does not know at which address clients reach them.
"""

import hashlib
import ipaddress
from collections.abc import Callable, Sequence
from typing import Final

from cluster.observing.status import ClusterStatus
from redis_api.protocol.arguments import subcommand
from redis_api.protocol.errors import CommandRefused
from redis_api.protocol.resp import Failure, Reply
from redis_api.shared.client import Client

MASTER: Final = b"holdfast"
"""The name under which clients ask for a node."""
_LOST: Final = "unreachable"
_LEARNING: Final = "joining"


async def sentinel(client: Client, args: list[bytes]) -> Reply:
    """SENTINEL subcommand."""
    act, rest = subcommand("SENTINEL", _SUBCOMMANDS, args, "nodes elect their leader themselves")
    return act(client, rest)


def _address(client: Client) -> tuple[str, str]:
    """Return host and port at which the client has reached this node."""
    host, port, *_ = client.transport.get_extra_info("sockname")
    address = ipaddress.ip_address(host.partition("%")[0])
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or address), str(port)


def _run_id(status: ClusterStatus) -> str:
    """Return a name of this node as Redis has them: 40 hexadecimal digits."""
    return hashlib.sha1(status.node_id.encode(), usedforsecurity=False).hexdigest()


def _serves(client: Client, status: ClusterStatus) -> bool:
    return status.ready and not client.face.gateway.node.is_shutting_down


def quorum(status: ClusterStatus) -> int:
    """Return how many nodes a majority of those that vote has."""
    return sum([node.state != _LEARNING for node in status.nodes]) // 2 + 1


def _others_count(status: ClusterStatus) -> int:
    """Return how many other nodes this one reaches that vote."""
    others = [node.state for node in status.nodes if node.id != status.node_id]
    return sum([state not in (_LOST, _LEARNING) for state in others])


def _row(client: Client) -> Reply:
    status = client.face.gateway.node.status()
    host, port = _address(client)
    return {
        "name": MASTER,
        "ip": host,
        "port": port,
        "runid": _run_id(status),
        "flags": "master" if _serves(client, status) else "master,s_down,o_down",
        "role-reported": "master",
        "config-epoch": str(status.term),
        "num-slaves": "0",
        "num-other-sentinels": str(_others_count(status)),
        "quorum": str(quorum(status)),
    }


def _check_name(name: bytes) -> None:
    if name != MASTER:
        raise CommandRefused(f"No such master with that name: here it is {MASTER.decode()}")


def _masters(client: Client, args: Sequence[bytes]) -> Reply:
    del args
    return [_row(client)]


def _master(client: Client, args: Sequence[bytes]) -> Reply:
    _check_name(args[0])
    return _row(client)


def _address_of(client: Client, args: Sequence[bytes]) -> Reply:
    """Return where the client is to go; nothing for another name, and of a node that does not serve."""
    if args[0] != MASTER or not _serves(client, client.face.gateway.node.status()):
        return None
    return list(_address(client))


def _nobody(client: Client, args: Sequence[bytes]) -> Reply:
    del client
    _check_name(args[0])
    return []


def _check_quorum(client: Client, args: Sequence[bytes]) -> Reply:
    _check_name(args[0])
    status = client.face.gateway.node.status()
    usable = _others_count(status) + 1
    if usable >= quorum(status) and _serves(client, status):
        return f"OK {usable} usable Sentinels. Quorum and failover authorization can be reached"
    return Failure(
        "NOQUORUM", f"{usable} usable Sentinels. Not enough available Sentinels to reach the quorum"
    )


def _my_id(client: Client, args: Sequence[bytes]) -> Reply:
    del args
    return _run_id(client.face.gateway.node.status())


_SUBCOMMANDS: Final[dict[bytes, tuple[int, Callable[[Client, Sequence[bytes]], Reply]]]] = {
    b"GET-MASTER-ADDR-BY-NAME": (1, _address_of),
    b"MASTERS": (0, _masters),
    b"MASTER": (1, _master),
    b"SENTINELS": (1, _nobody),
    b"REPLICAS": (1, _nobody),
    b"SLAVES": (1, _nobody),
    b"CKQUORUM": (1, _check_quorum),
    b"MYID": (0, _my_id),
}
"""The subcommands, with the number of their arguments."""
