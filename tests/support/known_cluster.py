"""Real nodes with a tokens file."""

import http.client
import json
from typing import Any, Final

from holdfast import wire
from scripts.local_cluster import ASK_S, LocalCluster
from tests.unit.http_api.serving import bearer, token_line

TOKENS: Final = {name: f"token-of-{name}-".ljust(40, "x") for name in ("ann", "bob", "ops")}
RIGHTS: Final = {"ann": "read,acquire", "bob": "read,acquire", "ops": "read,acquire,force,admin,metrics"}
LINES: Final = b"".join([token_line(name, TOKENS[name], RIGHTS[name]) for name in TOKENS])
"""The tokens file: two that may work, and one that may do everything."""


class KnownCluster(LocalCluster):
    """A cluster whose nodes tell only those of it that they know."""

    def view(self, node_id: str, timeout_s: float = ASK_S) -> dict[str, Any] | None:
        """Return the cluster as a node sees it, None if it does not answer."""
        connection = self.connection(node_id, timeout_s)
        try:
            connection.request("GET", wire.CLUSTER, headers=bearer(TOKENS["ops"]))
            found: dict[str, Any] = json.loads(connection.getresponse().read())
        except (OSError, http.client.HTTPException):
            return None
        finally:
            connection.close()
        return found
