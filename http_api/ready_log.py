"""The lines `ready` and `not-ready`: they mean what /readyz means. The service manager is told the same."""

import logging
from typing import Final, Protocol

from cluster.config import NodeConfig
from http_api import service_manager

logger = logging.getLogger("http_api")

_NOT_READY: Final = "this node knows no leader, or does not vote yet; `holdfast status` says why"


class Readiness(Protocol):
    """What is asked of the node."""

    @property
    def is_ready(self) -> bool:
        """Whether /readyz answers 200."""

    @property
    def is_shutting_down(self) -> bool:
        """Whether the node refuses new work."""


class ReadyLog:
    """Logs where the node listens, and each change of its readiness."""

    def __init__(self, node: Readiness, config: NodeConfig, urls: str) -> None:
        """Tell of `node`, which listens for clients at `urls`."""
        self._node = node
        self._node_id = config.node_id
        self._where = (
            f"node_id={config.node_id} http={urls} peer={config.peer} advertise_http={config.advertise_http}"
            f"{f' redis={config.redis}' if config.redis is not None else ''}"
        )
        self._is_ready = False

    def listening(self) -> None:
        """Say that clients can connect; whether they are served is another matter."""
        logger.info("event=listening %s", self._where)
        service_manager.tell("READY=1", f"STATUS={_NOT_READY}")

    def look(self) -> None:
        """Say so if the node became ready, or is not ready any more. A node that stops says that itself."""
        is_ready = self._node.is_ready
        if is_ready == self._is_ready or self._node.is_shutting_down:
            return
        self._is_ready = is_ready
        if is_ready:
            logger.info("event=ready %s", self._where)
            service_manager.tell("STATUS=ready")
        else:
            logger.warning("event=not-ready node_id=%s detail=%r", self._node_id, _NOT_READY)
            service_manager.tell(f"STATUS={_NOT_READY}")
