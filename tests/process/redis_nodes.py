"""Three real nodes that also serve clients of Redis, each at a port of its own."""

from pathlib import Path
from typing import Any, Self

import redis

from scripts import redis_cluster
from scripts.lib import ports


class RedisCluster(redis_cluster.RedisCluster):
    """A cluster of which every node has an address for clients of Redis, which it keeps."""

    @classmethod
    def of(cls, directory: Path, no_deadline: str = "redis/9") -> Self:
        """Start three nodes. Locks below `no_deadline` may have no deadline."""
        return cls.up_with_redis(directory, extra_args=["--allow-no-deadline", no_deadline])

    def port(self, node_id: str) -> int:
        """Return where a node serves clients of Redis."""
        return self.redis_ports[node_id]

    def client(self, node_id: str, **options: Any) -> redis.Redis:
        """Return a client of one node."""
        return redis.Redis(host=ports.HOST, port=self.port(node_id), **options)
