"""For tests of programs that use Holdfast: a cluster in memory, whose clock stands still until it is moved.

with MemoryCluster() as cluster, cluster.sync_client() as client:
    hold = client.acquire("report", ttl=30)
    cluster.advance(31)  # the lease is over; no real time has passed
    assert client.lock("report").try_acquire() is not None

`plugin.py` has fixtures for pytest. All but the Null classes run the code of a node, and need it:
`pip install 'holdfast[node]'`.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.testing._cluster import MemoryCluster
    from holdfast.testing._flaky import Flaky
    from holdfast.testing._loopback import LoopbackCluster, StartFailed
    from holdfast.testing._null import NullClient, NullHold, NullLock

__all__ = ["Flaky", "LoopbackCluster", "MemoryCluster", "NullClient", "NullHold", "NullLock", "StartFailed"]

_HOMES = {
    "Flaky": "_flaky",
    "LoopbackCluster": "_loopback",
    "MemoryCluster": "_cluster",
    "NullClient": "_null",
    "NullHold": "_null",
    "NullLock": "_null",
    "StartFailed": "_loopback",
}
"""Where each name lives: imported with its first use, so that nobody pays for what is not used."""

_WITHOUT_NODE = {"_null"}
"""What runs where only the client is installed."""
_OF_NODES = ("aiohttp", "api", "cluster", "http_api", "lockstate", "pysyncobj", "uvloop")
"""What a node consists of, and what that needs."""


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib.util  # noqa: PLC0415 - with the first use

    home = _HOMES[name]
    missing = [] if home in _WITHOUT_NODE else [m for m in _OF_NODES if importlib.util.find_spec(m) is None]
    if missing:
        need = f"{name} runs the code of a node, which is not installed ({', '.join(missing)} missing)"
        raise ImportError(f"{need}: pip install 'holdfast[node]'", name=missing[0])
    return getattr(importlib.import_module(f"{__name__}.{home}"), name)
