"""A local cluster whose nodes also serve clients of Redis, each at a port that it keeps."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Self

from scripts.lib import ports
from scripts.local_cluster import LocalCluster

PORTS_FILE: Final = "redis-ports.json"


class RedisCluster(LocalCluster):
    """A cluster that serves clients of Redis if it was made with `up_with_redis`."""

    @classmethod
    def up_with_redis(cls, directory: Path, nodes: int = 3, extra_args: Sequence[str] = ()) -> Self:
        """Start a new cluster that serves clients of Redis. Raises what `up` does."""
        directory.mkdir(parents=True, exist_ok=True)
        found = {f"n{number}": port for number, port in enumerate(ports.reserve(nodes), 1)}
        (directory / PORTS_FILE).write_text(json.dumps(found))
        return cls.up(directory, nodes=nodes, extra_args=extra_args)

    @property
    def redis_ports(self) -> dict[str, int]:
        """Return where nodes serve clients of Redis; one that joined later does not."""
        file = self.directory / PORTS_FILE
        found: dict[str, int] = json.loads(file.read_text()) if file.exists() else {}
        return found

    def environment(self, node_id: str) -> dict[str, str]:
        """Return the environment in which a node is started."""
        port = self.redis_ports.get(node_id)
        own = {} if port is None else {"HOLDFAST_REDIS": f"{ports.HOST}:{port}"}
        return super().environment(node_id) | own
