"""For tests of programs that use Holdfast: a cluster in memory, whose clock stands still until it is moved.

with MemoryCluster() as cluster, cluster.sync_client() as client:
    hold = client.acquire("report", ttl=30)
    cluster.advance(31)  # the lease is over; no real time has passed
    assert client.lock("report").try_acquire() is not None

MemoryCluster and Flaky run the code of a node, and need it: `pip install 'holdfast[node]'`.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.testing._cluster import MemoryCluster
    from holdfast.testing._flaky import Flaky
    from holdfast.testing._null import NullClient, NullHold, NullLock

__all__ = ["Flaky", "MemoryCluster", "NullClient", "NullHold", "NullLock"]

_HOMES = {
    "Flaky": "_flaky",
    "MemoryCluster": "_cluster",
    "NullClient": "_null",
    "NullHold": "_null",
    "NullLock": "_null",
}
"""Where each name lives: imported with its first use, so that nobody pays for what is not used."""

_OF_NODES = {"aiohttp", "api", "cluster", "http_api", "lockstate", "pysyncobj"}
"""What belongs to the node part, and to what that needs."""


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib  # noqa: PLC0415 - with the first use

    try:
        home = importlib.import_module(f"{__name__}.{_HOMES[name]}")
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in _OF_NODES:
            raise
        missing = f"{name} runs the code of a node, which is not installed ({error.name} is missing)"
        raise ImportError(f"{missing}: pip install 'holdfast[node]'", name=error.name) from error
    return getattr(home, name)
