"""What the service manager is told of this node: that it serves, how it does, that it stops.

systemd, or another manager that speaks its protocol (sd_notify(3)), names a datagram socket in NOTIFY_SOCKET.
A node that was started by anybody else tells nobody.
"""

import contextlib
import logging
import os
import socket
from typing import Final

logger = logging.getLogger("http_api")

VARIABLE: Final = "NOTIFY_SOCKET"


def tell(*lines: str) -> None:
    """Send lines such as "READY=1". If the manager cannot be told, the node serves all the same."""
    name = os.environ.get(VARIABLE, "")
    if not name:
        return
    address = "\0" + name[1:] if name.startswith("@") else name  # @ is how an abstract socket is written
    try:
        with contextlib.closing(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)) as sending:
            sending.setblocking(False)
            sending.sendto("\n".join(lines).encode(), address)
    except OSError as error:
        detail = f"{VARIABLE}={name}: {error.strerror}; the service manager does not hear of this node"
        logger.warning("event=notify-failed detail=%r", detail)
