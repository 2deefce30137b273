"""Three real nodes that also serve clients of Redis, each at a port of its own."""

from pathlib import Path
from typing import Any, Self

import redis

from scripts.lib import ports
from scripts.local_cluster import LocalCluster

PORTS_FILE = "redis-ports.txt"


class RedisCluster(LocalCluster):
    """A cluster of which every node has an address for clients of Redis, which it keeps."""

    @classmethod
    def of(cls, directory: Path) -> Self:
        """Start three nodes. Locks in database 9 may have no deadline."""
        directory.mkdir(parents=True, exist_ok=True)
        (directory / PORTS_FILE).write_text(" ".join(map(str, ports.reserve(3))))
        return cls.up(directory, extra_args=["--allow-no-deadline", "redis/9"])

    def environment(self, node_id: str) -> dict[str, str]:
        """Return the environment in which a node is started."""
        return super().environment(node_id) | {"HOLDFAST_REDIS": f"{ports.HOST}:{self.port(node_id)}"}

    def port(self, node_id: str) -> int:
        """Return where a node serves clients of Redis."""
        known = (self.directory / PORTS_FILE).read_text().split()
        return int(known[int(node_id.removeprefix("n")) - 1])

    def client(self, node_id: str, **options: Any) -> redis.Redis:
        """Return a client of one node."""
        return redis.Redis(host=ports.HOST, port=self.port(node_id), **options)
