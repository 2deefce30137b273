"""For tests of programs that use Holdfast: a cluster in memory, whose clock stands still until it is moved.

with MemoryCluster() as cluster, cluster.sync_client() as client:
    hold = client.acquire("report", ttl=30)
    cluster.advance(31)  # the lease is over; no real time has passed
    assert client.lock("report").try_acquire() is not None

`plugin.py` has fixtures for pytest. All but the Null classes run the code of a node, which is a
distribution of its own: `pip install holdfast-node`.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.testing._cluster import MemoryCluster
    from holdfast.testing._flaky import Flaky
    from holdfast.testing._loopback import LoopbackCluster, StartFailed
    from holdfast.threads.null_client import NullClient, NullHold, NullLock

__all__ = ["Flaky", "LoopbackCluster", "MemoryCluster", "NullClient", "NullHold", "NullLock", "StartFailed"]

_HOMES = {
    "Flaky": "._flaky",
    "LoopbackCluster": "._loopback",
    "MemoryCluster": "._cluster",
    "NullClient": "holdfast.threads.null_client",
    "NullHold": "holdfast.threads.null_client",
    "NullLock": "holdfast.threads.null_client",
    "StartFailed": "._loopback",
}
"""Where each name lives: imported with its first use, so that nobody pays for what is not used."""

_WITHOUT_NODE = {"holdfast.threads.null_client"}
"""What runs where only the client is installed."""
_IN_PROCESSES_OF_THEIR_OWN = {"._loopback"}
"""What runs beside modules of others that have the names of a node's packages."""


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib  # noqa: PLC0415 - with the first use

    home = _HOMES[name]
    if home not in _WITHOUT_NODE:
        from holdfast.testing import _node_code  # noqa: PLC0415 - with the first use

        _node_code.check(name, may_be_hidden=home in _IN_PROCESSES_OF_THEIR_OWN)
    return getattr(importlib.import_module(home, __name__), name)
